"""Helpers for tests of streams: a table in every format, and everything a stream says."""

from __future__ import annotations

import bz2
import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from kbnn.data.batch import Rows
from kbnn.data.chunk import BadRow
from kbnn.data.dataset import open_stream
from kbnn.data.read_options import ReadOptions
from kbnn.data.schema import Schema
from kbnn.errors import KbnnError


class Seen(NamedTuple):
    """All a stream gave: arrays of all rows, the schema at the end, and every word."""

    x: npt.NDArray[np.float64]
    x_sd: npt.NDArray[np.float64] | None
    y: npt.NDArray[np.float64]
    weight: npt.NDArray[np.float64] | None
    rows: list[int]
    schema: dict[str, Any] | None
    bad: list[str]
    notices: list[str]
    error: str


def put_together(blocks: Sequence[Rows]) -> Rows:
    """All rows; narrower blocks lack what came later: no category was there, numbers missing."""
    width = max((block.x.shape[1] for block in blocks), default=0)

    def wide(part: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        schema, known = blocks[-1].schema, part.shape[1]
        padded = np.pad(part, ((0, 0), (0, width - known)))
        for at, place in enumerate(schema.layout if schema else ()):
            if at >= known and place.category is None:
                padded[:, at] = np.nan
        return padded

    if not blocks:
        return Rows(np.zeros((0, 0)), np.zeros((0, 1)), np.zeros(0, np.int64))
    first = blocks[0]
    return Rows(
        np.concatenate([wide(block.x) for block in blocks]),
        np.concatenate([block.y for block in blocks]),
        np.concatenate([block.number for block in blocks]),
        None
        if first.x_sd is None
        else np.concatenate([wide(b.x_sd) for b in blocks if b.x_sd is not None]),
        None
        if first.weight is None
        else np.concatenate([b.weight for b in blocks if b.weight is not None]),
    )


def look(paths: Sequence[str | Path], schema: Schema | None = None, **options: Any) -> Seen:
    """Read sources to their end, or to their error, and keep everything."""
    blocks: list[Rows] = []
    bad: list[BadRow] = []
    notices: list[str] = []
    error, found = "", None
    try:
        with open_stream(
            [str(path) for path in paths],
            options=ReadOptions(**options),
            schema=schema,
            on_notice=notices.append,
            on_bad_row=bad.append,
        ) as stream:
            found = stream.schema
            for block in stream:
                assert block.x.shape == (len(block.number), stream.schema.width)
                blocks.append(block)
    except KbnnError as caught:
        error = f"{type(caught).__name__}: {caught}"
    whole = put_together(blocks)
    return Seen(
        whole.x,
        whole.x_sd,
        whole.y,
        whole.weight,
        whole.number.tolist(),
        None if found is None else found.to_json(),
        [str(row) for row in bad],
        notices,
        error,
    )


def assert_same(one: Seen, other: Seen, *, words: bool = True) -> None:
    """Two readings gave the same, bit for bit; with `words` they said the same too."""
    np.testing.assert_array_equal(one.x, other.x)
    np.testing.assert_array_equal(one.y, other.y)
    for a, b in ((one.x_sd, other.x_sd), (one.weight, other.weight)):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            np.testing.assert_array_equal(a, b)
    assert one.rows == other.rows
    if words:
        assert one.schema == other.schema
        assert one.bad == other.bad
        assert one.error == other.error
        assert sorted(one.notices) == sorted(other.notices)


def mixed_table(rows: int = 90, seed: int = 0) -> pa.Table:
    """Numbers, gaps, truth values, categories that keep coming, a late column, a number target."""
    random = np.random.default_rng(seed)
    number = [round(float(v), 3) for v in random.normal(size=rows)]
    gaps = [None if random.random() < 0.2 else float(v) for v in random.integers(0, 9, rows)]
    flag = [None if random.random() < 0.1 else bool(random.random() < 0.5) for _ in range(rows)]
    town = [
        None if random.random() < 0.15 else f"town {int(random.integers(0, 2 + at // 8))}"
        for at in range(rows)
    ]
    late = [None if at < rows // 2 else float(at) for at in range(rows)]
    tint = [None if at < rows // 2 + 3 else "red" if at % 3 else "a, b" for at in range(rows)]
    return pa.table(
        {
            "number": pa.array(number, pa.float64()),
            "gaps": pa.array(gaps, pa.float64()),
            "flag": pa.array(flag, pa.bool_()),
            "town": pa.array(town, pa.string()),
            "late": pa.array(late, pa.float64()),
            "tint": pa.array(tint, pa.string()),
            "y": pa.array([round(3 * v + 1, 4) for v in number], pa.float64()),
        }
    )


def csv_bytes(table: pa.Table, delimiter: str = ",") -> bytes:
    """The table as delimited text."""
    out = io.BytesIO()
    options = pyarrow.csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
    pyarrow.csv.write_csv(table, out, options)
    return out.getvalue()


def jsonl_bytes(table: pa.Table) -> bytes:
    """The table as JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


def zstd_bytes(data: bytes) -> bytes:
    """A zstd frame."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        out.write(data)
    return bytes(sink.getvalue().to_pybytes())


def arrow_bytes(table: pa.Table, *, file: bool, rows: int = 7) -> bytes:
    """The table as an Arrow file or stream, in small batches."""
    sink = pa.BufferOutputStream()
    make = pa.ipc.new_file if file else pa.ipc.new_stream
    with make(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=rows):
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def parquet_bytes(table: pa.Table, rows: int = 7) -> bytes:
    """The table as Parquet, in small row groups."""
    out = io.BytesIO()
    pyarrow.parquet.write_table(table, out, row_group_size=rows)
    return out.getvalue()


def every_format(table: pa.Table) -> dict[str, bytes]:
    """The same table in every form that can be read."""
    text = csv_bytes(table)
    return {
        "csv": text,
        "crlf": text.replace(b"\n", b"\r\n"),
        "bom": b"\xef\xbb\xbf" + text,
        "cr": text.replace(b"\n", b"\r"),
        "unended": text.rstrip(b"\n"),
        "tsv": csv_bytes(table, "\t"),
        "semicolon": csv_bytes(table, ";"),
        "bar": csv_bytes(table, "|"),
        "jsonl": jsonl_bytes(table),
        "csv.gz": gzip.compress(text, mtime=0),
        "two members": gzip.compress(text[:100], mtime=0) + gzip.compress(text[100:], mtime=0),
        "csv.bz2": bz2.compress(text),
        "csv.zst": zstd_bytes(text),
        "jsonl.gz": gzip.compress(jsonl_bytes(table), mtime=0),
        "parquet": parquet_bytes(table),
        "arrow": arrow_bytes(table, file=True),
        "arrows": arrow_bytes(table, file=False),
    }
