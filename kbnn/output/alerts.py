"""Write alerts as they happen: one line of CSV, TSV or JSON per alert.

Each line is written at once and whole, so that a program can follow the file. Its length is part of
a checkpoint: a run that is resumed truncates the file there and writes the later alerts again.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kbnn.data.batch import Anomalies, Rows
from kbnn.data.clock import format_times
from kbnn.data.schema import Schema
from kbnn.distributions.dispatch import read_distribution
from kbnn.errors import UsageError
from kbnn.output.fields import decode_targets
from kbnn.output.writers import STDOUT, open_output
from kbnn.sink import Closeable
from kbnn.targets.base import TargetType
from kbnn.targets.prediction import Forecast

ALERT_FIELDS: Final = (
    *("row", "id", "time", "target", "value", "lower", "upper"),
    *("surprise", "score", "kind", "start", "length"),
)
"""Columns of an alert; `id` only if the rows have one."""

AlertRecord = dict[str, Any]

_TEXT: Final = ("", ".csv", ".tsv", ".txt")
_JSON: Final = (".jsonl", ".ndjson")


def describe_alerts(
    rows: Rows,
    forecast: Forecast,
    anomalies: Anomalies,
    schema: Schema,
    task: TargetType,
    interval: float = 0.9,
) -> list[AlertRecord]:
    """Return the alerts of a batch as plain values by column; None is missing.

    Parameters
    ----------
    rows, forecast, anomalies
        The batch, the forecasts made before it was learned, and what was found in it.
    schema, task
        Columns and target type of the model.
    interval
        Probability between `lower` and `upper`.
    """
    records = []
    for alert in anomalies.alerts:
        at, j = alert.at, alert.target
        lower = upper = None
        if not task.labels:
            edges = read_distribution(forecast.stated[at : at + 1, j]).interval(interval)
            lower, upper = (float(edge[0]) for edge in edges)
        time = None
        if schema.clock is not None and rows.time is not None:
            time = format_times(schema.clock, rows.time[at : at + 1])[0] or None
        (value,) = decode_targets(task, rows.y[at : at + 1, j])
        record = {
            "row": int(rows.number[at]),
            "id": None if rows.id is None else rows.id[at],
            "time": time,
            "target": task.targets[j],
            "value": value if value is None or isinstance(value, str) else float(value),
            "lower": lower,
            "upper": upper,
            "surprise": alert.surprise,
            "score": alert.score,
            "kind": alert.kind,
            "start": alert.start,
            "length": alert.length,
        }
        if schema.id is None:
            del record["id"]
        records.append({name: _drop_nan(part) for name, part in record.items()})
    return records


def _drop_nan(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


class AlertWriter(Closeable):
    """Writes alerts to a file or standard output.

    Parameters
    ----------
    path
        File to write; `-` is CSV on standard output.
    schema
        Columns of the model.
    keep
        Number of bytes of an existing file to keep, to resume a run.
    """

    def __init__(self, path: str, schema: Schema, *, keep: int | None = None) -> None:
        check_alert_name(path)
        ending = os.path.splitext(path)[1].lower()
        self.path = path
        self._is_json = ending in _JSON
        self._delimiter = "\t" if ending == ".tsv" else ","
        self._fields = [name for name in ALERT_FIELDS if name != "id" or schema.id is not None]
        self._file = open_output(path, keep)
        if keep is None and not self._is_json:
            self._file.write(self._format_line(self._fields).encode())

    def write(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write alerts, each as a whole line."""
        for record in records:
            line = (
                json.dumps(record, ensure_ascii=False) + "\n"
                if self._is_json
                else self._format_line([record[name] for name in self._fields])
            )
            self._file.write(line.encode())

    def _format_line(self, cells: Sequence[Any]) -> str:
        out = io.StringIO()
        csv.writer(out, delimiter=self._delimiter, lineterminator="\n").writerow(cells)
        return out.getvalue()

    def checkpoint(self) -> int | None:
        """Sync to disk; return the size so far, None if the output is not seekable."""
        if self.path == STDOUT or not self._file.seekable():
            return None
        self._file.sync()
        return self._file.tell()

    def close(self) -> None:
        """Close the file; standard output stays open."""
        if self.path != STDOUT:
            self._file.close()


def check_alert_name(path: str) -> None:
    """Refuse a name whose ending is not a format of lines."""
    ending = os.path.splitext(path)[1].lower()
    if ending not in (*_TEXT, *_JSON):
        raise UsageError(f"{path}: alerts are written as .csv, .tsv, .txt or .jsonl, not {ending}")
