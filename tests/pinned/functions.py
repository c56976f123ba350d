"""The formulas one by one, over all that they may be asked: tails, floors and caps among it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core import input_moments, layout, likelihoods, normal
from kbnn.core.activations import ACTIVATIONS, find_activation
from kbnn.core.config import Config
from kbnn.core.constants import CLASSES, REAL
from kbnn.core.likelihoods import LogRate, OutputEvidence, OutputMoments, Residual
from tests.pinned.record import Case, bells, table, uniform

FAR = np.array([-300.0, -45.0, -38.5, -30.0, -8.0, -3.0, -1.0, -0.2, 0.0, 0.3, 1.0, 2.5, 7.0, 39.0])


def normals() -> dict[str, Any]:
    """The normal distribution, far out too."""
    shares = np.array([0.0, 1e-305, 1e-200, 1e-9, 0.025, 0.3, 0.5])
    return {
        "cdf": table(normal.cdf(FAR)),
        "log_cdf": table(normal.log_cdf(FAR)),
        "pdf": table(normal.pdf(FAR)),
        "hazard": table(normal.hazard(FAR)),
        "excess": table(normal.expected_excess(FAR)),
        "quantile": table([normal.quantile(p) for p in (1e-9, 0.05, 0.5, 0.9)]),
        "scores": table(normal.lower_quantiles(shares)),
    }


def activations() -> dict[str, Any]:
    """Moments of every activation, from no variance at all to a large one."""
    mu, var = (
        part.ravel()
        for part in np.meshgrid(
            [-50.0, -6.0, -1.2, -0.1, 0.0, 0.4, 2.0, 30.0], [1e-12, 1e-3, 0.5, 4.0, 300.0]
        )
    )
    found: dict[str, Any] = {}
    for name in (*ACTIVATIONS, "max(0.1,2)"):
        one = find_activation(name)
        made = one.moments(mu, var)
        found |= {f"{name}.{part}": table(value) for part, value in made._asdict().items()}
        found[f"{name}.function"] = table(one.function(mu))
        found[f"{name}.code"] = table(one.code, one.alpha, one.beta, one.errors)
        if one.printed_var is not None:
            printed = one.printed_var(made.mean, var, made.cov)
            found[f"{name}.printed"] = table(printed.var, printed.raised)
    for name in ("relu", "step", "leaky_relu"):
        with np.errstate(over="ignore"):
            none = find_activation(name).moments(np.array([-2.0, 0.0, 3.0]), np.zeros(3))
        found |= {f"{name}.none.{part}": table(value) for part, value in none._asdict().items()}
    return found


def rates() -> dict[str, Any]:
    """Counts: rates, dispersion, posteriors, outliers."""
    said = [
        LogRate(mean, var)
        for mean in (-45.0, -3.0, 0.0, 1.2, 6.0, 39.0)
        for var in (1e-9, 0.3, 9.0)
    ]
    mild = [one for one in said if -4.0 < one.mean < 7.0]
    phis, ys = (1e-4, 0.1, 2.0, 50.0), (0.0, 1.0, 7.0, 300.0, 1e9)
    pairs = [likelihoods.count_moments(one, phi) for one in mild for phi in phis]
    return {
        "rate": table(
            *(
                likelihoods.make_log_rate(m, v)
                for m in (-90.0, -2.0, 3.0, 99.0)
                for v in (0, 2, 900)
            )
        ),
        "dispersion": table(
            *(likelihoods.count_dispersion((3.0, v)) for v in (-1.0, 1e-9, 0.5, 999.0))
        ),
        "moments": table(*(likelihoods.count_moments(one, phi) for one in said for phi in phis)),
        "posterior": table(
            *(
                likelihoods.log_rate_posterior(one, y, phi)
                for one in mild
                for y in ys
                for phi in phis[1:]
            )
        ),
        "posterior far": table(
            *(
                likelihoods.log_rate_posterior(LogRate(mean, var), y, phi)
                for mean in (-39.0, -12.0, 30.0)
                for var in (0.1, 19.0)
                for y in (0.0, 3.0, 1e6, 9e14)
                for phi in (1e-4, 1.0, 50.0)
            )
        ),
        "inlier": table(
            *(likelihoods.count_inlier_probability(y, *pair) for y in ys for pair in pairs[::3])
        ),
        "inlier.share": table(
            *(likelihoods.count_inlier_probability(6.0, *pair, 0.2) for pair in pairs)
        ),
        "wider": table(
            *(likelihoods.dispersion_slope(y, *pair) for y in ys[:4] for pair in pairs[::2])
        ),
        "digamma": table(*(likelihoods.digamma(x) for x in (1e-3, 0.5, 1.3, 7.9, 8.0, 8.1, 200.0))),
        "learned": table(
            *(
                likelihoods.learn_dispersion((4.0, 0.7), one, phi, y, share)
                for one in mild[::2]
                for phi in phis[1:3]
                for y in ys[:4]
                for share in (0.3, 2.5)
            )
        ),
        "reach": table(*(likelihoods.count_bound(*pair) for pair in pairs)),
        "surprise": table(
            *(likelihoods.count_surprise(y, *pair) for y in ys for pair in pairs[::4])
        ),
    }


def noises() -> dict[str, Any]:
    """The noise belief and its head."""
    residuals = [
        Residual(e, var, stated, trust, share)
        for e in (0.0, 0.4, -3.0, 1e4)
        for var, stated in ((0.0, 0.0), (0.3, 0.6), (50.0, 50.0))
        for trust, share in ((1.0, 1.0), (0.02, 0.1), (0.7, 5.0))
    ]
    head, cov = np.array([0.2, -0.4, 0.1]), np.diag([0.5, 0.3, 0.2]) + 0.05
    found: dict[str, Any] = {
        "inlier": table(
            *(likelihoods.residual_inlier_probability(e, 0.5) for e in (0.0, 1.0, -2.2, 9.0, 1e6))
        ),
        "trust": table(*(likelihoods.inlier_weight(p) for p in (0.0, 0.3, 1.0))),
        "level": table(
            *(
                np.append(*likelihoods.learn_level(np.array(ab), seen))
                for ab in ((1.0, 0.03), (40.0, 1e-14))
                for seen in residuals
            )
        ),
    }
    for name, scale, features in (
        ("usual", 1.0, np.array([1.0, 0.5, 2.0])),
        ("unsure", 20.0, np.array([1.0, -0.5, 2.0])),
        ("sure", 1e-14, np.array([1.0, 1.5, 1.0])),
        ("low", 1.0, np.array([-60.0, 2.0, 1.0])),
        ("high", 1.0, np.array([30.0, -20.0, 1.0])),
    ):
        now = likelihoods.forecast_noise(np.array([5.0, 0.6]), head, scale * cov, features)
        found[f"{name}.forecast"] = table(*now)
        found[f"{name}.head"] = table(
            *itertools.chain(
                *(likelihoods.learn_head(head, scale * cov, now, seen) for seen in residuals[::2])
            )
        )
    found["plain"] = table(
        *likelihoods.forecast_noise(np.array([5.0, 0.6]), None, None, np.ones(3))
    )
    return found


def surprises() -> dict[str, Any]:
    """When a stream has changed."""
    shares = ([0.5, 0.5], [0.999, 0.001], [1.0, 0.0], [0.2, 0.7, 0.1])
    found = {
        "classes": table(
            *(likelihoods.class_surprise(np.array(p), k) for p in shares for k in range(len(p)))
        ),
        "shortened": table(
            likelihoods.shorten_noise_memory(np.array([[4.0, 1.0], [40.0, 3.0], [10.0, 2.0]]))
        ),
        "detectors": table(*REAL, *CLASSES),
    }
    for name, detector in (("real", REAL), ("labels", CLASSES)):
        known, seen = np.zeros(1), []
        for surprise in (0.3, 9.0, 1.0, -5.0, *[3.0] * 16):
            seen += [float(likelihoods.update_detector(detector, known, surprise)), float(known[0])]
        found[name] = table(seen)
    return found


def measured() -> dict[str, Any]:
    """What labels say of outputs."""
    mean = np.array([0.4, -1.1, 0.2])
    cov = np.array([[0.9, 0.2, 0.1], [0.2, 0.7, -0.3], [0.1, -0.3, 1.4]])
    extra = np.array([0.0, 0.1, 0.3])
    found: dict[str, Any] = {}
    for weight in (0.01, 1.0, 6.0, 1e50):
        made = OutputEvidence(mean, cov, extra)
        likelihoods.measure_probit(made, np.array([1.0, -1.0, 0.0]), weight)
        likelihoods.measure_probit(made, np.array([0.0, -40.0, 9.0]), weight)
        likelihoods.measure_weighted(made, np.array([0.0, 0.0, 1.0]), 1.7, 0.5, 0.4, weight)
        likelihoods.measure_weighted(made, np.array([1.0, 0.0, 0.0]), 9.0, 0.5, 0.4, weight)
        likelihoods.measure_real(made, 1, 2.0, 0.05)
        found[f"weight {weight:g}"] = table(made.mean, made.cov, made.pull, made.root_information)
    sunk = OutputEvidence(mean, 0.0 * cov, 0.0 * extra)
    likelihoods.measure_real(sunk, 0, 1.0, 0.0)
    found["certain"] = table(sunk.mean, sunk.pull, sunk.root_information)
    found["moments"] = table(
        *OutputEvidence(mean, -cov, extra).project_moments(np.array([1.0, 2.0, 0.0]))
    )
    outputs = OutputMoments(mean, np.diag([0.5, -1e-9, 2.0]), extra, np.ones(2))
    found["outputs"] = table(outputs.var, outputs.inflated_var(1.7))
    found["present"] = table(
        likelihoods.presence_probability(
            np.array([-9.0, -0.3, 0.0, 1.0, 40.0]), np.array([0.0, 1, 2, 3, 4.0])
        )
    )
    for name, kind in likelihoods.LIKELIHOODS.items():
        size = 3 if kind.supports_many_outputs and not kind.has_none else 1
        for scale in (1.0, 40.0):
            said = OutputEvidence(scale * mean[:size], cov[:size, :size], extra[:size])
            found[f"{name} {scale:g}"] = table(
                kind.class_probabilities(said), kind.class_count(size)
            )
        labels = [[v] * kind.label_count(2) for v in (-1.0, 0.0, 0.5, 1.0, 2.0, 2.0**53, 2.0**54)]
        found[f"{name}.facts"] = table(
            kind.code,
            kind.has_noise,
            kind.initial_noise,
            kind.supports_noise_head,
            kind.has_signed_noise,
            kind.supports_many_outputs,
            kind.has_none,
            kind.prior_scale,
            [kind.label_count(n) for n in (1, 2, 4)],
            [kind.can_learn(np.array(label), 2) for label in labels],
        )
    return found


def given() -> dict[str, Any]:
    """Missing and noisy inputs."""
    root = bells(4, 4, 5)
    mu, sigma = np.array([0.2, -0.4, 0.0, 1.0]), root @ root.T / 4.0 + 0.1 * np.eye(4)
    rows = {
        "exact": ([0.3, 1.0, -2.0, 0.5], [0.0, 0.0, 0.0, 0.0]),
        "missing": ([np.nan, 1.0, np.nan, 0.5], [0.0, 0.0, 0.0, 0.0]),
        "noisy": ([0.3, 1.0, -2.0, 0.5], [0.2, 0.0, np.inf, 3.0]),
        "both": ([0.3, np.nan, -2.0, 0.5], [0.2, 0.5, 0.0, 1e-13]),
        "none": ([np.nan] * 4, [0.0] * 4),
    }
    found: dict[str, Any] = {}
    for scale in (1.0, 1e-13):
        for name, (x, x_var) in rows.items():
            made = input_moments.condition_inputs(mu, scale * sigma, np.array(x), np.array(x_var))
            found[f"{name} {scale:g}"] = np.append(made.mean, made.var / scale)
            for count in (0, 5):
                known, spread = mu.copy(), sigma.copy()
                input_moments.update_input_moments(known, spread, count, made)
                found[f"{name} {scale:g} absorbed {count}"] = np.append(known, spread)
    view = np.column_stack(
        (np.array([1.0, 2.0, 0.5, 1.0]), np.array([0.0, 0.3, -1.0, 0.0]), _frame(4, 2))
    )
    spread = np.concatenate(([1.2, 0.3, 0.7], [0.4, 1e-8, 0.9, 0.2]))
    for name, (x, x_var) in rows.items():
        seen = input_moments.condition_wide_inputs(view, mu, spread, np.array(x), np.array(x_var))
        found[f"wide {name}"] = np.concatenate(seen)
        known, now = mu.copy(), spread.copy()
        input_moments.update_wide_inputs(view, known, now, 3, seen)
        found[f"wide {name} absorbed"] = np.append(known, now)
    made = bells(30, 6, 3) * np.array([3.0, 2.0, 1.4, 0.9, 0.5, 0.1])
    made[4, 2], made[9, 1] = np.nan, 50.0
    found["leading"] = input_moments.leading_directions(made, 3)
    found["leading within"] = input_moments.leading_directions(made, 2, 1.5)
    found["leading few"] = input_moments.leading_directions(made[:3], 5)
    found["strayed"] = table(
        *(
            input_moments.is_view_outdated(np.array([[gain, shift, 1.0]]))
            for gain, shift in ((1.0, 0.0), (7.9, 7.9), (8.1, 0.0), (0.124, 0.0), (1.0, -8.1))
        )
    )
    return found


def _frame(rows: int, columns: int) -> FloatArray:
    return np.asarray(np.linalg.qr(bells(rows, columns, 2))[0])


def layouts() -> dict[str, Any]:
    """Which weights are together, and where."""
    found: dict[str, Any] = {}
    kinds: dict[str, dict[str, Any]] = {
        "paper": {"covariance": "paper"},
        "group": {"hidden": (23, 4)},
        "groups": {"hidden": (5,), "outputs": 3, "group_size": 2},
        "full": {"covariance": "full"},
        "wide": {"covariance": "wide", "directions": 2},
        "wide none": {"covariance": "wide", "directions": 2, "hidden": (), "outputs": 2},
        "wide default": {"covariance": "wide", "inputs": 20},
        "many": {"inputs": 60},
    }
    for name, options in kinds.items():
        config = Config(**{"inputs": 3, "hidden": (4,), **options})
        made = layout.layout_of(config)
        found[name] = np.concatenate(
            (
                *made.block_positions,
                made.block_offsets,
                made.variance_positions,
                made.loose_positions.ravel(),
            )
        )
        found[f"{name}.sizes"] = table(
            made.size, made.layers, made.joint, config.weights, config.variance_floor
        )
    found["groups of"] = table(
        *(
            np.ravel(layout.group_bounds(units, size, each))
            for units, size, each in ((50, None, 4), (50, None, 30), (7, 3, 9), (10, None, 400))
        )
    )
    for size in (3, 24, 25, 60):
        root = np.tril(uniform(size, size, 2)) + 2.0 * np.eye(size)
        found[f"inverse {size}"] = layout.invert_spd(root @ root.T)
    found["none"] = table(float(layout.invert_spd(np.diag([1.0, -1.0])) is None))
    return found


def cases() -> dict[str, Case]:
    """All of them: they are the twin's, whoever serves."""
    return {
        "normal": Case(normals),
        "activations": Case(activations),
        "counts": Case(rates),
        "noise": Case(noises),
        "drift": Case(surprises),
        "evidence": Case(measured),
        "inputs": Case(given),
        "layout": Case(layouts),
    }
