"""The workers of a Dask cluster: who is there, and work that is done by one of them or by any.

What a worker of a cluster does: parts of fleets live there, and obey; a single model answers.

A part of a fleet and the worker it lives in: what it is told is remembered until it is saved.

If the worker is lost, the part is made anew in another: models as they were last saved come from
the store, and all that was told since is told again. A part makes the same of the same rows, so
nothing is lost or counted twice.

The open models of a fleet shared out among workers of a Dask cluster, key by key.

A key belongs to one part (a hash of it says which), and a part lives in one worker. What a part is
told goes there as a chain of tasks, each after the one before (kbnn.fleet.dask_backend). No bit depends
on how many workers there are.

One model that answers in all workers of a cluster.
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

from kbnn.data.batch import Rows, slice_rows
from kbnn.data.row_blocks import take_rows
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
"""Seconds after which it is asked whether a worker is still there; longer each time, since what was
on its way by then begins anew."""
MAX_ATTEMPTS: Final = 20
"""Workers that may be lost one after another before a run gives up."""
LOCAL_CLUSTER_CONFIG: Final = {
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.tick.interval": "1s",
}
"""Of workers that are started here: none looks over the shoulder of those that learn."""
CLIENT_CONFIG: Final = {"distributed.admin.large-graph-warning-threshold": "1000 TB"}
"""What is sent may be large, models of many keys: it is not for the user to be warned of that."""


def prepare_worker(nice: bool) -> None:
    """In a worker: have there what it will need, and give way to the process that tells it."""
    importlib.import_module("kbnn.fleet.dask_backend")
    if nice and hasattr(os, "nice"):
        os.nice(WORKER_NICENESS)


WORKER_NICENESS: Final = 5
"""By how much workers that are started here are less urgent than the process that reads: all of
them wait for it, and it has more to do than any."""
CONNECT_TIMEOUT_SECONDS: Final = 5.0
"""Seconds that a scheduler has to answer."""


class PartitionLost(Exception):  # no error of the user's
    """A part does not live here (any more)."""


class DaskCluster:
    """The workers of a cluster: `local:2` starts so many here, anything else is an address."""

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
                raise UsageError(f"--cluster local:N takes a number of workers, not '{cluster}'")
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
            raise UsageError(f"--cluster {cluster}: no Dask scheduler answers there") from error
        self._settings: Any = dask.config.set(CLIENT_CONFIG)
        self.count = max(1, len(self._list_workers()))
        # All at once: else each would look for kbnn with its first rows.
        self._client.run(prepare_worker, self._cluster is not None)

    def _list_workers(self) -> list[str]:
        info = self._client.scheduler_info(n_workers=-1)
        return sorted(info["workers"])

    def choose_worker(self) -> str:
        """A worker for one more part: the one with fewest."""
        for _ in range(120):
            there = [worker for worker in self._list_workers() if worker not in self._lost]
            if there:
                chosen = min(there, key=lambda worker: (self._placed.count(worker), worker))
                self._placed.append(chosen)
                return chosen
            time.sleep(0.5)
        raise KbnnError("the cluster has no workers")

    def mark_lost(self, worker: str) -> None:
        """A worker is no longer there, or has forgotten what lived in it."""
        if worker not in self._list_workers():
            self._lost.add(worker)
        self._placed = [placed for placed in self._placed if placed != worker]

    def submit(self, worker: str, work: Callable[..., Any], *args: Any) -> Any:
        """Have work done by a worker."""
        return self._client.submit(
            work, *args, workers=[worker], allow_other_workers=False, pure=False, retries=0
        )

    def wait_for_result(self, future: Any, worker: str) -> Any:
        """What came of it; Gone if the worker is."""
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
        """What comes of work that any worker can do, and another if one is lost."""
        sent = [self._client.submit(work, *args, pure=False, retries=MAX_ATTEMPTS) for args in many]
        return [future.result() for future in sent]

    def close(self) -> None:
        """Let the workers go that were started here."""
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()
        self._settings.__exit__(None, None, None)


_PARTITIONS: dict[str, tuple[Partition, int]] = {}
"""In a worker: the parts that live there, and how many orders each has had."""


def run_request(
    name: str, number: int, order: str, args: tuple[Any, ...], after: Any = None
) -> Any:
    """In a worker: do what a part is told, once, in turn."""
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
    """Rows in memory of their own: that of a message need not be aligned."""
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
    """In one piece: a cluster takes a list apart, and would send models one by one."""
    resting = [one._replace(content=compress_model(one.content)) for one in part.iter_changed()]
    return pickle.dumps(resting), part.layouts.to_json()


def unpickle_changed(resting: bytes) -> list[StoredModel]:
    """What a worker has written down."""
    found: list[StoredModel] = pickle.loads(resting)
    return found


def _apply_models(
    part: Partition,
    plain: Mapping[str, Any],
    keys: list[str],
    rows: Rows,
    found: Mapping[str, bytes],
) -> Forecast:
    part.layouts.add_layouts(plain)
    return part.apply_models(keys, _copy_rows(rows), found, OnlineModel.predict)


_HANDLERS: Final[dict[str, Callable[..., Any]]] = {
    "learn": _learn_rows,
    "changed": _serialize_changed,
    "ask": _apply_models,
    "file": lambda part, key: part.serialize_model(key),
    "take": lambda part, key: part.take_model_bytes(key),
    "shut": lambda part, most: part.close_saved(most),
}


_LAST_MODEL: dict[str, OnlineModel] = {}
"""In a worker: the model that answered last, by the hash of its bytes."""


def predict_in_worker(name: str, content: bytes, wanted: str | None, rows: Rows) -> Forecast:
    """In a worker: what a model says of rows."""
    if name not in _LAST_MODEL:
        _LAST_MODEL.clear()
        _LAST_MODEL[name] = modelfile.load_bytes(content, "the model")
        _LAST_MODEL[name].set_interval_mode(wanted)
    return _LAST_MODEL[name].predict(rows)


class _Request(NamedTuple):
    order: str
    args: tuple[Any, ...]


class PartitionHandle:
    """A part and the worker it lives in."""

    def __init__(
        self,
        cluster: DaskCluster,
        make: Callable[[Schema], tuple[Any, ...]],
        schema: Schema,
        path: str | None,
    ) -> None:
        self._cluster, self._make, self._path = cluster, make, path
        self.schema = self._saved_schema = schema  # as the part knows it, now and when last saved
        self.keys: dict[str, int] = {}  # of those open there, how many rows were told
        self.stored_keys: set[str] = set()  # those of them that had met rows before
        self.start: bytes | None = None  # what keys begin from, as the part was told since then
        self._requests: list[_Request] = []  # since the fleet was last saved
        self._futures: list[Any] = []  # of the same
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
        """Rows of these keys are told; whether one may come of age by them."""
        grown = False
        for key in keys:
            count = self.keys[key] = self.keys.get(key, 0) + 1
            grown |= count == REFIT_ROWS or (count < REFIT_ROWS and key in self.stored_keys)
        return grown

    def forget_keys(self, keys: Iterable[str]) -> None:
        """These are open there no longer."""
        for key in keys:
            self.keys.pop(key, None)
            self.stored_keys.discard(key)

    def send_request(self, order: str, args: tuple[Any, ...]) -> int:
        """Order what changes models; by the number that comes back it can be waited for."""
        self._requests.append(_Request(order, args))
        self._futures.append(self._submit_request(order, args))
        return len(self._requests) - 1

    def wait_for(self, number: int) -> Any:
        """What came of an order."""
        for _ in range(MAX_ATTEMPTS):
            try:
                return self._cluster.wait_for_result(self._futures[number], self._worker)
            except PartitionLost:
                self._recover_partition()
        raise KbnnError("the workers are lost one after another")

    def query_async(self, order: str, args: tuple[Any, ...]) -> Callable[[], Any]:
        """An order that leaves models as they are; what comes of it is there when asked for."""
        sent = self._submit_request(order, args)

        def wait_result() -> Any:
            future = sent
            for _ in range(MAX_ATTEMPTS):
                try:
                    return self._cluster.wait_for_result(future, self._worker)
                except PartitionLost:
                    self._recover_partition()
                    future = self._submit_request(order, args)
            raise KbnnError("the workers are lost one after another")

        return wait_result

    def query_now(self, order: str, args: tuple[Any, ...]) -> Any:
        """What comes of an order that leaves models as they are."""
        return self.query_async(order, args)()

    def mark_saved(self) -> None:
        """All that was told so far is in the store."""
        self._requests, self._futures = [], []
        self._saved_schema, self.start = self.schema, None

    def _recover_partition(self) -> None:
        """Make the part anew, as it was when last saved, and tell it all that it was told since."""
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
                    self.stored_keys.update(keys)  # nobody counts them again
                elif order == "take":
                    self.forget_keys(args[:1])
                self._futures[number] = self._submit_request(order, args)


class RemotePartitions:
    """Parts in workers, to a fleet what a part of its own is."""

    def __init__(
        self,
        cluster: DaskCluster,
        settings: Settings,
        schema: Schema,
        forms: PackedLayouts,
        path: str | None,
    ) -> None:
        self.layouts, self.interval_mode = forms, None
        self.make_initial_bytes: Callable[[], bytes] = bytes  # what keys begin from now
        self._cluster = cluster
        self._partition_numbers: dict[str, int] = {}

        def make_arguments(known: Schema) -> tuple[Any, ...]:
            return settings, known, forms.to_json(), self.interval_mode

        self._handles = [
            PartitionHandle(cluster, make_arguments, schema, path) for _ in range(cluster.count)
        ]

    interval_mode: str | None

    def _find_partition(self, key: str) -> int:
        home = self._partition_numbers.get(key)
        if home is None:
            home = zlib.crc32(key.encode(errors="surrogateescape")) % len(self._handles)
            if len(self._partition_numbers) > 1_000_000:
                self._partition_numbers.clear()
            self._partition_numbers[key] = home
        return home

    def __contains__(self, key: str) -> bool:
        return key in self._handles[self._find_partition(key)].keys

    def list_unopened(self, keys: Sequence[str]) -> list[str]:
        """Those of the keys that are not open, each once."""
        return [key for key in dict.fromkeys(keys) if key not in self]

    def __len__(self) -> int:
        return sum(len(member.keys) for member in self._handles)

    def _split_by_partition(self, keys: Sequence[str]) -> Iterator[tuple[PartitionHandle, Any]]:
        homes = np.array([self._find_partition(key) for key in keys])
        for home, member in enumerate(self._handles):
            where = np.flatnonzero(homes == home)
            if len(where):
                yield member, where

    def learn(
        self, keys: Sequence[str], rows: Rows, found: Mapping[str, bytes], again: bool
    ) -> Callable[[], PartitionUpdate]:
        """Have rows learned; what came of them is there when it is asked for."""
        sent, schema = [], rows.schema
        rows = rows._replace(schema=None)
        for member, where in self._split_by_partition(keys):
            mine = [keys[at] for at in where.tolist()]
            new = {key: found[key] for key in dict.fromkeys(mine) if key in found}
            if new:
                begun = self.make_initial_bytes()
                member.stored_keys.update(key for key, content in new.items() if content != begun)
            start = self.make_initial_bytes() if member.count_rows(mine) else None
            if start is member.start:  # told once in a window: it may be large
                start = None
            elif start is not None:
                member.start = start
            share = take_rows(rows, where)
            if schema is not None and schema is not member.schema:  # told once: it is large
                member.schema = schema
                share = share._replace(schema=schema)
            plain = self.layouts.to_json()
            number = member.send_request("learn", (plain, mine, share, new, again, start))
            sent.append((member, where, number))

        def collect_result() -> PartitionUpdate:
            work = PartitionResult(rows)
            for member, where, number in sent:
                said, moved = member.wait_for(number)
                work.add(where, said)
                work.shifts += [(int(where[at]), move) for at, move in moved]
            return PartitionUpdate(work.join_forecasts(), work.shifts)

        return collect_result

    def apply_models(
        self, keys: Sequence[str], rows: Rows, found: Mapping[str, bytes], ask: Any
    ) -> Forecast:
        """What is said of rows by the models of their keys; these are all to be known."""
        plain, sent = self.layouts.to_json(), []
        for member, where in self._split_by_partition(keys):
            mine = [keys[at] for at in where.tolist()]
            new = {key: found[key] for key in dict.fromkeys(mine) if key in found}
            member.keys.update(dict.fromkeys(new, 0))
            member.stored_keys.update(new)
            # What is asked for is sent again when a worker is lost, with the models it needs.
            sent.append(
                (
                    member,
                    where,
                    member.send_request("ask", (plain, mine, take_rows(rows, where), new)),
                )
            )
        work = PartitionResult(rows)
        for member, where, number in sent:
            work.add(where, member.wait_for(number))
        return work.join_forecasts()

    def serialize_model(self, key: str) -> bytes:
        """What the model file of a key would hold."""
        made: bytes = self._handles[self._find_partition(key)].query_now("file", (key,))
        return made

    def take_model(self, key: str) -> OnlineModel:
        """The model of a key, which is open no longer."""
        member = self._handles[self._find_partition(key)]
        content = member.wait_for(member.send_request("take", (key,)))
        member.forget_keys([key])
        return modelfile.load_bytes(content, "a model")

    def iter_changed(self) -> Iterator[StoredModel]:
        """The models that have changed since the fleet was last saved."""
        for result in [member.query_async("changed", ()) for member in self._handles]:
            resting, plain = result()
            self.layouts.add_layouts(plain)
            yield from unpickle_changed(resting)

    def mark_saved(self, most: int) -> None:
        """All that has changed is in the store; no more than so many models stay open."""
        share = max(1, most // len(self._handles))
        for member in self._handles:
            member.mark_saved()
            if len(member.keys) > share:
                member.forget_keys(member.query_now("shut", (share,)))

    def close(self) -> None:
        """Let the workers go."""
        self._cluster.close()


class RemotePredictor:
    """One model that answers in all workers; it learns nothing meanwhile."""

    def __init__(self, cluster: DaskCluster, model: OnlineModel) -> None:
        self._cluster, self._numbers = cluster, model.task.numbers
        self._content = modelfile.to_bytes(*to_state(model))
        self._interval_mode = "stated" if model.interval_mode == "stated" else None
        self._name = hashlib.blake2b(self._content).hexdigest() + str(self._interval_mode)

    def predict(self, rows: Rows) -> Forecast:
        """Predict rows, a run of them in each worker."""
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
