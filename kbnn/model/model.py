"""A model: schema, networks and the record of what they forecast, in the user's units."""

from __future__ import annotations

import copy
from typing import Any, Protocol

import numpy as np

from kbnn.core.layout import IntArray
from kbnn.core.network import ALARM
from kbnn.core.normal import FloatArray
from kbnn.core.state import COUNT
from kbnn.errors import UsageError
from kbnn.model.holding import MOST_HELD, Held
from kbnn.model.learner import HELD, NO_TARGET, Forecast, Learner
from kbnn.model.schema import Schema
from kbnn.model.settings import Settings
from kbnn.score.scorecard import Scorecard

__all__ = ["HELD", "NO_TARGET", "Forecast", "Model", "Rows"]

MOST_ALARMS = 100


class Rows(Protocol):
    """What learning and predicting need of a block (kbnn.stream.encode.Block)."""

    @property
    def x(self) -> FloatArray: ...
    @property
    def x_sd(self) -> FloatArray | None: ...
    @property
    def y(self) -> FloatArray: ...
    @property
    def weight(self) -> FloatArray | None: ...
    @property
    def rows(self) -> IntArray: ...


class Model:
    """Learns blocks of rows and predicts; `learn` moves it forward.

    Rows take one way: hold (until the scale is known), predict, learn, score.
    """

    def __init__(self, settings: Settings, schema: Schema) -> None:
        targets = len(schema.targets)
        if targets > 1 and not isinstance(settings.noise, str) and settings.noise > 0.0:
            raise UsageError(
                f"noise {settings.noise:g} is in the units of one target, but there "
                f"are {targets} (choose auto or constant)"
            )
        self.settings, self.schema = settings, schema
        self.classes = schema.task == "classification"
        self.card = Scorecard(targets, 0, classes=self.classes, seed=settings.seed)
        self.held = Held.nothing(targets)
        self.learner = Learner(settings, 0 if self.classes else targets)
        self.skipped = 0  # rows without a target
        self.alarms: list[int] = []
        self.position: dict[str, Any] = {}
        self._settled: Model | None = None

    @classmethod
    def create(cls, settings: Settings, schema: Schema) -> Model:
        """A model that has seen nothing."""
        return cls(settings, schema)

    def copy(self) -> Model:
        """An independent copy."""
        return copy.deepcopy(self)

    @property
    def warming_up(self) -> bool:
        """Whether rows are still held back for their scale."""
        return not self.learner.members

    @property
    def rows(self) -> int:
        """Rows learned in all passes, held ones included."""
        return self.learner.count(COUNT.rows) + len(self.held)

    @property
    def rejected(self) -> int:
        """Rows with a target that could not be learned from."""
        return self.learner.count(COUNT.rejected)

    @property
    def repairs(self) -> int:
        """Variances that had to be raised to their floor."""
        return self.learner.count(COUNT.repairs)

    @property
    def alarm_count(self) -> int:
        """Drift alarms raised so far."""
        return self.learner.count(COUNT.alarms)

    @property
    def noise_sd(self) -> list[float]:
        """The level of each target's noise, in its units; empty for classes."""
        if self.classes or self.warming_up:
            return []
        state = self.learner.members[0]
        level = (
            np.sqrt(state.noise[:, 1] / state.noise[:, 0])
            if len(state.noise)
            else np.full(self.learner.targets, np.sqrt(state.config.noise or 0.0))
        )
        return [float(sd) for sd in level * self.learner.target_scale]

    def learn(self, block: Rows, fresh: bool = True) -> Forecast:
        """Predict each row, then learn it; rows of a first pass are scored and set the scale."""
        self._settled = None
        if not fresh and self.warming_up:
            self.settle()
        weight = np.ones(len(block.y)) if block.weight is None else block.weight
        parts: list[Forecast] = []
        at = 0
        while at < len(block.y):
            if self.warming_up:
                part = self._hold(block, at, float(weight[at]))
            else:
                part = self._advance(block, at, weight, fresh)
            parts.append(part)
            at += len(part.status)
        forecast = _joined(parts, self._blank(0))
        if fresh:
            self._score(block, forecast)
        return forecast

    def _score(self, block: Rows, forecast: Forecast) -> None:
        """Count rows into the record, but for those held: what was said of them is a stopgap."""
        made = forecast.status != HELD
        self.card.add(
            block.x[made],
            block.y[made],
            mean=forecast.mean[made],
            sd=forecast.sd[made],
            probability=None if forecast.probability is None else forecast.probability[made],
            weight=None if block.weight is None else block.weight[made],
            rows=block.rows[made],
        )

    def predict(self, block: Rows) -> Forecast:
        """Predict rows; the model stays as it is (rows still held are learned on a copy)."""
        if self.warming_up:
            if self._settled is None:
                self._settled = self.copy()
                self._settled.settle()
            return self._settled.predict(block)
        return self.learner.predict(block.x, block.x_sd, self._indicators())

    def settle(self) -> None:
        """End the warm-up now: take the scale from the rows held, and learn them in order."""
        held, self.held = self.held, Held.nothing(self.held.y.shape[1])
        self._settled = None
        classes = self._known_classes(held) if self.classes else 0
        held.widen(self.schema.width)
        self.alarms = self.learner.start(held, self._indicators(), classes)

    def _known_classes(self, held: Held) -> int:
        """Classes that the rows held have shown, or all where there can be no more."""
        labels = held.y[np.isfinite(held.y)]
        complete = len(self.schema.classes) if self.schema.closed else 0
        return max(2, complete, int(np.max(labels)) + 1 if len(labels) else 0)

    def _indicators(self) -> list[bool]:
        return [place.category is not None for place in self.schema.layout]

    def _hold(self, block: Rows, at: int, weight: float) -> Forecast:
        y = block.y[at]
        blank = self._blank(1)
        if self.classes:
            known = self._known_classes(self.held)
            blank = blank._replace(probability=self.held.class_forecast(known)[None])
        else:
            mean, sd = self.held.forecast()
            blank = blank._replace(mean=mean[None], sd=sd[None], noise_sd=sd[None])
        if not np.any(np.isfinite(y)):
            self.skipped += 1
            return blank._replace(status=np.array([NO_TARGET]))
        row = slice(at, at + 1)
        self.held.add(
            block.x[row],
            None if block.x_sd is None else block.x_sd[row],
            block.y[row],
            np.array([weight]),
            np.array([self.rows + self.skipped + 1.0]),
        )
        self.held.forget_oldest(MOST_HELD)
        if self.held.ready(varies=not self.classes):
            self.settle()
        return blank._replace(status=np.array([HELD]))

    def _advance(self, block: Rows, at: int, weight: FloatArray, fresh: bool) -> Forecast:
        before = self.rows + self.rejected + self.skipped
        part = self.learner.advance(
            block.x[at:],
            None if block.x_sd is None else block.x_sd[at:],
            block.y[at:],
            weight[at:],
            before + 1,
            self._indicators(),
            fresh,
        )
        self.skipped += int(np.sum(part.status == NO_TARGET))
        alarms = before + 1 + np.flatnonzero(part.status & ALARM)
        self.alarms = [*self.alarms, *(int(row) for row in alarms)][-MOST_ALARMS:]
        if self.learner.relearned is not None:
            self.alarms = self.learner.relearned
        return part

    def _blank(self, rows: int) -> Forecast:
        zeros = np.zeros((rows, 1 if self.classes else self.learner.targets))
        robust = self.settings.robust and not self.classes
        return Forecast(
            zeros,
            zeros,
            zeros,
            zeros,
            np.zeros((rows, 0)) if self.classes else None,
            np.zeros(rows) if robust else None,
            np.zeros(rows, dtype=np.int64),
        )


def _joined(parts: list[Forecast], blank: Forecast) -> Forecast:
    """Forecasts one after another; classes unknown to earlier rows had probability 0."""
    if len(parts) < 2:
        return parts[0] if parts else blank
    probability = None
    if parts[0].probability is not None:
        known = [part.probability for part in parts if part.probability is not None]
        classes = max(p.shape[1] for p in known)
        probability = np.concatenate(
            [np.hstack([p, np.zeros((len(p), classes - p.shape[1]))]) for p in known]
        )
    outliers = [part.outlier for part in parts if part.outlier is not None]
    return Forecast(
        mean=np.concatenate([part.mean for part in parts]),
        sd=np.concatenate([part.sd for part in parts]),
        function_sd=np.concatenate([part.function_sd for part in parts]),
        noise_sd=np.concatenate([part.noise_sd for part in parts]),
        probability=probability,
        outlier=np.concatenate(outliers) if outliers else None,
        status=np.concatenate([part.status for part in parts]),
    )
