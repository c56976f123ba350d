"""How networks are asked and taught: rows in their scale, what they say in the user's units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kbnn.core import engine
from kbnn.core.network import Prediction, predicted
from kbnn.core.normal import FloatArray
from kbnn.model import ensemble, scaling
from kbnn.model.learned import Learned
from kbnn.model.settings import Settings
from kbnn.model.warmup import KeptRows, unseen, widened
from kbnn.task.base import Following, Scaled, Task
from kbnn.task.forecast import Forecast


@dataclass(frozen=True)
class Networks:
    """The settings, the task, and which columns of x are indicators of a category.

    An indicator passes as it is. One that has been 0 in every row so far is not part of the network
    yet, and neither is a number that came after the first rows and has been missing in all.
    """

    settings: Settings
    task: Task
    indicators: FloatArray  # (D,) 1 or 0
    late: FloatArray  # (D,) 1 for columns that came after the first rows, else 0
    cycles: FloatArray  # (D,) 1 for sines and cosines, which need no scale, else 0

    @cached_property
    def as_is(self) -> FloatArray:
        """1 for the columns of x that pass as they are."""
        return np.maximum(self.indicators, self.cycles)

    @cached_property
    def passing(self) -> FloatArray:
        """1 for the columns, scaled targets first, that pass as they are."""
        every = np.concatenate((np.zeros(self.task.scaled), self.as_is))
        return every if self.settings.units else np.ones_like(every)

    @cached_property
    def compiled(self) -> bool:
        """Whether the kernel serves: to ask for every row would cost more than to scale it."""
        return engine.compiled()

    @cached_property
    def often(self) -> int:
        """How often a row is rehearsed while the stream is young."""
        return self.settings.often

    @cached_property
    def overstating(self) -> bool:
        """Whether networks overstate what they do not know, as the paper's smoother does."""
        return self.settings.covariance == "paper" and self.task.by_width(self.settings.robust)

    @cached_property
    def tracked(self) -> bool:
        """Whether intervals are kept to their promise."""
        return self.settings.intervals == "tracked"

    def predict(self, learned: Learned, x: FloatArray, x_sd: FloatArray | None) -> Forecast:
        """Predict rows; nothing changes."""
        width = len(learned.columns) - self.task.scaled
        z = scaling.standardise(
            learned.columns[self.task.scaled :], x[:, :width], self.as_is[:width]
        )
        return self.predict_standard(learned, z, self._variances(learned.columns, x_sd))

    def predict_standard(
        self, learned: Learned, z: FloatArray, var: FloatArray | None = None
    ) -> Forecast:
        """Predict rows that are in the network's scale already; nothing changes."""
        if len(learned.members) == 1:
            return self._forecast(learned, predicted(learned.members[0], z, var))
        made = ensemble.in_parallel(lambda member: predicted(member, z, var), learned.members)
        weights = np.tile(ensemble.mixture_weights(learned.log_weight), (len(z), 1))
        return self._forecast(learned, ensemble.mix(made, weights))

    def _step(
        self,
        learned: Learned,
        z: FloatArray,
        labels: FloatArray,
        x_sd: FloatArray | None,
        weight: FloatArray | None,
        again: bool = False,
    ) -> tuple[Learned, Prediction]:
        """Predict and learn standardised rows."""
        z, labels = np.ascontiguousarray(z), np.ascontiguousarray(labels)
        var = self._variances(learned.columns, x_sd)
        weight = None if weight is None else np.ascontiguousarray(weight)
        if len(learned.members) == 1:
            return learned, learned.members[0].learn(z, labels, var, weight, again)
        made = ensemble.in_parallel(
            lambda member: member.learn(z, labels, var, weight, again), learned.members
        )
        scores = np.stack([self.task.log_likelihood(one, labels) for one in made], axis=1)
        weights, log_weight = ensemble.follow_weights(learned.log_weight, scores)
        return learned._replace(log_weight=log_weight), ensemble.mix(made, weights)

    def _rehearse(self, learned: Learned, rows: KeptRows) -> None:
        """All members learn these rows once more."""
        z, labels, x_sd = self._standard(learned.columns, rows)
        var = self._variances(learned.columns, x_sd)
        z, labels = np.ascontiguousarray(z), np.ascontiguousarray(labels)
        settled = learned.rehearsal.settled
        ensemble.in_parallel(
            lambda member: member.rehearse(z, labels, var, rows.weight, settled), learned.members
        )

    def _variances(self, columns: FloatArray, x_sd: FloatArray | None) -> FloatArray | None:
        """Measurement variances of the inputs in the network's scale."""
        if x_sd is None or not np.any(x_sd > 0.0):
            return None
        scale = columns[self.task.scaled :, scaling.SCALE]
        safe = np.where(scale > 0.0, scale, np.inf)
        with np.errstate(over="ignore"):  # beyond all numbers is as good as missing
            return np.ascontiguousarray((np.nan_to_num(x_sd[:, : len(scale)]) / safe) ** 2)

    def _labels(self, columns: FloatArray, y: FloatArray) -> FloatArray:
        t = self.task.scaled
        scaled = y[:, :t]
        z = scaling.standardise(columns[:t], scaled, np.zeros(t))
        return self.task.taught(y, np.where(np.isnan(scaled), np.nan, z))

    def _standard(
        self, columns: FloatArray, rows: KeptRows
    ) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """Kept rows in the network's scale, and their stated standard deviations."""
        t = self.task.scaled
        width = len(columns) - t
        x = widened(rows.x, width, unseen(self.indicators))
        x = scaling.standardise(columns[t:], x, self.as_is[:width])
        x_sd = widened(rows.x_sd, width) if rows.x_sd.shape[1] else None
        return x, self._labels(columns, rows.y), x_sd

    def _forecast(
        self, learned: Learned, made: Prediction, following: Following | None = None
    ) -> Forecast:
        """In the user's units; tails and sharpness, in place, follow what came true."""
        t, columns = self.task.scaled, learned.columns
        scaled = Scaled(columns[:t, scaling.CENTER], columns[:t, scaling.SCALE])
        said = self.task.forecast(made, scaled, self.settings.robust, learned.tails, following)
        return self.task.sharpened(said, learned.sharpness, following)
