"""Cold-start predictors: running mean and spread of numbers, running frequencies of classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.distributions.predictive import PARAM
from kbnn.targets.base import ColdStart, make_empty_forecast
from kbnn.targets.prediction import Forecast

if TYPE_CHECKING:
    from kbnn.targets.regression import NumericTarget

MIN_SD_SHARE: Final = 1e-6
"""Minimum sd of a constant target, as a share of 1 + its absolute value."""


class NumericColdStart(ColdStart):
    """Running sums of each target; the first row has no prediction."""

    def __init__(self, task: NumericTarget) -> None:
        targets = len(task.targets)
        self._task = task
        self._sums = [(0, 0.0, 0.0)] * targets  # count, mean, sum of squares about it
        self._low = np.full((1, targets), np.nan)
        self._high = self._low

    def predict_then_update(self, y: FloatArray) -> Forecast:
        """Predict with sd^2 = var (1 + 2/n): 1/n each for uncertain mean and uncertain spread."""
        moments: list[float] = []
        for j, column in enumerate(
            self._task.link(y, self._task.init_calibration(False)).T.tolist()
        ):
            n, center, squares = self._sums[j]
            for value in column:
                if n:
                    spread = math.sqrt(squares / n) if n > 1 else abs(center)
                    least = MIN_SD_SHARE * (1.0 + abs(center))
                    moments += center, max(spread * math.sqrt(1.0 + 2.0 / n), least)
                else:
                    moments += math.nan, math.nan
                if math.isfinite(value):
                    n += 1
                    gap = value - center
                    center += gap / n
                    squares += gap * (value - center)
            self._sums[j] = n, center, squares
        mean, sd = np.array(moments).reshape(*y.T.shape, 2).T
        low, high = self._running_extremes(y)
        self._low, self._high = low[-1:], high[-1:]
        empty = make_empty_forecast(*y.shape)
        stated = self._task.cold_start_distribution(mean, sd)
        mean, sd = self._task.distribution(stated).mean_and_sd()
        return empty._replace(
            mean=mean,
            sd=sd,
            noise_sd=sd,
            function_sd=np.where(np.isnan(sd), sd, 0.0),
            stated=stated,
        )

    def rows_until_varied(self, y: FloatArray) -> int:
        """Return the number of rows until every target has had two values."""
        low, high = self._running_extremes(y)
        varied = (low < high).all(axis=1)
        return int(np.argmax(varied)) if varied.any() else len(y) + 1

    def _running_extremes(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return running minimum and maximum of each target, before and after each row."""
        seen = np.where(np.isfinite(y), y, np.nan)
        return (
            np.fmin.accumulate(np.concatenate((self._low, seen)), axis=0),
            np.fmax.accumulate(np.concatenate((self._high, seen)), axis=0),
        )


class AmountColdStart(NumericColdStart):
    """Running sums of amounts, and the share of zeros with one row of each kind added."""

    def __init__(self, task: NumericTarget) -> None:
        super().__init__(task)
        self._seen: FloatArray = np.zeros((1, len(task.targets)))
        self._none: FloatArray = self._seen

    def predict_then_update(self, y: FloatArray) -> Forecast:
        """Predict as for numbers, with the share of zeros; NaN before the first amount."""
        forecast = super().predict_then_update(y)
        seen = np.cumsum(np.concatenate((self._seen, (y >= 0.0) * 1.0)), axis=0)
        none = np.cumsum(np.concatenate((self._none, (y == 0.0) * 1.0)), axis=0)
        self._seen, self._none = seen[-1:], none[-1:]
        forecast.stated[..., PARAM.none] = (none[:-1] + 1.0) / (seen[:-1] + 2.0)
        mean, sd = self._task.distribution(forecast.stated).mean_and_sd()
        return forecast._replace(mean=mean, sd=sd, noise_sd=sd)


class ClassColdStart(ColdStart):
    """Running class frequencies, with one row added to each class."""

    def __init__(self, count_classes: Callable[[FloatArray], int]) -> None:
        self._count_classes, self._seen = count_classes, np.zeros((0, 1))

    def predict_then_update(self, y: FloatArray) -> Forecast:
        """Predict the frequencies of the classes known at each row."""
        first, seen = len(self._seen), np.concatenate((self._seen, y))
        known = [self._count_classes(seen[:row]) for row in range(first, len(seen))]
        probability = np.zeros((len(y), max(known, default=0)))
        for row, classes in enumerate(known):
            labels = seen[: first + row]
            counts = np.bincount(labels[np.isfinite(labels)].astype(np.int64), minlength=classes)
            probability[row, :classes] = (counts + 1.0) / np.sum(counts + 1.0)
        self._seen = seen[np.isfinite(seen[:, 0])]
        return make_empty_forecast(len(y), 0)._replace(probability=probability)

    def rows_until_varied(self, y: FloatArray) -> int:
        """Return 0: a single class is enough to start."""
        return 0
