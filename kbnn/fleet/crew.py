"""The workers of a Dask cluster: who is there, and work that is done by one of them or by any."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kbnn.errors import KbnnError, UsageError

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
    importlib.import_module("kbnn.fleet.worker")
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
