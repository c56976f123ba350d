"""What must be settled for the process before the libraries are loaded."""

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
from kbnn_cli import errors

RETAINED_BYTES: Final = 32 << 20
"""Memory that is kept at most for what comes next, and that is asked for in one piece."""
GC_THRESHOLD_OBJECTS: Final = 50_000
"""Objects that come and stay before those that hold each other in circles are looked for: libraries
bring hundreds of thousands, and rows leave none."""


class _BlockedImport(MetaPathFinder):
    """Makes one package look as if it were not installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuse that name, leave all others to the next finder."""
        if fullname == self._name:
            raise ModuleNotFoundError(f"{fullname} is not used here", name=fullname)
        return None


class _LossyStderr(Sink):
    """Standard error: what nobody hears is lost, and never stops the work."""

    def write(self, data: Any) -> int:
        """Write what can be written."""
        with suppress(DataError, ReaderLeft):
            super().write(data)
        return len(data)


def prepare_process() -> None:
    """Settle it for this process."""
    # The kernel runs the rows; matrix libraries see small blocks only, where threads hinder.
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    # pyarrow loads pandas wherever it is installed: half a second, and no table here is pandas'.
    sys.meta_path.insert(0, _BlockedImport("pandas"))
    _keep_memory()
    gc.set_threshold(GC_THRESHOLD_OBJECTS)
    _replace_standard_streams()
    sys.excepthook = errors.report_unexpected
    sys.unraisablehook = errors.exit_on_unraised
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, errors.note_interrupt)


def _keep_memory() -> None:
    """Let what one block of rows gave back be there for the next.

    The GNU library would return it to the system, which clears it before it lends it again: a
    twentieth of the time that rows take. Other libraries have no such call.
    """
    trim, own = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
    with suppress(AttributeError, OSError, TypeError):
        settle = ctypes.CDLL(None).mallopt
        for what in (trim, own):
            settle(what, RETAINED_BYTES)


def _replace_standard_streams() -> None:
    """Put checked streams in the place of Python's own.

    A channel that was closed before the start is taken by one that can only be used the other way,
    so that its use fails as it should and no file that is opened later gets its number.
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
    """Text in the encoding that Python chose; what that lacks is spelled out."""
    encoding = getattr(before, "encoding", None) or "utf-8"
    return io.TextIOWrapper(sink, encoding, "backslashreplace", write_through=True)
