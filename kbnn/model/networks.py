"""How networks are asked and taught: rows in their scale, what they say in the user's units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kbnn.core import engine
from kbnn.core.network import Prediction, predict_parallel
from kbnn.core.normal import FloatArray
from kbnn.model import ensemble, scaling
from kbnn.model.learned import LearnerState
from kbnn.model.rows import make_fill_values, pad_columns
from kbnn.model.settings import Settings
from kbnn.model.warmup import BufferedRows
from kbnn.task.base import CalibrationUpdate, TargetScale, TargetType
from kbnn.task.forecast import Forecast


@dataclass(frozen=True)
class Networks:
    """The settings, the task, and which columns of x are indicators of a category.

    An indicator passes as it is. One that has been 0 in every row so far is not part of the network
    yet, and neither is a number that came after the first rows and has been missing in all.
    """

    settings: Settings
    task: TargetType
    indicators: FloatArray  # (D,) 1 or 0
    late: FloatArray  # (D,) 1 for columns that came after the first rows, else 0
    cycles: FloatArray  # (D,) 1 for sines and cosines, which need no scale, else 0

    @cached_property
    def unscaled_inputs(self) -> FloatArray:
        """1 for the columns of x that pass as they are."""
        return np.maximum(self.indicators, self.cycles)

    @cached_property
    def unscaled_columns(self) -> FloatArray:
        """1 for the columns, scaled targets first, that pass as they are."""
        every = np.concatenate((np.zeros(self.task.scaled), self.unscaled_inputs))
        return every if self.settings.units else np.ones_like(every)

    @cached_property
    def uses_kernel(self) -> bool:
        """Whether the kernel serves: to ask for every row would cost more than to scale it."""
        return engine.is_compiled()

    @cached_property
    def replay_ratio(self) -> int:
        """How often a row is rehearsed while the stream is young."""
        return self.settings.replay_ratio

    @cached_property
    def has_overstated_variance(self) -> bool:
        """Whether networks overstate what they do not know, as the paper's smoother does."""
        return self.settings.covariance == "paper" and self.task.uses_scale_calibration(
            self.settings.robust
        )

    @cached_property
    def uses_interval_calibration(self) -> bool:
        """Whether intervals are kept to their promise."""
        return self.settings.intervals == "tracked"

    def predict(self, learned: LearnerState, x: FloatArray, x_sd: FloatArray | None) -> Forecast:
        """Predict rows; nothing changes."""
        width = len(learned.columns) - self.task.scaled
        z = scaling.standardize_rows(
            learned.columns[self.task.scaled :], x[:, :width], self.unscaled_inputs[:width]
        )
        return self.predict_standardized(
            learned, z, self._scale_input_variances(learned.columns, x_sd)
        )

    def predict_standardized(
        self, learned: LearnerState, z: FloatArray, var: FloatArray | None = None
    ) -> Forecast:
        """Predict rows that are in the network's scale already; nothing changes."""
        if len(learned.members) == 1:
            return self._make_forecast(learned, predict_parallel(learned.members[0], z, var))
        made = ensemble.map_members(
            lambda member: predict_parallel(member, z, var), learned.members
        )
        weights = np.tile(ensemble.mixture_weights(learned.log_weight), (len(z), 1))
        return self._make_forecast(learned, ensemble.mix_predictions(made, weights))

    def _predict_and_learn(
        self,
        learned: LearnerState,
        z: FloatArray,
        labels: FloatArray,
        x_sd: FloatArray | None,
        weight: FloatArray | None,
        again: bool = False,
    ) -> tuple[LearnerState, Prediction]:
        """Predict and learn standardised rows."""
        z, labels = np.ascontiguousarray(z), np.ascontiguousarray(labels)
        var = self._scale_input_variances(learned.columns, x_sd)
        weight = None if weight is None else np.ascontiguousarray(weight)
        if len(learned.members) == 1:
            return learned, learned.members[0].learn(z, labels, var, weight, again)
        made = ensemble.map_members(
            lambda member: member.learn(z, labels, var, weight, again), learned.members
        )
        scores = np.stack([self.task.log_likelihood(one, labels) for one in made], axis=1)
        weights, log_weight = ensemble.update_weights(learned.log_weight, scores)
        return learned._replace(log_weight=log_weight), ensemble.mix_predictions(made, weights)

    def _replay_rows(self, learned: LearnerState, rows: BufferedRows) -> None:
        """All members learn these rows once more."""
        z, labels, x_sd = self._standardize_buffered_rows(learned.columns, rows)
        var = self._scale_input_variances(learned.columns, x_sd)
        z, labels = np.ascontiguousarray(z), np.ascontiguousarray(labels)
        settled = learned.rehearsal.settled
        ensemble.map_members(
            lambda member: member.replay(z, labels, var, rows.weight, settled), learned.members
        )

    def _scale_input_variances(
        self, columns: FloatArray, x_sd: FloatArray | None
    ) -> FloatArray | None:
        """Measurement variances of the inputs in the network's scale."""
        if x_sd is None or not np.any(x_sd > 0.0):
            return None
        scale = columns[self.task.scaled :, scaling.SCALE]
        safe = np.where(scale > 0.0, scale, np.inf)
        with np.errstate(over="ignore"):  # beyond all numbers is as good as missing
            return np.ascontiguousarray((np.nan_to_num(x_sd[:, : len(scale)]) / safe) ** 2)

    def _standardize_labels(self, columns: FloatArray, y: FloatArray) -> FloatArray:
        t = self.task.scaled
        scaled = y[:, :t]
        z = scaling.standardize_rows(columns[:t], scaled, np.zeros(t))
        return self.task.standardize_targets(y, np.where(np.isnan(scaled), np.nan, z))

    def _standardize_buffered_rows(
        self, columns: FloatArray, rows: BufferedRows
    ) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """Kept rows in the network's scale, and their stated standard deviations."""
        t = self.task.scaled
        width = len(columns) - t
        x = pad_columns(rows.x, width, make_fill_values(self.indicators))
        x = scaling.standardize_rows(columns[t:], x, self.unscaled_inputs[:width])
        x_sd = pad_columns(rows.x_sd, width) if rows.x_sd.shape[1] else None
        return x, self._standardize_labels(columns, rows.y), x_sd

    def _make_forecast(
        self, learned: LearnerState, made: Prediction, following: CalibrationUpdate | None = None
    ) -> Forecast:
        """In the user's units; tails and sharpness, in place, follow what came true."""
        t, columns = self.task.scaled, learned.columns
        scaled = TargetScale(columns[:t, scaling.CENTER], columns[:t, scaling.SCALE])
        said = self.task.build_forecast(
            made, scaled, self.settings.robust, learned.tails, following
        )
        return self.task.apply_temperature(said, learned.sharpness, following)
