"""The open models of some keys: they learn rows and answer, packed where they can be.

Whoever owns a part sees to it that a key is open before its rows come (`open`, with the bytes that
rested), and takes back what is to rest. Parts know nothing of each other: what a part makes of the
rows of a key depends on these alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from kbnn.core.layout import IntArray
from kbnn.errors import ModelError
from kbnn.fleet import packed as of
from kbnn.fleet import resting
from kbnn.fleet.beginnings import NEW
from kbnn.fleet.form import Form
from kbnn.fleet.forms import Forms
from kbnn.fleet.herd import Herd
from kbnn.fleet.register import ALONE, Register
from kbnn.fleet.start import KNOWN, OF_AGE, begun_again, moved_by
from kbnn.fleet.store import Standing
from kbnn.fleet.work import Taught, Work, groups_of
from kbnn.model import file as modelfile
from kbnn.model.model import Model
from kbnn.model.rows import Rows, sliced
from kbnn.model.schema import Schema
from kbnn.model.settings import Settings
from kbnn.model.stored import to_state
from kbnn.stream.blocks import taken
from kbnn.task.forecast import Forecast

GATHERED: Final = 8
"""Rows after which a model holds those that came one by one as one block."""
FEW: Final = 64
"""Rows of a key in one block up to which they are learned with those of other keys."""
WRITTEN: Final = 1024
"""Models that are written down at a time."""

Ask = Callable[[Model, Rows], Forecast]


class Resting(NamedTuple):
    """A key's model as it is written down."""

    key: str
    content: bytes
    standing: Standing


class Part:
    """The models of some keys."""

    def __init__(self, settings: Settings, schema: Schema, forms: Forms) -> None:
        self.settings, self.forms = settings, forms
        self.wanted: str | None = None  # how intervals are wanted, see Model.with_intervals
        self.first: Callable[[], bytes] = bytes  # what keys begin from now
        self._schema = schema
        self._packs = of.packs(settings, schema)
        self._register = Register()
        self._herds: list[Herd] = []
        self._formed: dict[bytes, int] = {}  # by name of a form, which herd
        self._models: dict[int, Model] = {}  # by number, those that are not packed

    def __contains__(self, key: str) -> bool:
        return key in self._register

    def __len__(self) -> int:
        return len(self._register)

    def unknown(self, keys: Sequence[str]) -> list[str]:
        """Those of the keys that are not open, each once."""
        return self._register.unknown(keys)

    # Opening and resting.

    def open(self, found: Mapping[str, bytes]) -> None:
        """Open the models of keys from the bytes that rested."""
        before, whole, herd = NEW, None, ALONE  # new keys have the same bytes one after another
        for key, content in found.items():
            if not (resting.is_packed(content) and self._form(content).present):
                model = model_from(content, self.forms, self.settings, self._schema)
                if self.wanted:
                    model.with_intervals(self.wanted)
                self._models[self._register.add(key, ALONE, 0)] = model
                continue
            if whole is None or content is not before:
                form = self._form(content)
                before, whole, herd = content, resting.from_bytes(form, content), self._herd(form)
            self._register.add(key, herd, self._herds[herd].put(whole))

    def _form(self, content: bytes) -> Form:
        return self.forms.named(resting.form_name(content))

    def _herd(self, form: Form) -> int:
        which = self._formed.get(form.name)
        if which is None:
            which = self._formed[form.name] = len(self._herds)
            self._herds.append(Herd(form))
        self._herds[which].fits(self._schema, self.settings)
        return which

    def _of(self, number: int) -> tuple[Herd, int] | None:
        """Herd and place of a packed model, None of another."""
        which = int(self._register.herd[number])
        return None if which == ALONE else (self._herds[which], int(self._register.place[number]))

    def take(self, key: str) -> Model:
        """The model of a key, which is open here no longer."""
        number = self._register.number(key)
        model = self._model(number)
        self._close(number)
        return model

    def _model(self, number: int) -> Model:
        """The model of a key; what is learned by a packed one's does not count."""
        there = self._of(number)
        if there is None:
            return self._models[number]
        herd, at = there
        return of.unpacked(herd.form, herd.get(at), self.settings, self._schema)

    def _close(self, number: int) -> None:
        there = self._of(number)
        if there is None:
            del self._models[number]
        else:
            there[0].drop(there[1])
        self._register.drop(number)

    def taken(self, key: str) -> bytes:
        """The same as bytes."""
        return modelfile.to_bytes(*to_state(self.take(key)))

    def file(self, key: str) -> bytes:
        """What the model file of a key would hold."""
        return modelfile.to_bytes(*to_state(self._model(self._register.number(key))))

    def rest(self, most: int) -> Iterator[Resting]:
        """Close models until so many are open; those that have changed are to be written."""
        numbers = self._register.unused(len(self) - most)
        yield from self._resting([n for n in numbers if self._register.is_changed(n)])
        for number in numbers:
            self._close(number)

    def shut(self, most: int) -> list[str]:
        """Close models, which are all saved, until so many are open; their keys."""
        numbers = self._register.unused(len(self) - most)
        closed = list(map(self._register.key, numbers))
        for number in numbers:
            self._close(number)
        return closed

    def changed(self) -> Iterator[Resting]:
        """The models that have changed since they were last asked for; they stay open."""
        yield from self._resting(self._register.changed())
        self._register.unchange()

    def unsaved(self) -> Iterator[Resting]:
        """The models that have changed since they were last asked for; they still count as such."""
        return self._resting(self._register.changed())

    def _resting(self, numbers: list[int]) -> Iterator[Resting]:
        for start in range(0, len(numbers), WRITTEN):
            some = np.array(numbers[start : start + WRITTEN])
            herds = self._register.herd[some]
            for which in np.unique(herds).tolist():
                these = some[herds == which]
                yield from self._packed(which, these) if which != ALONE else self._whole(these)

    def _packed(self, which: int, numbers: IntArray) -> Iterator[Resting]:
        herd, places = self._herds[which], self._register.place[numbers]
        keys = map(self._register.key, numbers.tolist())
        for key, at, told in zip(keys, places.tolist(), herd.standings(places), strict=True):
            yield Resting(key, resting.to_bytes(herd.form, herd.get(at)), told)

    def _whole(self, numbers: IntArray) -> Iterator[Resting]:
        for number in numbers.tolist():
            model = self._models[number]
            lines = model.card.scores[0].lines()
            loss, inside = (lines.get(name, (None, None))[0] for name in resting.SHOWN)
            told = Standing(model.rows, loss, inside, model.alarm_count)
            yield Resting(self._register.key(number), modelfile.to_bytes(*to_state(model)), told)

    # Rows.

    def learn(
        self, keys: Sequence[str], rows: Rows, found: Mapping[str, bytes], again: bool
    ) -> Taught:
        """Predict each row by the model of its key, then learn it there."""
        if rows.schema is not None and rows.schema is not self._schema:
            self._schema = rows.schema
            for herd in self._herds:
                herd.fits(self._schema, self.settings)
        rows = rows._replace(schema=self._schema)
        self.open(found)
        work, numbers = Work(rows), self._register.numbers(keys)
        self._register.use(numbers, changed=True)
        left = np.ones(len(keys), np.bool_)
        together = {} if again else self._together(numbers, FEW)
        for which, where in together.items():
            at = self._register.place[numbers[where]]
            done, said = self._herds[which].learn(at, work.part(where))
            work.add(where[done], said)
            left[where[done]] = False
        for number, group in groups_of(numbers, np.flatnonzero(left)).items():
            self._alone(number, group, work, again)
        return Taught(work.joined(), work.moved)

    def _together(self, numbers: IntArray, most: int) -> dict[int, IntArray]:
        """The rows of packed models by herd, but for those of a key that has more than so many."""
        herds = self._register.herd[numbers]
        if len(numbers) > most:
            herds[np.bincount(numbers)[numbers] > most] = ALONE
        kinds = [int(which) for which in np.unique(herds) if which != ALONE]
        return {which: np.flatnonzero(herds == which) for which in kinds}

    def _alone(self, number: int, group: list[int], work: Work, again: bool) -> None:
        """The rows of one key by its model."""
        model, packed = self._model(number), self._of(number) is not None
        part, places = taken(work.rows, np.array(group)), group
        if not packed and model.met % GATHERED == GATHERED - 1:
            model.gather()
        at = 0
        while at < len(places):
            ages = [age - model.met for age in (KNOWN, OF_AGE) if age > model.met]
            stop = min(len(places), at + min(ages, default=len(places)))
            held = model.warming_up
            work.add(np.array(places[at:stop]), model.learn(sliced(part, at, stop), again))
            if model.met == KNOWN and not held:
                for member in model.learned.members:
                    work.moved.append((places[stop - 1], moved_by(member.state())))
            if model.met == OF_AGE and not (held or again):
                model = self._begun_again(model)
            at = stop
        self._put_back(number, model)

    def _begun_again(self, model: Model) -> Model:
        """A key that has come of age, from what keys begin from now."""
        content = self.first()
        if content == NEW:
            return model
        later = model_from(content, self.forms, self.settings, self._schema)
        later.with_intervals(self.wanted)
        return begun_again(later, model)

    def _put_back(self, number: int, model: Model) -> None:
        """Pack a model that has learned, if it can be."""
        there, key = self._of(number), self._register.key(number)
        said = of.form_of(model) if self._packs else None
        form = None if said is None else self.forms.of(*said)
        if form is not None and there is not None and form is there[0].form:
            there[0].set(there[1], of.packed(form, model))
            return
        if there is not None:
            there[0].drop(there[1])
        if form is None:
            self._models[number] = model
            self._register.add(key, ALONE, 0)
        else:
            self._models.pop(number, None)
            herd = self._herd(form)
            self._register.add(key, herd, self._herds[herd].put(of.packed(form, model)))

    def ask(
        self, keys: Sequence[str], rows: Rows, found: Mapping[str, bytes], ask: Ask
    ) -> Forecast:
        """What is said of rows by the models of their keys."""
        self.open(found)
        work, numbers = Work(rows), self._register.numbers(keys)
        self._register.use(numbers, changed=False)
        left = np.ones(len(keys), np.bool_)
        together = self._together(numbers, len(keys)) if rows.x_sd is None else {}
        for which, where in together.items():
            at = self._register.place[numbers[where]]
            plain = self.wanted == "stated"
            work.add(where, self._herds[which].predict(at, work.part(where), plain))
            left[where] = False
        for number, group in groups_of(numbers, np.flatnonzero(left)).items():
            model = self._model(number)
            if self._of(number) is not None:
                model.with_intervals(self.wanted)
            work.add(np.array(group), ask(model, taken(rows, np.array(group))))
        return work.joined()


def model_from(content: bytes, forms: Forms, settings: Settings, schema: Schema) -> Model:
    """The model of bytes that rested."""
    if content == NEW:
        return Model(settings, schema)
    if not resting.is_packed(content):
        model = modelfile.load_bytes(content, "a model")
        check_member(model, settings, schema)
        return model
    form = forms.named(resting.form_name(content))
    return of.unpacked(form, resting.from_bytes(form, content), settings, schema)


def check_member(model: Model, settings: Settings, schema: Schema) -> None:
    """Refuse a model whose columns or settings are not those of the fleet it was found in.

    The columns of x may be fewer: categories that other keys have met came later.
    """
    own, known = model.schema, schema
    columns = [place.column for place in own.layout]
    fits = (
        own.task == known.task
        and own.targets == known.targets
        and columns == [place.column for place in known.layout[: len(columns)]]
        and own.classes == known.classes[: len(own.classes)]
        and own.lags == known.lags
        and own.wait == known.wait
        and replace(model.settings, keep=settings.keep, sample=settings.sample) == settings
    )
    if not fits:
        raise ModelError("is damaged (a model does not fit its fleet)")
