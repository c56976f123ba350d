"""Sources: files, globs, folders, pipes; a row is there as soon as its newline is."""

from __future__ import annotations

import gzip
import os
import queue
import sys
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kbnn.data.batch import Rows
from kbnn.data.chunk import ReadAhead
from kbnn.data.dataset import open_stream
from kbnn.data.read_options import ReadOptions
from kbnn.data.schema import Schema
from kbnn.data.sources import Source, expand_paths
from kbnn.errors import DataError, UsageError
from tests.streams import assert_same, every_format, look, mixed_table, parquet_bytes

FORMATS = every_format(mixed_table(50))
PATIENCE = 20  # seconds until a test that would hang fails instead


class Pipe:
    """The end of a pipe that is written to."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def write(self, data: bytes) -> None:
        os.write(self.fd, data)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def write_all(self, data: bytes) -> threading.Thread:
        """Write in the background and close."""

        def run() -> None:
            view = memoryview(data)
            while view:
                view = view[os.write(self.fd, view) :]
            self.close()

        thread = threading.Thread(target=run)
        thread.start()
        return thread


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    """The end to write to; standard input is the other."""
    read, write = os.pipe()
    pipe = Pipe(write)
    with os.fdopen(read) as file:
        monkeypatch.setattr(sys, "stdin", file)
        yield pipe
        pipe.close()


@pytest.mark.parametrize("name", FORMATS)
def test_standard_input_is_like_a_file(name: str, stdin: Pipe, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(FORMATS[name])
    expected = look([tmp_path / "t"])
    writer = stdin.write_all(FORMATS[name])
    assert_same(look(["-"]), expected)
    writer.join()


def test_a_named_pipe_is_read_like_standard_input(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(FORMATS["csv"])
    read, write = os.pipe()
    writer = Pipe(write).write_all(FORMATS["csv"])
    assert_same(look([f"/dev/fd/{read}"]), look([tmp_path / "t"]))
    writer.join()
    os.close(read)


class Live:
    """A stream read in a thread; `rows` waits for rows and says which arrived."""

    def __init__(self, schema: Schema | None = None, **options: Any) -> None:
        self._blocks: queue.Queue[Rows | BaseException | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, args=(schema, options), daemon=True)
        self._thread.start()

    def _run(self, schema: Schema | None, options: dict[str, Any]) -> None:
        try:
            with open_stream(["-"], options=ReadOptions(**options), schema=schema) as stream:
                for block in stream:
                    self._blocks.put(block)
            self._blocks.put(None)
        except BaseException as error:  # handed to the test
            self._blocks.put(error)

    def rows(self, number: int) -> list[int]:
        """Wait until `number` rows have arrived."""
        got: list[int] = []
        while len(got) < number:
            block = self._blocks.get(timeout=PATIENCE)
            assert isinstance(block, Rows), block
            got.extend(block.number.tolist())
        return got

    def ended(self) -> bool:
        """Wait for the end."""
        return self._blocks.get(timeout=PATIENCE) is None


def schema_of(data: bytes, folder: Path) -> Schema:
    (folder / "known").write_bytes(data)
    with open_stream([str(folder / "known")]) as stream:
        return stream.schema


def test_a_row_is_delivered_when_its_newline_arrives(stdin: Pipe, tmp_path: Path) -> None:
    schema = schema_of(b"a,b,y\n1,x,2\n3,y,4\n", tmp_path)
    live = Live(schema)
    stdin.write(b"a,b,y\n1,x,2\n")
    assert live.rows(1) == [1]
    stdin.write(b'4,"q\n')
    stdin.write(b'r",5\n7')
    assert live.rows(1) == [2]
    stdin.write(b",z,8\n9,x,9\n1")
    assert live.rows(2) == [3, 4]
    stdin.write(b",w,9")
    stdin.close()
    assert live.rows(1) == [5]
    assert live.ended()


def test_without_a_schema_rows_flow_after_the_warm_up(stdin: Pipe) -> None:
    live = Live()
    stdin.write(b"a,y\n" + b"".join(b"%d,%d\n" % (at, at * 2) for at in range(32)))
    assert live.rows(32) == list(range(1, 33))
    stdin.write(b"1,2\n")
    assert live.rows(1) == [33]


def test_a_line_without_header_is_data_when_columns_are_known(stdin: Pipe, tmp_path: Path) -> None:
    live = Live(schema_of(b"a,b,y\n1,x,2\n3,y,4\n", tmp_path))
    stdin.write(b"5,x,6\n")
    assert live.rows(1) == [1]


def test_rows_come_through_gzip_when_it_is_flushed(stdin: Pipe, tmp_path: Path) -> None:
    live = Live(schema_of(b"a,y\n1,2\n", tmp_path))
    gz = zlib.compressobj(wbits=31)
    stdin.write(gz.compress(b"a,y\n1,2\n3") + gz.flush(zlib.Z_SYNC_FLUSH))
    assert live.rows(1) == [1]
    stdin.write(gz.compress(b",4\n") + gz.flush(zlib.Z_SYNC_FLUSH))
    assert live.rows(1) == [2]


def test_rows_come_through_zstd_when_it_is_flushed(stdin: Pipe, tmp_path: Path) -> None:
    live = Live(schema_of(b"a,y\n1,2\n", tmp_path))
    with (
        os.fdopen(os.dup(stdin.fd), "wb", buffering=0) as file,
        pa.PythonFile(file, mode="w") as sink,
        pa.CompressedOutputStream(sink, "zstd") as out,
    ):
        out.write(b"a,y\n1,2\n3")
        out.flush()
        assert live.rows(1) == [1]
        out.write(b",4\n5,6\n")
        out.flush()
        assert live.rows(2) == [2, 3]


def test_json_lines_and_arrow_batches_are_live_too(
    stdin: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = schema_of(b"a,y\n1,2\n", tmp_path)
    live = Live(schema)
    stdin.write(b'{"a": 1, "y": 2}\n{"a"')
    assert live.rows(1) == [1]
    stdin.write(b': 3, "y": 4}\n')
    assert live.rows(1) == [2]
    read, write = os.pipe()
    with os.fdopen(read) as file, os.fdopen(write, "wb", buffering=0) as out:
        monkeypatch.setattr(sys, "stdin", file)
        live = Live(schema)
        batch = pa.record_batch({"a": [1.0, 2.0], "y": [3.0, 4.0]})
        with pa.ipc.new_stream(pa.PythonFile(out, mode="w"), batch.schema) as writer:
            writer.write_batch(batch)
            assert live.rows(2) == [1, 2]


def test_epochs_over_a_pipe_keep_it_in_a_temporary_file(stdin: Pipe, tmp_path: Path) -> None:
    for name in ("csv", "csv.gz", "parquet"):
        (tmp_path / name).write_bytes(FORMATS[name])
    writer = stdin.write_all(FORMATS["csv.gz"])
    notices: list[str] = []
    options = ReadOptions(epochs=3)
    with open_stream(["-"], options=options, on_notice=notices.append) as stream:
        first = np.concatenate([block.y for block in stream])
        writer.join()
        for _ in range(2):
            stream.start_next_pass()
            np.testing.assert_array_equal(np.concatenate([block.y for block in stream]), first)
        source = next(iter(stream._inputs or ()))
        assert isinstance(source, Source)
        spool = source._spool
        assert spool is not None
        path = spool.name
        assert os.path.exists(path)
    assert not os.path.exists(path)
    assert "stdin is kept in a temporary file for later epochs" in notices


def test_a_pipe_cannot_be_reopened_unless_it_was_kept(stdin: Pipe) -> None:
    stdin.write_all(FORMATS["csv"]).join()
    with open_stream(["-"]) as stream:
        list(stream)
        stream.start_next_pass()
        with pytest.raises(UsageError, match="can be read only once"):
            list(stream)


def test_parquet_from_a_pipe_is_spooled_and_can_be_reopened(stdin: Pipe) -> None:
    writer = stdin.write_all(FORMATS["parquet"])
    with open_stream(["-"], options=ReadOptions(epochs=2)) as stream:
        first = sum(len(block.number) for block in stream)
        stream.start_next_pass()
        assert sum(len(block.number) for block in stream) == first == 50
    writer.join()


def test_globs_folders_and_lists(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "c.txt"):
        (tmp_path / name).write_text("a,y\n1,2\n")
    folder = tmp_path / "set" / "part=1"
    folder.mkdir(parents=True)
    (folder / "x.parquet").write_bytes(b"")
    (folder / "_metadata.parquet").write_bytes(b"")
    (folder / "notes.txt").write_bytes(b"")
    assert expand_paths([str(tmp_path / "*.csv")]) == [
        str(tmp_path / n) for n in ("a.csv", "b.csv")
    ]
    assert expand_paths([str(tmp_path / "set")]) == [str(folder / "x.parquet")]
    assert expand_paths(["-", str(tmp_path / "c.txt")]) == ["-", str(tmp_path / "c.txt")]
    odd = tmp_path / "odd[1].csv"
    odd.write_text("a,y\n1,2\n")
    assert expand_paths([str(odd)]) == [str(odd)]


def test_several_files_match_by_name(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b,y\n1,x,2\n3,y,4\n")
    (tmp_path / "2.csv").write_text("y;extra;b;a\n6;0;z;5\n")
    (tmp_path / "3.parquet").write_bytes(parquet_bytes(pa.table({"b": ["x"], "y": [8], "a": [7]})))
    (tmp_path / "4.jsonl").write_text('{"y": 10, "a": 9, "b": "y"}\n')
    seen = look(sorted(tmp_path.iterdir()))
    assert not seen.error
    assert seen.x[:, 0].tolist() == [1, 3, 5, 7, 9]
    assert seen.y[:, 0].tolist() == [2, 4, 6, 8, 10]
    assert seen.rows == [1, 2, 1, 1, 1]
    assert seen.x[:, 2].tolist()[2:3] == [0.0]
    fate = "it is learned from now on (--features names those to learn)"
    assert f"{tmp_path}/2.csv: the column 'extra' comes first in row 1: {fate}" in seen.notices
    for read_size in (1, 5):
        again = look(sorted(tmp_path.iterdir()), read_size=read_size, block_rows=1)
        assert_same(again, seen)


def test_files_without_header_go_by_position(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("1,2,3\n4,5,6\n")
    (tmp_path / "2.csv").write_text("7,8,9\n")
    seen = look([tmp_path / "1.csv", tmp_path / "2.csv"])
    assert seen.x.tolist() == [[1, 2], [4, 5], [7, 8]]
    assert seen.notices[0] == (
        f"{tmp_path}/1.csv has no header: the first line is all numbers, so columns are named "
        "column1 to column3 (use --header if it names them)"
    )


def test_a_line_of_numbers_with_the_name_of_the_target_is_a_header(tmp_path: Path) -> None:
    (tmp_path / "t").write_text('"","1940","1960"\n1,22.2,86.8\n2,10.5,46.2\n3,3.53,21.1\n')
    seen = look([tmp_path / "t"], target=("1960",))
    assert seen.y[:, 0].tolist() == [86.8, 46.2, 21.1]
    assert seen.schema is not None
    assert [column["name"] for column in seen.schema["columns"]] == ["column1", "1940", "1960"]
    assert "no column '1950'" in look([tmp_path / "t"], target=("1950",)).error
    assert look([tmp_path / "t"], target=("1960",), header=False).error


def test_progress_is_counted_in_bytes(tmp_path: Path) -> None:
    for name in ("csv", "parquet", "csv.gz"):
        path = tmp_path / name
        path.write_bytes(FORMATS[name])
        with open_stream([str(path), str(path)]) as stream:
            assert stream.total_bytes == 2 * len(FORMATS[name])
            list(stream)
            assert stream.bytes_read == stream.total_bytes
            assert not stream.is_live


def test_a_live_stream_has_no_size(stdin: Pipe) -> None:
    stdin.write_all(FORMATS["csv"]).join()
    with open_stream(["-"]) as stream:
        assert stream.is_live
        assert stream.total_bytes is None
        list(stream)
        assert stream.bytes_read == len(FORMATS["csv"])


def test_what_is_there_is_read_at_once(stdin: Pipe) -> None:
    source = Source("-", read_size=1000)
    with source.open() as reader:
        stdin.write(b"abc\n")
        assert reader.peek_head() == b"abc\n"
        assert reader.read() == b"abc\n"
        stdin.write(b"d")
        stdin.write(b"e" * 1500)
        assert len(reader.read()) == 1000
        assert len(reader.read()) == 501
        stdin.close()
        assert reader.read() == b""


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "long.csv.gz"

    def peak(rows: int) -> int:
        with gzip.open(path, "wb", compresslevel=1) as file:
            file.write(b"a,b,y\n")
            for at in range(0, rows, 1000):
                file.write(b"".join(b"%d,k%d,%d\n" % (at + k, k % 7, k) for k in range(1000)))
        options = ReadOptions(read_size=1 << 14)
        tracemalloc.start()
        with open_stream([str(path)], options=options) as stream:
            assert sum(len(block.number) for block in stream) == rows
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    peak(1000)
    assert peak(200_000) < peak(40_000) + 3_000_000


def test_read_ahead_is_bounded_and_stops_cleanly() -> None:
    made: list[int] = []
    closed = threading.Event()

    def items() -> Iterator[int]:
        try:
            for at in range(1000):
                made.append(at)
                yield at
        finally:
            closed.set()

    ahead = ReadAhead(items())
    assert [next(ahead) for _ in range(3)] == [0, 1, 2]
    ahead.close()
    assert closed.is_set()
    assert len(made) <= 3 + 2 + 3
    assert list(ahead) == []
    ahead.close()


def test_read_ahead_hands_over_the_error_in_its_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise DataError("here")

    ahead = ReadAhead(items())
    assert next(ahead) == 1
    assert next(ahead) == 2
    with pytest.raises(DataError, match="here"):
        next(ahead)
    assert list(ahead) == []


def test_a_stream_left_half_way_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(FORMATS["csv"])
    before = threading.active_count()
    with open_stream([str(tmp_path / "t.csv")], options=ReadOptions(read_size=64)) as stream:
        next(stream)
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: expand_paths([]), "no input: name a file, or - for standard input"),
        (lambda: expand_paths(["-", "-"]), r"standard input \(-\) can be read only once"),
    ],
)
def test_sources_that_contradict(make: Callable[[], object], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        make()
