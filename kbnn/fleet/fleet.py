"""A fleet: a model for every key, and beside them one of all rows from which new keys begin.

To whoever trains, predicts or judges it is a model: rows go to the models of their keys, and what
these said comes back in the order of the rows. At most `most_open` models are in memory, those used
last; the others rest in the store. Neither how a stream is cut nor how many are open changes a bit:
a block is cut where a key begins, and a key begins from what all rows before have taught.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import numpy as np

from kbnn.core.network import LEARNED, REJECTED, UNLABELLED
from kbnn.errors import ModelError
from kbnn.fleet.beginnings import NEW, Beginnings
from kbnn.fleet.crew import Crew
from kbnn.fleet.forms import Forms
from kbnn.fleet.keys import keys_of
from kbnn.fleet.part import Ask, Part, check_member, model_from
from kbnn.fleet.start import caught_up
from kbnn.fleet.store import Store
from kbnn.fleet.team import Team
from kbnn.fleet.work import Taught, Work
from kbnn.model import file as modelfile
from kbnn.model.migrations import migrated_form
from kbnn.model.model import Model
from kbnn.model.plain import value_of
from kbnn.model.recursion import SequenceNotices
from kbnn.model.rows import Lesson, Rows, sliced
from kbnn.model.schema import Schema
from kbnn.model.settings import MOST_KEPT, Settings
from kbnn.model.stored import to_state
from kbnn.score.score import count
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
    "sample": 0,
}
"""The settings of a fleet where nothing else is said: a key takes some 7 KB."""
OPEN: Final = 10_000
"""Models that are open at a time where nothing else is said."""
YOUNG: Final = 2048
"""Rows of a stream that are learned here where there are workers: windows are short as yet, and to
tell of them takes longer than to learn them."""


class Fleet(Model):
    """The models of all keys; what it has itself is the record of all rows and the position."""

    def __init__(
        self,
        settings: Settings,
        schema: Schema,
        key: Sequence[str],
        store: Store,
        common: Model | None = None,
    ) -> None:
        super().__init__(settings, schema)
        self.key = tuple(key)
        self.store = store
        self.most_open = OPEN
        self.forms = Forms()
        self.beginnings = Beginnings(settings, self.forms, common)
        self._rows = self._rejected = 0
        self._part: Part | Team = self._here()
        self._team: Team | None = None  # workers that have not been asked for anything yet
        self._sent: list[tuple[int, Callable[[], Taught]]] = []  # by row, what is being learned
        self._spoken: list[tuple[int, Forecast]] = []  # by row, what was said
        self._under_way: list[tuple[Rows, bool, int]] = []  # blocks, and the row after each
        self._wanted: str | None = None

    @classmethod
    def begin(
        cls, settings: Settings, schema: Schema, key: Sequence[str], store: Store, common: bool
    ) -> Fleet:
        """A fleet that has seen nothing; without a common start keys begin from ignorance.

        Where a row's own past is part of it, there is no row of all keys.
        """
        of_all = None
        if common and not schema.lags:
            of_all = Model(replace(settings, keep=MOST_KEPT), schema)
            of_all.scored = False
        return cls(settings, schema, key, store, of_all)

    @property
    def common(self) -> Model | None:
        """The model of all rows, if there is one."""
        return self.beginnings.common

    # Keeping it.

    @classmethod
    def load(cls, store: Store) -> Fleet | None:
        """The fleet as it was last saved, None where it never was."""
        state, name = store.state(), store.path or "the fleet"
        if not state:
            return None
        try:
            own = modelfile.load_bytes(state["fleet"], name)
            if len(state["counts"]) > modelfile.MAX_HEADER:
                raise ValueError("its counts are too large")
            plain = json.loads(state["counts"])
            common = None
            if "common" in state:
                common = modelfile.load_bytes(state["common"], f"{name}: the common model")
                common.scored = False
            key = value_of(list[str], plain["key"], "key")
            fleet = cls(own.settings, own.schema, key, store, common)
            fleet.remember(lambda: own.card)
            fleet.position, fleet.skipped = own.position, own.skipped
            fleet._rows, fleet._rejected = count(plain["rows"]), count(plain["rejected"])
            start = state.get("start", NEW)
            fleet.beginnings.restore(plain, start)
            version = modelfile.version_of(state["fleet"], name)
            with fleet._named():
                if common is not None:
                    check_member(common, own.settings, own.schema)
                fleet.forms.learn(
                    {
                        form: migrated_form(version, one, own.schema.task)
                        for form, one in plain.get("forms", {}).items()
                    }
                )
                model_from(start, fleet.forms, own.settings, own.schema)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ModelError(f"{name}: is damaged (its state)") from error
        except RecursionError as error:
            raise ModelError(f"{name}: is damaged (its state is nested too deep)") from error
        fleet.met = fleet._rows + fleet._rejected + fleet.skipped
        return fleet

    def save(self) -> None:
        """Write what has changed, all of it in one step."""
        self.store.write(self._part.changed())
        self.store.commit(self._state())
        if isinstance(self._part, Team):
            self._part.saved(self.most_open)

    def copy(self) -> Fleet:
        """A fleet that is the same and shares nothing: what it learns is not saved."""
        assert isinstance(self._part, Part)
        store = self.store.copy()
        store.write(self._part.unsaved())
        store.commit(self._state())
        made = Fleet.load(store)
        assert made is not None
        made.most_open = self.most_open
        made.with_intervals(self._wanted)
        return made

    def _state(self) -> dict[str, bytes]:
        """What is saved beside the models of the keys."""
        begun = self.beginnings
        start = begun.kept()
        counts = {
            "key": list(self.key),
            "rows": self._rows,
            "rejected": self._rejected,
            **begun.to_json(),
            "forms": self.forms.plain(),
        }
        state = {
            "fleet": modelfile.to_bytes(*to_state(self)),
            "counts": json.dumps(counts).encode(),
        }
        if begun.common is not None:
            state["start"] = start
            state["common"] = modelfile.to_bytes(*to_state(begun.common))
        return state

    def on(self, crew: Crew | None) -> None:
        """Have the models of keys learn and answer in workers of a cluster, or here again."""
        self._part, self._team = self._here(), None
        if crew is not None:
            self._team = Team(crew, self.settings, self._schema, self.forms, self.store.path)
            self._team.first = self.beginnings.first
        self._part.wanted = self._wanted

    def _hand_over(self) -> None:
        """Have models in workers from now on, if there are any."""
        if self._team is None:
            return
        assert isinstance(self._part, Part)
        self.store.write(self._part.rest(0))
        self._part, self._team = self._team, None
        self._part.wanted = self._wanted

    def _here(self) -> Part:
        part = Part(self.settings, self._schema, self.forms)
        part.first = self.beginnings.first
        return part

    def model_of(self, key: str) -> Model | None:
        """The model of a key, None where it has none yet."""
        content = self._part.file(key) if key in self._part else self.store.read(key)
        if content is None:
            return None
        with self._named():
            model = model_from(content, self.forms, self.settings, self._schema)
        model.with_intervals(self._wanted)
        return model

    def file_of(self, key: str) -> bytes:
        """What the model file of a key would hold; nothing where it has no model."""
        model = self.model_of(key)
        return b"" if model is None else modelfile.to_bytes(*to_state(model))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Where a model was that is refused."""
        try:
            yield
        except ModelError as error:
            raise ModelError(f"{self.store.path}: {error}") from error

    def _rest(self) -> None:
        """Let those rest that were not used for longest; in workers, when all is saved next."""
        if isinstance(self._part, Part) and len(self._part) > self.most_open:
            self.store.write(self._part.rest(self.most_open))

    @property
    def wants_saving(self) -> bool:
        """Whether more models are open than may be, and only saving lets them rest."""
        return isinstance(self._part, Team) and len(self._part) > self.most_open

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
    def intervals(self) -> str | None:
        """Whether intervals are `tracked`, or `stated` as the distribution has them, if any."""
        return self.task.intervals(self._wanted or self.settings.intervals)

    def with_intervals(self, wanted: str | None) -> None:
        """Take intervals as stated from now on, whatever was tracked; UsageError if not tracked."""
        super().with_intervals(wanted)
        self._wanted = self._part.wanted = wanted

    # Rows.

    def teach(self, rows: Rows, again: bool = False) -> Lesson:
        """Predict each row by the model of its key, then learn it there."""
        with self.lock:
            self.send(self.keys(rows), rows, again)
            return Lesson(self.receive())

    def keys(self, rows: Rows) -> list[str]:
        """The key of each row."""
        return keys_of(rows, self.key)

    @property
    def in_workers(self) -> bool:
        """Whether there are workers for models: what is sent there is learned meanwhile."""
        return self._team is not None or isinstance(self._part, Team)

    @property
    def under_way(self) -> int:
        """Blocks that were sent and not received."""
        return len(self._under_way)

    def send(self, keys: list[str], rows: Rows, again: bool) -> None:
        """Have a block learned; what is said of it can be received later."""
        if rows.schema is not None and rows.schema is not self._schema:
            self.schema = rows.schema
        rows = rows._replace(original=None, schema=self._schema)
        at = 0
        while at < len(keys):
            stop = self._until(keys, at)
            self._teach(keys[at:stop], sliced(rows, at, stop), again)
            at = stop
        self._under_way.append((rows, again, self.met))

    def receive(self) -> Forecast:
        """What was said of the block that was sent first."""
        rows, again, end = self._under_way.pop(0)
        self._collect(end)
        mine = [said for first, said in self._spoken if first < end]
        self._spoken = self._spoken[len(mine) :]
        said = said_of.joined(mine) if mine else blank(0, self.task.numbers)
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
            stop = min(stop, start + self.beginnings.room(self.met))
        if stop - start <= self.most_open:
            return stop
        seen: set[str] = set()
        for at in range(start, stop):
            seen.add(keys[at])
            if len(seen) > self.most_open:
                return at
        return stop

    def _teach(self, keys: list[str], rows: Rows, again: bool) -> None:
        """Let the models of keys learn a piece, and beside them the common one."""
        if self.met >= YOUNG:
            self._hand_over()
        before = self.beginnings.settled_before(self.met)
        if before is not None:
            self._collect(before)
            self.beginnings.look_around(before)
        found = self._found(keys)
        with self._named():
            if isinstance(self._part, Team):
                self._sent.append((self.met, self._part.learn(keys, rows, found, again)))
            else:
                taught = self._part.learn(keys, rows, found, again)
                self._sent.append((self.met, lambda: taught))
        self.beginnings.learn(rows, self.met, again)
        self.met += len(keys)
        if isinstance(self._part, Part):
            self._collect(self.met)
        self._rest()

    def _collect(self, row: int) -> None:
        """Take in what became of the pieces that begin before a row of the stream."""
        while self._sent and self._sent[0][0] < row:
            first, result = self._sent.pop(0)
            said, moved = result()
            self._spoken.append((first, said))
            self.beginnings.moved(first, moved)

    def _found(self, keys: list[str]) -> dict[str, bytes]:
        """What rests of keys that are not open, and what new ones begin from."""
        begins, known = self.beginnings.begins, self.beginnings.young
        young = known if begins else ()
        grown = [key for key in dict.fromkeys(keys) if key in young] if young else []
        found = {key: self._grown_up(key) for key in grown}
        unknown = self._part.unknown(keys)
        resting = self.store.read_many(unknown)
        for key in unknown:
            content = resting.get(key)
            if content is None:
                content = self.beginnings.first()
                if self.common is not None and not begins:
                    known.add(key)
            found.setdefault(key, content)
        return found

    def _grown_up(self, key: str) -> bytes:
        """A key that came before the common model had begun: it begins now, and learns its rows."""
        self.beginnings.young.discard(key)
        if key in self._part:
            self._collect(self.met)
            held = self._part.take(key)
        else:
            held = self._from(self.store.read(key) or NEW)
        return modelfile.to_bytes(*to_state(caught_up(self._from(self.beginnings.first()), held)))

    def _from(self, content: bytes) -> Model:
        with self._named():
            return model_from(content, self.forms, self.settings, self._schema)

    def predict(self, rows: Rows) -> Forecast:
        """Predict each row by the model of its key; a key that is new is like the others."""
        return self._asked(rows, lambda model, part: model.predict(part))

    def ahead(self, notices: SequenceNotices | None = None) -> Callable[[Rows], Forecast]:
        """Open a predictor of rows that come after those learned: each is after its key's above."""
        if not self._schema.lags:
            return self.predict
        predictors: dict[str, Callable[[Rows], Forecast]] = {}
        notices = notices or SequenceNotices()

        def predict(rows: Rows) -> Forecast:
            groups: dict[str, list[int]] = {}
            for at, key in enumerate(keys_of(rows, self.key)):
                groups.setdefault(key, []).append(at)
            rows = rows._replace(original=None)
            work = Work(rows)
            for key, where in groups.items():
                if key not in predictors:
                    predictors[key] = self._open_predictor(key, notices)
                work.add(np.array(where), predictors[key](taken(rows, np.array(where))))
            return work.joined() if len(rows.y) else blank(0, self.task.numbers)

        return predict

    def _open_predictor(self, key: str, notices: SequenceNotices) -> Callable[[Rows], Forecast]:
        """Open the predictor of a key; a key that was never seen is like the others."""
        self._hand_over()
        model = self.model_of(key)
        if model is None and self.beginnings.begins:
            model = self.beginnings.like_others()
            model.with_intervals(self._wanted)
        if model is None:
            return lambda rows: said_of.nothing(len(rows.y), self.task.numbers)
        return model.ahead(notices)

    def _asked(self, rows: Rows, ask: Ask) -> Forecast:
        with self.lock:
            return self._answers(rows, ask)

    def _answers(self, rows: Rows, ask: Ask) -> Forecast:
        self._hand_over()
        keys = keys_of(rows, self.key)
        rows = rows._replace(original=None)
        work, at = Work(rows), 0
        strange: list[int] = []
        while at < len(keys):
            stop = min(len(keys), at + max(1, self.most_open))
            found: dict[str, bytes] = {}
            for key in dict.fromkeys(keys[at:stop]):
                content = None if key in self._part else self.store.read(key)
                if content is not None:
                    found[key] = content
            known = [k for k in range(at, stop) if keys[k] in self._part or keys[k] in found]
            strange += sorted(set(range(at, stop)).difference(known))
            if known:
                where = np.array(known)
                asked = [keys[k] for k in known]
                with self._named():
                    work.add(where, self._part.ask(asked, taken(rows, where), found, ask))
            self._rest()
            at = stop
        if strange:
            where = np.array(strange)
            work.add(where, self._of_strangers(taken(rows, where), ask))
        return work.joined() if len(keys) else blank(0, self.task.numbers)

    def _of_strangers(self, rows: Rows, ask: Ask) -> Forecast:
        """What is said of rows whose key was never seen: what is true of keys at large."""
        if not self.beginnings.begins:
            return said_of.nothing(len(rows.y), self.task.numbers)
        stranger = self.beginnings.like_others()
        stranger.with_intervals(self._wanted)
        return ask(stranger, rows)
