"""Every broken input gets its sentence at any size of reads; the good rows before it pass."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kbnn.data.chunk import BadRow
from kbnn.data.dataset import open_stream
from kbnn.data.read_options import ReadOptions
from kbnn.data.schema import Schema
from tests.broken_inputs import ALL, Broken
from tests.streams import assert_same, look, parquet_bytes


@pytest.mark.parametrize("broken", ALL, ids=[broken.name for broken in ALL])
def test_the_sentence(broken: Broken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t").write_bytes(broken.data)
    seen = look(["t"], **broken.options)
    assert seen.error.partition(": ")[2] == broken.error.format(f="t")
    if len(broken.data) < 10_000:
        for read_size, read_ahead in ((1, False), (13, True)):
            again = look(["t"], read_size=read_size, read_ahead=read_ahead, **broken.options)
            assert again.error == seen.error
            assert again.rows == seen.rows


def test_there_are_enough_of_them() -> None:
    assert len(ALL) >= 70
    assert len({broken.name for broken in ALL}) == len(ALL)


def test_a_flaw_far_from_the_start_is_found_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = [f"{at},{at % 7},{at % 5}" for at in range(100_000)]
    lines[99_999] = "12,oops,3"
    path.write_text("a,b,y\n" + "\n".join(lines) + "\n")
    seen = look([path])
    assert seen.error.endswith(
        "t.csv:100001: column 'b': cannot read 'oops' as a number "
        "(use --na 'oops' or --on-error skip)"
    )
    assert seen.rows == list(range(1, 100_000))


FLAWED = (
    b'a,b,y\n1,x,2\n2,y\n3,"z\nz",4\nbad,x,5\n5,x,inf\n6,\xff,7\n7,x,8\n8,w,nope\n'
    b"9,x,1\n1,x,1\n2,x,1\n3,x,1\n4,x,1\n5,x,1\n6,x,1\n7,x,1\n8,x,1\n9,x,1\n"
    b'10,y,11\n11,"open,12\n12,y,13\n'
)
BAD = [
    "t:3: has 2 fields, the header has 3",
    "t:6: column 'a': cannot read 'bad' as a number",
    "t:7: column 'y': inf is not a finite number",
    "t:8: column 'b': byte 0xFF is not UTF-8",
    "t:10: column 'y': cannot read 'nope' as a number",
    "t:22: a quote is opened and never closed",
]


@pytest.mark.parametrize("on_error", ["skip", "keep"])
def test_flawed_rows_are_left_out_or_kept_as_missing(
    on_error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t").write_bytes(FLAWED)
    seen = look(["t"], on_error=on_error)
    assert seen.bad == BAD
    bad_rows = [2, 4, 5, 6, 8, 20]
    every = list(range(1, 22))
    if on_error == "skip":
        assert seen.rows == [row for row in every if row not in bad_rows]
        assert np.isfinite(seen.x).all()
    else:
        assert seen.rows == every
        assert np.flatnonzero(np.isnan(seen.y[:, 0])).tolist() == [row - 1 for row in bad_rows]
        assert np.isnan(seen.x[[row - 1 for row in bad_rows], 0]).all()
    for read_size in (1, 3, 10, 50):
        for block_rows in (1, 4, 4096):
            assert_same(
                look(["t"], on_error=on_error, read_size=read_size, block_rows=block_rows), seen
            )


def test_a_bad_row_admits_nothing(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("a,b,y\n1,x,2\n2,y,3\n3,x,4\n4,z,inf\n5,y,6\n")
    seen = look([tmp_path / "t"], on_error="skip")
    assert seen.schema is not None
    assert seen.schema["columns"][1]["categories"] == ["x", "y"]


def test_bad_rows_are_fields_for_a_file(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("a,y\n1,2\n3,4\n5,6\nx,8\n")
    found: list[BadRow] = []
    options = ReadOptions(on_error="skip")
    with open_stream([str(tmp_path / "t")], options=options, on_bad_row=found.append) as stream:
        assert sum(len(block.number) for block in stream) == 3
        assert stream.bad_rows == 1
    (bad,) = found
    assert bad[1:] == (5, "a", "x", "cannot read 'x' as a number", True, 4)


def schema_of(text: str, folder: Path) -> Schema:
    (folder / "known").write_text(text)
    with open_stream([str(folder / "known")]) as stream:
        list(stream)
        return stream.schema


@pytest.mark.parametrize(
    ("data", "error", "options"),
    [
        (b"tmp,hum,y\n1,2,3\n", "t: no column 'temp' (did you mean 'tmp'?)", {}),
        (
            b"p,q,r\n1,2,3\n",
            "t:1: the first line is neither the expected header (temp, hum, y) nor data: "
            "column 'temp': cannot read 'p' as a number",
            {},
        ),
        (
            b"1,2\n",
            "t:1: the first line is not the expected header (temp, hum, y) and has 2 fields "
            "where the data have 3",
            {},
        ),
        (b"temp,hum\n1,2\n", "t: no column 'y' (available: temp, hum)", {}),
        (
            parquet_bytes(pa.table({"q": [1], "y": [3]})),
            "t: no column 'temp' (available: q, y)",
            {},
        ),
        (b'{"q": 1}\n', "t: no column 'temp' (available: q)", {}),
        (b"temp,hum,y\n1,2,3\n", "the model predicts 'y', not 'hum'", {"target": ("hum",)}),
        (
            b"temp,hum,y\n1,2,3\n",
            "the model is a regression, not a classification",
            {"task": "classification"},
        ),
        (
            b"temp,hum,y\n1,2,3\n",
            "the model was trained without the weight 'hum'",
            {"weight": "hum"},
        ),
    ],
)
def test_data_that_do_not_fit_a_model(
    data: bytes,
    error: str,
    options: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    schema = schema_of("temp,hum,y\n1,2,3\n2,3,4\n", tmp_path)
    Path("t").write_bytes(data)
    assert look(["t"], schema, **options).error.partition(": ")[2] == error


def test_an_unseen_class_cannot_be_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    schema = schema_of("a,y\nx,p\ny,q\n", tmp_path)
    Path("t").write_text("a,y\nnew,p\nx,zz\n")
    seen = look(["t"], schema, admit=False)
    assert seen.error == (
        "DataError: t:3: column 'y': class 'zz' was never learned (use --on-error skip)"
    )
    assert seen.x.tolist() == [[0, 0]]
    assert seen.schema == schema.to_json()


@pytest.mark.parametrize(
    ("sources", "error"),
    [
        (["nowhere.csv"], "nowhere.csv: no such file"),
        (["tabel.csv"], "tabel.csv: no such file (did you mean 'table.csv'?)"),
        (["*.xyz"], "*.xyz: no file matches"),
        (["folder"], "folder: is a folder without Parquet files (*.parquet)"),
    ],
)
def test_sources_that_are_not_there(
    sources: list[str], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text("a,y\n1,2\n")
    os.mkdir("folder")
    assert look(sources).error == f"DataError: {error}"
