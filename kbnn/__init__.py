"""kbnn: an online Bayesian neural network that learns row by row, in closed form.

`train`, `load` and `Model`: models in the user's units, from tables, files and single rows.
`Config`, `init`, `learn`, `predict`: the numerical core in standardised units.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kbnn.moved_modules import install_old_names

if TYPE_CHECKING:
    from kbnn.api.forecasts import Figures, Forecasts
    from kbnn.api.functions import load, step, train
    from kbnn.api.online_model import Model
    from kbnn.core.config import Config
    from kbnn.core.kernel import Prediction, learn, predict
    from kbnn.core.reference import ALARM, LEARNED, REJECTED, UNLABELLED
    from kbnn.core.state import State, init
    from kbnn.errors import DataError, KbnnError, ModelError, UsageError
    from kbnn.targets.prediction import Label, Number

__version__ = "0.2.0"

_HOMES = {
    "kbnn.api.functions": ("load", "step", "train"),
    "kbnn.api.online_model": ("Model",),
    "kbnn.api.forecasts": ("Figures", "Forecasts"),
    "kbnn.targets.prediction": ("Label", "Number"),
    "kbnn.errors": ("DataError", "KbnnError", "ModelError", "UsageError"),
    "kbnn.core.config": ("Config",),
    "kbnn.core.kernel": ("Prediction", "learn", "predict"),
    "kbnn.core.reference": ("ALARM", "LEARNED", "REJECTED", "UNLABELLED"),
    "kbnn.core.state": ("State", "init"),
}

__all__ = [
    "ALARM",
    "LEARNED",
    "REJECTED",
    "UNLABELLED",
    "Config",
    "DataError",
    "Figures",
    "Forecasts",
    "KbnnError",
    "Label",
    "Model",
    "ModelError",
    "Number",
    "Prediction",
    "State",
    "UsageError",
    "__version__",
    "init",
    "learn",
    "load",
    "predict",
    "step",
    "train",
]


install_old_names()


def __getattr__(name: str) -> Any:
    """Import an exported name on first use, so that a help screen loads no numpy."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'kbnn' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
