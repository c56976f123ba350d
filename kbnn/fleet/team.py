"""The open models of a fleet shared out among workers of a Dask cluster, key by key.

A key belongs to one part (a hash of it says which), and a part lives in one worker. What a part is
told goes there as a chain of tasks, each after the one before, and is remembered until the fleet is
saved next. If a worker is lost, its part is made anew in another: models as they were last saved
come from the store, and all that was told since is told again. A part makes the same of the same
rows, so nothing is lost or counted twice, and no bit depends on how many workers there are.
"""

from __future__ import annotations

import hashlib
import itertools
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from kbnn.errors import KbnnError, UsageError
from kbnn.fleet.forms import Forms
from kbnn.fleet.part import Part, Resting, Taught, Work
from kbnn.fleet.store import Store
from kbnn.model import file as modelfile
from kbnn.model.model import Model
from kbnn.model.rows import Rows, sliced
from kbnn.model.schema import Schema
from kbnn.model.settings import Settings
from kbnn.model.stored import to_state
from kbnn.stream.blocks import taken
from kbnn.task.base import blank
from kbnn.task.forecast import Forecast, joined

PATIENCE: Final = 1.0
"""Seconds after which it is asked whether a worker is still there."""
MOST_TRIES: Final = 20
"""Workers that may be lost one after another before a run gives up."""

_PARTS: dict[str, tuple[Part, int]] = {}
"""In a worker: the parts that live there, and how many orders each has had."""


class Gone(Exception):  # no error of the user's
    """A part does not live here (any more)."""


def obey(name: str, number: int, order: str, args: tuple[Any, ...], after: Any = None) -> Any:
    """In a worker: do what a part is told, once, in turn."""
    if order == "make":
        settings, schema, plain, wanted = args
        part = Part(settings, schema, Forms(plain))
        part.wanted = wanted
        _PARTS[name] = part, number
        return None
    if name not in _PARTS or _PARTS[name][1] != number - 1:
        raise Gone(name)
    part, _ = _PARTS[name]
    try:
        return _DO[order](part, *args)
    finally:
        _PARTS[name] = part, number


def _learn(
    part: Part,
    plain: Mapping[str, Any],
    keys: list[str],
    rows: Rows,
    found: Mapping[str, bytes],
    again: bool,
) -> Taught:
    part.forms.learn(plain)
    return part.learn(keys, rows, found, again)


def _changed(part: Part) -> tuple[list[Resting], dict[str, Any]]:
    return list(part.changed()), part.forms.plain()


def _ask(
    part: Part, plain: Mapping[str, Any], keys: list[str], rows: Rows, found: Mapping[str, bytes]
) -> Forecast:
    part.forms.learn(plain)
    return part.ask(keys, rows, found, Model.predict)


_DO: Final[dict[str, Callable[..., Any]]] = {
    "learn": _learn,
    "changed": _changed,
    "ask": _ask,
    "file": lambda part, key: part.file(key),
    "take": lambda part, key: part.taken(key),
    "shut": lambda part, most: part.shut(most),
}


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
        self.keys: set[str] = set()
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

    def ask(self, order: str, args: tuple[Any, ...]) -> Any:
        """What comes of an order that leaves models as they are."""
        for _ in range(MOST_TRIES):
            try:
                return self._crew.result(self._send(order, args), self._worker)
            except Gone:
                self._recover()
        raise KbnnError("the workers are lost one after another")

    def saved(self) -> None:
        """All that was told so far is in the store."""
        self._told, self._futures = [], []
        self._saved_schema = self.schema

    def _recover(self) -> None:
        """Make the part anew, as it was when last saved, and tell it all that it was told since."""
        self._crew.lost(self._worker)
        self._begin()
        self.keys = set()
        with Store(self._path, writes=False) as store:
            for number, (order, args) in enumerate(self._told):
                if order == "learn":
                    plain, keys, rows, found, again = args
                    absent = dict.fromkeys(k for k in keys if k not in self.keys and k not in found)
                    saved = {key: store.read(key) or b"" for key in absent}
                    args = plain, keys, rows, {**found, **saved}, again
                    self.keys.update(keys)
                elif order == "take":
                    self.keys.discard(args[0])
                self._futures[number] = self._send(order, args)


class Crew:
    """The workers of a cluster: `local:2` starts so many here, anything else is an address."""

    def __init__(self, cluster: str) -> None:
        try:
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
            self._cluster = distributed.LocalCluster(
                n_workers=int(count),
                threads_per_worker=1,
                processes=True,
                dashboard_address=None,
                silence_logs=50,
            )
        try:
            self._client = distributed.Client(self._cluster or cluster, timeout=5)
        except (OSError, ValueError) as error:
            raise UsageError(f"--cluster {cluster}: no Dask scheduler answers there") from error
        self.count = max(1, len(self._workers()))

    def _workers(self) -> list[str]:
        info = self._client.scheduler_info(n_workers=-1)
        return sorted(info["workers"])

    def place(self) -> str:
        """A worker for one more part: the one with fewest."""
        import time

        for _ in range(120):
            there = [worker for worker in self._workers() if worker not in self._lost]
            if there:
                chosen = min(there, key=lambda worker: (self._placed.count(worker), worker))
                self._placed.append(chosen)
                return chosen
            time.sleep(0.5)
        raise KbnnError("the cluster has no workers")

    def lost(self, worker: str) -> None:
        """A worker is no longer there, or has forgotten what lived in it."""
        if worker not in self._workers():
            self._lost.add(worker)
        self._placed = [placed for placed in self._placed if placed != worker]

    def submit(self, worker: str, work: Callable[..., Any], *args: Any) -> Any:
        """Have work done by a worker."""
        return self._client.submit(
            work, *args, workers=[worker], allow_other_workers=False, pure=False, retries=0
        )

    def result(self, future: Any, worker: str) -> Any:
        """What came of it; Gone if the worker is."""
        from concurrent.futures import CancelledError

        from distributed import TimeoutError as Late
        from distributed.client import FutureCancelledError
        from distributed.comm import CommClosedError
        from distributed.scheduler import KilledWorker

        while True:
            try:
                return future.result(timeout=PATIENCE)
            except (TimeoutError, Late):
                if worker not in self._workers():
                    raise Gone(worker) from None
            except (KilledWorker, CommClosedError, CancelledError, FutureCancelledError) as error:
                raise Gone(worker) from error

    def anywhere(self, work: Callable[..., Any], many: Sequence[tuple[Any, ...]]) -> list[Any]:
        """What comes of work that any worker can do, and another if one is lost."""
        sent = [self._client.submit(work, *args, pure=False, retries=MOST_TRIES) for args in many]
        return [future.result() for future in sent]

    def close(self) -> None:
        """Let the workers go that were started here."""
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()


class Team:
    """Parts in workers, to a fleet what a part of its own is."""

    def __init__(
        self, crew: Crew, settings: Settings, schema: Schema, forms: Forms, path: str | None
    ) -> None:
        self.forms, self.wanted = forms, None
        self._crew = crew
        self._homes: dict[str, int] = {}

        def make(known: Schema) -> tuple[Any, ...]:
            return settings, known, forms.plain(), self.wanted

        self._members = [Member(crew, make, schema, path) for _ in range(crew.count)]

    wanted: str | None

    def _home(self, key: str) -> int:
        home = self._homes.get(key)
        if home is None:
            home = zlib.crc32(key.encode(errors="surrogateescape")) % len(self._members)
            if len(self._homes) > 1_000_000:
                self._homes.clear()
            self._homes[key] = home
        return home

    def __contains__(self, key: str) -> bool:
        return key in self._members[self._home(key)].keys

    def unknown(self, keys: Sequence[str]) -> list[str]:
        """Those of the keys that are not open, each once."""
        return [key for key in dict.fromkeys(keys) if key not in self]

    def __len__(self) -> int:
        return sum(len(member.keys) for member in self._members)

    def _shared_out(self, keys: Sequence[str]) -> Iterator[tuple[Member, Any]]:
        homes = np.array([self._home(key) for key in keys])
        for home, member in enumerate(self._members):
            where = np.flatnonzero(homes == home)
            if len(where):
                yield member, where

    def learn(
        self, keys: Sequence[str], rows: Rows, found: Mapping[str, bytes], again: bool
    ) -> Callable[[], Taught]:
        """Have rows learned; what came of them is there when it is asked for."""
        plain = self.forms.plain()
        sent, schema = [], rows.schema
        rows = rows._replace(schema=None)
        for member, where in self._shared_out(keys):
            mine = [keys[at] for at in where.tolist()]
            new = {key: found[key] for key in dict.fromkeys(mine) if key in found}
            member.keys.update(mine)
            share = taken(rows, where)
            if schema is not None and schema is not member.schema:  # told once: it is large
                member.schema = schema
                share = share._replace(schema=schema)
            number = member.tell("learn", (plain, mine, share, new, again))
            sent.append((member, where, number))

        def result() -> Taught:
            work = Work(rows)
            for member, where, number in sent:
                said, moved = member.wait(number)
                work.add(where, said)
                work.moved += [(int(where[at]), move) for at, move in moved]
            return Taught(work.joined(), work.moved)

        return result

    def ask(
        self, keys: Sequence[str], rows: Rows, found: Mapping[str, bytes], ask: Any
    ) -> Forecast:
        """What is said of rows by the models of their keys; these are all to be known."""
        plain, sent = self.forms.plain(), []
        for member, where in self._shared_out(keys):
            mine = [keys[at] for at in where.tolist()]
            new = {key: found[key] for key in dict.fromkeys(mine) if key in found}
            member.keys.update(new)
            # What is asked for is sent again when a worker is lost, with the models it needs.
            sent.append((member, where, member.tell("ask", (plain, mine, taken(rows, where), new))))
        work = Work(rows)
        for member, where, number in sent:
            work.add(where, member.wait(number))
        return work.joined()

    def file(self, key: str) -> bytes:
        """What the model file of a key would hold."""
        made: bytes = self._members[self._home(key)].ask("file", (key,))
        return made

    def take(self, key: str) -> Model:
        """The model of a key, which is open no longer."""
        member = self._members[self._home(key)]
        content = member.wait(member.tell("take", (key,)))
        member.keys.discard(key)
        return modelfile.load_bytes(content, "a model")

    def changed(self) -> Iterator[Resting]:
        """The models that have changed since the fleet was last saved."""
        for member in self._members:
            resting, plain = member.ask("changed", ())
            self.forms.learn(plain)
            yield from resting

    def saved(self, most: int) -> None:
        """All that has changed is in the store; no more than so many models stay open."""
        share = max(1, most // len(self._members))
        for member in self._members:
            member.saved()
            if len(member.keys) > share:
                member.keys.difference_update(member.ask("shut", (share,)))

    def close(self) -> None:
        """Let the workers go."""
        self._crew.close()


_MODELS: dict[str, Model] = {}
"""In a worker: the model that answered last, by the hash of its bytes."""


def answer(name: str, content: bytes, wanted: str | None, rows: Rows) -> Forecast:
    """In a worker: what a model says of rows."""
    if name not in _MODELS:
        _MODELS.clear()
        _MODELS[name] = modelfile.load_bytes(content, "the model")
        _MODELS[name].with_intervals(wanted)
    return _MODELS[name].predict(rows)


class Spread:
    """One model that answers in all workers; it learns nothing meanwhile."""

    def __init__(self, crew: Crew, model: Model) -> None:
        self._crew, self._numbers = crew, model.task.numbers
        self._content = modelfile.to_bytes(*to_state(model))
        self._wanted = "stated" if model.intervals == "stated" else None
        self._name = hashlib.blake2b(self._content).hexdigest() + str(self._wanted)

    def predict(self, rows: Rows) -> Forecast:
        """Predict rows, a run of them in each worker."""
        rows = rows._replace(original=None, id=None)
        cuts = [len(rows.y) * k // self._crew.count for k in range(self._crew.count + 1)]
        runs = [(a, b) for a, b in itertools.pairwise(cuts) if b > a]
        parts = self._crew.anywhere(
            answer, [(self._name, self._content, self._wanted, sliced(rows, *run)) for run in runs]
        )
        return joined(parts) if parts else blank(0, self._numbers)
