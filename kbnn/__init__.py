"""kbnn: an online Bayesian neural network that learns row by row, in closed form.

`Config`, `init`, `learn`, `predict`: the numerical core in standardised units. `kbnn.model.model`
adds units, schema and scores; `kbnn.stream.opening` reads CSV, Parquet, Arrow and JSON lines.
"""

from __future__ import annotations

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

__version__ = "0.1.0"

__all__ = [
    "ALARM",
    "LEARNED",
    "REJECTED",
    "UNLABELLED",
    "Config",
    "Prediction",
    "State",
    "__version__",
    "init",
    "learn",
    "predict",
]


def __getattr__(name: str) -> Any:
    """The core, loaded when it is asked for: an error or a help screen needs no numpy."""
    if name not in __all__:
        raise AttributeError(f"module 'kbnn' has no attribute '{name}'")
    from kbnn.core import network

    return getattr(network, name)
