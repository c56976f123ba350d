"""The sources of a stream: files, tables in memory, or an iterator that brings them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kbnn.closing import Closeable
from kbnn.errors import UsageError
from kbnn.stream.chunk import shorten
from kbnn.stream.memory import TableSource, is_row_list, is_table, rows_as_columns
from kbnn.stream.sources import STDIN, Source, expand_paths, parse_folder_columns

AnySource = Source | TableSource


class SourceList(Closeable):
    """Sources in order, to be gone through once a pass.

    Those of an iterator are taken from it as they are needed, in the thread that reads them; they
    stay for later passes where `keep` says that there are any.
    """

    def __init__(
        self,
        data: Any,
        *,
        read_size: int,
        keep: bool,
        columns: Sequence[str] | None,
        notice: Callable[[str], None],
    ) -> None:
        self._read_size = read_size
        self._keep = keep
        self._columns = columns
        self._notice = notice
        self._made: list[AnySource] = []
        self._more: Iterator[Any] | None = None
        for item in _list_items(data):
            if isinstance(item, Iterator) and not is_table(item):
                self._more = item
                if keep:
                    notice("data are kept in memory for later epochs")
            else:
                self._made.extend(self._make_sources(item))
        if columns is not None and not any(isinstance(s, TableSource) for s in self._made):
            self._refuse_columns()

    def _refuse_columns(self) -> None:
        if self._more is None:
            raise UsageError("columns names those of a numpy array: a file has names")

    def _make_sources(self, item: Any) -> Iterable[AnySource]:
        if isinstance(item, str | os.PathLike):
            return self._make_file_sources(os.fspath(item))
        if not is_table(item):
            raise UsageError(
                f"data cannot be a {type(item).__name__}: give a table (pandas, polars, Arrow, "
                "duckdb), a dict of arrays, a numpy array, a path, or an iterator of those"
            )
        source = TableSource(item, self._columns, keep=self._keep)
        if self._keep and source.is_read_once:
            self._notice("data are kept in memory for later epochs")
        return [source]

    def _make_file_sources(self, path: str) -> list[Source]:
        """The files that a path, a glob or a folder stands for."""
        if not os.path.isdir(path):
            return [self._make_file_source(one, {}) for one in expand_paths([path])]
        found = {one: parse_folder_columns(path, one) for one in expand_paths([path])}
        named = dict.fromkeys(name for columns in found.values() for name in columns)
        if named:
            told = ", ".join(map(shorten, named))
            self._notice(f"{path}: the names of its folders are columns: {told}")
        return [self._make_file_source(one, columns) for one, columns in found.items()]

    def _make_file_source(self, path: str, columns: dict[str, str | None]) -> Source:
        source = Source(path, read_size=self._read_size, keep=self._keep, columns=columns)
        if self._keep and source.is_read_once:
            self._notice(f"{source.name} is kept in a temporary file for later epochs")
        return source

    def __iter__(self) -> Iterator[AnySource]:
        yield from self._made
        for item in self._more or ():
            for source in self._make_sources(item):
                if self._keep:
                    self._made.append(source)
                yield source

    @property
    def is_single(self) -> bool:
        """Whether there is but one source."""
        return self._more is None and len(self._made) == 1

    @property
    def is_live(self) -> bool:
        """Whether rows may still be on their way."""
        return self._more is not None or any(source.is_live for source in self._made)

    @property
    def supports_read_ahead(self) -> bool:
        """Whether it helps to read ahead in a thread: files, and nothing that others run."""
        return not self.is_live and all(isinstance(source, Source) for source in self._made)

    @property
    def total_bytes(self) -> int | None:
        """The size of all sources, None when it cannot be known."""
        sizes = [source.size for source in self._made]
        return None if self.is_live or None in sizes else sum(size or 0 for size in sizes)

    def close(self) -> None:
        """Remove temporary files."""
        for source in self._made:
            source.close()


def _list_items(data: Any) -> list[Any]:
    """One thing or several, each checked as far as it can be without being read."""
    if is_row_list(data):
        data = rows_as_columns(data)
    several = list(data) if isinstance(data, list | tuple) else [data]
    if not several:
        raise UsageError("no input: name a file, or - for standard input")
    if sum(isinstance(item, str) and item == STDIN for item in several) > 1:
        raise UsageError("standard input (-) can be read only once")
    return several


def list_source_names(data: Any) -> tuple[str, ...]:
    """The sources by name; whatever has none came from elsewhere, as standard input does."""
    return tuple(
        os.fspath(item) if isinstance(item, str | os.PathLike) else STDIN
        for item in _list_items(data)
    )


def list_source_paths(data: Any) -> tuple[str, ...]:
    """Those of the sources that have a name."""
    return tuple(name for name in list_source_names(data) if name != STDIN)
