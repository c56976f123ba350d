"""`evaluate --alerts` and `--events`: events found and missed, false alarms and delay."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from kbnn.metrics.samples import StreamTrace
from kbnn.metrics.sections import ChartSpec
from kbnn_cli.result_screens import AlertChart
from tests.cli.test_cli_alerts import FLAT, QUICK, ROWS, SPIKE, read_alerts, write_rows
from tests.commands import kbnn

EVENTS = f"start,end,what\n{SPIKE - 5},{SPIKE + 10},spike\n{FLAT},{FLAT + 60},stuck\n10,20,none\n"


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "rows.csv")
    (tmp_path / "events.csv").write_text(EVENTS)
    words = ("--limit", "500", *QUICK)
    assert kbnn("train", "rows.csv", "-m", "m.npz", *words).code == 0
    return tmp_path


def evaluate_alerts(*words: str) -> dict[str, Any]:
    ran = kbnn("evaluate", "m.npz", "rows.csv", *words, "--json", "-q")
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.out)["alerts"]
    return found


@pytest.mark.parametrize("learn", [True, False])
def test_events_are_found_or_missed(trained: Path, learn: bool) -> None:
    words = ["--learn"] if learn else []
    before = (trained / "m.npz").read_bytes()
    found = evaluate_alerts("--events", "events.csv", "--alerts", "a.csv", *words)
    rows = [int(alert["row"]) for alert in read_alerts(trained / "a.csv")]
    assert (trained / "m.npz").read_bytes() == before
    # Counted again from the file of alerts.
    inside = [range(SPIKE - 5, SPIKE + 11), range(FLAT, FLAT + 61), range(10, 21)]
    first = [next((row for row in rows if row in event), None) for event in inside]
    delays = [row - event[0] for row, event in zip(first, inside, strict=True) if row is not None]
    false = [row for row in rows if not any(row in event for event in inside)]
    assert found["alerts"] == len(rows)
    assert (found["found"], found["missed"]) == (len(delays), 3 - len(delays)) == (2, 1)
    assert found["false_alarms"] == len(false)
    outside = ROWS - sum(map(len, inside))
    assert found["false_alarms_per_10000"] == pytest.approx(1e4 * len(false) / outside)
    assert found["delay"] == sum(delays) / 2
    assert found["rate"] == 1e-3


def test_times_and_rows_name_the_same_events(trained: Path) -> None:
    by_row = evaluate_alerts("--events", "events.csv")
    lines = (trained / "rows.csv").read_text().splitlines()
    times = ["start,end"]
    for line in EVENTS.splitlines()[1:]:
        start, end = (lines[int(cell)].split(",")[0] for cell in line.split(",")[:2])
        times.append(f"{start},{end}")
    (trained / "times.csv").write_text("\n".join([*times, "2030-01-01,2030-01-02", ""]))
    by_time = evaluate_alerts("--events", "times.csv")
    assert by_time.pop("events_outside") == 1
    assert by_row.pop("events_outside") == 0
    assert by_time == by_row


def test_the_screen_says_it_in_words(trained: Path) -> None:
    ran = kbnn("evaluate", "m.npz", "rows.csv", "--events", "events.csv", "--learn", "-q")
    assert "events: 2 found, 1 missed; median delay" in ran.out
    assert "false alarms: " in ran.out


def test_conditions_check_events_and_metrics(trained: Path) -> None:
    words = ("evaluate", "m.npz", "rows.csv", "--events", "events.csv", "-q")
    ran = kbnn(*words, "--fail-if", "missed>0", "--fail-if", "rmse>1e9")
    assert ran.code == 3
    assert "missed is 1" in ran.err
    assert "rmse" not in ran.err
    assert kbnn(*words, "--fail-if", "found<2").code == 0


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ("a,b\n1,2\n", "needs the columns start and end"),
        ("start,end\n", "has 0 events"),
        ("start,end\n5,1\n", "events.csv:2: the event ends before it starts"),
        ("start,end\n1,2\nx,2\n", "events.csv:3: cannot parse 'x' as a row number"),
        ("start,end\n2026-01-01,x\n", "events.csv:2: cannot parse 'x' as a time of column 'time'"),
        ("start_row,end_row\n2026-01-01,3\n", "cannot parse '2026-01-01' as a row number"),
        ("start,end\n\xff\n", "cannot parse"),
    ],
)
def test_bad_events_are_refused(trained: Path, events: str, reason: str) -> None:
    (trained / "events.csv").write_text(events)
    ran = kbnn("evaluate", "m.npz", "rows.csv", "--events", "events.csv", "-q")
    assert ran.code == 1
    assert reason in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--alert-rate", "1e-3"], "add --alerts FILE or --events FILE"),
        (["--fail-if", "missed>0"], "add --alerts FILE or --events FILE"),
        (["--alerts", "a.csv", "--fail-if", "missed>0"], "add --events FILE"),
        (["--alerts", "a.csv", "--horizon", "3"], "--horizon cannot be combined"),
        (["--events", "e.csv", "--alerts", "e.csv"], "would write over the source"),
        (["--alerts", "-", "--json"], "cannot both go to standard output"),
        (["--alerts", "a.xlsx"], "alerts are written as .csv"),
    ],
)
def test_what_cannot_be_evaluated_is_said(trained: Path, words: list[str], reason: str) -> None:
    (trained / "e.csv").write_text(EVENTS)
    ran = kbnn("evaluate", "m.npz", "rows.csv", *words, "-q")
    assert ran.code == 2, ran
    assert reason in ran.err


def test_alerts_are_drawn_as_picture_in_the_report_and_on_the_terminal(trained: Path) -> None:
    words = ("evaluate", "m.npz", "rows.csv", "--events", "events.csv", "--learn", "-q")
    assert kbnn(*words, "--plot", "p.svg", "--report", "r.html").code == 0
    picture, page = (trained / "p.svg").read_text(), (trained / "r.html").read_text()
    assert "surprise" in picture
    assert "alerts are marked" in page
    assert kbnn("train", "rows.csv", "-m", "t.npz", "--plot", "t.svg", *QUICK).code == 2
    ran = kbnn("train", "rows.csv", "-m", "t.npz", "--alerts", "a.csv", "--plot", "t.svg", *QUICK)
    assert ran.code == 0, ran.err
    assert "surprise" in (trained / "t.svg").read_text()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("plain", [False, True])
def test_chart_of_alerts_marks_each_alert_at_its_row(width: int, plain: bool) -> None:
    trace = StreamTrace()
    y = np.sin(np.arange(5000) / 50.0)
    for at in range(0, 5000, 700):
        part = y[at : at + 700]
        marks = [k - at for k in (1000, 4500) if at <= k < at + 700]
        trace.add(part, (part - 1.0, part + 1.0), np.abs(part), marks)
    drawn = trace.to_arrays()
    assert drawn["marks"].tolist() == [1001.0, 4501.0]
    assert len(drawn["row"]) <= 512
    for name, values in (("low", y), ("high", y), ("lower", y - 1.0), ("surprise", np.abs(y))):
        pick = np.min if name.startswith("low") else np.max
        wanted = [pick(values[k : k + 16]) for k in range(0, 5000, 16)]
        np.testing.assert_array_equal(drawn[name], wanted)
    spec = ChartSpec("alerts", "Alerts", {**drawn, "name": "y"}, hint="how to read it")
    out = io.StringIO()
    console = Console(file=out, width=width, legacy_windows=False, color_system=None)
    options = console.options.update(width=width)
    if plain:
        options.encoding = "ascii"
    lines = [str(line) for line in AlertChart(spec).__rich_console__(console, options)]
    assert max(map(len, lines)) <= width
    (marked,) = [line for line in lines if ("^" if plain else "▲") in line]
    places = [at for at, sign in enumerate(marked) if sign != " "]
    room = width - places[0]  # the axis begins after the labels
    assert len(places) == 2
    assert (places[1] - places[0]) / room == pytest.approx(3500 / 4000, abs=0.08)
