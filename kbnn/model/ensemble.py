"""Ensembles: networks learn the same rows side by side, and their predictions are pooled.

Piecewise-linear encoding. A network on raw inputs needs many rows to learn a threshold. An encoded
network sees, beside each standardised input z, how far z has come through each of a few bins. The
bins lie between quantiles q_0 < ... < q_K of the first rows, and component k is

    e_k = (clip((z - q_k)/(q_(k+1) - q_k), 0, 1) - center_k) / scale_k
        = clip(slope_k z + offset_k, low_k, high_k)

with center and scale of the rows that the bins were fitted to. The components of a missing input
are missing. A noisy input, z ~ N(m, v), enters by the exact mean and variance of its components.
Indicators, cycles and columns with fewer than three distinct values are not encoded.

The components come before the standardised inputs, so that columns added later extend the end.

Pooling. The networks of a model differ in shape, in the encoding of their inputs, in which inputs
they see, in replay, or only in seed and prior scale (`Member`). Of a series with other columns, the
first network sees all inputs but their lags, the second all, and the third only the target's own
lags and the clock, so that other columns and their lags must earn their place. A prediction is
pooled by moments with weights w_k:

    m = sum_k w_k m_k,   v = c sum_k w_k (v_k + (m_k - m)^2)

and class probabilities are averaged. The pooled prediction is calibrated, not that of each network
(kbnn.model.learner).

The weights maximise the prequential log score of the pooled prediction. Each row moves them along
the gradient g of its log density, with a memory of about WEIGHT_WINDOW_ROWS rows:

    w_k <- w_k (1 + g_k/(rows + 1)), normalised

The scale c makes up for errors of the networks that partly cancel: it is the running mean of (y -
m)^2 c/v over about SCALE_WINDOW_ROWS rows, 1 for other labels. For a Gaussian label y

    g_k = (y - m)(m_k - m)/v + ((y - m)^2/v - 1)(c (v_k + (m_k - m)^2)/v - 1)/2

and otherwise g_k = p_k/sum_j w_j p_j - 1, p_k the probability that network k gave to the label.
Weights by the networks' own log scores would put all weight on one network after a few hundred
rows, although the average is better.

A network is dropped when it no longer pays. Its benefit is the mean difference of the log densities
with and without it, in nats per row; a network that doubles the cost of a row must earn the margin
of `compute_margin`. The margin rises with the stream, so that a long stream tends to the cost of
few networks. The portfolio of `--preset best` has no price: a network is dropped only when the pool
is better without it, and none with many classes.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache, lru_cache
from time import thread_time
from typing import Final, NamedTuple, TypeVar

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core import kernel, normal
from kbnn.core.config import Config
from kbnn.core.kernel import Prediction
from kbnn.core.layout import layout_of
from kbnn.model.scaler import Scale

COLUMN, SLOPE, OFFSET, LOW, HIGH = range(5)
"""Fields of a bin; the column is an index of the inputs."""
BIN_FIELDS: Final = 5
NO_BINS: Final[FloatArray] = np.zeros((0, BIN_FIELDS))

MAX_BINS: Final = 8
"""Bins of one column; sixteen were no better."""
MAX_COMPONENTS: Final = 512
"""Components of all columns; many columns have fewer bins each."""
FEW_OUTPUTS: Final = 3
MANY_CLASS_BINS: Final = 3
MANY_CLASS_COMPONENTS: Final = 96
"""Limits for more outputs than FEW_OUTPUTS, whose networks have a covariance per neuron: their cost
grows with the square of the inputs."""
MIN_BIN_WIDTH: Final = 1e-3
"""Smallest width of a bin, in standard deviations: a smaller distance is rounding."""


def count_bins(columns: int, outputs: int = 1) -> int:
    """Return how many bins each of the encoded columns has; below 2 there are none."""
    if outputs > FEW_OUTPUTS:
        return min(MANY_CLASS_BINS, MANY_CLASS_COMPONENTS // max(columns, 1))
    return min(MAX_BINS, MAX_COMPONENTS // max(columns, 1))


def fit_bins(z: FloatArray, encodable: FloatArray, outputs: int = 1) -> FloatArray:
    """Fit bins (B, BIN_FIELDS) to standardised rows.

    Parameters
    ----------
    z : (n, D)
        Standardised inputs; NaN where missing.
    encodable : (D,)
        1 for the columns that may be encoded, else 0.
    outputs
        Number of the network's outputs.
    """
    columns = np.flatnonzero(encodable)
    count = count_bins(len(columns), outputs)
    if count < 2:
        return NO_BINS
    x, shares = np.sort(z[:, columns], axis=0), np.linspace(0.0, 1.0, count + 1)
    distinct = 1 + np.count_nonzero(x[1:] != x[:-1], axis=0)
    known = np.all(np.isfinite(x), axis=0)
    quantiles = np.quantile(x, shares, axis=0).T
    parts = [NO_BINS]
    for k, column in enumerate(columns.tolist()):
        values = z[:, column]
        if not known[k]:
            values = values[np.isfinite(values)]
            edges = np.unique(values)
            edges = edges if len(edges) <= count + 1 else np.quantile(values, shares)
        elif distinct[k] > count + 1:
            edges = quantiles[k]
        else:
            edges = np.unique(values)
        parts.append(_fit_column(values, column, edges))
    return np.vstack(parts)


def _fit_column(values: FloatArray, column: int, edges: FloatArray) -> FloatArray:
    """Fit the bins of one column between edges: its values if these are few, else quantiles."""
    kept = edges[:1].tolist()
    for edge in edges[1:].tolist():
        if edge - kept[-1] >= MIN_BIN_WIDTH:
            kept.append(edge)
    if len(kept) < 3:  # a single bin would be the input itself
        return NO_BINS
    start, width = np.array(kept[:-1]), np.diff(kept)
    ramps = np.clip((values[:, None] - start) / width, 0.0, 1.0)
    center, scale = np.mean(ramps, axis=0), np.std(ramps, axis=0)
    bins = np.empty((len(start), BIN_FIELDS))
    bins[:, COLUMN] = column
    bins[:, SLOPE] = 1.0 / (width * scale)
    bins[:, OFFSET] = -start / (width * scale) - center / scale
    bins[:, LOW], bins[:, HIGH] = -center / scale, (1.0 - center) / scale
    return bins


def encode_inputs(
    bins: FloatArray, z: FloatArray, var: FloatArray | None
) -> tuple[FloatArray, FloatArray | None]:
    """Return means and variances of the network's inputs: components, then standardised inputs.

    `var` (n, D) are the variances of noisy inputs; None if all are exact.
    """
    if not len(bins):
        return np.ascontiguousarray(z), var
    at = bins[:, COLUMN].astype(np.int64)
    if var is None:
        ramps = z[:, at]
        ramps *= bins[:, SLOPE]
        ramps += bins[:, OFFSET]
        np.clip(ramps, bins[:, LOW], bins[:, HIGH], out=ramps)
        return np.ascontiguousarray(np.hstack([ramps, z])), None
    mean, spread = _compute_clipped_moments(bins, z[:, at], var[:, at])
    return (
        np.ascontiguousarray(np.hstack([mean, z])),
        np.ascontiguousarray(np.hstack([spread, var])),
    )


def _compute_clipped_moments(
    bins: FloatArray, z: FloatArray, var: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of clip(u, low, high), u ~ N(slope z + offset, slope^2 var).

    With a = max(u - low, 0) and b = max(u - high, 0) the clipped value is low + a - b, and
    (a - b)^2 = a^2 - b^2 - 2 (high - low) b.
    """
    u, low, high = bins[:, SLOPE] * z + bins[:, OFFSET], bins[:, LOW], bins[:, HIGH]
    known = np.isfinite(var)
    sd = bins[:, SLOPE] * np.sqrt(np.where(known, var, 0.0))
    safe = np.maximum(sd, 1e-12)
    parts = []
    for edge in (low, high):
        t = (u - edge) / safe
        cdf, pdf = normal.cdf(t), normal.pdf(t)
        first = (u - edge) * cdf + safe * pdf
        parts.append((first, (u - edge) * first + safe**2 * cdf))
    (a, a_square), (b, b_square) = parts
    mean = a - b
    spread = np.maximum(a_square - b_square - 2.0 * (high - low) * b - mean**2, 0.0)
    exact = sd <= 1e-12
    return (
        np.where(exact, np.clip(u, low, high), low + mean),
        np.where(known, np.where(exact, 0.0, spread), np.inf),
    )


def find_active_slopes(bins: FloatArray, z: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return the derivative of each component (n, B) with respect to its column (B,)."""
    at = bins[:, COLUMN].astype(np.int64)
    u = bins[:, SLOPE] * z[:, at] + bins[:, OFFSET]
    inside = (u > bins[:, LOW]) & (u < bins[:, HIGH])
    return np.where(inside, bins[:, SLOPE], 0.0), at


def rescale_bins(bins: FloatArray, old: Scale, new: Scale) -> FloatArray:
    """Convert bins to another scale of the inputs: the components of a row stay the same."""
    at = bins[:, COLUMN].astype(np.int64)
    before = np.where(old.scale > 0.0, old.scale, 1.0)[at]
    after = np.where(new.scale > 0.0, new.scale, 1.0)[at]
    moved = bins.copy()
    moved[:, SLOPE] = bins[:, SLOPE] * after / before
    moved[:, OFFSET] = bins[:, OFFSET] + bins[:, SLOPE] * (new.center - old.center)[at] / before
    return moved


def reorder_bins(bins: FloatArray, inputs: IntArray) -> FloatArray:
    """Return the bins of a network whose input i has become input inputs[i]."""
    moved = bins.copy()
    moved[:, COLUMN] = inputs[bins[:, COLUMN].astype(np.int64)]
    return moved


def prepend_bins(scale: Scale, bins: FloatArray) -> Scale:
    """Return the scale of all network inputs; components have a scale of their own."""
    none = np.zeros(len(bins))
    return Scale(np.append(none, scale.center), np.append(none + 1.0, scale.scale))


def is_valid_bins(bins: FloatArray, inputs: int) -> bool:
    """Return whether stored bins can be those of a network with this number of raw inputs."""
    if bins.shape[1:] != (BIN_FIELDS,) or len(bins) > MAX_COMPONENTS:
        return False
    column = bins[:, COLUMN]
    fits = np.all((column >= 0.0) & (column < inputs) & (column == np.rint(column)))
    ordered = np.all((bins[:, SLOPE] > 0.0) & (bins[:, LOW] < bins[:, HIGH]))
    return bool(fits and ordered and np.all(np.abs(bins) < 1e100))


def list_bin_names(bins: FloatArray, names: Sequence[str]) -> list[str]:
    """Return a name for each component; `names` are those of the inputs."""
    columns = bins[:, COLUMN].astype(np.int64).tolist()
    return [f"{names[at]} bin {columns[: k + 1].count(at)}" for k, at in enumerate(columns)]


WEIGHT_WINDOW_ROWS: Final = 64.0
SCALE_WINDOW_ROWS: Final = 256.0
"""Memory of the scale; at most half of the rows so far, because early rows are predicted worse."""
SCALE_PRIOR_ROWS: Final = 64.0
"""Rows that a scale of 1 counts for."""
START_ROWS_PER_MEMBER: Final = 4.0
"""Rows per network that equal starting weights count for."""
MIN_WEIGHT: Final = 3e-5
MAX_ROW_ADVANTAGE_NATS: Final = 5.0
"""One row cannot distinguish two networks by more: outliers do not decide."""
MAX_SQUARE: Final = 25.0
"""Largest squared standardised error that counts."""
GRADIENT_LIMITS: Final = (-3.0, 10.0)
_LIMITS: Final = (
    WEIGHT_WINDOW_ROWS,
    SCALE_WINDOW_ROWS,
    MIN_WEIGHT,
    MAX_ROW_ADVANTAGE_NATS,
    MAX_SQUARE,
    *GRADIENT_LIMITS,
)
FIRST_CHECK_ROWS: Final = 2048
"""Row count at which networks are first dropped; the early rows mislead."""
MARGIN_NATS: Final = 0.005
"""Nats per row that doubling the cost of a row must earn, up to MARGIN_ROWS rows."""
MARGIN_ROWS: Final = 2048

THREAD_ROWS: Final = 64
"""Fewer rows take less time than waking a thread."""

_PRIOR_SCALES = ((1.0, 1.0), (2.0, 2.0), (1.0, 2.0), (2.0, 1.0), (0.5, 1.0))

PRIOR_VARIANTS: Final = len(_PRIOR_SCALES)

MAX_MOMENT = 1e150
"""Bound of each network's moments, so that their squares do not overflow."""

T = TypeVar("T")
U = TypeVar("U")


class Member(NamedTuple):
    """What distinguishes a network of an ensemble from the others."""

    hidden: tuple[int, ...]
    covariance: str = "auto"
    encoding: str = "none"
    replays: bool = True  # whether it learns buffered rows again
    variant: int = 0  # number of its seed and prior scale
    adapts_prior: bool = False  # whether its prior follows the inputs' relevance
    forgets: bool = False  # whether its information decays, see kbnn.model.replay
    inputs: tuple[int, ...] = ()  # inputs that it sees; empty: all, also those added later
    excludes: tuple[int, ...] = ()  # inputs that it does not see, where `inputs` is empty


class PoolWeights(NamedTuple):
    """Weights of the networks and what is known of their benefit; an ensemble of one has none."""

    weight: FloatArray  # (K,) sums to 1
    rows: int = 0  # rows that the weights have followed
    scale: float = 1.0  # c: mean squared error over pooled variance
    benefit: FloatArray = np.zeros(1)  # (K,) nats since the last check
    benefit_rows: int = 0


def describe_member(member: Member, optional_inputs: tuple[int, ...] = ()) -> str:
    """Describe a network in a few words; `optional_inputs` are lags of other columns."""
    parts = [",".join(map(str, member.hidden)) or "linear"]
    parts += ["encoded"] if member.encoding == "piecewise" else []
    parts += [] if member.replays else ["without replay"]
    parts += [f"variant {member.variant + 1}"] if member.variant else []
    parts += [f"on {len(member.inputs)} inputs"] if member.inputs else []
    seen = optional_inputs and sees_all_inputs(member)
    parts += ["with lags of other columns"] if seen else []
    return " ".join(parts)


@lru_cache(maxsize=256)  # asked for every batch
def list_inputs(member: Member, width: int) -> tuple[int, ...]:
    """List the inputs that a network sees, of `width` inputs of the model."""
    if member.inputs:
        return member.inputs
    return tuple(at for at in range(width) if at not in member.excludes)


def count_inputs(member: Member, width: int) -> int:
    """Count the inputs that a network sees, of `width` inputs of the model."""
    return len(list_inputs(member, width))


def sees_all_inputs(member: Member) -> bool:
    """Return whether a network sees all inputs."""
    return not (member.inputs or member.excludes)


def select_inputs(member: Member, values: FloatArray) -> FloatArray:
    """Return the columns (..., D) of the inputs that a network sees."""
    if sees_all_inputs(member):
        return values
    return values[..., list(list_inputs(member, values.shape[-1]))]


def select_input_scale(member: Member, scale: Scale) -> Scale:
    """Return the scale of the inputs that a network sees."""
    return Scale(*(select_inputs(member, part) for part in scale))


def select_bins(member: Member, bins: FloatArray) -> FloatArray:
    """Return the bins of the inputs that a network sees."""
    if sees_all_inputs(member) or not len(bins):
        return bins
    if member.inputs:
        return bins[np.isin(bins[:, COLUMN], member.inputs)]
    return bins[~np.isin(bins[:, COLUMN], member.excludes)]


def prior_scales(variant: int) -> tuple[float, float]:
    """Return the factors of a network's prior standard deviation, of means and of weights."""
    return _PRIOR_SCALES[variant % len(_PRIOR_SCALES)]


_helpers = threading.local()


@cache
def _get_helpers() -> ThreadPoolExecutor:
    """Return the threads that help callers of `map_members`; starting some per call is slow."""
    return ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1), thread_name_prefix="kbnn")


if hasattr(os, "register_at_fork"):  # threads do not exist in a forked process
    os.register_at_fork(after_in_child=_get_helpers.cache_clear)


def get_helper_seconds() -> float:
    """Return the processor time that `map_members` has spent in threads for the calling thread."""
    return float(getattr(_helpers, "seconds", 0.0))


def map_members(work: Callable[[T], U], members: Sequence[T], rows: int) -> list[U]:
    """Apply `work` to all members and return results in order; many rows are worth threads."""
    cores = os.cpu_count() or 1
    if len(members) < 2 or rows < THREAD_ROWS or cores < 2:
        return [work(member) for member in members]
    results: dict[int, U] = {}
    waiting = deque(enumerate(members))

    def run_waiting() -> float:
        """Work until nothing waits; return the processor time."""
        start = thread_time()
        while waiting:
            try:
                k, member = waiting.popleft()
            except IndexError:  # another thread took the last one
                break
            results[k] = work(member)
        return thread_time() - start

    helpers = [_get_helpers().submit(run_waiting) for _ in range(min(len(members), cores) - 1)]
    try:
        run_waiting()
    finally:  # a helper that has not begun is not needed any more
        waiting.clear()
        wait(helper for helper in helpers if not helper.cancel())
    for helper in helpers:
        if not helper.cancelled():
            _helpers.seconds = get_helper_seconds() + helper.result()
    return [results[k] for k in range(len(members))]


def make_equal_weights(count: int) -> PoolWeights:
    """Return equal weights of `count` networks."""
    return PoolWeights(np.full(count, 1.0 / count), 0, 1.0, np.zeros(count), 0)


def update_weights(
    pool: PoolWeights, scores: FloatArray, mean: FloatArray, var: FloatArray, y: FloatArray
) -> tuple[FloatArray, PoolWeights]:
    """Return weights and scale before each row (n, K + 1), and those after the last row.

    Parameters
    ----------
    pool
        The weights before the first row.
    scores : (n, K)
        Log-likelihoods of the labels; (n, 0) for Gaussian labels.
    mean, var : (n, K, T)
        Predictions of Gaussian labels; T is 0 for others.
    y : (n, T)
        Gaussian labels, NaN where unknown.
    """
    weight, benefit, scale = pool.weight.copy(), pool.benefit.copy(), np.array([pool.scale])
    used = np.empty((len(y), len(weight) + 1))
    follow = kernel.follow_weights if kernel.is_compiled() else follow_weights
    before = pool.rows + START_ROWS_PER_MEMBER * len(weight)
    follow(scores, mean, var, y, weight, scale, benefit, used, before, _LIMITS)
    used[:, -1] = shrink_scale(used[:, -1], pool.rows + np.arange(len(y)))
    return used, PoolWeights(
        weight, pool.rows + len(y), float(scale[0]), benefit, pool.benefit_rows + len(y)
    )


def shrink_scale(scale: FloatArray, rows: IntArray) -> FloatArray:
    """Shrink scales that few rows have determined towards 1: c^(rows/(rows + 64))."""
    return np.asarray(scale ** (rows / (rows + SCALE_PRIOR_ROWS)))


def repeat_weights(pool: PoolWeights, count: int) -> FloatArray:
    """Return weights and scale for rows during which they stay the same: (count, K + 1)."""
    scale = shrink_scale(np.array([pool.scale]), np.array([pool.rows]))
    return np.tile(np.append(pool.weight, scale), (count, 1))


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
    """Update weights, scale and benefits in place, row by row.

    `used` (n, K + 1) receives the weights and the scale before each row. The kernel has the same
    function.
    """
    window, scale_window, least, advantage, square, lowest, highest = limits
    for i, labels in enumerate(y):
        used[i, :-1], used[i, -1] = weight, scale[0]
        rate = 1.0 / (min(rows + i, window) + 1.0)
        slow = 1.0 / (min(0.5 * (rows + i), scale_window) + 1.0)
        slopes = []
        if not y.shape[1]:
            density = np.exp(np.maximum(scores[i] - np.max(scores[i]), -advantage))
            total = float(weight @ density)
            left = np.maximum(1.0 - weight, 1e-12)
            benefit += np.log(total * left / np.maximum(total - weight * density, 1e-300))
            slopes.append(density / total - 1.0)
        for t in np.flatnonzero(np.isfinite(labels)):
            m_k, v_k = mean[i, :, t], var[i, :, t]
            m = float(weight @ m_k)
            d = m_k - m
            own = v_k + d * d
            v = float(weight @ own)
            miss, s = float(labels[t]) - m, float(scale[0]) * v
            far = miss * miss / s
            soft = min(square / far, 1.0) if far > 0.0 else 1.0
            near = far * soft
            slopes.append(soft * miss * d / s + 0.5 * (near - 1.0) * (own / v - 1.0))
            left = np.maximum(1.0 - weight, 1e-12)
            shift = -weight * d / left
            rest = np.maximum((v - weight * own) / left - shift**2, 1e-12 * v)
            other = np.minimum((miss - shift) ** 2 / (scale[0] * rest), square)
            benefit += 0.5 * (other - near + np.log(rest / v))
            scale[0] = max(scale[0] + (min(miss * miss / v, square) - scale[0]) * slow, 1e-3)
        if slopes:
            slope = np.clip(np.mean(slopes, axis=0), lowest, highest)
            weight[:] = np.maximum(weight * (1.0 + rate * slope), least)
            weight /= np.sum(weight)


def pool_predictions(members: list[Prediction], used: FloatArray) -> Prediction:
    """Return the moments of the members' predictions; `used` (n, K + 1) as in `update_weights`."""
    if len(members) == 1:
        return members[0]
    weights, scale = used[:, :-1], used[:, -1:]
    w = weights[:, :, None]

    def average_field(field: str) -> FloatArray:
        values = np.stack([getattr(m, field) for m in members], axis=1)
        return np.asarray(np.sum(w * np.clip(values, -MAX_MOMENT, MAX_MOMENT), axis=1))

    mean = average_field("mean")
    means = np.clip(np.stack([m.mean for m in members], axis=1), -MAX_MOMENT, MAX_MOMENT)
    spread = np.sum(w * (means - mean[:, None, :]) ** 2, axis=1)
    first = members[0]
    return first._replace(
        mean=mean,
        function_var=scale * (average_field("function_var") + spread),
        noise_var=scale * average_field("noise_var"),
        probability=average_field("probability"),
        inlier=np.minimum(np.sum(weights * np.stack([m.inlier for m in members], 1), 1), 1.0),
    )


def compute_margin(rows: int, outputs: int) -> float:
    """Return the nats per row that doubling the cost of a row must earn after `rows` rows.

    It does not rise with many classes: they learn for tens of thousands of rows.
    """
    return MARGIN_NATS * (max(1.0, rows / MARGIN_ROWS) if outputs <= FEW_OUTPUTS else 1.0)


def estimate_row_cost(config: Config) -> float:
    """Estimate the cost of learning a row, in multiply-adds: squares of blocks, and weights."""
    layout = layout_of(config)
    joint = sum(float(dim) ** 2 for dim in layout.block_dims)
    return (joint + 8.0 * config.weights) * max(1, config.outputs)


def compute_prices(costs: FloatArray, margin: float) -> FloatArray:
    """Return what each network must earn in nats per row: (K,).

    The price of network k is margin log2(C/(C - c_k)), with costs c of the networks and C their
    sum: a network that doubles the cost must earn the margin.
    """
    total = np.sum(costs)
    return np.asarray(margin * np.log2(total / (total - costs)))


def find_costly_member(pool: PoolWeights, prices: FloatArray) -> int | None:
    """Return the network whose benefit is farthest below its price; None if all pay."""
    surplus = pool.benefit / max(pool.benefit_rows, 1) - prices
    worst = int(np.argmin(surplus))
    return worst if surplus[worst] < 0.0 else None


def restart_benefits(pool: PoolWeights) -> PoolWeights:
    """Return the weights with benefits counted from here on."""
    return pool._replace(benefit=np.zeros_like(pool.benefit), benefit_rows=0)


def select_members(pool: PoolWeights, keep: Sequence[int]) -> PoolWeights:
    """Return the weights of these networks, rescaled; benefits restart."""
    weight = pool.weight[list(keep)]
    return PoolWeights(weight / np.sum(weight), pool.rows, pool.scale, np.zeros(len(weight)), 0)
