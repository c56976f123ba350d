"""Explanation of predicted rows, draws of the predictive function, and the rows to label next.

The columns of an explanation are, for the mean of a number or the log-odds of the predicted label,

    base           the value of a row in which every column is missing
    why_COLUMN     the contribution of a column; base and all contributions add up to the value
    sampling_error the largest standard error of the contributions, if they are sampled

and, if the parts of the sd are asked for, `base_function_sd`, `why_function_sd_COLUMN` and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.data.batch import Rows, concat_rows, slice_rows, take_rows
from kbnn.errors import DataError, UsageError
from kbnn.fleet.fleet import Fleet
from kbnn.fleet.key_index import read_keys
from kbnn.metrics.sections import ChartSpec
from kbnn.model.explain import (
    MAX_EXACT_COLUMNS,
    Explanation,
    Quantity,
    RowExplanation,
    explain_rows,
    format_contributions,
    group_inputs,
    list_quantities,
)
from kbnn.model.function_posterior import (
    FunctionSampler,
    OnState,
    QueryRanking,
    ignore_state,
    rank_queries,
)
from kbnn.model.interface import StreamModel
from kbnn.model.model import OnlineModel
from kbnn.model.recursive_forecast import SequentialPredictor, can_combine
from kbnn.output.writers import AddedField
from kbnn.targets.prediction import Forecast
from kbnn.workflows.predicting import AddedColumns, predict_rows

LEADING_FIELDS: Final = ("mean", "log_odds")
"""Quantities that are explained without being named in the columns."""
EXPLAINED_ROWS: Final = 32
"""Rows explained at a time: a wide table takes 0.1 s a row."""
MAX_BARS: Final = 12
"""Largest number of contributions drawn one by one; smaller ones are added up."""


class RowExplainer:
    """Explains consecutive rows that have been predicted.

    Parameters
    ----------
    model
        A model or a fleet; it does not change. Rows of a fleet are explained by the model of their
        key.
    """

    def __init__(self, model: StreamModel) -> None:
        self._model = model
        self._explainers: dict[str, Callable[[Rows], Explanation] | None] = {}
        self.columns = [group.column for group in group_inputs(model.schema)]
        self.quantities = list_quantities(model.task)
        self.first_row: dict[str, RowExplanation] | None = None

    @property
    def is_sampled(self) -> bool:
        """Whether contributions are sampled and have standard errors."""
        return len(self.columns) > MAX_EXACT_COLUMNS

    def explain(self, rows: Rows, forecast: Forecast) -> Explanation:
        """Explain the forecasts of a batch; NaN where a forecast is missing."""
        n, size = len(rows.y), len(self.quantities)
        value = _list_values(self.quantities, forecast) if n else np.zeros((0, size))
        contributions = np.full((n, size, len(self.columns)), np.nan)
        errors = np.full_like(contributions, np.nan)
        for key, places in self._group_rows(rows):
            explain = self._open_explainer(key)
            if explain is not None and len(places):
                found = explain(take_rows(rows._replace(original=None), places))
                known = {name: at for at, name in enumerate(found.columns)}
                for at, column in enumerate(self.columns):
                    of = known.get(column)  # None: the model of this key has not met the column
                    contributions[places, :, at] = (
                        0.0 if of is None else found.contributions[..., of]
                    )
                    errors[places, :, at] = 0.0 if of is None else found.errors[..., of]
        if rows.unreadable is not None:
            contributions[rows.unreadable] = errors[rows.unreadable] = np.nan
        names = [quantity.name for quantity in self.quantities]
        made = Explanation(self.columns, names, value, value, contributions, errors)
        made = made.shift_to(value)
        if n and self.first_row is None:
            self.first_row = made.get_row(0)
        return made

    def _group_rows(self, rows: Rows) -> Iterator[tuple[str, IntArray]]:
        if not self._model.key:
            yield "", np.arange(len(rows.y))
            return
        groups: dict[str, list[int]] = {}
        for at, key in enumerate(read_keys(rows, self._model.key)):
            groups.setdefault(key, []).append(at)
        for key, places in groups.items():
            yield key, np.array(places)

    def _open_explainer(self, key: str) -> Callable[[Rows], Explanation] | None:
        """Return the explainer of a key's rows; None if the key has no model yet."""
        if key not in self._explainers:
            model: StreamModel | None = self._model
            if isinstance(model, Fleet):
                model = model.models.find_model(key) or model.models.create_model()
            self._explainers[key] = (
                _explain_in_order(model) if isinstance(model, OnlineModel) else None
            )
        return self._explainers[key]


def _explain_in_order(model: OnlineModel) -> Callable[[Rows], Explanation]:
    """Return a function that explains consecutive rows; lags are those of the prediction."""
    predict = model.open_predictor()
    if not isinstance(predict, SequentialPredictor):
        return lambda rows: explain_rows(model, rows)
    sequence, schema = predict, model.schema
    columns = [group.column for group in group_inputs(schema)]
    target = schema.targets[0]
    place = columns.index(target) if target in columns and not schema.changes else None

    def explain(rows: Rows) -> Explanation:
        forecast = sequence(rows)
        found = explain_rows(model, sequence.get_inputs())
        if not can_combine(schema, model.task):
            return found
        value = _list_values(list_quantities(model.task), forecast)
        return found.add_naive_forecasts(value, sequence.get_network_weights(), place)

    return explain


def _list_values(quantities: Sequence[Quantity], forecast: Forecast) -> FloatArray:
    """Return what is explained of each forecast: (n, quantities)."""
    label = np.zeros(len(forecast.status), dtype=np.int64)
    if forecast.probability.shape[1] and len(label):
        label = np.argmax(forecast.probability, axis=1)
    return np.stack([quantity.values(forecast, label) for quantity in quantities], axis=1)


def explain_batches(
    model: StreamModel, batches: Iterable[Rows], notice: Callable[[str], None]
) -> Explanation:
    """Explain the predictions of all rows, in order."""
    explainer = RowExplainer(model)
    predicted = predict_rows(model, batches, notice)
    parts = [explainer.explain(rows, forecast) for rows, forecast, _ in predicted]
    if not parts:
        names = [quantity.name for quantity in explainer.quantities]
        none, shares = np.zeros((0, len(names))), np.zeros((0, len(names), len(explainer.columns)))
        return Explanation(explainer.columns, names, none, none, shares, shares)
    arrays = zip(*(part[2:] for part in parts), strict=True)
    return Explanation(*parts[0][:2], *map(np.concatenate, arrays))


def split_batches(batches: Iterable[Rows]) -> Iterator[Rows]:
    """Yield the same rows in batches of at most EXPLAINED_ROWS, so that progress can be shown."""
    for rows in batches:
        for start in range(0, len(rows.y), EXPLAINED_ROWS):
            yield slice_rows(rows, start, start + EXPLAINED_ROWS)


def build_waterfall(explainer: RowExplainer) -> ChartSpec:
    """Describe the chart of the first row explained; DataError if it has no prediction."""
    row = next(iter((explainer.first_row or {}).values()), None)
    if row is None or not np.isfinite(row.value) or not np.isfinite(row.base):
        raise DataError("--plot: the first row has no prediction to explain")
    quantity = explainer.quantities[0]
    name = quantity.target or quantity.name.replace("log_odds", "log-odds of the label")
    parts = sorted(row.contributions.items(), key=lambda part: -abs(part[1]))
    if len(parts) > MAX_BARS:
        others = sum(size for _, size in parts[MAX_BARS:])
        parts = [*parts[:MAX_BARS], (f"{len(parts) - MAX_BARS} others", others)]
    data = {
        "base": row.base,
        "value": row.value,
        "names": [column for column, _ in parts],
        "contributions": np.array([size for _, size in parts]),
        "name": name,
    }
    ends = f"from {row.base:.4g} (nothing known) to {row.value:.4g}"
    return ChartSpec("waterfall", "Contributions to the first row", data, hint=ends)


def add_explanation(
    explainer: RowExplainer, *, numbers: bool = True, decompose: bool = False, text_columns: int = 0
) -> AddedColumns:
    """Add an explanation to predicted rows.

    Parameters
    ----------
    explainer
        The explainer of the model or fleet that predicts.
    numbers
        Whether every contribution is a column.
    decompose
        Whether all quantities are explained: also the parts of the sd, and the logarithm of
        targets above 0.
    text_columns
        How many of the largest contributions a text lists; 0 adds none.
    """
    fields: list[AddedField] = []
    for at, quantity in enumerate(explainer.quantities):
        if quantity.field not in LEADING_FIELDS and not decompose:
            continue
        suffix = f"_{quantity.target}" if quantity.target else ""
        part = "" if quantity.field in LEADING_FIELDS else f"_{quantity.field}"
        if text_columns:
            fields.append(AddedField(f"why{part}{suffix}", True, _make_texts(at, text_columns)))
        if not numbers:
            continue
        fields.append(AddedField(f"base{part}{suffix}", False, _select_base(at)))
        fields += [
            AddedField(f"why{part}_{column}{suffix}", False, _select_contribution(at, k))
            for k, column in enumerate(explainer.columns)
        ]
        if explainer.is_sampled:
            fields.append(AddedField(f"sampling_error{part}{suffix}", False, _select_error(at)))
    return AddedColumns(fields, explainer.explain)


def _make_texts(quantity: int, count: int) -> Callable[[Explanation], list[str | None]]:
    return lambda found: [
        format_contributions(found.columns, row, count) if np.isfinite(row).all() else None
        for row in found.contributions[:, quantity]
    ]


def _select_base(quantity: int) -> Callable[[Explanation], FloatArray]:
    return lambda found: found.base[:, quantity]


def _select_contribution(quantity: int, column: int) -> Callable[[Explanation], FloatArray]:
    return lambda found: found.contributions[:, quantity, column]


def _select_error(quantity: int) -> Callable[[Explanation], FloatArray]:
    return lambda found: np.max(found.errors[:, quantity], axis=1, initial=0.0)


def check_independent_rows(model: OnlineModel, asked: str) -> None:
    """Raise UsageError if rows depend on the rows before them."""
    if model.schema.lags:
        raise UsageError(f"{asked} is for models without lags: their rows depend on earlier ones")


def sample_batches(
    model: OnlineModel, batches: Iterable[Rows], count: int, seed: int
) -> FloatArray:
    """Draw functions and evaluate them at all rows: (count, n, targets or classes)."""
    sampler = FunctionSampler(model, count, seed)
    parts = [_draw(sampler, rows) for rows in batches]
    return np.concatenate(parts, axis=1)


def _draw(sampler: FunctionSampler, rows: Rows) -> FloatArray:
    drawn = sampler.draw(rows)
    if rows.unreadable is not None:
        drawn[:, rows.unreadable] = np.nan
    return drawn


def add_samples(model: OnlineModel, count: int, seed: int) -> AddedColumns:
    """Add draws of the function: `sample_1`, ..., or the probabilities `sample_1_p_CLASS`, ..."""
    check_independent_rows(model, "--samples")
    sampler = FunctionSampler(model, count, seed)
    task = model.task
    suffixes = [f"_{target}" for target in task.targets] if len(task.targets) > 1 else [""]
    if task.labels:
        suffixes = [f"_p_{name}" for name in model.schema.classes]
    fields = [
        AddedField(f"sample_{draw + 1}{suffix}", False, _select_draw(draw, part))
        for draw in range(count)
        for part, suffix in enumerate(suffixes)
    ]
    return AddedColumns(fields, lambda rows, forecast: _draw(sampler, rows))


def _select_draw(draw: int, part: int) -> Callable[[FloatArray], FloatArray]:
    return lambda drawn: drawn[draw, :, part]


def collect_batches(batches: Iterable[Rows], on_state: OnState) -> list[Rows]:
    """Return all batches; `on_state` is told how many rows were read."""
    found: list[Rows] = []
    read = 0
    for rows in batches:
        found.append(rows)
        read += len(rows.y)
        on_state(f"{read:,} rows read")
    return found


def rank_batches(
    model: OnlineModel, batches: Sequence[Rows], count: int, on_state: OnState = ignore_state
) -> QueryRanking:
    """Choose the rows whose labels reduce the uncertainty about all readable rows most."""
    if not batches:
        return QueryRanking(np.zeros(0, dtype=np.int64), np.zeros(0))
    rows = concat_rows([part._replace(original=None) for part in batches])
    readable = np.arange(len(rows.y))
    if rows.unreadable is not None:
        readable = np.flatnonzero(~rows.unreadable)
    if not len(readable):
        return QueryRanking(readable[:0], np.zeros(0))
    x_sd = None if rows.x_sd is None else rows.x_sd[readable]
    known = Rows(rows.x[readable], rows.y[readable], rows.number[readable], x_sd)
    found = rank_queries(model, known, count, on_state)
    return found._replace(rows=readable[found.rows])


def add_ranks(ranking: QueryRanking) -> AddedColumns:
    """Add the column `ask`: 1 for the row to label first, and so on; empty in other rows."""
    rank = {int(row): float(at + 1) for at, row in enumerate(ranking.rows)}
    written = 0

    def find_ranks(rows: Rows, forecast: Forecast) -> FloatArray:
        nonlocal written
        places = range(written, written + len(rows.y))
        written += len(rows.y)
        return np.array([rank.get(place, np.nan) for place in places])

    return AddedColumns([AddedField("ask", False, lambda ranks: ranks, is_rank=True)], find_ranks)
