"""Chooses who runs the rows: the compiled kernel, or the numpy twin where it was not built.

Both have one signature. KBNN_ENGINE=numpy forces the twin, KBNN_ENGINE=avx512|avx2|portable an
instruction set of the kernel.
"""

from __future__ import annotations

import os
from functools import lru_cache

import numpy as np

from kbnn.core import twin
from kbnn.core.activations import LAMBDA
from kbnn.core.config import Config, piecewise_slopes
from kbnn.core.layout import layout_of
from kbnn.core.normal import FloatArray
from kbnn.core.state import COUNT, State
from kbnn.core.twin import Records
from kbnn.errors import UsageError

try:
    from kbnn.core import _kernel

    _BUILT = True
except ImportError:  # built without a compiler: the twin serves
    _BUILT = False

_OBSERVATIONS = ("gaussian", "bernoulli", "categorical", "sigmoid")
_PIECEWISE, _PROBIT, _TANH, _STEP = range(4)


def description() -> str:
    """Which engine serves, in words."""
    if not _BUILT:
        return "numpy (the compiled kernel was not built: no C compiler at install time)"
    if _choice() == "numpy":
        return "numpy (KBNN_ENGINE=numpy)"
    return f"compiled, {_kernel.instructions()}"


def compiled() -> bool:
    """Whether the compiled kernel serves."""
    return _BUILT and _choice() != "numpy"


def _choice() -> str:
    choice = os.environ.get("KBNN_ENGINE", "")
    if choice in ("", "numpy") or not _BUILT:
        return choice
    if not _kernel.use(choice):
        raise UsageError(
            f"KBNN_ENGINE={choice}: this machine offers numpy, portable and, "
            "where the CPU has them, avx2 and avx512"
        )
    return choice


def learn(
    state: State,
    x: FloatArray,
    x_var: FloatArray | None,
    y: FloatArray,
    weight: FloatArray | None,
    fresh: bool,
) -> tuple[State, Records]:
    """Learn rows in order; the given state is left as it is."""
    if not compiled():
        return twin.learn(
            state,
            x,
            np.zeros_like(x) if x_var is None else x_var,
            y,
            np.ones(len(x)) if weight is None else weight,
            fresh,
        )
    new = state._replace(**{name: getattr(state, name).copy() for name in _WRITTEN})
    records = twin.blank_records(len(x), state.config)
    _run(new, x, x_var, y, weight, records, fresh, learning=True)
    return new, records


def predict(state: State, x: FloatArray, x_var: FloatArray | None) -> Records:
    """Predict rows."""
    if not compiled():
        return twin.predict(state, x, np.zeros_like(x) if x_var is None else x_var)
    records = twin.blank_records(len(x), state.config)
    _run(state, x, x_var, None, None, records, fresh=False, learning=False)
    return records


def scale_rows(
    columns: FloatArray, raw: FloatArray, out: FloatArray, fixed: FloatArray
) -> int | None:
    """Standardise rows in the kernel (see kbnn.model.scaling); None where it is not built."""
    if not compiled():
        return None
    return _kernel.scale_rows(
        columns.reshape(-1), raw.reshape(-1), out.reshape(-1), len(raw), fixed
    )


_ARRAYS = (
    "mean",
    "cov",
    "prior_mean",
    "prior_var",
    "noise",
    "head_mean",
    "head_cov",
    "input_mean",
    "input_cov",
    "surprise",
)
_WRITTEN = (*(name for name in _ARRAYS if name != "prior_var"), "counts")


def _run(
    state: State,
    x: FloatArray,
    x_var: FloatArray | None,
    y: FloatArray | None,
    weight: FloatArray | None,
    records: Records,
    fresh: bool,
    learning: bool,
) -> None:
    _kernel.run(
        _net(state.config),
        [getattr(state, name).reshape(-1) for name in _ARRAYS],
        state.counts,
        x.reshape(-1),
        None if x_var is None else x_var.reshape(-1),
        None if y is None else y.reshape(-1),
        weight,
        [array.reshape(-1) for array in records],
        len(x),
        0 if y is None else y.shape[1],
        fresh,
        learning,
    )


@lru_cache(maxsize=64)
def _net(config: Config) -> _kernel.Net:
    layout = layout_of(config)
    slopes = piecewise_slopes(config.activation)
    kind = {"step": _STEP, "tanh": _TANH}.get(config.activation, _PROBIT)
    if slopes is not None:
        kind, (alpha, beta) = _PIECEWISE, slopes
    else:
        alpha, beta = (1.0 if config.activation == "probit" else float(LAMBDA)), 0.0
    options = [
        kind,
        config.covariance == "paper",
        layout.separate,
        _OBSERVATIONS.index(config.observation),
        config.learns_noise,
        config.has_head,
        config.robust,
        config.drift,
        config.printed_variance and config.activation == "sigmoid",
    ]
    numbers = [
        alpha,
        beta,
        config.noise or 0.0,
        config.hidden_noise,
        config.input_limit,
        config.activation_spread,
    ]
    ends = np.cumsum([0] + [len(block) for block in layout.blocks])
    return _kernel.Net(
        np.array(layout.widths, dtype=np.int64),
        np.array(options, dtype=np.int64),
        np.array(numbers, dtype=np.float64),
        np.array([piece for block in layout.blocks for piece in block], dtype=np.int64).reshape(-1),
        ends.astype(np.int64),
    )


class Session:
    """A belief that stays open: rows are learned and predicted in place, a state on demand."""

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def config(self) -> Config:
        """What the network is."""
        return self._state.config

    @property
    def counts(self) -> dict[str, int]:
        """What happened so far, see kbnn.core.state.Counts."""
        return {name: int(self._state.counts[at]) for name, at in COUNT._asdict().items()}

    def learn(
        self,
        x: FloatArray,
        y: FloatArray,
        x_var: FloatArray | None = None,
        weight: FloatArray | None = None,
        again: bool = False,
    ) -> Records:
        """Predict each row, then learn it; `again`: these rows were learned before."""
        self._state, records = learn(self._state, x, x_var, y, weight, not again)
        return records

    def predict(self, x: FloatArray, x_var: FloatArray | None = None) -> Records:
        """Predict rows."""
        return predict(self._state, x, x_var)

    def state(self) -> State:
        """The belief as it is now; what the session learns later leaves it alone."""
        return self._state


def open_session(state: State) -> Session:
    """Open a belief; the given state is never written."""
    return Session(state)
