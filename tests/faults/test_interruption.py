"""Signals that come together: the first is noted, and nothing is said of the others."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from kbnn.workflows.checkpoint import Interrupted, InterruptGuard

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    """Handle SIGINT as Python does by default, whatever commands of other tests have installed."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def complaints(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: said.append(str(found.exc_value)))
    return said


def together(*numbers: int) -> None:
    """Deliver signals at one moment, to this thread: others may have been left by other tests."""
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    for number in numbers:
        signal.pthread_kill(threading.get_ident(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def test_an_alarm_at_the_moment_of_a_signal(complaints: list[str]) -> None:
    with InterruptGuard() as interruption:
        interruption.call_when_idle(1000.0, lambda: None)
        together(signal.SIGINT, signal.SIGALRM)
        assert interruption.number == signal.SIGINT
        with pytest.raises(Interrupted), interruption.wait_for_input():
            pass
    assert complaints == []


def test_a_second_signal_does_what_it_always_did() -> None:
    with InterruptGuard():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
