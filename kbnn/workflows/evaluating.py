"""Judging a model on rows: figures, time, and what the pictures need.

The model stands still, or it predicts each row and then learns it.

Rows that are not learned: what is said of them, once a run.

Of those whose target a stated kind of number cannot have the first is shown.

While kinds of numbers still race, nobody knows which will be learned: the first row against each is
kept, and told when the model is of that kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from kbnn.data.batch import Rows
from kbnn.data.dataset import Stream
from kbnn.data.row_blocks import take_rows as take_rows
from kbnn.distributions import dispatch
from kbnn.errors import DataError
from kbnn.fleet.key_index import KeyScores, read_keys
from kbnn.metrics.score import PinballLoss
from kbnn.metrics.scorecard import Scorecard
from kbnn.metrics.verdicts import TargetSection, Verdict
from kbnn.model.model import OnlineModel
from kbnn.model.recursive_forecast import SequenceNotices
from kbnn.model.replay_buffer import MAX_HELD_ROWS
from kbnn.targets.base import OutputOptions, TargetType
from kbnn.targets.numeric import quantile_name
from kbnn.targets.prediction import IN_WARMUP, select_rows
from kbnn.targets.registry import VALUE_RANGES, find_value_ranges
from kbnn.wording import format_count
from kbnn.workflows.run_results import advise_frozen


@dataclass
class EvaluationTiming:
    """Seconds spent waiting for rows, predicting them and scoring them."""

    read: float = 0.0
    predict: float = 0.0
    score: float = 0.0

    @property
    def total(self) -> float:
        """All seconds."""
        return self.read + self.predict + self.score


class RowCounts(NamedTuple):
    """How many rows were scored, had no target, could not be read."""

    scored: int
    unlabelled: int
    unreadable: int


@dataclass
class Evaluation:
    """What came out: a scorecard with one score a target, the rows left out, the time."""

    task: TargetType
    card: Scorecard
    intervals: str | None  # tracked or stated
    learning: bool = False  # whether rows were learned after they were predicted
    pinball: dict[str, PinballLoss] = field(default_factory=dict)  # by target
    bad_rows: int = 0
    timing: EvaluationTiming = field(default_factory=EvaluationTiming)
    keys: KeyScores | None = None  # of a fleet

    @property
    def rows(self) -> int:
        """Rows read, scored or not."""
        return self.card.curve.rows + self.bad_rows

    @property
    def row_counts(self) -> RowCounts:
        """What became of the rows."""
        scored = max(score.rows for score in self.card.scores)
        return RowCounts(scored, self.card.curve.rows - scored, self.bad_rows)

    @property
    def rows_per_second(self) -> float | None:
        """Rows read a second, None when no time passed."""
        return self.rows / self.timing.total if self.timing.total > 0 else None

    def figures(self) -> dict[str, dict[str, Any]]:
        """All figures of each target; a row that could not be read counts as skipped."""
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
            found[name] = figures
        return found

    def build_sections(self) -> list[TargetSection]:
        """Everything to show, target by target."""
        points = self.card.curve_points() if self.learning else [[] for _ in self.card.scores]
        return [
            section._replace(verdict=self.add_frozen_advice(section.verdict))
            for section in (
                self.task.build_section(score, self.card.summaries, at, points[at], self.bad_rows)
                for at, score in enumerate(self.card.scores)
            )
        ]

    def add_frozen_advice(self, verdict: Verdict) -> Verdict:
        """A verdict with what may help, by whether the model learned."""
        return verdict if self.learning else advise_frozen(verdict)

    def list_verdicts(self) -> list[tuple[str, Verdict]]:
        """Each target and the verdict on it."""
        return [
            (name, self.add_frozen_advice(self.task.build_verdict(score)))
            for name, score in zip(self.task.targets, self.card.scores, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """The object of `evaluate --json`."""
        objects = self.figures()
        told: dict[str, Any] = {} if self.intervals is None else {"intervals": self.intervals}
        told["learning"] = self.learning
        if self.keys is not None:
            told["keys"] = self.keys.to_json()
        time = {**told, "seconds": self.timing.total, "rows_per_second": self.rows_per_second}
        if len(objects) == 1:
            return {**next(iter(objects.values())), **time}
        scored = self.row_counts.scored
        return {"rows": scored, "skipped": self.rows - scored, "targets": objects, **time}


def evaluate(
    model: OnlineModel,
    stream: Stream,
    *,
    quantiles: Sequence[float] = (),
    learn: bool = False,
    on_rows: Callable[[int], None] = lambda rows: None,
    notice: Callable[[str], None] = lambda text: None,
) -> Evaluation:
    """Predict and score every row of a stream, in constant memory.

    The model stays as it is, unless it is to `learn`: then each row is predicted, scored and
    learned, as in training, and its record is that of these rows (give a copy). The pinball loss of
    `quantiles` is added to the figures.
    """
    card = Scorecard(model.task, model.schema.width)
    if learn:
        model.set_record(lambda: card)
    done = Evaluation(model.task, card, model.interval_mode, learn)
    model.task.output_fields(OutputOptions(quantiles=tuple(quantiles)))  # refuses those of classes
    done.pinball = {name: PinballLoss(quantiles) for name in model.task.targets if quantiles}
    done.keys = KeyScores(model.task) if model.key else None
    timing = done.timing
    predict = model.learn if learn else model.open_predictor(SequenceNotices(notice))
    unlearnable = UnlearnedRowNotices()
    start = perf_counter()
    for rows in stream:
        got = perf_counter()
        odd = unlearnable.notice_invalid_target(rows, model.task.name, model.task.targets)
        if odd is not None:
            notice(odd)
        forecast = predict(rows)
        predicted = perf_counter()
        if not learn:
            card.add(rows.x, rows.y, forecast, rows.weight, rows.number)
        made = (forecast.status & IN_WARMUP) == 0
        if not made.all():  # rows that only set the scale are not scored
            rows, forecast = take_rows(rows, np.flatnonzero(made)), select_rows(forecast, made)
        if done.keys is not None:
            done.keys.add(read_keys(rows, model.key), rows, forecast)
        for j, loss in enumerate(done.pinball.values()):
            told = [dispatch.quantile(forecast.stated[:, j], share) for share in quantiles]
            loss.add(rows.y[:, j], np.stack(told, axis=1), rows.weight)
        done.bad_rows = stream.bad_rows
        timing.read += got - start
        timing.predict += predicted - got
        on_rows(len(made))
        start = perf_counter()
        timing.score += start - predicted
    if learn:  # rows that came one by one may wait to be scored, and the kind may have changed
        done.task, done.card = model.task, model.card
        card = done.card
    timing.read += perf_counter() - start
    done.bad_rows = stream.bad_rows
    if not any(score.rows for score in card.scores):
        if any(score.invalid for score in card.scores) and model.key:
            raise DataError(
                "nothing to evaluate: no row has a key that the fleet can say anything of"
            )
        if any(score.invalid for score in card.scores):
            raise DataError(
                "nothing to evaluate: the model has no error bars yet, since its target "
                "has had the same value in every row"
            )
        names = " and ".join(f"'{name}'" for name in model.task.targets)
        raise DataError(
            f"nothing to evaluate: none of the {done.rows:,} rows has a value of {names}"
        )
    return done


class _InvalidTarget(NamedTuple):
    row: int
    target: int
    value: float


class UnlearnedRowNotices:
    """What has come so far that some kind of number cannot be."""

    def __init__(self) -> None:
        self._first: dict[str, _InvalidTarget] = {}
        self._told = self._told_let_go = False

    def notice_dropped_rows(self, let_go: int) -> str | None:
        """The sentence about rows let go, so many, while the target did not vary, once."""
        if self._told_let_go or not let_go:
            return None
        self._told_let_go = True
        return (
            f"the target has had one value in more than {MAX_HELD_ROWS} rows: of those before it "
            f"varies the last {MAX_HELD_ROWS} are learned, the others count as rejected (--task "
            "classification learns all of a class)"
        )

    def notice_invalid_target(
        self, rows: Rows, task: str, targets: Sequence[str], *, settled: bool = True
    ) -> str | None:
        """Look at rows; the sentence about the first that the task cannot have, once.

        `settled`: what the target is will stay so.
        """
        if self._told:
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
        self._told = True
        return (
            f"row {format_count(first.row)}: target '{targets[first.target]}' is {first.value:g}, and "
            f"--task {task} is for {VALUE_RANGES[task].words}: such rows are left out (--task "
            "regression takes any number)"
        )
