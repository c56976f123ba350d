"""The public functions of the numerical core, in standardised units: predict, then learn.

They run on the compiled kernel, or on the numpy reference if the kernel was not built; both offer
the same session. KBNN_ENGINE=numpy forces the reference, KBNN_ENGINE=avx512|avx2|portable an
instruction set of the kernel.

    >>> import numpy as np
    >>> from kbnn.core.state import init
    >>> state = init(Config(inputs=1, hidden=(20,)), seed=1)
    >>> x = np.linspace(-2.0, 2.0, 500)[:, None]
    >>> state, _ = learn(state, np.random.default_rng(0).permutation(x), np.zeros(500))
    >>> predict(state, x).mean.shape
    (500, 1)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbnn.array_types import FloatArray, IntArray
from kbnn.core import constants, reference
from kbnn.core.config import Config
from kbnn.core.layout import layout_of
from kbnn.core.reference import Records
from kbnn.core.state import ARRAYS, COUNT, State
from kbnn.errors import UsageError

try:
    from kbnn.core import _kernel

    _BUILT = True
except ImportError:  # built without a compiler: the numpy reference is used
    _BUILT = False

Prediction = Records
"""Predictions of rows, and the outcome of learning them."""


NetworkOutputs = tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]
"""Mean, function_var and noise_var (n, T) in the network's units; center and scale (T,)."""


def describe_engine() -> str:
    """Describe the engine in use."""
    if not _BUILT:
        return "numpy (the kernel is not built here: no C compiler, or a bare source folder)"
    if _requested_engine() == "numpy":
        return "numpy (KBNN_ENGINE=numpy)"
    return f"compiled, {_kernel.instruction_set()}"


def is_compiled() -> bool:
    """Return whether the compiled kernel is used."""
    return _BUILT and _requested_engine() != "numpy"


def _requested_engine() -> str:
    choice = os.environ.get("KBNN_ENGINE", "")
    if choice in ("", "numpy") or not _BUILT:
        return choice
    if not _kernel.use_instruction_set(choice):
        raise UsageError(
            f"KBNN_ENGINE={choice}: this machine offers numpy, portable and, "
            "where the CPU has them, avx2 and avx512"
        )
    return choice


class Session(Protocol):
    """A state that stays open: rows are learned and predicted in place.

    Arrays are contiguous float64: x (n, inputs) with NaN for missing, y (n, labels) with NaN for
    not observed, x_var like x, weight (n,). Results do not depend, bit for bit, on how rows are
    grouped into calls or on calls in between. Calls from several threads wait for one another; a
    caller that needs several calls without others in between must hold a lock of its own.

    A log makes calls repeatable: after `begin_log` results are kept, and after `rewind_log` the
    same calls in the same order return them without learning anything twice.
    """

    @property
    def has_learned(self) -> bool:
        """Whether rows were learned since `begin_log`."""

    def begin_log(self) -> None:
        """Start to keep the result of every call."""

    def rewind_log(self) -> None:
        """Return the logged results again, in their order, before running anything."""

    def end_log(self) -> None:
        """Discard the logged results."""

    @property
    def config(self) -> Config:
        """Configuration of the network."""

    @property
    def counts(self) -> dict[str, int]:
        """Counts so far, see kbnn.core.state.Counts."""

    @property
    def noise(self) -> FloatArray:
        """(outputs, 2): shape and scale of the inverse-gamma noise state; a copy."""

    def learn(
        self,
        x: FloatArray,
        y: FloatArray,
        x_var: FloatArray | None = None,
        weight: FloatArray | None = None,
        again: bool = False,
    ) -> Records:
        """Predict each row, then learn it; `again`: the rows were learned in an earlier pass."""

    def replay(
        self,
        x: FloatArray,
        y: FloatArray,
        x_var: FloatArray | None = None,
        weight: FloatArray | None = None,
        means_alone: bool = False,
    ) -> None:
        """Replay rows between two new ones; with `means_alone` covariances do not change.

        The input moments and every count except `rehearsed` and `moved` do not change either.
        """

    def predict(self, x: FloatArray, x_var: FloatArray | None = None) -> Records:
        """Predict rows; the state does not change."""

    def state(self) -> State:
        """Return the current state; later learning does not change it."""


_as_records = partial(tuple.__new__, Records)
"""Same as Records._make, but faster: sessions make one per call."""


def open_session(state: State) -> Session:
    """Open a session on a state, which is never written."""
    if not is_compiled():
        return reference.ReferenceSession(state)
    return _kernel.Session(_cached_net(state.config), state, _as_records, ARRAYS, COUNT._fields)


def open_batched_session(config: Config, form: Sequence[int]) -> _kernel.BatchedSession:
    """Allocate working memory for batched models packed as `form` says; compiled kernel only."""
    return _kernel.BatchedSession(_cached_net(config), _as_records, form)


def learn_arrays(
    state: State,
    x: FloatArray,
    y: FloatArray,
    x_var: FloatArray | None = None,
    weight: FloatArray | None = None,
    *,
    again: bool = False,
) -> tuple[State, Records]:
    """Learn rows in order and return the new state; the given state is not changed."""
    session = open_session(state)
    records = session.learn(x, y, x_var, weight, again)
    return session.state(), records


def predict_arrays(state: State, x: FloatArray, x_var: FloatArray | None = None) -> Records:
    """Predict rows."""
    return open_session(state).predict(x, x_var)


def follow_weights(
    scores: FloatArray,
    mean: FloatArray,
    var: FloatArray,
    y: FloatArray,
    weight: FloatArray,
    scale: FloatArray,
    benefit: FloatArray,
    used: FloatArray,
    rows: float,
    limits: tuple[float, ...],
) -> None:
    """Run the compiled version of kbnn.model.ensemble.follow_weights."""
    _kernel.follow_weights(scores, mean, var, y, weight, scale, benefit, used, rows, limits)


def scale_rows(
    columns: FloatArray, y: FloatArray, x: FloatArray, fixed: FloatArray
) -> tuple[FloatArray, FloatArray, bool]:
    """Run the compiled version of kbnn.model.scaler."""
    return _kernel.scale_rows(columns, y, x, fixed, kernel_constants())


def update_calibration(
    calibration: FloatArray, mean: FloatArray, sd: FloatArray, y: FloatArray, mix: bool, track: bool
) -> FloatArray:
    """Run the compiled version of kbnn.distributions.calibration.update_calibration."""
    return _kernel.update_calibration(calibration, mean, sd, y, mix, track, kernel_constants())


def calibrate_outputs(
    calibration: FloatArray, said: NetworkOutputs, y: FloatArray | None, mix: bool, track: bool
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Run the compiled version of kbnn.distributions.calibration.calibrate_outputs."""
    return _kernel.calibrate_outputs(calibration, said, y, mix, track, kernel_constants())


def update_count_mixture(tail: FloatArray, y: FloatArray, stated: FloatArray) -> None:
    """Run the compiled version of kbnn.distributions.calibration.update_count_mixture."""
    _kernel.update_count_mixture(tail, y, stated, kernel_constants())


def update_count_intervals(
    tail: FloatArray,
    y: FloatArray,
    u: FloatArray,
    none: FloatArray,
    track: bool,
    stated: FloatArray,
) -> None:
    """Run the compiled version of kbnn.distributions.calibration.update_count_intervals."""
    _kernel.update_count_intervals(tail, y, u, none, track, stated, kernel_constants())


def apply_temperature(
    known: FloatArray,
    probability: FloatArray,
    label: FloatArray | None,
    weight: FloatArray | None,
    grid: FloatArray,
) -> FloatArray:
    """Run the compiled version of kbnn.distributions.categorical.apply_temperature."""
    return _kernel.apply_temperature(known, probability, label, weight, grid, kernel_constants())


def mixture_edges(stated: FloatArray, beyond: float, z: float, plain: bool) -> FloatArray:
    """Compute interval edges of normal mixtures in the compiled kernel."""
    return _kernel.mixture_edges(stated, beyond, z, plain, kernel_constants())


def detect_anomalies(
    state: tuple[FloatArray, ...], rows: FloatArray, threshold: float, constants: FloatArray
) -> FloatArray:
    """Run the compiled version of kbnn.model.anomaly_reference.detect_anomalies."""
    return _kernel.detect_anomalies(tuple(state), rows, threshold, constants)


def score_rows(y: FloatArray, stated: FloatArray) -> FloatArray:
    """Run the compiled version of kbnn.distributions.normal_mixture.NormalMixture.score_values."""
    return _kernel.score_rows(y, stated, kernel_constants())


def copy_rows(arrays: list[NDArray[Any]], at: int, parts: tuple[NDArray[Any], ...]) -> None:
    """Copy parts into arrays from row `at` on, in one call, which is faster for single rows."""
    if _BUILT and _kernel.copy_rows(arrays, at, parts):
        return
    for array, part in zip(arrays, parts, strict=True):
        array[at : at + len(part)] = part


def sum_in_order(sums: FloatArray, columns: list[FloatArray]) -> FloatArray:
    """Return each sum + v_1 + v_2 + ... of its column, strictly in row order.

    The result does not depend on how the stream is cut into batches.
    """
    if _BUILT:
        return _kernel.sum_in_order(sums, [np.ascontiguousarray(c, np.float64) for c in columns])
    pairs = zip(sums, columns, strict=True)
    return np.array([np.add.accumulate(np.concatenate(([s], c)))[-1] for s, c in pairs])


def keep_information(cov: FloatArray, prior_var: FloatArray, dims: IntArray, share: float) -> None:
    """Run the compiled version of kbnn.model.replay.keep_block_information for all blocks."""
    _kernel.keep_information(cov, prior_var, dims, share)


def learn_series(
    state: tuple[FloatArray, ...],
    constants: tuple[FloatArray, FloatArray, FloatArray],
    y: FloatArray,
    steps: int,
) -> FloatArray:
    """Run the compiled version of kbnn.core.series_models.learn_series, in place."""
    return _kernel.learn_series(tuple(state), *constants, y, steps)


def forecast_series(
    state: tuple[FloatArray, ...], constants: tuple[FloatArray, FloatArray, FloatArray], steps: int
) -> FloatArray:
    """Run the compiled version of kbnn.core.series_models.forecast_series."""
    return _kernel.forecast_series(tuple(state), *constants, steps)


def update_constant(
    sums: FloatArray, y: FloatArray, weight: FloatArray, limit: float
) -> FloatArray:
    """Run the compiled version of kbnn.metrics.numeric_metrics.ConstantBaseline."""
    return _kernel.update_constant(sums, y, weight, limit)


def exceeds_limits(values: FloatArray, smallest: float, largest: float) -> tuple[bool, bool]:
    """Return whether any value is beyond `largest`, and whether any is closer to 0 than `smallest`.

    Missing values and 0 itself are neither.
    """
    if _BUILT:
        return _kernel.exceeds_limits(np.ascontiguousarray(values), smallest, largest)
    size = np.abs(values)
    return bool(np.any(size > largest)), bool(np.any((size < smallest) & (size > 0.0)))


def stack_columns(columns: list[FloatArray], rows: int) -> FloatArray:
    """Stack columns of `rows` rows into a matrix."""
    x = np.empty((rows, len(columns)))
    if _BUILT:
        _kernel.stack_columns([np.ascontiguousarray(column) for column in columns], x)
    else:
        for j, column in enumerate(columns):
            x[:, j] = column
    return x


@cache
def kernel_constants() -> _kernel.Constants:
    """Return the numbers of kbnn.core.constants as the kernel's struct."""
    return _kernel.Constants(
        lambda name: getattr(constants, name.upper()), constants.NODES, constants.NODE_WEIGHTS
    )


@lru_cache(maxsize=64)
def _cached_net(config: Config) -> _kernel.Net:
    return build_net(config, kernel_constants())


def build_net(config: Config, shared: _kernel.Constants) -> _kernel.Net:
    """Convert a configuration to the kernel's struct."""
    layout = layout_of(config)
    kind = config.kind
    hidden = [
        [f.code, config.printed_variance and f.printed_var is not None, f.alpha, f.beta]
        for f in config.activations
    ]
    options = [
        config.covariance == "paper",
        layout.separate,
        kind.code,
        config.labels,
        config.classes,
        config.learns_noise,
        config.has_head,
        config.robust,
        config.drift,
        config.printed_variance,
        config.directions,
    ]
    numbers = [
        config.noise or 0.0,
        config.hidden_noise,
        config.input_limit,
        config.activation_spread,
        config.variance_floor,
        config.least_noise,
        *kind.detector,
        config.repeats,
    ]
    ends = np.cumsum([0] + [len(block) for block in layout.blocks])
    return _kernel.Net(
        shared,
        np.array(layout.widths, dtype=np.int64),
        np.array(hidden, dtype=np.float64).reshape(-1, 4),
        options,
        numbers,
        np.array([piece for block in layout.blocks for piece in block], dtype=np.int64),
        ends.astype(np.int64),
    )


_MIN_THREAD_ROWS = 256
"""Minimum number of rows per thread."""


def learn(
    state: State,
    x: ArrayLike,
    y: ArrayLike,
    *,
    x_var: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    again: bool = False,
) -> tuple[State, Prediction]:
    """Learn rows in order; row i is predicted before y[i] is used.

        x        (n, inputs); NaN is missing, an infinite value rejects the row
        y        (n,) or (n, outputs), NaN not observed; for classes (n,) of class indices
        x_var    (n, inputs) measurement variance of each input
        weight   (n,) weight of each row
        again    whether the rows were learned before, in an earlier pass

    Returns the new state and the predictions; the given state is not changed.
    """
    rows = _check_inputs(state.config, x)
    labels = _check_labels(state.config, y, len(rows))
    variances = _check_variances(x_var, rows, "x_var")
    weights = None if weight is None else _to_floats(weight, "weight")
    if weights is not None and weights.shape != (len(rows),):
        raise ValueError(f"weight must have shape ({len(rows)},), got {weights.shape}")
    return learn_arrays(state, rows, labels, variances, weights, again=again)


def predict(state: State, x: ArrayLike, *, x_var: ArrayLike | None = None) -> Prediction:
    """Predict rows, on all cores if there are many."""
    rows = _check_inputs(state.config, x)
    return predict_parallel(open_session(state), rows, _check_variances(x_var, rows, "x_var"))


def predict_parallel(
    session: Session, rows: FloatArray, variances: FloatArray | None = None
) -> Prediction:
    """Predict rows with an open session; many rows are split among sessions, one per core."""
    if len(rows) < 2 * _MIN_THREAD_ROWS or not is_compiled():
        return session.predict(rows, variances)
    threads = min(os.cpu_count() or 1, len(rows) // _MIN_THREAD_ROWS)
    if threads < 2:
        return session.predict(rows, variances)
    state = session.state()
    cuts = [len(rows) * i // threads for i in range(threads + 1)]

    def predict_part(k: int) -> Prediction:
        span = slice(cuts[k], cuts[k + 1])
        var = None if variances is None else variances[span]
        return open_session(state).predict(rows[span], var)

    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(predict_part, range(threads)))
    return Prediction(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _to_floats(values: ArrayLike, name: str) -> FloatArray:
    try:
        return np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers: {error}") from None


def _check_inputs(config: Config, x: ArrayLike) -> FloatArray:
    rows = _to_floats(x, "x")
    if rows.ndim != 2 or rows.shape[1] != config.inputs:
        raise ValueError(f"x must have shape (rows, {config.inputs}), got {rows.shape}")
    return rows


def _check_labels(config: Config, y: ArrayLike, rows: int) -> FloatArray:
    labels = _to_floats(y, "y")
    if labels.ndim == 1:
        labels = labels[:, None]
    if labels.shape != (rows, config.labels):
        raise ValueError(f"y must have shape ({rows}, {config.labels}), got {labels.shape}")
    return np.ascontiguousarray(labels)


def _check_variances(values: ArrayLike | None, rows: FloatArray, name: str) -> FloatArray | None:
    if values is None:
        return None
    array = _to_floats(values, name)
    if array.shape != rows.shape:
        raise ValueError(f"{name} must have the shape of x, {rows.shape}, got {array.shape}")
    if np.any(array < 0.0) or np.any(np.isnan(array)):
        raise ValueError(f"{name} must hold variances >= 0")
    return array
