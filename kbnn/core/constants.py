"""Every number that the Python code and the compiled kernel share, and why it is what it is.

The kernel receives them once, by name (`shared`); no C file repeats one of them. Derived numbers
are derived here, so that both sides work with the same bits.
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
"""No variance that something is divided by is smaller: far below what data in standardised units
can tell, far above the rounding of its square root."""

TINY = 1e-300
"""Stands for 0 where a quotient or a logarithm needs a number."""

VARIANCE_FLOOR = 1e-12
"""No weight's variance falls below this share of its prior variance."""

LEAST_NOISE_RATIO = 1e-6
"""S is at least q (1 + this): no row may claim to settle a direction completely."""

INPUT_BELIEVED = 1e3
"""A standardised input beyond this is no measurement: it counts as missing."""

LABEL_LIMIT = 1e100
"""A standardised label beyond this is no measurement: its square would overflow with a weight."""

STEP_LIMIT = 1e40
"""A row that would move a weight, lower a variance or set a noise variance by more than this is
rejected: all are of the order of 1 unless labels or rounding are beyond reason. So no stream
reaches the limit of what a model file may hold (kbnn.model.limits)."""

LEAST_WEIGHT = 1e-300
"""A row's weight is at least this: its products with residuals do not vanish."""

MOST_WEIGHT = 1e100
"""And at most this: they do not overflow."""

NOISE_DISCOUNT = 0.99
"""What a row leaves of the noise belief before it: a memory of a hundred rows."""

NOISE_LOSS = 1.0 / NOISE_DISCOUNT - 1.0
"""The same as a loss in proportion to a row's share."""

NOISE_ROUNDS = 2.0
"""Turns of the noise level's fixed point: it is not converged there, and need not be."""

NOISE_MEMORY = 10.0
"""Shape of the noise belief after an alarm: twenty rows' worth."""

RESIDUAL_BOUND = 5.0
"""A residual enters every statistic as at most this many predictive standard deviations."""

OUTLIER_SHARE = 0.01
"""How many labels are outliers, before one has been looked at."""

OUTLIER_VAR_RATIO = 100.0
"""Their variance beside that of the others: ten times the standard deviation."""

OUTLIER_ODDS = (1.0 - OUTLIER_SHARE) / OUTLIER_SHARE * float(np.sqrt(OUTLIER_VAR_RATIO))
"""Odds of a residual of 0 being no outlier."""

OUTLIER_DECAY = 0.5 * (1.0 - 1.0 / OUTLIER_VAR_RATIO)
"""How fast they fall with the squared residual in units of its variance."""

OUTLIER_REACH = 1e6
"""A squared residual counts as at most this there: the odds are 0 long before."""

HEAD_LOG_VAR_CAP = 3.0
"""The noise head's own variance counts as at most this: exp(v/2) is an average no more beyond."""

HEAD_LOG_MEAN_LOW = -16.0
"""The head's log-factor is at least this: a noise sd of 3e-4 of the level's."""

HEAD_LOG_MEAN_HIGH = 8.0
"""And at most this: 55 times the level's sd."""

HEAD_STEP_CAP = 2.0
"""A row moves the log-factor by at most this."""

SURPRISE_CAP = 1e12
"""A squared residual in units of its variance counts as at most this: sums stay finite."""

SURPRISE_VAR = 0.1
"""Added to the variance of a class label's log-loss: sure predictions are no alarm by rounding."""

TAIL_REACH = 80.0
"""2 x 40: where exp(-40) ends the integral of a probit's variance."""

TRUSTED = 32.0
"""Values of a column that make its running scale one to clip by."""

WINSOR = 8.0
"""Running standard deviations beyond which a value counts as at the border."""

RECENT_ROWS = 64.0
"""Memory of a column's recent mean and mean square."""

OUTGROWN = 9.0
"""A mean square of recent standardised values beyond this asks for new units at once."""

SMALLEST_SPREAD = 1e-6
"""The least variance of a wide network's input given the others, and of a direction of them."""

MOVED_SHARE = 0.25
"""A row rehearsed for the means alone counts so much among repeated rows: it was not counted as
information, but the means have seen it more often than the covariance says."""

REHEARSED_POWER = 0.5
"""The function's variance is stated times the power of rehearsed rows a row; at most this one."""

HALF_50, HALF_60, HALF_80, HALF_90, HALF_95 = (
    NormalDist().inv_cdf(0.5 + share / 2) for share in (0.5, 0.6, 0.8, 0.9, 0.95)
)
"""Standard deviations from a normal's mean to the edge of its central intervals."""

OUTSIDE_50, OUTSIDE_80, OUTSIDE_90, OUTSIDE_95 = 0.25, 0.1, 0.05, 0.025
"""How much lies beyond each edge of the intervals that are tracked."""

FARTHEST_SCORE = 37.0
"""A normal's quantile of a share that is no number stands so far from the mean."""

ANY_SHARE = 1.0
"""Of the outliers reckoned with from the start, so many are any value of the target."""

LEAST_RATIO = 4.0
"""Outliers that are stated have at least this many times the ordinary variance."""

MOST_RATIO = 1e8
"""And at most this."""

LEAST_SHARE = 1e-9
"""And are at least this share: one may always come."""

TAILS_YOUNG = 512.0
"""Rows after which the stated tails are looked at with every row no more: they move slowly then."""

TAILS_EVERY = 32.0
"""And with every how many, from then on."""

TAILS_MEMORY = 1000.0
"""Rows that the share of outliers is taken over."""

EXTREMES_MEMORY = 100.0
"""Outliers that their size and place are taken over."""

TAILS_REACH = 1e4
"""An outlier counts as at most so many standard deviations away."""

WIDTH_STEP = 0.002
"""A row's part in the width of the ordinary values."""

WIDTH_PACE = 8.0
WIDTH_FIRST = 150.0
"""Among the first rows it is larger, the first of these over the rows before and the second: what a
network is off by changes as long as every row doubles what it knows, and shows within a few hundred
rows, which is all that a small set has."""
WIDTH_FEW = 64.0
"""Rows narrow it by no more than as if so many of width 1 were beside them, and all they had no
error at all: of a target that has been 0 so far little is known."""
WIDTH_REST = 256.0
"""A model that learns no more goes by the width as if so many rows of width 1 had been beside those
seen: the last rows of a small set were still learned much from, and what comes after is not."""

WIDTH_CAP = 25.0
"""Its square in units of the width counts there as at most this."""

LEAST_WIDTH, MOST_WIDTH = 0.01, 100.0
"""Between these the ordinary variance may be off."""

TRACK_STEP = 0.045
"""A row's part in the logarithm of an interval's half-width. While that half-width has to change by
a factor f, n rows are inside log(f)/(n step) too seldom or too often on each side: one half more
within 2,000 rows costs a hundredth of them. A steady stream pays with intervals a hundredth
or two wider. A step that is longer while half-widths are on the move did no better."""

LEAST_GAIN, MOST_GAIN = math.exp(-3.0), math.exp(5.0)
"""Between these a half-width may be off."""

LARGEST_COUNT = 2.0**53
"""Counts beyond this are not told apart."""

COUNT_RATE = 0.5
"""The logarithm of a count's rate is this share of its output: without, rates run away."""

LEAST_RATE_VAR, MOST_RATE_VAR = 1e-9, 20.0
"""Its variance lies between these."""

LOG_RATE_LIMIT = 40.0
"""And its mean is no farther from 0: a rate of 1e17."""

COUNT_NEWTON_TURNS, COUNT_NEWTON_STEP, COUNT_NEWTON_REST = 12.0, 1.5, 1e-12
"""Of the search for the posterior's mode: turns, the longest step, and the last one's size."""

DISPERSION_KEPT = 0.999
"""What a row leaves of the dispersion's sums: a memory of a thousand rows."""

DISPERSION_BOUND = 25.0
"""A squared residual enters them as at most this many variances."""

LEAST_DISPERSION, MOST_DISPERSION = 1e-4, 50.0
"""Between a Poisson's and what is mostly zeros."""

DISPERSION_STEP = 0.04
"""A count's part in the logarithm of how much wider than the network says its dispersion is."""

DISPERSION_MOVE = 3.0
"""The slope of its log mass counts there as at most this."""

PRESENCE_RATE = 2.0
"""How many times its output the score is by which an amount is there at all. Where that can hardly
be told 1 is best, where it can be told surely 5; both lose little."""

LOG_ODDS_LIMIT = 700.0
"""Odds, of two classes or of an outlier, are no larger than e to this: none overflow."""

SHARPNESS_EVERY = 256.0
"""After so many rows what classes have shown of their sharpness counts half; no row counts for
more. Between 128 and 512 it makes no difference."""

SHARE_START = 1.0
"""Rows of each class before the first: no share is 0."""

LEAST_PROBABILITY = 1e-12
"""Where a class's probability is sharpened it counts as no less."""

LARGEST_TERM = 1e100
"""Errors are cut to this before they are squared: one absurd row must not leave an inf."""

NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(32)
"""Of Gauss-Legendre quadrature on [-1, 1]: an error below 1e-12 in a probit's variance."""


class DriftDetector(NamedTuple):
    """When the evidence is an alarm, and how far back to the prior an alarm goes."""

    cap: float
    slack: float
    threshold: float
    forget: float


REAL = DriftDetector(cap=2.0, slack=0.5, threshold=10.0, forget=0.5)
"""For real targets; the cap is low, so that outliers do not look like drift."""

CLASSES = DriftDetector(cap=5.0, slack=0.25, threshold=15.0, forget=0.3)
"""Class labels surprise less often, and more each time."""


def shared_constants() -> dict[str, float]:
    """The numbers by name, as the kernel's struct has them."""
    names = [name for name, value in globals().items() if isinstance(value, float)]
    return {name.lower(): globals()[name] for name in names}
