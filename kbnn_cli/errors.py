"""How a run ends: the one place where errors become a sentence and an exit code."""

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
EXIT_FAILED: Final = 1  # the data or the model cannot be used, or something is not whole
EXIT_USAGE: Final = 2
EXIT_CONDITION: Final = 3  # --fail-if was met
EXIT_INTERRUPTED: Final = 130
EXIT_READER_LEFT: Final = (
    141  # whoever read the data left before their end, as a shell reports SIGPIPE
)
EXIT_SIGNAL_BASE: Final = 128  # and the number of the signal that ended it, after saving

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_interrupts: list[int] = []
"""Signals that `note_interrupt` has seen."""


_MEMORY_ERROR_TEXTS: Final = (
    "cannot allocate memory",
    "failed to map segment",
    "can't start new thread",
    "failed to launch worker thread",
)


def run_guarded(call: Callable[[], object]) -> int:
    """Call, say in one sentence what went wrong, if anything, and return the exit code."""
    import typer

    # The base of every error about the command line; typer exports only its offspring by name.
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
        from kbnn_cli.suggestions import format_usage_error

        if type(error).__name__ == "NoArgsIsHelpError":
            print(str(error), file=sys.stderr)
        else:
            print_message(format_usage_error(error))
        return EXIT_USAGE
    except Exception as error:
        if _interrupts:  # a library that was being loaded made something else of it
            return EXIT_INTERRUPTED
        if not is_memory_error(error):
            raise
        _print_traceback()
        print_message("out of memory (a smaller --layers or --group-size needs less)")
        return EXIT_FAILED


def is_memory_error(error: BaseException) -> bool:
    """Whether the system had no memory left, in the words of whoever asked for it."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    said = str(error).lower()
    return any(words in said for words in _MEMORY_ERROR_TEXTS)


def print_message(sentence: str) -> None:
    """Talk to the user, on stderr."""
    _print_stderr(wrap_line(clean_text(f"kbnn: {' '.join(sentence.split())}")))


def print_line(line: str) -> None:
    """The same, of a line as it is."""
    _print_stderr(clean_text(line))


def _print_stderr(text: str) -> None:
    """Nobody may be listening: that is no reason to stop."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        return


def wrap_line(line: str) -> str:
    """On a terminal a long line goes on below between two words; elsewhere it stays one line."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError, AttributeError):  # no terminal, or nobody at all
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
    """Ctrl-C: remembered, since libraries turn it into errors of their own while they load."""
    _interrupts.append(number)
    raise KeyboardInterrupt


def report_unexpected(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """A defect of the program: one sentence, and how to get the rest. Python then exits with 1."""
    if os.environ.get("KBNN_DEBUG"):
        traceback.print_exception(kind, error, trace)
    text = " ".join(str(error).split())
    named = f"{kind.__name__}: {text}" if text else kind.__name__
    print_message(f"unexpected error, {named} (KBNN_DEBUG=1 shows where; please report it)")


def exit_on_unraised(found: UnraisableHookArgs) -> None:
    """An exception where none can be raised: Ctrl-C ends the program there, and is not lost."""
    if issubclass(found.exc_type, KeyboardInterrupt):
        os._exit(EXIT_INTERRUPTED)
    sys.__unraisablehook__(found)


def _print_traceback() -> None:
    if os.environ.get("KBNN_DEBUG"):
        traceback.print_exc()
