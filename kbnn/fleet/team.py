"""The open models of a fleet shared out among workers of a Dask cluster, key by key.

A key belongs to one part (a hash of it says which), and a part lives in one worker. What a part is
told goes there as a chain of tasks, each after the one before (kbnn.fleet.member). No bit depends
on how many workers there are.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kbnn.fleet.crew import Crew
from kbnn.fleet.forms import Forms
from kbnn.fleet.member import Member
from kbnn.fleet.part import Resting
from kbnn.fleet.work import Taught, Work
from kbnn.fleet.worker import all_of
from kbnn.model import file as modelfile
from kbnn.model.model import Model
from kbnn.model.rows import Rows
from kbnn.model.schema import Schema
from kbnn.model.settings import Settings
from kbnn.stream.blocks import taken
from kbnn.task.forecast import Forecast


class Team:
    """Parts in workers, to a fleet what a part of its own is."""

    def __init__(
        self, crew: Crew, settings: Settings, schema: Schema, forms: Forms, path: str | None
    ) -> None:
        self.forms, self.wanted = forms, None
        self.first: Callable[[], bytes] = bytes  # what keys begin from now
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
        sent, schema = [], rows.schema
        rows = rows._replace(schema=None)
        for member, where in self._shared_out(keys):
            mine = [keys[at] for at in where.tolist()]
            new = {key: found[key] for key in dict.fromkeys(mine) if key in found}
            if new:
                begun = self.first()
                member.rested.update(key for key, content in new.items() if content != begun)
            start = self.first() if member.count(mine) else None
            if start is member.start:  # told once in a window: it may be large
                start = None
            elif start is not None:
                member.start = start
            share = taken(rows, where)
            if schema is not None and schema is not member.schema:  # told once: it is large
                member.schema = schema
                share = share._replace(schema=schema)
            plain = self.forms.plain()
            number = member.tell("learn", (plain, mine, share, new, again, start))
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
            member.keys.update(dict.fromkeys(new, 0))
            member.rested.update(new)
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
        member.forget([key])
        return modelfile.load_bytes(content, "a model")

    def changed(self) -> Iterator[Resting]:
        """The models that have changed since the fleet was last saved."""
        for result in [member.asked("changed", ()) for member in self._members]:
            resting, plain = result()
            self.forms.learn(plain)
            yield from all_of(resting)

    def saved(self, most: int) -> None:
        """All that has changed is in the store; no more than so many models stay open."""
        share = max(1, most // len(self._members))
        for member in self._members:
            member.saved()
            if len(member.keys) > share:
                member.forget(member.ask("shut", (share,)))

    def close(self) -> None:
        """Let the workers go."""
        self._crew.close()
