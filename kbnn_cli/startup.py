"""What must be settled before the libraries are loaded, for a quick start and quick rows."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Without(MetaPathFinder):
    """Makes one package look as if it were not installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuse that name, leave all others to the next finder."""
        if fullname == self._name:
            raise ModuleNotFoundError(f"{fullname} is not used here", name=fullname)
        return None


def prepare() -> None:
    """Settle it for this process."""
    # The kernel runs the rows; matrix libraries see small blocks only, where threads hinder.
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    # pyarrow loads pandas wherever it is installed: half a second, and no table here is pandas'.
    sys.meta_path.insert(0, _Without("pandas"))
