"""The program's first line: from here on Ctrl-C is no traceback, whatever is being loaded.

It imports next to nothing itself: until `main` has begun, Ctrl-C is Python's own.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """The `kbnn` program."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it stays ignored
        signal.signal(signal.SIGINT, _leave)
    from kbnn_cli import exits, process

    try:
        process.prepare()
        from kbnn_cli.app import call

        code = call()
        _finished()
    except KeyboardInterrupt:
        code = exits.INTERRUPTED
        _finished()
    sys.exit(code)


def _finished() -> None:
    """There is nothing left to interrupt, and Python would show a traceback while it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _leave(number: int, frame: object) -> None:
    """End at once, while there is nothing to lose."""
    os._exit(128 + number)


if __name__ == "__main__":
    main()
