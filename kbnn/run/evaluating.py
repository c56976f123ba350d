"""Judging a model on rows it does not learn: figures, time, and what the pictures need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from kbnn.errors import DataError
from kbnn.model.model import Model
from kbnn.score.class_verdict import verdict
from kbnn.score.failif import flat
from kbnn.score.scorecard import Scorecard
from kbnn.score.verdict import Verdict
from kbnn.stream.opening import Stream

NUMBER_KEYS = ("rmse", "mae", "r2", "nll", "crps", "coverage", "baseline_rmse", "baseline_nll")
CLASS_KEYS = ("accuracy", "log_loss", "brier", "ece")
"""Figures of `evaluate --json`; the names will not change."""


@dataclass
class Timing:
    """Seconds spent waiting for rows, predicting them and scoring them."""

    read: float = 0.0
    predict: float = 0.0
    score: float = 0.0

    @property
    def total(self) -> float:
        """All seconds."""
        return self.read + self.predict + self.score


@dataclass
class Evaluation:
    """What came out: a scorecard with one score a target, the rows left out, the time."""

    targets: Sequence[str]
    classes: Sequence[str]
    card: Scorecard
    bad_rows: int = 0
    timing: Timing = field(default_factory=Timing)

    @property
    def rows(self) -> int:
        """Rows read, scored or not."""
        return self.card.curve.rows + self.bad_rows

    @property
    def rows_per_second(self) -> float | None:
        """Rows read a second, None when no time passed."""
        return self.rows / self.timing.total if self.timing.total > 0 else None

    def figures(self) -> dict[str, dict[str, Any]]:
        """All figures of each target; a row that could not be read counts as skipped."""
        found = {}
        for name, score in zip(self.targets, self.card.scores, strict=True):
            figures = score.figures()
            figures["skipped"] += score.invalid + self.bad_rows
            found[name] = figures
        return found

    def verdicts(self) -> dict[str, Verdict]:
        """A judgement of each target in plain words."""
        scores = zip(self.targets, self.card.scores, strict=True)
        return {name: verdict(score) for name, score in scores}

    def to_json(self) -> dict[str, Any]:
        """The object of `evaluate --json`."""
        figures = self.figures()
        keys = CLASS_KEYS if self.card.classes else NUMBER_KEYS
        objects = {
            name: {key: found[key] for key in ("rows", "skipped", *keys)}
            for name, found in figures.items()
        }
        time = {"seconds": self.timing.total, "rows_per_second": self.rows_per_second}
        if len(objects) == 1:
            return {**next(iter(objects.values())), **time}
        rows = max(found["rows"] for found in objects.values())
        return {"rows": rows, "skipped": self.rows - rows, "targets": objects, **time}


def figure_names(model: Model) -> list[str]:
    """The figures that the model's task has, before any row was scored."""
    classes = model.schema.task == "classification"
    return list(flat(Scorecard(classes=classes).scores[0].figures()))


def evaluate(
    model: Model, stream: Stream, *, on_rows: Callable[[int], None] = lambda rows: None
) -> Evaluation:
    """Predict and score every row of a stream; the model stays as it is. Constant memory."""
    schema = model.schema
    classes = schema.task == "classification"
    card = Scorecard(len(schema.targets), schema.width, classes=classes)
    done = Evaluation(schema.targets, schema.classes, card)
    timing = done.timing
    start = perf_counter()
    for block in stream:
        got = perf_counter()
        forecast = model.predict(block)
        predicted = perf_counter()
        card.add(
            block.x,
            block.y,
            mean=forecast.mean,
            sd=forecast.sd,
            probability=forecast.probability,
            weight=block.weight,
            rows=block.rows,
        )
        done.bad_rows = stream.bad_rows
        timing.read += got - start
        timing.predict += predicted - got
        on_rows(len(block.rows))
        start = perf_counter()
        timing.score += start - predicted
    timing.read += perf_counter() - start
    done.bad_rows = stream.bad_rows
    if not any(score.rows for score in card.scores):
        if any(score.invalid for score in card.scores):
            raise DataError(
                "nothing to evaluate: the model has no error bars yet, since its target "
                "has had the same value in every row"
            )
        names = " and ".join(f"'{name}'" for name in schema.targets)
        raise DataError(
            f"nothing to evaluate: none of the {done.rows:,} rows has a value of {names}"
        )
    return done
