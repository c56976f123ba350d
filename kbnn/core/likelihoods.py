"""Likelihoods: what a label says about the outputs, and the noise, counts and drift around it.

Measurements. The outputs before their activation are a ~ N(m, Q). A label is one measurement, or
several, of directions d'a. With v = d'Q d each amounts to two numbers, a pull and an information
gamma:

    m += Q d pull,   Q -= gamma (Q d)(Q d)'

Every output is linear in the weights near their mean, Cov(w, a) = G, so the weights follow:

    w += G b,   P -= (G B)(G B)'

where b and the columns of B collect the measurements in terms of the *prior* gain: starting from A
= I, b += A d pull, a new column sqrt(gamma) A d, A -= gamma (A d)(Q d)'. P stays positive definite
by construction, and no matrix is inverted.

Noise of a real target. Its level is inverse-gamma(a, b) with r = b/a, discounted by 0.99 per row: a
memory of a hundred rows. A head h(x) = w_h . [1, z], z the last hidden layer's means, w_h ~
N(head_mean, head_cov), is the log-factor by which the noise at x differs from the level. It never
affects the mean. The predicted noise variance is EV = r exp(m_h + v_h/2). For outliers, a residual
e comes from (1 - eps) N(0, S) + eps N(0, 100 S); with p the probability of the first component, the
row has weight lambda = p + (1 - p)/100.

Counts. eta = a/2 is the logarithm of the rate, m and q its mean and variance, and a count y has the
likelihood e^(y eta)/(k + e^eta)^(y + k), k = 1/phi. The posterior mode is found by Newton's method,
with s = 1/(1 + k e^-eta): gradient (m - eta)/q + y - (y + k) s, curvature 1/q + I, where I = (y +
k) s (1 - s). Its variance is v = q/(1 + q I), and its mean eta - I (1 - 2s) v^2/2, corrected by the
third derivative. Using half the network's output keeps rates from exploding where no data were
seen. The dispersion phi is the ratio of two discounted sums, (V - the variance of a Poisson of the
same mean)/(mu^2 e^q), weighted by the information of each row. One count in a hundred is an outlier
with mass s/((s + y)(s + y + 1)), s = mu + 1, whose tail falls as 1/y^2; a count is weighted by the
probability that it is not an outlier.

Drift. A row's surprise is (e^2/S - 1)/2 for a real target (S the variance predicted before the row)
and, for classes, the log-loss minus its expectation, in units of its spread: zero on average while
predictions are calibrated. The evidence c = max(0, c + min(surprise, cap) - slack) then stays near
zero; c > threshold raises an alarm: c = 0, every covariance moves a share of the way back to its
prior (the means do not change) and the noise state keeps only its last twenty rows. The cap is low,
so that outliers do not look like drift. Rows of a later pass raise no alarm.

The likelihoods, each an object that owns everything that depends on it:

    gaussian     a real target with Gaussian noise, one per output
    bernoulli    one output, labels 0 and 1: the sign of a through Phi(lambda a)
    categorical  one output per class, the label is the index of the class: "c beats k" for every
                 rival k in order, a probit measurement of a_c - a_k with weight p_c + p_k
    count        counts with a log link, one per output
    amount       a real target, or -inf for an amount of 0: as gaussian if finite, and for each
                 target a second output, a probit measurement of whether there is an amount
    sigmoid      as in the paper: a Gaussian label 0 or 1 on z = sigmoid(a)

A new likelihood is added here and in csrc/observe.h only.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core import normal
from kbnn.core.activations import ACTIVATIONS, Activation, printed_sigmoid_var
from kbnn.core.constants import (
    CLASSES,
    COUNT_NEWTON_REST,
    COUNT_NEWTON_STEP,
    COUNT_NEWTON_TURNS,
    COUNT_RATE,
    DISPERSION_BOUND,
    DISPERSION_KEPT,
    HEAD_LOG_MEAN_HIGH,
    HEAD_LOG_MEAN_LOW,
    HEAD_LOG_VAR_CAP,
    HEAD_STEP_CAP,
    LARGEST_COUNT,
    LEAST_DISPERSION,
    LEAST_RATE_VAR,
    LEAST_WEIGHT,
    LOG_ODDS_LIMIT,
    LOG_RATE_LIMIT,
    MOST_DISPERSION,
    MOST_RATE_VAR,
    NOISE_LOSS,
    NOISE_MEMORY,
    NOISE_ROUNDS,
    OUTLIER_DECAY,
    OUTLIER_ODDS,
    OUTLIER_REACH,
    OUTLIER_SHARE,
    OUTLIER_VAR_RATIO,
    PRESENCE_RATE,
    PROBIT_VAR,
    REAL,
    RESIDUAL_BOUND,
    SMALLEST_VAR,
    SURPRISE_CAP,
    SURPRISE_VAR,
    TINY,
    DriftDetector,
)


class OutputMoments(NamedTuple):
    """Moments of one row's outputs before their activation."""

    mean: FloatArray
    cov: FloatArray  # of the function
    input_var: FloatArray  # what uncertain inputs add to each output's variance
    features: FloatArray  # [1, z] of the last hidden layer

    @property
    def var(self) -> FloatArray:
        """Variance of each output."""
        return self.inflated_var(1.0)

    def inflated_var(self, kappa: float) -> FloatArray:
        """Return the predicted variance: kappa times the function's, plus that due to inputs."""
        return kappa * np.maximum(np.diag(self.cov), 0.0) + self.input_var


class OutputEvidence:
    """The outputs while a label is processed: moments m, Q and the evidence b, B so far."""

    def __init__(self, mean: FloatArray, cov: FloatArray, extra_var: FloatArray) -> None:
        self.mean, self.cov, self.extra_var = mean.copy(), cov.copy(), extra_var
        self.pull = np.zeros_like(mean)
        self.columns: list[FloatArray] = []
        self._gain = np.eye(len(mean))

    @property
    def root_information(self) -> FloatArray:
        """B, one column per measurement."""
        return np.array(self.columns).reshape(-1, len(self.mean)).T

    def project_moments(self, direction: FloatArray) -> tuple[float, float]:
        """Return mean and variance of d'a, including the variance of uncertain inputs."""
        var = max(float(direction @ self.cov @ direction), 0.0)
        return float(direction @ self.mean), var + float(direction**2 @ self.extra_var)

    def add_measurement(self, direction: FloatArray, pull: float, information: float) -> None:
        """Add one measurement of d'a."""
        cov_d, gain_d = self.cov @ direction, self._gain @ direction
        self.mean += cov_d * pull
        self.pull += gain_d * pull
        self.columns.append(gain_d * np.sqrt(information))
        self.cov -= information * np.outer(cov_d, cov_d)
        self._gain -= information * np.outer(gain_d, cov_d)


def measure_real(outputs: OutputEvidence, o: int, target: float, noise_var: float) -> None:
    """Measure output o with noise r: pull = e/(v + r), gamma = 1/(v + r)."""
    direction = unit_vector(len(outputs.mean), o)
    mean, var = outputs.project_moments(direction)
    total = max(var + noise_var, SMALLEST_VAR)
    outputs.add_measurement(direction, (target - mean) / total, 1.0 / total)


def measure_probit(outputs: OutputEvidence, direction: FloatArray, weight: float) -> None:
    """Measure d'a > 0 through Phi.

    With T^2 = 1/lambda^2 + v, u = d'm/T and rho = N(u)/Phi(u), pull = rho/T and gamma = rho (rho +
    u)/T^2.
    """
    mean, var = outputs.project_moments(direction)
    t = np.sqrt(PROBIT_VAR + var)
    u = mean / t
    rho = float(normal.hazard(u))
    information = min(max(rho * (rho + u), 0.0), 1.0) / (t * t)
    measure_weighted(outputs, direction, var, rho / t, information, weight)


def measure_weighted(
    outputs: OutputEvidence,
    direction: FloatArray,
    var: float,
    pull: float,
    information: float,
    weight: float,
) -> None:
    """Add a measurement with a weight: the precision of its Gaussian site is multiplied.

    The site's variance is 1/gamma - v; divided by `weight`, gamma becomes weight gamma / (1 +
    (weight - 1) gamma v), and the pull changes in proportion.
    """
    rest = 1.0 + (weight - 1.0) * min(information * var, 1.0)
    factor = weight / max(rest, min(weight, 1.0))
    outputs.add_measurement(direction, pull * factor, information * factor)


def unit_vector(size: int, index: int) -> FloatArray:
    """Return the direction of one output."""
    direction = np.zeros(size)
    direction[index] = 1.0
    return direction


class NoiseForecast(NamedTuple):
    """Predicted noise of one output at one x."""

    level: float  # r
    var: float  # EV, or r without a head
    log_mean: float  # m_h
    log_var: float  # v_h, not capped
    gain: FloatArray  # head_cov [1, z]


def forecast_noise(
    noise: FloatArray,
    head_mean: FloatArray | None,
    head_cov: FloatArray | None,
    features: FloatArray,
) -> NoiseForecast:
    """Predict the noise variance of a row whose last hidden layer is `features` = [1, z]."""
    level = float(noise[1] / noise[0])
    if head_mean is None or head_cov is None:
        return NoiseForecast(level, level, 0.0, 0.0, np.zeros(0))
    gain = head_cov @ features
    log_mean = float(np.clip(head_mean @ features, HEAD_LOG_MEAN_LOW, HEAD_LOG_MEAN_HIGH))
    log_var = max(float(features @ gain), 0.0)
    var = level * np.exp(log_mean + 0.5 * min(log_var, HEAD_LOG_VAR_CAP))
    return NoiseForecast(level, float(var), log_mean, log_var, gain)


def residual_inlier_probability(e: float, total_var: float) -> float:
    """Return p of the contaminated normal for a residual e of predictive variance `total_var`."""
    odds = OUTLIER_ODDS * np.exp(-OUTLIER_DECAY * min(e * e / total_var, OUTLIER_REACH))
    return float(odds / (1.0 + odds))


def inlier_weight(p: float) -> float:
    """Return lambda = p + (1 - p)/100, the weight of a residual with inlier probability p."""
    return p + (1.0 - p) / OUTLIER_VAR_RATIO


class Residual(NamedTuple):
    """A residual and the variances that the noise update needs."""

    e: float
    var: float  # of the function where it was predicted
    inflated_var: float  # the same, inflated for repeated passes
    trust: float  # lambda, 1 for a certain inlier
    share: float  # effective weight: lambda times the row's weight


def learn_level(noise: FloatArray, seen: Residual) -> tuple[FloatArray, float]:
    """Return (a, b) and r after a residual.

    A variational fixed point: with R = r/trust and gain = R/(var + R) the noise part of the
    residual has second moment (e gain)^2 + v R/(v + R), v the inflated variance; then a += share/2,
    b += share (..)/2, r = b/a. The row's weight does not enter R: a large weight does not make a
    residual less informative about the noise, and r would collapse to 0.
    """
    e, var, stated, trust, share = seen
    a, b = noise
    r = b / a
    a_new = a + 0.5 * share
    for _ in range(int(NOISE_ROUNDS)):
        gain = r / (var * trust + r)
        rest = stated * r / (stated * trust + r)
        r = max((b + 0.5 * share * (e * e * gain * gain + rest)) / a_new, SMALLEST_VAR)
    keep = 1.0 / (1.0 + NOISE_LOSS * share)
    return np.array([keep * a_new, keep * r * a_new]), float(r)


def learn_head(
    head_mean: FloatArray, head_cov: FloatArray, now: NoiseForecast, seen: Residual
) -> tuple[FloatArray, FloatArray]:
    """Update the noise head with a residual: eps^2 -> V -> h by Gaussian smoothing.

    K = EV/(var + EV), rest = v EV/(v + EV), v the inflated variance: the noise part of e has E
    eps^2 = m2 = (K e)^2 + rest and Var eps^2 = s2 = 2 rest^2 + 4 rest (K e)^2. With D = 3 exp(v_h)
    - 1: Dm = v_h (m2/EV - 1)/D, Dv = v_h^2 (s2/(EV D)^2 - 1/D).
    """
    e, var, stated, trust, share = seen
    v = min(now.log_var, HEAD_LOG_VAR_CAP)
    if now.log_var <= SMALLEST_VAR:
        return head_mean, head_cov
    k = now.var / (var + now.var)
    e2, rest = (k * e) ** 2, stated * now.var / (stated + now.var)
    m2, s2 = e2 + rest, 2.0 * rest * rest + 4.0 * rest * e2
    d = 3.0 * np.exp(v) - 1.0
    share = min(share, trust)  # no row moves the head more than once
    dm = share * v * (m2 / now.var - 1.0) / d
    dv = share * v * v * (s2 / (now.var * d) ** 2 - 1.0 / d)
    dm = np.clip(dm, -HEAD_STEP_CAP, HEAD_STEP_CAP)
    dv = min(dv, 0.0)  # and never below -v/7, whatever v: v_h stays positive
    # Divided by the uncapped variance: anything smaller would make the covariance indefinite.
    u = now.gain * (np.sqrt(-dv) / now.log_var)
    return head_mean + now.gain * (dm / now.log_var), head_cov - np.outer(u, u)


class LogRate(NamedTuple):
    """Mean and variance of the logarithm of a rate."""

    mean: float
    var: float


def make_log_rate(mean: float, var: float) -> LogRate:
    """Return the log-rate of an output with this mean and variance."""
    eta = min(max(COUNT_RATE * mean, -LOG_RATE_LIMIT), LOG_RATE_LIMIT)
    return LogRate(eta, min(max(COUNT_RATE**2 * var, LEAST_RATE_VAR), MOST_RATE_VAR))


def count_dispersion(sums: tuple[float, float]) -> float:
    """Return phi from its two sums, weight first."""
    return min(max(sums[1] / sums[0], LEAST_DISPERSION), MOST_DISPERSION)


def count_moments(now: LogRate, phi: float) -> tuple[float, float]:
    """Return mu and 1/alpha of the predictive negative binomial."""
    mu = math.exp(min(now.mean + 0.5 * now.var, LOG_RATE_LIMIT))
    return mu, math.exp(now.var) * (1.0 + phi) - 1.0


def log_rate_posterior(now: LogRate, y: float, phi: float) -> LogRate:
    """Return the posterior of the log-rate given a count y."""
    m, q = now
    k = 1.0 / phi
    h = y * k / (y + k)
    eta = m if y == 0.0 else (m / q + h * math.log(y)) / (1.0 / q + h)
    for _ in range(int(COUNT_NEWTON_TURNS)):
        s = 1.0 / (1.0 + k * math.exp(-eta))
        step = ((m - eta) / q + y - (y + k) * s) / (1.0 / q + (y + k) * s * (1.0 - s))
        step = min(max(step, -COUNT_NEWTON_STEP), COUNT_NEWTON_STEP)
        eta += step
        if abs(step) <= COUNT_NEWTON_REST * (1.0 + abs(eta)):
            break
    s = 1.0 / (1.0 + k * math.exp(-eta))
    information = (y + k) * s * (1.0 - s)
    var = q / (1.0 + q * information)
    return LogRate(eta - 0.5 * information * (1.0 - 2.0 * s) * var * var, var)


def count_inlier_probability(
    y: float, mu: float, inverse: float, share: float = OUTLIER_SHARE
) -> float:
    """Return the probability that a count is not an outlier; `inverse` is 1/alpha.

    `share` is the prior probability of an outlier.
    """
    alpha, s = 1.0 / inverse, mu + 1.0
    log_mass = math.lgamma(y + alpha) - math.lgamma(alpha) - math.lgamma(y + 1.0)
    log_mass += -alpha * math.log1p(mu * inverse) - y * math.log1p(alpha / mu)
    log_far = math.log(s) - math.log(s + y) - math.log(s + y + 1.0)
    odds = math.log((1.0 - share) / share) + log_mass - log_far
    return 1.0 / (1.0 + math.exp(min(max(-odds, -LOG_ODDS_LIMIT), LOG_ODDS_LIMIT)))


def dispersion_slope(y: float, mu: float, inverse: float) -> float:
    """Return d log mass/d log(1/alpha), positive where the count asks for more dispersion.

    It is -alpha (psi(y + alpha) - psi(alpha) - log(1 + mu/alpha) + (mu - y)/(mu + alpha)).
    """
    alpha = 1.0 / inverse
    slope = digamma(y + alpha) - digamma(alpha) - math.log1p(mu * inverse)
    return -alpha * (slope + (mu - y) / (mu + alpha))


def digamma(x: float) -> float:
    """Return psi of a number above 0: by recurrence up to 8, then by its asymptotic series."""
    below = 0.0
    while x < 8.0:
        below += 1.0 / x
        x += 1.0
    z = 1.0 / (x * x)
    series = 0.0
    for term in (691 / 32760, 1 / 132, 1 / 240, 1 / 252, 1 / 120, 1 / 12):
        series = z * (term - series)
    return math.log(x) - 0.5 / x - series - below


def learn_dispersion(
    sums: tuple[float, float], now: LogRate, phi: float, y: float, share: float
) -> tuple[float, float]:
    """Return the two sums after a count of weight `share`."""
    mu, inverse = count_moments(now, phi)
    var = mu + mu * mu * inverse
    scale = mu * mu * math.exp(now.var)
    weight = share * (scale / var) ** 2
    square = min((y - mu) ** 2, DISPERSION_BOUND * var)
    more = (square - mu - mu * mu * math.expm1(now.var)) / scale
    kept = 1.0 - (1.0 - DISPERSION_KEPT) * min(share, 1.0)
    return kept * (sums[0] + weight), kept * (sums[1] + weight * more)


def count_bound(mu: float, inverse: float) -> float:
    """Return the value at which counts are clipped: mu + RESIDUAL_BOUND standard deviations."""
    return mu + RESIDUAL_BOUND * math.sqrt(mu + mu * mu * inverse)


def count_surprise(y: float, mu: float, inverse: float) -> float:
    """Return the squared residual of a count in units of its predictive variance."""
    return (y - mu) ** 2 / (mu + mu * mu * inverse)


def update_detector(detector: DriftDetector, evidence: FloatArray, surprise: float) -> bool:
    """Add a row's surprise to the evidence, in place; return whether an alarm is raised."""
    evidence[0] = max(0.0, evidence[0] + min(surprise, detector.cap) - detector.slack)
    if evidence[0] <= detector.threshold:
        return False
    evidence[0] = 0.0
    return True


def shorten_noise_memory(noise: FloatArray) -> FloatArray:
    """Return the noise state with its memory cut to twenty rows."""
    factor = np.minimum(1.0, NOISE_MEMORY / noise[:, :1])
    return noise * factor


def class_surprise(probability: FloatArray, label: int) -> float:
    """Return (s - H)/sqrt(2 (V + 0.1)), s the log-loss of a label with mean H and variance V."""
    p = np.maximum(probability, TINY)
    information = -np.log(p)
    entropy = float(p @ information)
    var = float(p @ (information * information)) - entropy * entropy
    return (float(information[label]) - entropy) / float(np.sqrt(2.0 * (var + SURPRISE_VAR)))


CLASS_PRIOR_SCALE = 25.0
"""Factor on the prior variance of class outputs, as probabilities near 0 and 1 are common."""

NoiseHeads = list[tuple[FloatArray, FloatArray]]


class RowPrior(NamedTuple):
    """The prediction of a row before its label is used."""

    outputs: OutputMoments
    variance_inflation: float  # kappa, see kbnn.core.belief
    forecasts: list[NoiseForecast]  # empty where the noise is not learned
    noise: FloatArray
    heads: NoiseHeads
    fixed_noise: float  # the variance of labels where it is not learned
    least_noise: float  # the least share of an output's variance that counts as noise
    robust: bool
    printed: bool = False  # a sigmoid output's variance is the one the paper prints

    @property
    def inflated_outputs(self) -> OutputEvidence:
        """The outputs as predicted, with the function's covariance times kappa."""
        out = self.outputs
        return OutputEvidence(out.mean, self.variance_inflation * out.cov, out.input_var)


class LabelUpdate(NamedTuple):
    """The update that a label asks for: evidence, and the new noise state."""

    evidence: OutputEvidence
    noise: FloatArray
    heads: NoiseHeads
    inlier: float = 1.0
    surprise: float = 0.0
    raised: int = 0  # variances that the paper's formula puts too low


class Likelihood(ABC):
    """Base class of likelihoods."""

    name: str
    code: int  # in the enum of csrc/observe.h
    detector: DriftDetector = REAL
    has_noise = False  # whether its noise can be learned
    initial_noise = (1.0, 0.03)  # its two numbers before the first row
    supports_noise_head = False  # whether the noise can depend on the input
    has_signed_noise = False  # whether the second number of the noise state may be negative
    supports_many_outputs = False
    has_none = False  # whether -inf is a valid label: an amount of 0
    prior_scale = 1.0  # of the output weights' variances
    output_activations: tuple[Activation, ...] = ()  # applied to an output before the label
    supports_growth = False  # whether outputs can be added while learning

    def label_count(self, outputs: int) -> int:
        """Return the number of values in a row's label."""
        return 1

    def class_count(self, outputs: int) -> int:
        """Return the number of classes whose probabilities are predicted."""
        return 0

    def can_learn(self, label: FloatArray, outputs: int) -> bool:
        """Return whether finite numbers are a valid label."""
        return not self.class_count(outputs) or bool(0 <= label[0] < self.class_count(outputs))

    def class_probabilities(self, outputs: OutputEvidence) -> FloatArray:
        """Return the probability of each class."""
        return np.zeros(0)

    @abstractmethod
    def observe_label(self, before: RowPrior, label: FloatArray, weight: float) -> LabelUpdate:
        """Return the update for a label of this weight."""


class GaussianLikelihood(Likelihood):
    """Real targets: robust weight, clipped residual and noise state, output by output."""

    name, code = "gaussian", 0
    has_noise = supports_noise_head = supports_many_outputs = True

    def label_count(self, outputs: int) -> int:
        return outputs

    def observe_label(self, before: RowPrior, label: FloatArray, weight: float) -> LabelUpdate:
        out = before.outputs
        stated = out.inflated_var(before.variance_inflation)
        evidence = OutputEvidence(out.mean, out.cov, out.input_var)
        targets: list[tuple[int, float, float]] = []
        learned, heads = before.noise.copy(), list(before.heads)
        inlier, surprise = 1.0, 0.0
        seen = [int(o) for o in np.flatnonzero(np.isfinite(label))]
        for o in seen:
            level = before.forecasts[o].level if before.forecasts else before.fixed_noise
            expected = max(level, before.forecasts[o].var) if before.forecasts else level
            spread = max(float(stated[o] + expected), SMALLEST_VAR)
            e, trust = float(label[o] - out.mean[o]), 1.0
            if before.robust:
                p = residual_inlier_probability(e, spread)
                inlier, trust = min(inlier, p), inlier_weight(p)
            surprise += (min(e * e / spread, SURPRISE_CAP) - 1.0) / 2.0 / len(seen)
            if before.robust or before.forecasts:
                bound = RESIDUAL_BOUND * np.sqrt(spread)
                e = float(np.clip(e, -bound, bound))
            share = trust * weight
            if before.forecasts:
                residual = Residual(e, float(out.var[o]), float(stated[o]), trust, share)
                learned[o], level = learn_level(before.noise[o], residual)
                if heads:
                    heads[o] = learn_head(*heads[o], before.forecasts[o], residual)
            targets.append((o, float(out.mean[o] + e), level / share))
        for o, target, noise_var in targets:
            least = before.least_noise * float(evidence.cov[o, o])
            measure_real(evidence, o, target, max(noise_var, least))
        return LabelUpdate(evidence, learned, heads, inlier, surprise)


class AmountLikelihood(GaussianLikelihood):
    """Amounts: outputs are the amounts of all targets, then their presences.

    The probability of an amount is Phi(lambda rate a). A label of 0 carries no information about
    the size of an amount.
    """

    name, code = "amount", 5
    has_none = True

    def label_count(self, outputs: int) -> int:
        return outputs // 2

    def observe_label(self, before: RowPrior, label: FloatArray, weight: float) -> LabelUpdate:
        amounts = super().observe_label(before, label, weight)
        out, targets = before.outputs, len(label)
        var = out.inflated_var(before.variance_inflation)
        parts = int(np.sum(np.isfinite(label)))
        surprise = amounts.surprise * parts
        for j in np.flatnonzero(~np.isnan(label)):
            o, sign = targets + int(j), 1.0 if np.isfinite(label[j]) else -1.0
            p = (
                presence_probability(sign * out.mean[o], var[o]),
                presence_probability(-sign * out.mean[o], var[o]),
            )
            surprise += class_surprise(np.array(p), 0)
            parts += 1
            direction = sign * PRESENCE_RATE * unit_vector(len(out.mean), o)
            measure_probit(amounts.evidence, direction, weight)
        return amounts._replace(surprise=surprise / parts if parts else 0.0)


def presence_probability(mean: FloatArray, var: FloatArray) -> FloatArray:
    """Return the probability of an amount, given mean and variance of the presence output."""
    u = PRESENCE_RATE * mean / np.sqrt(PROBIT_VAR + PRESENCE_RATE**2 * var)
    return np.asarray(np.exp(normal.log_cdf(u)))


class CountLikelihood(Likelihood):
    """Counts, output by output; the noise state holds the sums of the dispersion."""

    name, code = "count", 4
    has_noise = has_signed_noise = supports_many_outputs = True
    initial_noise = (2.0, 0.2)

    def label_count(self, outputs: int) -> int:
        return outputs

    def can_learn(self, label: FloatArray, outputs: int) -> bool:
        """Return whether the label holds whole numbers from 0 on, or NaN for not observed."""
        seen = label[~np.isnan(label)]
        return bool(np.all((seen >= 0.0) & (seen == np.floor(seen)) & (seen <= LARGEST_COUNT)))

    def observe_label(self, before: RowPrior, label: FloatArray, weight: float) -> LabelUpdate:
        out = before.outputs
        stated = out.inflated_var(before.variance_inflation)
        evidence = OutputEvidence(out.mean, out.cov, out.input_var)
        learned = before.noise.copy()
        inlier, surprise = 1.0, 0.0
        seen = [int(o) for o in np.flatnonzero(np.isfinite(label))]
        for o in seen:
            y, sums = float(label[o]), (float(before.noise[o, 0]), float(before.noise[o, 1]))
            phi = count_dispersion(sums)
            predicted = make_log_rate(float(out.mean[o]), float(stated[o]))
            mu, inverse = count_moments(predicted, phi)
            trust = 1.0
            if before.robust:
                p = count_inlier_probability(y, mu, inverse)
                inlier, trust = min(inlier, p), inlier_weight(p)
            square = count_surprise(y, mu, inverse)
            surprise += (min(square, SURPRISE_CAP) - 1.0) / 2.0 / len(seen)
            learned[o] = learn_dispersion(sums, predicted, phi, y, trust * weight)
            if before.robust:
                y = min(y, count_bound(mu, inverse))
            direction = unit_vector(len(out.mean), o)
            mean, var = evidence.project_moments(direction)
            now = make_log_rate(mean, var)
            after = log_rate_posterior(now, y, phi)
            pull = COUNT_RATE * (after.mean - now.mean) / now.var
            information = COUNT_RATE**2 * (now.var - after.var) / now.var**2
            # The variance of the log-rate was clipped, so the Gaussian site is rescaled to the
            # whole variance. Otherwise the update would remove more variance than there is.
            clipped = var - now.var / COUNT_RATE**2
            if clipped > 0.0:
                part_kept = 1.0 / (1.0 + information * clipped)
                pull, information = pull * part_kept, information * part_kept
            measure_weighted(evidence, direction, var, pull, information, trust * weight)
        return LabelUpdate(evidence, learned, list(before.heads), inlier, surprise)


class ClassLikelihood(Likelihood):
    """Base class of class likelihoods."""

    detector = CLASSES
    prior_scale = CLASS_PRIOR_SCALE

    def class_index(self, label: float) -> int:
        """Return the index of the class that a label stands for."""
        return int(label)

    @abstractmethod
    def measure_label(
        self, evidence: OutputEvidence, label: float, weight: float, before: RowPrior
    ) -> int:
        """Measure the outputs by a label; return how many variances had to be raised."""

    def observe_label(self, before: RowPrior, label: FloatArray, weight: float) -> LabelUpdate:
        out, given = before.outputs, float(label[0])
        surprise = class_surprise(
            self.class_probabilities(before.inflated_outputs), self.class_index(given)
        )
        evidence = OutputEvidence(out.mean, out.cov, out.input_var)
        raised = self.measure_label(evidence, given, weight, before)
        return LabelUpdate(evidence, before.noise, [], surprise=surprise, raised=raised)


class BinaryLikelihood(ClassLikelihood):
    """Two classes: p(1|a) = Phi(lambda a), the label is 0 or 1."""

    def class_count(self, outputs: int) -> int:
        return 2

    def class_index(self, label: float) -> int:
        return int(label > 0.5)

    def class_probabilities(self, outputs: OutputEvidence) -> FloatArray:
        """Return P(0) and P(1) = Phi(mean / sqrt(1/lambda^2 + var))."""
        mean, var = outputs.project_moments(np.ones(1))
        u = mean / np.sqrt(PROBIT_VAR + var)
        return np.exp(normal.log_cdf(np.array([-u, u])))


class BernoulliLikelihood(BinaryLikelihood):
    """The sign of a through Phi, by moment matching."""

    name, code = "bernoulli", 1

    def measure_label(
        self, evidence: OutputEvidence, label: float, weight: float, before: RowPrior
    ) -> int:
        measure_probit(evidence, np.array([1.0 if self.class_index(label) else -1.0]), weight)
        return 0


class CategoricalLikelihood(ClassLikelihood):
    """Several classes: the label beats every rival, one probit measurement after another.

    For a pair, Phi is the probability of one class given that the label is one of the two. A label
    c is a measurement of every pair (c, k), with weight p_c + p_k, the probability that the row was
    one of the two. Pull and expected information then equal those of one label with the
    probabilities below (in logistic terms e_c - p and diag(p) - p p'), not those of as many labels
    as there are rivals.
    """

    name, code = "categorical", 2
    supports_many_outputs = supports_growth = True

    def class_count(self, outputs: int) -> int:
        return outputs

    def measure_label(
        self, evidence: OutputEvidence, label: float, weight: float, before: RowPrior
    ) -> int:
        size, winner = len(evidence.mean), self.class_index(label)
        p = self.class_probabilities(before.inflated_outputs)
        for rival in range(size):
            if rival != winner:
                direction = unit_vector(size, winner) - unit_vector(size, rival)
                share = max(weight * float(p[winner] + p[rival]), LEAST_WEIGHT)
                measure_probit(evidence, direction, share)
        return 0

    def class_probabilities(self, outputs: OutputEvidence) -> FloatArray:
        """Return p with 1/p_k ~ sum_j Phi(-u_kj)/Phi(u_kj), the odds of every j against k.

        Here u_kj = (m_k - m_j)/sqrt(1/lambda^2 + Var(a_k - a_j)), and j = k is included. This is
        deterministic, equals the probit probability for two classes, and gives the class shares if
        the inputs are uninformative.
        """
        size = len(outputs.mean)
        inverse = np.ones(size)
        for k in range(size):
            for j in range(k):
                mean, var = outputs.project_moments(unit_vector(size, k) - unit_vector(size, j))
                u = mean / np.sqrt(PROBIT_VAR + var)
                log_odds = float(normal.log_cdf(-u) - normal.log_cdf(u))
                log_odds = min(max(log_odds, -LOG_ODDS_LIMIT), LOG_ODDS_LIMIT)
                inverse[k] += np.exp(log_odds)
                inverse[j] += np.exp(-log_odds)
        p = 1.0 / inverse
        return np.asarray(p / np.sum(p))


class SigmoidLikelihood(BinaryLikelihood):
    """The paper's two classes: S = Var z + noise, h = E z'(a), pull = h (y - E z)/S, gamma = h^2/S.

    Var z is exact, or the paper's, raised where it cannot be a variance (Config.printed_variance).
    """

    name, code = "sigmoid", 3
    prior_scale = 1.0
    output_activations = (ACTIVATIONS["sigmoid"],)

    def measure_label(
        self, evidence: OutputEvidence, label: float, weight: float, before: RowPrior
    ) -> int:
        direction = np.ones(1)
        mean, var = evidence.project_moments(direction)
        z = ACTIVATIONS["sigmoid"].moments(np.array([mean]), np.array([var]))
        printed = printed_sigmoid_var(z.mean, np.array([var]), z.cov)
        var_z, raised = printed if before.printed else (z.var, 0)
        h = float(z.cov[0]) / max(var, SMALLEST_VAR)
        total = max(float(var_z[0]) + before.fixed_noise, SMALLEST_VAR)
        pull = h * (label - float(z.mean[0])) / total
        measure_weighted(evidence, direction, var, pull, h * h / total, weight)
        return raised


LIKELIHOODS: dict[str, Likelihood] = {
    kind.name: kind
    for kind in (
        GaussianLikelihood(),
        BernoulliLikelihood(),
        CategoricalLikelihood(),
        SigmoidLikelihood(),
        CountLikelihood(),
        AmountLikelihood(),
    )
}


def find_likelihood(name: str) -> Likelihood:
    """Return a likelihood by name."""
    if name not in LIKELIHOODS:
        raise ValueError(f"unknown observation {name!r} (known: {', '.join(LIKELIHOODS)})")
    return LIKELIHOODS[name]
