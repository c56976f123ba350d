"""Every number that the Python code and the compiled kernel share, with the reason for its value.

The kernel receives them once, by name (`shared_constants`); no C file repeats one of them. Derived
numbers are derived here, so that both sides work with the same bits.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

LAMBDA = float(np.sqrt(np.pi / 8.0))
"""The slope at which Phi(lambda a) is closest in shape to the logistic sigmoid."""

PROBIT_VAR = 8.0 / float(np.pi)
"""1/lambda^2: Phi(lambda a) is a sign seen through Gaussian noise of this variance."""

SMALLEST_VAR = 1e-12
"""Least variance used as a divisor: far below what standardised data can show, far above rounding.
"""

TINY = 1e-300
"""Replaces 0 in a quotient or a logarithm."""

VARIANCE_FLOOR = 1e-12
"""Least variance of a weight, as a share of its prior variance."""

LEAST_NOISE_RATIO = 1e-6
"""S is at least q (1 + this): no row may determine a direction completely."""

INPUT_BELIEVED = 1e3
"""A standardised input beyond this is not a plausible measurement: it counts as missing."""

LABEL_LIMIT = 1e100
"""A standardised label beyond this is rejected: its square would overflow with a weight."""

STEP_LIMIT = 1e40
"""Largest change of a weight, a variance or a noise variance by one row; larger ones are rejected.

All are of the order of 1 unless labels are absurd or rounding fails, so no stream reaches the limit
of what a model file may hold (kbnn.model.settings).
"""

LEAST_WEIGHT = 1e-300
"""Least weight of a row: its products with residuals do not vanish."""

MOST_WEIGHT = 1e100
"""Largest weight of a row: its products with residuals do not overflow."""

NOISE_DISCOUNT = 0.99
"""Discount of the noise state per row: a memory of a hundred rows."""

NOISE_LOSS = 1.0 / NOISE_DISCOUNT - 1.0
"""The same discount as a loss in proportion to a row's weight."""

NOISE_ROUNDS = 2.0
"""Iterations of the noise level's fixed point; it need not converge within a row."""

NOISE_MEMORY = 10.0
"""Shape of the noise state after an alarm: twenty rows' worth."""

RESIDUAL_BOUND = 5.0
"""Residuals are clipped to this many predictive standard deviations."""

OUTLIER_SHARE = 0.01
"""Prior share of outliers among labels."""

OUTLIER_VAR_RATIO = 100.0
"""Variance of outliers relative to other labels: ten times the standard deviation."""

OUTLIER_ODDS = (1.0 - OUTLIER_SHARE) / OUTLIER_SHARE * float(np.sqrt(OUTLIER_VAR_RATIO))
"""Odds that a residual of 0 is not an outlier."""

OUTLIER_DECAY = 0.5 * (1.0 - 1.0 / OUTLIER_VAR_RATIO)
"""Decay rate of these odds with the squared residual in units of its variance."""

OUTLIER_REACH = 1e6
"""Cap of the squared residual in these odds, which are 0 long before."""

HEAD_LOG_VAR_CAP = 3.0
"""Cap of the noise head's variance: beyond it exp(v/2) is no longer a useful average."""

HEAD_LOG_MEAN_LOW = -16.0
"""Least log-factor of the head: a noise sd of 3e-4 of the level's."""

HEAD_LOG_MEAN_HIGH = 8.0
"""Largest log-factor of the head: 55 times the level's sd."""

HEAD_STEP_CAP = 2.0
"""Largest change of the log-factor by one row."""

SURPRISE_CAP = 1e12
"""Cap of a squared residual in units of its variance, so that sums stay finite."""

SURPRISE_VAR = 0.1
"""Added to the variance of a class label's log-loss, so that rounding raises no alarm."""

TAIL_REACH = 80.0
"""2 x 40: where exp(-40) ends the integral of a probit's variance."""

TRUSTED = 32.0
"""Values of a column needed before its running scale is used for clipping."""

WINSOR = 8.0
"""Running standard deviations to which values of a column are clipped."""

RECENT_ROWS = 64.0
"""Memory, in rows, of a column's recent mean and mean square."""

OUTGROWN = 9.0
"""Mean square of recent standardised values beyond which the scale is refitted at once."""

SMALLEST_SPREAD = 1e-6
"""Least variance of a wide network's input given the others, and of a direction of them."""

MOVED_SHARE = 0.25
"""Weight, among repeated rows, of a row replayed for the means alone.

It was not counted as information, but the means have seen it more often than the covariance.
"""

REHEARSED_POWER = 0.5
"""Largest power of replayed rows per row by which the function's variance is inflated."""

HALF_50, HALF_60, HALF_80, HALF_90, HALF_95 = (
    NormalDist().inv_cdf(0.5 + share / 2) for share in (0.5, 0.6, 0.8, 0.9, 0.95)
)
"""Standard deviations from a normal's mean to the edge of its central intervals."""

OUTSIDE_50, OUTSIDE_80, OUTSIDE_90, OUTSIDE_95 = 0.25, 0.1, 0.05, 0.025
"""Probability beyond each edge of the calibrated intervals."""

FARTHEST_SCORE = 37.0
"""Normal quantile, in standard deviations, used where a tail probability underflows."""

ANY_SHARE = 1.0
"""Prior number of outliers that may be any value of the target."""

LEAST_RATIO = 4.0
"""Least variance of predicted outliers relative to ordinary values."""

MOST_RATIO = 1e8
"""Largest variance of predicted outliers relative to ordinary values."""

LEAST_SHARE = 1e-9
"""Least predicted share of outliers: one is always possible."""

TAILS_YOUNG = 512.0
"""Rows during which the outlier mixture is refreshed with every row."""

TAILS_EVERY = 32.0
"""Rows between refreshes of the outlier mixture after TAILS_YOUNG rows, when it changes slowly."""

TAILS_MEMORY = 1000.0
"""Rows over which the share of outliers is averaged."""

EXTREMES_MEMORY = 100.0
"""Outliers over which their size and location are averaged."""

TAILS_REACH = 1e4
"""Cap of an outlier's distance, in standard deviations."""

WIDTH_STEP = 0.002
"""Step of the scale factor per row."""

WIDTH_PACE = 8.0
WIDTH_FIRST = 150.0
"""Among the first rows the step is WIDTH_PACE / (rows + WIDTH_FIRST) instead, which is larger.

A network's calibration changes while each row adds much information, and this shows within a few
hundred rows, which is all that a small data set has.
"""
WIDTH_FEW = 64.0
"""The scale factor is at least that of this many rows of scale 1 and all rows seen without error.

Little is known of a target that has been constant so far.
"""
WIDTH_REST = 256.0
"""A frozen model shrinks the scale factor towards 1 as if this many rows of scale 1 had been seen.

The last rows of a small data set were still learned much from; later rows are not.
"""

WIDTH_CAP = 25.0
"""Cap of the squared residual in the update of the scale factor."""

LEAST_WIDTH, MOST_WIDTH = 0.01, 100.0
"""Range of the scale factor of the ordinary variance."""

TRACK_STEP = 0.045
"""Step of the logarithm of an interval's half-width per row.

While the half-width has to change by a factor f, n rows are inside too seldom or too often by
log(f)/(n step) on each side: a change by one half within 2,000 rows costs 1 %. On a stationary
stream intervals are 1 or 2 % wider. A larger step while half-widths are changing did no better.
"""

LEAST_GAIN, MOST_GAIN = math.exp(-3.0), math.exp(5.0)
"""Range of the gain of a half-width."""

LARGEST_COUNT = 2.0**53
"""Largest count: larger whole numbers are not exact in floating point."""

COUNT_RATE = 0.5
"""The logarithm of a count's rate is this share of its output; with 1, rates can explode."""

LEAST_RATE_VAR, MOST_RATE_VAR = 1e-9, 20.0
"""Range of the variance of the log-rate."""

LOG_RATE_LIMIT = 40.0
"""Limit of the absolute mean of the log-rate: a rate of 1e17."""

COUNT_NEWTON_TURNS, COUNT_NEWTON_STEP, COUNT_NEWTON_REST = 12.0, 1.5, 1e-12
"""Search for the posterior mode: maximum iterations, largest step, and tolerance."""

DISPERSION_KEPT = 0.999
"""Discount of the dispersion's sums per row: a memory of a thousand rows."""

DISPERSION_BOUND = 25.0
"""Cap of a squared residual in these sums, in variances."""

LEAST_DISPERSION, MOST_DISPERSION = 1e-4, 50.0
"""Range of the dispersion: from a Poisson's to mostly zeros."""

DISPERSION_STEP = 0.04
"""Step of the logarithm of the dispersion's calibration factor per count."""

DISPERSION_MOVE = 3.0
"""Cap of the slope of the log mass in this step."""

PRESENCE_RATE = 2.0
"""Factor on the presence output of an amount in its probit score.

1 is best where presence is hard to predict, 5 where it is easy; this value loses little in both.
"""

LOG_ODDS_LIMIT = 700.0
"""Limit of log-odds, of two classes or of an outlier, so that none overflow."""

SHARPNESS_EVERY = 256.0
"""Rows after which the evidence on the temperature is halved; also the largest weight of a row.

Values between 128 and 512 make no difference.
"""

SHARE_START = 1.0
"""Rows added to each class, so that no share is 0."""

LEAST_PROBABILITY = 1e-12
"""Least probability of a class before the temperature is applied."""

LARGEST_TERM = 1e100
"""Errors are clipped to this before they are squared, so that one absurd row leaves no inf."""

NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(32)
"""Gauss-Legendre quadrature on [-1, 1]: an error below 1e-12 in a probit's variance."""


class DriftDetector(NamedTuple):
    """Parameters of the drift detector, and the share by which an alarm returns to the prior."""

    cap: float
    slack: float
    threshold: float
    forget: float


REAL = DriftDetector(cap=2.0, slack=0.5, threshold=10.0, forget=0.5)
"""For real targets; the cap is low, so that outliers do not look like drift."""

CLASSES = DriftDetector(cap=5.0, slack=0.25, threshold=15.0, forget=0.3)
"""For classes, whose labels surprise less often, and more each time."""


def shared_constants() -> dict[str, float]:
    """Return the numbers by name, as in the kernel's struct."""
    names = [name for name, value in globals().items() if isinstance(value, float)]
    return {name.lower(): globals()[name] for name in names}
