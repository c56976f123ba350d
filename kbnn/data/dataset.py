"""Open sources, infer or check their schema, and iterate over batches of encoded rows.

The schema is inferred from the first 32 rows without errors, whatever chunks they came in. If the
target has no value in them, reading continues to its first value, so that the target type can be
chosen. `Stream` then yields batches, pass by pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from time import monotonic
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from kbnn.array_types import IntArray
from kbnn.data import batch
from kbnn.data.batch import Rows, shuffle_batches, slice_rows
from kbnn.data.chunk import BadRow, BatchSizer, Chunk, ReadAhead, ReadHints, RowError, shorten
from kbnn.data.column_types import Notice, sample_column
from kbnn.data.csv_records import MAX_COLUMNS, ExpectedColumns
from kbnn.data.encoder import ChunkEncoder
from kbnn.data.infer import INFERENCE_ROWS, infer_schema
from kbnn.data.inputs import SourceList
from kbnn.data.jsonl_format import JsonReader
from kbnn.data.read_options import ReadOptions
from kbnn.data.reading import ChunkReader
from kbnn.data.schema import Schema
from kbnn.data.values import MissingSpellings, find_present_rows
from kbnn.errors import DataError
from kbnn.sink import Closeable

MAX_TARGET_SEARCH_ROWS: Final = 100_000  # rows searched at most for a first target value


class FirstRows(NamedTuple):
    """The chunks read so far, the column names, and the first values of each column."""

    chunks: list[Chunk]
    names: list[str]
    seen: dict[str, list[pa.Array]]


def first_row_error(chunk: Chunk, row_errors: dict[int, RowError]) -> DataError:
    """Make the error that stops a stream at its first bad row."""
    at = min(row_errors)
    remedy = f" ({row_errors[at].remedy})" if row_errors[at].remedy else ""
    return DataError(f"{chunk.make_bad_row(at, row_errors[at])}{remedy}")


def read_first_rows(
    chunks: Iterator[Chunk],
    reading: ChunkReader,
    targets: tuple[str, ...],
    features: tuple[str, ...],
    missing: MissingSpellings,
    stop: bool,
) -> FirstRows:
    """Read until column kinds can be inferred; with `stop`, a bad row among these is an error."""
    early: list[Chunk] = []
    parts: list[pa.RecordBatch] = []
    rows = last = 0
    for chunk in chunks:
        early.append(chunk)
        good = _find_good_rows(chunk, INFERENCE_ROWS - rows, stop)
        rows += len(good)
        last = chunk.first_row + int(good[-1]) if len(good) else last
        parts.append(chunk.batch.take(pa.array(good)))
        if rows >= INFERENCE_ROWS:
            break
    if not rows:
        raise DataError("no row can be used: every row has an error")
    names = _resolve_names(reading, last, features)
    seen = {name: [_get_column(part, name) for part in parts] for name in names}
    for target in targets or tuple(names[-1:]):
        if target in seen:
            _find_first_value(target, seen[target], early, chunks, missing, stop)
    return FirstRows(early, names, seen)


def _find_good_rows(
    chunk: Chunk, need: int, stop: bool
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    # The first `need` good rows are among the first `need` + (number of bad rows) rows.
    near = np.arange(min(chunk.size, need + len(chunk.row_errors)))
    good = np.setdiff1d(near, list(chunk.row_errors))[:need]
    if stop and chunk.row_errors and (len(good) < need or min(chunk.row_errors) < good[-1]):
        raise first_row_error(chunk, chunk.row_errors)
    return good


def _resolve_names(reading: ChunkReader, last: int, features: tuple[str, ...]) -> list[str]:
    """Return the columns; in JSON the keys seen up to row `last`, and the named features.

    If there are more than MAX_COLUMNS, only the columns that the user chose are returned.
    """
    reader = reading.first_reader
    if isinstance(reader, JsonReader):
        seen = reader.seen_at.items()
        names = [name for name, row in seen if row <= last or reading.opened_sources > 1]
        if not names:
            raise DataError(f"{reader.name}: every object is empty: there are no columns")
        later = [name for name in dict.fromkeys(features) if name not in names]
        for name in later:
            reading.notice(
                f"{reader.name}: no '{name}' in the first rows: missing until it appears"
            )
        first = [*later, *names]  # the last column, the default target, stays last
        reader.fix_columns(first)
    else:
        first = reading.columns
    wanted = reading.hints.wanted
    if wanted is not None and len(first) > MAX_COLUMNS:
        return [name for name in first if name in wanted]
    return first


def _get_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    at = batch.schema.get_field_index(name)
    return batch.column(at) if at >= 0 else pa.nulls(batch.num_rows)


def _find_first_value(
    name: str,
    seen: list[pa.Array],
    early: list[Chunk],
    chunks: Iterator[Chunk],
    missing: MissingSpellings,
    stop: bool,
) -> None:
    """Append the first value of a column to its sample, unless the sample has a value."""
    if any(find_present_rows(array, missing).any() for array in seen):
        return
    at = 0
    while True:
        if at == len(early):
            chunk = (
                next(chunks, None) if sum(c.size for c in early) < MAX_TARGET_SEARCH_ROWS else None
            )
            if chunk is None:
                return
            early.append(chunk)
        column = _get_column(early[at].batch, name)
        held = find_present_rows(column, missing)
        held[list(early[at].row_errors)] = False
        row_errors = [row for row in early[at].row_errors if not held[:row].any()]
        if stop and row_errors:
            raise first_row_error(early[at], early[at].row_errors)
        if held.any():
            seen.append(column.slice(int(np.argmax(held)), 1))
            return
        at += 1


def open_stream(
    sources: Any,
    *,
    options: ReadOptions | None = None,
    schema: Schema | None = None,
    on_notice: Notice = lambda text: None,
    on_bad_row: Callable[[BadRow], None] = lambda bad: None,
) -> Stream:
    """Open sources and infer their schema, or check them against one, which is not modified.

    Parameters
    ----------
    sources
        A path, a table in memory, an iterator of these (see kbnn.data.inputs), or a list.
    options
        How to read; the defaults if None.
    schema
        The schema of an existing model; None infers one from the first rows.
    on_notice
        Called with each notice, once per text.
    on_bad_row
        Called with each row that is left out.

    Returns
    -------
    Stream
        An iterator over batches of rows.
    """
    options = options or ReadOptions()
    options.check()
    return Stream(sources, options, schema, on_notice, on_bad_row)


class Stream(Closeable):
    """Iterates over batches of rows; `start_next_pass` begins the next pass."""

    def __init__(
        self,
        sources: Any,
        options: ReadOptions,
        schema: Schema | None,
        on_notice: Notice,
        on_bad_row: Callable[[BadRow], None],
    ) -> None:
        self.options = options
        self.epoch = options.epoch
        self.rows = 0
        self.bad_rows = 0
        self.source = ""
        self._bytes = 0
        self._pace = BatchSizer(options.block_rows)
        self._on_notice = on_notice
        self._on_bad_row = on_bad_row
        self._testing = False
        self._first_rows = 0, 0  # rows read to infer the schema, and their bytes
        self._sent_notices: set[str] = set()
        self._notices: deque[str] = deque()
        self._ahead: ReadAhead[Chunk] | None = None
        self._chunks: Generator[Chunk] | None = None
        self._blocks: Generator[Rows] | None = None
        self._inputs: SourceList | None = None
        self._missing = MissingSpellings(schema.missing if schema else options.na)
        self._hints = ReadHints(missing=self._missing.listed)
        if schema is None:
            self._hints.wanted, self._hints.named = options.only_columns, options.named_columns
        unused = [] if schema is None else schema.get_names("none")
        self._hints.ignored = frozenset((*options.ignore, *unused)).difference(options.key)
        try:
            self._inputs = SourceList(
                sources,
                read_size=options.read_size,
                keep=options.epochs - options.epoch > 1 or options.test_split > 0.0,
                columns=options.columns,
                notice=self._notices.append,
            )
            self._chunk_reader = self._make_chunk_reader(self._inputs)
            self._chunk_reader.admit = self._admits_new_columns(schema)
            self._chunk_reader.by_id = options.id
            self._chunks = self._limit_rows(self._chunk_reader.read_chunks())
            early: list[Chunk] = []
            if schema is None:
                self.schema, early = self._infer_schema(self._chunks)
                self._first_rows = sum(chunk.size for chunk in early), early[-1].span[1]
            else:
                options.check_against(schema)
                self.schema = schema.copy()
            self._configure_readers()
            self._blocks = self._iter_pass(early, options.skip)
            self._forward_notices()
        except BaseException:
            self.close()
            raise

    @property
    def is_live(self) -> bool:
        """Whether more rows may still arrive."""
        return self._inputs is not None and self._inputs.is_live

    @property
    def total_bytes(self) -> int | None:
        """The size of all sources, None if unknown."""
        return None if self._inputs is None else self._inputs.total_bytes

    @property
    def expected_rows(self) -> int | None:
        """The estimated number of rows, from the size of the first ones; None if unknown."""
        rows, size = self._first_rows
        if self.is_live or not size or self.total_bytes is None:
            return None
        found = rows * self.total_bytes // size
        return found if self.options.limit is None else min(found, self.options.limit)

    @property
    def bytes_read(self) -> int:
        """The bytes of the rows delivered in this pass; more may have been read ahead."""
        return self._bytes

    @property
    def columns(self) -> list[str]:
        """The column names of the first source, known once it has been opened."""
        return self._chunk_reader.columns

    @property
    def delimiter(self) -> str | None:
        """The delimiter of the first source, None if it has none."""
        return self._chunk_reader.delimiter

    def _make_chunk_reader(self, inputs: SourceList) -> ChunkReader:
        options = self.options
        return ChunkReader(
            inputs,
            self._hints,
            format=options.format,
            delimiter=options.delimiter,
            header=options.header,
            notice=self._notices.append,
        )

    def _forward_notices(self) -> None:
        """Pass each notice on once, in the caller's thread."""
        while self._notices:
            text = self._notices.popleft()
            if text not in self._sent_notices:
                self._sent_notices.add(text)
                self._on_notice(text)

    def _limit_rows(self, chunks: Generator[Chunk]) -> Generator[Chunk]:
        left = self.options.limit
        with closing(chunks):
            for chunk in chunks:
                if left is not None and chunk.size >= left:
                    if left:
                        yield chunk.slice(0, left)
                    return
                yield chunk
                if left is not None:
                    left -= chunk.size

    def _infer_schema(self, chunks: Iterator[Chunk]) -> tuple[Schema, list[Chunk]]:
        """Infer the schema from the first good rows, at most 32."""
        options = self.options
        early, names, seen = read_first_rows(
            chunks,
            self._chunk_reader,
            options.target,
            options.features,
            self._missing,
            options.on_error == "stop",
        )
        samples = [sample_column(seen[name], self._missing) for name in names]
        return infer_schema(names, samples, options, self._notices.append), early

    def _configure_readers(self) -> None:
        """Configure the readers by the schema."""
        schema, options = self.schema, self.options
        used = schema.list_used(options.use_target)
        first = [column for column in schema.columns if not column.late]
        names = [column.name for column in first]
        bare = [c.name for c in first if c.role not in ("target", "weight")]
        self._hints.wanted = None if options.original else frozenset(c.name for c in used)
        self._hints.known = frozenset(column.name for column in schema.columns)
        self._hints.late = self._chunk_reader.admit
        self._hint_kinds()
        late = schema.id is not None  # a source may hold only rows, or only targets
        self._chunk_reader.features = frozenset(
            c.name
            for c in used
            if (late and (c.role != "id" or not options.admit))
            or c.role not in ("target", "weight", "id")
        )
        optional = () if self._needs_target else ("target", "weight")
        self._chunk_reader.needed = [
            c.name for c in used if c.kind != "ignored" and c.role not in optional
        ]
        self._chunk_reader.expected = ExpectedColumns(
            names, None if self._needs_target else bare, self._find_misfit
        )

    @property
    def _needs_target(self) -> bool:
        return self.options.use_target and not self.options.target_may_be_absent

    def _admits_new_columns(self, schema: Schema | None) -> bool:
        """Return whether new columns become features."""
        chosen = bool(self.options.features) if schema is None else schema.chosen
        return self.options.admit and self.options.use_target and not chosen

    def _hint_kinds(self) -> None:
        if not self.options.original:
            columns = self.schema.columns
            usual = [c for c in columns if c.kind == "number" and c.form.is_plain]
            self._hints.numbers = frozenset(c.name for c in usual)
            self._hints.booleans = frozenset(c.name for c in columns if c.kind == "boolean")

    def _find_misfit(self, names: Sequence[str], cells: Sequence[str]) -> str | None:
        """Return why cells are not data: the first numeric column whose cell is not a number."""
        used = self.schema.list_used(self.options.use_target)
        forms = {column.name: column.form for column in used if column.kind == "number"}
        for name, cell in zip(names, cells, strict=True):
            if name not in forms or cell in (*self._hints.missing, forms[name].gap):
                continue
            if forms[name].parse_number(cell) is None:
                return f"column '{name}': cannot read '{shorten(cell)}' as a number"
        return None

    def _iter_pass(self, early: list[Chunk], skip: int) -> Generator[Rows]:
        """Yield the batches of one pass."""
        options = self.options
        chunks: Iterator[Chunk] = self._chunks or iter(())
        if options.read_ahead and self._inputs is not None and self._inputs.supports_read_ahead:
            chunks = self._ahead = ReadAhead(chunks)
        blocks = self._encode_chunks(chain(early, chunks), skip)
        if options.test_split:
            blocks = batch.select_split(
                blocks, options.test_split, options.seed, testing=self._testing
            )
        if options.shuffle and not self._testing:
            blocks = shuffle_batches(blocks, options.shuffle_rows, options.seed, self.epoch)
        for block in blocks:
            start = min(skip, len(block.y))
            skip -= start
            while start < len(block.y):
                part = slice_rows(block, start, start + self._pace.rows)
                start += len(part.y)
                self.rows += len(part.y)
                began = monotonic()
                yield part
                self._pace.record_duration(len(part.y), monotonic() - began)
        self._bytes = self._chunk_reader.bytes_read

    def _encode_chunks(self, chunks: Iterable[Chunk], skip: int) -> Iterator[Rows]:
        """Encode chunks in pieces of one batch; report the rows that are left out."""
        options = self.options
        encoder = ChunkEncoder(
            self.schema,
            on_error=options.on_error,
            admit=options.admit,
            use_target=options.use_target,
            original=options.original,
            late=self._chunk_reader.admit,
            keyed=bool(options.key),
            notice=self._notices.append,
        )
        good = 0
        undecided = self._count_undecided()
        for whole in chunks:
            start = 0
            while start < whole.size:
                chunk = whole.slice(start, min(start + self._pace.rows, whole.size))
                start += chunk.size
                self.source = chunk.source
                block, row_errors, stopped = encoder.encode(chunk)
                if stopped:
                    if block is not None:
                        yield block
                    raise first_row_error(chunk, row_errors)
                for at, row_error in row_errors.items():
                    # Bad rows before the point of resumption were reported by the first run.
                    good_rows = [
                        k for k in range(at) if options.on_error == "keep" or k not in row_errors
                    ]
                    if (
                        good
                        + self._count_pass_rows(chunk.first_row + np.array(good_rows, np.int64))
                        >= skip
                    ):
                        self.bad_rows += 1
                        if not self._testing:
                            self._on_bad_row(chunk.make_bad_row(at, row_error))
                self._bytes = chunk.span[1]
                if block is not None:
                    good += self._count_pass_rows(block.number)
                    yield block
                if undecided and self._count_undecided() != undecided:
                    undecided = self._count_undecided()
                    self._hint_kinds()

    def _count_pass_rows(self, number: IntArray) -> int:
        """Count the rows, given by number, that this pass delivers."""
        options = self.options
        if not options.test_split:
            return len(number)
        out = batch.is_held_out(number, options.test_split, options.seed)
        return int(np.count_nonzero(out == self._testing))

    def _count_undecided(self) -> int:
        return sum(column.kind == "undecided" for column in self.schema.columns)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Rows:
        try:
            return next(self._blocks or iter(()))
        finally:
            self._forward_notices()

    def start_next_pass(self, *, testing: bool = False) -> None:
        """Start the next pass from the first row; `testing`: over the held-out rows."""
        self._stop_reading()
        assert self._inputs is not None
        self.epoch += 1
        self._testing = testing
        self.rows = self.bad_rows = self._bytes = 0
        self._chunk_reader = self._make_chunk_reader(self._inputs)
        self._chunk_reader.admit = self._admits_new_columns(self.schema)
        self._configure_readers()
        self._chunks = self._limit_rows(self._chunk_reader.read_chunks())
        self._blocks = self._iter_pass([], 0)

    def _stop_reading(self) -> None:
        """Stop reading this pass."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None
        for running in (self._blocks, self._chunks):
            if running is not None:
                running.close()

    def close(self) -> None:
        """Stop reading and remove temporary files; a second call does nothing."""
        self._stop_reading()
        if self._inputs is not None:
            self._inputs.close()
