"""A fleet: a model for every key, and beside them one of all rows from which new keys begin.

To whoever trains, predicts or judges it is a model: rows go to the models of their keys, and what
these said comes back in the order of the rows. At most `most_open` models are in memory, those used
last; the others rest in the store. Neither how a stream is cut nor how many are open changes a bit:
a block is cut where a key begins, and a key begins from what all rows before have taught.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from kbnn.core.network import LEARNED, REJECTED, UNLABELLED
from kbnn.errors import ModelError
from kbnn.fleet.forms import Forms
from kbnn.fleet.keys import keys_of
from kbnn.fleet.part import NEW, Part
from kbnn.fleet.start import Widths, begun, caught_up, first_bytes, window_end, window_start
from kbnn.fleet.store import Store
from kbnn.model import file as modelfile
from kbnn.model.model import Model
from kbnn.model.rows import Rows, sliced
from kbnn.model.schema import Schema
from kbnn.model.settings import MOST_KEPT, Settings
from kbnn.model.stored import to_state
from kbnn.task import forecast as said_of
from kbnn.task.base import blank
from kbnn.task.forecast import HELD, Forecast

SMALL: Final = {
    "hidden": (10,),
    "covariance": "neuron",
    "rehearse": 0,
    "kind": "regression",
    "keep": 64,
    "sample": 0,
}
"""The settings of a fleet where nothing else is said: a key takes some 7 KB."""
OPEN: Final = 10_000
"""Models that are open at a time where nothing else is said."""


class Fleet(Model):
    """The models of all keys; what it has itself is the record of all rows and the position."""

    def __init__(
        self, settings: Settings, schema: Schema, key: Sequence[str], store: Store
    ) -> None:
        super().__init__(settings, schema)
        self.key = tuple(key)
        self.store = store
        self.most_open = OPEN
        self.common: Model | None = None
        self.widths = Widths()
        self.forms = Forms()
        self._rows = self._rejected = 0
        self._young: set[str] = set()  # keys that came before the common model had begun
        self._moved: list[tuple[int, list[float]]] = []  # by row, what the widths have to learn
        self._start = NEW  # what new keys begin from in this window
        self._part = Part(settings, schema, self.forms)
        self._wanted: str | None = None

    @classmethod
    def begin(
        cls, settings: Settings, schema: Schema, key: Sequence[str], store: Store, common: bool
    ) -> Fleet:
        """A fleet that has seen nothing; without a common start keys begin from ignorance.

        Where a row's own past is part of it, there is no row of all keys.
        """
        fleet = cls(settings, schema, key, store)
        if common and not schema.lags:
            fleet.common = Model(replace(settings, keep=MOST_KEPT), schema)
            fleet.common.scored = False
        return fleet

    # Keeping it.

    @classmethod
    def load(cls, store: Store) -> Fleet | None:
        """The fleet as it was last saved, None where it never was."""
        state, name = store.state(), store.path or "the fleet"
        if not state:
            return None
        try:
            own = modelfile.load_bytes(state["fleet"], name)
            plain = json.loads(state["counts"])
            fleet = cls(own.settings, own.schema, list(map(str, plain["key"])), store)
            fleet.remember(lambda: own.card)
            fleet.position, fleet.skipped = own.position, own.skipped
            fleet._rows, fleet._rejected = int(plain["rows"]), int(plain["rejected"])
            fleet._young = set(map(str, plain["young"]))
            fleet.widths = Widths.from_json(plain["widths"])
            fleet._moved = [(int(row), list(move)) for row, move in plain.get("moved", [])]
            fleet.forms.learn(plain.get("forms", {}))
            fleet._start = state.get("start", NEW)
            if "common" in state:
                fleet.common = modelfile.load_bytes(state["common"], f"{name}: the common model")
                fleet.common.scored = False
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{name}: is damaged (its state)") from error
        fleet.met = fleet._rows + fleet._rejected + fleet.skipped
        return fleet

    def save(self) -> None:
        """Write what has changed, all of it in one step."""
        self.store.write(self._part.changed())
        counts = {
            "key": list(self.key),
            "rows": self._rows,
            "rejected": self._rejected,
            "young": sorted(self._young),
            "widths": self.widths.to_json(),
            "moved": self._moved,
            "forms": self.forms.plain(),
        }
        state = {
            "fleet": modelfile.to_bytes(*to_state(self)),
            "counts": json.dumps(counts).encode(),
        }
        if self.common is not None:
            state["start"] = self._start
            state["common"] = modelfile.to_bytes(*to_state(self.common))
        self.store.commit(state)

    def model_of(self, key: str) -> Model | None:
        """The model of a key, None where it has none yet."""
        content = None if key in self._part else self.store.read(key)
        if content is not None:
            self._opened({key: content})
        return self._part.model(key) if key in self._part else None

    def file_of(self, key: str) -> bytes:
        """What the model file of a key would hold; nothing where it has no model."""
        model = self.model_of(key)
        return b"" if model is None else modelfile.to_bytes(*to_state(model))

    def _opened(self, found: Mapping[str, bytes]) -> None:
        try:
            self._part.open(found)
        except ModelError as error:
            raise ModelError(f"{self.store.path}: {error}") from error

    def _rest(self) -> None:
        """Let those rest that were not used for longest."""
        if len(self._part) > self.most_open:
            self.store.write(self._part.rest(self.most_open))

    # What a model is asked.

    @property
    def rows(self) -> int:
        """Rows learned in all passes, held ones included."""
        return self._rows

    @property
    def rejected(self) -> int:
        """Rows with a target that could not be learned from."""
        return self._rejected

    @property
    def intervals(self) -> str:
        """Whether intervals are `tracked`, or `stated` as the distribution has them."""
        return self._wanted or self.settings.intervals

    def with_intervals(self, wanted: str | None) -> None:
        """Take intervals as stated from now on, whatever was tracked; UsageError if not tracked."""
        super().with_intervals(wanted)
        self._wanted = self._part.wanted = wanted

    # Rows.

    def learn(self, rows: Rows, again: bool = False) -> Forecast:
        """Predict each row by the model of its key, then learn it there."""
        if rows.schema is not None and rows.schema is not self._schema:
            self.schema = rows.schema
        keys = keys_of(rows, self.key)
        rows = rows._replace(original=None, schema=self._schema)
        parts, at = [], 0
        while at < len(keys):
            stop = self._until(keys, at)
            parts.append(self._taught(keys[at:stop], sliced(rows, at, stop), again))
            at = stop
        said = said_of.joined(parts) if parts else blank(0, self.task.numbers)
        self._rows += int(np.count_nonzero(said.status & (LEARNED | HELD)))
        self._rejected += int(np.count_nonzero(said.status & REJECTED))
        self.skipped += int(np.count_nonzero(said.status & UNLABELLED))
        if not again:
            self._score(rows, said, True)
        return said

    def _until(self, keys: list[str], start: int) -> int:
        """Where a piece of a block ends: with a common start at the end of a window at last."""
        stop = len(keys)
        if self.common is not None:
            room = 1 if self.common.warming_up else window_end(self.met) - self.met
            stop = min(stop, start + room)
        if stop - start <= self.most_open:
            return stop
        seen: set[str] = set()
        for at in range(start, stop):
            seen.add(keys[at])
            if len(seen) > self.most_open:
                return at
        return stop

    def _taught(self, keys: list[str], rows: Rows, again: bool) -> Forecast:
        """Let the models of keys learn a piece, and beside them the common one."""
        self._look_around()
        found = self._found(keys)
        self._opened(found)
        said, moved = self._part.learn(keys, rows, again)
        if self.common is not None:
            self._moved += [(self.met + at + 1, move.tolist()) for at, move in moved]
            self.common.learn(rows, again)
        self.met += len(keys)
        self._rest()
        return said

    def _look_around(self) -> None:
        """Where a window begins: how far keys have moved counts for those that are new in it."""
        if self._begins and self.met == window_start(self.met):
            self._start = NEW
            before = window_start(self.met - 1)
            while self._moved and self._moved[0][0] <= before:
                self.widths.learn(np.array(self._moved.pop(0)[1]))

    def _first(self) -> bytes:
        """What a new key begins from in this window."""
        if not self._start and self.common is not None and self._begins:
            self._start = first_bytes(self.settings, self.common, self.widths, self.forms)
        return self._start

    def _found(self, keys: list[str]) -> dict[str, bytes]:
        """What rests of keys that are not open, and what new ones begin from."""
        found: dict[str, bytes] = {}
        begins, young, known = self._begins, self._young, self._part.keys
        for key in keys:
            if key in known and (not young or not begins or key not in young):
                continue
            if key in found:
                continue
            if begins and key in young:
                found[key] = self._grown_up(key)
                continue
            content = self.store.read(key)
            if content is None:
                content = self._first()
                if self.common is not None and not begins:
                    young.add(key)
            found[key] = content
        if begins and self.met + len(keys) < window_end(self.met):
            self._first()  # the common model goes on, and this window's keys do not
        return found

    @property
    def _begins(self) -> bool:
        """Whether there is a common model that keys begin from."""
        return self.common is not None and not self.common.warming_up

    def _grown_up(self, key: str) -> bytes:
        """A key that came before the common model had begun: it begins now, and learns its rows."""
        self._young.discard(key)
        content = None if key in self._part else self.store.read(key)
        if content is not None:
            self._opened({key: content})
        held = self._part.take(key)
        self._opened({key: self._first()})
        return modelfile.to_bytes(*to_state(caught_up(self._part.take(key), held)))

    def predict(self, rows: Rows) -> Forecast:
        """Predict each row by the model of its key; a key that is new is like the others."""
        return self._asked(rows, lambda model, part: model.predict(part))

    def ahead(self) -> Callable[[Rows], Forecast]:
        """What predicts rows that come after those learned: each is after its key's above."""
        if not self._schema.lags:
            return self.predict
        speakers: dict[int, tuple[Model, Callable[[Rows], Forecast]]] = {}

        def say(model: Model, rows: Rows) -> Forecast:
            return speakers.setdefault(id(model), (model, model.ahead()))[1](rows)

        return lambda rows: self._asked(rows, say)

    def _asked(self, rows: Rows, ask: Callable[[Model, Rows], Forecast]) -> Forecast:
        stranger = None
        if self.common is not None and not self.common.warming_up:
            stranger = begun(self.settings, self.common, self.widths)
            stranger.with_intervals(self._wanted)
        keys = keys_of(rows, self.key)
        rows = rows._replace(original=None)
        parts, at = [], 0
        while at < len(keys):
            stop = min(len(keys), at + max(1, self.most_open))
            asked = keys[at:stop]
            absent = [key for key in dict.fromkeys(asked) if key not in self._part]
            resting = [(key, self.store.read(key)) for key in absent]
            self._opened({key: content for key, content in resting if content is not None})
            parts.append(self._part.ask(asked, sliced(rows, at, stop), stranger, ask))
            self._rest()
            at = stop
        return said_of.joined(parts) if parts else blank(0, self.task.numbers)
