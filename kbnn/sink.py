"""Things that a `with` statement closes.

The way out: bytes to a file or to standard output, all of them or an error that says why.

A system may take fewer bytes than it is given (a full disk, a pipe that does not block) and may
refuse the last ones only when the file is closed. A `Sink` goes on until everything is written,
checks every step, and turns a refusal into one sentence. It keeps nothing back: what was written
is out.
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
    """Closed at the end of its `with` statement, however that ends."""

    def close(self) -> None:
        """Give back what is held; a second call does nothing."""

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
    """A raw file whose `write` is whole, or raises `OutputError` or `ReaderLeft`."""

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
        """Write all of it."""
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
        """Wait until an output that does not block takes more."""
        if hasattr(select, "poll"):
            ready = select.poll()
            ready.register(self._raw.fileno(), select.POLLOUT)
            ready.poll()
        else:
            select.select([], [self._raw.fileno()], [])

    def sync(self) -> None:
        """Bring what was written to the disk, where there is one."""
        with self._map_os_errors():
            try:
                os.fsync(self._raw.fileno())
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a pipe has no disk
                    raise

    def check_late_errors(self) -> None:
        """Hear of what a file system refuses late, which it says when a descriptor is closed."""
        with self._map_os_errors(), suppress(io.UnsupportedOperation):
            os.close(os.dup(self._raw.fileno()))

    def close(self) -> None:
        """Close, unless it is somebody else's; a second call does nothing."""
        if not self.closed:
            super().close()
            if self._owned:
                with self._map_os_errors():
                    self._raw.close()

    def fileno(self) -> int:
        """The descriptor."""
        return int(self._raw.fileno())

    def isatty(self) -> bool:
        """Whether a person looks at it."""
        return bool(self._raw.isatty())

    def writable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Whether it has places to go to: a file, no pipe."""
        return bool(self._raw.seekable())

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place."""
        with self._map_os_errors():
            return int(self._raw.seek(offset, whence))

    def tell(self) -> int:
        """The place of the next byte."""
        with self._map_os_errors():
            return int(self._raw.tell())

    def truncate(self, size: int | None = None) -> int:
        """Cut the file."""
        with self._map_os_errors():
            return int(self._raw.truncate(size))


def open_sink(path: str, mode: str = "w") -> Sink:
    """Open a file to write it (`w`), to add to its end (`a`), or to go on inside it (`r+`)."""
    try:
        return Sink(open(path, f"{mode}b", buffering=0), path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({describe_os_error(error)})") from error


def standard_output() -> Sink:
    """Standard output as a sink; whatever text waits to be written goes first."""
    sys.stdout.flush()
    buffer = sys.stdout.buffer
    if isinstance(buffer, Sink):
        return buffer
    return Sink(getattr(buffer, "raw", buffer), STDOUT_NAME, owned=False)


def write_atomically(path: str, data: bytes) -> None:
    """Write a file of which a reader never sees half."""
    real = os.path.realpath(path)  # a link goes on pointing at the file
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
