"""The joint posterior of function values: draw functions, and choose the rows to label next.

The network is linear in its weights around their means, as when it learns (kbnn.core.block_filter):
with H the derivatives of an output at two rows and P the weight covariance,

    cov(f(x), f(x')) = kappa H(x) P H(x')'

`FunctionSampler` draws weights w ~ N(0, kappa P) once per function and evaluates mean + H w at any
rows. A row's draws have its mean and its `function_sd`; missing inputs and the paper's smoother
state a larger variance than H P H', to which the row's draws are scaled.

`rank_queries` chooses the rows whose labels reduce the function's variance, summed over the given
rows, most. A label of noise variance r at row j turns C into C - C_j C_j' / (C_jj + r), whatever
the label will be. Rows are chosen one after another, each after the effect of those before.

Several networks with weights w_k and means m_k are pooled (kbnn.model.ensemble). A function is
drawn from network k with probability w_k, and the covariance is that of the mixture, times the
scale c of the pool; draws are as much wider:

    C(x, x') = c sum_k w_k (C_k(x, x') + (m_k(x) - m(x)) (m_k(x') - m(x')))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core import normal
from kbnn.core.belief import Belief, open_belief
from kbnn.core.constants import COUNT_RATE, LOG_RATE_LIMIT, PRESENCE_RATE, PROBIT_VAR
from kbnn.core.jacobian import compute_slopes, function_var, multiply_covariance
from kbnn.core.kernel import Prediction, predict_parallel
from kbnn.core.likelihoods import presence_probability
from kbnn.data.batch import Rows
from kbnn.distributions.predictive import PARAM
from kbnn.model import ensemble, scaler
from kbnn.model.learner import Learner, LearnerState, encode_for_members
from kbnn.model.model import OnlineModel

MAX_REFERENCE_ROWS = 256
"""Largest number of given rows over which the uncertainty is summed; evenly spaced."""
MAX_CANDIDATE_ROWS = 1024
"""Largest number of rows compared jointly, of one output: those with the largest own effect."""
BLOCK_NUMBERS = 1 << 22
"""Derivatives computed at a time, to bound memory."""
DIFFERENCE_STEP_SD = 1e-4
"""Step of differences of a forecast with respect to an output, in standardised units."""


class FunctionSampler:
    """N draws of the predictive function: the same N functions for all rows.

    Parameters
    ----------
    model
        The model, as it is now; rows learned later do not change the draws.
    count
        Number of functions.
    seed
        Random seed: the same seed and model give the same functions.
    """

    def __init__(self, model: OnlineModel, count: int, seed: int = 0) -> None:
        with model.lock:
            self._learner: Learner = model.learner
            self._learned: LearnerState = model.get_prediction_state()
            self._beliefs = [open_belief(member.state()) for member in self._learned.members]
        self.count = count
        rng = np.random.default_rng(seed)
        weights = self._learned.pool.weight
        self._member: IntArray = rng.choice(len(self._beliefs), count, p=weights)
        self._draws = [
            _draw_weights(belief, int(np.sum(self._member == k)), rng)
            for k, belief in enumerate(self._beliefs)
        ]

    def draw(self, rows: Rows) -> FloatArray:
        """Return what each function predicts for rows: (count, n, targets), or (count, n, classes).

        Of numbers it is the mean of the target given the function, in the user's units; of classes
        their probabilities.
        """
        learner, learned = self._learner, self._learned
        z, var = learner.standardize_inputs(learned, rows.x, rows.x_sd)
        found: list[FloatArray | None] = [None] * self.count
        inputs = encode_for_members(learned, z, var)
        predictions, made = _predict_members(learned, inputs)
        spread = _spread_ratio(learner, learned, made) * np.sqrt(_find_pool_scale(learned))
        calibrated = learner.make_forecast(learned, made).probability
        for k, belief in enumerate(self._beliefs):
            places = np.flatnonzero(self._member == k)
            if not len(places):
                continue
            moves = self._move_outputs(belief, predictions[k], inputs[k][0], self._draws[k])
            for at, move in zip(places, moves, strict=True):
                outputs = made.mean + spread * (predictions[k].mean - made.mean + move)
                if learner.task.labels:
                    found[at] = _calibrate_draw(class_probabilities_of(outputs), made, calibrated)
                else:
                    none = np.zeros_like(made.function_var)
                    known = made._replace(mean=outputs, function_var=none)
                    found[at] = learner.make_forecast(learned, known).mean
        return np.stack([one for one in found if one is not None])

    @staticmethod
    def _move_outputs(
        belief: Belief, made: Prediction, z: FloatArray, draws: FloatArray
    ) -> FloatArray:
        """Return H w of every draw, scaled to the variance that was predicted: (draws, n, O)."""
        moves = np.zeros((draws.shape[1], *made.mean.shape))
        step = max(1, BLOCK_NUMBERS // max(1, draws.shape[0]))
        for output in range(made.mean.shape[1]):
            for start in range(0, len(z), step):
                part = slice(start, start + step)
                h = compute_slopes(belief, z[part], output).weights
                var = np.maximum(function_var(belief, h), 1e-300)
                ratio = np.sqrt(made.function_var[part, output] / var)
                moves[:, part, output] = (h @ draws * ratio[:, None]).T
        return moves


def _draw_weights(belief: Belief, count: int, rng: np.random.Generator) -> FloatArray:
    """Draw deviations of the weights from their means: (weights, count)."""
    draws = np.zeros((len(belief.mean), count))
    for stack in belief.stacks:
        normals = rng.standard_normal((*stack.positions.shape, count))
        draws[stack.positions] = _square_root(stack.cov) @ normals
    return np.asarray(np.sqrt(belief.variance_inflation) * draws)


def _square_root(cov: FloatArray) -> FloatArray:
    """Return L with L L' = cov of every block; by eigenvalues if one is not positive definite."""
    try:
        return np.asarray(np.linalg.cholesky(cov))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(cov)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :])


def _spread_ratio(learner: Learner, learned: LearnerState, made: Prediction) -> FloatArray:
    """Return the factor (n, O) by which calibration widens the function's sd; 1 if it does not."""
    task = learner.task
    if task.labels or task.name not in ("regression", "positive", "share"):
        return np.ones_like(made.mean)
    forecast = learner.make_forecast(learned, made)
    scale = learned.columns[: task.scaled, scaler.SCALE]
    stated = scale * np.sqrt(made.function_var + made.noise_var)
    spread = forecast.stated[..., PARAM.spread]
    return np.divide(spread, stated, out=np.ones_like(spread), where=stated > 0.0)


def _predict_members(
    learned: LearnerState, inputs: list[tuple[FloatArray, FloatArray | None]]
) -> tuple[list[Prediction], Prediction]:
    """Return the prediction of each network and the pooled one, before calibration."""
    parts = zip(learned.members, inputs, strict=True)
    predictions = [predict_parallel(member, *given) for member, given in parts]
    weights = ensemble.repeat_weights(learned.pool, len(predictions[0].mean))
    return predictions, ensemble.pool_predictions(predictions, weights)


def _find_pool_scale(learned: LearnerState) -> float:
    """Return the factor c of pooled variances; 1 for a single network."""
    if len(learned.members) == 1:
        return 1.0
    return float(ensemble.repeat_weights(learned.pool, 1)[0, -1])


def _calibrate_draw(p: FloatArray, made: Prediction, calibrated: FloatArray) -> FloatArray:
    """Return probabilities of a draw such that the mean over draws is the calibrated prediction.

    With m the mean before and c after calibration, a draw p becomes r p + (c - r m), where
    r = min(1, min_k c_k/m_k) is the largest factor that keeps every probability at 0 or above.
    """
    mean = np.maximum(made.probability, np.finfo(np.float64).tiny)
    ratio = np.minimum(np.min(calibrated / mean, axis=1, keepdims=True), 1.0)
    moved = np.maximum(ratio * p + (calibrated - ratio * made.probability), 0.0)
    return np.asarray(moved / np.sum(moved, axis=1, keepdims=True))


def class_probabilities_of(outputs: FloatArray) -> FloatArray:
    """Return class probabilities (n, classes) of outputs (n, O) known exactly.

    One output is a probit of the second of two classes; several are compared pair by pair, see
    kbnn.core.likelihoods.CategoricalLikelihood.
    """
    if outputs.shape[1] == 1:
        u = outputs / np.sqrt(PROBIT_VAR)
        return np.exp(normal.log_cdf(np.concatenate((-u, u), axis=1)))
    u = (outputs[:, :, None] - outputs[:, None, :]) / np.sqrt(PROBIT_VAR)
    odds = np.exp(np.clip(normal.log_cdf(-u) - normal.log_cdf(u), -300.0, 300.0))
    p = 1.0 / np.sum(odds, axis=2)
    return np.asarray(p / np.sum(p, axis=1, keepdims=True))


class QueryRanking(NamedTuple):
    """Rows to label, best first, and what their labels are expected to leave of the uncertainty."""

    rows: IntArray  # (K,) indices
    remaining: FloatArray  # (K,) share of the summed function variance left after each label


class _JointOutput(NamedTuple):
    """The joint posterior of one output, pooled over members, and what a label says about it."""

    output: int
    beliefs: list[Belief]
    inputs: list[FloatArray]  # (n, inputs) of each member
    shares: FloatArray  # (K,) weights of the members, times the scale of the pool
    deviation: FloatArray  # (n, K) difference from the pooled mean, times the root of the share
    slope: FloatArray  # (n,) user's units (probability) per unit of the output
    noise_var: FloatArray  # (n,) of a label, in units of the output

    def compute_slopes(self, rows: IntArray) -> list[FloatArray]:
        """Return the derivatives (rows, weights) of each member at some rows."""
        return [
            compute_slopes(belief, z[rows], self.output).weights
            for belief, z in zip(self.beliefs, self.inputs, strict=True)
        ]

    def multiply_covariances(self, slopes: list[FloatArray]) -> list[FloatArray]:
        """Return the share times kappa P H' of each member: (weights, rows)."""
        return [
            share * np.ascontiguousarray(multiply_covariance(belief, h).T)
            for share, belief, h in zip(self.shares.tolist(), self.beliefs, slopes, strict=True)
        ]

    def compute_var(self, rows: IntArray, slopes: list[FloatArray]) -> FloatArray:
        """Return the variance of the function at some rows."""
        parts = zip(self.shares.tolist(), self.beliefs, slopes, strict=True)
        within = sum(share * function_var(belief, h) for share, belief, h in parts)
        return np.asarray(within + np.sum(self.deviation[rows] ** 2, axis=1))


class _References(NamedTuple):
    """The reference rows of an output, weighted by their slopes."""

    weights: list[FloatArray]  # (weights, references) of each member
    deviation: FloatArray  # (references, K)

    def compute_cov(
        self, one: _JointOutput, rows: IntArray, slopes: list[FloatArray]
    ) -> FloatArray:
        """Return the covariances (rows, references) of some rows with the reference rows."""
        within = sum(h @ weights for h, weights in zip(slopes, self.weights, strict=True))
        return np.asarray(within + one.deviation[rows] @ self.deviation.T)


OnState = Callable[[str], None]
"""Receives a text about how far a long computation is."""


def ignore_state(state: str) -> None:
    """Receive how far a computation is, and do nothing."""


def rank_queries(
    model: OnlineModel, rows: Rows, count: int, on_state: OnState = ignore_state
) -> QueryRanking:
    """Choose the rows whose labels reduce the uncertainty about all given rows most.

    Parameters
    ----------
    model
        The model; it does not change.
    rows
        Encoded rows; their targets are ignored. The uncertainty is the variance of the function
        (the square of `function_sd`; of classes that of the probabilities), summed over at most
        MAX_REFERENCE_ROWS of these rows.
    count
        Number of rows to choose.
    on_state
        Called after every block of rows and every row chosen.

    Returns
    -------
    QueryRanking
        Indices of the rows, best first, and the share of the uncertainty left after each label.
    """
    with model.lock:
        learner, learned = model.learner, model.get_prediction_state()
        z, var = learner.standardize_inputs(learned, rows.x, rows.x_sd)
        joint = _list_outputs(learner, learned, z, var)
    n = len(z)
    count = min(count, n)
    widest = max(len(belief.mean) for one in joint for belief in one.beliefs)
    most = min(n, MAX_REFERENCE_ROWS, max(64, 8 * BLOCK_NUMBERS // widest))
    reference = np.unique(np.linspace(0, n - 1, most).astype(np.int64))
    gain = np.zeros(n)
    step = max(1, BLOCK_NUMBERS // widest)
    total = 0.0
    for one in joint:
        references = _weigh_references(one, reference)
        for start in range(0, n, step):
            at = np.arange(start, min(start + step, n))
            slopes = one.compute_slopes(at)
            own = one.compute_var(at, slopes)
            toward = references.compute_cov(one, at, slopes)
            gain[at] += np.sum(toward**2, axis=1) / (own + one.noise_var[at])
            inside = np.isin(at, reference)
            total += float(np.sum(own[inside] * one.slope[at[inside]] ** 2))
            done = f"{at[-1] + 1:,} of {n:,} rows compared"
            on_state(done if len(joint) == 1 else f"{done} for output {one.output + 1}")
    most = max(count, int(MAX_CANDIDATE_ROWS / len(joint) ** 0.5))
    candidates = np.sort(np.argsort(-gain, kind="stable")[:most])
    chosen, falls = _choose_greedily(joint, candidates, reference, count, on_state)
    left = 1.0 - np.cumsum(falls) / total if total > 0.0 else np.ones(len(falls))
    return QueryRanking(candidates[chosen], np.maximum(left, 0.0))


def _weigh_references(one: _JointOutput, reference: IntArray) -> _References:
    """Return the reference rows of an output, weighted by their slopes."""
    weight = one.slope[reference]
    products = one.multiply_covariances(one.compute_slopes(reference))
    return _References(
        [product * weight for product in products], one.deviation[reference] * weight[:, None]
    )


def _choose_greedily(
    joint: list[_JointOutput],
    candidates: IntArray,
    reference: IntArray,
    count: int,
    on_state: OnState,
) -> tuple[IntArray, FloatArray]:
    """Choose candidates one after another; return positions and the fall of the summed variance."""
    between, toward = [], []  # covariances among candidates, and with the reference rows
    for one in joint:
        slopes = one.compute_slopes(candidates)
        products = zip(slopes, one.multiply_covariances(slopes), strict=True)
        deviation = one.deviation[candidates]
        within = sum(h @ product for h, product in products)
        between.append(np.asarray(within + deviation @ deviation.T))
        toward.append(_weigh_references(one, reference).compute_cov(one, candidates, slopes))
    chosen, falls = [], []
    free = np.ones(len(candidates), dtype=bool)
    for _ in range(min(count, len(candidates))):
        gain = np.zeros(len(candidates))
        for one, c, d in zip(joint, between, toward, strict=True):
            gain += np.sum(d * d, axis=1) / (np.diagonal(c) + one.noise_var[candidates])
        at = int(np.argmax(np.where(free, gain, -np.inf)))
        free[at] = False
        chosen.append(at)
        falls.append(float(gain[at]))
        on_state(f"{len(chosen):,} of {count:,} chosen")
        for one, c, d in zip(joint, between, toward, strict=True):
            shrink = c[at] / (c[at, at] + one.noise_var[candidates[at]])
            d -= np.outer(shrink, d[at])
            c -= np.outer(shrink, c[at].copy())
    return np.array(chosen, dtype=np.int64), np.array(falls)


def _list_outputs(
    learner: Learner, learned: LearnerState, z: FloatArray, var: FloatArray | None
) -> list[_JointOutput]:
    """List the outputs with slopes and label noise; outputs count as independent."""
    shares = _find_pool_scale(learned) * learned.pool.weight
    inputs = encode_for_members(learned, z, var)
    predictions, made = _predict_members(learned, inputs)
    slopes, noise = _output_slopes(learner, learned, made), _label_noise(learner, made)
    off = [one.mean - made.mean for one in predictions]
    beliefs = [open_belief(member.state()) for member in learned.members]
    return [
        _JointOutput(
            output,
            beliefs,
            [given[0] for given in inputs],
            shares,
            np.stack([part[:, output] for part in off], axis=1) * np.sqrt(shares),
            slopes[:, output],
            noise[:, output],
        )
        for output in range(made.mean.shape[1])
    ]


def _output_slopes(learner: Learner, learned: LearnerState, made: Prediction) -> FloatArray:
    """Return the change of the forecast per unit of each output: (n, O).

    Several targets count in units of their scales.
    """
    if learner.task.labels:
        p = made.probability if made.mean.shape[1] > 1 else made.probability[:, 1:]
        return p * (1.0 - p)
    slopes = np.zeros_like(made.mean)
    base = learner.make_forecast(learned, made).mean
    unit = np.ones(base.shape[1])
    if base.shape[1] > 1:
        unit = np.maximum(np.std(base, axis=0), 1e-300)
    for output in range(made.mean.shape[1]):
        mean = made.mean.copy()
        mean[:, output] += DIFFERENCE_STEP_SD
        change = (learner.make_forecast(learned, made._replace(mean=mean)).mean - base) / unit
        slopes[:, output] = np.sqrt(np.sum(change**2, axis=1)) / DIFFERENCE_STEP_SD
    return slopes


def _label_noise(learner: Learner, made: Prediction) -> FloatArray:
    """Return the noise variance of a label, 1 / expected information, in units of each output."""
    least = 1e-12
    if learner.task.labels:
        p = made.probability if made.mean.shape[1] > 1 else made.probability[:, 1:]
        return 1.0 / np.maximum(p * (1.0 - p), least)
    if learner.task.name == "count":
        rate = np.exp(np.clip(COUNT_RATE * made.mean, -LOG_RATE_LIMIT, LOG_RATE_LIMIT))
        return (1.0 / rate + np.maximum(made.noise_var, 0.0)) / COUNT_RATE**2
    noise = np.maximum(made.noise_var, least)
    if learner.task.name == "amount":
        half = made.mean.shape[1] // 2
        p = presence_probability(made.mean[:, half:], made.function_var[:, half:])
        noise[:, :half] /= np.maximum(p, least)
        noise[:, half:] = 1.0 / np.maximum(PRESENCE_RATE**2 * p * (1.0 - p), least)
    return noise
