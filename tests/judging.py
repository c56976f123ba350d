"""Tasks without a model, and forecasts made by hand, for tests of scores and pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.data.schema import Column, Schema
from kbnn.distributions import calibration
from kbnn.metrics.numeric_metrics import ScoredNumericBatch
from kbnn.metrics.scorecard import Scorecard
from kbnn.model.settings import Settings
from kbnn.targets.base import TargetType, make_empty_forecast
from kbnn.targets.prediction import Forecast
from kbnn.targets.registry import make_target_type


def number_task(*targets: str) -> TargetType:
    """Numeric targets of these names."""
    columns = [Column(name, "number", "target") for name in targets or ("y",)]
    return make_target_type(Schema(columns, "regression"), Settings())


def label_task(classes: Sequence[str] = (), target: str = "y", closed: bool = False) -> TargetType:
    """A class target."""
    columns = [Column(target, "category", "target")]
    return make_target_type(Schema(columns, "classification", list(classes), closed), Settings())


def numbers(mean: FloatArray, sd: FloatArray) -> Forecast:
    """Gaussian forecasts; one target where the arrays are vectors."""
    mean, sd = (part[:, None] if part.ndim == 1 else part for part in (mean, sd))
    stated = calibration.apply_calibration(
        calibration.init_calibration(mean.shape[1], mixed=False), mean, sd
    )
    return make_empty_forecast(*mean.shape)._replace(mean=mean, sd=sd, noise_sd=sd, stated=stated)


def judged(
    y: FloatArray, mean: FloatArray, sd: FloatArray, weight: FloatArray | None = None
) -> ScoredNumericBatch:
    """Gaussian forecasts beside what came true."""
    return ScoredNumericBatch(y, mean, numbers(mean, sd).stated[:, 0], weight)


def labels(probability: FloatArray) -> Forecast:
    """Class probabilities."""
    return make_empty_forecast(len(probability), 0)._replace(probability=probability)


def number_card(targets: int = 1, features: int = 0, **more: int) -> Scorecard:
    """A scorecard of numeric targets y0, y1, ..."""
    return Scorecard(number_task(*(f"y{j}" for j in range(targets))), features, **more)


def label_card(features: int = 0, classes: Sequence[str] = (), **more: int) -> Scorecard:
    """A scorecard of a class target."""
    return Scorecard(label_task(classes), features, **more)


def unknown(rows: int, targets: int = 1) -> FloatArray:
    """Targets that nobody knows."""
    return np.full((rows, targets), np.nan)
