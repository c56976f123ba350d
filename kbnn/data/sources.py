"""Read bytes from files, globs, folders of Parquet, pipes and standard input; decompress them.

`ByteReader.read` returns the bytes that are available and never waits for a full buffer, so that
a pipe is processed as it arrives. Decoders output data as soon as the compressor has flushed it:
`decode(data)` yields pieces of at most PIECE_BYTES, and `finish()` raises DataError if the input
was truncated.
"""

from __future__ import annotations

import bz2
import difflib
import glob
import os
import select
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, Protocol
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from kbnn.data.formats import has_enough_bytes
from kbnn.errors import DataError, UsageError
from kbnn.sink import Closeable
from kbnn.wording import describe_os_error

STDIN: Final = "-"
READ_SIZE: Final = 1 << 20
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


def expand_paths(sources: Sequence[str]) -> list[str]:
    """Resolve globs and folders to files, in sorted order; `-` stays as it is."""
    if not sources:
        raise UsageError("no input: name a file, or - for standard input")
    if list(sources).count(STDIN) > 1:
        raise UsageError("standard input (-) can be read only once")
    found: list[str] = []
    for source in sources:
        if source == STDIN:
            found.append(source)
        elif "://" in source and not os.path.exists(source):
            raise DataError(f"{source}: is a URL, not a file ({_suggest_fetch(source)})")
        elif os.path.isdir(source):
            found.extend(_list_parquet_files(source))
        elif os.path.exists(source):
            found.append(source)
        elif glob.has_magic(source):
            matches = sorted(path for path in glob.glob(source, recursive=True))
            files = [path for path in matches if not os.path.isdir(path)]
            if not files:
                raise DataError(f"{source}: no file matches")
            found.extend(files)
        else:
            raise DataError(f"{source}: no such file{_suggest_similar(source)}")
    return found


def _suggest_fetch(address: str) -> str:
    """Suggest a command that downloads a URL."""
    kind, _, path = address.partition("://")
    if kind == "file":
        return f"read {path}"
    fetch = {"s3": "aws s3 cp {} -", "gs": "gcloud storage cat {}", "hdfs": "hdfs dfs -cat {}"}
    return f"{fetch.get(kind, 'curl -L {}').format(address)} | kbnn train -"


def _list_parquet_files(folder: str) -> list[str]:
    """List the Parquet files below a folder, except hidden files and metadata files."""
    names = [
        path
        for path in Path(folder).rglob("*")
        if path.suffix in (".parquet", ".pq")
        and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        and path.is_file()
    ]
    if not names:
        raise DataError(f"{folder}: is a folder without Parquet files (*.parquet)")
    return [str(path) for path in sorted(names)]


def parse_folder_columns(folder: str, path: str) -> dict[str, str | None]:
    """Return the columns given by folder names such as `year=2024` between folder and file."""
    found: dict[str, str | None] = {}
    for part in Path(path).relative_to(folder).parts[:-1]:
        name, equals, value = part.partition("=")
        if equals and name:
            found[unquote(name)] = None if value == _HIVE_NULL else unquote(value)
    return found


def _suggest_similar(path: str) -> str:
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return ""
    close = difflib.get_close_matches(name, names, 1)
    return f" (did you mean '{os.path.join(folder, close[0])}'?)" if close else ""


class Source:
    """One input that can be reopened: a file, or a pipe kept in a temporary file."""

    def __init__(
        self,
        path: str,
        *,
        read_size: int = READ_SIZE,
        keep: bool = False,
        columns: Mapping[str, str | None] | None = None,
    ) -> None:
        """Describe an input; `columns` are constant columns (see `parse_folder_columns`)."""
        self.path = path
        self.columns = columns or {}
        self.name = "stdin" if path == STDIN else path
        self.read_size = read_size
        self.keep = keep
        self._spool: IO[bytes] | None = None
        self._used = False
        try:
            self._stat = os.fstat(sys.stdin.fileno()) if path == STDIN else os.stat(path)
        except (OSError, ValueError, AttributeError) as error:
            raise DataError(f"{self.name}: cannot be opened ({_format_reason(error)})") from error

    @property
    def is_live(self) -> bool:
        """Whether more rows may still arrive: a pipe, a terminal, a socket."""
        return self._spool is None and not stat.S_ISREG(self._stat.st_mode)

    @property
    def is_read_once(self) -> bool:
        """Whether the bytes can be read only once."""
        return self.path == STDIN or not stat.S_ISREG(self._stat.st_mode)

    @property
    def size(self) -> int | None:
        """The number of bytes, None if unknown."""
        return self._stat.st_size if stat.S_ISREG(self._stat.st_mode) else None

    def open(self) -> ByteReader:
        """Open for reading from the start."""
        if not self.is_read_once:
            return ByteReader(self, _open_file(self.path, self.name), live=False)
        if self._used:
            if self._spool is None:
                raise UsageError(f"{self.name}: can be read only once")
            spooled = ByteReader(self, _open_file(self._spool.name, self.name), live=False)
            spooled.is_complete = True
            return spooled
        self._used = True
        spool = self._make_spool() if self.keep else None
        fd = os.dup(sys.stdin.fileno()) if self.path == STDIN else _open_file(self.path, self.name)
        return ByteReader(self, fd, live=not stat.S_ISREG(self._stat.st_mode), spool=spool)

    def seekable_path(self, reader: ByteReader) -> str:
        """Return a path to all the bytes, for formats whose index is at the end."""
        if not self.is_read_once:
            return self.path
        if self._spool is None:
            reader.spool = self._make_spool()
        assert self._spool is not None
        if not reader.is_complete:
            while reader.read():
                pass
            self._spool.flush()
        return self._spool.name

    def _make_spool(self) -> IO[bytes]:
        try:
            self._spool = tempfile.NamedTemporaryFile(prefix="kbnn-")  # noqa: SIM115 - in close
        except OSError as error:
            raise DataError(
                f"{self.name}: cannot be kept in a temporary file ({_format_reason(error)})"
            ) from error
        return self._spool

    def close(self) -> None:
        """Remove the temporary file, if there is one."""
        if self._spool is not None:
            with suppress(OSError):  # write errors were already reported by the write
                self._spool.close()
            self._spool = None


class ByteReader(Closeable):
    """Reads one source from its start and counts the bytes."""

    def __init__(
        self, source: Source, fd: int, *, live: bool, spool: IO[bytes] | None = None
    ) -> None:
        self.source = source
        self.is_live = live
        self.bytes_read = 0
        self.is_complete = False  # whether the temporary file already holds everything
        self._fd = fd
        self._spool = spool
        self._unread: list[bytes] = []
        self._poll = None
        if live and hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(fd, select.POLLIN)

    @property
    def spool(self) -> IO[bytes] | None:
        """The temporary file that receives a copy of what is read."""
        return self._spool

    @spool.setter
    def spool(self, spool: IO[bytes]) -> None:
        self._spool = spool
        for piece in self._unread:
            self._copy_to_spool(piece)

    def push_back(self, data: bytes) -> None:
        """Put back bytes so that they are read again."""
        self._unread.append(data)

    def peek_head(self) -> bytes:
        """Return the first bytes, enough to detect the format, without consuming them."""
        data = b""
        while not has_enough_bytes(data):
            more = self.read()
            if not more:
                break
            data += more
        self.push_back(data)
        return data

    def read(self) -> bytes:
        """Return the available bytes, at most about `read_size`; empty at the end."""
        if self._unread:
            return self._unread.pop()
        size = self.source.read_size
        try:
            data = os.read(self._fd, size)
            while data and self._poll and len(data) < size and self._poll.poll(0):
                more = os.read(self._fd, size - len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise DataError(
                f"{self.source.name}: cannot be read ({_format_reason(error)})"
            ) from error
        self.bytes_read += len(data)
        if self._spool is not None and data:
            self._copy_to_spool(data)
        return data

    def _copy_to_spool(self, data: bytes) -> None:
        assert self._spool is not None
        try:
            self._spool.write(data)
            self._spool.flush()
        except OSError as error:
            raise DataError(
                f"{self.source.name}: cannot be kept in a temporary file ({_format_reason(error)}; "
                "set TMPDIR to use another folder)"
            ) from error

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _open_file(path: str, name: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except OSError as error:
        raise DataError(f"{name}: cannot be opened ({_format_reason(error)})") from error


def _format_reason(error: BaseException) -> str:
    return describe_os_error(error) if isinstance(error, OSError) else str(error)


PIECE_BYTES: Final = 1 << 20


class Decoder(Protocol):
    """The interface of all decompressors."""

    def decode(self, data: bytes) -> Iterator[bytes]: ...

    def finish(self) -> None: ...


class GzipDecoder:
    """Decompress gzip, also several concatenated members; zero padding at the end is allowed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._inner = zlib.decompressobj(31)

    def decode(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._inner.eof:
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._inner = zlib.decompressobj(31)
            try:
                piece = self._inner.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                raise DataError(f"{self.name}: the gzip data are damaged ({error})") from error
            data = self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail
            if piece:
                yield piece
            # A full piece may leave output behind although all input is consumed.
            while len(piece) == PIECE_BYTES and not data and not self._inner.eof:
                piece = self._inner.decompress(b"", PIECE_BYTES)
                if piece:
                    yield piece
                data = self._inner.unused_data if self._inner.eof else b""

    def finish(self) -> None:
        if not self._inner.eof:
            raise DataError(f"{self.name}: the gzip data end too early (a truncated file?)")


class Bzip2Decoder:
    """Decompress bzip2, also several concatenated streams."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._inner = bz2.BZ2Decompressor()

    def decode(self, data: bytes) -> Iterator[bytes]:
        while data or not (self._inner.needs_input or self._inner.eof):
            if self._inner.eof:
                self._inner = bz2.BZ2Decompressor()
            try:
                piece = self._inner.decompress(data, PIECE_BYTES)
            except (OSError, EOFError) as error:
                raise DataError(f"{self.name}: the bzip2 data are damaged") from error
            data = self._inner.unused_data if self._inner.eof else b""
            if piece:
                yield piece

    def finish(self) -> None:
        if not self._inner.eof:
            raise DataError(f"{self.name}: the bzip2 data end too early (a truncated file?)")


class ReadOnlyFile:
    """The part of a file that Arrow needs to read from Python; `data` is not read yet."""

    closed = False

    def __init__(self) -> None:
        self.data = b""

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes of the data; nothing means the end."""
        head, self.data = self.data[:size], self.data[size:]
        return head

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.data = b""


class ZstdDecoder:
    """Decompress Zstandard with Arrow, which returns no length if its input ends within a frame.

    Two decompressors therefore read the same input into buffers filled with different bytes: the
    output ends where the buffers differ. This is exact and cheap compared with parsing.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._feeds = (ReadOnlyFile(), ReadOnlyFile())
        self._streams = [
            pa.CompressedInputStream(pa.PythonFile(feed, mode="r"), "zstd") for feed in self._feeds
        ]
        self._buffers = [np.empty(PIECE_BYTES, np.uint8) for _ in self._feeds]
        self._open = False

    def _fill_buffer(self, which: int, filler: int) -> int | None:
        """Decompress into a buffer; return the length, or None if the input ended in a frame."""
        buffer = self._buffers[which]
        buffer[:] = filler
        try:
            return int(self._streams[which].readinto(buffer))
        except (OSError, pa.ArrowException) as error:
            if "Truncated" in str(error):
                return None
            raise DataError(f"{self.name}: the zstd data are damaged") from error

    def decode(self, data: bytes) -> Iterator[bytes]:
        for feed in self._feeds:
            feed.data = data
        full = True
        while full:
            length = self._fill_buffer(0, 0x00)
            self._fill_buffer(1, 0xFF)
            self._open = length is None
            if length is None:
                first, second = self._buffers
                unequal = first != second
                length = int(unequal.argmax()) if unequal.any() else PIECE_BYTES
            full = length == PIECE_BYTES
            if length:
                yield self._buffers[0][:length].tobytes()

    def finish(self) -> None:
        if self._open:
            raise DataError(f"{self.name}: the zstd data end too early (a truncated file?)")


DECODERS: Final[dict[str, Callable[[str], Decoder]]] = {
    "gzip": GzipDecoder,
    "bzip2": Bzip2Decoder,
    "zstd": ZstdDecoder,
}
