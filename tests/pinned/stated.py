"""What is stated of targets: mixtures and their intervals, tails that follow, counts, sharpness."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.distributions import calibration, categorical, normal_mixture, predictive
from kbnn.distributions.normal_mixture import NormalMixture
from kbnn.distributions.predictive import PARAM, PARAM_COUNT
from tests.pinned.record import Case, bells, table, uniform


def rows(count: int = 24) -> FloatArray:
    """What may be stated: no outliers, few and many, near and far, narrow and wide; gains."""
    made = np.zeros((count, PARAM_COUNT))
    k = np.arange(count)
    made[:, PARAM.place] = 2.0 * bells(count, 1, 1)[:, 0]
    made[:, PARAM.spread] = 0.3 + uniform(count, 1, 2)[:, 0]
    made[:, PARAM.share] = np.choose(k % 4, [0.0, 0.003, 0.06, 0.4])
    made[:, PARAM.ratio] = np.choose(k % 3, [4.0, 50.0, 1e4])
    made[:, PARAM.shift] = np.choose(k % 5, [0.0, 0.5, -3.0, 20.0, -0.1])
    made[:, PARAM.gain : PARAM.most] = 0.6 + uniform(count, predictive.GAIN_COUNT, 3)
    made[:, PARAM.most] = 5.0
    return made


def mixtures() -> dict[str, Any]:
    """Quantiles, intervals, densities and judgement."""
    told = rows()
    y = told[:, PARAM.place] + told[:, PARAM.spread] * 3.0 * bells(len(told), 1, 4)[:, 0]
    y[3:9] = [0.0, 1.0, -2.0, 60.0, 1e12, -1e200]
    near = np.clip(y, -8.0, 8.0)
    found: dict[str, Any] = {
        f"quantile {share:g}": NormalMixture(told).quantile(share)
        for share in (0.001, 0.05, 0.3, 0.5, 0.75, 0.975)
    }
    for share in (0.3, 0.5, 0.7, 0.8, 0.9, 0.93, 0.95, 0.99):
        found[f"interval {share:g}"] = np.column_stack(NormalMixture(told).interval(share))
    shares = 0.02 + 0.96 * uniform(len(told), 1, 5)[:, 0]
    shares[:3] = [1e-300, 1e-12, 0.5]
    found["quantiles"] = normal_mixture.row_quantiles(told, shares, 1.0 - shares)
    found["quantiles far"] = normal_mixture.row_quantiles(told, 1.0 - shares, shares)
    found |= {
        f"judged {name}": part
        for name, part in NormalMixture(told).score_values(y)._asdict().items()
    }
    small = NormalMixture(told).score_values(near)
    found |= {f"judged near {name}": part for name, part in small._asdict().items()}
    found["possible"] = NormalMixture.is_possible(np.array([1.0, np.nan, np.inf])) * 1.0
    for finest in (1.0, 0.01):
        found[f"density {finest:g}"] = NormalMixture(told).log_density(y, finest)
    found["fine"] = NormalMixture(told).log_density(near + 0.25)
    found["pdf"] = normal_mixture.log_pdf(near, told)
    found["cdf"] = table(normal_mixture.cdf(near, told))
    found["between"] = normal_mixture.log_between(near - 0.7, near + 0.4, told)
    found["between far"] = normal_mixture.log_between(near + 90.0, near + 91.0, told)
    found["between below"] = normal_mixture.log_between(near - 91.0, near - 90.0, told)
    shape = (0.1, 30.0, -2.0)
    found["parts"] = table(
        normal_mixture.mixture_median(shape),
        normal_mixture.mixture_median((0.0, 1.0, 0.0)),
        [
            normal_mixture.tail_probability(shape, t, side)
            for t in (-9.0, 0.4, 7.0)
            for side in (1.0, -1.0)
        ],
        np.ravel(
            [normal_mixture.interpolate_gains(told[:3], half) for half in (0.2, 0.7, 1.0, 1.7, 3.0)]
        ),
    )
    found["none"] = np.array([len(NormalMixture(told[:0]).quantile(0.5))])
    return found


def followed(kind: str, mix: bool, track: bool) -> dict[str, Any]:
    """Tails that follow a stream: what they state on the way, and what they know then."""
    count = 60
    wild = bells(count, 2, 6)
    mean, sd = 0.3 * bells(count, 2, 7), 0.5 + uniform(count, 2, 8)
    if kind == "heavy":
        wild = np.where(uniform(count, 2, 9) < 0.15, 9.0 * wild + 4.0, wild)
    elif kind == "exact":
        wild = 0.02 * wild
    elif kind == "wild":
        wild = np.where(uniform(count, 2, 9) < 0.2, 1e6 * wild, 4.0 * wild)
    y = mean + sd * wild
    y[5, 0] = y[9, 1] = np.nan
    known = calibration.init_calibration(2)
    found: dict[str, Any] = {}
    made = calibration.update_calibration(known, mean, sd, y, mix, track)
    found["stated"] = made.reshape(-1, PARAM_COUNT)
    found["known"] = known.copy()
    # As after many rows: memories are full, and what is stated is looked at seldom.
    known[:, calibration.ROWS_SEEN] = [509.0, 5000.0]
    known[:, calibration.OUTLIER_ROWS] = 998.0
    known[:, calibration.EXTREMES] = 99.5
    known[:, calibration.LINK_UNIT] = [0.0, 0.4]
    made = calibration.update_calibration(known, mean, sd, y, mix, track)
    found["stated then"] = made.reshape(-1, PARAM_COUNT)
    found["known then"] = known.copy()
    said = (mean, 0.3 * sd**2, 0.5 * sd**2, np.array([2.0, -1.0]), np.array([3.0, 0.5]))
    y = said[3] + said[4] * y
    said[1][4], said[2][4] = 0.0, 0.0
    for name, truth in (("at rest", None), ("learning", y)):
        told = calibration.calibrate_outputs(known, said, truth, mix, track)
        found |= {
            f"{name} {part}": value.reshape(-1, value.shape[-1])
            for part, value in told._asdict().items()
        }
    found["known at last"] = known
    if kind == "usual":
        found["again"] = calibration.reset_scale_and_gains(known)
        found["again blank"] = calibration.reset_scale_and_gains(calibration.init_calibration(1))
        squares, more = (wild[:8]) ** 2, np.linspace(1.0, 2.0, 8)
        squares[2] = np.nan
        found["narrowed"] = calibration.shrink_scale(known, squares, more)
        found["narrowed blank"] = calibration.shrink_scale(
            calibration.init_calibration(2, False), 0.1 * squares, more
        )
        found["stated at rest"] = calibration.apply_calibration(known, mean[:4], sd[:4]).reshape(
            -1, PARAM_COUNT
        )
    return found


def bounds() -> dict[str, Any]:
    """Widths, gains, shares and ratios at their bounds."""
    found: dict[str, Any] = {}
    one, zero = np.ones((12, 1)), np.zeros((12, 1))
    for name, field, value, y in (
        ("least width", calibration.SCALE_FACTOR, 0.011, 0.0),
        ("most width", calibration.SCALE_FACTOR, 99.0, 40.0),
        ("least gain", slice(calibration.FIRST_GAIN, calibration.FIRST_MEAN), 0.0499, 0.0),
        ("most gain", slice(calibration.FIRST_GAIN, calibration.FIRST_MEAN), 148.3, 1e4),
        ("least ratio", calibration.SQUARES, 0.01, 0.1),
        ("most ratio", calibration.SQUARES, 1e15, 0.1),
        ("least share", calibration.OUTLIERS, 1e-9, 0.1),
        ("far", calibration.MEAN, 3.0, 1e7),
    ):
        known = calibration.init_calibration(1)
        known[0, calibration.ROWS_SEEN] = 1e5
        known[0, field] = value
        found[name] = calibration.update_calibration(known, zero, one, zero + y, True, True)[:, 0]
        found[f"{name} known"] = known
    known = calibration.init_calibration(3)
    broken = []
    for field, value in (
        (calibration.SCALE_FACTOR, 0.0),
        (calibration.OUTLIERS, -1.0),
        (calibration.SHARE, 1.0),
        (calibration.FIRST_GAIN, 1e3),
        (calibration.VALUE_VAR, -1.0),
        (calibration.LARGEST_VALUE, np.inf),
        (calibration.LINK_UNIT, -1.0),
        (calibration.MEAN, 1e13),
    ):
        wrong = known.copy()
        wrong[1, field] = value
        broken.append(calibration.is_valid_calibration(wrong))
    found["sound"] = table(calibration.is_valid_calibration(known), *broken)
    return found


def counted() -> dict[str, Any]:
    """What is stated of counts."""
    count = 48
    found: dict[str, Any] = {}
    mu, inverse = 0.2 + 6.0 * uniform(count, 1, 1)[:, 0], 0.05 + uniform(count, 1, 2)[:, 0]
    y = np.floor(2.0 * mu * uniform(count, 1, 3)[:, 0])
    y[[5, 20]] = [80.0, 1e6]
    y[8] = np.nan
    for name, seen, width in (
        ("young", 0.0, 1.0),
        ("old", 5000.0, 0.0101),
        ("wide", 300.0, 99.9),
    ):
        for track in (True, False):
            known = calibration.init_count_calibration(1, True)[0]
            known[calibration.ROWS_SEEN], known[calibration.SCALE_FACTOR] = seen, width
            made = np.zeros((count, PARAM_COUNT))
            made[:, PARAM.place], made[:, PARAM.spread] = mu, inverse
            calibration.update_count_mixture(known, y, made)
            none = np.where(np.arange(count) % 3 == 0, 0.4, 0.01)
            u = uniform(count, 1, 5)[:, 0]
            calibration.update_count_intervals(known, y, u, none, track, made)
            found[f"{name} {track}"], found[f"{name} {track} known"] = made, known[None]
    known = calibration.init_count_calibration(1, True)[0]
    known[calibration.OUTLIERS] = known[calibration.SHARE] = 1e-9
    made = np.zeros((6, PARAM_COUNT))
    made[:, PARAM.place], made[:, PARAM.spread] = 40.0, 0.02
    calibration.update_count_mixture(known, np.array([95.0, 110.0, 40.0, 120.0, 5.0, 90.0]), made)
    found["moved"], found["moved known"] = made, known[None]
    found["begun"] = calibration.init_count_calibration(2, False)
    return found


def sharp() -> dict[str, Any]:
    """What is stated of classes."""
    count = 50
    found: dict[str, Any] = {}
    raw = uniform(count, 3, 1) ** 4 + 1e-9
    raw[7] = [1.0, 0.0, 0.0]
    p = raw / np.sum(raw, axis=1, keepdims=True)
    label = np.floor(3.0 * uniform(count, 1, 2)[:, 0])
    best = np.where(uniform(count, 1, 3)[:, 0] < 0.6, np.argmax(p, axis=1), label)
    p[11] = np.nan
    weight = np.where(np.arange(count) % 4 == 0, 2.5, 1.0)
    weight[30] = 400.0
    best[17], best[18] = np.nan, 3.0
    for name, labels, weights in (
        ("sharp", best, None),
        ("blurred", label, None),
        ("weighted", best, weight),
    ):
        known = categorical.init_temperature(np.array([0.0, 0.0, 1.0, np.nan]), 3)
        found[name] = categorical.apply_temperature(known, p, labels, weights)
        found[f"{name} known"] = known[None].copy()
        known[categorical.EVIDENCE_ROWS] = 250.0
        found[f"{name} then"] = categorical.apply_temperature(known, p, labels, weights)
        found[f"{name} at rest"] = categorical.apply_temperature(known, p)
        found[f"{name} weights"] = table(
            categorical.power_weights(known), categorical.inverse_temperature(known)
        )
        found[f"{name} known then"] = known[None]
    more = categorical.extend_classes(known, 5)
    found["grown"] = table(
        more, categorical.inverse_temperature(categorical.init_temperature(np.zeros(0), 2))
    )
    found["joined"] = table(categorical.merge_temperatures([known, more], [3.0, 9.0]))
    found["grid"] = table(categorical.POWER_GRID)
    wrong = [known.copy() for _ in range(4)]
    wrong[0][0], wrong[1][0], wrong[2][-1], wrong[3][2] = -1.0, 0.5, -1.0, 1e13
    found["sound"] = table(
        categorical.is_valid_temperature(known),
        *(categorical.is_valid_temperature(one) for one in wrong),
    )
    return found


def cases() -> dict[str, Case]:
    """All of them."""
    made = {
        "mixture": Case(mixtures, engines=True),
        "bounds": Case(bounds, engines=True),
        "counts": Case(counted, engines=True),
        "sharpness": Case(sharp, engines=True),
    }
    for kind in ("usual", "heavy", "exact", "wild"):
        for name, mix, track in (
            ("all", True, True),
            ("mixture", True, False),
            ("intervals", False, True),
        ):
            made[f"{kind} {name}"] = Case(partial(followed, kind, mix, track), engines=True)
    return made
