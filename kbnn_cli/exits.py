"""How a run ends: the one place where errors become a sentence and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final

import typer

DONE: Final = 0
FAILED: Final = 1  # the data or the model cannot be used
USAGE: Final = 2
CONDITION: Final = 3  # --fail-if was met
INTERRUPTED: Final = 130
TERMINATED: Final = 143

# The base of every error about the command line; typer exports only its offspring by name.
_COMMAND_LINE_ERROR: Final[type[Exception]] = typer.BadParameter.__mro__[2]


class ClosedPipe(Exception):
    """Whoever read the output has seen enough."""


def run(call: Callable[[], object]) -> int:
    """Call, say in one sentence what went wrong, if anything, and return the exit code."""
    try:
        code = call()
        sys.stdout.flush()
        return code if isinstance(code, int) else DONE
    except _own_errors() as error:
        _trace()
        say(str(error))
        return USAGE if type(error).__name__ == "UsageError" else FAILED
    except (ClosedPipe, BrokenPipeError):
        _silence_stdout()
        return DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    except typer.Abort:
        return INTERRUPTED
    except MemoryError:
        _trace()
        say("out of memory (a smaller --layers or --group-size needs less)")
        return FAILED
    except _COMMAND_LINE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(str(error), file=sys.stderr)
        else:
            say(_about_command_line(error))
        return USAGE


def _own_errors() -> tuple[type[Exception], ...]:
    """The package's errors; none was raised if their module is not loaded, and `--help` waits
    for no library that it does not need."""
    module = sys.modules.get("kbnn.errors")
    return (module.KbnnError,) if module else ()


def say(sentence: str) -> None:
    """Talk to the user, on stderr."""
    with suppress(OSError, ValueError):  # perhaps nobody listens any more
        print(f"kbnn: {sentence}", file=sys.stderr, flush=True)


def report_unexpected(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """A defect of the program: one sentence, and how to get the rest. Python then exits with 1."""
    if os.environ.get("KBNN_DEBUG"):
        traceback.print_exception(kind, error, trace)
    text = " ".join(str(error).split())
    named = f"{kind.__name__}: {text}" if text else kind.__name__
    say(f"unexpected error, {named} (KBNN_DEBUG=1 shows where; please report it)")


def _about_command_line(error: BaseException) -> str:
    """The parser's message as our sentence, with the way to the help that answers it."""
    format_message = getattr(error, "format_message", lambda: str(error))
    text = " ".join(format_message().split()).rstrip(".")
    text = text[:1].lower() + text[1:]
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "kbnn"
    return f"{text} (see '{command} --help')"


def _trace() -> None:
    if os.environ.get("KBNN_DEBUG"):
        traceback.print_exc()


def _silence_stdout() -> None:
    """Let the interpreter's last flush go nowhere, or it would complain about the closed pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
