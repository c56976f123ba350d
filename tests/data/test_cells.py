"""One cell means the same alone and in a column: the value, the missing mark and the error."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kbnn
from kbnn.data.clock import Clock
from kbnn.data.decoder import CellDecoder, check_new_class
from kbnn.data.number_format import Form
from kbnn.data.row_encoder import RowEncoder
from kbnn.data.schema import MAX_CLASSES, Column, Schema
from kbnn.data.values import MissingSpellings
from kbnn.errors import DataError
from tests.bench.data import schema

TEXTS = [
    *("1", "-2.5", "1e3", " 7 ", "+4", ".5", "007", "1,5", "1.234,5", "12 %", "12", "(3)", "-"),
    *("", "NA", "none", "null", "#N/A", "-999", "inf", "-inf", "1e200", "1e-200", "nan", "?"),
    *("true", "Yes", "off", "0", "1.0", "oui", "maybe", "red", "2024-03-01", "x" * 300, "Grün"),
]
NUMBERS = [0.0, 1.0, -2.5, -999.0, 1e200, 1e-200, 1e-140, math.inf, math.nan, None]
COLUMNS = {
    "number": Column("c", "number", "feature"),
    "decimal comma": Column("c", "number", "feature", form=Form(",", ".")),
    "per cent": Column("c", "number", "feature", form=Form(".", "", "%")),
    "gap": Column("c", "number", "feature", form=Form(",", "", "", "-")),
    "boolean": Column("c", "boolean", "feature"),
    "sd": Column("c", "number", "input_sd", of="a"),
    "target": Column("c", "number", "target"),
}
MISSING = [MissingSpellings(), MissingSpellings(["-999", "?"])]


def alone(cells: CellDecoder, value: Any) -> float | str:
    """The number of one value, or why it is refused."""
    try:
        return cells.decode_number(value)
    except DataError as error:
        return str(error)


def in_column(cells: CellDecoder, array: pa.Array) -> list[float | str]:
    """The same of a whole column."""
    values, errors, _ = cells.decode_numbers(array)
    return [
        f"column 'c': {errors[at].reason}" if at in errors else float(value)
        for at, value in enumerate(values)
    ]


def assert_same(one: list[float | str], other: list[float | str], values: list[Any]) -> None:
    for value, a, b in zip(values, one, other, strict=True):
        same = a == b or (isinstance(a, float) and isinstance(b, float) and a != a and b != b)
        assert same, (value, a, b)


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("name", COLUMNS)
def test_a_text_is_the_same_number_alone_and_in_a_column(
    name: str, missing: MissingSpellings
) -> None:
    cells = CellDecoder(COLUMNS[name], missing)
    one = [alone(cells, text) for text in TEXTS]
    if name == "sd":  # a missing standard deviation is 0 in a column
        one = [0.0 if isinstance(value, float) and math.isnan(value) else value for value in one]
    assert_same(one, in_column(cells, pa.array(TEXTS)), TEXTS)
    each = [in_column(cells, pa.array([text]))[0] for text in TEXTS]
    assert_same(one, each, TEXTS)
    assert any(isinstance(value, str) for value in one)
    assert any(isinstance(value, float) and not math.isnan(value) for value in one)


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("name", ["number", "decimal comma", "target"])
def test_a_typed_number_is_the_same_alone_and_in_a_column(
    name: str, missing: MissingSpellings
) -> None:
    cells = CellDecoder(COLUMNS[name], missing)
    one = [alone(cells, value) for value in NUMBERS]
    assert_same(one, in_column(cells, pa.array(NUMBERS, pa.float64())), NUMBERS)
    boxed = [alone(cells, None if v is None else np.float64(v)) for v in NUMBERS]
    assert_same(one, boxed, NUMBERS)


@pytest.mark.parametrize("missing", MISSING)
def test_a_label_is_the_same_alone_and_in_a_column(missing: MissingSpellings) -> None:
    for buckets in (0, 8):
        cells = CellDecoder(Column("c", "category", "feature", buckets=buckets), missing)
        (names, codes), _ = cells.decode_labels(pa.array(TEXTS))
        found = [None if code < 0 else names[code] for code in codes.tolist()]
        assert found == [cells.decode_label(text) for text in TEXTS]
        assert "none" in found or buckets


def test_a_time_is_the_same_alone_and_in_a_column() -> None:
    clock = Clock("c", "text", 0.0, 60.0, [], [])
    cells = CellDecoder(Column("c", "time", "feature"), MISSING[0], clock)
    texts = ["2024-03-01", "2024-03-01T12:30:00+02:00", "NA", "", "noon"]
    values, errors, _ = cells.decode_times(pa.array(texts))
    for text, time in list(zip(texts, values, strict=True))[:-1]:
        assert np.array_equal(cells.decode_time(text), time, equal_nan=True)
    assert list(errors) == [4]
    with pytest.raises(DataError, match=errors[4].reason):
        cells.decode_time("noon")


def test_a_class_is_refused_for_the_same_reason_everywhere() -> None:
    column = Column("y", "category", "target")
    schema = Schema([column], "classification", ["a"])
    assert check_new_class(schema, column, "b", grows=True) is None
    refused = [
        check_new_class(schema, column, "x" * 201, grows=True),
        check_new_class(schema, column, "b", grows=False),
        check_new_class(schema, column, "\ud800", grows=True),
    ]
    reasons = [error.reason for error in refused if error is not None]
    assert [reason.split()[0] for reason in reasons] == ["class", "class", "'\\ud800'"]
    schema.classes = [str(at) for at in range(MAX_CLASSES)]
    full = check_new_class(schema, column, "b", grows=True)
    assert full is not None
    assert full.reason == "'b' would be class 65, the limit is 64"


def test_a_first_row_is_inferred_as_the_first_row_of_a_file() -> None:
    row = {"a": "1,5", "b": "2,984", "c": "NA", "town": "north", "y": 2.0}
    single = kbnn.Model("y", layers=2)
    single.learn_one({name: row[name] for name in ("a", "b", "c", "town")}, 2.0)
    table = kbnn.Model("y", layers=2)
    table.learn({name: [value] for name, value in row.items()})
    mine, theirs = (model._require_model().schema for model in (single, table))
    for name in ("a", "b", "c", "town"):
        assert mine.get_column(name) == theirs.get_column(name)
    assert mine.decimal == theirs.decimal == ","


@pytest.mark.parametrize("value", [1e-200, -1e-200, 0.0])
def test_tiny_numbers_are_0_in_a_single_row(value: float) -> None:
    reader = RowEncoder(schema(2), lambda text: None)
    assert reader.plain_columns == ["x0", "x1"]
    row = reader.encode_features({"x0": value, "x1": 2.0}, admit=True)
    assert row.tolist() == [[0.0, 2.0]]
