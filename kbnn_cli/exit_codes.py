"""Exit codes, and the one place where errors become a message and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final, NoReturn
from unicodedata import east_asian_width

from kbnn.errors import KbnnError, ReaderLeft, UsageError
from kbnn.sink import standard_output
from kbnn.wording import clean_text

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1  # the data or the model cannot be used, or an output is incomplete
EXIT_USAGE: Final = 2
EXIT_CONDITION: Final = 3  # --fail-if was met
EXIT_INTERRUPTED: Final = 130
EXIT_READER_LEFT: Final = 141  # the reader closed the output early, as shells report SIGPIPE
EXIT_SIGNAL_BASE: Final = 128  # plus the number of the signal that ended the run, after saving

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_interrupts: list[int] = []
"""Signals that `note_interrupt` received."""


_MEMORY_ERROR_TEXTS: Final = (
    "cannot allocate memory",
    "failed to map segment",
    "can't start new thread",
    "failed to launch worker thread",
)


def run_guarded(call: Callable[[], object]) -> int:
    """Call, report an error as one message, and return the exit code."""
    import typer

    # The base of every command-line error; typer exports only its subclasses by name.
    command_line_error: type[Exception] = typer.BadParameter.__mro__[2]
    try:
        code = call()
        standard_output().check_late_errors()
        return code if isinstance(code, int) else EXIT_DONE
    except KbnnError as error:
        _print_traceback()
        print_message(str(error))
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED
    except ReaderLeft:
        return EXIT_READER_LEFT
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except command_line_error as error:
        from kbnn_cli.commands.help import format_usage_error

        if type(error).__name__ == "NoArgsIsHelpError":
            print(str(error), file=sys.stderr)
        else:
            print_message(format_usage_error(error))
        return EXIT_USAGE
    except Exception as error:
        if _interrupts:  # a library turned Ctrl-C into its own error while loading
            return EXIT_INTERRUPTED
        if not is_memory_error(error):
            raise
        _print_traceback()
        print_message("out of memory (a smaller --layers or --group-size needs less)")
        return EXIT_FAILED


def is_memory_error(error: BaseException) -> bool:
    """Tell whether an error of any library means that memory ran out."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    text = str(error).lower()
    return any(words in text for words in _MEMORY_ERROR_TEXTS)


def print_message(sentence: str) -> None:
    """Print a message to stderr."""
    _print_stderr(wrap_line(clean_text(f"kbnn: {' '.join(sentence.split())}")))


def print_line(line: str) -> None:
    """Print a line to stderr without wrapping."""
    _print_stderr(clean_text(line))


def _print_stderr(text: str) -> None:
    """Print to stderr; a closed stderr never stops a run."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        return


def wrap_line(line: str) -> str:
    """Wrap a long line at spaces on a terminal; elsewhere return it unchanged."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError, AttributeError):  # no terminal, or stderr is closed
        return line
    lines, used = [""], 0
    for word in line.split(" "):
        wide = sum(1 + (east_asian_width(letter) in "WF") for letter in word)
        if lines[-1] and 0 < columns < used + 1 + wide:
            lines, used = [*lines, word], wide
        else:
            lines[-1] += f" {word}" if used else word
            used += wide + (used > 0)
    return "\n".join(lines)


def note_interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Record Ctrl-C, since libraries turn it into errors of their own while loading."""
    _interrupts.append(number)
    raise KeyboardInterrupt


def report_unexpected(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Report a defect of the program in one message; Python then exits with 1."""
    if os.environ.get("KBNN_DEBUG"):
        traceback.print_exception(kind, error, trace)
    text = " ".join(str(error).split())
    named = f"{kind.__name__}: {text}" if text else kind.__name__
    print_message(f"unexpected error, {named} (KBNN_DEBUG=1 shows where; please report it)")


def exit_on_unraised(found: UnraisableHookArgs) -> None:
    """Exit on a Ctrl-C that arrives where Python cannot raise an exception."""
    if issubclass(found.exc_type, KeyboardInterrupt):
        os._exit(EXIT_INTERRUPTED)
    sys.__unraisablehook__(found)


def _print_traceback() -> None:
    if os.environ.get("KBNN_DEBUG"):
        traceback.print_exc()
