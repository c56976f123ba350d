"""A part of a fleet and the worker it lives in: what it is told is remembered until it is saved.

If the worker is lost, the part is made anew in another: models as they were last saved come from
the store, and all that was told since is told again. A part makes the same of the same rows, so
nothing is lost or counted twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from kbnn.errors import KbnnError
from kbnn.fleet.crew import MAX_ATTEMPTS, DaskCluster, PartitionLost
from kbnn.fleet.start import REFIT_ROWS
from kbnn.fleet.store import FleetStore
from kbnn.fleet.worker import run_request
from kbnn.model.schema import Schema


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
