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
from kbnn.fleet.crew import MOST_TRIES, Crew, Gone
from kbnn.fleet.start import OF_AGE
from kbnn.fleet.store import Store
from kbnn.fleet.worker import obey
from kbnn.model.schema import Schema


class _Told(NamedTuple):
    order: str
    args: tuple[Any, ...]


class Member:
    """A part and the worker it lives in."""

    def __init__(
        self,
        crew: Crew,
        make: Callable[[Schema], tuple[Any, ...]],
        schema: Schema,
        path: str | None,
    ) -> None:
        self._crew, self._make, self._path = crew, make, path
        self.schema = self._saved_schema = schema  # as the part knows it, now and when last saved
        self.keys: dict[str, int] = {}  # of those open there, how many rows were told
        self.rested: set[str] = set()  # those of them that had met rows before
        self.start: bytes | None = None  # what keys begin from, as the part was told since then
        self._told: list[_Told] = []  # since the fleet was last saved
        self._futures: list[Any] = []  # of the same
        self._begin()

    def _begin(self) -> None:
        self._worker, self._name, self._number = self._crew.place(), uuid.uuid4().hex, 0
        self._last = None
        self._last = self._send("make", self._make(self._saved_schema))

    def _send(self, order: str, args: tuple[Any, ...]) -> Any:
        future = self._crew.submit(
            self._worker, obey, self._name, self._number, order, args, self._last
        )
        self._number, self._last = self._number + 1, future
        return future

    def count(self, keys: Sequence[str]) -> bool:
        """Rows of these keys are told; whether one may come of age by them."""
        grown = False
        for key in keys:
            count = self.keys[key] = self.keys.get(key, 0) + 1
            grown |= count == OF_AGE or (count < OF_AGE and key in self.rested)
        return grown

    def forget(self, keys: Iterable[str]) -> None:
        """These are open there no longer."""
        for key in keys:
            self.keys.pop(key, None)
            self.rested.discard(key)

    def tell(self, order: str, args: tuple[Any, ...]) -> int:
        """Order what changes models; by the number that comes back it can be waited for."""
        self._told.append(_Told(order, args))
        self._futures.append(self._send(order, args))
        return len(self._told) - 1

    def wait(self, number: int) -> Any:
        """What came of an order."""
        for _ in range(MOST_TRIES):
            try:
                return self._crew.result(self._futures[number], self._worker)
            except Gone:
                self._recover()
        raise KbnnError("the workers are lost one after another")

    def asked(self, order: str, args: tuple[Any, ...]) -> Callable[[], Any]:
        """An order that leaves models as they are; what comes of it is there when asked for."""
        sent = self._send(order, args)

        def result() -> Any:
            future = sent
            for _ in range(MOST_TRIES):
                try:
                    return self._crew.result(future, self._worker)
                except Gone:
                    self._recover()
                    future = self._send(order, args)
            raise KbnnError("the workers are lost one after another")

        return result

    def ask(self, order: str, args: tuple[Any, ...]) -> Any:
        """What comes of an order that leaves models as they are."""
        return self.asked(order, args)()

    def saved(self) -> None:
        """All that was told so far is in the store."""
        self._told, self._futures = [], []
        self._saved_schema, self.start = self.schema, None

    def _recover(self) -> None:
        """Make the part anew, as it was when last saved, and tell it all that it was told since."""
        self._crew.lost(self._worker)
        self._begin()
        self.keys, self.rested = {}, set()
        with Store(self._path, writes=False) as store:
            for number, (order, args) in enumerate(self._told):
                if order == "learn":
                    plain, keys, rows, found, again, start = args
                    absent = dict.fromkeys(k for k in keys if k not in self.keys and k not in found)
                    saved = {key: store.read(key) or b"" for key in absent}
                    args = plain, keys, rows, {**found, **saved}, again, start
                    self.keys.update(dict.fromkeys(keys, 0))
                    self.rested.update(keys)  # nobody counts them again
                elif order == "take":
                    self.forget(args[:1])
                self._futures[number] = self._send(order, args)
