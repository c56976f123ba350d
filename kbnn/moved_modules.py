"""Old names of modules, so that pickles made by earlier versions can be loaded.

Models, forecasts and figures are pickled with the names of their modules. An import of an old name
gives the module where its classes are now.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

MOVED: Final = {
    "kbnn.front.model": "kbnn.api.online_model",
    "kbnn.front.forecasts": "kbnn.api.forecasts",
    "kbnn.front.figures": "kbnn.api.forecasts",
    "kbnn.task.answer": "kbnn.targets.prediction",
    "kbnn.task.forecast": "kbnn.targets.prediction",
    "kbnn.task.real": "kbnn.targets.regression",
    "kbnn.task.positive": "kbnn.targets.positive",
    "kbnn.task.count": "kbnn.targets.count",
    "kbnn.task.amount": "kbnn.targets.amount",
    "kbnn.task.classes": "kbnn.targets.classification",
    "kbnn.task.sigmoid": "kbnn.targets.classification",
    "kbnn.task.numeric_score": "kbnn.metrics.numeric_metrics",
    "kbnn.task.class_score": "kbnn.metrics.class_metrics",
    "kbnn.score.verdict": "kbnn.metrics.verdicts",
    "kbnn.model.schema": "kbnn.data.schema",
    "kbnn.model.clock": "kbnn.data.clock",
    "kbnn.model.form": "kbnn.data.number_format",
    "kbnn.model.lags": "kbnn.data.lags",
    "kbnn.core.twin": "kbnn.core.reference",
    "kbnn.core.network": "kbnn.core.kernel",
}
PACKAGES: Final = {name.rpartition(".")[0] for name in MOVED} - {"kbnn.model", "kbnn.core"}


class _MovedLoader(Loader):
    """Gives the new module in place of the old one."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return the module that has taken the place."""
        return None if spec.name in PACKAGES else import_module(MOVED[spec.name])

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module was run when it was imported by its own name."""


class _MovedFinder(MetaPathFinder):
    """Finds modules by their old names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module that was moved; None for all others."""
        if fullname not in MOVED and fullname not in PACKAGES:
            return None
        return ModuleSpec(fullname, _MovedLoader(), is_package=fullname in PACKAGES)


def install_old_names() -> None:
    """Make the old names importable; a second call does nothing."""
    if not any(isinstance(finder, _MovedFinder) for finder in sys.meta_path):
        sys.meta_path.append(_MovedFinder())
