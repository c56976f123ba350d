"""A fleet: a model for every key, and beside them one of all rows from which new keys begin.

To whoever trains, predicts or judges it is a model: rows go to the models of their keys, and what
these said comes back in the order of the rows. At most `most_open` models are in memory, those used
last; the others rest in the store. Neither how a stream is cut nor how many are open changes a bit:
a block is cut where a key begins, and a key begins from what all rows before have taught.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from kbnn.core.network import LEARNED, REJECTED, UNLABELLED
from kbnn.core.state import State
from kbnn.errors import ModelError
from kbnn.fleet.keys import keys_of
from kbnn.fleet.start import KNOWN, Widths, begun
from kbnn.fleet.store import Standing, Store
from kbnn.model import file as modelfile
from kbnn.model.model import Model
from kbnn.model.rows import Rows, sliced
from kbnn.model.schema import Schema
from kbnn.model.settings import MOST_KEPT, Settings
from kbnn.model.stored import to_state
from kbnn.score.summaries import SAMPLE
from kbnn.stream.blocks import taken
from kbnn.task import forecast as said_of
from kbnn.task.base import blank
from kbnn.task.forecast import HELD, Forecast

SMALL: Final = {
    "hidden": (10,),
    "covariance": "neuron",
    "rehearse": 0,
    "kind": "regression",
    "keep": 64,
    "sample": 16,
}
"""The settings of a fleet where nothing else is said: a key takes some 20 KB."""
OPEN: Final = 10_000
"""Models that are open at a time where nothing else is said."""

GATHERED: Final = 8
"""Rows after which a model holds those that came one by one as one block."""


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
        self._rows = self._rejected = 0
        self._young: set[str] = set()  # keys that came before the common model had begun
        self._open: OrderedDict[str, Model] = OrderedDict()
        self._changed: set[str] = set()
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
            fleet.common = Model(replace(settings, keep=MOST_KEPT, sample=SAMPLE), schema)
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
            if "common" in state:
                fleet.common = modelfile.load_bytes(state["common"], f"{name}: the common model")
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{name}: is damaged (its state)") from error
        fleet.met = fleet._rows + fleet._rejected + fleet.skipped
        return fleet

    def save(self) -> None:
        """Write what has changed, all of it in one step."""
        for key in sorted(self._changed):
            self._write(key, self._open[key])
        self._changed.clear()
        counts = {
            "key": list(self.key),
            "rows": self._rows,
            "rejected": self._rejected,
            "young": sorted(self._young),
            "widths": self.widths.to_json(),
        }
        state = {
            "fleet": modelfile.to_bytes(*to_state(self)),
            "counts": json.dumps(counts).encode(),
        }
        if self.common is not None:
            state["common"] = modelfile.to_bytes(*to_state(self.common))
        self.store.commit(state)

    def _write(self, key: str, model: Model) -> None:
        lines = model.card.scores[0].lines()
        figures = [lines.get(name, (None, None))[0] for name in ("loss", "coverage_90")]
        standing = Standing(model.rows, figures[0], figures[1], model.alarm_count)
        self.store.write(key, modelfile.to_bytes(*to_state(model)), standing)

    def model_of(self, key: str) -> Model | None:
        """The model of a key, None where it has none yet."""
        model = self._open.get(key)
        if model is not None:
            self._open.move_to_end(key)
            return model
        content = self.store.read(key)
        if content is None:
            return None
        model = modelfile.load_bytes(content, f"{self.store.path}: a model")
        model.with_intervals(self._wanted)
        return self._opened(key, model)

    def _opened(self, key: str, model: Model) -> Model:
        """Keep a model open, and let that rest which was not used for longest."""
        self._open[key] = model
        while len(self._open) > self.most_open:
            oldest, resting = self._open.popitem(last=False)
            if oldest in self._changed:
                self._changed.discard(oldest)
                self._write(oldest, resting)
        return model

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
        self._wanted = wanted

    # Rows.

    def learn(self, rows: Rows, again: bool = False) -> Forecast:
        """Predict each row by the model of its key, then learn it there."""
        if rows.schema is not None and rows.schema is not self._schema:
            self.schema = rows.schema
        keys = keys_of(rows, self.key)
        rows = rows._replace(original=None, schema=self._schema)
        parts = []
        for start, stop in self._stretches(keys):
            part = sliced(rows, start, stop)
            parts.append(self._taught(keys[start:stop], part, again))
            if self.common is not None:
                self.common.learn(part, again)
        said = said_of.joined(parts) if parts else blank(0, self.task.numbers)
        self.met += len(rows.y)
        self._rows += int(np.count_nonzero(said.status & (LEARNED | HELD)))
        self._rejected += int(np.count_nonzero(said.status & REJECTED))
        self.skipped += int(np.count_nonzero(said.status & UNLABELLED))
        if not again:
            self._score(rows, said, True)
        return said

    def _stretches(self, keys: list[str]) -> Iterator[tuple[int, int]]:
        """Pieces of a block: with a common start each begins where a key does."""
        if self.common is None:
            yield 0, len(keys)
            return
        start = 0
        while start < len(keys):
            ready, seen = not self.common.warming_up, {keys[start]}
            self._start(keys[start], ready)
            stop = start + 1
            while ready and stop < len(keys):
                if keys[stop] not in seen and not self._has_begun(keys[stop]):
                    break
                seen.add(keys[stop])
                stop += 1
            yield start, stop
            start = stop

    def _has_begun(self, key: str) -> bool:
        return key not in self._young and (key in self._open or self.store.has(key))

    def _start(self, key: str, ready: bool) -> None:
        """Give a key its model, from the common one where that has begun."""
        if self.common is None or self._has_begun(key) or (key in self._young and not ready):
            return
        if ready:
            held = self.model_of(key) if key in self._young else None
            self._young.discard(key)
            self._opened(key, begun(self.settings, self.common, self.widths, held))
        else:
            self._young.add(key)
            self._opened(key, Model(self.settings, self._schema))
        self._changed.add(key)

    def _taught(self, keys: list[str], rows: Rows, again: bool) -> Forecast:
        """Let the models of keys learn; one that has met enough rows tells how far it has moved."""
        moved: list[tuple[int, list[State]]] = []

        def learn(key: str, part: Rows, places: Sequence[int]) -> Forecast:
            model = self.model_of(key) or self._opened(key, Model(self.settings, self._schema))
            self._changed.add(key)
            if model.met % GATHERED == GATHERED - 1:
                model.gather()
            left = KNOWN - model.met
            if self.common is None or not 0 < left <= len(places) or model.warming_up:
                return model.learn(part, again)
            said = [model.learn(sliced(part, 0, left), again)]
            moved.append((places[left - 1], [m.state() for m in model.learned.members]))
            if left < len(places):
                said.append(model.learn(sliced(part, left, len(places)), again))
            return said_of.joined(said)

        said = _routed(keys, rows, learn)
        for _, states in sorted(moved, key=lambda one: one[0]):
            for state in states:
                self.widths.learn(state)
        return said

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

        def say(key: str, part: Rows, places: Sequence[int]) -> Forecast:
            model = self.model_of(key) or stranger
            return _nothing(part, self.task.numbers) if model is None else ask(model, part)

        keys = keys_of(rows, self.key)
        return _routed(keys, rows._replace(original=None), say)


def _routed(
    keys: list[str], rows: Rows, ask: Callable[[str, Rows, Sequence[int]], Forecast]
) -> Forecast:
    """What is said of the rows of each key, at these places, in the order of the rows."""
    places: dict[str, list[int]] = {}
    for at, key in enumerate(keys):
        places.setdefault(key, []).append(at)
    if len(places) == 1:
        return ask(keys[0], rows, range(len(keys)))
    order = np.array([at for group in places.values() for at in group])
    parts = [ask(key, taken(rows, np.array(group)), group) for key, group in places.items()]
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return said_of.taken(said_of.joined(parts), back)


def _nothing(rows: Rows, numbers: int) -> Forecast:
    """What is said of rows that nothing is known of."""
    said = blank(len(rows.y), numbers)
    parts: list[Any] = [part + np.nan for part in said[:-2]]
    return Forecast._make([*parts, said.status, said.stated + np.nan])
