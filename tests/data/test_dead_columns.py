"""Features that stop while a stream runs are reported once, whatever the blocks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.data.batch import Rows
from kbnn.data.encoder import DeadColumns
from kbnn.data.schema import Column, Place, Schema
from tests.commands import kbnn


def schema_of(width: int) -> Schema:
    names = [f"c{at}" for at in range(width)]
    columns = [Column(name, "number", "feature") for name in names]
    layout = [Place(name, None) for name in names]
    return Schema([*columns, Column("y", "number", "target")], "regression", layout=layout)


def reports(x: FloatArray, cuts: list[int]) -> list[str]:
    """What is said of rows that come in blocks."""
    said: list[str] = []
    watch, schema = DeadColumns(said.append), schema_of(x.shape[1])
    for start, stop in zip([0, *cuts], [*cuts, len(x)], strict=True):
        part = x[start:stop]
        number = np.arange(start + 1, stop + 1)
        watch.look(Rows(part, np.zeros((len(part), 1)), number), schema, "s")
    return said


def expected(x: FloatArray) -> list[str]:
    """The same by a plain loop over rows and columns."""
    found: list[tuple[int, int, bool, bool, str]] = []
    for column, values in enumerate(x.T.tolist()):
        for repeated in (False, True):
            active, first, silent, since, stopped = 0, None, 0, 0, False
            for at, value in enumerate(values):
                last = values[at - 1] if at else np.nan
                there = not np.isnan(value)
                comparable = there and not np.isnan(last)
                acts = comparable and value != last if repeated else there
                name = f"s, row {at + 1:,}: column 'c{column}'"
                if stopped:
                    if acts:
                        word = "changes again" if repeated else "has values again"
                        found.append((at, column, True, repeated, f"{name} {word}"))
                        break
                    continue
                if acts:
                    active += 1
                    first = at if first is None else first
                if acts or (repeated and not comparable):
                    silent, since = 0, at + 2
                    continue
                silent += 1
                if first is None:
                    continue
                total = at - silent - first + 1
                needed = max(200, int(np.ceil(20 * max(total, 200) / active)))
                if repeated:
                    needed = 1000 if 2 * active >= max(total, 200) else 10**9
                if silent == needed:
                    stopped = True
                    how = f"repeats the value {value:.6g}" if repeated else "has no value"
                    name = f"s, row {since:,}: column 'c{column}'"
                    text = f"{name} {how} from here on ({needed:,} rows"
                    found.append((at, column, False, repeated, text))
    return [text for *_, text in sorted(found)]


@pytest.mark.parametrize("seed", range(12))
def test_reports_are_those_of_a_plain_loop_in_any_blocks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(4000, 6)).round(1 if seed % 2 else 6)
    for column in range(6):
        x[rng.random(4000) >= rng.choice([0.02, 0.2, 0.9, 1.0]), column] = np.nan
        for _ in range(2):
            start, length = rng.integers(0, 3000), rng.integers(100, 1800)
            value = rng.choice([np.nan, 7.5])
            x[start : start + length, column] = value
    whole = reports(x, [])
    assert [text.split(" so far")[0] for text in whole] == expected(x)
    for pieces in (7, 40, 900):
        assert reports(x, sorted(rng.integers(1, 4000, pieces).tolist())) == whole
    assert reports(x[:1500], list(range(1, 1500))) == reports(x[:1500], [])


def test_sparse_and_constant_columns_are_ordinary() -> None:
    rng = np.random.default_rng(1)
    x = np.full((20_000, 4), np.nan)
    x[::300, 0] = 1.0  # a value every 300 rows
    x[:, 1] = 5.0  # never varied
    x[:, 2] = np.arange(20_000) // 2500  # changes now and then
    x[rng.random(20_000) < 0.01, 3] = 2.0
    assert reports(x, []) == []


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = ["device,temp,kind,press,y"]
    for at, (u, v, noise) in enumerate(rng.normal(size=(1200, 3)).round(4).tolist()):
        temp = "" if at >= 600 else str(u)
        kind = "" if 300 <= at < 550 else "ab"[at % 2]
        lines.append(f"d{at % 3},{temp},{kind},{v},{u + v + 0.1 * noise:.4f}")
    (tmp_path / "s.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


NOTICES = [
    "kbnn: s.csv, row 301: column 'kind' has no value from here on (200 rows so far). "
    "Check where it comes from; predictions continue without it.",
    "kbnn: s.csv, row 551: column 'kind' has values again",
    "kbnn: s.csv, row 601: column 'temp' has no value from here on (200 rows so far). "
    "Check where it comes from; predictions continue without it.",
]


@pytest.mark.parametrize(
    "options",
    [
        ("--ignore", "device"),
        ("--ignore", "device", "--epochs", "3", "--shuffle"),
        ("--key", "device"),
    ],
    ids=["one pass", "passes", "fleet"],
)
def test_train_reports_a_dead_sensor_once(here: Path, options: tuple[str, ...]) -> None:
    done = kbnn("train", "s.csv", "-m", "m", "--layers", "5", "--task", "regression", *options)
    assert done.code == 0, done.err
    assert [line for line in done.err.splitlines() if "s.csv, row" in line] == NOTICES
    quiet = kbnn("train", "s.csv", "-m", "q", "--layers", "5", "-q", *options)
    assert (quiet.code, quiet.err) == (0, "")


def test_inspect_lists_what_is_missing_lately(here: Path) -> None:
    kbnn("train", "s.csv", "-m", "m.npz", "--ignore", "device", "-q", "--task", "regression")
    told = json.loads(kbnn("inspect", "m.npz", "--json").out)
    assert told["health"]["missing_lately"] == {"temp": 600}
    shown = kbnn("inspect", "m.npz").out
    assert re.search(r"missing lately +temp: no value in the last 600 rows", shown)


def test_rows_that_bring_late_targets_are_no_gap(here: Path) -> None:
    rng = np.random.default_rng(2)
    lines = ["id,u,y"]
    for start in (0, 300):
        u = rng.normal(size=300).round(3).tolist()
        lines += [f"{start + at},{value}," for at, value in enumerate(u)]
        lines += [f"{start + at},,{2 * value:.3f}" for at, value in enumerate(u)]
    Path("late.csv").write_text("\n".join(lines) + "\n")
    done = kbnn("train", "late.csv", "--id", "id", "-m", "l.npz", "--target", "y")
    assert done.code == 0, done.err
    assert "from here on" not in done.err
