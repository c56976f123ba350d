"""Partition: the open models of some keys, which learn and predict rows, packed where possible.

The owner of a partition passes the stored bytes of models that are not open together with their
rows, and writes what is closed. Partitions are independent: results for the rows of a key depend on
these rows alone. Forecasts are returned in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.data.batch import Rows, slice_rows, take_rows
from kbnn.data.schema import Schema
from kbnn.errors import ModelError
from kbnn.fleet import packing
from kbnn.fleet.batched import BatchedModels
from kbnn.fleet.key_index import UNPACKED, KeyIndex
from kbnn.fleet.packing import PackedLayout, PackedLayouts
from kbnn.fleet.pooling import EMPTY_MODEL, REFIT_ROWS, SHIFT_ROWS, measure_shift, refit_pooled
from kbnn.fleet.store import KeyMetrics
from kbnn.model import file as modelfile
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import to_state
from kbnn.model.settings import Settings
from kbnn.targets import prediction
from kbnn.targets.prediction import Forecast


class PartitionUpdate(NamedTuple):
    """Forecasts of rows, and the shifts of keys that reached SHIFT_ROWS, by position."""

    forecast: Forecast
    shifts: list[tuple[int, FloatArray]]


class PartitionResult:
    """Forecasts of the rows of a block, collected in any order."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.shifts: list[tuple[int, FloatArray]] = []
        self._order: list[IntArray] = []
        self._forecasts: list[Forecast] = []

    def select_rows(self, places: IntArray) -> Rows:
        """Return the rows at these positions."""
        return self.rows if len(places) == len(self.rows.y) else take_rows(self.rows, places)

    def add(self, places: IntArray, forecast: Forecast) -> None:
        """Add the forecasts of the rows at these positions."""
        if len(places):
            self._order.append(places)
            self._forecasts.append(forecast)

    def join_forecasts(self) -> Forecast:
        """Return all forecasts in the order of the rows."""
        order = np.concatenate(self._order)
        self.shifts.sort(key=lambda one: one[0])
        forecast = prediction.join_forecasts(self._forecasts)
        if bool(np.all(order[1:] > order[:-1])):
            return forecast
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return prediction.select_rows(forecast, back)


def group_places(numbers: IntArray, places: IntArray) -> dict[int, list[int]]:
    """Group positions by number, in their order."""
    groups: dict[int, list[int]] = {}
    for at, number in zip(places.tolist(), numbers[places].tolist(), strict=True):
        groups.setdefault(number, []).append(at)
    return groups


GATHER_ROWS: Final = 8
"""Rows after which a model compacts the buffers of rows that were added one by one."""
MAX_BATCHED_ROWS: Final = 64
"""Largest number of rows of one key in a block that are learned in the batched kernel."""
MODELS_PER_WRITE: Final = 1024
"""Models that are serialised at a time."""


class StoredModel(NamedTuple):
    """A key's model as stored."""

    key: str
    content: bytes
    metrics: KeyMetrics


class Partition:
    """The open models of some keys."""

    def __init__(self, settings: Settings, schema: Schema, layouts: PackedLayouts) -> None:
        self.settings, self.layouts = settings, layouts
        self.interval_mode: str | None = None  # see OnlineModel.set_interval_mode
        self.make_initial_bytes: Callable[[], bytes] = bytes  # the initial model of new keys
        self._schema = schema
        self._can_pack = packing.supports_packing(settings, schema)
        self._key_index = KeyIndex()
        self._batches: list[BatchedModels] = []
        self._batch_numbers: dict[bytes, int] = {}  # by name of a layout
        self._models: dict[int, OnlineModel] = {}  # by number, models that are not packed

    def __contains__(self, key: str) -> bool:
        return key in self._key_index

    def __len__(self) -> int:
        return len(self._key_index)

    def list_unopened(self, keys: Sequence[str]) -> list[str]:
        """List the keys that are not open, each once."""
        return self._key_index.list_unopened(keys)

    # Opening and closing.

    def open_models(self, found: Mapping[str, bytes]) -> None:
        """Open the models of keys from their stored bytes."""
        # Consecutive new keys have the same bytes, which are decoded once.
        before, packed, batch = EMPTY_MODEL, None, UNPACKED
        for key, content in found.items():
            if not (packing.is_packed(content) and self._find_layout(content).is_current):
                model = load_stored_model(content, self.layouts, self.settings, self._schema)
                if self.interval_mode:
                    model.set_interval_mode(self.interval_mode)
                self._models[self._key_index.add(key, UNPACKED, 0)] = model
                continue
            if packed is None or content is not before:
                layout = self._find_layout(content)
                before, packed, batch = (
                    content,
                    packing.packed_from_bytes(layout, content),
                    self._find_batch(layout),
                )
            self._key_index.add(key, batch, self._batches[batch].add_model(packed))

    def _find_layout(self, content: bytes) -> PackedLayout:
        return self.layouts.find_by_name(packing.read_layout_name(content))

    def _find_batch(self, layout: PackedLayout) -> int:
        which = self._batch_numbers.get(layout.name)
        if which is None:
            which = self._batch_numbers[layout.name] = len(self._batches)
            self._batches.append(BatchedModels(layout))
        self._batches[which].bind_schema(self._schema, self.settings)
        return which

    def _locate_packed(self, number: int) -> tuple[BatchedModels, int] | None:
        """Return batch and slot of a packed model; None if it is not packed."""
        which = int(self._key_index.herd[number])
        return (
            None
            if which == UNPACKED
            else (self._batches[which], int(self._key_index.place[number]))
        )

    def take_model(self, key: str) -> OnlineModel:
        """Close a key and return its model."""
        number = self._key_index.number_of(key)
        model = self._get_model(number)
        self._close_model(number)
        return model

    def _get_model(self, number: int) -> OnlineModel:
        """Return the model of a key; for a packed one a copy, which `_store_model` writes back."""
        there = self._locate_packed(number)
        if there is None:
            return self._models[number]
        batch, at = there
        return packing.unpack_model(batch.layout, batch.get_model(at), self.settings, self._schema)

    def _close_model(self, number: int) -> None:
        there = self._locate_packed(number)
        if there is None:
            del self._models[number]
        else:
            there[0].remove_model(there[1])
        self._key_index.remove_key(number)

    def take_model_bytes(self, key: str) -> bytes:
        """Close a key and return the bytes of its model file."""
        return modelfile.to_bytes(*to_state(self.take_model(key)))

    def serialize_model(self, key: str) -> bytes:
        """Return the bytes of the model file of a key."""
        return modelfile.to_bytes(*to_state(self._get_model(self._key_index.number_of(key))))

    def close_down_to(self, most: int) -> Iterator[StoredModel]:
        """Close models until `most` are open; yield those that have to be written."""
        numbers = self._key_index.list_least_recent(len(self) - most)
        yield from self._serialize_models([n for n in numbers if self._key_index.is_changed(n)])
        for number in numbers:
            self._close_model(number)

    def close_saved(self, most: int) -> list[str]:
        """Close saved models until `most` are open; return their keys."""
        numbers = self._key_index.list_least_recent(len(self) - most)
        closed = list(map(self._key_index.key_of, numbers))
        for number in numbers:
            self._close_model(number)
        return closed

    def iter_changed(self) -> Iterator[StoredModel]:
        """Yield models changed since the last call and mark them as saved; they stay open."""
        yield from self._serialize_models(self._key_index.list_changed())
        self._key_index.clear_changed()

    def iter_unsaved(self) -> Iterator[StoredModel]:
        """Yield changed models without marking them as saved."""
        return self._serialize_models(self._key_index.list_changed())

    def _serialize_models(self, numbers: list[int]) -> Iterator[StoredModel]:
        """Serialise models by number, batch by batch."""
        for start in range(0, len(numbers), MODELS_PER_WRITE):
            some = np.array(numbers[start : start + MODELS_PER_WRITE])
            batches = self._key_index.herd[some]
            for which in np.unique(batches).tolist():
                these = some[batches == which]
                yield from (
                    self._serialize_packed(which, these)
                    if which != UNPACKED
                    else self._serialize_unpacked(these)
                )

    def _serialize_packed(self, which: int, numbers: IntArray) -> Iterator[StoredModel]:
        batch, places = self._batches[which], self._key_index.place[numbers]
        keys = map(self._key_index.key_of, numbers.tolist())
        for key, at, metrics in zip(
            keys, places.tolist(), batch.compute_key_metrics(places), strict=True
        ):
            yield StoredModel(
                key, packing.packed_to_bytes(batch.layout, batch.get_model(at)), metrics
            )

    def _serialize_unpacked(self, numbers: IntArray) -> Iterator[StoredModel]:
        for number in numbers.tolist():
            model = self._models[number]
            lines = model.card.scores[0].curve_values()
            loss, inside = (lines.get(name, (None, None))[0] for name in packing.METRIC_FIGURES)
            metrics = KeyMetrics(model.rows, loss, inside, model.learner_state.get_count("alarms"))
            yield StoredModel(
                self._key_index.key_of(number), modelfile.to_bytes(*to_state(model)), metrics
            )

    # Rows.

    def learn(
        self, keys: Sequence[str], rows: Rows, found: Mapping[str, bytes], again: bool
    ) -> PartitionUpdate:
        """Predict each row with the model of its key, then learn it."""
        if rows.schema is not None and rows.schema is not self._schema:
            self._schema = rows.schema
            for batch in self._batches:
                batch.bind_schema(self._schema, self.settings)
        rows = rows._replace(schema=self._schema)
        self.open_models(found)
        work, numbers = PartitionResult(rows), self._key_index.numbers_of(keys)
        self._key_index.mark_used(numbers, changed=True)
        left = np.ones(len(keys), np.bool_)
        together = {} if again else self._group_by_batch(numbers, MAX_BATCHED_ROWS)
        for which, where in together.items():
            at = self._key_index.place[numbers[where]]
            done, forecast = self._batches[which].learn(at, work.select_rows(where))
            work.add(where[done], forecast)
            left[where[done]] = False
        for number, group in group_places(numbers, np.flatnonzero(left)).items():
            self._learn_unpacked(number, group, work, again)
        return PartitionUpdate(work.join_forecasts(), work.shifts)

    def _group_by_batch(self, numbers: IntArray, most: int) -> dict[int, IntArray]:
        """Group rows of packed models by batch, without keys that have more than `most` rows."""
        batches = self._key_index.herd[numbers]
        if len(numbers) > most:
            batches[np.bincount(numbers)[numbers] > most] = UNPACKED
        kinds = [int(which) for which in np.unique(batches) if which != UNPACKED]
        return {which: np.flatnonzero(batches == which) for which in kinds}

    def _learn_unpacked(
        self, number: int, group: list[int], work: PartitionResult, again: bool
    ) -> None:
        """Learn the rows of one key with its unpacked model."""
        model, packed = self._get_model(number), self._locate_packed(number) is not None
        part, places = take_rows(work.rows, np.array(group)), group
        if not packed and model.rows_seen % GATHER_ROWS == GATHER_ROWS - 1:
            model.record.shrink_to_fit()
            for candidate in model.candidates:
                candidate.learned.buffer.shrink_to_fit()
        at = 0
        while at < len(places):
            ages = [
                age - model.rows_seen for age in (SHIFT_ROWS, REFIT_ROWS) if age > model.rows_seen
            ]
            stop = min(len(places), at + min(ages, default=len(places)))
            held = model.is_warming_up
            work.add(np.array(places[at:stop]), model.learn(slice_rows(part, at, stop), again))
            if model.rows_seen == SHIFT_ROWS and not held:
                for member in model.learner_state.members:
                    work.shifts.append((places[stop - 1], measure_shift(member.state())))
            if model.rows_seen == REFIT_ROWS and not (held or again):
                model = self._refit_pooled(model)
            at = stop
        self._store_model(number, model)

    def _refit_pooled(self, model: OnlineModel) -> OnlineModel:
        """Refit a key that has REFIT_ROWS rows from the current initial model."""
        content = self.make_initial_bytes()
        if content == EMPTY_MODEL:
            return model
        later = load_stored_model(content, self.layouts, self.settings, self._schema)
        later.set_interval_mode(self.interval_mode)
        return refit_pooled(later, model)

    def _store_model(self, number: int, model: OnlineModel) -> None:
        """Store a model after learning, packed if possible."""
        there, key = self._locate_packed(number), self._key_index.key_of(number)
        description = packing.describe_layout(model) if self._can_pack else None
        layout = None if description is None else self.layouts.get_or_create(*description)
        if layout is not None and there is not None and layout is there[0].layout:
            there[0].replace_model(there[1], packing.pack_model(layout, model))
            return
        if there is not None:
            there[0].remove_model(there[1])
        if layout is None:
            self._models[number] = model
            self._key_index.add(key, UNPACKED, 0)
        else:
            self._models.pop(number, None)
            batch = self._find_batch(layout)
            self._key_index.add(
                key, batch, self._batches[batch].add_model(packing.pack_model(layout, model))
            )

    def predict(self, keys: Sequence[str], rows: Rows, found: Mapping[str, bytes]) -> Forecast:
        """Predict rows with the models of their keys."""
        self.open_models(found)
        work, numbers = PartitionResult(rows), self._key_index.numbers_of(keys)
        self._key_index.mark_used(numbers, changed=False)
        left = np.ones(len(keys), np.bool_)
        together = self._group_by_batch(numbers, len(keys)) if rows.x_sd is None else {}
        for which, where in together.items():
            at = self._key_index.place[numbers[where]]
            plain = self.interval_mode == "stated"
            work.add(where, self._batches[which].predict(at, work.select_rows(where), plain))
            left[where] = False
        for number, group in group_places(numbers, np.flatnonzero(left)).items():
            model = self._get_model(number)
            if self._locate_packed(number) is not None:
                model.set_interval_mode(self.interval_mode)
            work.add(np.array(group), model.predict(take_rows(rows, np.array(group))))
        return work.join_forecasts()


def load_stored_model(
    content: bytes, layouts: PackedLayouts, settings: Settings, schema: Schema
) -> OnlineModel:
    """Decode the stored bytes of a model."""
    if content == EMPTY_MODEL:
        return OnlineModel(settings, schema)
    if not packing.is_packed(content):
        model = modelfile.load_bytes(content, "a model")
        check_fleet_model(model, settings, schema)
        return model
    layout = layouts.find_by_name(packing.read_layout_name(content))
    return packing.unpack_model(
        layout, packing.packed_from_bytes(layout, content), settings, schema
    )


def check_fleet_model(model: OnlineModel, settings: Settings, schema: Schema) -> None:
    """Raise ModelError if columns or settings of a model are not those of its fleet.

    It may have fewer columns of x: categories may have been added later by other keys.
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
