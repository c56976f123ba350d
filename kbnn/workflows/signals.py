"""Ctrl-C, SIGTERM and SIGHUP in a loop that must not be torn apart in the middle of a row.

A signal is noted, and raises `Interrupted` only while the loop waits for input: a wait may last
for ever, and nothing is half done in it. Otherwise the loop finds the note at its next turn. A
second signal does what it always did, for those who cannot wait. A signal that was ignored before
(nohup, a job in the background) stays ignored.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupted(BaseException):
    """The user or the system wants an end; `number` is the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class InterruptGuard:
    """Notes signals while it is entered; the loop puts `wait` around every wait for input."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._waiting = False
        self._idle: Callable[[], None] = lambda: None
        self._previous_handlers: dict[int, Any] = {}

    @contextmanager
    def wait_for_input(self) -> Iterator[None]:
        """A wait, which a signal ends; one that was noted before ends it at once."""
        self._waiting = True
        try:
            self._raise_noted()
            yield
        finally:
            self._waiting = False

    def call_when_idle(self, every: float, call: Callable[[], None]) -> None:
        """Call something every so many seconds, but only during a wait."""
        if self._previous_handlers and hasattr(signal, "setitimer"):
            self._idle = call
            self._previous_handlers[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._on_timer)
            signal.setitimer(signal.ITIMER_REAL, every, every)

    def _on_timer(self, number: int, frame: FrameType | None) -> None:
        if self._waiting:
            self._waiting = False  # the call is no wait: a signal is only noted in it
            self._idle()
            self._waiting = True
            self._raise_noted()

    def _raise_noted(self) -> None:
        if self.number is not None:
            raise Interrupted(self.number)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Handlers stay until the end: Python complains of a signal that comes at the same moment
        # and finds its handler gone.
        if self.number is not None:
            self._run_previous_handler(number, frame)
        self.number = number
        self._stop_timer()
        if self._waiting:
            raise Interrupted(number)

    def _run_previous_handler(self, number: int, frame: FrameType | None) -> None:
        """Do what the signal always did."""
        before = self._previous_handlers.get(number, signal.SIG_DFL)
        if callable(before):
            before(number, frame)
        else:
            signal.signal(number, before)
            os.kill(os.getpid(), number)

    def _stop_timer(self) -> None:
        if hasattr(signal, "setitimer") and signal.SIGALRM in self._previous_handlers:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _restore_handlers(self) -> None:
        self._stop_timer()
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        self._previous_handlers = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # others cannot have handlers
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # not every system has the last
                number = getattr(signal, name, None)
                if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                    self._previous_handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore_handlers()
