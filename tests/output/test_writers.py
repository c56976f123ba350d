"""Tables of predictions: exact, quoted where needed, one row for each."""

from __future__ import annotations

import csv
import json
import os
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kbnn.data.schema import Column, Place, Schema
from kbnn.errors import DataError, UsageError
from kbnn.model.model import Forecast
from kbnn.model.settings import Settings
from kbnn.output.fields import OutputField, OutputOptions, list_output_fields
from kbnn.output.writers import open_writer, round_values
from kbnn.targets.prediction import select_rows
from kbnn.targets.registry import make_target_type
from tests.commands import kbnn as command
from tests.commands import trained
from tests.judging import numbers

NUMBERS = Schema(
    [Column("a", "number", "feature"), Column("y", "number", "target")],
    "regression",
    layout=[Place("a", None)],
)
CLASSES = Schema(
    [Column("a", "number", "feature"), Column("y", "category", "target")],
    "classification",
    classes=["no", "yes"],
    layout=[Place("a", None)],
)


def prediction_fields(schema: Schema, interval: float = 0.9, **more: bool) -> list[OutputField]:
    wanted = OutputOptions(interval)._replace(**more)  # type: ignore[arg-type]  # options that are flags
    return list_output_fields(make_target_type(schema, Settings()), wanted)


AWKWARD = ["plain", 'a "quote"', "a,comma", "two\nlines", " space ", "", "ünïcode", "tab\there"]
AWKWARD += ["old\rmac"]


def forecast(rows: int, probability: bool = False) -> Forecast:
    sizes = 10.0 ** np.linspace(-9.0, 9.0, rows)[:, None]
    values = np.random.default_rng(3).normal(size=(4, rows, 1)) * sizes
    share = np.linspace(0.0, 1.0, rows)
    mean, sd = values[0], np.abs(values[1])
    return Forecast(
        mean,
        sd,
        np.abs(values[2]),
        np.abs(values[3]),
        np.stack([share, 1.0 - share], axis=1) if probability else np.zeros((rows, 0)),
        share,
        np.zeros(rows, dtype=np.int64),
        numbers(mean, sd).stated,
        np.zeros((rows, 0)),
    )


def cells(path: Path, delimiter: str = ",") -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter=delimiter))


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "OUT.TSV", "out.txt"])
def test_text_reads_back_exactly(tmp_path: Path, name: str) -> None:
    said = forecast(len(AWKWARD))
    batch = pa.RecordBatch.from_pydict({"a": AWKWARD, "a,b": [None, *range(8)]})
    path = tmp_path / name
    fields = prediction_fields(NUMBERS, decompose=True, outlier=True)
    with open_writer(str(path), fields, NUMBERS, digits=17) as writer:
        writer.write(said, batch)
        assert writer.rows == len(AWKWARD)
    head, *rows = cells(path, "\t" if name.lower() == "out.tsv" else ",")
    assert head == [
        "a", "a,b", "mean", "sd", "lower", "upper", "function_sd", "noise_sd", "outlier",
    ]  # fmt: skip
    assert [row[0] for row in rows] == AWKWARD
    assert [row[1] for row in rows] == ["", *map(str, range(8))]
    assert [float(row[2]) for row in rows] == said.mean[:, 0].tolist()
    assert [float(row[3]) for row in rows] == said.sd[:, 0].tolist()
    assert [float(row[8]) for row in rows] == np.linspace(0.0, 1.0, len(AWKWARD)).tolist()


def test_interval_encloses_what_it_says(tmp_path: Path) -> None:
    fields = prediction_fields(NUMBERS, interval=0.95)
    with open_writer(str(tmp_path / "o.csv"), fields, NUMBERS) as writer:
        writer.write(forecast(5))
    for row in cells(tmp_path / "o.csv")[1:]:
        mean, sd, lower, upper = map(float, row)
        assert upper == pytest.approx(mean + 1.959964 * sd, rel=1e-5)
        assert lower == pytest.approx(mean - 1.959964 * sd, rel=1e-5)


def test_blocks_do_not_show(tmp_path: Path) -> None:
    said = forecast(8)
    for name, sizes in (("one.csv", [8]), ("many.csv", [1, 3, 4])):
        with open_writer(str(tmp_path / name), prediction_fields(NUMBERS), NUMBERS) as writer:
            at = 0
            for size in sizes:
                rows = slice(at, at + size)
                writer.write(select_rows(said, rows))
                at += size
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "many.csv").read_bytes()


def test_classes_and_names_that_are_taken(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"label": ["x", "y", "z"]})
    with open_writer(str(tmp_path / "o.csv"), prediction_fields(CLASSES), CLASSES) as writer:
        writer.write(forecast(3, probability=True), batch)
    assert cells(tmp_path / "o.csv") == [
        ["label", "kbnn_label", "p_no", "p_yes"],
        ["x", "yes", "0", "1"],
        ["y", "no", "0.5", "0.5"],
        ["z", "no", "1", "0"],
    ]


def test_unknown_is_empty_and_missing_columns_too(tmp_path: Path) -> None:
    said = forecast(2)
    said = said._replace(mean=np.array([[np.nan], [1.0]]), sd=np.ones((2, 1)))
    with open_writer(str(tmp_path / "o.csv"), prediction_fields(NUMBERS), NUMBERS) as writer:
        writer.write(said, pa.RecordBatch.from_pydict({"a": ["1", "2"], "b": ["3", "4"]}))
        writer.write(said, pa.RecordBatch.from_pydict({"b": ["5", "6"], "new": ["7", "8"]}))
    assert [row[:3] for row in cells(tmp_path / "o.csv")] == [
        ["a", "b", "mean"],
        ["1", "3", ""],
        ["2", "4", "1"],
        ["", "5", ""],
        ["", "6", "1"],
    ]


def test_parquet_has_types(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"a": ["1.5", "NA", "x"], "b": [True, None, False]})
    with open_writer(str(tmp_path / "o.parquet"), prediction_fields(NUMBERS), NUMBERS) as writer:
        writer.write(forecast(3), batch)
    table = pq.read_table(tmp_path / "o.parquet")
    assert table["a"].to_pylist() == [1.5, None, None]
    assert table["b"].to_pylist() == [True, None, False]
    assert table.schema.field("mean").type == pa.float64()
    assert table["mean"].to_pylist() == forecast(3).mean[:, 0].tolist()


def test_json_has_texts_of_what_it_knows_no_type_for(tmp_path: Path) -> None:
    day = date(2026, 3, 14)
    batch = pa.RecordBatch.from_pydict({"day": [day, None], "a": ["1.5", "NA"]})
    with open_writer(
        str(tmp_path / "o.jsonl"), prediction_fields(NUMBERS), NUMBERS, digits=17
    ) as writer:
        writer.write(forecast(2), batch)
    first, second = map(json.loads, (tmp_path / "o.jsonl").read_text().splitlines())
    assert (first["day"], first["a"]) == ("2026-03-14", 1.5)
    assert (second["day"], second["a"]) == (None, None)
    assert second["mean"] == forecast(2).mean[1, 0]


def test_what_cannot_be_written(tmp_path: Path) -> None:
    fields = prediction_fields(NUMBERS)
    with pytest.raises(
        UsageError, match=r"^o\.json: tables are written as \.csv, \.tsv, \.txt, \.jsonl"
    ):
        open_writer("o.json", fields, NUMBERS)
    with pytest.raises(UsageError, match=r"cannot be continued"):
        open_writer("o.parquet", fields, NUMBERS, keep=3)
    path = tmp_path / "none" / "o.csv"
    with pytest.raises(DataError, match=r"cannot be written \(no such file or directory\)$"):
        open_writer(str(path), fields, NUMBERS)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a full disk to write to")
def test_a_full_disk_is_one_sentence() -> None:
    writer = open_writer("/dev/full", prediction_fields(NUMBERS), NUMBERS)
    with pytest.raises(DataError, match=r"^/dev/full: cannot be written \(no space left on device"):
        writer.write(forecast(3))
    writer.close()


@pytest.mark.parametrize(
    ("digits", "rounded"), [(1, [1e3, -0.01, 0.0]), (3, [1230.0, -0.0123, 0.0])]
)
def test_numbers_are_rounded_to_significant_digits(digits: int, rounded: list[float]) -> None:
    found = round_values(np.array([1234.5, -0.012345, 0.0, np.nan, np.inf]), digits)
    assert found[:3].tolist() == rounded
    assert np.isnan(found[3])
    assert np.isinf(found[4])


def test_rounding_by_another_size_keeps_its_decimal_place() -> None:
    values = np.array([701.77251304, -0.0123456, 5e300, 3.3, np.nan, 0.1234567])
    size = np.array([15.2, 0.5, 1e290, 0.0, 1.0, 1e-30])
    found = round_values(values, 3, size)
    assert found[:2].tolist() == [701.8, -0.012]
    assert found[2:4].tolist() == [5e300, 3.3]
    assert np.isnan(found[4])
    assert found[5] == 0.1234567


def test_rounded_numbers_are_the_nearest_decimals() -> None:
    """Compare with the decimal rounding of Python's own formatting."""
    rng = np.random.default_rng(5)
    values = rng.normal(size=4000) * 10.0 ** rng.integers(-30, 30, 4000)
    for digits in (1, 4, 8, 17):
        found = round_values(values, digits).tolist()
        assert found == [float(f"{value:.{digits}g}") for value in values.tolist()]


def test_text_has_the_digits_that_matter(tmp_path: Path) -> None:
    """Rounding moves a number by less than 1e-7 of its sd, and a probability of its odds."""
    said = forecast(6)
    rng = np.random.default_rng(3)
    mean, sd = 1000.0 + rng.normal(size=(6, 1)), 10.0 ** rng.uniform(-5, 5, (6, 1))
    said = said._replace(mean=mean, sd=sd)
    for name in ("o.csv", "o.jsonl", "o.parquet"):
        with open_writer(str(tmp_path / name), prediction_fields(NUMBERS), NUMBERS) as writer:
            writer.write(said)
    written = np.array([[float(cell) for cell in row[:2]] for row in cells(tmp_path / "o.csv")[1:]])
    assert np.all(np.abs(written[:, :1] - mean) < 1e-7 * sd)
    assert np.all(np.abs(written[:, 1:] - sd) < 1e-7 * sd)
    assert not np.array_equal(written[:, :1], mean)
    assert all(
        len(row[1].strip("0.").replace(".", "")) <= 8 for row in cells(tmp_path / "o.csv")[1:]
    )
    lines = map(json.loads, (tmp_path / "o.jsonl").read_text().splitlines())
    assert [line["mean"] for line in lines] == written[:, 0].tolist()
    assert pq.read_table(tmp_path / "o.parquet")["mean"].to_pylist() == mean[:, 0].tolist()
    p = np.array([1e-9, 0.123456789123, 1.0 - 1.23456789123e-9])
    sure = forecast(3, probability=True)._replace(probability=np.stack([1.0 - p, p], axis=1))
    with open_writer(str(tmp_path / "c.csv"), prediction_fields(CLASSES), CLASSES) as writer:
        writer.write(sure)
    found = np.array([[float(cell) for cell in row[1:]] for row in cells(tmp_path / "c.csv")[1:]])
    assert found[:, 1] == pytest.approx(p, rel=1e-7)
    assert 1.0 - found[:, 1] == pytest.approx(1.0 - p, rel=1e-7)


def test_only_predictions_are_rounded(tmp_path: Path) -> None:
    path = trained(tmp_path / "m.npz", "cubic.csv", "--limit", "100", "--layers", "3")
    source = tmp_path / "in.csv"
    source.write_text("x\n1.23456789\n")
    ran = command("predict", path, source, "--digits", "3")
    assert ran.code == 0
    cells = ran.out.splitlines()[1].split(",")
    assert cells[0] == "1.23456789"
    assert all(len(cell.strip("-").replace(".", "").lstrip("0")) <= 3 for cell in cells[1:])
    every = command("predict", path, source, "--digits", "17").out
    whole = every.splitlines()[1].split(",")
    assert [float(cell) for cell in cells[1:]] == [float(f"{float(c):.3g}") for c in whole[1:]]
    for wrong in ("0", "18", "x"):
        assert command("predict", path, source, "--digits", wrong).code == 2
