"""kbnn: an online Bayesian neural network that learns row by row, in closed form.

`train`, `load` and `Model`: models in the user's units, from tables, files and single rows.
`Config`, `init`, `learn`, `predict`: the numerical core in standardised units.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbnn.core.network import (
        ALARM,
        LEARNED,
        REJECTED,
        UNLABELLED,
        Config,
        Prediction,
        State,
        init,
        learn,
        predict,
    )
    from kbnn.errors import DataError, KbnnError, ModelError, UsageError
    from kbnn.front.figures import Figures
    from kbnn.front.forecasts import Forecasts
    from kbnn.front.model import Model, load, train
    from kbnn.front.step import step
    from kbnn.task.answer import Label, Number

__version__ = "0.1.0"

_HOMES = {
    "kbnn.front.model": ("Model", "load", "train"),
    "kbnn.front.step": ("step",),
    "kbnn.front.forecasts": ("Forecasts",),
    "kbnn.task.answer": ("Label", "Number"),
    "kbnn.front.figures": ("Figures",),
    "kbnn.errors": ("DataError", "KbnnError", "ModelError", "UsageError"),
    "kbnn.core.network": (
        "ALARM",
        "LEARNED",
        "REJECTED",
        "UNLABELLED",
        "Config",
        "Prediction",
        "State",
        "init",
        "learn",
        "predict",
    ),
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


def __getattr__(name: str) -> Any:
    """What is exported, loaded when it is asked for: a help screen needs no numpy."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'kbnn' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
