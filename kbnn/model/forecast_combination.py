"""Combine the network's forecasts of several steps with simple ones, by their past errors.

A network that continues its own forecasts drifts away on many series. From each origin there are
therefore six candidates for the target h steps ahead: the network's recursive forecast, the last
value, the value a season before the step, that value moved by the change since then, exponential
smoothing, and a linear autoregression (kbnn.core.series_models):

    f_1 = network,   f_2 = y_o,   f_3 = y_(o+h-s),   f_4 = y_(o+h-s) + y_o - y_(o-s),
    f_5 = smoothing,   f_6 = autoregression.

The simple candidates are f_2 to f_6, the naive ones f_2 to f_4.

Beyond the first season, the last season known is repeated, and f_4 also moves by the drift d of
each season in between. Without a season, f_4 = y_o + d h. The drift is the mean change per row over
about the last 48 rows, d = (y_o - y_(o-m))/m, m a multiple of the season.

While rows are learned, forecasts are made at some rows (origins) and kept until their outcome is
known, so that all errors are of forecasts as made then. E_c,h is the mean squared error of
candidate c at step h, discounted by 2^(-age/500 rows) and pooled over h +- 3 steps. Errors are
limited to 20 times the root mean squared error of the best simple candidate so far, and a candidate
that comes late, as after a long season, starts from twice the least error. The combined forecast is

    w_c ~ E_c,h^-6,   m = sum_c w_c f_c,   v = sum_c u_c (s_c^2 + (f_c - m)^2),   u_c ~ w_c^1.5.

Where the variance of the network's path is more than ten times the typical one of one step, as
after a drift alarm, its E is multiplied by a power of the excess.

A mean that has not been better than the best simple candidate f_b is pulled to it, so that a random
walk is forecast as its last value:

    m <- f_b + g (m - f_b),   g = <(m - f_b)(y - f_b)> / <(m - f_b)^2> - 0.3 standard errors,

between 0 and 1, from past errors pooled over h +- 24 steps and shrunk towards 1.

The variance s_c^2 of a simple candidate is its mean squared error from every row, not only from
origins; E_c,h is shrunk towards it, and that of the network towards the least. With more
past errors, v approaches the mean squared error of the combined forecast. A second estimate is the
mean squared error of f_b at every row, times that of the combined forecast over that of f_b at the
origins, where both miss the same shocks. v is a geometric mean of both, whose weight of the second
falls from 1/2 with the number of past errors. The network's variance follows the conditions of the
path: it is a multiple, learned by step, of the mean one-step variance along the path, limited to
four times the squared error of f_b. The sd is scaled so that 90 % intervals hold: by the 90 %
quantile of the past |error|/sd at this step. Its histogram starts with sixty errors that are
distributed as those of f_b at all rows, over their root mean square, and as a Gaussian until
there are some. Where a series is volatile at times, v is multiplied by a power of the mean squared
error of one step of late, over that in the longer run.

Errors are recorded with other inputs unknown, as at most origins, and with the mean of the first
step weighted as one step ahead. Where other inputs are given, the network's forecast is used alone,
and its variance grows at most as that of a random walk.

One step ahead there is an error at every row, and inputs are given. Errors are limited to 50
predicted sds, so that an outlier does not make all candidates equal. Where the network is sure of
itself, naive forecasts are relatively worse: E_c is the mean squared error among rows whose
predicted variance was as high (four levels), shrunk towards that of all rows. The weights are the
same function of E_c. Then the mean is pulled to the last value y_o,

    m <- y_o + b (m - y_o),   b = <(m - y_o)(y - y_o)> / <(m - y_o)^2>  between 0 and 1,

so that a random walk is forecast as its last value. Where the last value is the best naive
candidate, b is less by one standard error. The variance is that of the network plus sum_c w_c (f_c
- m)^2 of the simple candidates. It is calibrated as that of a network
(kbnn.distributions.calibration), but with the errors of the combined forecast.

The state has a fixed size. `kbnn.model.forecast_candidates` makes candidates and chooses origins.
"""

from __future__ import annotations

from functools import cached_property
from math import erf, exp
from typing import Final, NamedTuple

import numpy as np

from kbnn.array_types import BoolArray, FloatArray, IntArray
from kbnn.core import series_models
from kbnn.distributions.calibration import (
    WIDTH_FIELDS,
    apply_calibration,
    apply_widths,
    init_calibration,
    is_valid_calibration,
    learn_widths,
    sum_discounted,
    update_calibration,
)
from kbnn.distributions.predictive import INTERVAL_HALF_WIDTHS_SD
from kbnn.model.forecast_candidates import (
    CANDIDATES,
    COMBINED_STEPS,
    NAIVE,
    CandidatePaths,
    compute_naive_errors,
    get_origin_spacing,
)

_NAIVE_ERRORS: Final = slice(0, 3)
_MODELED_ERRORS: Final = slice(3, 5)
"""Places of naive forecasts and series models among the simple candidates."""
ERROR_HALF_LIFE_ROWS: Final = 500.0
ERROR_HALF_LIFE_ORIGINS: Final = 12
"""Past errors count half after this number of rows and of origins, whichever is later."""
POOLED_STEPS: Final = 3
WEIGHT_EXPONENT: Final = 6.0
ONE_STEP_WEIGHT_EXPONENT: Final = 4.0
PRIOR_ERRORS: Final = 2.0
"""Weight of the prior squared error, in past errors."""
SIMPLE_PRIOR_FACTOR: Final = 2.0
"""Prior squared error of the simple candidates, in the network's variance."""
WEIGHT_PRIOR_ERRORS: Final = 40.0
"""Weights start from the squared errors of simple candidates at all rows, and the network's from
the least of them."""
LATE_PRIOR_FACTOR: Final = 2.0
LATE_PRIOR_SHARE: Final = 0.1
"""A candidate that comes late, as after a long season, starts from twice the least squared error of
the others. The weight is a tenth of the rows by which it is more than 48 rows late."""
GAIN_POOLED_STEPS: Final = 24
GAIN_PRIOR_ERRORS: Final = 10.0
"""Weight of g = 1, in independent errors."""
GAIN_STANDARD_ERRORS: Final = 0.3
MAX_SCALED_ERROR: Final = 4.0
"""Limit of errors relative to those of the best simple candidate, where g is learned."""
VOLATILITY_DECAYS: Final = (0.5 ** (1.0 / 60.0), 0.5 ** (1.0 / 500.0))
"""Memories of the mean squared error of one step, of late and in the longer run."""
VOLATILITY_PRIOR_ROWS: Final = 20.0
VOLATILITY_POWER: Final = 0.7
VOLATILITY_STEPS: Final = 100.0
"""Steps over which the power falls by a factor e."""
VOLATILITY_LIMITS: Final = (0.1, 10.0)
VOLATILITY_ERROR_SD: Final = 5.0
"""Limit of an error of one step for the volatility, in predicted sds."""
UNCERTAIN_VAR_FACTOR: Final = 10.0
UNCERTAIN_POWER: Final = 0.3
"""The network's squared error grows by this power of its variance over 10 times the typical one."""
NETWORK_VAR_LIMIT: Final = 4.0
"""Limit of the network's variance, in squared errors of the best simple candidate."""
OWN_PRIOR_ERRORS: Final = 40.0
"""Weight of the candidates' variance against past errors of the combined forecast."""
SCALED_ERRORS: Final = 10.0
"""Past errors at which the scaled errors of a simple candidate have half their first weight."""
SPREAD_POWER: Final = 1.5
"""Power of the weights in the variance: candidates that hardly count do not widen bands."""
PRIOR_GROWTH_STEPS: Final = 24
"""Steps over which the prior squared error grows as that of a random walk."""
WIDTH_PRIOR_ERRORS: Final = 60.0
"""Weight of the prior distribution of |error|/sd, in past errors."""
SHAPE_PRIOR_ERRORS: Final = 30.0
"""Weight of a Gaussian in that prior distribution, in independent errors of a simple candidate."""
SHAPE_STEPS: Final = ((0, 3), (3, 12), (12, 24), (24, COMBINED_STEPS))
"""Steps, from 0, whose errors of simple candidates share a histogram."""
MIN_SHAPE_ERRORS: Final = 20.0
"""Errors after which the root mean square of a simple candidate's errors is known."""
WIDTH_LIMITS: Final = (0.4, 4.0)
ONE_STEP_DECAY: Final = 0.5 ** (1.0 / 1000.0)
MAX_ERROR_SD: Final = 50.0
"""Limit of an error of one step, in predicted sds."""
MAX_STEP_ERROR_SD: Final = 20.0
"""Limit of an error of several steps, in root mean squared errors of the best simple candidate so
far: a glitch does not widen bands for hundreds of rows."""
LEVEL_EDGES: Final = (-1.0, 0.0, 1.0)
"""Edges of the levels of the predicted variance: its logarithm, less the mean logarithm so far."""
LEVEL_PRIOR_ROWS: Final = 100.0
"""Weight of the squared errors of all rows in those of a level."""
PULL_PRIOR_ROWS: Final = 5.0
"""Weight of b = 1, in rows."""
PULL_STANDARD_ERRORS: Final = 1.0
"""By how much less b is where the last value is the best naive forecast."""
MAX_GROWING_STEPS: Final = 10 * COMBINED_STEPS
"""Steps up to which variances grow."""
_ERROR_EDGES: Final = np.exp(np.linspace(np.log(0.1), np.log(12.0), 31))
"""Edges of the histogram of |error|/sd."""
_ERROR_BINS: Final = len(_ERROR_EDGES) + 1
_SMALLEST_SHARE: Final = 1e-12
_SMALLEST_SD: Final = 1e-150
_LARGEST: Final = 1e141
_COMBINED, _SD, _PATH_VAR, _BEST, _BEST_SD, _DEVIATION = range(CANDIDATES, CANDIDATES + 6)
_PENDING_ROWS: Final = CANDIDATES + 6


class CombinedForecast(NamedTuple):
    """Combined forecasts from n origins."""

    mean: FloatArray  # (n, S)
    raw_sd: FloatArray  # (n, S) before calibration
    sd: FloatArray  # (n, S)
    weights: FloatArray  # (n, 6, S)
    best: FloatArray  # (n, S) the best simple candidate, NaN without one
    best_sd: FloatArray  # (n, S) its root mean squared error
    deviation: FloatArray  # (n, S) the mean before it is pulled, less `best`


class StepErrors(NamedTuple):
    """Errors of past forecasts by step, and the forecasts whose outcome is not known yet."""

    number: FloatArray  # (6, S) discounted number of errors
    square: FloatArray  # (6, S) discounted sum of squared errors
    simple_number: FloatArray  # (5, S) discounted number of errors of simple candidates at all rows
    simple_square: FloatArray  # (5, S) discounted sum of their squares
    ratio: FloatArray  # (S,) discounted sum of squared network errors over path variances
    histogram: FloatArray  # (bins, S) discounted counts of |error|/sd of the combined forecast
    pending: FloatArray  # (k, 12, S) by origin: candidates, combined mean and sd, path variance,
    # the best simple candidate and its sd, and the deviation from it
    age: FloatArray  # (k,) rows since each pending origin, at the last origin
    rows: FloatArray  # (3,) rows so far, rows at the last origin, rows at the first
    one_step: FloatArray  # (2, 5, 6) discounted number and squares of errors of one step: of all
    # rows, then of rows at each level of the predicted variance
    level: FloatArray  # (2,) discounted number and sum of logarithms of predicted variances
    pull: FloatArray  # (3,) discounted number of rows, <(m - y_o)^2> and <(m - y_o)(y - y_o)>
    calibration: FloatArray  # (1, fields) of combined forecasts of one step
    widths: FloatArray  # sums of kbnn.distributions.calibration.learn_widths
    combined_square: FloatArray  # (S,) discounted sum of squared errors of the combined forecast
    gain: FloatArray  # (2, S) discounted sums of squared deviations, and of these times changes
    volatility: FloatArray  # (2, 2) number and sum of squared errors of one step, both memories
    simple_histogram: FloatArray  # (5, groups, bins) discounted counts of |error|/sd of simple
    # candidates at all rows, a mean over the steps of a group
    modeled: (
        FloatArray  # (S, 2, S) the series models' forecasts before the last S rows, newest last
    )
    modeled_errors: (
        FloatArray  # (2, 2, S) numbers and squares of their errors since the last origin
    )

    @classmethod
    def create(cls, mixed: bool = True) -> StepErrors:
        """Create a state without errors; `mixed`: distributions have a share of outliers."""
        s = COMBINED_STEPS
        return cls(
            np.zeros((CANDIDATES, s)),
            np.zeros((CANDIDATES, s)),
            np.zeros((CANDIDATES - 1, s)),
            np.zeros((CANDIDATES - 1, s)),
            np.zeros(s),
            np.zeros((_ERROR_BINS, s)),
            np.zeros((0, _PENDING_ROWS, s)),
            np.zeros(0),
            np.zeros(3),
            np.zeros((2, 2 + len(LEVEL_EDGES), CANDIDATES)),
            np.zeros(2),
            np.zeros(3),
            init_calibration(1, mixed),
            np.zeros(WIDTH_FIELDS),
            np.zeros(s),
            np.zeros((2, s)),
            np.zeros((2, 2)),
            np.zeros((CANDIDATES - 1, len(SHAPE_STEPS), _ERROR_BINS)),
            np.full((s, series_models.MODELS, s), np.nan),
            np.zeros((2, series_models.MODELS, s)),
        )

    def advance(self, rows: int) -> StepErrors:
        """Count rows that were learned."""
        return self._replace(rows=self.rows + np.array([float(rows), 0.0, 0.0]))

    def drop_pending(self) -> StepErrors:
        """Forget the forecasts whose outcome is not known, because other rows follow."""
        unknown = np.full_like(self.modeled, np.nan)
        return self._replace(pending=self.pending[:0], age=self.age[:0], modeled=unknown)

    def learn_series_models(self, paths: FloatArray, y: FloatArray) -> StepErrors:
        """Add the errors of the series models' forecasts (n, 2, S) before each of n rows.

        They count from the next origin on, so that results do not depend on batches.
        """
        step = np.arange(COMBINED_STEPS)
        every = np.concatenate((self.modeled, paths))
        row = COMBINED_STEPS + np.arange(len(y))[:, None]
        errors = every[row - step, :, step].swapaxes(1, 2) - y[:, None, None]
        histogram = self.simple_histogram.copy()
        _count_scaled_errors(errors, self._get_simple_sd(), _MODELED_ERRORS, histogram)
        known = np.isfinite(errors)
        squares = self._square_errors(errors, _MODELED_ERRORS)
        added = np.concatenate((self.modeled_errors[None], np.stack((known, squares), axis=1)))
        return self._replace(
            simple_histogram=histogram,
            modeled=np.where(_IS_AHEAD, every[len(y) :], np.nan),  # NaN is stored in less space
            modeled_errors=np.add.accumulate(added)[-1],
        )

    def _get_simple_sd(self) -> FloatArray:
        """Return the root mean squared errors (5, S), 0 where they are not known yet."""
        sd = np.sqrt(_divide(self.simple_square, self.simple_number))
        return np.where(self.simple_number < MIN_SHAPE_ERRORS, 0.0, sd)

    def _square_errors(self, errors: FloatArray, place: slice) -> FloatArray:
        """Return the squares of errors (rows, k, S), limited; 0 where unknown."""
        limit = _limit_errors(self._get_simple_sd()[place])
        return np.asarray(np.where(np.isfinite(errors), np.clip(errors, -limit, limit), 0.0) ** 2)

    def resolve_pending(self, values: FloatArray, season: int) -> StepErrors:
        """Add the errors of pending and of naive forecasts, and discount the errors before.

        `values` are the last targets, newest last; `season` is as for `build_candidates`.
        """
        new = int(self.rows[0] - self.rows[1])
        slowest = float(ERROR_HALF_LIFE_ORIGINS * get_origin_spacing(int(self.rows[0])))
        decay = 0.5 ** (new / max(ERROR_HALF_LIFE_ROWS, slowest))
        count, square, simple_number, simple_square, ratio, histogram = (
            part * decay for part in self[:6]
        )
        combined_square, gain = self.combined_square * decay, self.gain * decay
        errors = compute_naive_errors(values, min(new, len(values)), season)
        simple_histogram = self.simple_histogram * decay
        _count_scaled_errors(errors, self._get_simple_sd(), _NAIVE_ERRORS, simple_histogram)
        numbers = np.sum(np.isfinite(errors), axis=0)
        simple_number += np.concatenate((numbers, self.modeled_errors[0]))
        squares = np.sum(self._square_errors(errors, _NAIVE_ERRORS), axis=0)
        simple_square += np.concatenate((squares, self.modeled_errors[1]))
        if len(self.age):
            steps, end = np.arange(1, COMBINED_STEPS + 1), self.age[:, None] + new
            source = (len(values) - 1 + steps - end).astype(np.int64)
            made = self.pending
            truth = values[np.clip(source, 0, len(values) - 1)]
            known = (steps > self.age[:, None]) & (steps <= end) & (source >= 0)
            known &= np.isfinite(truth) & np.isfinite(made[:, _COMBINED])
            usual = np.where(made[:, _BEST_SD] > _SMALLEST_SD, made[:, _BEST_SD], made[:, _SD])
            limit = _limit_errors(np.nan_to_num(usual))[:, None]
            error = np.clip(made[:, : CANDIDATES + 1] - truth[:, None], -limit, limit)
            found = known[:, None] & np.isfinite(error[:, :CANDIDATES])
            squares = np.where(found, error[:, :CANDIDATES], 0.0) ** 2
            count += np.sum(found, axis=0)
            square += np.sum(squares, axis=0)
            combined_square += np.sum(np.where(known, error[:, _COMBINED], 0.0) ** 2, axis=0)
            ratio += np.sum(_divide(squares[:, 0], made[:, _PATH_VAR]), axis=0)
            relative = _divide(np.abs(error[:, _COMBINED]), made[:, _SD])[known]
            place = np.searchsorted(_ERROR_EDGES, relative), np.nonzero(known)[1]
            np.add.at(histogram, place, 1.0)
            sd = np.where(made[:, _BEST_SD] > _SMALLEST_SD, made[:, _BEST_SD], np.nan)
            scaled = np.stack((made[:, _DEVIATION], truth - made[:, _BEST])) / sd
            usable = known & np.isfinite(scaled).all(axis=0)
            limited = np.clip(scaled, -MAX_SCALED_ERROR, MAX_SCALED_ERROR)
            moved, change = np.where(usable, limited, 0.0)
            gain += np.sum((moved**2, moved * change), axis=1)
        age = self.age + new
        kept = age < COMBINED_STEPS
        rows = np.array([self.rows[0], self.rows[0], self.rows[2] or self.rows[0]])
        return self._replace(
            number=count,
            square=square,
            simple_number=simple_number,
            simple_square=simple_square,
            ratio=ratio,
            histogram=histogram,
            pending=self.pending[kept],
            age=age[kept],
            rows=rows,
            combined_square=combined_square,
            gain=gain,
            simple_histogram=simple_histogram,
            modeled_errors=np.zeros_like(self.modeled_errors),
        )

    def add_origin(self, paths: CandidatePaths, made: CombinedForecast) -> StepErrors:
        """Add the forecasts of one origin, after the last row counted."""
        forecasts = np.full((1, _PENDING_ROWS, COMBINED_STEPS), np.nan)
        steps = min(made.mean.shape[1], COMBINED_STEPS)
        rows = (made.mean, made.raw_sd, paths.var, made.best, made.best_sd, made.deviation)
        parts = np.concatenate((paths.mean[0], *rows))
        forecasts[0, :, :steps] = parts[:, :steps]
        return self._replace(
            pending=np.concatenate((self.pending, forecasts)),
            age=np.append(self.age, 0.0),
        )

    def combine_one_step(
        self, mean: FloatArray, sd: FloatArray, simple: FloatArray, learning_scale: float = 1.0
    ) -> OneStepForecast:
        """Combine the network's forecasts (n,) of one step with simple ones (n, 5).

        While it learns, the network's sd is `learning_scale` times the sd given here.
        """
        made = np.column_stack((mean, simple))
        usable = np.isfinite(made)
        at = _find_levels(self.level[None], _compute_log_var(learning_scale * sd))
        weights = _compute_one_step_weights(self.one_step[None], at, usable)
        best = _find_best_naive(self.one_step[None], usable)
        pull = _compute_pull(self.pull[None], self.one_step[None], best)
        weights = _pull_to_last(weights, pull, usable)
        mean, sd = _average_candidates(weights, made, sd)
        sd = apply_widths(self.widths, sd)
        stated = apply_calibration(self.calibration, mean[:, None], sd[:, None])[:, 0]
        return OneStepForecast(mean, sd, stated, weights[:, 0])

    def learn_one_step(
        self,
        mean: FloatArray,
        sd: FloatArray,
        simple: FloatArray,
        y: FloatArray,
        options: CalibrationOptions,
    ) -> tuple[StepErrors, OneStepForecast]:
        """Combine consecutive rows; each uses the errors of the rows before it.

        Rows whose mean is NaN (in the warm-up) are left as they are.
        """
        made = np.column_stack((mean, simple))
        usable, error = np.isfinite(made), made - y[:, None]
        found = np.isfinite(error) & np.isfinite(error[:, :1])
        limit = _limit_errors(sd, MAX_ERROR_SD)[:, None]
        squares = np.clip(np.where(found, error, 0.0), -limit, limit) ** 2
        log_var = np.where(found[:, 0], _compute_log_var(sd), np.nan)
        known = np.isfinite(log_var)
        level = sum_discounted(
            self.level, np.column_stack((known, np.where(known, log_var, 0.0))), ONE_STEP_DECAY
        )
        at = _find_levels(level[:-1], log_var)
        terms = np.zeros((len(y), *self.one_step.shape))
        for place in (np.zeros_like(at), 1 + at):
            terms[np.arange(len(y)), 0, place] = found
            terms[np.arange(len(y)), 1, place] = squares
        sums = sum_discounted(self.one_step.ravel(), terms.reshape(len(y), -1), ONE_STEP_DECAY)
        past = sums.reshape(-1, *self.one_step.shape)
        weights = _compute_one_step_weights(past[:-1], at, usable)
        combined = np.sum(weights * np.where(usable, made, 0.0), axis=1)
        moved, change = (
            np.clip(values - made[:, 1], -limit[:, 0], limit[:, 0]) for values in (combined, y)
        )
        known = np.isfinite(moved) & np.isfinite(change) & usable[:, 0]
        moved, change = np.where(known, moved, 0.0), np.where(known, change, 0.0)
        pull = sum_discounted(
            self.pull, np.column_stack((known, moved**2, moved * change)), ONE_STEP_DECAY
        )
        factor = _compute_pull(pull[:-1], past[:-1], _find_best_naive(past[:-1], usable))
        weights = _pull_to_last(weights, factor, usable)
        combined, wide = _average_candidates(weights, made, sd)
        widths, wide = learn_widths(self.widths, combined, wide, y)
        tails, use = self.calibration.copy(), usable[:, 0] & np.isfinite(wide)
        rows = update_calibration(
            tails, combined[use, None], wide[use, None], y[use, None], *options
        )
        stated = np.full((len(y), rows.shape[2]), np.nan)
        stated[use] = rows[:, 0]
        seen = (
            np.fmin(np.abs(combined - y), VOLATILITY_ERROR_SD * wide),
            np.isfinite(combined - y),
        )
        after = self._replace(
            volatility=_follow_volatility(self.volatility, *seen),
            one_step=past[-1].copy(),
            level=level[-1],
            pull=pull[-1],
            calibration=tails,
            widths=widths,
        )
        return after, OneStepForecast(combined, wide, stated, weights[:, 0])

    @property
    def typical_sd(self) -> float:
        """The geometric mean of the network's sds of one step, 1 without rows."""
        number, total = self.level.tolist()
        return exp(0.5 * total / number) if number else 1.0

    def open_combiner(self) -> ForecastCombiner:
        """Open a combiner that uses the errors known so far."""
        return ForecastCombiner(self)

    def is_valid(self) -> bool:
        """Return whether shapes and values are possible."""
        like = StepErrors.create()
        sums = [*self[:6], self.age, self.rows, self.one_step, self.level[:1], self.pull[:2]]
        sums += [self.widths[:8], self.combined_square, self.gain[0], self.volatility]
        sums += [self.simple_histogram, self.modeled_errors]
        forecasts = (self.pending, self.modeled)
        return (
            all(part.shape[1:] == other.shape[1:] for part, other in zip(self, like, strict=True))
            and all(
                len(part) == len(other)
                for name, part, other in zip(self._fields, self, like, strict=True)
                if name not in ("pending", "age")
            )
            and len(self.age) == len(self.pending) <= COMBINED_STEPS
            and all(bool(np.all((part >= 0.0) & (part <= 1e308))) for part in sums)
            and bool(np.all(self.age < COMBINED_STEPS))
            and bool(np.all(self.rows < 2.0**53))
            and bool(np.all(self.rows[1:] <= self.rows[0]))
            and not any(bool(np.any(np.abs(part) > 1e308)) for part in forecasts)
            and bool(np.all(np.abs([*self.level, *self.pull, *self.widths]) <= 1e308))
            and bool(np.all(np.abs(self.gain[1]) <= 1e308))
            and is_valid_calibration(self.calibration)
        )


class CalibrationOptions(NamedTuple):
    """Whether the outlier mixture is learned, intervals are tracked, and the kernel is used."""

    mixed: bool
    tracked: bool
    compiled: bool | None = None


class OneStepForecast(NamedTuple):
    """Combined forecasts of one step: mean and uncalibrated sd (n,), and distributions."""

    mean: FloatArray
    raw_sd: FloatArray
    stated: FloatArray  # (n, fields)
    network_weight: FloatArray  # (n,) share of the network in the mean


def _compute_log_var(sd: FloatArray) -> FloatArray:
    """Return the logarithm of the variance, NaN where it is 0 or unknown."""
    return 2.0 * np.log(np.where(sd > 0.0, sd, np.nan))


def _find_levels(level: FloatArray, log_var: FloatArray) -> IntArray:
    """Return the level of each row, given the sums (n or 1, 2) before it."""
    mean = level[:, 1] / np.maximum(level[:, 0], _SMALLEST_SHARE)
    gap = np.where(np.isfinite(log_var) & (level[:, 0] > 0.0), log_var - mean, 0.0)
    return np.searchsorted(LEVEL_EDGES, gap)


def _compute_one_step_weights(sums: FloatArray, at: IntArray, usable: BoolArray) -> FloatArray:
    """Return the weights (n, 6), given the sums (n or 1, 2, 5, 6) before each row and its level."""
    number, square = sums[:, 0, 0], sums[:, 1, 0]
    own = square[:, :1] / np.maximum(number[:, :1], 1.0)
    prior = PRIOR_ERRORS + _count_missing_errors(number, number[:, :1])
    error_var = (square + prior * SIMPLE_PRIOR_FACTOR * own) / (number + prior)
    error_var[:, :1] = own
    row = np.arange(len(at)) if len(sums) > 1 else np.zeros_like(at)
    number_at, square_at = sums[row, 0, 1 + at], sums[row, 1, 1 + at]
    error_var = (square_at + LEVEL_PRIOR_ROWS * error_var) / (number_at + LEVEL_PRIOR_ROWS)
    usable = usable.copy()
    usable[:, 1:] &= usable[:, :1] & (number[:, 1:] > 0.0)
    weights = _compute_weights(error_var[:, :, None], usable[:, :, None], ONE_STEP_WEIGHT_EXPONENT)
    return weights[:, :, 0]


def _find_best_naive(sums: FloatArray, usable: BoolArray) -> IntArray:
    """Return the naive candidate with the least errors (n,), given the sums (n or 1, 2, 5, 6).

    It is the last value, 1, before there are errors.
    """
    number, square = sums[:, 0, 0, NAIVE], sums[:, 1, 0, NAIVE]
    known = usable[:, NAIVE] & (number > 0.0)
    return np.asarray(1 + np.argmin(np.where(known, _divide(square, number), np.inf), axis=1))


def _compute_pull(sums: FloatArray, errors: FloatArray, best: IntArray) -> FloatArray:
    """Return b (n,), given the sums (n or 1, 3) before each row; 1 without rows.

    `errors` (n or 1, 2, 5, 6) are the numbers and squares of errors before each row, and `best` is
    the best naive candidate (n,).
    """
    prior = PULL_PRIOR_ROWS * sums[:, 1] / np.maximum(sums[:, 0], 1.0)
    total = sums[:, 1] + prior
    change_var = _divide(errors[:, 1, 0, 1], errors[:, 0, 0, 1])
    doubt = PULL_STANDARD_ERRORS * np.sqrt(_divide(change_var, total)) * (best == 1)
    return np.asarray(np.clip(_divide(sums[:, 2] + prior, total, 1.0) - doubt, 0.0, 1.0))


def _pull_to_last(weights: FloatArray, pull: FloatArray, usable: BoolArray) -> FloatArray:
    """Return the weights of y_o + b (m - y_o), where the last value is known."""
    b = np.where(usable[:, 0] & usable[:, 1], pull, 1.0)
    weights = weights * b[:, None]
    weights[:, 1] += 1.0 - b
    return weights


def _average_candidates(
    weights: FloatArray, made: FloatArray, sd: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return combined means and sds (n,); rows without a network's forecast are NaN."""
    mean = np.sum(weights * np.where(weights > 0.0, made, 0.0), axis=1)
    mean = np.where(np.isfinite(made[:, 0]), mean, np.nan)
    gap = np.where(np.isfinite(made[:, 1:]), made[:, 1:] - mean[:, None], 0.0)
    gap = np.clip(gap, -_LARGEST, _LARGEST)
    return mean, np.sqrt(sd**2 + np.sum(weights[:, 1:] * gap**2, axis=1))


class ForecastCombiner:
    """Combines candidates with the weights and widths that follow from past errors."""

    def __init__(self, errors: StepErrors) -> None:
        self._count, self._square = _pool_steps(errors.number), _pool_steps(errors.square)
        self._simple_number = _pool_steps(errors.simple_number)
        self._simple_square = _pool_steps(errors.simple_square)
        self._extended_var = _extend_errors(self._simple_number, self._simple_square)
        most = np.max(errors.simple_number, axis=0)
        self._missing = _pool_steps(_count_missing_errors(errors.simple_number, most))
        self._ratio = _pool_steps(errors.ratio)
        number = _pool_steps(errors.histogram.sum(axis=0))
        self._past_errors = _count_independent(errors, number)
        self._combined_square = _pool_steps(errors.combined_square)
        self._past_var = _divide(self._combined_square, number)
        self._errors = errors
        self._growth_power = _compute_growth_power(errors)
        self._gain = errors.gain @ _GAIN_POOLING
        span, steps = errors.rows[1] - errors.rows[2], np.arange(1, COMBINED_STEPS + 1)
        self._gain_number = errors.histogram.sum(axis=0) @ _GAIN_POOLING
        independent = np.minimum(self._gain_number, span / steps + 1.0)
        self._gain_overlap = np.maximum(_divide(self._gain_number, independent), 1.0)
        self._volatility = _compute_volatility(errors.volatility)
        typical_var = min(errors.typical_sd**2, _LARGEST) if errors.level[0] else np.inf
        self._usual_var = UNCERTAIN_VAR_FACTOR * typical_var

    @cached_property
    def _width(self) -> FloatArray:
        return _compute_width_factors(self._errors)

    def combine(
        self, paths: CandidatePaths, first_step: int = 1, *, calibrated: bool = True
    ) -> CombinedForecast:
        """Combine the candidates of n origins for consecutive steps from `first_step` on."""
        steps = first_step + np.arange(paths.mean.shape[2])
        at = np.minimum(steps, COMBINED_STEPS) - 1
        growth = np.minimum(steps, PRIOR_GROWTH_STEPS)
        count, var = self._count[:, at], np.clip(paths.var, 0.0, _LARGEST**2)
        usable, walk_var = np.isfinite(paths.mean), np.minimum(var, self._usual_var) * growth
        has_simple = usable[:, 1:].any(axis=1)
        number, square = self._simple_number[:, at], self._simple_square[:, at]
        extended = PRIOR_ERRORS * self._extended_var[:, at]
        prior = PRIOR_ERRORS * SIMPLE_PRIOR_FACTOR * walk_var[:, None]
        prior = np.where((number > 0.0) | np.isnan(extended), prior, extended)
        simple_var = (square + prior) / (number + PRIOR_ERRORS)
        missing = self._missing[:, at]
        old_var = np.min(np.where(missing > 0.0, np.inf, simple_var), axis=1, keepdims=True)
        doubt = missing * LATE_PRIOR_FACTOR * np.where(np.isfinite(old_var), old_var, 0.0)
        simple_var = (simple_var * (number + PRIOR_ERRORS) + doubt) / (
            number + PRIOR_ERRORS + missing
        )
        ranked = np.where(usable[:, 1:], simple_var, np.inf)
        best_var = np.min(ranked, axis=1)
        prior_var = np.where(has_simple, best_var, walk_var)
        prior = WEIGHT_PRIOR_ERRORS * np.concatenate((prior_var[:, None], simple_var), axis=1)
        error_var = (self._square[:, at] + prior) / (count + WEIGHT_PRIOR_ERRORS)
        error_var = np.broadcast_to(error_var, usable.shape).copy()
        error_var[:, 0] = np.where(
            has_simple, self._distrust_network(var, error_var[:, 0]), error_var[:, 0]
        )
        weights = _compute_weights(error_var, usable)
        mean = np.sum(weights * np.where(usable, paths.mean, 0.0), axis=1)
        mean = np.where(usable.any(axis=1), mean, np.nan)
        place = 1 + np.argmin(ranked, axis=1)[:, None]
        best = np.where(has_simple, np.take_along_axis(paths.mean, place, axis=1)[:, 0], np.nan)
        best_sd = np.sqrt(np.where(has_simple, best_var, np.nan))
        deviation = mean - best
        gain = self._compute_gain(at, deviation, best_sd)
        mean = np.where(gain < 1.0, best + gain * deviation, mean)
        is_best = np.arange(CANDIDATES)[:, None] == place
        weights = weights * gain[:, None] + np.where(is_best, 1.0 - gain[:, None], 0.0)
        ratio = (self._ratio[at] + PRIOR_ERRORS * growth) / (count[0] + PRIOR_ERRORS)
        ratio = np.where(has_simple, ratio, np.minimum(ratio, growth))
        network_var = np.minimum(ratio * var, _LARGEST**2)
        limit = NETWORK_VAR_LIMIT * np.where(has_simple, best_var, np.inf)
        network_var = np.minimum(network_var, limit)
        error_var = np.concatenate((network_var[:, None], simple_var), axis=1)
        gap = np.where(usable, np.clip(paths.mean - mean[:, None], -_LARGEST, _LARGEST), 0.0)
        far = np.clip(steps, COMBINED_STEPS, MAX_GROWING_STEPS) / COMBINED_STEPS
        spread = weights**SPREAD_POWER
        spread /= np.maximum(np.sum(spread, axis=1, keepdims=True), _SMALLEST_SHARE)
        raw_var = np.sum(spread * (error_var + gap**2), axis=1)
        past = np.where(has_simple, self._past_errors[at], 0.0)
        raw_var = (past * self._past_var[at] + OWN_PRIOR_ERRORS * raw_var) / (
            past + OWN_PRIOR_ERRORS
        )
        scaled_var = np.where(has_simple, self._scale_simple_error(at, place, best_var), raw_var)
        share = 0.5 * SCALED_ERRORS / (past + SCALED_ERRORS)
        blended = raw_var ** (1.0 - share) * scaled_var**share
        raw_var = np.where(scaled_var > 0.0, blended, raw_var)
        lately = self._volatility ** (VOLATILITY_POWER * np.exp((1.0 - steps) / VOLATILITY_STEPS))
        raw = np.sqrt(raw_var * lately * far**self._growth_power)
        sd = raw * self._width[at] if calibrated else raw
        return CombinedForecast(mean, raw, sd, weights, best, best_sd, deviation)

    def _distrust_network(self, var: FloatArray, error_var: FloatArray) -> FloatArray:
        """Return the network's squared errors (n, S), more where its variance is unusual."""
        excess = np.maximum(_divide(var, np.array(self._usual_var), 1.0), 1.0)
        factor = np.minimum(excess**UNCERTAIN_POWER, _LARGEST)
        return np.asarray(np.minimum(error_var, _LARGEST) * factor)

    def _scale_simple_error(
        self, at: IntArray, place: IntArray, best_var: FloatArray
    ) -> FloatArray:
        """Return the squared errors of the best simple candidate, times the gain at origins (n, S).

        `place` (n, 1, S) is its index, and `best_var` (n, S) its mean squared error at all rows.
        """
        number, square = (
            np.take_along_axis(
                np.broadcast_to(part[:, at], (len(place), CANDIDATES, len(at))), place, axis=1
            )
            for part in (self._count, self._square)
        )
        independent = np.minimum(_divide(self._past_errors[at], number[:, 0]), 1.0)
        best_var = np.where(np.isfinite(best_var), best_var, 0.0)
        prior = PRIOR_ERRORS * best_var
        ratio = _divide(
            independent * self._combined_square[at] + prior, independent * square[:, 0] + prior, 1.0
        )
        return ratio * best_var

    def _compute_gain(self, at: IntArray, deviation: FloatArray, best_sd: FloatArray) -> FloatArray:
        """Return the factors g (n, S) of deviations from the best simple candidate."""
        square, product = self._gain[:, at]
        number, overlap = self._gain_number[at], self._gain_overlap[at]
        typical = np.where(square > 0.0, _divide(square, number), _divide(deviation, best_sd) ** 2)
        prior = GAIN_PRIOR_ERRORS * overlap * typical
        total = np.minimum(square + prior, _LARGEST)
        doubt = GAIN_STANDARD_ERRORS * np.sqrt(_divide(overlap, total))
        gain = np.clip(_divide(product + prior, total, 1.0) - doubt, 0.0, 1.0)
        return np.where(np.isfinite(deviation) & (best_sd > 0.0), gain, 1.0)


def _count_missing_errors(number: FloatArray, most: FloatArray) -> FloatArray:
    """Return the weight of the prior of candidates that came late, 0 for others."""
    return LATE_PRIOR_SHARE * np.maximum(most - number - COMBINED_STEPS, 0.0)


def _extend_errors(number: FloatArray, square: FloatArray) -> FloatArray:
    """Return the mean squared errors (5, S) that follow from those of one step less, or NaN.

    They grow as those of a random walk. Only rows that lack errors of some steps are computed.
    """
    extended = np.full(number.shape, np.nan)
    some = np.flatnonzero((number > 0.0).any(axis=1) & ~(number > 0.0).all(axis=1))
    before = np.full(len(some), np.nan)
    for h in range(number.shape[1] if len(some) else 0):
        extended[some, h] = before * (h + 1) / h if h else before
        known = np.where(np.isnan(extended[some, h]), 0.0, PRIOR_ERRORS)
        count = number[some, h] + known
        total = square[some, h] + known * np.nan_to_num(extended[some, h])
        before = np.where(count > 0.0, _divide(total, count), np.nan)
    return extended


def _compute_growth_power(errors: StepErrors) -> float:
    """Return the power of h/48, from 0 to 1, by which variances grow beyond the recorded steps."""
    half = COMBINED_STEPS // 2
    count, square = _pool_steps(errors.simple_number)[0], _pool_steps(errors.simple_square)[0]
    early, late = square[half - 1] * count[-1], square[-1] * count[half - 1]
    if not (early > 0.0 and late > 0.0):
        return 1.0
    return float(np.clip(np.log2(late) - np.log2(early), 0.0, 1.0))


def _count_independent(errors: StepErrors, number: FloatArray) -> FloatArray:
    """Return how many of the errors (S,) are independent.

    Paths from close origins overlap: of n errors at step h over N rows, only N/h + 1 count.
    """
    span = errors.rows[1] - errors.rows[2]
    return np.asarray(np.minimum(number, span / np.arange(1, COMBINED_STEPS + 1) + 1.0))


def _compute_width_factors(errors: StepErrors) -> FloatArray:
    """Return the factors (S,) of the sd that make 90 % intervals fit past errors."""
    counts = _pool_steps(errors.histogram)
    total = counts.sum(axis=0)
    share = _count_independent(errors, total) / np.maximum(total, _SMALLEST_SHARE)
    counts = counts * share + WIDTH_PRIOR_ERRORS * _estimate_error_shape(errors)
    factors = _find_quantile(counts) / INTERVAL_HALF_WIDTHS_SD[90]
    return np.asarray(np.clip(factors, *WIDTH_LIMITS))


def _estimate_error_shape(errors: StepErrors) -> FloatArray:
    """Return the distribution (bins, S) of |error|/sd of the best simple candidate at each step.

    It is shrunk towards a Gaussian: of n errors at step h over N rows, N/h + 1 are independent.
    """
    known = errors.simple_number > 0.0
    error_var = np.where(known, _divide(errors.simple_square, errors.simple_number), np.inf)
    best, group = np.argmin(error_var, axis=0), _SHAPE_GROUPS
    counts = errors.simple_histogram[best, group].T
    total = np.sum(counts, axis=0)
    span = errors.rows[1] - errors.rows[2]
    weight = np.minimum(total, span / _SHAPE_MIDDLES + 1.0)
    share = weight / (weight + SHAPE_PRIOR_ERRORS)
    own = counts / np.maximum(total, _SMALLEST_SHARE)
    return np.asarray(share * own + (1.0 - share) * _GAUSSIAN_COUNTS[:, None])


def _count_scaled_errors(
    errors: FloatArray, sd: FloatArray, place: slice, histogram: FloatArray
) -> None:
    """Add |errors| (rows, k, S) over their sd to a histogram by candidate and group of steps.

    `place` are the k candidates among the simple ones; sd (5, S) and the histogram have all.
    """
    row, candidate, step = np.nonzero(np.isfinite(errors) & (sd[place] > _SMALLEST_SD))
    relative = np.abs(errors[row, candidate, step]) / sd[place][candidate, step]
    group = _SHAPE_GROUPS[step]
    at = place.start + candidate, group, np.searchsorted(_ERROR_EDGES, relative)
    np.add.at(histogram, at, 1.0 / _SHAPE_SIZES[group])  # row after row


def _follow_volatility(volatility: FloatArray, error: FloatArray, known: BoolArray) -> FloatArray:
    """Add absolute errors of one step (n,) to the sums (2, 2) of both memories."""
    squares = np.where(known, np.minimum(np.where(known, error, 0.0), _LARGEST) ** 2, 0.0)
    terms = np.column_stack((known, squares, known, squares))[known]
    decays = np.repeat(VOLATILITY_DECAYS, 2)
    return np.asarray(sum_discounted(volatility.ravel(), terms, decays)[-1].reshape(2, 2))


def _compute_volatility(volatility: FloatArray) -> float:
    """Return the mean squared error of one step of late over that in the longer run."""
    (number, square), (more, total) = volatility.tolist()
    if not total > 0.0:
        return 1.0
    mean = total / more
    lately = (square + VOLATILITY_PRIOR_ROWS * mean) / (number + VOLATILITY_PRIOR_ROWS)
    low, high = VOLATILITY_LIMITS
    return float(min(max(lately / mean, low), high))


def _compute_weights(
    error_var: FloatArray, usable: BoolArray, exponent: float = WEIGHT_EXPONENT
) -> FloatArray:
    """Return weights (n, 6, S) proportional to a power of E, 0 for candidates without a value."""
    error_var = np.where(usable, error_var, np.inf)
    most = np.max(np.where(usable, error_var, 0.0), axis=1, keepdims=True)
    error_var = np.maximum(error_var, _SMALLEST_SHARE * most)
    least = np.min(error_var, axis=1, keepdims=True)
    weights = np.where(usable, _divide(least, error_var, 1.0) ** exponent, 0.0)
    total = np.sum(weights, axis=1, keepdims=True)
    return np.asarray(weights / np.maximum(total, _SMALLEST_SHARE))


def _divide(a: FloatArray, b: FloatArray, otherwise: float = 0.0) -> FloatArray:
    """Return a/b, limited, and `otherwise` where b is 0 or both are infinite."""
    valid = (b > 0.0) & ~(np.isinf(a) & np.isinf(b))
    with np.errstate(over="ignore"):
        found = np.divide(a, b, out=np.full(np.broadcast(a, b).shape, otherwise), where=valid)
    return np.asarray(np.minimum(found, _LARGEST))


def _limit_errors(sd: FloatArray, largest_sd: float = MAX_STEP_ERROR_SD) -> FloatArray:
    """Return limits of errors; there is none where the sd is 0 or unknown."""
    return np.where(sd > _SMALLEST_SD, np.minimum(largest_sd * sd, _LARGEST), _LARGEST)


def _pool_steps(sums: FloatArray) -> FloatArray:
    """Sum (..., S) over the steps h +- 3; over h +- (h - 1) for the first ones."""
    return np.asarray(sums @ _POOLING)


def _find_quantile(counts: FloatArray, share: float = 0.9) -> FloatArray:
    """Return a quantile of |error|/sd for histograms (bins, S), log-linear within a bin."""
    edges = np.concatenate(([0.5 * _ERROR_EDGES[0]], _ERROR_EDGES, [1.5 * _ERROR_EDGES[-1]]))
    total = np.cumsum(counts, axis=0) / np.sum(counts, axis=0)
    at = np.argmax(total >= share, axis=0)
    column = np.arange(counts.shape[1])
    below = np.where(at > 0, total[np.maximum(at - 1, 0), column], 0.0)
    part = (share - below) / np.maximum(total[at, column] - below, _SMALLEST_SHARE)
    return np.asarray(edges[at] * (edges[at + 1] / edges[at]) ** part)


_GAUSSIAN_COUNTS: Final = np.diff([0.0, *(erf(u / 2**0.5) for u in _ERROR_EDGES), 1.0])

_SHAPE_SIZES: Final = np.array([stop - start for start, stop in SHAPE_STEPS], np.float64)
_SHAPE_GROUPS: Final = np.repeat(np.arange(len(SHAPE_STEPS)), _SHAPE_SIZES.astype(np.int64))
_SHAPE_MIDDLES: Final = np.array([0.5 * sum(steps) for steps in SHAPE_STEPS])[_SHAPE_GROUPS]

_IS_AHEAD: Final = (np.indices((COMBINED_STEPS,) * 2).sum(axis=0) >= COMBINED_STEPS)[:, None]
"""Whether step h + 1 of the k-th of the last S forecasts is still ahead (S, 1, S)."""
_STEP_GAPS: Final = np.arange(COMBINED_STEPS)[:, None] - np.arange(COMBINED_STEPS)
_POOLING: Final = np.where(
    np.abs(_STEP_GAPS) <= np.minimum(POOLED_STEPS, np.arange(COMBINED_STEPS)), 1.0, 0.0
)
"""Matrix (S, S) that sums over near steps: column h is 1 for the steps pooled with step h."""
_GAIN_POOLING: Final = np.where(
    np.abs(_STEP_GAPS) <= np.minimum(GAIN_POOLED_STEPS, np.arange(COMBINED_STEPS)), 1.0, 0.0
)
