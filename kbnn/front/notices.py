"""What there is to say to a caller in Python: logged, and a warning where data are left out."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from typing import Final

_log = logging.getLogger("kbnn")
_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def log_notice(text: str) -> None:
    """Log a notice; one that says what is ignored is a warning at the caller's line too."""
    _log.info(text)
    if " ignored" in text:
        warnings.warn(text, UserWarning, stacklevel=_caller_stack_level())


def _caller_stack_level() -> int:
    """The stack level, as `announce` counts, of the first frame outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
