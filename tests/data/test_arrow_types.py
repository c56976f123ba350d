"""Columns of every type that Arrow has: read, or announced as ignored, and never in the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest

import kbnn as library
from tests.commands import kbnn

ROWS = 80
DRAW = np.random.default_rng(0)
X = DRAW.standard_normal(ROWS)
Y = 2.0 * X + 0.1 * DRAW.standard_normal(ROWS)
STEPS = np.arange(ROWS)
NAMES = [f"a{at % 3}" for at in range(ROWS)]
BYTES = [name.encode() for name in NAMES]


def ticks(values: Any, kind: pa.DataType) -> pa.Array:
    whole = np.int32 if pa.types.is_date32(kind) else np.int64
    return pa.array(np.asarray(values, dtype=whole)).view(kind)


def odd_columns() -> dict[str, pa.Array]:
    """Types that few programs write, and values that Python cannot hold."""
    far = 2**60 + STEPS
    view = pa.array(NAMES, pa.string_view())
    struct = pa.StructArray.from_arrays([view], names=["s"])
    offsets = pa.array(range(ROWS + 1), pa.int32())
    return {
        "binary_view": pa.array(BYTES, pa.binary_view()),
        "string_view": view,
        "struct of string_view": struct,
        "struct of struct": pa.StructArray.from_arrays([struct], names=["t"]),
        "list of string_view": pa.ListArray.from_arrays(offsets, view),
        "list_view": pa.array([[1, 2]] * ROWS, pa.list_view(pa.int64())),
        "runs of numbers": pc.run_end_encode(pa.array(STEPS // 20)),
        "runs of texts": pc.run_end_encode(pa.array(np.array(NAMES)[STEPS // 40])),
        "dictionary of string_view": pa.DictionaryArray.from_arrays(
            pa.array(STEPS % 2, pa.int32()), pa.array(["p", "q"], pa.string_view())
        ),
        "dictionary of far times": pa.DictionaryArray.from_arrays(
            pa.array(STEPS % 2, pa.int32()), pa.array([2**60, 2**60 + 1], pa.timestamp("s"))
        ),
        "far seconds": ticks(far, pa.timestamp("s")),
        "far seconds of a zone": ticks(far, pa.timestamp("s", tz="Europe/Berlin")),
        "far microseconds": ticks(2**62 + STEPS, pa.timestamp("us")),
        "first microseconds": ticks(-(2**63) + 1 + STEPS, pa.timestamp("us")),
        "first dates": ticks([-(2**31)] * ROWS, pa.date32()),
        "last dates": ticks(2**31 - 1 - STEPS, pa.date32()),
        "far milliseconds": ticks([86_400_000 * 10**9] * ROWS, pa.date64()),
        "struct of far dates": pa.StructArray.from_arrays(
            [ticks([-(2**31)] * ROWS, pa.date32())], names=["d"]
        ),
        "list of far dates": pa.ListArray.from_arrays(
            offsets, ticks([-(2**31)] * ROWS, pa.date32())
        ),
        "unknown zone": ticks(1_600_000_000 + STEPS, pa.timestamp("s", tz="Mars/Olympus")),
        "struct of unknown zone": pa.StructArray.from_arrays(
            [ticks(1_600_000_000 + STEPS, pa.timestamp("s", tz="Mars/Olympus"))], names=["z"]
        ),
        "long durations": ticks([2**60] * ROWS, pa.duration("s")),
        "intervals": pa.array([pa.MonthDayNano([1, 2, 3])] * ROWS),
        "union": pa.UnionArray.from_sparse(
            pa.array(STEPS % 2, pa.int8()), [pa.array(STEPS), pa.array(NAMES)]
        ),
        "map": pa.array([[("a", 1)]] * ROWS, pa.map_(pa.string(), pa.int64())),
        "half": pa.array(STEPS.astype(np.float16)),
        "decimal256": pa.array(STEPS).cast(pa.decimal256(60, 2)),
        "nulls": pa.nulls(ROWS),
    }


def write(path: str, column: pa.Array) -> str:
    table = pa.table({"x": X, "c": column, "y": Y})
    if path.endswith(".parquet"):
        pq.write_table(table, path)
    else:
        with ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    return path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


TRAIN = ("--target", "y", "--layers", "2", "--fresh")
ODD = odd_columns()


@pytest.mark.parametrize("name", ODD)
def test_every_type_is_read_or_ignored(name: str) -> None:
    file = write("d.arrow", ODD[name])
    assert kbnn("train", file, "-m", "m.npz", *TRAIN, "-q").code == 0
    ran = kbnn("train", file, "-m", "i.npz", *TRAIN, "--ignore", "c")
    assert ran.code == 0, ran.err
    assert "'c'" not in ran.err
    for out in ("o.csv", "o.jsonl", "o.arrow"):
        for model in ("m.npz", "i.npz"):
            ran = kbnn("predict", model, file, "-o", out, "-q")
            assert (ran.code, ran.err) == (0, "")
    assert len(Path("o.csv").read_text().splitlines()) == ROWS + 1
    assert len(list(map(json.loads, Path("o.jsonl").read_text().splitlines()))) == ROWS
    ran = kbnn("predict", "i.npz", file, "-o", "o.parquet", "-q")
    assert ran.code == 0 or "Parquet cannot hold a value" in ran.err
    ran = kbnn("train", file, "-m", "t.npz", "--target", "c", "--layers", "2", "-q")
    assert (ran.code, ran.err.count("\n")) in ((0, 0), (1, 1))


@pytest.mark.parametrize(
    ("encoded", "plain"),
    [
        (pc.run_end_encode(pa.array(STEPS // 20)), pa.array(STEPS // 20)),
        (pa.array(NAMES, pa.string_view()), pa.array(NAMES)),
        (ODD["runs of texts"], pa.array(np.array(NAMES)[STEPS // 40])),
    ],
    ids=["runs", "view", "runs of texts"],
)
def test_encoded_columns_are_their_values(encoded: pa.Array, plain: pa.Array) -> None:
    models = [
        library.train(pa.table({"x": X, "c": column, "y": Y}), "y", layers=2).to_bytes()
        for column in (encoded, plain)
    ]
    assert models[0] == models[1]


def test_one_odd_file_does_not_fail_a_folder() -> None:
    Path("data").mkdir()
    for at, name in enumerate(("first dates", "unknown zone", "binary_view")):
        write(f"data/{at}.parquet", ODD[name])
    ran = kbnn("train", "data", "-m", "m.npz", *TRAIN, "--ignore", "c", "-q")
    assert (ran.code, ran.err) == (0, "")
    ran = kbnn("predict", "m.npz", "data", "-o", "o.jsonl", "-q")
    assert (ran.code, ran.err) == (0, "")
    assert len(Path("o.jsonl").read_text().splitlines()) == 3 * ROWS


def test_dates_beyond_python_are_written_as_iso_texts() -> None:
    column = ticks([-(2**31), 18_262] * (ROWS // 2), pa.date32())
    file = write("d.arrow", column)
    assert kbnn("train", file, "-m", "m.npz", *TRAIN, "--ignore", "c", "-q").code == 0
    assert kbnn("predict", "m.npz", file, "-o", "o.jsonl", "-q").code == 0
    rows = [json.loads(line)["c"] for line in Path("o.jsonl").read_text().splitlines()]
    assert rows[:2] == ["-5877641-06-23", "2020-01-01"]


def test_an_unknown_zone_is_announced_and_read_as_utc() -> None:
    file = write("d.arrow", ODD["unknown zone"])
    ran = kbnn("train", file, "-m", "m.npz", *TRAIN)
    assert ran.code == 0
    assert (
        "d.arrow: column 'c': unknown time zone 'Mars/Olympus': its times are read as UTC"
    ) in " ".join(ran.err.split())


def test_far_times_of_a_clock_are_named() -> None:
    seconds = 86_400 * STEPS + 1_600_000_000
    good = write("good.arrow", ticks(seconds, pa.timestamp("s")))
    bad = write("bad.arrow", ticks([*seconds[:-1], 2**60], pa.timestamp("s")))
    assert kbnn("train", good, "-m", "m.npz", *TRAIN, "--time", "c", "-q").code == 0
    ran = kbnn("train", bad, "-m", "m.npz", "-q")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "bad.arrow: row 80: column 'c': cannot read '36534630048-05-13T" in ran.err


def test_an_ignored_column_may_be_damaged() -> None:
    file = write("d.arrow", ticks([2**60] * ROWS, pa.time64("ns")))
    ran = kbnn("train", file, "-m", "m.npz", *TRAIN, "-q")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "the Arrow data are damaged" in ran.err
    assert kbnn("train", file, "-m", "m.npz", *TRAIN, "--ignore", "c", "-q").code == 0
    assert kbnn("predict", "m.npz", file, "-o", "o.csv", "-q").code == 0


def test_numbers_that_json_has_not_are_written() -> None:
    column = pa.array([float("nan"), float("inf"), 1.0, None] * (ROWS // 4))
    file = write("d.parquet", column)
    assert kbnn("train", file, "-m", "m.npz", *TRAIN, "--ignore", "c", "-q").code == 0
    assert kbnn("predict", "m.npz", file, "-o", "o.jsonl", "-q").code == 0
    rows = [json.loads(line)["c"] for line in Path("o.jsonl").read_text().splitlines()]
    assert rows[:4] == [None, "inf", 1.0, None]
