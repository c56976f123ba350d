"""Evidence in output space: what each kind of label does, and that no label breaks a covariance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from kbnn.array_types import FloatArray
from kbnn.core.activations import ACTIVATIONS
from kbnn.core.likelihoods import LIKELIHOODS, OutputEvidence, OutputMoments, RowPrior, measure_real
from tests.gauss import rule


def correlated(rng: np.random.Generator, size: int, scale: float = 1.0) -> FloatArray:
    """A covariance whose entries are all far from zero."""
    common = rng.standard_normal((size, 1))
    root = 0.3 * rng.standard_normal((size, size))
    return np.asarray(scale * (common @ common.T + root @ root.T + 1e-3 * np.eye(size)))


def real(outputs: OutputEvidence, target: FloatArray, noise_var: FloatArray) -> None:
    """Real labels of the outputs whose noise is finite."""
    for o in np.flatnonzero(np.isfinite(noise_var)):
        measure_real(outputs, int(o), float(target[o]), float(noise_var[o]))


def labelled(
    kind: str, measured: OutputEvidence, label: float, weight: float, noise: float = 0.0
) -> OutputEvidence:
    """The outputs after a class label."""
    size = len(measured.mean)
    out = OutputMoments(measured.mean, measured.cov, measured.extra_var, np.ones(1))
    before = RowPrior(out, 1.0, [], np.zeros((size, 2)), [], noise, 0.0, False)
    return LIKELIHOODS[kind].observe_label(before, np.array([label]), weight).evidence


def test_real_labels_are_the_joint_kalman_update() -> None:
    rng = np.random.default_rng(0)
    mean, cov, noise = rng.standard_normal(3), correlated(rng, 3), np.array([0.1, 0.5, 0.02])
    target = rng.standard_normal(3)
    outputs = OutputEvidence(mean, cov, np.zeros(3))
    real(outputs, target, noise)
    gain = cov @ np.linalg.inv(cov + np.diag(noise))
    assert np.allclose(outputs.mean, mean + gain @ (target - mean), atol=1e-12)
    assert np.allclose(outputs.cov, cov - gain @ cov, atol=1e-12)


def test_an_unobserved_output_still_learns_from_the_others() -> None:
    cov = np.array([[1.0, 0.8], [0.8, 1.0]])
    outputs = OutputEvidence(np.zeros(2), cov, np.zeros(2))
    real(outputs, np.array([1.0, 99.0]), np.array([0.5, np.inf]))
    assert outputs.mean == pytest.approx([1.0 / 1.5, 0.8 / 1.5])


def test_the_evidence_reproduces_the_moments() -> None:
    """w += G b and P -= (G B)(G B)' with G = cov gives the outputs' own posterior."""
    rng = np.random.default_rng(1)
    mean, cov = rng.standard_normal(4), correlated(rng, 4)
    outputs = OutputEvidence(mean, cov, np.zeros(4))
    outputs = labelled("categorical", outputs, 2.0, 1.0)
    assert np.allclose(mean + cov @ outputs.pull, outputs.mean, atol=1e-12)
    step = cov @ outputs.root_information
    assert np.allclose(cov - step @ step.T, outputs.cov, atol=1e-12)


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_several_outputs_keep_the_weights_positive_definite(kind: str) -> None:
    """Changes computed beforehand and applied in turn break most of these beliefs."""
    rng = np.random.default_rng(2)
    for _ in range(300):
        outputs = int(rng.integers(2, 6))
        jacobian = rng.standard_normal((outputs, 8)) + 2.0 * rng.standard_normal(8)
        cov_w = correlated(rng, 8, 10.0 ** rng.uniform(-3, 3))
        cov_out = jacobian @ cov_w @ jacobian.T
        measured = OutputEvidence(rng.standard_normal(outputs), cov_out, np.zeros(outputs))
        if kind == "gaussian":
            real(measured, 3.0 * rng.standard_normal(outputs), np.full(outputs, 1e-2))
        else:
            measured = labelled(kind, measured, int(rng.integers(outputs)), 1.0)
        step = cov_w @ jacobian.T @ measured.root_information
        least = np.linalg.eigvalsh(cov_w - step @ step.T)[0]
        assert least > -1e-12 * np.trace(cov_w)


@pytest.mark.parametrize(("mean", "var"), [(0.3, 0.5), (-4.0, 2.0), (6.0, 30.0), (-12.0, 1.0)])
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_a_class_label_matches_the_exact_posterior(mean: float, var: float, label: float) -> None:
    s, sign = np.sqrt(var), 2.0 * label - 1.0
    t, weights = rule(0.0, 1.0)
    # A common factor of the likelihood drops out: take it off before it underflows.
    log_likelihood = special.log_ndtr(sign * np.sqrt(np.pi / 8.0) * (mean + s * t))
    mass = weights * np.exp(log_likelihood - np.max(log_likelihood))
    mass /= np.sum(mass)
    first = float(mass @ t)
    outputs = OutputEvidence(np.array([mean]), np.array([[var]]), np.zeros(1))
    outputs = labelled("bernoulli", outputs, label, 1.0)
    assert outputs.mean[0] == pytest.approx(mean + s * first, rel=1e-9, abs=1e-9)
    assert outputs.cov[0, 0] == pytest.approx(var * float(mass @ (t - first) ** 2), rel=1e-9)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_a_label_among_many_tells_of_two_as_often_as_it_is_one_of_them(size: int) -> None:
    """K labels, one of each class, inform of a_0 - a_1 as the two among them would alone."""
    cov, direction = 1e-9 * np.eye(size), np.zeros(size)
    direction[:2] = 1.0, -1.0
    told, pull = 0.0, np.zeros(size)
    for label in range(size):
        outputs = labelled(
            "categorical", OutputEvidence(np.zeros(size), cov, np.zeros(size)), label, 1.0
        )
        told += float(np.sum((outputs.root_information.T @ direction) ** 2))
        pull += outputs.pull
    alone = 2.0 * 4.0 * (2.0 / np.pi) / (8.0 / np.pi)  # rho(0)^2 = 2/pi, along e_0 - e_1
    assert told == pytest.approx(alone, rel=1e-6)
    assert np.allclose(pull, 0.0, atol=1e-6)


def test_a_row_that_counts_n_times_equals_its_gaussian_site_n_times() -> None:
    outputs = OutputEvidence(np.array([0.5]), np.array([[2.0]]), np.zeros(1))
    outputs = labelled("bernoulli", outputs, 1.0, 1.0)
    precision = 1.0 / outputs.cov[0, 0] - 0.5
    shift = outputs.mean[0] / outputs.cov[0, 0] - 0.25
    thrice = OutputEvidence(np.array([0.5]), np.array([[2.0]]), np.zeros(1))
    thrice = labelled("bernoulli", thrice, 1.0, 3.0)
    var = 1.0 / (0.5 + 3.0 * precision)
    assert thrice.cov[0, 0] == pytest.approx(var)
    assert thrice.mean[0] == pytest.approx(var * (0.25 + 3.0 * shift))


def test_a_gaussian_label_on_a_sigmoid_smooths_through_its_moments() -> None:
    mean, var, noise = 0.4, 1.5, 0.05
    z = ACTIVATIONS["sigmoid"].moments(np.array([mean]), np.array([var]))
    total = float(z.var[0]) + noise
    outputs = OutputEvidence(np.array([mean]), np.array([[var]]), np.zeros(1))
    outputs = labelled("sigmoid", outputs, 1.0, 1.0, noise)
    assert outputs.mean[0] == pytest.approx(mean + float(z.cov[0]) * (1 - float(z.mean[0])) / total)
    assert outputs.cov[0, 0] == pytest.approx(var - float(z.cov[0]) ** 2 / total)
