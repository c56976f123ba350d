"""Contributions of the columns to a prediction: conditional Shapley values.

The model predicts rows with missing inputs in closed form: a missing input is integrated out, given
the inputs that are known (kbnn.core.input_moments). So v(S), the prediction of a row in which only
the columns S are known, needs no background data. The contribution of column i is

    phi_i = sum over S without i of |S|! (k - |S| - 1)! / k! (v(S + i) - v(S))

and the contributions add up to v(all columns) - v(no column), the row's value minus that of the
empty row. v is any quantity of the forecast: the mean, `function_sd` (what the model does not
know), `noise_sd`, or the log-odds of the predicted label. A column that is missing in the row
contributes 0.

With few columns all 2^k subsets are predicted. With many, random orders of the columns are used: a
column contributes v(with it) - v(without it), given the columns before it. Every order is followed
by its reverse. Such a pair is exact if columns interact at most in pairs, so that a few pairs are
enough; their spread gives the standard error. Pairs are added, row by row, until the standard error
(root mean square over the columns) is at most `tolerance` times the sum of the sizes of the
contributions.

All columns of x made from one column of the source count as one: the indicators of its categories,
the cycles of a clock, a column and its lags.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray, IntArray
from kbnn.data.batch import Rows, make_fill_values, pad_columns
from kbnn.data.schema import Schema
from kbnn.model.model import OnlineModel
from kbnn.targets.base import TargetType
from kbnn.targets.prediction import Forecast

MAX_EXACT_COLUMNS = 10
"""Up to this many columns, all subsets are predicted."""
DEFAULT_TOLERANCE = 0.01
"""Largest standard error (RMS over columns), relative to the sum of a row's |contributions|."""
MIN_ORDER_PAIRS = 2
MAX_ORDER_PAIRS = 64
"""Least and largest number of pairs of orders that are sampled for a row."""
IMPORTANCE_ROWS = 128
MAX_IMPORTANCE_PREDICTIONS = 40_000
MIN_IMPORTANCE_ROWS = 8
"""Sampled rows explained for the importance of columns, fewer where they would cost more."""
MAX_IMPORTANCE_COLUMNS = 250
"""Largest number of columns whose importance is computed; with more it would take minutes."""
BLOCK_PREDICTIONS = 16_384
"""Predictions made in one call, to bound memory."""
MIN_PROBABILITY = 1e-12
"""Probabilities are kept this far from 0 and 1 before the log-odds are computed."""

Masks = NDArray[np.bool_]
ValueFunction = Callable[[IntArray, Masks], FloatArray]
"""Map row indices (n,) and known columns (m, k) to values (n, m, quantities)."""


class InputGroup(NamedTuple):
    """A column of the source and the positions of x made from it."""

    column: str
    inputs: tuple[int, ...]


class Quantity(NamedTuple):
    """A number that is explained: `values` maps forecasts and predicted classes (n,) to (n,)."""

    name: str
    values: Callable[[Forecast, IntArray], FloatArray]
    field: str  # the name without the target
    target: str = ""  # only if there are several


class ShapleyValues(NamedTuple):
    """Shapley values of n rows and their standard errors, 0 where they are exact."""

    values: FloatArray  # (n, quantities, columns)
    errors: FloatArray  # (n, quantities, columns)


class RowExplanation(NamedTuple):
    """Contributions of the columns to one number of a row's forecast.

    `base`, the value of a row without known inputs, plus all `contributions` is `value`. `errors`
    are standard errors of sampled contributions, 0 where they are exact.
    """

    value: float
    base: float
    contributions: dict[str, float]
    errors: dict[str, float]


class Explanation(NamedTuple):
    """Contributions of the columns to the forecasts of n rows.

    Each row's `base` plus the sum of its `contributions` is its `value`. `quantities` are `mean`,
    `function_sd`, `noise_sd` and, for targets above 0, `log_mean`, of several targets with the name
    of each; classes have `log_odds`, those of the predicted label.
    """

    columns: list[str]
    quantities: list[str]
    base: FloatArray  # (n, quantities) of the empty row
    value: FloatArray  # (n, quantities)
    contributions: FloatArray  # (n, quantities, columns)
    errors: FloatArray  # (n, quantities, columns) standard errors, 0 where exact

    def select(self, quantity: str) -> FloatArray:
        """Return the contributions (n, columns) to one quantity."""
        return self.contributions[:, self.quantities.index(quantity)]

    def get_row(self, row: int) -> dict[str, RowExplanation]:
        """Return the explanation of one row, by quantity."""
        parts = zip(
            self.value[row].tolist(),
            self.base[row].tolist(),
            self.contributions[row].tolist(),
            self.errors[row].tolist(),
            strict=True,
        )
        made = [
            RowExplanation(
                value,
                base,
                dict(zip(self.columns, contributions, strict=True)),
                dict(zip(self.columns, errors, strict=True)),
            )
            for value, base, contributions, errors in parts
        ]
        return dict(zip(self.quantities, made, strict=True))

    def shift_to(self, value: FloatArray) -> Explanation:
        """Return the explanation of other values (n, quantities), with the same contributions."""
        return self._replace(base=value - self.contributions.sum(axis=2), value=value)

    def add_naive_forecasts(
        self, value: FloatArray, weights: FloatArray, place: int | None
    ) -> Explanation:
        """Return the explanation of forecasts that combine the network with naive ones.

        Parameters
        ----------
        value
            The combined forecasts, (n, quantities).
        weights
            The network's share (n,) in the means: its contributions count that much.
        place
            The column whose past values the naive forecasts are; it has the rest of the difference
            to `base`. If None, `base` has it. Standard deviations change in proportion.
        """
        mean = np.array([name == "mean" for name in self.quantities])
        ratio = np.divide(value, self.value, out=np.ones_like(value), where=self.value > 0.0)
        factor = np.where(mean, weights[:, None], ratio)
        scaled = self._replace(
            base=np.where(mean, self.base, ratio * self.base),
            value=value,
            contributions=self.contributions * factor[:, :, None],
            errors=self.errors * factor[:, :, None],
        )
        if place is None:
            return scaled.shift_to(value)
        scaled.contributions[:, :, place] += value - scaled.base - scaled.contributions.sum(axis=2)
        return scaled


def group_inputs(schema: Schema) -> list[InputGroup]:
    """Group the columns of x by the column of the source that they were made from."""
    source = {lag.name: lag.column for lag in schema.lags}
    if schema.clock is not None:
        source |= dict.fromkeys(schema.clock.names, schema.clock.column)
    groups: dict[str, list[int]] = {}
    for at, place in enumerate(schema.layout):
        groups.setdefault(source.get(place.column, place.column), []).append(at)
    return [InputGroup(column, tuple(inputs)) for column, inputs in groups.items()]


def list_quantities(task: TargetType) -> list[Quantity]:
    """List what is explained: of numbers mean and both sds, of classes the log-odds.

    Targets above 0 have `log_mean` too: e to the power of its contributions are factors.
    """
    if task.labels:
        return [Quantity("log_odds", _log_odds, "log_odds")]
    fields = ["mean", "function_sd", "noise_sd"]
    if task.name in ("positive", "count", "amount"):
        fields.append("log_mean")
    several = len(task.targets) > 1
    return [
        Quantity(
            f"{field}_{target}" if several else field,
            _select_value(field, j),
            field,
            target if several else "",
        )
        for j, target in enumerate(task.targets)
        for field in fields
    ]


def _select_value(field: str, target: int) -> Callable[[Forecast, IntArray], FloatArray]:
    if field == "log_mean":
        return lambda forecast, _: _log_mean(forecast.mean[:, target])
    return lambda forecast, _: np.asarray(getattr(forecast, field)[:, target])


def _log_mean(mean: FloatArray) -> FloatArray:
    return np.asarray(np.log(np.maximum(mean, np.finfo(np.float64).tiny)))


def _log_odds(forecast: Forecast, label: IntArray) -> FloatArray:
    p = forecast.probability[np.arange(len(label)), label]
    p = np.clip(p, MIN_PROBABILITY, 1.0 - MIN_PROBABILITY)
    return np.asarray(np.log(p) - np.log1p(-p))


def explain_rows(
    model: OnlineModel,
    rows: Rows,
    *,
    tolerance: float = DEFAULT_TOLERANCE,
    max_exact_columns: int = MAX_EXACT_COLUMNS,
    seed: int = 0,
) -> Explanation:
    """Compute the contributions of the columns to the forecasts of rows.

    Parameters
    ----------
    model
        The model; it does not change.
    rows
        Encoded rows, lags filled in. Targets are ignored.
    tolerance
        Largest standard error of sampled contributions, root mean square over the columns and
        relative to the sum of their sizes.
    max_exact_columns
        Largest number of columns for which all subsets are predicted.
    seed
        Seed of the sampled orders. All rows use the same orders, so that the result of a row does
        not depend on the others.

    Returns
    -------
    Explanation
        Contributions to every quantity of `list_quantities`, as the network predicts them. If
        changes are learned, the last value of the target is part of `base`.
    """
    with model.lock:
        learned = model.get_prediction_state()
        learner = model.learner
        z, var = learner.standardize_inputs(learned, rows.x, rows.x_sd)
        width = z.shape[1]
        groups = group_inputs(model.schema)
        known = [
            (at, [i for i in group.inputs if i < width])
            for at, group in enumerate(groups)
            if group.inputs[0] < width
        ]
        owner = np.zeros((len(known), width), dtype=bool)
        for player, (_, inputs) in enumerate(known):
            owner[player, inputs] = True
        quantities = list_quantities(model.task)

        def predict(at: IntArray, masks: Masks) -> Forecast:
            """Predict all rows with one mask after another: the kernel is faster on equal masks."""
            seen = masks @ owner
            many = np.where(seen[:, None, :], z[at], np.nan).reshape(-1, width)
            errors = None if var is None else np.tile(var[at], (len(masks), 1))
            return learner.predict_standardized(learned, many, errors)

        every = np.arange(len(z))
        whole = np.ones((1, len(known)), dtype=bool)
        label = np.zeros(len(z), dtype=np.int64)
        if model.task.labels and len(z):
            label = np.argmax(predict(every, whole).probability, axis=1)

        def evaluate(at: IntArray, masks: Masks) -> FloatArray:
            forecast = predict(at, masks)
            of = np.tile(label[at], len(masks))
            values = [quantity.values(forecast, of) for quantity in quantities]
            stacked = np.stack(values, axis=1).reshape(len(masks), len(at), len(quantities))
            return np.asarray(stacked.transpose(1, 0, 2))

        if len(known) <= max_exact_columns:
            base, value, found = compute_shapley(evaluate, len(z), len(known))
        else:
            base, value, found = sample_shapley(evaluate, len(z), len(known), tolerance, seed)
        level = model.history.last if model.schema.changes else None
    contributions = np.zeros((len(z), len(quantities), len(groups)))
    errors = np.zeros_like(contributions)
    places = [at for at, _ in known]
    contributions[:, :, places], errors[:, :, places] = found
    for at, inputs in known:
        contributions[np.isnan(z[:, inputs]).all(axis=1), :, at] = 0.0  # without rounding errors
    if level is not None:
        means = [at for at, one in enumerate(quantities) if one.name.startswith("mean")]
        base[:, means] += level
        value[:, means] += level
    names = [quantity.name for quantity in quantities]
    return Explanation([g.column for g in groups], names, base, value, contributions, errors)


class Importance(NamedTuple):
    """Mean size of a column's contributions to one quantity, and its standard error over rows."""

    column: str
    size: float
    error: float


def compute_importance(model: OnlineModel) -> dict[str, list[Importance]]:
    """Compute the importance of every column, largest first, for every quantity.

    The rows are evenly spaced among those sampled in the record. Empty during the warm-up, without
    sampled rows, and with more than MAX_IMPORTANCE_COLUMNS columns. The standard error is that of
    the mean over rows, which includes the errors of sampled contributions.
    """
    columns = len(group_inputs(model.schema))
    if model.is_warming_up or not 0 < columns <= MAX_IMPORTANCE_COLUMNS:
        return {}
    each = 2**columns if columns <= MAX_EXACT_COLUMNS else 2 * MIN_ORDER_PAIRS * columns
    most = min(IMPORTANCE_ROWS, max(MIN_IMPORTANCE_ROWS, MAX_IMPORTANCE_PREDICTIONS // each))
    sample = model.card.summaries.sample.x
    if not len(sample):
        return {}
    kept = sample[np.unique(np.linspace(0, len(sample) - 1, most).astype(np.int64))]
    width = len(model.schema.layout)
    x = pad_columns(kept, width, make_fill_values(model.learner.indicators))
    blank = np.full((len(x), len(model.schema.targets)), np.nan)
    found = explain_rows(model, Rows(x, blank, np.arange(1, len(x) + 1)))
    sizes = np.abs(found.contributions)
    means = np.mean(sizes, axis=0)
    errors = np.std(sizes, axis=0) / math.sqrt(max(1, len(x) - 1))
    return {
        quantity: sorted(
            (
                Importance(*parts)
                for parts in zip(found.columns, mean.tolist(), error.tolist(), strict=True)
            ),
            key=lambda one: -one.size,
        )
        for quantity, mean, error in zip(found.quantities, means, errors, strict=True)
    }


def compute_shapley(
    evaluate: ValueFunction, rows: int, columns: int
) -> tuple[FloatArray, FloatArray, ShapleyValues]:
    """Return the values of the empty and the whole row, and exact Shapley values."""
    masks, weights = _all_subsets(columns)
    step = max(1, BLOCK_PREDICTIONS // len(masks))
    ends, found = [], []
    for start in range(0, max(rows, 1), step):
        values = evaluate(np.arange(start, min(start + step, rows)), masks)
        ends.append(values[:, [0, -1]])
        found.append(np.einsum("nmq,mk->nqk", values, weights, optimize=True))
    base, value = np.concatenate(ends).transpose(1, 0, 2)
    shares = np.concatenate(found)
    return base, value, ShapleyValues(shares, np.zeros_like(shares))


@lru_cache(maxsize=16)
def _all_subsets(columns: int) -> tuple[Masks, FloatArray]:
    """Return all subsets (2^k, k), empty first and whole last, and their weights in phi."""
    masks = (np.arange(2**columns)[:, None] >> np.arange(columns) & 1).astype(bool)
    size = masks.sum(axis=1)
    share = np.array([1.0 / (columns * math.comb(columns - 1, s)) for s in range(columns)] + [0.0])
    # A subset of size s is S + i for its own columns (size s - 1) and S for the others.
    weights = np.where(masks, share[size - 1][:, None], -share[size][:, None])
    return masks, weights


def sample_shapley(
    evaluate: ValueFunction,
    rows: int,
    columns: int,
    tolerance: float = DEFAULT_TOLERANCE,
    seed: int = 0,
    max_pairs: int = MAX_ORDER_PAIRS,
) -> tuple[FloatArray, FloatArray, ShapleyValues]:
    """Return the values of the empty and the whole row, and sampled Shapley values."""
    ends = np.array([[False] * columns, [True] * columns])
    values = _evaluate_blocks(evaluate, np.arange(rows), ends)
    base, value = values[:, 0].copy(), values[:, 1].copy()
    mean = np.zeros((rows, values.shape[2], columns))
    squares, errors = np.zeros_like(mean), np.zeros_like(mean)
    rng = np.random.default_rng(seed)
    active = np.arange(rows)
    for count in range(1, max_pairs + 1):
        order = rng.permutation(columns)
        sampled = 0.5 * (
            _follow_order(evaluate, active, order, base, value)
            + _follow_order(evaluate, active, order[::-1], base, value)
        )
        off = sampled - mean[active]
        mean[active] += off / count
        squares[active] += off * (sampled - mean[active])
        if count < MIN_ORDER_PAIRS:
            continue
        errors[active] = np.sqrt(squares[active] / (count * (count - 1)))
        rms = np.sqrt(np.mean(errors[active] ** 2, axis=2))
        allowed = tolerance * np.sum(np.abs(mean[active]), axis=2)
        active = active[np.any(rms > allowed, axis=1)]
        if not len(active):
            break
    return base, value, ShapleyValues(mean, errors)


def _follow_order(
    evaluate: ValueFunction, at: IntArray, order: IntArray, base: FloatArray, value: FloatArray
) -> FloatArray:
    """Return the change (rows, quantities, columns) as columns become known in this order."""
    masks = np.zeros((len(order) - 1, len(order)), dtype=bool)
    for step, column in enumerate(order[:-1]):
        masks[step:, column] = True
    between = _evaluate_blocks(evaluate, at, masks)
    chain = np.concatenate((base[at, None], between, value[at, None]), axis=1)
    changes = np.empty((len(at), chain.shape[2], len(order)))
    changes[:, :, order] = np.diff(chain, axis=1).transpose(0, 2, 1)
    return changes


def _evaluate_blocks(evaluate: ValueFunction, at: IntArray, masks: Masks) -> FloatArray:
    """Evaluate rows in blocks of bounded size."""
    step = max(1, BLOCK_PREDICTIONS // max(1, len(masks)))
    parts = [evaluate(at[start : start + step], masks) for start in range(0, len(at), step)]
    return np.concatenate(parts) if parts else evaluate(at, masks)


def format_contributions(
    names: Sequence[str], contributions: FloatArray, count: int, digits: int = 3
) -> str:
    """Format the largest contributions of one row: `age +3.1, bmi -1.2`."""
    order = np.argsort(-np.abs(contributions), kind="stable")[:count]
    shown = [at for at in order if contributions[at] != 0.0]
    return ", ".join(f"{names[at]} {contributions[at]:+.{digits}g}" for at in shown)
