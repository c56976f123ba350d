"""Run a command for each alert, with the alert as JSON on its standard input.

The command is split into words as a shell would, but no shell runs it, and nothing of the alert is
in its words. At most MAX_RUNNING commands run at a time; a further alert waits for one of them. A
command that runs longer than MAX_SECONDS is killed. Failures are reported and stop nothing.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from kbnn.errors import UsageError
from kbnn.sink import Closeable
from kbnn.wording import describe_os_error, format_count

MAX_RUNNING: Final = 4
MAX_SECONDS: Final = 30.0


def split_command(command: str) -> list[str]:
    """Split a command into words; UsageError if it is invalid or its program does not exist."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--alert-exec: cannot parse the command ({error})") from error
    if not words:
        raise UsageError("--alert-exec: the command is empty")
    if shutil.which(words[0]) is None:
        raise UsageError(f"--alert-exec: cannot find the program '{words[0]}'")
    return words


class AlertCommand(Closeable):
    """Runs a command for each alert; `close` waits for the commands that still run.

    Parameters
    ----------
    command
        The command, as typed.
    notice
        Receives what failed, in the thread that calls `run` or `close`.
    """

    def __init__(self, command: str, notice: Callable[[str], None]) -> None:
        self._words = split_command(command)
        self._notice = notice
        self._slots = threading.BoundedSemaphore(MAX_RUNNING)
        self._threads: list[threading.Thread] = []
        self._failures: list[str] = []
        self._failed = 0

    def run(self, record: Mapping[str, Any]) -> None:
        """Start the command for an alert, as soon as fewer than MAX_RUNNING run."""
        self._slots.acquire()
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        text = json.dumps(record, ensure_ascii=False) + "\n"
        thread = threading.Thread(target=self._run_once, args=(text.encode(),), daemon=True)
        self._threads.append(thread)
        thread.start()
        self._report_failures()

    def _run_once(self, text: bytes) -> None:
        try:
            failure = _run_command(self._words, text)
            if failure:
                self._failures.append(failure)
        finally:
            self._slots.release()

    def _report_failures(self) -> None:
        """Report the first failure at once; `close` reports the number of the others."""
        failures, self._failures = self._failures, []
        if failures and not self._failed:
            self._notice(f"--alert-exec: the command {failures[0]}; the run continues")
        self._failed += len(failures)

    def close(self) -> None:
        """Wait for all commands, and report how many failed."""
        for thread in self._threads:
            thread.join()
        self._threads = []
        self._report_failures()
        if self._failed > 1:
            self._notice(f"--alert-exec: {format_count(self._failed)} commands failed")
        self._failed = 0


def _run_command(words: list[str], text: bytes) -> str:
    """Run the command with `text` on its standard input; return what failed, "" if nothing."""
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C ends the run, not the commands of its alerts
        )
    except OSError as error:
        return f"cannot be started ({describe_os_error(error)})"
    try:
        process.communicate(text, MAX_SECONDS)
    except subprocess.TimeoutExpired:
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"was killed after {MAX_SECONDS:g} seconds"
    code = process.returncode
    return f"ended with exit code {code}" if code else ""
