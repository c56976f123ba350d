"""Fleet: one model per key, and a pooled model of all rows from which new keys start.

Training, prediction and evaluation use it like a single model: rows are passed to the models of
their keys, and forecasts are returned in the order of the rows. At most `most_open` models are in
memory, the most recently used; the others are in the store. Results do not depend on how the stream
is batched nor on how many models are open: batches are split where a window of rows ends, and a new
key starts from the pooled model at the start of its window.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import numpy as np

from kbnn.core.reference import LEARNED, REJECTED, UNLABELLED
from kbnn.data.batch import LearnResult, Rows, slice_rows
from kbnn.data.row_blocks import take_rows
from kbnn.data.schema import Schema
from kbnn.errors import ModelError
from kbnn.fleet.dask_backend import DaskCluster, RemotePartitions
from kbnn.fleet.key_index import read_keys
from kbnn.fleet.packing import PackedLayouts
from kbnn.fleet.partition import (
    Partition,
    PartitionResult,
    PartitionUpdate,
    PredictFunction,
    check_fleet_model,
    load_stored_model,
)
from kbnn.fleet.pooling import EMPTY_MODEL, Pooling, learn_held_rows
from kbnn.fleet.store import FleetStore
from kbnn.metrics.score import check_stored_count
from kbnn.model import file as modelfile
from kbnn.model.migrations import migrated_form
from kbnn.model.model import OnlineModel
from kbnn.model.recursive_forecast import SequenceNotices
from kbnn.model.serialize import to_state
from kbnn.model.settings import MAX_BUFFER_ROWS, Settings
from kbnn.plain_values import read_value
from kbnn.targets import prediction as said_of
from kbnn.targets.base import make_empty_forecast
from kbnn.targets.prediction import IN_WARMUP, Forecast

FLEET_DEFAULTS: Final = {
    "hidden": (10,),
    "covariance": "neuron",
    "rehearse": 0,
    "kind": "regression",
    "keep": 64,
    "sample": 0,
}
"""Default settings of a fleet: a key takes about 7 KB."""
DEFAULT_OPEN_MODELS: Final = 10_000
"""Default number of models in memory."""
LOCAL_ROWS: Final = 2048
"""First rows of a stream, which are learned locally even with workers: windows are still so short
that sending them would take longer than learning them."""


class Fleet(OnlineModel):
    """The models of all keys; the fleet itself has the record of all rows and the position."""

    def __init__(
        self,
        settings: Settings,
        schema: Schema,
        key: Sequence[str],
        store: FleetStore,
        common: OnlineModel | None = None,
    ) -> None:
        super().__init__(settings, schema)
        self.key = tuple(key)
        self.store = store
        self.most_open = DEFAULT_OPEN_MODELS
        self.layouts = PackedLayouts()
        self.pooling = Pooling(settings, self.layouts, common)
        self._rows = self._rejected = 0
        self._partition: Partition | RemotePartitions = self._open_local_partition()
        # Workers that have not received any request yet.
        self._idle_workers: RemotePartitions | None = None
        # First row and pending result of each block.
        self._sent: list[tuple[int, Callable[[], PartitionUpdate]]] = []
        self._forecasts: list[tuple[int, Forecast]] = []  # first row and forecasts
        self._sent_blocks: list[tuple[Rows, bool, int]] = []  # blocks, and the row after each
        self._interval_mode: str | None = None

    @classmethod
    def create_empty(
        cls, settings: Settings, schema: Schema, key: Sequence[str], store: FleetStore, common: bool
    ) -> Fleet:
        """Create a fleet without rows; without pooling (`common`), keys start from the prior.

        With lags the pooled model is left out: a row depends on earlier rows of its own key.
        """
        pooled = None
        if common and not schema.lags:
            pooled = OnlineModel(replace(settings, keep=MAX_BUFFER_ROWS), schema)
            pooled.is_scored = False
        return cls(settings, schema, key, store, pooled)

    @property
    def pooled_model(self) -> OnlineModel | None:
        """The model of all rows, if there is one."""
        return self.pooling.pooled_model

    # Saving and loading.

    @classmethod
    def load(cls, store: FleetStore) -> Fleet | None:
        """Load the fleet as last saved; None if it was never saved."""
        state, name = store.read_state(), store.path or "the fleet"
        if not state:
            return None
        try:
            own = modelfile.load_bytes(state["fleet"], name)
            if len(state["counts"]) > modelfile.MAX_HEADER_BYTES:
                raise ValueError("its counts are too large")
            plain = json.loads(state["counts"])
            common = None
            if "common" in state:
                common = modelfile.load_bytes(state["common"], f"{name}: the pooled model")
                common.is_scored = False
            key = read_value(list[str], plain["key"], "key")
            fleet = cls(own.settings, own.schema, key, store, common)
            fleet.set_record(lambda: own.card)
            fleet.position, fleet.skipped = own.position, own.skipped
            fleet._rows, fleet._rejected = (
                check_stored_count(plain["rows"]),
                check_stored_count(plain["rejected"]),
            )
            start = state.get("start", EMPTY_MODEL)
            fleet.pooling.restore(plain, start)
            version = modelfile.version_of(state["fleet"], name)
            with fleet._name_store_in_errors():
                if common is not None:
                    check_fleet_model(common, own.settings, own.schema)
                fleet.layouts.add_layouts(
                    {
                        form: migrated_form(version, one, own.schema.task)
                        for form, one in plain.get("forms", {}).items()
                    }
                )
                load_stored_model(start, fleet.layouts, own.settings, own.schema)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ModelError(f"{name}: is damaged (its state)") from error
        except RecursionError as error:
            raise ModelError(f"{name}: is damaged (its state is nested too deep)") from error
        fleet.met = fleet._rows + fleet._rejected + fleet.skipped
        return fleet

    def save(self) -> None:
        """Write all changes in one transaction."""
        self.store.write(self._partition.iter_changed())
        self.store.commit(self._build_state())
        if isinstance(self._partition, RemotePartitions):
            self._partition.mark_saved(self.most_open)

    def copy(self) -> Fleet:
        """Return an independent copy; what it learns is not saved."""
        assert isinstance(self._partition, Partition)
        store = self.store.copy()
        store.write(self._partition.iter_unsaved())
        store.commit(self._build_state())
        made = Fleet.load(store)
        assert made is not None
        made.most_open = self.most_open
        made.set_interval_mode(self._interval_mode)
        return made

    def _build_state(self) -> dict[str, bytes]:
        """Return what is saved in addition to the models of the keys."""
        pooling = self.pooling
        start = pooling.settled_initial_bytes()
        counts = {
            "key": list(self.key),
            "rows": self._rows,
            "rejected": self._rejected,
            **pooling.to_json(),
            "forms": self.layouts.to_json(),
        }
        state = {
            "fleet": modelfile.to_bytes(*to_state(self)),
            "counts": json.dumps(counts).encode(),
        }
        if pooling.pooled_model is not None:
            state["start"] = start
            state["common"] = modelfile.to_bytes(*to_state(pooling.pooled_model))
        return state

    def use_cluster(self, cluster: DaskCluster | None) -> None:
        """Learn and predict in the workers of a cluster, or locally again if None."""
        self._partition, self._idle_workers = self._open_local_partition(), None
        if cluster is not None:
            self._idle_workers = RemotePartitions(
                cluster, self.settings, self._schema, self.layouts, self.store.path
            )
            self._idle_workers.make_initial_bytes = self.pooling.make_initial_bytes
        self._partition.interval_mode = self._interval_mode

    def _move_to_workers(self) -> None:
        """Move the models to the workers, if there are any."""
        if self._idle_workers is None:
            return
        assert isinstance(self._partition, Partition)
        self.store.write(self._partition.close_down_to(0))
        self._partition, self._idle_workers = self._idle_workers, None
        self._partition.interval_mode = self._interval_mode

    def _open_local_partition(self) -> Partition:
        part = Partition(self.settings, self._schema, self.layouts)
        part.make_initial_bytes = self.pooling.make_initial_bytes
        return part

    def model_of(self, key: str) -> OnlineModel | None:
        """Return the model of a key; None if there is none yet."""
        content = (
            self._partition.serialize_model(key) if key in self._partition else self.store.read(key)
        )
        if content is None:
            return None
        with self._name_store_in_errors():
            model = load_stored_model(content, self.layouts, self.settings, self._schema)
        model.set_interval_mode(self._interval_mode)
        return model

    def file_of(self, key: str) -> bytes:
        """Return the bytes of the model file of a key; empty if it has no model."""
        model = self.model_of(key)
        return b"" if model is None else modelfile.to_bytes(*to_state(model))

    @contextmanager
    def _name_store_in_errors(self) -> Iterator[None]:
        """Add the path of the store to errors about a model."""
        try:
            yield
        except ModelError as error:
            raise ModelError(f"{self.store.path}: {error}") from error

    def _close_unused(self) -> None:
        """Close the least recently used models; workers do this at the next save."""
        if isinstance(self._partition, Partition) and len(self._partition) > self.most_open:
            self.store.write(self._partition.close_down_to(self.most_open))

    @property
    def wants_saving(self) -> bool:
        """Whether more models are open than allowed and only saving can close them."""
        return (
            isinstance(self._partition, RemotePartitions) and len(self._partition) > self.most_open
        )

    # The interface of a model.

    @property
    def rows(self) -> int:
        """Rows learned in all passes, including held rows."""
        return self._rows

    @property
    def rejected_rows(self) -> int:
        """Rows with a target that could not be learned."""
        return self._rejected

    @property
    def interval_mode(self) -> str | None:
        """`tracked` if intervals are calibrated online, else `stated`; None if there are none."""
        return None if self.task.labels else self._interval_mode or self.settings.intervals

    def set_interval_mode(self, wanted: str | None) -> None:
        """Switch calibration off if `stated` is wanted; UsageError if `tracked` is impossible."""
        super().set_interval_mode(wanted)
        self._interval_mode = self._partition.interval_mode = wanted

    # Rows.

    def learn_batch(self, rows: Rows, again: bool = False) -> LearnResult:
        """Predict each row with the model of its key, then learn it."""
        with self.lock:
            self.send_block(self.read_row_keys(rows), rows, again)
            return LearnResult(self.receive_block())

    def read_row_keys(self, rows: Rows) -> list[str]:
        """Return the key of each row."""
        return read_keys(rows, self.key)

    @property
    def uses_workers(self) -> bool:
        """Whether there are workers: blocks that are sent are learned in the background."""
        return self._idle_workers is not None or isinstance(self._partition, RemotePartitions)

    @property
    def blocks_in_flight(self) -> int:
        """Number of blocks that were sent and not received."""
        return len(self._sent_blocks)

    def send_block(self, keys: list[str], rows: Rows, again: bool) -> None:
        """Start learning a block; its forecasts can be received later."""
        if rows.schema is not None and rows.schema is not self._schema:
            self.schema = rows.schema
        rows = rows._replace(original=None, schema=self._schema)
        at = 0
        while at < len(keys):
            stop = self._find_block_end(keys, at)
            self._learn_block(keys[at:stop], slice_rows(rows, at, stop), again)
            at = stop
        self._sent_blocks.append((rows, again, self.met))

    def receive_block(self) -> Forecast:
        """Return the forecasts of the block that was sent first."""
        rows, again, end = self._sent_blocks.pop(0)
        self._collect_results(end)
        mine = [forecast for first, forecast in self._forecasts if first < end]
        self._forecasts = self._forecasts[len(mine) :]
        forecast = (
            said_of.join_forecasts(mine) if mine else make_empty_forecast(0, self.task.numbers)
        )
        self._rows += int(np.count_nonzero(forecast.status & (LEARNED | IN_WARMUP)))
        self._rejected += int(np.count_nonzero(forecast.status & REJECTED))
        self.skipped += int(np.count_nonzero(forecast.status & UNLABELLED))
        if not again:
            self._score_rows(rows, forecast, True)
        return forecast

    def _find_block_end(self, keys: list[str], start: int) -> int:
        """Find where to split a block: at the end of a pooling window, or before too many keys."""
        stop = len(keys)
        if self.pooled_model is not None:
            stop = min(stop, start + self.pooling.rows_left_in_window(self.met))
        if stop - start <= self.most_open:
            return stop
        seen: set[str] = set()
        for at in range(start, stop):
            seen.add(keys[at])
            if len(seen) > self.most_open:
                return at
        return stop

    def _learn_block(self, keys: list[str], rows: Rows, again: bool) -> None:
        """Learn a part of a block with the models of its keys and with the pooled model."""
        if self.met >= LOCAL_ROWS:
            self._move_to_workers()
        before = self.pooling.results_needed_before(self.met)
        if before is not None:
            self._collect_results(before)
            self.pooling.start_window(before)
        found = self._find_stored_models(keys)
        with self._name_store_in_errors():
            if isinstance(self._partition, RemotePartitions):
                self._sent.append((self.met, self._partition.learn(keys, rows, found, again)))
            else:
                update = self._partition.learn(keys, rows, found, again)
                self._sent.append((self.met, lambda: update))
        self.pooling.learn(rows, self.met, again)
        self.met += len(keys)
        if isinstance(self._partition, Partition):
            self._collect_results(self.met)
        self._close_unused()

    def _collect_results(self, row: int) -> None:
        """Collect the results of all parts that start before a row of the stream."""
        while self._sent and self._sent[0][0] < row:
            first, result = self._sent.pop(0)
            forecast, moved = result()
            self._forecasts.append((first, forecast))
            self.pooling.add_shifts(first, moved)

    def _find_stored_models(self, keys: list[str]) -> dict[str, bytes]:
        """Return the bytes of models that are not open; new keys get the initial model."""
        is_ready, known = self.pooling.is_ready, self.pooling.unpooled_keys
        waiting = known if is_ready else ()
        ready = [key for key in dict.fromkeys(keys) if key in waiting] if waiting else []
        found = {key: self._start_from_pooled(key) for key in ready}
        unknown = self._partition.list_unopened(keys)
        stored = self.store.read_many(unknown)
        for key in unknown:
            content = stored.get(key)
            if content is None:
                content = self.pooling.make_initial_bytes()
                if self.pooled_model is not None and not is_ready:
                    known.add(key)
            found.setdefault(key, content)
        return found

    def _start_from_pooled(self, key: str) -> bytes:
        """Restart a key that came before the pooled model was ready, and learn its held rows."""
        self.pooling.unpooled_keys.discard(key)
        if key in self._partition:
            self._collect_results(self.met)
            held = self._partition.take_model(key)
        else:
            held = self._load_model(self.store.read(key) or EMPTY_MODEL)
        return modelfile.to_bytes(
            *to_state(learn_held_rows(self._load_model(self.pooling.make_initial_bytes()), held))
        )

    def _load_model(self, content: bytes) -> OnlineModel:
        with self._name_store_in_errors():
            return load_stored_model(content, self.layouts, self.settings, self._schema)

    def predict(self, rows: Rows) -> Forecast:
        """Predict each row with the model of its key; a new key gets the pooled forecast."""
        return self._apply_models(rows, lambda model, part: model.predict(part))

    def open_predictor(self, notices: SequenceNotices | None = None) -> Callable[[Rows], Forecast]:
        """Open a predictor of consecutive rows; each row follows the earlier rows of its key."""
        if not self._schema.lags:
            return self.predict
        predictors: dict[str, Callable[[Rows], Forecast]] = {}
        notices = notices or SequenceNotices()

        def predict(rows: Rows) -> Forecast:
            groups: dict[str, list[int]] = {}
            for at, key in enumerate(read_keys(rows, self.key)):
                groups.setdefault(key, []).append(at)
            rows = rows._replace(original=None)
            work = PartitionResult(rows)
            for key, where in groups.items():
                if key not in predictors:
                    predictors[key] = self._open_predictor(key, notices)
                work.add(np.array(where), predictors[key](take_rows(rows, np.array(where))))
            return (
                work.join_forecasts() if len(rows.y) else make_empty_forecast(0, self.task.numbers)
            )

        return predict

    def _open_predictor(self, key: str, notices: SequenceNotices) -> Callable[[Rows], Forecast]:
        """Open the predictor of a key; a new key gets the pooled model."""
        self._move_to_workers()
        model = self.model_of(key)
        if model is None and self.pooling.is_ready:
            model = self.pooling.create_new_key_model()
            model.set_interval_mode(self._interval_mode)
        if model is None:
            return lambda rows: said_of.make_missing_forecast(len(rows.y), self.task.numbers)
        return model.open_predictor(notices)

    def _apply_models(self, rows: Rows, ask: PredictFunction) -> Forecast:
        with self.lock:
            return self._apply_models_unlocked(rows, ask)

    def _apply_models_unlocked(self, rows: Rows, ask: PredictFunction) -> Forecast:
        """Apply `ask` to the models of the rows' keys, at most `most_open` keys at a time."""
        self._move_to_workers()
        keys = read_keys(rows, self.key)
        rows = rows._replace(original=None)
        work, at = PartitionResult(rows), 0
        new_rows: list[int] = []
        while at < len(keys):
            stop = min(len(keys), at + max(1, self.most_open))
            found: dict[str, bytes] = {}
            for key in dict.fromkeys(keys[at:stop]):
                content = None if key in self._partition else self.store.read(key)
                if content is not None:
                    found[key] = content
            known = [k for k in range(at, stop) if keys[k] in self._partition or keys[k] in found]
            new_rows += sorted(set(range(at, stop)).difference(known))
            if known:
                where = np.array(known)
                asked = [keys[k] for k in known]
                with self._name_store_in_errors():
                    work.add(
                        where,
                        self._partition.apply_models(asked, take_rows(rows, where), found, ask),
                    )
            self._close_unused()
            at = stop
        if new_rows:
            where = np.array(new_rows)
            work.add(where, self._predict_new_keys(take_rows(rows, where), ask))
        return work.join_forecasts() if len(keys) else make_empty_forecast(0, self.task.numbers)

    def _predict_new_keys(self, rows: Rows, ask: PredictFunction) -> Forecast:
        """Predict rows of new keys with the initial model of a key."""
        if not self.pooling.is_ready:
            return said_of.make_missing_forecast(len(rows.y), self.task.numbers)
        model = self.pooling.create_new_key_model()
        model.set_interval_mode(self._interval_mode)
        return ask(model, rows)
