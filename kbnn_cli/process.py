"""Set up the process before libraries are imported: threads, memory, streams and signals."""

from __future__ import annotations

import ctypes
import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final, TextIO

from kbnn.errors import DataError, ReaderLeft
from kbnn.sink import STDOUT_NAME, Sink
from kbnn_cli import exit_codes

RETAINED_BYTES: Final = 32 << 20
"""Freed memory that malloc keeps, and the smallest block that it maps separately."""
GC_THRESHOLD_OBJECTS: Final = 50_000
"""Objects allocated between garbage collections: libraries create hundreds of thousands, and
processing rows creates no reference cycles."""


class _BlockedImport(MetaPathFinder):
    """Make one package look as if it were not installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuse that name and leave all others to the next finder."""
        if fullname == self._name:
            raise ModuleNotFoundError(f"{fullname} is not used here", name=fullname)
        return None


class _LossyStderr(Sink):
    """Standard error that drops text which cannot be written."""

    def write(self, data: Any) -> int:
        """Write, ignoring failures."""
        with suppress(DataError, ReaderLeft):
            super().write(data)
        return len(data)


def prepare_process() -> None:
    """Set up this process."""
    # Matrix libraries see only small blocks, which threads slow down.
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    # pyarrow imports pandas if it is installed: half a second, and no command uses pandas.
    sys.meta_path.insert(0, _BlockedImport("pandas"))
    _keep_memory()
    gc.set_threshold(GC_THRESHOLD_OBJECTS)
    _replace_standard_streams()
    sys.excepthook = exit_codes.report_unexpected
    sys.unraisablehook = exit_codes.exit_on_unraised
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, exit_codes.note_interrupt)


def _keep_memory() -> None:
    """Keep freed memory for the next block of rows.

    The GNU C library would return it to the system, which clears it before lending it again: a
    twentieth of the time per row. Other C libraries have no such call.
    """
    trim, own = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
    with suppress(AttributeError, OSError, TypeError):
        settle = ctypes.CDLL(None).mallopt
        for what in (trim, own):
            settle(what, RETAINED_BYTES)


def _replace_standard_streams() -> None:
    """Replace Python's standard streams by checked ones.

    A stream that was closed before the start is opened on the null device in the wrong direction,
    so that using it fails and no file opened later gets its number.
    """
    for number, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)))
    sys.stdout = _wrap_text_stream(sys.stdout, Sink(io.FileIO(1, "w", closefd=False), STDOUT_NAME))
    sys.stderr = _wrap_text_stream(
        sys.stderr, _LossyStderr(io.FileIO(2, "w", closefd=False), "standard error")
    )


def _wrap_text_stream(before: TextIO | None, sink: Sink) -> TextIO:
    """Wrap a sink as text in Python's encoding, escaping what that cannot encode."""
    encoding = getattr(before, "encoding", None) or "utf-8"
    return io.TextIOWrapper(sink, encoding, "backslashreplace", write_through=True)
