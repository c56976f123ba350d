"""Keys of a fleet: read them from rows, index the open ones, score and monitor each of them.

A key is the text of one column, or of several as one line of CSV. It may hold any text; a missing
value is the empty key, and numbers are kept as written. Every open key has a number, by which
arrays hold the location of its model: a batch of rows costs one dictionary lookup per row, and the
rest is vectorised. `KeyScores` holds only a few metrics per key, so that there may be many keys.
`KeyMonitors` holds the anomaly detectors of the keys, if alerts were requested.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kbnn.array_types import IntArray
from kbnn.data.batch import Anomalies, Rows
from kbnn.data.chunk import shorten
from kbnn.data.values import number_to_text, python_values
from kbnn.errors import DataError, ModelError
from kbnn.fleet.store import FleetStore
from kbnn.metrics.figures import Score
from kbnn.metrics.verdicts import find_metrics
from kbnn.model.anomaly import (
    FLEET_HISTORY_ROWS,
    Monitor,
    judge_scores,
    pack_monitor,
    stack_targets,
    start_monitor,
    unpack_monitor,
    update_monitor,
)
from kbnn.targets.base import TargetType
from kbnn.targets.prediction import Forecast, score_targets, select_rows


def read_keys(rows: Rows, columns: Sequence[str]) -> list[str]:
    """Return the key of each row; DataError if a key column is missing."""
    batch = rows.original
    for name in columns:
        if batch is None or name not in batch.schema.names:
            raise DataError(f"the key column '{shorten(name)}' is missing")
    parts = [_column_texts(batch.column(batch.schema.get_field_index(name))) for name in columns]
    return (
        parts[0]
        if len(parts) == 1
        else [join_key_cells(cells) for cells in zip(*parts, strict=True)]
    )


def join_key_cells(cells: Sequence[str]) -> str:
    """Join the cells of a key to one text."""
    if len(cells) == 1:
        return cells[0]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


def _column_texts(column: pa.Array) -> list[str]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    values = python_values(column)
    if pa.types.is_string(column.type) and not column.null_count:
        return values
    return [_value_text(value) for value in values]


def _value_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return number_to_text(value) if isinstance(value, float) else str(value)


INITIAL_CAPACITY: Final = 64
"""Initial capacity of the index; it doubles when full."""
UNPACKED: Final = -1
"""Batch number of a model that is not packed."""


class KeyIndex:
    """Numbers of open keys, and for each the batch and slot of its model."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._keys: list[str] = [""] * INITIAL_CAPACITY
        self._free = list(range(INITIAL_CAPACITY))
        self.herd: IntArray = np.full(INITIAL_CAPACITY, UNPACKED)
        self.place: IntArray = np.zeros(INITIAL_CAPACITY, np.int64)
        self._used: IntArray = np.zeros(INITIAL_CAPACITY, np.int64)
        self._changed = np.zeros(INITIAL_CAPACITY, np.bool_)
        self._turn = 0

    def __contains__(self, key: str) -> bool:
        return key in self._numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def list_unopened(self, keys: Sequence[str]) -> list[str]:
        """List the keys that are not open, each once."""
        if None not in map(self._numbers.get, keys):
            return []
        return [key for key in dict.fromkeys(keys) if key not in self._numbers]

    def number_of(self, key: str) -> int:
        """Return the number of an open key."""
        return self._numbers[key]

    def numbers_of(self, keys: Sequence[str]) -> IntArray:
        """Return the numbers of open keys."""
        return np.fromiter(map(self._numbers.__getitem__, keys), np.int64, len(keys))

    def key_of(self, number: int) -> str:
        """Return the key with a number."""
        return self._keys[number]

    def add(self, key: str, batch: int, place: int) -> int:
        """Set where the model of a key is, and return the key's number."""
        number = self._numbers.get(key)
        if number is None:
            if not self._free:
                self._grow_arrays()
            number = self._numbers[key] = self._free.pop()
            self._keys[number], self._changed[number] = key, False
        self.herd[number], self.place[number] = batch, place
        self._used[number] = self._turn
        return number

    def _grow_arrays(self) -> None:
        room = len(self._keys)
        self._free = list(range(room, 2 * room))
        self._keys += [""] * room
        for name in ("herd", "place", "_used", "_changed"):
            setattr(self, name, np.concatenate((getattr(self, name), getattr(self, name))))

    def remove_key(self, number: int) -> None:
        """Close a key."""
        del self._numbers[self._keys[number]]
        self._keys[number] = ""
        self._free.append(number)

    def mark_used(self, numbers: IntArray, changed: bool) -> None:
        """Mark keys as used now, and as changed if `changed`."""
        self._turn += 1
        self._used[numbers] = self._turn
        if changed:
            self._changed[numbers] = True

    def is_changed(self, number: int) -> bool:
        """Whether a model has changed since the last save."""
        return bool(self._changed[number])

    def list_changed(self) -> list[int]:
        """List the numbers of models changed since the last save, in the order of the keys."""
        there = self._all_numbers()
        return self._sort_by_key(there[self._changed[there]])

    def clear_changed(self) -> None:
        """Mark all models as saved."""
        self._changed[:] = False

    def list_least_recent(self, count: int) -> list[int]:
        """List the numbers of the `count` least recently used keys, in the order of the keys."""
        if count <= 0:
            return []
        there = self._all_numbers()
        return self._sort_by_key(there[np.argpartition(self._used[there], count - 1)[:count]])

    def _all_numbers(self) -> IntArray:
        return np.fromiter(self._numbers.values(), np.int64, len(self._numbers))

    def _sort_by_key(self, numbers: IntArray) -> list[int]:
        return sorted(numbers.tolist(), key=self._keys.__getitem__)


def group_by_key(keys: Sequence[str]) -> Iterator[tuple[str, IntArray]]:
    """Yield each key with the positions of its rows, in their order."""
    places: dict[str, list[int]] = {}
    for at, key in enumerate(keys):
        places.setdefault(key, []).append(at)
    for key, group in places.items():
        yield key, np.array(group)


class KeyScores:
    """Scores of the first target by key, limited to the metrics of a learning curve."""

    def __init__(self, task: TargetType) -> None:
        shown = [figure for figure in find_metrics(task).score.figures_listed if figure.curve]
        self._score_class: type[Score] = type("Brief", (Score,), {"figures_listed": shown})
        self._score_forecasts = find_metrics(task).score_forecasts
        self._scores: dict[str, Score] = {}

    def add(self, keys: Sequence[str], rows: Rows, forecast: Forecast) -> None:
        """Score rows of these keys."""
        for key, here in group_by_key(keys):
            weight = None if rows.weight is None else rows.weight[here]
            judged = self._score_forecasts(rows.y[here], select_rows(forecast, here), weight)
            self._scores.setdefault(key, self._score_class()).add(judged[0])

    def rank_keys(self) -> list[dict[str, Any]]:
        """List the scored keys, best first; ties are in alphabetical order."""
        found = []
        for key, score in self._scores.items():
            lines = {name: now for name, (now, _) in score.curve_values().items()}
            if lines.get("loss") is not None:
                coverage = lines.get("coverage_90")
                figures = {"loss": lines["loss"], "nll": lines.get("nll"), "coverage_90": coverage}
                found.append({"key": key, "rows": score.rows, **figures})
        return sorted(found, key=lambda one: (one["loss"], one["key"]))

    def to_json(self) -> dict[str, Any]:
        """Return the number of scored keys, and the best, the median and the worst of them."""
        ranked = self.rank_keys()
        if not ranked:
            return {"count": 0}
        middle = ranked[(len(ranked) - 1) // 2]
        return {"count": len(ranked), "best": ranked[0], "median": middle, "worst": ranked[-1]}


class KeyMonitors:
    """The monitors of all keys, see kbnn.model.anomaly: some are open, the others in the store.

    A monitor depends on the rows of its key alone. Its rows are consecutive rows of the key, so
    that it has no times of day and alerts have no row number at which they began.

    Parameters
    ----------
    store
        Store of the fleet.
    task
        Target type.
    rate
        False alarms per row.
    seed
        Seed of the sampled histories.
    """

    def __init__(self, store: FleetStore, task: TargetType, rate: float, seed: int) -> None:
        self.store, self.rate = store, rate
        self._task = task
        self._new = start_monitor(task, rate, seed, history=FLEET_HISTORY_ROWS)
        self._open: dict[str, Monitor] = {}  # least recently used first
        self._changed: set[str] = set()

    def _find(self, key: str) -> Monitor:
        """Return the monitor of a key; ModelError if the stored one is invalid."""
        found = self._open.get(key)
        if found is None:
            content = self.store.read_monitor(key)
            try:
                found = self._new if content is None else unpack_monitor(content, self._new)
            except ValueError as error:
                place = self.store.path or "the fleet"
                raise ModelError(f"{place}: is damaged (the detectors of a key)") from error
        return found._replace(rate=self.rate)

    def update(self, keys: Sequence[str], rows: Rows, forecast: Forecast) -> Anomalies:
        """Score rows in order, each against the earlier rows of its key."""
        z, pit = score_targets(self._task, rows.y, rows.number, forecast)
        surprise, alerts = np.empty_like(z), []
        given = stack_targets(self._task, rows.y, z)
        for key, here in group_by_key(keys):
            monitor, surprise[here], found = update_monitor(self._find(key), given[here])
            self._open.pop(key, None)
            self._open[key] = monitor
            self._changed.add(key)
            alerts += [alert._replace(at=int(here[alert.at])) for alert in found]
        alerts.sort(key=lambda alert: (alert.at, alert.target))
        return Anomalies(surprise, pit, tuple(alerts))

    def judge(self, keys: Sequence[str], rows: Rows, forecast: Forecast) -> Anomalies:
        """Compute surprise and PIT of rows without updating a monitor; there are no alerts."""
        z, pit = score_targets(self._task, rows.y, rows.number, forecast)
        surprise = np.empty_like(z)
        for key, here in group_by_key(keys):
            surprise[here] = judge_scores(self._find(key), z[here])
        return Anomalies(surprise, pit)

    def list_unsaved(self) -> list[tuple[str, bytes]]:
        """List the keys whose monitors changed since they were written, with their bytes."""
        return [(key, pack_monitor(self._open[key])) for key in sorted(self._changed)]

    def save(self, most: int) -> None:
        """Write what changed as part of the store's transaction; keep `most` monitors open."""
        if self._changed:
            self.store.write_monitors(self.list_unsaved())
            self._changed.clear()
        for key in list(self._open)[: max(0, len(self._open) - most)]:
            del self._open[key]

    def close_unused(self, most: int) -> None:
        """Write all and close the least recently used, if more than `most` are open."""
        if len(self._open) > most:
            self.save(most // 2)
