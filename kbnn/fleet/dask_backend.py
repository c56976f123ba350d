"""Dask backend: partitions of a fleet, or predictions of one model, in the workers of a cluster.

A key belongs to one partition, chosen by a hash, and a partition lives in one worker. The requests
of a partition are sent as a chain of tasks, each after the one before. They are remembered until
the fleet is saved. If a worker is lost, its partition is rebuilt in another one: models as last
saved are read from the store, and all requests since then are repeated. The same rows give the same
models, so nothing is lost or counted twice, and results do not depend on the number of workers.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import os
import pickle
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from kbnn.data.batch import Rows, slice_rows, take_rows
from kbnn.data.schema import Schema
from kbnn.errors import KbnnError, UsageError
from kbnn.fleet.packing import PackedLayouts
from kbnn.fleet.partition import Partition, PartitionResult, PartitionUpdate, StoredModel
from kbnn.fleet.pooling import REFIT_ROWS
from kbnn.fleet.store import FleetStore, compress_model
from kbnn.model import file as modelfile
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import to_state
from kbnn.model.settings import Settings
from kbnn.targets.base import make_empty_forecast
from kbnn.targets.prediction import Forecast, join_forecasts

RESULT_TIMEOUT_SECONDS: Final = 1.0
"""Seconds after which the list of workers is checked; doubled each time, since a request that is
interrupted must be repeated."""
MAX_ATTEMPTS: Final = 20
"""Workers that may be lost in a row before the run fails."""
LOCAL_CLUSTER_CONFIG: Final = {
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.tick.interval": "1s",
}
"""Configuration of local workers: monitoring is off, because it slows down learning."""
CLIENT_CONFIG: Final = {"distributed.admin.large-graph-warning-threshold": "1000 TB"}
"""Configuration of the client: no warnings about large requests, which hold models of many keys."""


def prepare_worker(nice: bool) -> None:
    """In a worker: import what it will need, and lower its priority if `nice`."""
    importlib.import_module("kbnn.fleet.dask_backend")
    if nice and hasattr(os, "nice"):
        os.nice(WORKER_NICENESS)


WORKER_NICENESS: Final = 5
"""Niceness of local workers: the process that reads the data has more to do than any of them, and
all of them wait for it."""
CONNECT_TIMEOUT_SECONDS: Final = 5.0
"""Seconds to wait for the scheduler."""


class PartitionLost(Exception):  # handled internally, never shown to users
    """A partition is not (or no longer) in this worker."""


class DaskCluster:
    """The workers of a cluster: `local:N` starts N workers here, anything else is an address."""

    def __init__(self, cluster: str) -> None:
        try:
            import dask
            import distributed
        except ImportError as error:
            raise UsageError("--engine dask needs Dask (pip install 'kbnn[dask]')") from error
        self._lost: set[str] = set()
        self._placed: list[str] = []
        self._cluster: Any = None
        kind, _, count = cluster.partition(":")
        if kind == "local":
            if not count.isdigit() or not 1 <= int(count) <= 1024:
                raise UsageError(
                    f"--cluster '{cluster}': local:N needs a number of workers from 1 to 1024"
                )
            with dask.config.set(LOCAL_CLUSTER_CONFIG):
                self._cluster = distributed.LocalCluster(
                    n_workers=int(count),
                    threads_per_worker=1,
                    processes=True,
                    memory_limit=0,
                    dashboard_address=None,
                    silence_logs=50,
                )
        try:
            self._client = distributed.Client(
                self._cluster or cluster, timeout=CONNECT_TIMEOUT_SECONDS
            )
        except (OSError, ValueError) as error:
            raise UsageError(
                f"--cluster {cluster}: cannot connect to a Dask scheduler at this address"
            ) from error
        self._settings: Any = dask.config.set(CLIENT_CONFIG)
        self.count = max(1, len(self._list_workers()))
        # Import in all workers at once, before the first rows.
        self._client.run(prepare_worker, self._cluster is not None)

    def _list_workers(self) -> list[str]:
        info = self._client.scheduler_info(n_workers=-1)
        return sorted(info["workers"])

    def choose_worker(self) -> str:
        """Choose the worker with the fewest partitions."""
        for _ in range(120):
            there = [worker for worker in self._list_workers() if worker not in self._lost]
            if there:
                chosen = min(there, key=lambda worker: (self._placed.count(worker), worker))
                self._placed.append(chosen)
                return chosen
            time.sleep(0.5)
        raise KbnnError("the cluster has no workers. Start at least one and run again")

    def mark_lost(self, worker: str) -> None:
        """Record that a worker is gone, or has lost its partition."""
        if worker not in self._list_workers():
            self._lost.add(worker)
        self._placed = [placed for placed in self._placed if placed != worker]

    def submit(self, worker: str, work: Callable[..., Any], *args: Any) -> Any:
        """Run a function in a worker."""
        return self._client.submit(
            work, *args, workers=[worker], allow_other_workers=False, pure=False, retries=0
        )

    def wait_for_result(self, future: Any, worker: str) -> Any:
        """Wait for a result; PartitionLost if the worker is gone."""
        from concurrent.futures import CancelledError

        from distributed import TimeoutError as Late
        from distributed.client import FutureCancelledError
        from distributed.comm import CommClosedError
        from distributed.scheduler import KilledWorker

        patience = RESULT_TIMEOUT_SECONDS
        while True:
            try:
                return future.result(timeout=patience)
            except (TimeoutError, Late):
                patience *= 2.0
                if worker not in self._list_workers():
                    raise PartitionLost(worker) from None
            except (KilledWorker, CommClosedError, CancelledError, FutureCancelledError) as error:
                raise PartitionLost(worker) from error

    def run_anywhere(self, work: Callable[..., Any], many: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run a function for each set of arguments in any worker, and return the results."""
        sent = [self._client.submit(work, *args, pure=False, retries=MAX_ATTEMPTS) for args in many]
        return [future.result() for future in sent]

    def close(self) -> None:
        """Disconnect, and stop the workers that were started here."""
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()
        self._settings.__exit__(None, None, None)


_PARTITIONS: dict[str, tuple[Partition, int]] = {}
"""In a worker: its partitions, and the number of the last request of each."""


def run_request(
    name: str, number: int, order: str, args: tuple[Any, ...], after: Any = None
) -> Any:
    """In a worker: run a request of a partition, once and in order."""
    if order == "make":
        settings, schema, plain, wanted = args
        part = Partition(settings, schema, PackedLayouts(plain))
        part.interval_mode = wanted
        _PARTITIONS[name] = part, number
        return None
    if name not in _PARTITIONS or _PARTITIONS[name][1] != number - 1:
        raise PartitionLost(name)
    part, _ = _PARTITIONS[name]
    try:
        return _HANDLERS[order](part, *args)
    finally:
        _PARTITIONS[name] = part, number


def _copy_rows(rows: Rows) -> Rows:
    """Copy rows: the memory of a message may be unaligned."""
    return Rows._make(part.copy() if isinstance(part, np.ndarray) else part for part in rows)


def _learn_rows(
    part: Partition,
    plain: Mapping[str, Any],
    keys: list[str],
    rows: Rows,
    found: Mapping[str, bytes],
    again: bool,
    start: bytes | None,
) -> PartitionUpdate:
    part.layouts.add_layouts(plain)
    if start is not None:
        part.make_initial_bytes = lambda: start
    return part.learn(keys, _copy_rows(rows), found, again)


def _serialize_changed(part: Partition) -> tuple[bytes, dict[str, Any]]:
    """Serialise changed models as one object: Dask would send the items of a list one by one."""
    stored = [one._replace(content=compress_model(one.content)) for one in part.iter_changed()]
    return pickle.dumps(stored), part.layouts.to_json()


def unpickle_changed(stored: bytes) -> list[StoredModel]:
    """Decode the changed models of a worker."""
    found: list[StoredModel] = pickle.loads(stored)
    return found


def _predict_rows(
    part: Partition,
    plain: Mapping[str, Any],
    keys: list[str],
    rows: Rows,
    found: Mapping[str, bytes],
) -> Forecast:
    part.layouts.add_layouts(plain)
    return part.predict(keys, _copy_rows(rows), found)


_HANDLERS: Final[dict[str, Callable[..., Any]]] = {
    "learn": _learn_rows,
    "changed": _serialize_changed,
    "ask": _predict_rows,
    "file": lambda part, key: part.serialize_model(key),
    "take": lambda part, key: part.take_model_bytes(key),
    "shut": lambda part, most: part.close_saved(most),
}


_LAST_MODEL: dict[str, OnlineModel] = {}
"""In a worker: the model used last, by the hash of its bytes."""


def predict_in_worker(name: str, content: bytes, wanted: str | None, rows: Rows) -> Forecast:
    """In a worker: predict rows with a model."""
    if name not in _LAST_MODEL:
        _LAST_MODEL.clear()
        _LAST_MODEL[name] = modelfile.load_bytes(content, "the model")
        _LAST_MODEL[name].set_interval_mode(wanted)
    return _LAST_MODEL[name].predict(rows)


class _Request(NamedTuple):
    """A request to a partition: its name in _HANDLERS and its arguments."""

    order: str
    args: tuple[Any, ...]


class PartitionHandle:
    """A partition in a worker, with the requests since the last save."""

    def __init__(
        self,
        cluster: DaskCluster,
        make: Callable[[Schema], tuple[Any, ...]],
        schema: Schema,
        path: str | None,
    ) -> None:
        self._cluster, self._make, self._path = cluster, make, path
        self.schema = self._saved_schema = schema  # now and when last saved
        self.keys: dict[str, int] = {}  # open keys, and how many rows were sent
        self.stored_keys: set[str] = set()  # open keys that had rows before
        self.start: bytes | None = None  # initial model of keys, as last sent
        self._requests: list[_Request] = []  # since the fleet was last saved
        self._futures: list[Any] = []  # of these requests
        self._start_partition()

    def _start_partition(self) -> None:
        self._worker, self._name, self._number = self._cluster.choose_worker(), uuid.uuid4().hex, 0
        self._last = None
        self._last = self._submit_request("make", self._make(self._saved_schema))

    def _submit_request(self, order: str, args: tuple[Any, ...]) -> Any:
        future = self._cluster.submit(
            self._worker, run_request, self._name, self._number, order, args, self._last
        )
        self._number, self._last = self._number + 1, future
        return future

    def count_rows(self, keys: Sequence[str]) -> bool:
        """Count rows sent to these keys; return whether one may reach REFIT_ROWS by them."""
        may_refit = False
        for key in keys:
            count = self.keys[key] = self.keys.get(key, 0) + 1
            may_refit |= count == REFIT_ROWS or (count < REFIT_ROWS and key in self.stored_keys)
        return may_refit

    def forget_keys(self, keys: Iterable[str]) -> None:
        """Record that these keys are closed."""
        for key in keys:
            self.keys.pop(key, None)
            self.stored_keys.discard(key)

    def send_request(self, order: str, args: tuple[Any, ...]) -> int:
        """Send a request that changes models; return its number for `wait_for`."""
        self._requests.append(_Request(order, args))
        self._futures.append(self._submit_request(order, args))
        return len(self._requests) - 1

    def wait_for(self, number: int) -> Any:
        """Wait for the result of a request."""
        return self._wait_and_recover(lambda: self._futures[number])

    def _wait_and_recover(self, get_future: Callable[[], Any]) -> Any:
        """Wait for a result; rebuild the partition while workers are lost."""
        for _ in range(MAX_ATTEMPTS):
            try:
                return self._cluster.wait_for_result(get_future(), self._worker)
            except PartitionLost:
                self._recover_partition()
        raise KbnnError(
            f"{MAX_ATTEMPTS} workers were lost in a row. Check the cluster and run again"
        )

    def query_async(self, order: str, args: tuple[Any, ...]) -> Callable[[], Any]:
        """Send a request that changes no models; return a function that waits for its result."""
        sent = {self._name: self._submit_request(order, args)}

        def get_future() -> Any:
            if self._name not in sent:  # the partition was rebuilt since
                sent[self._name] = self._submit_request(order, args)
            return sent[self._name]

        return lambda: self._wait_and_recover(get_future)

    def query_now(self, order: str, args: tuple[Any, ...]) -> Any:
        """Send a request that changes no models, and wait for its result."""
        return self.query_async(order, args)()

    def mark_saved(self) -> None:
        """Forget all requests, because their effects are in the store."""
        self._requests, self._futures = [], []
        self._saved_schema, self.start = self.schema, None

    def _recover_partition(self) -> None:
        """Rebuild the partition as last saved in another worker, and repeat later requests."""
        self._cluster.mark_lost(self._worker)
        self._start_partition()
        self.keys, self.stored_keys = {}, set()
        with FleetStore(self._path, writes=False) as store:
            for number, (order, args) in enumerate(self._requests):
                if order == "learn":
                    plain, keys, rows, found, again, start = args
                    absent = dict.fromkeys(k for k in keys if k not in self.keys and k not in found)
                    saved = {key: store.read(key) or b"" for key in absent}
                    args = plain, keys, rows, {**found, **saved}, again, start
                    self.keys.update(dict.fromkeys(keys, 0))
                    self.stored_keys.update(keys)  # their rows are not counted again
                elif order == "take":
                    self.forget_keys(args[:1])
                self._futures[number] = self._submit_request(order, args)


class RemotePartitions:
    """Partitions in workers, with the interface of a local partition."""

    def __init__(
        self,
        cluster: DaskCluster,
        settings: Settings,
        schema: Schema,
        layouts: PackedLayouts,
        path: str | None,
    ) -> None:
        self.layouts, self.interval_mode = layouts, None
        self.make_initial_bytes: Callable[[], bytes] = bytes  # the initial model of new keys
        self._cluster = cluster
        self._partition_numbers: dict[str, int] = {}

        def make_arguments(known: Schema) -> tuple[Any, ...]:
            return settings, known, layouts.to_json(), self.interval_mode

        self._handles = [
            PartitionHandle(cluster, make_arguments, schema, path) for _ in range(cluster.count)
        ]

    interval_mode: str | None

    def _find_partition(self, key: str) -> int:
        number = self._partition_numbers.get(key)
        if number is None:
            number = zlib.crc32(key.encode(errors="surrogateescape")) % len(self._handles)
            if len(self._partition_numbers) > 1_000_000:
                self._partition_numbers.clear()
            self._partition_numbers[key] = number
        return number

    def __contains__(self, key: str) -> bool:
        return key in self._handles[self._find_partition(key)].keys

    def list_unopened(self, keys: Sequence[str]) -> list[str]:
        """List the keys that are not open, each once."""
        return [key for key in dict.fromkeys(keys) if key not in self]

    def __len__(self) -> int:
        return sum(len(handle.keys) for handle in self._handles)

    def _split_by_partition(self, keys: Sequence[str]) -> Iterator[tuple[PartitionHandle, Any]]:
        homes = np.array([self._find_partition(key) for key in keys])
        for number, handle in enumerate(self._handles):
            where = np.flatnonzero(homes == number)
            if len(where):
                yield handle, where

    def learn(
        self, keys: Sequence[str], rows: Rows, found: Mapping[str, bytes], again: bool
    ) -> Callable[[], PartitionUpdate]:
        """Start learning rows; return a function that waits for the result."""
        sent, schema = [], rows.schema
        rows = rows._replace(schema=None)
        for handle, where in self._split_by_partition(keys):
            mine = [keys[at] for at in where.tolist()]
            new = {key: found[key] for key in dict.fromkeys(mine) if key in found}
            if new:
                initial = self.make_initial_bytes()
                handle.stored_keys.update(key for key, content in new.items() if content != initial)
            start = self.make_initial_bytes() if handle.count_rows(mine) else None
            if start is handle.start:  # sent once per window: it may be large
                start = None
            elif start is not None:
                handle.start = start
            share = take_rows(rows, where)
            if schema is not None and schema is not handle.schema:  # sent once: it is large
                handle.schema = schema
                share = share._replace(schema=schema)
            plain = self.layouts.to_json()
            number = handle.send_request("learn", (plain, mine, share, new, again, start))
            sent.append((handle, where, number))

        def collect_result() -> PartitionUpdate:
            work = PartitionResult(rows)
            for handle, where, number in sent:
                forecast, moved = handle.wait_for(number)
                work.add(where, forecast)
                work.shifts += [(int(where[at]), move) for at, move in moved]
            return PartitionUpdate(work.join_forecasts(), work.shifts)

        return collect_result

    def predict(self, keys: Sequence[str], rows: Rows, found: Mapping[str, bytes]) -> Forecast:
        """Predict rows with the models of their keys, all of which must exist."""
        plain, sent = self.layouts.to_json(), []
        for handle, where in self._split_by_partition(keys):
            mine = [keys[at] for at in where.tolist()]
            new = {key: found[key] for key in dict.fromkeys(mine) if key in found}
            handle.keys.update(dict.fromkeys(new, 0))
            handle.stored_keys.update(new)
            # A request is repeated when a worker is lost, with the models it needs.
            sent.append(
                (
                    handle,
                    where,
                    handle.send_request("ask", (plain, mine, take_rows(rows, where), new)),
                )
            )
        work = PartitionResult(rows)
        for handle, where, number in sent:
            work.add(where, handle.wait_for(number))
        return work.join_forecasts()

    def serialize_model(self, key: str) -> bytes:
        """Return the bytes of the model file of a key."""
        made: bytes = self._handles[self._find_partition(key)].query_now("file", (key,))
        return made

    def take_model(self, key: str) -> OnlineModel:
        """Close a key and return its model."""
        handle = self._handles[self._find_partition(key)]
        content = handle.wait_for(handle.send_request("take", (key,)))
        handle.forget_keys([key])
        return modelfile.load_bytes(content, "a model")

    def iter_changed(self) -> Iterator[StoredModel]:
        """Yield the models changed since the fleet was last saved."""
        for result in [handle.query_async("changed", ()) for handle in self._handles]:
            stored, plain = result()
            self.layouts.add_layouts(plain)
            yield from unpickle_changed(stored)

    def mark_saved(self, most: int) -> None:
        """Record that all changes are in the store, and close models until `most` are open."""
        share = max(1, most // len(self._handles))
        for handle in self._handles:
            handle.mark_saved()
            if len(handle.keys) > share:
                handle.forget_keys(handle.query_now("shut", (share,)))

    def close(self) -> None:
        """Close the cluster."""
        self._cluster.close()


class RemotePredictor:
    """Predict with one model in all workers; the model does not change."""

    def __init__(self, cluster: DaskCluster, model: OnlineModel) -> None:
        self._cluster, self._numbers = cluster, model.task.numbers
        self._content = modelfile.to_bytes(*to_state(model))
        self._interval_mode = "stated" if model.interval_mode == "stated" else None
        self._name = hashlib.blake2b(self._content).hexdigest() + str(self._interval_mode)

    def predict(self, rows: Rows) -> Forecast:
        """Predict rows, a contiguous run of them in each worker."""
        rows = rows._replace(original=None, id=None)
        cuts = [len(rows.y) * k // self._cluster.count for k in range(self._cluster.count + 1)]
        runs = [(a, b) for a, b in itertools.pairwise(cuts) if b > a]
        parts = self._cluster.run_anywhere(
            predict_in_worker,
            [
                (self._name, self._content, self._interval_mode, slice_rows(rows, *run))
                for run in runs
            ],
        )
        return join_forecasts(parts) if parts else make_empty_forecast(0, self._numbers)
