"""Networks that learn rows in the user's units: standardise, grow, predict, learn, change units.

Nothing depends on how rows are grouped into blocks: the network grows at the row that needs it, and
units change after fixed row counts or at the row that outgrew them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kbnn.core.layout import IntArray
from kbnn.core.network import ALARM, UNLABELLED, Prediction, State, init, learn, predict
from kbnn.core.normal import FloatArray
from kbnn.core.state import COUNT
from kbnn.model import ensemble, rescale, scaling
from kbnn.model.growth import grow
from kbnn.model.holding import Held
from kbnn.model.recent import Recent
from kbnn.model.scaling import Units
from kbnn.model.settings import Settings

NO_TARGET, HELD = UNLABELLED, 16
"""Further bits of `Forecast.status`."""

FIRST_REFIT = 64
KNOWLEDGE_CARRIED = 0.05
"""Share of the old information that outlives a large change of units, see kbnn.recent."""


class Forecast(NamedTuple):
    """What was said of n rows before their targets were seen."""

    mean: FloatArray  # (n, targets)
    sd: FloatArray  # (n, targets) of the predictive distribution
    function_sd: FloatArray  # (n, targets) what the model does not know yet
    noise_sd: FloatArray  # (n, targets) what no model could know
    probability: FloatArray | None  # (n, classes)
    outlier: FloatArray | None  # (n,) probability that the target was an outlier
    status: IntArray  # (n,) bits LEARNED, REJECTED, ALARM, NO_TARGET, HELD


class Learner:
    """One network, or an ensemble, with the scale it works in.

    `columns` holds the statistics of the targets (none for classes) and then of the inputs.
    `indicators` says of each column of x whether it is a category's indicator: those pass as they
    are, and one that has been 0 in every row so far is not part of the network yet.
    """

    def __init__(self, settings: Settings, targets: int) -> None:
        self.settings, self.targets = settings, targets
        self.members: list[State] = []
        self.log_weight = np.zeros(settings.ensemble)
        self.columns = scaling.blank_columns(0)
        self.seen = 0  # rows counted into the scale
        self.refits = 0
        self.recent = Recent()
        self.relearned: list[int] | None = None  # alarms, if the last step began anew

    @property
    def width(self) -> int:
        """Inputs of the network."""
        return len(self.columns) - self.targets

    @property
    def target_scale(self) -> FloatArray:
        """Units of the targets in use."""
        return self.columns[: self.targets, scaling.SCALE].copy()

    def count(self, which: int) -> int:
        """A count of the (first) network, see kbnn.core.state.Counts."""
        return int(self.members[0].counts[which]) if self.members else 0

    def start(self, held: Held, indicators: list[bool], classes: int) -> list[int]:
        """Take the scale from the rows held, make the networks, and learn the rows in order.

        Returns the numbers of the rows that raised an alarm.
        """
        width = _used_width(held.x, indicators)
        held = Held(held.x[:, :width], held.x_sd[:, :width], held.y, held.weight, held.number)
        raw = np.hstack([held.y, held.x]) if self.targets else held.x
        self.columns = scaling.warm_up(raw)
        self.recent, self.seen = Recent(held), len(held)
        return self._begin(held, self._fixed(indicators), classes)

    def _begin(self, rows: Held, fixed: FloatArray, classes: int) -> list[int]:
        """Make the networks, and learn their first rows; the numbers of those with an alarm."""
        t = self.targets
        scale = float(self.columns[0, scaling.SCALE]) if t else 1.0
        config = self.settings.config(self.width, t, classes, scale or 1.0)
        self.members = [
            init(config, self.settings.seed + 1000003 * k, mean_scale=means, sd_scale=sds)
            for k in range(self.settings.ensemble)
            for means, sds in [ensemble.prior_scales(k)]
        ]
        self.log_weight = np.zeros(self.settings.ensemble)
        x, x_var, y = self._standard_rows(rows, fixed)
        said = self._step(x, x_var, y, rows.weight, fresh=True)
        return [int(row) for row in rows.number[(said.status & ALARM) > 0]]

    def _learn_again(self, rows: Held, fixed: FloatArray) -> None:
        """Learn rows that were learned before, in other units: counts and inputs are no news.

        The shape of the noise starts anew after them: it was measured against another level.
        """
        x, x_var, y = self._standard_rows(rows, fixed)

        def again(state: State) -> State:
            quiet = state._replace(config=replace(state.config, drift=False))
            new, _ = learn(quiet, x, y, x_var=x_var, weight=rows.weight)
            blank = init(state.config)
            return new._replace(
                config=state.config,
                counts=state.counts,
                head_mean=blank.head_mean,
                head_cov=blank.head_cov,
                input_mean=state.input_mean,
                input_cov=state.input_cov,
            )

        self.members = ensemble.in_parallel(again, self.members)

    def _standard_rows(
        self, rows: Held, fixed: FloatArray
    ) -> tuple[FloatArray, FloatArray | None, FloatArray]:
        t = self.targets
        rows.widen(self.width)
        x = scaling.standardise(self.columns[t:], rows.x, fixed[t:])
        return x, self._variances(rows.x_sd), self._standard_targets(rows.y)

    def predict(self, x: FloatArray, x_sd: FloatArray | None, indicators: list[bool]) -> Forecast:
        """Predict rows; nothing changes."""
        z, z_var = self._standardised(x, x_sd, indicators)
        made = ensemble.in_parallel(lambda state: predict(state, z, x_var=z_var), self.members)
        weights = np.tile(ensemble.mixture_weights(self.log_weight), (len(z), 1))
        return self._forecast(ensemble.mix(made, weights), np.zeros(len(z), dtype=np.int64))

    def advance(
        self,
        x: FloatArray,
        x_sd: FloatArray | None,
        y: FloatArray,
        weight: FloatArray,
        number: int,
        indicators: list[bool],
        fresh: bool,
    ) -> Forecast:
        """Learn rows up to the next growth or change of units: at least one, perhaps not all.

        `number` is that of the first row in the stream.
        """
        self.relearned = None
        self._grow_inputs(x[:1], indicators)
        unforeseen = None
        if not self.targets and y[0, 0] >= self.members[0].config.outputs:
            unforeseen = self.predict(x[:1], None if x_sd is None else x_sd[:1], indicators)
        forecast = self._advance(x, x_sd, y, weight, number, indicators, fresh)
        if unforeseen is not None and forecast.probability is not None:
            # What was said of a label that nobody knew cannot have reckoned with it.
            assert unforeseen.probability is not None
            forecast.probability[0] = 0.0
            forecast.probability[0, : unforeseen.probability.shape[1]] = unforeseen.probability[0]
        return forecast

    def _advance(
        self,
        x: FloatArray,
        x_sd: FloatArray | None,
        y: FloatArray,
        weight: FloatArray,
        number: int,
        indicators: list[bool],
        fresh: bool,
    ) -> Forecast:
        stop = self._grow_or_stop(x, y)
        if not fresh:
            self.recent.clear()
            z, z_var = self._standardised(
                x[:stop], None if x_sd is None else x_sd[:stop], indicators
            )
            return self._step(z, z_var, self._standard_targets(y[:stop]), weight[:stop], fresh)
        due = FIRST_REFIT
        while due <= self.seen:
            due *= 2
        stop = min(stop, due - self.seen)
        t, fixed = self.targets, self._fixed(indicators)
        inputs = x[:stop, : self.width]
        raw = np.hstack([y[:stop], inputs]) if t else np.ascontiguousarray(inputs)
        # What is in the units of a block must not depend on a scale that is set within it.
        raw = raw[: scaling.steady_rows(self.columns, raw, fixed)]
        z = scaling.follow(self.columns, raw, fixed)
        done = len(z)
        self.seen += done
        labels = np.where(np.isnan(y[:done]), np.nan, z[:, :t]) if t else y[:done]
        var = self._variances(None if x_sd is None else x_sd[:done])
        forecast = self._step(np.ascontiguousarray(z[:, t:]), var, labels, weight[:done], fresh)
        self.recent.add(
            inputs[:done],
            None if x_sd is None else x_sd[:done, : self.width],
            y[:done],
            weight[:done],
            number + np.arange(float(done)),
        )
        if self.seen == due or np.any(self.columns[:, scaling.RECENT_SQUARE] > scaling.OUTGROWN):
            self._refit(fixed)
        return forecast

    def _grow_inputs(self, row: FloatArray, indicators: list[bool]) -> None:
        """Let the networks have the inputs that a row needs."""
        width = max(self.width, _used_width(row, indicators))
        if width > self.width:
            self.columns = np.vstack([self.columns, scaling.blank_columns(width - self.width)])
            self.members = [grow(state, width, state.config.outputs) for state in self.members]

    def _grow_or_stop(self, x: FloatArray, y: FloatArray) -> int:
        """Admit the first row's class; the number of rows before the next that needs growth."""
        outputs = self.members[0].config.outputs
        needs = np.any(x[:, self.width :] != 0.0, axis=1)
        if not self.targets:
            if np.isfinite(y[0, 0]):
                outputs = max(outputs, int(y[0, 0]) + 1)
            self.members = [grow(state, self.width, outputs) for state in self.members]
            needs |= y[:, 0] >= outputs
        found = np.flatnonzero(needs)
        return int(found[0]) if len(found) else len(x)

    def _fixed(self, indicators: list[bool]) -> FloatArray:
        """1 for the columns that pass as they are."""
        return np.array([False] * self.targets + indicators[: self.width], dtype=np.float64)

    def _standardised(
        self, x: FloatArray, x_sd: FloatArray | None, indicators: list[bool]
    ) -> tuple[FloatArray, FloatArray | None]:
        z = scaling.standardise(
            self.columns[self.targets :],
            x[:, : self.width],
            self._fixed(indicators)[self.targets :],
        )
        return z, self._variances(x_sd)

    def _variances(self, x_sd: FloatArray | None) -> FloatArray | None:
        """Measurement variances of the inputs in the network's units."""
        if x_sd is None or not np.any(x_sd > 0.0):
            return None
        scale = self.columns[self.targets :, scaling.SCALE]
        safe = np.where(scale > 0.0, scale, np.inf)
        return np.ascontiguousarray((np.nan_to_num(x_sd[:, : self.width]) / safe) ** 2)

    def _standard_targets(self, y: FloatArray) -> FloatArray:
        if not self.targets:
            return np.ascontiguousarray(y)
        z = scaling.standardise(self.columns[: self.targets], y, np.zeros(self.targets))
        return np.where(np.isnan(y), np.nan, z)

    def _step(
        self,
        x: FloatArray,
        x_var: FloatArray | None,
        y: FloatArray,
        weight: FloatArray,
        fresh: bool,
    ) -> Forecast:
        """Predict and learn standardised rows."""

        def one(state: State) -> tuple[State, Prediction]:
            return learn(state, x, y, x_var=x_var, weight=weight, again=not fresh)

        results = ensemble.in_parallel(one, self.members)
        self.members = [state for state, _ in results]
        made = [prediction for _, prediction in results]
        weights = np.ones((len(x), 1))
        if len(made) > 1:
            scores = np.stack([ensemble.log_likelihoods(p, y) for p in made], axis=1)
            weights, self.log_weight = ensemble.follow_weights(self.log_weight, scores)
        status = made[0].status.astype(np.int64)
        return self._forecast(ensemble.mix(made, weights), status)

    def _forecast(self, made: Prediction, status: IntArray) -> Forecast:
        """A prediction in the user's units."""
        if self.targets:
            center, scale = scaling.units(self.columns[: self.targets])
        else:
            made = made._replace(
                mean=made.mean[:, :1],
                function_var=made.function_var[:, :1],
                noise_var=made.noise_var[:, :1],
            )
            center, scale = np.zeros(1), np.ones(1)
        return Forecast(
            mean=center + scale * made.mean,
            sd=scale * np.sqrt(made.function_var + made.noise_var),
            function_sd=scale * np.sqrt(made.function_var),
            noise_sd=scale * np.sqrt(made.noise_var),
            probability=None if self.targets else made.probability,
            outlier=1.0 - made.inlier if self.targets and self.settings.robust else None,
            status=status,
        )

    def _refit(self, fixed: FloatArray) -> None:
        """Change the units if the stream has left them."""
        new = scaling.refit(self.columns, fixed)
        t, outputs = self.targets, self.members[0].config.outputs
        old_units, new_units = scaling.units(self.columns), scaling.units(new)
        self.columns = new
        if all(np.array_equal(a, b) for a, b in zip(old_units, new_units, strict=True)):
            return
        self.refits += 1
        rows = self.recent.rows(max(1, t))
        if len(rows) == self.seen and self._learned_once():
            self.relearned = self._begin(rows, fixed, 0 if t else outputs)
            return
        gain, shift = np.ones(outputs), np.zeros(outputs)
        if t:
            old_scale = np.where(old_units.scale[:t] > 0.0, old_units.scale[:t], 1.0)
            new_scale = np.where(new_units.scale[:t] > 0.0, new_units.scale[:t], 1.0)
            gain = old_scale / new_scale
            shift = (old_units.center[:t] - new_units.center[:t]) / new_scale
        before = Units(old_units.center[t:], old_units.scale[t:])
        after = Units(new_units.center[t:], new_units.scale[t:])
        large = scaling.far_apart(old_units, new_units) and len(rows) > 0
        share = KNOWLEDGE_CARRIED if large else 1.0
        self.members = [
            rescale.change_units(state, before, after, gain, shift, share) for state in self.members
        ]
        if large:
            self._learn_again(rows, fixed)

    def _learned_once(self) -> bool:
        counts = self.members[0].counts
        return bool(counts[COUNT.rows] == counts[COUNT.distinct])


def _used_width(x: FloatArray, indicators: list[bool]) -> int:
    """Columns of x that a network needs: every feature, and indicators up to the last in use."""
    used = np.flatnonzero(
        np.any(x != 0.0, axis=0) | ~np.array(indicators[: x.shape[1]], dtype=bool)
    )
    return int(used[-1]) + 1 if len(used) else 0
