"""Alerts: write them as they happen, run a command for each, and score them against known events.

An alert is one line of CSV, TSV or JSON. Each line is written at once and whole, so that a program
can follow the file. Its length is part of a checkpoint: a run that is resumed truncates the file
there and writes the later alerts again.

A command (`--alert-exec`) gets the alert as JSON on its standard input. It is split into words as a
shell would, but no shell runs it, and nothing of the alert is in its words. At most MAX_RUNNING
commands run at a time; a further alert waits for one of them. A command that runs longer than
MAX_SECONDS is killed. Failures are reported and stop nothing.

An event is a range of rows or of times. It is found if an alert is raised in its rows; further
alerts in them change nothing. An alert in no event is a false alarm. The delay of an event is the
number of rows from its first row to its first alert.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np

from kbnn.array_types import BoolArray, FloatArray
from kbnn.data.batch import Anomalies, Rows
from kbnn.data.clock import Clock, format_times
from kbnn.data.schema import Schema
from kbnn.data.timestamps import parse_time_value
from kbnn.distributions.dispatch import read_distribution
from kbnn.errors import DataError, UsageError
from kbnn.fleet.fleet import DEFAULT_OPEN_MODELS, Fleet
from kbnn.fleet.key_index import KeyMonitors, read_keys
from kbnn.metrics.samples import StreamTrace
from kbnn.metrics.sections import ChartSpec
from kbnn.model.anomaly import Monitor, monitor_rows, set_alert_rate
from kbnn.model.interface import StreamModel
from kbnn.model.model import OnlineModel
from kbnn.model.settings import AlertRate
from kbnn.output.fields import decode_targets
from kbnn.output.writers import STDOUT, open_output
from kbnn.sink import Closeable
from kbnn.targets.prediction import Forecast
from kbnn.wording import describe_os_error, format_count, format_number, format_rows

ALERT_FIELDS: Final = (
    *("row", "id", "time", "key", "target", "value", "lower", "upper"),
    *("surprise", "score", "kind", "start", "length", "inputs"),
)
"""Columns of an alert; `id` only if the rows have one, `key` in a fleet."""

AlertRecord = dict[str, Any]

FLEET_WATCH: Final = (
    "--watch: the keys of a fleet are watched for their targets only. Train a model without --key, "
    "or leave out --watch."
)

_TEXT: Final = ("", ".csv", ".tsv", ".txt")
_JSON: Final = (".jsonl", ".ndjson")


def start_monitor(model: StreamModel, rate: AlertRate | None, watch: tuple[str, ...] = ()) -> None:
    """Monitor the rows that a model or fleet learns from now on.

    Parameters
    ----------
    model
        The model or fleet.
    rate
        Rate of false alarms; None keeps that of the model.
    watch
        Columns, see `kbnn.model.anomaly.choose_watched`; without any, those of the model.
    """
    if isinstance(model, Fleet):
        if watch not in ((), ("target",)):
            raise UsageError(FLEET_WATCH)
        model.set_alert_rate(rate)
    else:
        assert isinstance(model, OnlineModel)
        set_alert_rate(model, rate, watch)


def describe_alerts(
    model: StreamModel,
    rows: Rows,
    forecast: Forecast,
    anomalies: Anomalies,
    interval: float = 0.9,
) -> list[AlertRecord]:
    """Return the alerts of a batch as plain values by column; None is missing.

    Parameters
    ----------
    model
        The model or fleet.
    rows, forecast, anomalies
        The batch, the forecasts made before it was learned, and what was found in it.
    interval
        Probability between `lower` and `upper`.
    """
    records, schema, task = [], model.schema, model.task
    keys = read_keys(rows, model.key) if model.key and anomalies.alerts else []
    for alert in anomalies.alerts:
        at, j = alert.at, alert.target
        lower = upper = None
        value: Any
        if alert.column:
            name, value = alert.column, alert.value
            half = alert.sd * NormalDist().inv_cdf(0.5 + 0.5 * interval)
            lower, upper = alert.mean - half, alert.mean + half
        else:
            name = task.targets[j]
            (value,) = decode_targets(task, rows.y[at : at + 1, j])
            if not task.labels:
                edges = read_distribution(forecast.stated[at : at + 1, j]).interval(interval)
                lower, upper = (float(edge[0]) for edge in edges)
        time = None
        if schema.clock is not None and rows.time is not None:
            time = format_times(schema.clock, rows.time[at : at + 1])[0] or None
        record = {
            "row": int(rows.number[at]),
            "id": None if rows.id is None else rows.id[at],
            "time": time,
            "key": keys[at] if keys else None,
            "target": name,
            "value": value if value is None or isinstance(value, str) else float(value),
            "lower": lower,
            "upper": upper,
            "surprise": alert.surprise,
            "score": alert.score,
            "kind": alert.kind,
            "start": alert.start or None,
            "length": alert.length,
            "inputs": alert.inputs or None,
        }
        shown = _list_alert_fields(schema, bool(model.key))
        records.append({name: _drop_nan(record[name]) for name in shown})
    return records


def _list_alert_fields(schema: Schema, has_key: bool) -> list[str]:
    """List the columns of the alerts of a model or fleet."""
    absent = {"id"} if schema.id is None else set()
    return [name for name in ALERT_FIELDS if name not in absent and (has_key or name != "key")]


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
    has_key
        Whether the model is a fleet.
    keep
        Number of bytes of an existing file to keep, to resume a run.
    """

    def __init__(
        self, path: str, schema: Schema, *, has_key: bool = False, keep: int | None = None
    ) -> None:
        check_alert_name(path)
        ending = os.path.splitext(path)[1].lower()
        self.path = path
        self._is_json = ending in _JSON
        self._delimiter = "\t" if ending == ".tsv" else ","
        self._fields = _list_alert_fields(schema, has_key)
        self._file = open_output(path, keep)
        if keep is None and not self._is_json:
            self._file.write(self._format_line(self._fields).encode())
        self.kept_alerts = 0 if keep is None else self._count_kept(keep)

    def _count_kept(self, keep: int) -> int:
        """Count the alerts in the first `keep` bytes of the file."""
        with open(self.path, "rb") as file:
            lines = io.StringIO(file.read(keep).decode(), newline="")
        if self._is_json:
            return sum(1 for _ in lines)
        return max(sum(1 for _ in csv.reader(lines, delimiter=self._delimiter)) - 1, 0)

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


MAX_RUNNING: Final = 4
MAX_SECONDS: Final = 30.0


def split_command(command: str) -> list[str]:
    """Split a command into words; UsageError if it is invalid or its program does not exist."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--alert-exec: cannot parse the command ({error})") from error
    if not words:
        raise UsageError("--alert-exec: the command is empty")
    if shutil.which(words[0]) is None:
        raise UsageError(f"--alert-exec: cannot find the program '{words[0]}'")
    return words


class AlertCommand(Closeable):
    """Runs a command for each alert; `close` waits for the commands that still run.

    Parameters
    ----------
    command
        The command, as typed.
    notice
        Receives what failed, in the thread that calls `run` or `close`.
    """

    def __init__(self, command: str, notice: Callable[[str], None]) -> None:
        self._words = split_command(command)
        self._notice = notice
        self._slots = threading.BoundedSemaphore(MAX_RUNNING)
        self._threads: list[threading.Thread] = []
        self._failures: list[str] = []
        self._failed = 0

    def run(self, record: Mapping[str, Any]) -> None:
        """Start the command for an alert, as soon as fewer than MAX_RUNNING run."""
        self._slots.acquire()
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        text = json.dumps(record, ensure_ascii=False) + "\n"
        thread = threading.Thread(target=self._run_once, args=(text.encode(),), daemon=True)
        self._threads.append(thread)
        thread.start()
        self._report_failures()

    def _run_once(self, text: bytes) -> None:
        try:
            failure = _run_command(self._words, text)
            if failure:
                self._failures.append(failure)
        finally:
            self._slots.release()

    def _report_failures(self) -> None:
        """Report the first failure at once; `close` reports the number of the others."""
        failures, self._failures = self._failures, []
        if failures and not self._failed:
            self._notice(f"--alert-exec: the command {failures[0]}; the run continues")
        self._failed += len(failures)

    def close(self) -> None:
        """Wait for all commands, and report how many failed."""
        for thread in self._threads:
            thread.join()
        self._threads = []
        self._report_failures()
        if self._failed > 1:
            self._notice(f"--alert-exec: {format_count(self._failed)} commands failed")
        self._failed = 0


def _run_command(words: list[str], text: bytes) -> str:
    """Run the command with `text` on its standard input; return what failed, "" if nothing."""
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C ends the run, not the commands of its alerts
        )
    except OSError as error:
        return f"cannot be started ({describe_os_error(error)})"
    try:
        process.communicate(text, MAX_SECONDS)
    except subprocess.TimeoutExpired:
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"was killed after {MAX_SECONDS:g} seconds"
    code = process.returncode
    return f"ended with exit code {code}" if code else ""


ALERT_FIGURES: Final = (
    *("alerts", "events", "found", "missed", "false_alarms"),
    *("false_alarms_per_10000", "delay"),
)
"""Numbers that `--fail-if` can check, in the order of `--json`."""
ROW_COLUMNS: Final = ("start_row", "end_row")
RANGE_COLUMNS: Final = ("start", "end")
MAX_EVENTS: Final = 100_000


class EventWindows(NamedTuple):
    """Ranges of row numbers or of instants, both ends included."""

    start: FloatArray  # (events,)
    end: FloatArray
    is_time: bool


def read_events(path: str, schema: Schema) -> EventWindows:
    """Read the events of a CSV file with columns `start` and `end`.

    If the first start is a whole number, all are row numbers; otherwise they are times as in the
    rows. If times are numbers, row numbers are in the columns `start_row` and `end_row`.

    Raises
    ------
    DataError
        If the file cannot be read, with the line and the reason.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file) if line]
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({describe_os_error(error)})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: is not a CSV file in UTF-8") from error
    header = [name.strip() for name in lines[0]] if lines else []
    names = next((pair for pair in (ROW_COLUMNS, RANGE_COLUMNS) if {*pair} <= {*header}), None)
    if names is None:
        raise DataError(f"{path}: needs the columns start and end (found: {', '.join(header)})")
    if not 1 < len(lines) <= MAX_EVENTS + 1:
        raise DataError(f"{path}: has {len(lines) - 1:,} events; from 1 to {MAX_EVENTS:,} are read")
    at = [header.index(name) for name in names]
    cells = [[line[k].strip() if k < len(line) else "" for k in at] for line in lines[1:]]
    clock = schema.clock
    are_rows = names == ROW_COLUMNS or cells[0][0].isdecimal()
    if names == RANGE_COLUMNS and clock is not None and clock.unit != "text":
        are_rows = False
    edges = np.empty((len(cells), 2))
    for number, pair in enumerate(cells):
        edges[number] = [
            _parse_edge(f"{path}:{number + 2}", cell, None if are_rows else clock, are_rows)
            for cell in pair
        ]
        if not edges[number, 0] <= edges[number, 1]:
            raise DataError(f"{path}:{number + 2}: the event ends before it starts")
    return EventWindows(edges[:, 0].copy(), edges[:, 1].copy(), not are_rows)


def _parse_edge(place: str, cell: str, clock: Clock | None, is_row: bool) -> float:
    """Parse a row number or a time."""
    if is_row and cell.isdecimal():
        return float(cell)
    if is_row or clock is None:
        raise DataError(f"{place}: cannot parse '{cell}' as a row number")
    made = parse_time_value(cell, clock.unit, clock.day_first)
    if made is None:
        raise DataError(f"{place}: cannot parse '{cell}' as a time of column '{clock.column}'")
    return made[0]


class AlertTrace:
    """What is drawn of a stream and its alerts: a chart of each target; none of a fleet."""

    def __init__(self, model: StreamModel) -> None:
        self._task = model.task
        self._traces = [] if model.key else [StreamTrace() for _ in model.task.targets]

    def add(self, rows: Rows, forecast: Forecast, anomalies: Anomalies) -> None:
        """Add rows, the forecasts made before them and their alerts."""
        for j, trace in enumerate(self._traces):
            none = np.full(len(rows.y), np.nan)
            y, interval = none, (none, none)
            if not self._task.labels:
                y = rows.y[:, j]
                interval = read_distribution(forecast.stated[:, j]).interval(0.9)
            if not trace.rows and len(rows.number):
                trace.first = int(rows.number[0])
            marks = [alert.at for alert in anomalies.alerts if alert.target == j or alert.column]
            trace.add(y, interval, anomalies.surprise[:, j], marks)

    def build_charts(self) -> list[ChartSpec]:
        """Build the chart of each target."""
        return [
            ChartSpec(
                "alerts",
                "Alerts",
                {**trace.to_arrays(), "name": name},
                "Range of the values and of their 90 % interval; alerts are marked. Below, the "
                "surprise of the rows: 3 is one row in a thousand.",
                "values and 90 % interval by row, alerts below, then surprise",
            )
            for trace, name in zip(self._traces, self._task.targets, strict=False)
            if trace.rows
        ]


class AlertScoring:
    """Raises alerts on rows that are evaluated, writes them, and scores them against events.

    Parameters
    ----------
    model
        The model or fleet; it is monitored from now on if it `learn`s, otherwise a copy is.
    learn
        Whether the model learns the rows.
    rate
        Rate of false alarms; None keeps that of the model's monitor.
    watch
        Columns that are watched; without any, those of the model's monitor.
    events
        Known events, if there are any.
    writer
        Where alerts are written, if anywhere.
    """

    def __init__(
        self,
        model: StreamModel,
        *,
        learn: bool,
        rate: AlertRate | None,
        watch: tuple[str, ...] = (),
        events: EventWindows | None = None,
        writer: AlertWriter | None = None,
    ) -> None:
        self._model, self._writer, self._events = model, writer, events
        if isinstance(model, Fleet):
            monitored = model if learn else model.copy()
            start_monitor(monitored, rate, watch)
            assert monitored.monitors is not None
            self._monitor: Monitor | KeyMonitors = monitored.monitors
        else:
            assert isinstance(model, OnlineModel)
            before = model.monitor
            set_alert_rate(model, rate, watch)
            assert model.monitor is not None
            self._monitor = model.monitor
            if not learn:
                model.monitor = before
        self.rate = self._monitor.rate
        self.alerts = self.false_alarms = 0
        self._rows = self._ordinary_rows = 0
        count = 0 if events is None else len(events.start)
        self._first = np.full(count, -1, np.int64)  # index of the first row, -1: none yet
        self._delay = np.full(count, -1, np.int64)  # rows to the first alert, -1: none yet
        self.trace = AlertTrace(model)

    def add(self, rows: Rows, forecast: Forecast, anomalies: Anomalies | None) -> None:
        """Add rows; without `anomalies`, which the learning model found, they are monitored."""
        model = self._model
        if anomalies is None and isinstance(self._monitor, KeyMonitors):
            anomalies = self._monitor.update(read_keys(rows, model.key), rows, forecast)
            self._monitor.close_unused(DEFAULT_OPEN_MODELS)
        elif anomalies is None:
            assert isinstance(self._monitor, Monitor)
            self._monitor, anomalies = monitor_rows(
                self._monitor, model.task, model.schema, rows, forecast
            )
        if self._writer is not None:
            self._writer.write(describe_alerts(model, rows, forecast, anomalies))
        self.trace.add(rows, forecast, anomalies)
        self.alerts += len(anomalies.alerts)
        if self._events is not None:
            self._score_alerts(self._events, rows, [alert.at for alert in anomalies.alerts])
        self._rows += len(rows.y)

    def _score_alerts(self, events: EventWindows, rows: Rows, raised: Sequence[int]) -> None:
        """Compare alerts, given by the positions of their rows, with the events."""
        place = rows.number.astype(np.float64)
        if events.is_time:
            place = np.full(len(rows.y), np.nan) if rows.time is None else rows.time[:, 0]
        known = place[np.isfinite(place)]
        inside = np.zeros(len(place), np.bool_)
        if len(known):
            near = (events.start <= known.max()) & (events.end >= known.min())
            for k in np.flatnonzero(near).tolist():
                own: BoolArray = (place >= events.start[k]) & (place <= events.end[k])
                if not own.any():
                    continue
                inside |= own
                if self._first[k] < 0:
                    self._first[k] = self._rows + int(np.argmax(own))
                hits = [at for at in raised if own[at]]
                if hits and self._delay[k] < 0:
                    self._delay[k] = self._rows + hits[0] - self._first[k]
        self._ordinary_rows += int(np.count_nonzero(~inside))
        self.false_alarms += sum(not inside[at] for at in raised)

    def to_json(self) -> dict[str, Any]:
        """Return the object `alerts` of `evaluate --json`."""
        found: dict[str, Any] = {"alerts": self.alerts, "rate": self.rate}
        if self._events is None:
            return found
        hit = self._delay[self._delay >= 0]
        events = int(np.count_nonzero(self._first >= 0))
        return {
            **found,
            "events": events,
            "events_outside": len(self._first) - events,
            "found": len(hit),
            "missed": events - len(hit),
            "false_alarms": self.false_alarms,
            "false_alarms_per_10000": 1e4 * self.false_alarms / self._ordinary_rows
            if self._ordinary_rows
            else None,
            "delay": float(np.median(hit)) if len(hit) else None,
        }

    def list_figures(self) -> dict[str, float | None]:
        """Return the numbers that `--fail-if` can check; None is unknown."""
        known = self.to_json()
        return {name: known.get(name) for name in ALERT_FIGURES}

    def format_lines(self) -> list[str]:
        """Format the numbers as sentences."""
        known = self.to_json()
        per_row = f"asked for {format_number(self.rate, 3)} false alarms a row"
        lines = [f"{format_count(self.alerts)} alerts in {format_rows(self._rows)}, {per_row}"]
        if self._events is None:
            return lines
        lines.append(f"events: {known['found']} found, {known['missed']} missed")
        if known["events_outside"]:
            lines[-1] += f", {known['events_outside']} outside the rows"
        if known["delay"] is not None:
            lines[-1] += f"; median delay {format_number(known['delay'], 3)} rows"
        if known["false_alarms_per_10000"] is not None:
            often = format_number(known["false_alarms_per_10000"], 3)
            lines.append(
                f"false alarms: {format_count(self.false_alarms)}, {often} in 10,000 ordinary rows"
            )
        return lines


def check_conditions(texts: Sequence[str], has_alerts: bool, has_events: bool) -> None:
    """Raise UsageError for a condition on alerts that are not computed."""
    for text in texts:
        name = re.split("[<>]", text)[0].strip().lower()
        if name in ALERT_FIGURES and not has_alerts:
            raise UsageError(f"--fail-if checks {name}: add --alerts FILE or --events FILE")
        if name in ALERT_FIGURES[1:] and not has_events:
            raise UsageError(f"--fail-if checks {name}: add --events FILE")
