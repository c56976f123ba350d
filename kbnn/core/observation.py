"""What a label is: one object per kind, which owns everything that depends on it.

    gaussian     a real target with Gaussian noise, one per output
    bernoulli    one output, labels 0 and 1: the sign of a seen through Phi(lambda a)
    categorical  one output per class, the label is the index of the class: "c beats k" for every
                 rival k in order, a probit measurement of a_c - a_k that counts p_c + p_k times
    count        counts with a log link, see kbnn.core.counts, one per output
    amount       a real target that may be none at all, -inf: as gaussian where there is one, and
                 for each target a second output, a probit measurement of whether there is
    sigmoid      the paper's way: a Gaussian label 0 or 1 on z = sigmoid(a)

A kind is added here and in csrc/observe.h, and nowhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from kbnn.core import counts, drift, noise, normal
from kbnn.core.activations import ACTIVATIONS, Activation, printed_sigmoid_var
from kbnn.core.constants import (
    CLASSES,
    COUNT_RATE,
    LARGEST_COUNT,
    LEAST_WEIGHT,
    LOG_ODDS_LIMIT,
    PRESENCE_RATE,
    PROBIT_VAR,
    REAL,
    RESIDUAL_BOUND,
    SMALLEST_VAR,
    SURPRISE_CAP,
    DriftDetector,
)
from kbnn.core.evidence import (
    OutputEvidence,
    OutputMoments,
    measure_probit,
    measure_real,
    measure_weighted,
    unit_vector,
)
from kbnn.core.noise import NoiseForecast
from kbnn.core.normal import FloatArray

CLASS_PRIOR_SCALE = 25.0
"""Class outputs have this many times the prior variance: probabilities near 0 and 1 are common."""

NoiseHeads = list[tuple[FloatArray, FloatArray]]


class RowPrior(NamedTuple):
    """What is believed of a row before its label is looked at."""

    outputs: OutputMoments
    variance_inflation: float  # what repeated passes ask for, see kbnn.core.belief
    forecasts: list[NoiseForecast]  # empty where the noise is not learned
    noise: FloatArray
    heads: NoiseHeads
    fixed_noise: float  # the variance of labels where it is not learned
    least_noise: float  # the least share of an output's variance that counts as noise
    robust: bool
    printed: bool = False  # a sigmoid output's variance is the one the paper prints

    @property
    def inflated_outputs(self) -> OutputEvidence:
        """The outputs as predictions state them: the function's covariance kappa times."""
        out = self.outputs
        return OutputEvidence(out.mean, self.variance_inflation * out.cov, out.input_var)


class LabelUpdate(NamedTuple):
    """What a label asks of the belief: evidence, and the noise belief that goes with it."""

    evidence: OutputEvidence
    noise: FloatArray
    heads: NoiseHeads
    inlier: float = 1.0
    surprise: float = 0.0
    raised: int = 0  # variances that the paper's formula puts too low


class Likelihood(ABC):
    """A kind of label."""

    name: str
    code: int  # in the enum of csrc/observe.h
    detector: DriftDetector = REAL
    has_noise = False  # whether its noise can be learned
    initial_noise = (1.0, 0.03)  # its two numbers before the first row
    supports_noise_head = False  # on the input, if that is wanted
    has_signed_noise = False  # whether the second may be negative
    supports_many_outputs = False
    has_none = False  # whether -inf is a label: none at all
    prior_scale = 1.0  # of the output weights' variances
    output_activations: tuple[Activation, ...] = ()  # what an output passes before it is compared
    supports_growth = False  # whether outputs can be added while it runs

    def label_count(self, outputs: int) -> int:
        """Numbers in a row's label."""
        return 1

    def class_count(self, outputs: int) -> int:
        """Classes whose probabilities are predicted."""
        return 0

    def can_learn(self, label: FloatArray, outputs: int) -> bool:
        """Whether finite numbers can be a label."""
        return not self.class_count(outputs) or bool(0 <= label[0] < self.class_count(outputs))

    def class_probabilities(self, outputs: OutputEvidence) -> FloatArray:
        """Of each class."""
        return np.zeros(0)

    @abstractmethod
    def observe_label(self, before: RowPrior, label: FloatArray, weight: float) -> LabelUpdate:
        """What a label that counts `weight` times asks of the belief."""


class GaussianLikelihood(Likelihood):
    """Robust weight, bounded residual and noise belief, one output after another."""

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
                p = noise.residual_inlier_probability(e, spread)
                inlier, trust = min(inlier, p), noise.inlier_weight(p)
            surprise += (min(e * e / spread, SURPRISE_CAP) - 1.0) / 2.0 / len(seen)
            if before.robust or before.forecasts:
                bound = RESIDUAL_BOUND * np.sqrt(spread)
                e = float(np.clip(e, -bound, bound))
            share = trust * weight
            if before.forecasts:
                residual = noise.Residual(e, float(out.var[o]), float(stated[o]), trust, share)
                learned[o], level = noise.learn_level(before.noise[o], residual)
                if heads:
                    heads[o] = noise.learn_head(*heads[o], before.forecasts[o], residual)
            targets.append((o, float(out.mean[o] + e), level / share))
        for o, target, noise_var in targets:
            least = before.least_noise * float(evidence.cov[o, o])
            measure_real(evidence, o, target, max(noise_var, least))
        return LabelUpdate(evidence, learned, heads, inlier, surprise)


class AmountLikelihood(GaussianLikelihood):
    """Outputs are the amounts of all targets, then whether there is any: P = Phi(lambda rate a).

    That there is none says nothing of how much it would be.
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
            surprise += drift.class_surprise(np.array(p), 0)
            parts += 1
            direction = sign * PRESENCE_RATE * unit_vector(len(out.mean), o)
            measure_probit(amounts.evidence, direction, weight)
        return amounts._replace(surprise=surprise / parts if parts else 0.0)


def presence_probability(mean: FloatArray, var: FloatArray) -> FloatArray:
    """The probability that there is an amount, of an output of that mean and variance."""
    u = PRESENCE_RATE * mean / np.sqrt(PROBIT_VAR + PRESENCE_RATE**2 * var)
    return np.asarray(np.exp(normal.log_cdf(u)))


class CountLikelihood(Likelihood):
    """Counts, one output after another; what is learned as its noise is the dispersion's sums."""

    name, code = "count", 4
    has_noise = has_signed_noise = supports_many_outputs = True
    initial_noise = (2.0, 0.2)

    def label_count(self, outputs: int) -> int:
        return outputs

    def can_learn(self, label: FloatArray, outputs: int) -> bool:
        """Whole numbers from 0 on; one that was not seen is NaN."""
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
            phi = counts.count_dispersion(sums)
            said = counts.make_log_rate(float(out.mean[o]), float(stated[o]))
            mu, inverse = counts.count_moments(said, phi)
            trust = 1.0
            if before.robust:
                p = counts.count_inlier_probability(y, mu, inverse)
                inlier, trust = min(inlier, p), noise.inlier_weight(p)
            square = counts.count_surprise(y, mu, inverse)
            surprise += (min(square, SURPRISE_CAP) - 1.0) / 2.0 / len(seen)
            learned[o] = counts.learn_dispersion(sums, said, phi, y, trust * weight)
            if before.robust:
                y = min(y, counts.count_bound(mu, inverse))
            direction = unit_vector(len(out.mean), o)
            mean, var = evidence.project_moments(direction)
            now = counts.make_log_rate(mean, var)
            after = counts.log_rate_posterior(now, y, phi)
            pull = COUNT_RATE * (after.mean - now.mean) / now.var
            information = COUNT_RATE**2 * (now.var - after.var) / now.var**2
            # The rate's variance was clipped: a Gaussian site of that information, seen through
            # the whole variance, pulls and tells less. Without this more than all the variance
            # there is would be taken away.
            clipped = var - now.var / COUNT_RATE**2
            if clipped > 0.0:
                part_kept = 1.0 / (1.0 + information * clipped)
                pull, information = pull * part_kept, information * part_kept
            measure_weighted(evidence, direction, var, pull, information, trust * weight)
        return LabelUpdate(evidence, learned, list(before.heads), inlier, surprise)


class ClassLikelihood(Likelihood):
    """What the kinds of class labels share."""

    detector = CLASSES
    prior_scale = CLASS_PRIOR_SCALE

    def class_index(self, label: float) -> int:
        """The class that a number stands for."""
        return int(label)

    @abstractmethod
    def measure_label(
        self, evidence: OutputEvidence, label: float, weight: float, before: RowPrior
    ) -> int:
        """Measure the outputs by a label; how many variances had to be raised."""

    def observe_label(self, before: RowPrior, label: FloatArray, weight: float) -> LabelUpdate:
        out, given = before.outputs, float(label[0])
        surprise = drift.class_surprise(
            self.class_probabilities(before.inflated_outputs), self.class_index(given)
        )
        evidence = OutputEvidence(out.mean, out.cov, out.input_var)
        raised = self.measure_label(evidence, given, weight, before)
        return LabelUpdate(evidence, before.noise, [], surprise=surprise, raised=raised)


class BinaryLikelihood(ClassLikelihood):
    """p(1|a) = Phi(lambda a), the label 0 or 1."""

    def class_count(self, outputs: int) -> int:
        return 2

    def class_index(self, label: float) -> int:
        return int(label > 0.5)

    def class_probabilities(self, outputs: OutputEvidence) -> FloatArray:
        """P(0) and P(1) = Phi(mean / sqrt(1/lambda^2 + var))."""
        mean, var = outputs.project_moments(np.ones(1))
        u = mean / np.sqrt(PROBIT_VAR + var)
        return np.exp(normal.log_cdf(np.array([-u, u])))


class BernoulliLikelihood(BinaryLikelihood):
    """The sign of a seen through Phi, its moments matched."""

    name, code = "bernoulli", 1

    def measure_label(
        self, evidence: OutputEvidence, label: float, weight: float, before: RowPrior
    ) -> int:
        measure_probit(evidence, np.array([1.0 if self.class_index(label) else -1.0]), weight)
        return 0


class CategoricalLikelihood(ClassLikelihood):
    """The class beats every rival, one probit measurement after another.

    Of a pair, Phi is the probability of the one if it is one of the two. A label c says so of every
    pair (c, k), and counts there p_c + p_k times, which is how likely the row was to be one of the
    two: pull and expected information are then those of one label with the probabilities below, in
    logistic terms e_c - p and diag(p) - p p', and not those of as many labels as there are rivals.
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
        """1/p_k ~ sum_j Phi(-u_kj)/Phi(u_kj), u_kj = (m_k - m_j)/sqrt(1/lambda^2 + Var(a_k - a_j)).

        The odds of every j against k, itself among them. Deterministic, for two classes exactly the
        probit probability, and the shares of the classes where nothing else can be told.
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
    """S = Var z + noise, h = E z'(a): pull = h (y - E z)/S, gamma = h^2/S.

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
    """A kind of label by name."""
    if name not in LIKELIHOODS:
        raise ValueError(f"unknown observation {name!r} (known: {', '.join(LIKELIHOODS)})")
    return LIKELIHOODS[name]
