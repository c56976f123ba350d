"""Evaluation of a model on rows: metrics, timing, and data for charts.

The model is frozen, or predicts each row and then learns it (prequential). `UnlearnedRowNotices`
reports, once per run, rows that cannot be learned because of their target. While the target type is
still being selected, the first invalid row of each type is remembered and reported once the model
has that type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from kbnn.data.batch import Rows, take_rows
from kbnn.data.dataset import Stream
from kbnn.distributions.dispatch import read_distribution
from kbnn.errors import DataError, UsageError
from kbnn.fleet.key_index import KeyScores, read_keys
from kbnn.metrics.decision_figures import ClassFigures, DecisionOptions, NumberFigures
from kbnn.metrics.figures import MetricRow, MetricTable, PinballLoss, flatten_metrics
from kbnn.metrics.scorecard import Scorecard
from kbnn.metrics.sections import TargetSection, build_target_section
from kbnn.metrics.verdicts import Verdict, find_metrics
from kbnn.model.interface import StreamModel
from kbnn.model.replay import MAX_HELD_ROWS
from kbnn.model.warmup import WARM_UP_ROWS
from kbnn.output.fields import OutputOptions, list_output_fields, quantile_name
from kbnn.targets.base import TargetType
from kbnn.targets.prediction import IN_WARMUP, select_rows
from kbnn.targets.registry import VALUE_RANGES, find_value_ranges
from kbnn.wording import format_count, format_number
from kbnn.workflows.alerts import AlertScoring
from kbnn.workflows.predicting import predict_rows
from kbnn.workflows.run_results import advise_frozen


@dataclass
class EvaluationTiming:
    """Seconds spent waiting for rows, predicting and scoring."""

    read: float = 0.0
    predict: float = 0.0
    score: float = 0.0

    @property
    def total(self) -> float:
        """Total seconds."""
        return self.read + self.predict + self.score


class RowCounts(NamedTuple):
    """Numbers of rows scored, without a target, and unreadable."""

    scored: int
    unlabelled: int
    unreadable: int


@dataclass
class Evaluation:
    """The result: a scorecard with one score per target, rows left out, and timing."""

    task: TargetType
    card: Scorecard
    intervals: str | None  # tracked or stated; None for classes
    learning: bool = False  # whether rows were learned after they were predicted
    pinball: dict[str, PinballLoss] = field(default_factory=dict)  # by target
    decisions: ClassFigures | None = None  # only for classes
    errors: list[NumberFigures] = field(default_factory=list)  # of each target, if numbers
    leading_metric: str | None = None
    bad_rows: int = 0
    timing: EvaluationTiming = field(default_factory=EvaluationTiming)
    keys: KeyScores | None = None  # only for a fleet
    alerts: AlertScoring | None = None  # if they were asked for

    @property
    def rows(self) -> int:
        """Number of rows read, scored or not."""
        return self.card.curve.rows + self.bad_rows

    @property
    def row_counts(self) -> RowCounts:
        """Rows by outcome."""
        scored = max(score.rows for score in self.card.scores)
        return RowCounts(scored, self.card.curve.rows - scored, self.bad_rows)

    @property
    def rows_per_second(self) -> float | None:
        """Rows read per second; None if no time passed."""
        return self.rows / self.timing.total if self.timing.total > 0 else None

    def figures(self) -> dict[str, dict[str, Any]]:
        """Return all metrics of each target; unreadable rows count as skipped."""
        found = {}
        for name, score in zip(self.task.targets, self.card.scores, strict=True):
            figures = score.metric_values()
            figures["skipped"] += score.invalid + self.bad_rows
            if name in self.pinball:
                loss = self.pinball[name]
                figures["pinball"] = {
                    quantile_name(share): mean
                    for share, mean in zip(loss.shares.tolist(), loss.mean_losses(), strict=True)
                }
            found[name] = {**figures, **self._list_further(name)}
        return found

    def _find_further(self, target: str) -> ClassFigures | NumberFigures | None:
        """Return the figures of a target that no model stores."""
        if self.decisions is not None or not self.errors:
            return self.decisions
        return self.errors[self.task.targets.index(target)]

    def _list_further(self, target: str) -> dict[str, Any]:
        further = self._find_further(target)
        return {} if further is None else further.values(self.task.schema.classes)

    def build_sections(self) -> list[TargetSection]:
        """Build what is shown for each target."""
        points = self.card.curve_points() if self.learning else [[] for _ in self.card.scores]
        return [
            section._replace(
                verdict=self.add_frozen_advice(section.verdict),
                table=self._extend_table(section.name, section.table),
            )
            for section in (
                build_target_section(
                    self.task, score, self.card.summaries, at, points[at], self.bad_rows
                )
                for at, score in enumerate(self.card.scores)
            )
        ]

    def _extend_table(self, target: str, table: MetricTable) -> MetricTable:
        """Add the figures that no model stores, and put the leading metric first."""
        further = self._find_further(target)
        if further is None:
            return table
        rows = [*table.rows, *further.build_rows(self._list_further(target))]
        leading = self.leading_metric
        if leading is not None:
            value = flatten_metrics(self.figures()[target])[leading]
            rows.insert(0, MetricRow(leading, format_number(value), "", "chosen by --metric"))
        return table._replace(rows=rows)

    def add_frozen_advice(self, verdict: Verdict) -> Verdict:
        """Add advice to a verdict if the model did not learn."""
        return verdict if self.learning else advise_frozen(verdict)

    def list_verdicts(self) -> list[tuple[str, Verdict]]:
        """List each target with its verdict."""
        return [
            (name, self.add_frozen_advice(find_metrics(self.task).judge(score)))
            for name, score in zip(self.task.targets, self.card.scores, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the object of `evaluate --json`."""
        objects = self.figures()
        common: dict[str, Any] = {} if self.intervals is None else {"intervals": self.intervals}
        common["learning"] = self.learning
        if self.leading_metric is not None:
            common["metric"] = self.leading_metric
        if self.keys is not None:
            common["keys"] = self.keys.to_json()
        if self.alerts is not None:
            common["alerts"] = self.alerts.to_json()
        time = {**common, "seconds": self.timing.total, "rows_per_second": self.rows_per_second}
        if len(objects) == 1:
            return {**next(iter(objects.values())), **time}
        scored = self.row_counts.scored
        return {"rows": scored, "skipped": self.rows - scored, "targets": objects, **time}


def evaluate(
    model: StreamModel,
    stream: Stream,
    *,
    quantiles: Sequence[float] = (),
    decision: DecisionOptions | None = None,
    metric: str | None = None,
    learn: bool = False,
    alerts: AlertScoring | None = None,
    on_rows: Callable[[int], None] = lambda rows: None,
    notice: Callable[[str], None] = lambda text: None,
) -> Evaluation:
    """Predict and score every row of a stream, in constant memory.

    By default the model does not change. With `learn`, each row is predicted, scored and learned as
    in training, and the model's own record is replaced by that of these rows (pass a copy). The
    pinball loss of `quantiles` is added to the metrics. `decision` sets the threshold or the costs
    of two classes, and `metric` is the figure that is shown first. `alerts` receives every
    row.
    """
    done = open_evaluation(model, quantiles, decision, metric, learn=learn)
    card = done.card
    if learn:
        model.record.set_card(card)
    done.alerts = alerts
    timing, start, read_rows, labelled_rows = done.timing, perf_counter(), 0, 0
    batches = _read_batches(model, stream, timing, notice)
    for rows, forecast, anomalies in predict_rows(model, batches, notice, learn=learn):
        predicted = perf_counter()
        read_rows += len(rows.y)
        labelled_rows += int(np.isfinite(rows.y).any(axis=1).sum())
        if alerts is not None:
            alerts.add(rows, forecast, anomalies)
        if not learn:
            card.add(rows.x, rows.y, forecast, rows.weight, rows.number)
        made = (forecast.status & IN_WARMUP) == 0
        if not made.all():  # rows held for the scale are not scored
            rows, forecast = take_rows(rows, np.flatnonzero(made)), select_rows(forecast, made)
        if done.keys is not None:
            done.keys.add(read_keys(rows, model.key), rows, forecast)
        if done.decisions is not None:
            done.decisions.add(rows.y[:, 0], forecast.probability, rows.weight)
        for j, of_target in enumerate(done.errors):
            of_target.add(rows.y[:, j], forecast.mean[:, j], rows.weight)
        for j, loss in enumerate(done.pinball.values()):
            told = read_distribution(forecast.stated[:, j])
            values = [told.quantile(share) for share in quantiles]
            loss.add(rows.y[:, j], np.stack(values, axis=1), rows.weight)
        done.bad_rows = stream.bad_rows
        on_rows(len(made))
        timing.score += perf_counter() - predicted
    timing.predict = perf_counter() - start - timing.read - timing.score
    if learn:  # single rows may not be scored yet, and the target type may have changed
        done.task, done.card = model.task, model.card
        card = done.card
    done.bad_rows = stream.bad_rows
    if not any(score.rows for score in card.scores):
        names = " and ".join(f"'{name}'" for name in model.task.targets)
        read_rows += stream.bad_rows
        why = f"none of the {read_rows:,} rows has a value of {names}"
        if labelled_rows:
            why = _explain_missing_scores(model, learn, names)
        raise DataError(f"nothing to evaluate: {why}")
    return done


def _explain_missing_scores(model: StreamModel, learn: bool, names: str) -> str:
    """Say why rows with targets were not scored."""
    what = "changes" if model.schema.changes else "values"
    if learn:
        return (
            f"the model is still in its warm-up, which ends after {WARM_UP_ROWS} rows with "
            f"different {what} of {names}"
        )
    if model.key:
        return "no row has a key that the fleet can predict"
    return f"the model has no error bars yet. It needs more rows, with different {what} of {names}."


def open_evaluation(
    model: StreamModel,
    quantiles: Sequence[float] = (),
    decision: DecisionOptions | None = None,
    metric: str | None = None,
    *,
    learn: bool = False,
) -> Evaluation:
    """Open an evaluation without rows; UsageError if an option does not fit the target."""
    task, decision = model.task, decision or DecisionOptions()
    done = Evaluation(task, Scorecard(task, model.schema.width), model.interval_mode, learn)
    list_output_fields(task, OutputOptions(quantiles=tuple(quantiles)))  # raises for classes
    decision.check(model.schema.classes if task.labels else ())
    done.pinball = {name: PinballLoss(quantiles) for name in task.targets if quantiles}
    done.keys = KeyScores(task) if model.key else None
    if task.labels:
        done.decisions = ClassFigures(decision, model.schema.classes)
    else:
        is_series = model.schema.clock is not None and not model.key
        done.errors = [NumberFigures(is_series=is_series) for _ in task.targets]
    known = list_metric_names(done)
    if metric is not None and metric not in known:
        raise UsageError(f"--metric: unknown metric '{metric}' (choose from {', '.join(known)})")
    done.leading_metric = metric
    return done


def list_metric_names(evaluation: Evaluation) -> list[str]:
    """List the names of all metrics of a target, as conditions use them."""
    return list(flatten_metrics(next(iter(evaluation.figures().values()))))


def _read_batches(
    model: StreamModel, stream: Stream, timing: EvaluationTiming, notice: Callable[[str], None]
) -> Iterator[Rows]:
    """Yield the batches of a stream; time the reading, and report targets out of range."""
    unlearnable = UnlearnedRowNotices()
    while True:
        start = perf_counter()
        rows = next(stream, None)
        timing.read += perf_counter() - start
        if rows is None:
            return
        text = unlearnable.notice_invalid_target(rows, model.task.name, model.task.targets)
        if text is not None:
            notice(text)
        yield rows


class _InvalidTarget(NamedTuple):
    row: int
    target: int
    value: float


class UnlearnedRowNotices:
    """Reports rows that cannot be learned, each reason once."""

    def __init__(self) -> None:
        self._first: dict[str, _InvalidTarget] = {}
        self._reported_invalid = self._reported_dropped = False

    def notice_dropped_rows(self, dropped_rows: int) -> str | None:
        """Return the notice about rows dropped while the target was constant, once; else None."""
        if self._reported_dropped or not dropped_rows:
            return None
        self._reported_dropped = True
        return (
            f"the target, or its change from row to row, was the same in more than {MAX_HELD_ROWS} "
            "rows: only the last "
            f"{MAX_HELD_ROWS} of them are learned, the others count as rejected (--task "
            "classification learns all of them)"
        )

    def notice_invalid_target(
        self, rows: Rows, task: str, targets: Sequence[str], *, settled: bool = True
    ) -> str | None:
        """Return the notice about the first target outside the range of the target type, once.

        `settled`: the target type is final.
        """
        if self._reported_invalid:
            return None
        for name, range_ in find_value_ranges(task).items():
            if name in self._first or (settled and name != task):
                continue
            wrong = np.isfinite(rows.y) & (range_.possible(rows.y) == 0.0)
            if wrong.any():
                row, target = np.argwhere(wrong)[0].tolist()
                self._first[name] = _InvalidTarget(
                    int(rows.number[row]), target, rows.y[row, target]
                )
        first = self._first.get(task)
        if first is None:
            return None
        self._reported_invalid = True
        return (
            f"row {format_count(first.row)}: target '{targets[first.target]}' is {first.value:g}, "
            f"and --task {task} is for {VALUE_RANGES[task].words}: such rows are left out (--task "
            "regression takes any number)"
        )
