"""The open models of some keys: they learn rows and answer, packed where they can be.

Whoever owns a part sees to it that a key is open before its rows come (`open`, with the bytes that
rested), and takes back what is to rest. Parts know nothing of each other: what a part makes of the
rows of a key depends on these alone.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from kbnn.core.layout import IntArray
from kbnn.core.normal import FloatArray
from kbnn.fleet import packed as of
from kbnn.fleet.forms import Forms
from kbnn.fleet.herd import Herd
from kbnn.fleet.packed import Form
from kbnn.fleet.start import KNOWN, moved_by
from kbnn.fleet.store import Standing
from kbnn.model import file as modelfile
from kbnn.model.model import Model
from kbnn.model.rows import Rows, sliced
from kbnn.model.schema import Schema
from kbnn.model.settings import Settings
from kbnn.model.stored import to_state
from kbnn.stream.blocks import taken
from kbnn.task import forecast as said_of
from kbnn.task.forecast import Forecast

GATHERED: Final = 8
"""Rows after which a model holds those that came one by one as one block."""
FEW: Final = 12
"""Rows of a key in one block up to which they are learned in rounds with those of other keys."""
NEW: Final = b""
"""What rests of a key that begins from ignorance."""

Ask = Callable[[Model, Rows], Forecast]


class Place(NamedTuple):
    """Where a packed model is."""

    herd: Herd
    at: int


class Taught(NamedTuple):
    """What was said of rows, and how far keys have moved that came of age, by place in the rows."""

    said: Forecast
    moved: list[tuple[int, FloatArray]]


class Resting(NamedTuple):
    """A key's model as it is written down."""

    key: str
    content: bytes
    standing: Standing


class Part:
    """The models of some keys, those used last at the end."""

    def __init__(self, settings: Settings, schema: Schema, forms: Forms) -> None:
        self.settings, self.forms = settings, forms
        self.wanted: str | None = None  # how intervals are wanted, see Model.with_intervals
        self._schema = schema
        self._packs = of.packs(settings, schema)
        self._herds: dict[bytes, Herd] = {}
        self._open: OrderedDict[str, Model | Place] = OrderedDict()
        self._changed: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._open

    def __len__(self) -> int:
        return len(self._open)

    # Opening and resting.

    def open(self, found: Mapping[str, bytes]) -> None:
        """Open the models of keys from the bytes that rested."""
        before, whole = NEW, None  # new keys have the same bytes one after another
        for key, content in found.items():
            if of.is_packed(content):
                if whole is None or content is not before:
                    form = self.forms.named(of.form_name(content))
                    before, whole, herd = content, of.from_bytes(form, content), self._herd(form)
                self._open[key] = Place(herd, herd.put(whole))
                continue
            self._open[key] = model_from(content, self.forms, self.settings, self._schema)
            if self.wanted:
                self.model(key).with_intervals(self.wanted)

    def _herd(self, form: Form) -> Herd:
        herd = self._herds.get(form.name)
        if herd is None:
            herd = self._herds[form.name] = Herd(form)
        herd.fits(self._schema, self.settings)
        return herd

    def take(self, key: str) -> Model:
        """The model of a key, which is open here no longer."""
        model = self.model(key)
        self._close(key)
        self._changed.discard(key)
        return model

    def model(self, key: str) -> Model:
        """The model of a key; what is learned by a packed one's does not count."""
        entry = self._open[key]
        if isinstance(entry, Model):
            return entry
        form = entry.herd.form
        return of.unpacked(form, entry.herd.get(entry.at), self.settings, self._schema)

    def _close(self, key: str) -> None:
        entry = self._open.pop(key)
        if isinstance(entry, Place):
            entry.herd.drop(entry.at)

    def taken(self, key: str) -> bytes:
        """The same as bytes."""
        return modelfile.to_bytes(*to_state(self.take(key)))

    def file(self, key: str) -> bytes:
        """What the model file of a key would hold."""
        return modelfile.to_bytes(*to_state(self.model(key)))

    def rest(self, most: int) -> Iterator[Resting]:
        """Close models until so many are open; those that have changed are to be written."""
        while len(self._open) > most:
            key = next(iter(self._open))
            if key in self._changed:
                yield self._resting(key)
                self._changed.discard(key)
            self._close(key)

    def shut(self, most: int) -> list[str]:
        """Close models, which are all saved, until so many are open; their keys."""
        closed = list(itertools.islice(self._open, max(0, len(self._open) - most)))
        for key in closed:
            self._close(key)
        return closed

    def changed(self) -> Iterator[Resting]:
        """The models that have changed since they were last asked for; they stay open."""
        for key in sorted(self._changed):
            yield self._resting(key)
        self._changed.clear()

    def _resting(self, key: str) -> Resting:
        entry = self._open[key]
        if isinstance(entry, Place):
            form, whole = entry.herd.form, entry.herd.get(entry.at)
            return Resting(key, of.to_bytes(form, whole), of.standing(form, whole.row))
        lines = entry.card.scores[0].lines()
        figures = [lines.get(name, (None, None))[0] for name in ("loss", "coverage_90")]
        standing = Standing(entry.rows, figures[0], figures[1], entry.alarm_count)
        return Resting(key, modelfile.to_bytes(*to_state(entry)), standing)

    # Rows.

    def learn(
        self, keys: Sequence[str], rows: Rows, found: Mapping[str, bytes], again: bool
    ) -> Taught:
        """Predict each row by the model of its key, then learn it there."""
        if rows.schema is not None and rows.schema is not self._schema:
            self._schema = rows.schema
            for herd in self._herds.values():
                herd.fits(self._schema, self.settings)
        rows = rows._replace(schema=self._schema)
        self.open(found)
        work = Work(rows)
        together: dict[bytes, list[tuple[str, int, list[int]]]] = {}
        places = _places(keys)
        self._changed.update(places)
        used = self._open.move_to_end
        for key, group in places.items():
            entry = self._open[key]
            used(key)
            if again or isinstance(entry, Model) or len(group) > FEW:
                self._alone(key, group, work, again)
            else:
                together.setdefault(entry.herd.form.name, []).append((key, entry.at, group))
        for name, members in together.items():
            self._rounds(self._herds[name], members, work)
        return Taught(work.joined(), work.moved)

    def _rounds(self, herd: Herd, members: list[tuple[str, int, list[int]]], work: Work) -> None:
        """Rows of packed models, one of each at a time."""
        turn = 0
        while members:
            at = np.array([place for _, place, _ in members])
            where = np.array([group[turn] for _, _, group in members])
            done, said = herd.learn(at, taken(work.rows, where))
            work.add(where[done], said)
            for k in np.flatnonzero(herd.met(at[done]) == KNOWN).tolist():
                place = int(done[k])
                state = herd.form.state_of(herd.get(int(at[place])).row)
                work.moved.append((int(where[place]), moved_by(state)))
            if len(done) < len(members):
                left = np.ones(len(members), np.bool_)
                left[done] = False
                for k in np.flatnonzero(left).tolist():
                    key, place, group = members[k]
                    self._alone(key, group[turn : turn + 1], work, False)
                    if self._open[key] != Place(herd, place):  # it is another kind of model now
                        if group[turn + 1 :]:
                            self._alone(key, group[turn + 1 :], work, False)
                        members[k] = (key, place, [])
            turn += 1
            members = [member for member in members if len(member[2]) > turn]

    def _alone(self, key: str, group: list[int], work: Work, again: bool) -> None:
        """The rows of one key by its model."""
        model, entry = self.model(key), self._open[key]
        part, places = taken(work.rows, np.array(group)), group
        if isinstance(entry, Model) and model.met % GATHERED == GATHERED - 1:
            model.gather()
        left = KNOWN - model.met
        if not 0 < left <= len(places) or model.warming_up:
            work.add(np.array(places), model.learn(part, again))
        else:
            work.add(np.array(places[:left]), model.learn(sliced(part, 0, left), again))
            for member in model.learned.members:
                work.moved.append((places[left - 1], moved_by(member.state())))
            if left < len(places):
                rest = sliced(part, left, len(places))
                work.add(np.array(places[left:]), model.learn(rest, again))
        self._put_back(key, model, entry)

    def _put_back(self, key: str, model: Model, entry: Model | Place) -> None:
        """Pack a model that has learned, if it can be."""
        said = of.form_of(model) if self._packs else None
        form = None if said is None else self.forms.of(*said)
        if isinstance(entry, Place) and form is entry.herd.form:
            entry.herd.set(entry.at, of.packed(form, model))
            return
        if isinstance(entry, Place):
            entry.herd.drop(entry.at)
        self._open[key] = model
        if form is not None:
            herd = self._herd(form)
            self._open[key] = Place(herd, herd.put(of.packed(form, model)))

    def ask(
        self, keys: Sequence[str], rows: Rows, found: Mapping[str, bytes], ask: Ask
    ) -> Forecast:
        """What is said of rows by the models of their keys."""
        self.open(found)
        work = Work(rows)
        together: dict[bytes, list[tuple[int, int]]] = {}
        for key, group in _places(keys).items():
            entry = self._open[key]
            self._open.move_to_end(key)
            if isinstance(entry, Model) or rows.x_sd is not None:
                model = self.model(key)
                if isinstance(entry, Place):
                    model.with_intervals(self.wanted)
                work.add(np.array(group), ask(model, taken(rows, np.array(group))))
            else:
                there = together.setdefault(entry.herd.form.name, [])
                there += [(entry.at, place) for place in group]
        for name, pairs in together.items():
            at, where = np.array(pairs).T
            herd, plain = self._herds[name], self.wanted == "stated"
            work.add(where, herd.predict(np.ascontiguousarray(at), taken(rows, where), plain))
        return work.joined()


def model_from(content: bytes, forms: Forms, settings: Settings, schema: Schema) -> Model:
    """The model of bytes that rested."""
    if content == NEW:
        return Model(settings, schema)
    if not of.is_packed(content):
        return modelfile.load_bytes(content, "a model")
    form = forms.named(of.form_name(content))
    return of.unpacked(form, of.from_bytes(form, content), settings, schema)


class Work:
    """What is said of the rows of a block, in whichever order they are learned."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.moved: list[tuple[int, FloatArray]] = []
        self._order: list[IntArray] = []
        self._said: list[Forecast] = []

    def add(self, places: IntArray, said: Forecast) -> None:
        if len(places):
            self._order.append(places)
            self._said.append(said)

    def joined(self) -> Forecast:
        """In the order of the rows."""
        order = np.concatenate(self._order)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        self.moved.sort(key=lambda one: one[0])
        return said_of.taken(said_of.joined(self._said), back)


def _places(keys: Iterable[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for at, key in enumerate(keys):
        places.setdefault(key, []).append(at)
    return places
