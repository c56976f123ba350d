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

from kbnn.fleet.crew import DaskCluster
from kbnn.fleet.forms import PackedLayouts
from kbnn.fleet.member import PartitionHandle
from kbnn.fleet.part import StoredModel
from kbnn.fleet.work import PartitionResult, PartitionUpdate
from kbnn.fleet.worker import unpickle_changed
from kbnn.model import file as modelfile
from kbnn.model.model import OnlineModel
from kbnn.model.rows import Rows
from kbnn.model.schema import Schema
from kbnn.model.settings import Settings
from kbnn.stream.blocks import take_rows
from kbnn.task.forecast import Forecast


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
