"""Batched models: rows of many packed models are learned in one call of the kernel.

Most rows take the same steps: scale, learn, calibrate, buffer and score, each with its own model
(kbnn/core/csrc/batched.c). A row that needs anything else (a refit or an outgrown scale, a larger
network, an alarm, a point of the learning curve, a refit from the pooled model) is left out, and
with it the later rows of its model. The caller unpacks that model and learns them one by one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray, IntArray
from kbnn.core import kernel
from kbnn.core.kernel import Prediction
from kbnn.data.batch import Rows
from kbnn.data.schema import Schema
from kbnn.distributions.calibration import FIRST_GAIN, MEAN_SCALE_FACTOR
from kbnn.distributions.predictive import RowScores
from kbnn.fleet import packing
from kbnn.fleet.packing import (
    CURVE_SUMS,
    FIGURES,
    SUM_FIELDS,
    PackedLayout,
    PackedModel,
    check_layout,
)
from kbnn.fleet.pooling import REFIT_ROWS, SHIFT_ROWS
from kbnn.fleet.store import KeyMetrics
from kbnn.metrics.numeric_metrics import ScoredNumericBatch
from kbnn.metrics.samples import PIT_BINS
from kbnn.metrics.scorecard import FIRST_POINT_ROWS as FIRST_POINT
from kbnn.metrics.scorecard import CurvePoint
from kbnn.model import scaler
from kbnn.model.learner import FIRST_REFIT_ROWS, Learner, make_learner
from kbnn.model.settings import Settings
from kbnn.targets.base import TargetScale
from kbnn.targets.prediction import Forecast, select_rows

INITIAL_BYTES: Final = 1 << 22
"""Initial bytes of a batch, untouched until models are added. From this size on numpy requests huge
pages, which halve the page-table misses when models are visited."""
ROW_SCORED: Final = 2
"""Result of a row that was learned and scored, see kb_batched_learn; 1: learned, 0: neither."""
_CURVE_SUMS: Final = np.array(CURVE_SUMS)


class BatchResult(NamedTuple):
    """Positions of the rows that were learned, and their forecasts."""

    done: IntArray
    forecast: Forecast


class BatchedModels:
    """Packed models of one layout, each in its own slot."""

    def __init__(self, layout: PackedLayout) -> None:
        self.layout = layout
        self._kernel = kernel.open_batched_session(layout.config, layout.kernel_offsets)
        room = 1 + INITIAL_BYTES // (8 * layout.size)
        self._rows = np.zeros((room, layout.size))
        self._free = list(range(room))
        self._curves_and_alarms: dict[int, tuple[tuple[CurvePoint, ...], tuple[int, ...]]] = {}
        self._ready = np.zeros(room, np.bool_)  # every column has a scale
        self._last_checked: tuple[FloatArray | None, bool] = None, False
        self._learner: Learner | None = None
        tracked = layout.settings.intervals == "tracked"
        options = (
            layout.settings.robust,
            tracked,
            FIRST_REFIT_ROWS,
            FIRST_POINT,
            SHIFT_ROWS,
            REFIT_ROWS,
        )
        self._kernel_options = np.array(options, np.int64)

    def bind_schema(self, schema: Schema, settings: Settings) -> None:
        """Accept rows of this schema from now on."""
        if self._learner is None or self._learner.task.schema is not schema:
            learner = make_learner(schema, self.layout.settings)
            check_layout(self.layout, learner.task, schema.width)
            self._learner = learner

    @property
    def learner(self) -> Learner:
        """Learner shared by all models."""
        assert self._learner is not None
        return self._learner

    # Slots.

    def add_model(self, model: PackedModel) -> int:
        """Add a model and return its slot."""
        if not self._free:
            self._grow_rows()
        at = self._free.pop()
        self.replace_model(at, model)
        return at

    def replace_model(self, at: int, model: PackedModel) -> None:
        """Replace the model in a slot."""
        self._rows[at] = model.row
        if model.points or model.alarms:
            self._curves_and_alarms[at] = model.points, model.alarms
        else:
            self._curves_and_alarms.pop(at, None)
        if model.row is not self._last_checked[0]:
            columns = self.layout.view_part(model.row, "columns")
            fixed = self.learner.unscaled_columns[: len(columns)] > 0.0
            still = (columns[:, scaler.SCALE] == 0.0) & ~fixed
            ready = not still.any() and columns[0, scaler.COUNT] > 0.0
            self._last_checked = model.row, bool(ready)
        self._ready[at] = self._last_checked[1]

    def get_model(self, at: int) -> PackedModel:
        """Return the model in a slot as a view."""
        return PackedModel(self._rows[at], *self._curves_and_alarms.get(at, ((), ())))

    def compute_key_metrics(self, at: IntArray) -> list[KeyMetrics]:
        """Compute the metrics of the models in these slots."""
        return packing.compute_key_metrics(self.layout, self._rows[at, : self.layout.min_size])

    def remove_model(self, at: int) -> None:
        """Free a slot."""
        self._curves_and_alarms.pop(at, None)
        self._free.append(at)

    def _grow_rows(self) -> None:
        room = len(self._ready)
        more = room // 2
        self._free = list(range(room, room + more))
        # Resize in place where possible: callers do not keep the views of `get_model`.
        self._rows.resize((room + more, self.layout.size), refcheck=False)
        self._ready = np.concatenate((self._ready, np.zeros(more, np.bool_)))

    # Rows.

    def predict(self, at: IntArray, rows: Rows, plain: bool) -> Forecast:
        """Predict one row with the model in each of these slots; `plain`: without calibration."""
        scale, width = self.layout.view_part(self._rows, "columns")[at], self.layout.inputs
        z = scaler.standardize_rows(
            scale[:, 1:].reshape(-1, scaler.FIELDS),
            rows.x[:, :width].reshape(1, -1),
            np.tile(self.learner.unscaled_inputs[:width], len(at)),
        )
        made = self._kernel.predict(self._rows, at, z)
        known = self.layout.view_part(self._rows, "tails")[at]
        if plain:
            known[:, FIRST_GAIN:MEAN_SCALE_FACTOR] = 1.0
        return self._build_forecast(made, scale, known)

    def _build_forecast(
        self, made: Prediction, scale: FloatArray, calibration: FloatArray
    ) -> Forecast:
        """Build the forecasts of one row per model, as one row with many targets."""
        scaled = TargetScale(scale[:, 0, scaler.CENTER], scale[:, 0, scaler.SCALE])
        mean, function_var, noise_var = (part.T for part in made[:3])
        one = Prediction(mean, function_var, noise_var, made.probability, made.inlier, made.status)
        forecast = self.learner.task.build_forecast(
            one, scaled, self.layout.settings.robust, calibration
        )
        turned = [np.ascontiguousarray(part.swapaxes(0, 1)) for part in forecast[:4]]
        return Forecast(
            turned[0],
            turned[1],
            turned[2],
            turned[3],
            forecast.probability,
            forecast.outlier,
            forecast.status,
            np.ascontiguousarray(forecast.stated.swapaxes(0, 1)),
        )

    def learn(self, at: IntArray, rows: Rows) -> BatchResult:
        """Predict and learn each row with the model in its slot; some rows may be left out."""
        width = self.layout.inputs
        y = np.ascontiguousarray(rows.y[:, 0])
        weight = None if rows.weight is None else np.ascontiguousarray(rows.weight)
        results, status, made = self._kernel.learn(
            self._rows,
            np.argsort(at, kind="stable"),
            at,
            np.ascontiguousarray(rows.x[:, :width]),
            y,
            weight,
            self._flag_exceptional(at, rows),
            np.ascontiguousarray(self.learner.unscaled_columns[: 1 + width]),
            self._kernel_options,
        )
        mean, sd, function_sd, noise_sd, outlier, stated, judged = made
        forecast = Forecast(
            mean[:, None],
            sd[:, None],
            function_sd[:, None],
            noise_sd[:, None],
            np.empty((len(at), 0)),
            outlier,
            status,
            stated[:, None],
        )
        self._add_scores(at, results == ROW_SCORED, y, mean, stated, judged, weight)
        done = np.flatnonzero(results)
        return BatchResult(done, forecast if len(done) == len(at) else select_rows(forecast, done))

    def _flag_exceptional(self, at: IntArray, rows: Rows) -> bytes:
        """Flag rows that the batched kernel cannot learn, one byte each."""
        alone, width = ~self._ready[at], self.layout.inputs
        if rows.x.shape[1] > width:
            alone |= np.any(self.learner._find_needed_inputs(rows.x[:, width:], width), axis=1)
        if rows.x_sd is not None:
            alone |= np.any(rows.x_sd > 0.0, axis=1)
        return alone.tobytes()

    def _add_scores(
        self,
        at: IntArray,
        counted: NDArray[np.bool_],
        y: FloatArray,
        mean: FloatArray,
        stated: FloatArray,
        judged: FloatArray,
        weight: FloatArray | None,
    ) -> None:
        """Add rows to the records of their models, as kbnn.metrics.numeric_metrics does."""
        if not counted.all():
            at, y, mean = at[counted], y[counted], mean[counted]
            stated, judged = stated[counted], judged[counted]
            weight = None if weight is None else weight[counted]
        if not len(at):
            return
        verdicts = RowScores._make(np.ascontiguousarray(judged.T))
        scored = ScoredNumericBatch(y, mean, stated, weight, verdicts)
        terms = np.empty((len(at), SUM_FIELDS))
        terms[:, 0] = scored.weight
        for k, figure in enumerate(FIGURES, start=1):
            assert figure.term is not None
            terms[:, k] = figure.term(scored)
        if not scored.is_unweighted:
            terms[:, 1:] *= scored.weight[:, None]
        bins = np.minimum((verdicts.below * PIT_BINS).astype(np.int64), PIT_BINS - 1)
        self._kernel.count(self._rows, at, terms, _CURVE_SUMS, bins, y)
