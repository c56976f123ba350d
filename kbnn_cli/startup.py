"""Entry point of the program: Ctrl-C during start-up ends it silently.

Python would raise KeyboardInterrupt in the middle of an import. Until the program can handle that,
the system's default action applies. Only modules built into the interpreter are used here.
"""

import _signal  # type: ignore[import-not-found]  # no stub: the part of signal that is built in
import sys

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # otherwise keep ignoring it
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def main() -> None:
    """Run the `kbnn` program."""
    import gc

    gc.set_threshold(100_000)  # garbage collection would take a tenth of the start-up time
    from kbnn_cli import exit_codes, process

    try:
        process.prepare_process()
        from kbnn_cli.app import run_command_line

        code = run_command_line()
        _ignore_interrupts()
    except KeyboardInterrupt:
        code = exit_codes.EXIT_INTERRUPTED
        _ignore_interrupts()
    sys.exit(code)


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C while Python exits, where it would print a traceback."""
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)


if __name__ == "__main__":
    main()
