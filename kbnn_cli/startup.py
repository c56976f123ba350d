"""The program's first line: from here on Ctrl-C ends it without a word, whatever is being loaded.

Python raises an exception at Ctrl-C, wherever that may be; until the program is ready for it, the
system takes it instead. What is needed for that is in the interpreter itself: nothing is loaded.
"""

import _signal  # type: ignore[import-not-found]  # no stub: the part of signal that is built in
import sys

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # else it stays ignored
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def main() -> None:
    """The `kbnn` program."""
    import gc

    gc.set_threshold(100_000)  # to look for garbage in all that is loaded is a tenth of the start
    from kbnn_cli import errors, process

    try:
        process.prepare_process()
        from kbnn_cli.app import run_command_line

        code = run_command_line()
        _ignore_interrupts()
    except KeyboardInterrupt:
        code = errors.EXIT_INTERRUPTED
        _ignore_interrupts()
    sys.exit(code)


def _ignore_interrupts() -> None:
    """There is nothing left to interrupt, and Python would show a traceback while it ends."""
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)


if __name__ == "__main__":
    main()
