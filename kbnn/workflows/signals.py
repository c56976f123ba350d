"""Ctrl-C, SIGTERM and SIGHUP in a loop that must not stop in the middle of a row.

A signal is recorded, and raises `Interrupted` only while the loop waits for input: a wait may last
forever, and leaves nothing half done. Otherwise the loop checks at its next wait. A second signal
has its original effect. A signal that was ignored before (nohup, a background job) stays ignored.
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
    """A signal asks the run to end; `number` is the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class InterruptGuard:
    """Records signals while entered; the loop uses `wait_for_input` around every wait."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._waiting = False
        self._idle: Callable[[], None] = lambda: None
        self._previous_handlers: dict[int, Any] = {}

    @contextmanager
    def wait_for_input(self) -> Iterator[None]:
        """Wait for input; a signal ends the wait, a recorded one at once."""
        self._waiting = True
        try:
            self._raise_noted()
            yield
        finally:
            self._waiting = False

    def call_when_idle(self, every: float, call: Callable[[], None]) -> None:
        """Call a function every `every` seconds, but only during a wait."""
        if self._previous_handlers and hasattr(signal, "setitimer"):
            self._idle = call
            self._previous_handlers[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._on_timer)
            signal.setitimer(signal.ITIMER_REAL, every, every)

    def _on_timer(self, number: int, frame: FrameType | None) -> None:
        if self._waiting:
            self._waiting = False  # during the call a signal is only recorded
            self._idle()
            self._waiting = True
            self._raise_noted()

    def _raise_noted(self) -> None:
        if self.number is not None:
            raise Interrupted(self.number)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Handlers stay installed until the end: a signal that arrives while its handler is removed
        # would raise in Python.
        if self.number is not None:
            self._run_previous_handler(number, frame)
        self.number = number
        self._stop_timer()
        if self._waiting:
            raise Interrupted(number)

    def _run_previous_handler(self, number: int, frame: FrameType | None) -> None:
        """Run the handler that was installed before."""
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
        if threading.current_thread() is threading.main_thread():  # only it can set handlers
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
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
