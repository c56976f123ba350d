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
from typing import Any, Final

import numpy as np

from kbnn.core.reference import LEARNED, REJECTED, UNLABELLED
from kbnn.data.batch import Anomalies, LearnResult, Rows, slice_rows, take_rows
from kbnn.data.schema import Schema
from kbnn.errors import ModelError, UsageError
from kbnn.fleet.dask_backend import DaskCluster, RemotePartitions
from kbnn.fleet.key_index import KeyMonitors, read_keys
from kbnn.fleet.packing import PackedLayouts
from kbnn.fleet.partition import (
    Partition,
    PartitionResult,
    PartitionUpdate,
    check_fleet_model,
    load_stored_model,
)
from kbnn.fleet.pooling import EMPTY_MODEL, Pooling, learn_held_rows
from kbnn.fleet.store import FleetStore
from kbnn.metrics.figures import check_stored_count
from kbnn.metrics.scorecard import Scorecard
from kbnn.model import file as modelfile
from kbnn.model.anomaly import judge_rows
from kbnn.model.migrations import migrated_form
from kbnn.model.model import OnlineModel
from kbnn.model.record import PrequentialRecord
from kbnn.model.recursive_forecast import SequenceNotices
from kbnn.model.serialize import to_state
from kbnn.model.settings import (
    DEFAULT_ALERT_RATE,
    MAX_ALERT_RATE,
    MAX_BUFFER_ROWS,
    AlertRate,
    Settings,
)
from kbnn.plain_values import read_value
from kbnn.targets import prediction
from kbnn.targets.base import TargetType, make_empty_forecast
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


class FleetModels:
    """The models of all keys: the most recently used are open, all others are in the store."""

    def __init__(
        self, overall: OnlineModel, store: FleetStore, common: OnlineModel | None = None
    ) -> None:
        self.store = store
        self.most_open = DEFAULT_OPEN_MODELS
        self.layouts = PackedLayouts()
        self.pooling = Pooling(overall.settings, self.layouts, common)
        self.interval_mode: str | None = None
        self._overall = overall
        self.partition: Partition | RemotePartitions = self._open_partition()
        # Workers that have not received any request yet.
        self._idle_workers: RemotePartitions | None = None

    def _open_partition(self) -> Partition:
        part = Partition(self._overall.settings, self._overall.schema, self.layouts)
        part.make_initial_bytes = self.pooling.make_initial_bytes
        return part

    def use_cluster(self, cluster: DaskCluster | None) -> None:
        """Keep models in the workers of a cluster, or locally again if None."""
        self.partition, self._idle_workers = self._open_partition(), None
        if cluster is not None:
            self._idle_workers = RemotePartitions(
                cluster,
                self._overall.settings,
                self._overall.schema,
                self.layouts,
                self.store.path,
            )
            self._idle_workers.make_initial_bytes = self.pooling.make_initial_bytes
        self.partition.interval_mode = self.interval_mode

    @property
    def uses_workers(self) -> bool:
        """Whether there are workers."""
        return self._idle_workers is not None or isinstance(self.partition, RemotePartitions)

    def move_to_workers(self) -> None:
        """Move the models to the workers, if there are any."""
        if self._idle_workers is None:
            return
        assert isinstance(self.partition, Partition)
        self.store.write(self.partition.close_down_to(0))
        self.partition, self._idle_workers = self._idle_workers, None
        self.partition.interval_mode = self.interval_mode

    def close_unused(self) -> None:
        """Close the least recently used models; workers do this at the next save."""
        if isinstance(self.partition, Partition) and len(self.partition) > self.most_open:
            self.store.write(self.partition.close_down_to(self.most_open))

    @property
    def wants_saving(self) -> bool:
        """Whether more models are open than allowed and only saving can close them."""
        return isinstance(self.partition, RemotePartitions) and len(self.partition) > self.most_open

    @contextmanager
    def name_store_in_errors(self) -> Iterator[None]:
        """Add the path of the store to errors about a model."""
        try:
            yield
        except ModelError as error:
            raise ModelError(f"{self.store.path}: {error}") from error

    def _load_model(self, content: bytes) -> OnlineModel:
        overall = self._overall
        with self.name_store_in_errors():
            return load_stored_model(content, self.layouts, overall.settings, overall.schema)

    def find_model(self, key: str) -> OnlineModel | None:
        """Return the model of a key; None if there is none yet."""
        known = key in self.partition
        content = self.partition.serialize_model(key) if known else self.store.read(key)
        if content is None:
            return None
        model = self._load_model(content)
        model.set_interval_mode(self.interval_mode)
        return model

    def create_model(self) -> OnlineModel | None:
        """Create the model of a new key; None until the pooled model is ready."""
        if not self.pooling.is_ready:
            return None
        model = self.pooling.create_new_key_model()
        model.set_interval_mode(self.interval_mode)
        return model

    def read_unopened(self, keys: list[str]) -> dict[str, bytes]:
        """Return the bytes of models that are not open; new keys get the initial model."""
        is_ready, known = self.pooling.is_ready, self.pooling.unpooled_keys
        unknown = self.partition.list_unopened(keys)
        stored = self.store.read_many(unknown)
        found = {}
        for key in unknown:
            content = stored.get(key)
            if content is None:
                content = self.pooling.make_initial_bytes()
                if self.pooling.pooled_model is not None and not is_ready:
                    known.add(key)
            found[key] = content
        return found

    def restart_from_pooled(self, key: str) -> bytes:
        """Restart a key that came before the pooled model was ready, and learn its held rows."""
        self.pooling.unpooled_keys.discard(key)
        if key in self.partition:
            held = self.partition.take_model(key)
        else:
            held = self._load_model(self.store.read(key) or EMPTY_MODEL)
        return modelfile.to_bytes(
            *to_state(learn_held_rows(self._load_model(self.pooling.make_initial_bytes()), held))
        )

    def predict(self, keys: list[str], rows: Rows) -> Forecast:
        """Predict rows with the models of their keys, at most `most_open` keys at a time."""
        work, at = PartitionResult(rows), 0
        new_rows: list[int] = []
        while at < len(keys):
            stop = min(len(keys), at + max(1, self.most_open))
            found: dict[str, bytes] = {}
            for key in dict.fromkeys(keys[at:stop]):
                content = None if key in self.partition else self.store.read(key)
                if content is not None:
                    found[key] = content
            known = [k for k in range(at, stop) if keys[k] in self.partition or keys[k] in found]
            new_rows += sorted(set(range(at, stop)).difference(known))
            if known:
                where = np.array(known)
                asked = [keys[k] for k in known]
                with self.name_store_in_errors():
                    made = self.partition.predict(asked, take_rows(rows, where), found)
                work.add(where, made)
            self.close_unused()
            at = stop
        if new_rows:
            where, model = np.array(new_rows), self.create_model()
            part = take_rows(rows, where)
            work.add(where, self._make_missing(part) if model is None else model.predict(part))
        return work.join_forecasts()

    def open_predictor(self, key: str, notices: SequenceNotices) -> Callable[[Rows], Forecast]:
        """Open the predictor of a key; a new key gets the pooled model."""
        model = self.find_model(key) or self.create_model()
        return self._make_missing if model is None else model.open_predictor(notices)

    def _make_missing(self, rows: Rows) -> Forecast:
        return prediction.make_missing_forecast(len(rows.y), self._overall.task.numbers)


class Fleet:
    """One model per key, with the interface of a single model (kbnn.model.interface).

    `overall` is a model without rows: it holds settings, schema and record of the fleet.
    """

    def __init__(
        self,
        settings: Settings,
        schema: Schema,
        key: Sequence[str],
        store: FleetStore,
        common: OnlineModel | None = None,
    ) -> None:
        self.settings = settings
        self.key = tuple(key)
        self.overall = OnlineModel(settings, schema)
        self.lock = self.overall.lock
        self.models = FleetModels(self.overall, store, common)
        self.rows = self.rejected_rows = self.skipped = self.rows_seen = 0
        self.position: dict[str, Any] = {}
        self.monitors: KeyMonitors | None = None  # after `set_alert_rate`
        # First row and pending result of each part of a block.
        self._sent: list[tuple[int, Callable[[], PartitionUpdate]]] = []
        self._forecasts: list[tuple[int, Forecast]] = []  # first row and forecasts
        # Keys and rows of blocks, whether they are learned again, and the row after each block.
        self._sent_blocks: list[tuple[list[str], Rows, bool, int]] = []

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
            pooled.record.is_scored = False
        return cls(settings, schema, key, store, pooled)

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
                common.record.is_scored = False
            key = read_value(list[str], plain["key"], "key")
            fleet = cls(own.settings, own.schema, key, store, common)
            fleet.record.set_card(lambda: own.card)
            fleet.position, fleet.skipped = own.position, own.skipped
            fleet.rows = check_stored_count(plain["rows"])
            fleet.rejected_rows = check_stored_count(plain["rejected"])
            if "alert_rate" in plain:
                rate = read_value(float, plain["alert_rate"], "alert_rate")
                if not 0.0 < rate <= MAX_ALERT_RATE:
                    raise ValueError("the rate of alerts is out of range")
                fleet.set_alert_rate(AlertRate(rate))
            models, start = fleet.models, state.get("start", EMPTY_MODEL)
            models.pooling.restore(plain, start)
            version = modelfile.version_of(state["fleet"], name)
            with models.name_store_in_errors():
                if common is not None:
                    check_fleet_model(common, own.settings, own.schema)
                models.layouts.add_layouts(
                    {
                        form: migrated_form(version, one, own.schema.task)
                        for form, one in plain.get("forms", {}).items()
                    }
                )
                load_stored_model(start, models.layouts, own.settings, own.schema)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ModelError(f"{name}: is damaged (its state)") from error
        except RecursionError as error:
            raise ModelError(f"{name}: is damaged (its state is nested too deep)") from error
        fleet.rows_seen = fleet.rows + fleet.rejected_rows + fleet.skipped
        return fleet

    def save(self) -> None:
        """Write all changes in one transaction."""
        models = self.models
        models.store.write(models.partition.iter_changed())
        if self.monitors is not None:
            self.monitors.store = models.store
            self.monitors.save(models.most_open)
        models.store.commit(self._build_state())
        if isinstance(models.partition, RemotePartitions):
            models.partition.mark_saved(models.most_open)

    def copy(self) -> Fleet:
        """Return an independent copy; what it learns is not saved."""
        models = self.models
        assert isinstance(models.partition, Partition)
        store = models.store.copy()
        store.write(models.partition.iter_unsaved())
        if self.monitors is not None:
            store.write_monitors(self.monitors.list_unsaved())
        store.commit(self._build_state())
        made = Fleet.load(store)
        assert made is not None
        made.models.most_open = models.most_open
        made.set_interval_mode(models.interval_mode)
        return made

    def _build_state(self) -> dict[str, bytes]:
        """Return what is saved in addition to the models of the keys."""
        pooling, overall = self.models.pooling, self.overall
        start = pooling.settled_initial_bytes()
        counts = {
            "key": list(self.key),
            "rows": self.rows,
            "rejected": self.rejected_rows,
            **pooling.to_json(),
            "forms": self.models.layouts.to_json(),
        }
        if self.monitors is not None:
            counts["alert_rate"] = self.monitors.rate
        overall.position, overall.skipped = self.position, self.skipped
        state = {
            "fleet": modelfile.to_bytes(*to_state(overall)),
            "counts": json.dumps(counts).encode(),
        }
        if pooling.pooled_model is not None:
            state["start"] = start
            state["common"] = modelfile.to_bytes(*to_state(pooling.pooled_model))
        return state

    # The interface of a model.

    @property
    def schema(self) -> Schema:
        """Names and types of the columns."""
        return self.overall.schema

    @property
    def task(self) -> TargetType:
        """Target type."""
        return self.overall.task

    @property
    def record(self) -> PrequentialRecord:
        """Prequential record of the rows of all keys."""
        return self.overall.record

    @property
    def card(self) -> Scorecard:
        """Prequential record of all rows."""
        return self.overall.card

    @property
    def wants_saving(self) -> bool:
        """Whether more models are open than allowed and only saving can close them."""
        return self.models.wants_saving

    @property
    def interval_mode(self) -> str | None:
        """`tracked` if intervals are calibrated online, else `stated`; None if there are none."""
        if self.task.labels:
            return None
        return self.models.interval_mode or self.settings.intervals

    def set_interval_mode(self, wanted: str | None) -> None:
        """Switch calibration off if `stated` is wanted; UsageError if `tracked` is impossible."""
        self.overall.set_interval_mode(wanted)
        self.models.interval_mode = self.models.partition.interval_mode = wanted

    def recover_transaction(self) -> None:
        """Do nothing: the models of the keys recover by themselves."""

    def start_pass(self) -> None:
        """Do nothing: a fleet with lags learns in one pass."""

    # Alerts.

    def set_alert_rate(self, rate: AlertRate | None = None) -> None:
        """Monitor each key from now on, or change the rate of the monitors.

        Parameters
        ----------
        rate
            False alarms per row; None keeps the rate, or sets DEFAULT_ALERT_RATE.
        """
        if rate is not None and rate.period:
            raise UsageError(
                f"--alert-rate {rate.alarms:g}/{rate.period}: the keys of a fleet have no common "
                "clock. Give a rate per row instead, such as 1e-3."
            )
        if self.monitors is None:
            alarms = DEFAULT_ALERT_RATE if rate is None else rate.alarms
            seed = self.settings.seed
            self.monitors = KeyMonitors(self.models.store, self.task, alarms, seed)
        elif rate is not None:
            self.monitors.rate = rate.alarms

    def judge_rows(self, rows: Rows, forecast: Forecast) -> Anomalies:
        """Compute surprise and PIT of predicted rows, see kbnn.model.anomaly.judge_rows."""
        if self.monitors is None:
            return judge_rows(None, self.task, rows, forecast)
        return self.monitors.judge(read_keys(rows, self.key), rows, forecast)

    # Learning.

    def learn(self, rows: Rows, again: bool = False) -> Forecast:
        """Predict each row with the model of its key, then learn it."""
        return self.learn_batch(rows, again).forecast

    def learn_batch(self, rows: Rows, again: bool = False) -> LearnResult:
        """Predict and learn rows as `learn` does; the target type of a fleet never changes."""
        with self.lock:
            self.send_block(read_keys(rows, self.key), rows, again)
            return self.receive_block()

    @property
    def blocks_in_flight(self) -> int:
        """Number of blocks that were sent and not received."""
        return len(self._sent_blocks)

    def send_block(self, keys: list[str], rows: Rows, again: bool) -> None:
        """Start learning a block; its forecasts can be received later."""
        if rows.schema is not None and rows.schema is not self.schema:
            self.overall.schema = rows.schema
        rows = rows._replace(original=None, schema=self.schema)
        at = 0
        while at < len(keys):
            stop = self._find_block_end(keys, at)
            self._learn_block(keys[at:stop], slice_rows(rows, at, stop), again)
            at = stop
        self._sent_blocks.append((keys, rows, again, self.rows_seen))

    def receive_block(self) -> LearnResult:
        """Return the forecasts of the block that was sent first, and what its monitors found."""
        keys, rows, again, end = self._sent_blocks.pop(0)
        self._collect_results(end)
        mine = [forecast for first, forecast in self._forecasts if first < end]
        self._forecasts = self._forecasts[len(mine) :]
        forecast = (
            prediction.join_forecasts(mine) if mine else make_empty_forecast(0, self.task.numbers)
        )
        self.rows += int(np.count_nonzero(forecast.status & (LEARNED | IN_WARMUP)))
        self.rejected_rows += int(np.count_nonzero(forecast.status & REJECTED))
        self.skipped += int(np.count_nonzero(forecast.status & UNLABELLED))
        anomalies = None
        if not again:
            if self.monitors is not None:
                anomalies = self.monitors.update(keys, rows, forecast)
                self.monitors.close_unused(self.models.most_open)
            self.record.add_rows(self.task, rows, forecast, True)
        return LearnResult(forecast, (), anomalies)

    def _find_block_end(self, keys: list[str], start: int) -> int:
        """Find where to split a block: at the end of a pooling window, or before too many keys."""
        stop, most = len(keys), self.models.most_open
        if self.models.pooling.pooled_model is not None:
            stop = min(stop, start + self.models.pooling.rows_left_in_window(self.rows_seen))
        if stop - start <= most:
            return stop
        seen: set[str] = set()
        for at in range(start, stop):
            seen.add(keys[at])
            if len(seen) > most:
                return at
        return stop

    def _learn_block(self, keys: list[str], rows: Rows, again: bool) -> None:
        """Learn a part of a block with the models of its keys and with the pooled model."""
        models, pooling = self.models, self.models.pooling
        if self.rows_seen >= LOCAL_ROWS:
            models.move_to_workers()
        before = pooling.results_needed_before(self.rows_seen)
        if before is not None:
            self._collect_results(before)
            pooling.start_window(before)
        restarted = self._restart_unpooled(keys)
        found = {**restarted, **models.read_unopened(keys), **restarted}
        with models.name_store_in_errors():
            if isinstance(models.partition, RemotePartitions):
                self._sent.append(
                    (self.rows_seen, models.partition.learn(keys, rows, found, again))
                )
            else:
                update = models.partition.learn(keys, rows, found, again)
                self._sent.append((self.rows_seen, lambda: update))
        pooling.learn(rows, self.rows_seen, again)
        self.rows_seen += len(keys)
        if isinstance(models.partition, Partition):
            self._collect_results(self.rows_seen)
        models.close_unused()

    def _restart_unpooled(self, keys: list[str]) -> dict[str, bytes]:
        """Restart the keys that came before the pooled model was ready, once it is."""
        pooling = self.models.pooling
        if not pooling.is_ready or not pooling.unpooled_keys:
            return {}
        waiting = [key for key in dict.fromkeys(keys) if key in pooling.unpooled_keys]
        if waiting:
            self._collect_results(self.rows_seen)
        return {key: self.models.restart_from_pooled(key) for key in waiting}

    def _collect_results(self, row: int) -> None:
        """Collect the results of all parts that start before a row of the stream."""
        while self._sent and self._sent[0][0] < row:
            first, result = self._sent.pop(0)
            forecast, moved = result()
            self._forecasts.append((first, forecast))
            self.models.pooling.add_shifts(first, moved)

    # Prediction.

    def predict(self, rows: Rows) -> Forecast:
        """Predict each row with the model of its key; a new key gets the pooled forecast."""
        with self.lock:
            self.models.move_to_workers()
            keys = read_keys(rows, self.key)
            if not keys:
                return make_empty_forecast(0, self.task.numbers)
            return self.models.predict(keys, rows._replace(original=None))

    def open_predictor(self, notices: SequenceNotices | None = None) -> Callable[[Rows], Forecast]:
        """Open a predictor of consecutive rows; each row follows the earlier rows of its key."""
        if not self.schema.lags:
            return self.predict
        predictors: dict[str, Callable[[Rows], Forecast]] = {}
        notices = notices or SequenceNotices()
        self.models.move_to_workers()

        def predict(rows: Rows) -> Forecast:
            groups: dict[str, list[int]] = {}
            for at, key in enumerate(read_keys(rows, self.key)):
                groups.setdefault(key, []).append(at)
            if not groups:
                return make_empty_forecast(0, self.task.numbers)
            rows = rows._replace(original=None)
            work = PartitionResult(rows)
            for key, where in groups.items():
                if key not in predictors:
                    predictors[key] = self.models.open_predictor(key, notices)
                work.add(np.array(where), predictors[key](take_rows(rows, np.array(where))))
            return work.join_forecasts()

        return predict
