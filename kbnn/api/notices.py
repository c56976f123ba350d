"""Notices and signals of calls from Python: notices are logged, signals end a run between rows.

A notice about ignored data is also a warning, at the line of the caller.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from typing import Final

from kbnn.workflows.checkpoint import Interrupted, InterruptGuard
from kbnn.workflows.training import Listener, Training

_log = logging.getLogger("kbnn")
_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def log_notice(text: str) -> None:
    """Log a notice; if data are ignored, also warn at the caller's line."""
    _log.info(text)
    if " ignored" in text:
        warnings.warn(text, UserWarning, stacklevel=_caller_stack_level())


def _caller_stack_level() -> int:
    """Return the stack level, for `warnings.warn`, of the first frame outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level


class LoggingListener(Listener):
    """Logs the notices of a training run."""

    def on_notice(self, text: str) -> None:
        """Log a notice.

        Parameters
        ----------
        text
            The notice.
        """
        log_notice(text)


def run_training(training: Training) -> None:
    """Train; a signal takes effect between two blocks of rows, so that no row is half learned."""
    caught = None
    with InterruptGuard() as interruption:
        try:
            training.run(interruption)
        except Interrupted as interrupted:
            caught = interrupted.number
    if caught is not None:
        signal.raise_signal(caught)
