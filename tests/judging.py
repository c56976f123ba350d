"""Tasks without a model, and forecasts made by hand, for tests of scores and pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kbnn.core import tails
from kbnn.core.normal import FloatArray
from kbnn.model.schema import Column, Schema
from kbnn.model.settings import Settings
from kbnn.score.scorecard import Scorecard
from kbnn.task.base import Task, blank
from kbnn.task.forecast import Forecast
from kbnn.task.numeric_score import Judged
from kbnn.task.table import task_of


def number_task(*targets: str) -> Task:
    """Numeric targets of these names."""
    columns = [Column(name, "number", "target") for name in targets or ("y",)]
    return task_of(Schema(columns, "regression"), Settings())


def label_task(classes: Sequence[str] = (), target: str = "y", closed: bool = False) -> Task:
    """A class target."""
    columns = [Column(target, "category", "target")]
    return task_of(Schema(columns, "classification", list(classes), closed), Settings())


def numbers(mean: FloatArray, sd: FloatArray) -> Forecast:
    """Gaussian forecasts; one target where the arrays are vectors."""
    mean, sd = (part[:, None] if part.ndim == 1 else part for part in (mean, sd))
    stated = tails.stated(tails.blank(mean.shape[1], mixed=False), mean, sd)
    return blank(*mean.shape)._replace(mean=mean, sd=sd, noise_sd=sd, stated=stated)


def judged(
    y: FloatArray, mean: FloatArray, sd: FloatArray, weight: FloatArray | None = None
) -> Judged:
    """Gaussian forecasts beside what came true."""
    return Judged(y, mean, numbers(mean, sd).stated[:, 0], weight)


def labels(probability: FloatArray) -> Forecast:
    """Class probabilities."""
    return blank(len(probability), 0)._replace(probability=probability)


def number_card(targets: int = 1, features: int = 0, **more: int) -> Scorecard:
    """A scorecard of numeric targets y0, y1, ..."""
    return Scorecard(number_task(*(f"y{j}" for j in range(targets))), features, **more)


def label_card(features: int = 0, classes: Sequence[str] = (), **more: int) -> Scorecard:
    """A scorecard of a class target."""
    return Scorecard(label_task(classes), features, **more)


def unknown(rows: int, targets: int = 1) -> FloatArray:
    """Targets that nobody knows."""
    return np.full((rows, targets), np.nan)
