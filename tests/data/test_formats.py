"""Every format gives the same rows, at every size of read and of block."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kbnn.data.formats import BINARIES, detect_format, sniff_delimiter
from kbnn.data.sources import DECODERS, Decoder
from kbnn.errors import DataError
from tests.commands import kbnn
from tests.streams import (
    Seen,
    arrow_bytes,
    assert_same,
    csv_bytes,
    every_format,
    jsonl_bytes,
    look,
    mixed_table,
    parquet_bytes,
    zstd_bytes,
)

TABLE = mixed_table()
FORMATS = every_format(TABLE)
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "bzip2": bz2.compress,
    "zstd": zstd_bytes,
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    path = tmp_path_factory.mktemp("expected") / "t.csv"
    path.write_bytes(FORMATS["csv"])
    seen = look([path], read_ahead=False)
    assert not seen.error
    assert seen.rows == list(range(1, TABLE.num_rows + 1))
    return seen


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_the_same_at_every_size(name: str, expected: Seen, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(FORMATS[name])
    for read_size, block_rows in ((1, 4096), (7, 3), (64, 1), (1000, 40), (1 << 20, 4096)):
        seen = look([path], read_size=read_size, block_rows=block_rows, read_ahead=False)
        assert_same(seen, expected)


def test_values_are_those_of_the_table(expected: Seen) -> None:
    assert expected.schema is not None
    layout = [tuple(place) for place in expected.schema["layout"]]
    columns = TABLE.to_pydict()
    for at, (name, category) in enumerate(layout):
        values = columns[name]
        got = expected.x[:, at]
        for row, value in enumerate(values):
            if value is None and category is None:
                assert np.isnan(got[row])
            elif value is None:
                first = values.index(category)
                is_first = (
                    next(c for c in expected.schema["columns"] if c["name"] == name)["categories"][
                        0
                    ]
                    == category
                )
                assert np.isnan(got[row]) if is_first or row > first else got[row] == 0
            else:
                assert got[row] == (float(value) if category is None else value == category)
    np.testing.assert_array_equal(expected.y[:, 0], columns["y"])


def test_read_ahead_changes_nothing(expected: Seen, tmp_path: Path) -> None:
    for name in ("csv", "parquet", "jsonl", "csv.zst"):
        path = tmp_path / name
        path.write_bytes(FORMATS[name])
        assert_same(look([path], read_size=100, read_ahead=True), expected)


def test_strings_that_read_as_numbers_are_numbers_in_every_format(tmp_path: Path) -> None:
    table = pa.table({"a": ["1.5", "2", None, "4"], "b": ["x", "y", "x", None], "y": [1, 2, 3, 4]})
    seen = []
    for data in (
        csv_bytes(table),
        parquet_bytes(table),
        jsonl_bytes(table),
        arrow_bytes(table, file=False),
        parquet_bytes(table.set_column(1, "b", table["b"].dictionary_encode())),
    ):
        (tmp_path / "t").write_bytes(data)
        seen.append(look([tmp_path / "t"]))
    assert seen[0].schema is not None
    assert [column["kind"] for column in seen[0].schema["columns"]] == [
        "number",
        "category",
        "number",
    ]
    for other in seen[1:]:
        assert_same(other, seen[0])


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.decimal128(9, 2), pa.int64()]
)
def test_every_numeric_type_is_a_number(kind: pa.DataType, tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float16)
    table = pa.table({"a": pa.array(values).cast(pa.float64()).cast(kind), "y": np.arange(6) * 1.5})
    (tmp_path / "t.parquet").write_bytes(parquet_bytes(table))
    seen = look([tmp_path / "t.parquet"])
    assert not seen.error
    np.testing.assert_array_equal(seen.x[:, 0], values.astype(float))


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\x1f\x8b\x08\0\0\0\0\0", "gzip"),
        (b"\x28\xb5\x2f\xfd\0\0\0\0", "zstd"),
        (b"BZh91AY&", "bzip2"),
        (b"PAR1\0\0\0\0", "parquet"),
        (b"ARROW1\0\0", "arrow"),
        (b"\xff\xff\xff\xff\x10\0\0\0", "arrow"),
        (b'\xef\xbb\xbf{"a"', "json"),
        (b' {"a": 1', "json"),
        (b"a,b\n1,2\n", "text"),
        (b"", "text"),
    ],
)
def test_formats_are_recognised_by_content(head: bytes, kind: str) -> None:
    found = detect_format(head, "x")
    assert (found if isinstance(found, str) else found.format) == kind


def test_every_binary_format_has_a_reader_and_a_place_in_the_help() -> None:
    shown = kbnn("predict", "--help").out
    for binary in BINARIES:
        assert detect_format(binary.magic + b"\0" * 8, "x") is binary
        module, function = binary.reader.split(":")
        assert callable(getattr(import_module(module), function))
        assert binary.format in shown


@pytest.mark.parametrize(
    ("line", "delimiter"),
    [
        (b"a,b,c\n", ","),
        (b"a;b;c\n", ";"),
        (b"a\tb c\td\n", "\t"),
        (b"a|b,c|d\n", "|"),
        (b'"a,b,c";d\n', ";"),
        (b"1,5;2,25;3\n", ";"),
        (b"alone\n", ","),
    ],
)
def test_the_delimiter_is_found_in_the_first_line(line: bytes, delimiter: str) -> None:
    assert sniff_delimiter(line) == delimiter


def decoded(decoder: Decoder, data: bytes, size: int) -> bytes:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    text = b"".join(part for piece in pieces for part in decoder.decode(piece))
    decoder.finish()
    return text


@pytest.mark.parametrize("name", ["gzip", "bzip2", "zstd"])
def test_compressed_bytes_come_back_whatever_the_pieces(name: str) -> None:
    random = np.random.default_rng(1)
    text = random.integers(0, 256, 5000, dtype=np.uint8).tobytes() + b"\xff\0" * 1_200_000
    compress = COMPRESS[name]
    data = compress(text)
    for size in (97, 1000, len(data)):
        assert decoded(DECODERS[name]("x"), data, size) == text
    assert decoded(DECODERS[name]("x"), compress(text[:999]) * 2, 13) == text[:999] * 2


def test_zeros_after_a_gzip_member_are_padding() -> None:
    data = gzip.compress(b"abc", mtime=0) + b"\0" * 20
    assert decoded(DECODERS["gzip"]("x"), data, 5) == b"abc"


@pytest.mark.parametrize("name", ["gzip", "bzip2", "zstd"])
def test_a_cut_is_noticed_wherever_it_is(name: str) -> None:
    data = FORMATS[{"gzip": "csv.gz", "bzip2": "csv.bz2", "zstd": "csv.zst"}[name]]
    for end in (len(data) // 3, len(data) - 1):
        with pytest.raises(DataError, match=f"the {name} data end too early"):
            decoded(DECODERS[name]("x"), data[:end], 50)


def test_a_format_told_overrides_what_the_file_looks_like(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b'{"a;b"\ty\n1\t2\n3\t5\n')
    seen = look([tmp_path / "t"], format="tsv")
    assert seen.schema is not None
    assert [column["name"] for column in seen.schema["columns"]] == ['{"a;b"', "y"]
    assert not seen.error


@pytest.mark.parametrize("line", ["sep=;\n", "SEP=;\r\n", '"sep=;"\n'])
def test_the_line_in_which_excel_states_the_separator(line: str, tmp_path: Path) -> None:
    rows = "".join(f"{at},5;{at}\n" for at in range(40)).encode()
    (tmp_path / "plain").write_bytes(b"a;y\n" + rows)
    (tmp_path / "excel").write_bytes(b"\xef\xbb\xbf" + line.encode() + b"a;y\n" + rows)
    plain = look([tmp_path / "plain"])
    assert plain.error == ""
    for size in (1 << 16, 3):
        assert_same(look([tmp_path / "excel"], read_size=size), plain)
    (tmp_path / "excel").write_bytes(line.encode() + b"a;y\n" + rows + b"1;2;3\n")
    assert "excel:43: has 3 fields" in look([tmp_path / "excel"]).error


def test_blank_lines_above_the_header_count_as_lines(tmp_path: Path) -> None:
    rows = "".join(f"{at},{at}\n" for at in range(40))
    (tmp_path / "t").write_text(f"\n\n\na,y\n{rows}1,2,3\n")
    for size in (1 << 16, 3):
        assert "t:45: has 3 fields" in look([tmp_path / "t"], read_size=size).error


def test_truth_values_among_texts_are_the_words_of_json(tmp_path: Path) -> None:
    values = [True, "red", False, "blue"] * 10
    lines = [{"a": value, "y": at + 0.5} for at, value in enumerate(values)]
    (tmp_path / "t").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for size in (1 << 16, 16):
        seen = look([tmp_path / "t"], read_size=size)
        assert seen.schema is not None
        assert seen.schema["columns"][0]["categories"] == ["true", "red", "false", "blue"]


def test_numbers_of_json_among_texts_in_another_form_mean_what_they_mean(tmp_path: Path) -> None:
    """In the first rows and in later ones, however they are cut, learned or asked about."""
    values = ["1.250,5", 2.5, "12,25", 1000] * 9 + ["3,5"] * 30 + [0.5, 1e20] * 3
    expected = [1250.5, 2.5, 12.25, 1000.0] * 9 + [3.5] * 30 + [0.5, 1e20] * 3
    lines = [{"a": value, "y": at + 0.5} for at, value in enumerate(values)]
    (tmp_path / "t").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for size in (1 << 16, 700, 16):
        seen = look([tmp_path / "t"], read_size=size, block_rows=5)
        assert seen.error == ""
        assert seen.x[:, 0].tolist() == expected
        kept = look([tmp_path / "t"], read_size=size, original=True, on_error="keep")
        assert (kept.x[:, 0].tolist(), kept.bad) == (expected, [])


def test_columns_without_name_and_value_are_not_the_target(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("a;y;;\n" + "".join(f"{at};{at % 5}.5;;\n" for at in range(40)))
    seen = look([tmp_path / "t"])
    assert seen.error == ""
    assert "target: last column that is not empty, 'y' (choose with --target)" in seen.notices
