"""Write bytes to a file or to standard output completely, or raise an error that says why.

A system may take fewer bytes than it is given (a full disk, a non-blocking pipe) and may refuse the
last ones only when the file is closed. A `Sink` writes until everything is written, checks every
step, and turns a refusal into one sentence. It does not buffer.
"""

from __future__ import annotations

import errno
import io
import os
import select
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self

from kbnn.errors import OutputError, ReaderLeft
from kbnn.wording import describe_os_error


class Closeable:
    """Base of objects that are closed at the end of their `with` statement."""

    def close(self) -> None:
        """Release resources; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


STDOUT_NAME: Final = "standard output"
_PART: Final = ".part"


class Sink(io.RawIOBase):
    """A raw file whose `write` is complete, or raises `OutputError` or `ReaderLeft`."""

    def __init__(self, raw: Any, name: str, *, owned: bool = True) -> None:
        self._raw = raw
        self.name = name
        self._owned = owned

    @contextmanager
    def _map_os_errors(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError as error:
            raise ReaderLeft(self.name) from error
        except OSError as error:
            raise OutputError(
                f"{self.name}: cannot be written ({describe_os_error(error)})"
            ) from error

    def write(self, data: Any) -> int:
        """Write all of the data."""
        whole = memoryview(data).cast("B")
        left = whole
        with self._map_os_errors():
            while left:
                taken = self._raw.write(left)
                if taken is None:
                    self._wait_until_writable()
                else:
                    left = left[taken:]
        return len(whole)

    def _wait_until_writable(self) -> None:
        """Wait until a non-blocking output accepts more."""
        if hasattr(select, "poll"):
            ready = select.poll()
            ready.register(self._raw.fileno(), select.POLLOUT)
            ready.poll()
        else:
            select.select([], [self._raw.fileno()], [])

    def sync(self) -> None:
        """Flush what was written to the disk, if there is one."""
        with self._map_os_errors():
            try:
                os.fsync(self._raw.fileno())
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a pipe has no disk
                    raise

    def check_late_errors(self) -> None:
        """Raise errors that a file system reports only when a descriptor is closed."""
        with self._map_os_errors(), suppress(io.UnsupportedOperation):
            os.close(os.dup(self._raw.fileno()))

    def close(self) -> None:
        """Close the raw file if it is owned; a second call does nothing."""
        if not self.closed:
            super().close()
            if self._owned:
                with self._map_os_errors():
                    self._raw.close()

    def fileno(self) -> int:
        """Return the descriptor."""
        return int(self._raw.fileno())

    def isatty(self) -> bool:
        """Return whether the output is a terminal."""
        return bool(self._raw.isatty())

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return whether the output is seekable: a file, not a pipe."""
        return bool(self._raw.seekable())

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position."""
        with self._map_os_errors():
            return int(self._raw.seek(offset, whence))

    def tell(self) -> int:
        """Return the position of the next byte."""
        with self._map_os_errors():
            return int(self._raw.tell())

    def truncate(self, size: int | None = None) -> int:
        """Truncate the file."""
        with self._map_os_errors():
            return int(self._raw.truncate(size))


def open_sink(path: str, mode: str = "w") -> Sink:
    """Open a file to overwrite it (`w`), to append to it (`a`), or to write inside it (`r+`)."""
    try:
        return Sink(open(path, f"{mode}b", buffering=0), path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({describe_os_error(error)})") from error


def standard_output() -> Sink:
    """Return standard output as a sink, after flushing buffered text."""
    sys.stdout.flush()
    buffer = sys.stdout.buffer
    if isinstance(buffer, Sink):
        return buffer
    return Sink(getattr(buffer, "raw", buffer), STDOUT_NAME, owned=False)


def write_atomically(path: str, data: bytes) -> None:
    """Write a file so that a reader never sees a part of it."""
    real = os.path.realpath(path)  # keep a symbolic link pointing at the file
    if os.path.exists(real) and not stat.S_ISREG(os.stat(real).st_mode):
        with open_sink(path) as sink:
            sink.write(data)
        return
    part = real + _PART
    try:
        with open(part, "wb", buffering=0) as raw, Sink(raw, path) as sink:
            sink.write(data)
            sink.sync()
        os.replace(part, real)
    except BaseException as error:
        with suppress(OSError):
            os.remove(part)
        if isinstance(error, OSError):
            raise OutputError(f"{path}: cannot be written ({describe_os_error(error)})") from error
        raise
