"""The numpy reference of the kernel's session: condition, predict, observe and learn row by row.

A row is predicted before its label is used. A row without any label is only predicted. A row that
cannot be learned from (an infinite label or input, a step that would overflow) is rejected: it is
counted, and nothing else of the state changes.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core import block_filter, input_moments, likelihoods, paper_smoother
from kbnn.core import input_moments as input_gaussian
from kbnn.core import likelihoods as noise_model
from kbnn.core.belief import Belief, BeliefBackup, close_belief, open_belief
from kbnn.core.config import Config
from kbnn.core.constants import INPUT_BELIEVED, LABEL_LIMIT, LEAST_WEIGHT, MOST_WEIGHT, STEP_LIMIT
from kbnn.core.input_moments import InputMoments
from kbnn.core.likelihoods import NoiseForecast, OutputMoments, RowPrior
from kbnn.core.state import COUNT, State

LEARNED, REJECTED, ALARM, UNLABELLED = 1, 2, 4, 8
"""Bits of `Records.status`."""

ROLE_NEW, ROLE_LATER_PASS, ROLE_REPLAY, ROLE_REPLAY_MEANS = range(4)
"""Roles of a row: new, of a later pass, replayed, or replayed for the means alone."""


class Records(NamedTuple):
    """Predictions of n rows, made before their labels were used, and the outcome of learning.

    The predictive variance of a real target is `function_var + noise_var`: epistemic (reducible by
    more rows) and aleatoric (noise of the target).
    """

    mean: FloatArray  # (n, outputs)
    function_var: FloatArray  # (n, outputs)
    noise_var: FloatArray  # (n, outputs)
    probability: FloatArray  # (n, classes); no columns for a real target
    inlier: FloatArray  # (n,) probability that the label was not an outlier, 1 where not learned
    status: FloatArray  # (n,) bits LEARNED, REJECTED, ALARM, UNLABELLED; 0 from predict


def blank_records(rows: int, config: Config) -> Records:
    """Allocate records to be filled."""
    mean, function_var, noise_var = np.zeros((3, rows, config.outputs))
    return Records(
        mean,
        function_var,
        noise_var,
        np.zeros((rows, config.classes)),
        np.ones(rows),
        np.zeros(rows),
    )


class ReferenceSession:
    """A session of the numpy reference, see kbnn.core.kernel.Session."""

    def __init__(self, state: State) -> None:
        self._belief = open_belief(state)
        self._given: State = state
        self._last: State | None = state
        self._log: list[Any] | None = None
        self._place = 0
        self.has_learned = False

    def begin_log(self) -> None:
        """Start to keep the result of every call."""
        self._log, self._place, self.has_learned = [], 0, False

    def rewind_log(self) -> None:
        """Return the logged results again, in their order, before running anything."""
        self._place = 0

    def end_log(self) -> None:
        """Discard the logged results."""
        self._log = None

    def _next_logged(self) -> Any:
        """Return the logged result of this call; None if the call has to run."""
        if self._log is None or self._place == len(self._log):
            return None
        self._place += 1
        return self._log[self._place - 1]

    def _append_log(self, result: Any) -> None:
        if self._log is not None:
            self._place += 1
            self._log.append(result)

    @property
    def config(self) -> Config:
        """Configuration of the network."""
        return self._given.config

    @property
    def counts(self) -> dict[str, int]:
        """Counts so far, see kbnn.core.state.Counts."""
        counts: dict[str, int] | None = self._next_logged()
        if counts is None:
            now = self._belief.counts
            counts = {name: int(now[at]) for name, at in COUNT._asdict().items()}
            self._append_log(counts)
        return counts

    @property
    def noise(self) -> FloatArray:
        """(outputs, 2): shape and scale of the inverse-gamma noise state."""
        noise: FloatArray | None = self._next_logged()
        if noise is None:
            noise = self._belief.noise.copy()
            self._append_log(noise)
        return noise

    def learn(
        self,
        x: FloatArray,
        y: FloatArray,
        x_var: FloatArray | None = None,
        weight: FloatArray | None = None,
        again: bool = False,
    ) -> Records:
        """Predict each row, then learn it; `again`: the rows were learned in an earlier pass."""
        return self._learn_rows(x, y, x_var, weight, ROLE_LATER_PASS if again else ROLE_NEW)

    def replay(
        self,
        x: FloatArray,
        y: FloatArray,
        x_var: FloatArray | None = None,
        weight: FloatArray | None = None,
        means_alone: bool = False,
    ) -> None:
        """Replay rows; with `means_alone` covariances are restored afterwards."""
        self._learn_rows(x, y, x_var, weight, ROLE_REPLAY_MEANS if means_alone else ROLE_REPLAY)

    def _learn_rows(
        self,
        x: FloatArray,
        y: FloatArray,
        x_var: FloatArray | None,
        weight: FloatArray | None,
        role: int,
    ) -> Records:
        """Learn rows: all of them, or none if anything is raised."""
        logged: Records | None = self._next_logged()
        if logged is not None:
            return logged
        rows = _check_rows(self.config, x, y, x_var, weight)
        records = blank_records(len(x), self.config)
        belief, known = self._belief, self._last
        before = BeliefBackup(belief)
        try:
            with _ignore_float_errors():
                for i, row in enumerate(zip(*rows, strict=True)):
                    _learn_row(belief, *row, role, records, i)
            if role == ROLE_REPLAY_MEANS:
                before.restore_covariances(belief)
            self._last = None if len(x) else known
            self.has_learned = self.has_learned or len(x) > 0
            self._append_log(records)
        except BaseException:
            if not (self._log and self._log[-1] is records):
                before.restore_belief(belief)
                self._last = known
            raise
        return records

    def predict(self, x: FloatArray, x_var: FloatArray | None = None) -> Records:
        """Predict rows; the state does not change."""
        logged: Records | None = self._next_logged()
        if logged is not None:
            return logged
        rows = _check_rows(self.config, x, None, x_var, None)
        records = blank_records(len(x), self.config)
        scheme = _select_scheme(self._belief)
        with _ignore_float_errors():
            for i, (seen, seen_var, _, _) in enumerate(zip(*rows, strict=True)):
                out, _ = scheme.predict_outputs(
                    self._belief, condition_row(self._belief, seen, seen_var)
                )
                _record_prediction(self._belief, out, records, i)
        self._append_log(records)
        return records

    def state(self) -> State:
        """Return the current state; later learning does not change it."""
        logged: State | None = self._next_logged()
        if logged is not None:
            return logged
        if self._last is None:
            self._last = close_belief(self._belief, self._given)
        self._append_log(self._last)
        return self._last


def learn_arrays(
    state: State,
    x: FloatArray,
    y: FloatArray,
    x_var: FloatArray | None = None,
    weight: FloatArray | None = None,
    *,
    again: bool = False,
) -> tuple[State, Records]:
    """Learn rows in order and return the new state; the given state is not changed."""
    session = ReferenceSession(state)
    records = session.learn(x, y, x_var, weight, again)
    return session.state(), records


def predict_arrays(state: State, x: FloatArray, x_var: FloatArray | None = None) -> Records:
    """Predict rows."""
    return ReferenceSession(state).predict(x, x_var)


def _ignore_float_errors() -> np.errstate:
    return np.errstate(over="ignore", invalid="ignore", under="ignore", divide="ignore")


def _check_rows(
    config: Config,
    x: FloatArray,
    y: FloatArray | None,
    x_var: FloatArray | None,
    weight: FloatArray | None,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Check x, x_var, y and weight, and fill in the absent ones."""
    if x.ndim != 2 or x.shape[1] != config.inputs:
        raise ValueError(f"x must have shape (rows, {config.inputs}), got {x.shape}")
    n = len(x)
    filled = {
        "x": (x, x.shape),
        "x_var": (np.zeros_like(x) if x_var is None else x_var, x.shape),
        "y": (np.zeros((n, config.labels)) if y is None else y, (n, config.labels)),
        "weight": (np.ones(n) if weight is None else weight, (n,)),
    }
    for name, (array, shape) in filled.items():
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    x, x_var, y, weight = (array for array, _ in filled.values())
    return x, x_var, y, weight


def _select_scheme(belief: Belief) -> ModuleType:
    return paper_smoother if belief.config.covariance == "paper" else block_filter


def _learn_row(
    belief: Belief,
    x: FloatArray,
    x_var: FloatArray,
    y: FloatArray,
    weight: float,
    role: int,
    records: Records,
    i: int,
) -> None:
    scheme = _select_scheme(belief)
    inputs = condition_row(belief, x, x_var)
    out, passed = scheme.predict_outputs(belief, inputs)
    before = _record_prediction(belief, out, records, i)
    if np.all(np.isnan(y)):
        records.status[i] = UNLABELLED
        return
    records.status[i] = REJECTED
    if not _can_learn(belief, x, y, weight, out):
        belief.counts[COUNT.rejected] += role < ROLE_REPLAY
        return
    kind = belief.config.kind
    observed = kind.observe_label(before, y, weight)
    alarm = (
        belief.config.drift
        and role == ROLE_NEW
        and likelihoods.update_detector(kind.detector, belief.surprise, observed.surprise)
    )
    if alarm:
        belief.forget_toward_prior(kind.detector.forget)
        belief.noise = likelihoods.shorten_noise_memory(belief.noise)
        out, passed = scheme.predict_outputs(belief, inputs)
        observed = kind.observe_label(_make_prior(belief, out), y, weight)
        belief.counts[COUNT.alarms] += 1
    if not np.all(np.abs(observed.noise[:, 1:]) <= STEP_LIMIT) or not scheme.update_belief(
        belief, passed, observed.evidence.pull, observed.evidence.root_information
    ):
        belief.counts[COUNT.rejected] += role < ROLE_REPLAY
        return
    belief.counts[COUNT.raised] += observed.raised
    belief.noise = observed.noise
    for output, (mean, cov) in enumerate(observed.heads):
        belief.head_mean[output], belief.head_cov[output] = mean, cov
    records.inlier[i] = observed.inlier
    records.status[i] = LEARNED | (ALARM if alarm else 0)
    if role >= ROLE_REPLAY:
        belief.counts[COUNT.moved if role == ROLE_REPLAY_MEANS else COUNT.rehearsed] += 1
        return
    rows = int(belief.counts[COUNT.rows])
    if isinstance(inputs, input_moments.WideInputs):
        input_moments.update_wide_inputs(
            belief.view, belief.input_mean, belief.input_cov, rows, inputs
        )
    else:
        input_gaussian.update_input_moments(belief.input_mean, belief.input_cov, rows, inputs)
    belief.counts[COUNT.rows] += 1
    belief.counts[COUNT.distinct] += role == ROLE_NEW
    belief.counts[COUNT.clipped] += int(np.sum(np.abs(x) > belief.config.input_limit))


def condition_row(
    belief: Belief, x: FloatArray, x_var: FloatArray
) -> InputMoments | input_moments.WideInputs:
    """Return the moments of one row's inputs as the network receives them."""
    limit = belief.config.input_limit
    believed = np.abs(x) <= max(limit, INPUT_BELIEVED)
    seen = np.where(believed, np.clip(x, -limit, limit), np.nan)
    if belief.config.directions:
        return input_moments.condition_wide_inputs(
            belief.view, belief.input_mean, belief.input_cov, seen, x_var
        )
    return input_gaussian.condition_inputs(belief.input_mean, belief.input_cov, seen, x_var)


def noise_var(belief: Belief, features: FloatArray) -> float:
    """Return the noise variance of the first output, given [1, z] of the last hidden layer."""
    found = _noise_forecasts(belief, features)
    return found[0].var if found else belief.config.noise or 0.0


def _noise_forecasts(belief: Belief, features: FloatArray) -> list[NoiseForecast]:
    if not belief.config.learns_noise:
        return []
    head = belief.config.has_head
    return [
        noise_model.forecast_noise(
            belief.noise[o],
            belief.head_mean[o] if head else None,
            belief.head_cov[o] if head else None,
            features,
        )
        for o in range(belief.config.labels)
    ]


def _make_prior(belief: Belief, out: OutputMoments) -> RowPrior:
    config = belief.config
    return RowPrior(
        outputs=out,
        variance_inflation=belief.variance_inflation,
        forecasts=_noise_forecasts(belief, out.features),
        noise=belief.noise,
        heads=list(zip(belief.head_mean, belief.head_cov, strict=True)),
        fixed_noise=config.noise or 0.0,
        least_noise=config.least_noise,
        robust=config.robust,
        printed=config.printed_variance,
    )


def _record_prediction(belief: Belief, out: OutputMoments, records: Records, i: int) -> RowPrior:
    before = _make_prior(belief, out)
    records.mean[i], records.function_var[i] = out.mean, out.inflated_var(belief.variance_inflation)
    records.noise_var[i] = 0.0 if before.forecasts else before.fixed_noise
    records.noise_var[i, : len(before.forecasts)] = [now.var for now in before.forecasts]
    records.probability[i] = belief.config.kind.class_probabilities(before.inflated_outputs)
    return before


def _can_learn(
    belief: Belief, x: FloatArray, y: FloatArray, weight: float, out: OutputMoments
) -> bool:
    if belief.config.kind.has_none:
        y = np.where(y == -np.inf, 0.0, y)
    if np.any(np.isinf(x)) or np.any(np.isinf(y)):
        return False
    if np.any(np.abs(y[np.isfinite(y)]) > LABEL_LIMIT):
        return False
    if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        return False
    if not belief.config.kind.can_learn(y, belief.config.outputs):
        return False
    return bool(
        np.all(np.isfinite(out.mean))
        and np.all(np.isfinite(out.cov))
        and np.all(np.isfinite(out.input_var))
    )
