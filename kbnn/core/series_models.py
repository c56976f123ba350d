"""Two statistical models of one series: exponential smoothing and an autoregression.

They learn value after value, in constant memory, and forecast any number of steps. Where a series
is smooth or seasonal they need far fewer rows than a network.

**Exponential smoothing** has a level l, a damped trend b and seasonal terms c (s per season):

    forecast_h = l + (phi + ... + phi^h) b + c_(t+h),     e = y - forecast_1
    l <- l + phi b + a e,   b <- phi b + beta a e,   c_t <- c_t + gamma (1 - a) e,
    a = max(alpha, 1/(values + 1))

for a fixed set of rules (alpha, beta, phi, gamma), each also on the logarithm of y while all values
are positive. The forecast is the mean of the rules' forecasts, with weights that are powers of
their squared errors of one step (discounted by 2^(-age/200 rows)), as under Gaussian likelihoods.
Seasonal terms start from the first two seasons.

**The autoregression** is linear in past changes d_t = y_t - y_(t-1), in its own past errors e_t and
in levels:

    d_(t+1) ~ w . (d_t, ..., d_(t-7), e_t, d_(t+1-s), d_(t-s), d_(t+1-2s), y_t - y_(t-s),
                   e_(t+1-s), e_(t-s), y_t - mean, 1)

so that it is near a seasonal ARIMA model. The weights are those of recursive least squares with
forgetting (half after 1,000 rows) from the prior w ~ N(0, 1/30), in units of the changes' root mean
square. Those of the mean and of 1 have narrower priors, and that of d_(t+1-s) has the mean 1/2. A
forecast returns to the mean or ignores it, and never flees from it. Forecasts of several steps are
recursive, with errors of 0. A missing value is replaced by the forecast of one step.

To both models a change of more than 20 root mean squares of the changes so far counts as 20, so
that a glitch does not spoil them.

`kbnn/core/csrc/series.c` is the compiled version.
"""

from __future__ import annotations

from itertools import product
from typing import Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core import kernel

MODELS: Final = 2
SMOOTHING, AUTOREGRESSION = 0, 1
"""Places of the models among forecasts (..., 2, steps)."""
MAX_SEASON_ROWS: Final = 400
"""Longest season that is modelled; longer ones are left to lags."""

ALPHAS: Final = (0.1, 0.4, 1.0)
TRENDS: Final = ((0.0, 0.0), (0.05, 0.9), (0.1, 0.98))
"""Pairs of beta and phi."""
GAMMAS: Final = (0.05, 0.3)
SQUARE_DECAY: Final = 0.5 ** (1.0 / 200.0)
EVIDENCE_POWER: Final = 0.5
EVIDENCE_LIMIT_ROWS: Final = 100.0
"""Rows that count at most as evidence for a rule."""
MIN_RULE_WEIGHT: Final = 1e-4
"""Rules of a smaller weight, relative to that of the best, are left out."""

LAGS: Final = 8
CHANGE_DECAY: Final = 0.5 ** (1.0 / 1000.0)
PRIOR_PRECISION: Final = 30.0
MEAN_PRIOR_PRECISION: Final = 1000.0
DRIFT_PRIOR_PRECISION: Final = 300.0
"""Prior precisions of the weights, of that of y - mean, and of that of 1."""
SEASON_PRIOR_MEAN: Final = 0.5
"""Prior mean of the weight of the change a season ago."""
MAX_CHANGE_SD: Final = 5.0
"""Limit of a change that is learned, in root mean squares."""
MAX_JUMP_SD: Final = 20.0
MIN_JUMP_CHANGES: Final = 12.0
"""A change of more than 20 root mean squares of the changes so far (12 or more) counts as 20: a
glitch does not spoil the models, and a new level is reached within some rows."""
LARGEST: Final = 1e141
"""Limit of values and forecasts: their squares are finite."""

_CONSTANTS: Final = np.array([
    SQUARE_DECAY, CHANGE_DECAY, EVIDENCE_POWER, EVIDENCE_LIMIT_ROWS, MAX_CHANGE_SD, MIN_RULE_WEIGHT,
    LARGEST, MAX_JUMP_SD, MIN_JUMP_CHANGES,
])  # fmt: skip
_ROWS, _KNOWN, _SCORED, _NONPOSITIVE, _SEASON_READY = range(5)
_CHANGES, _CHANGE_SQUARE, _MEAN_NUMBER, _MEAN = range(5, 9)


def list_rules(season: int) -> FloatArray:
    """List the rules (K, 5) of smoothing: alpha, beta, phi, gamma, and 1 for logarithms.

    The seasonal ones come first.
    """
    gammas = (*GAMMAS, 0.0) if season else (0.0,)
    return np.array([
        (alpha, beta, phi, gamma, log)
        for gamma, alpha, (beta, phi), log in product(gammas, ALPHAS, TRENDS, (0.0, 1.0))
    ])  # fmt: skip


def make_prior(season: int) -> tuple[FloatArray, FloatArray]:
    """Make prior means and variances (P,) of the weights of the autoregression."""
    mean = np.zeros(LAGS + 3 + 6 * bool(season))
    precision = np.full(len(mean), PRIOR_PRECISION)
    precision[-2:] = MEAN_PRIOR_PRECISION, DRIFT_PRIOR_PRECISION
    if season:
        mean[LAGS + 1] = SEASON_PRIOR_MEAN
    return mean, 1.0 / precision


_RULES: Final = (list_rules(0), list_rules(1))
_PRIOR: Final = (make_prior(0), make_prior(1))


class SeriesState(NamedTuple):
    """What both models have learned of a series with s rows per season (0: none)."""

    counts: FloatArray  # (9,) rows, values, discounted number of scored values, whether one was not
    # positive, whether seasonal terms have started; sums of changes and of values
    start: FloatArray  # (2 s,) the first two seasons
    level: FloatArray  # (K,)
    trend: FloatArray  # (K,)
    square: FloatArray  # (K,) discounted sum of squared errors of one step
    seasonal: FloatArray  # (seasonal K, s)
    weight: FloatArray  # (P,)
    cov: FloatArray  # (P, P)
    recent: FloatArray  # (R,) the last values, newest last, NaN before the first
    errors: FloatArray  # (R,) the last errors of the autoregression

    @classmethod
    def create(cls, season: int) -> SeriesState:
        """Create a state without rows; seasons that are too long are left out."""
        season = season if 1 < season <= MAX_SEASON_ROWS else 0
        rules, (mean, prior_var) = len(_RULES[season > 0]), _PRIOR[season > 0]
        recent_rows = max(LAGS + 1, 2 * season + 1)
        return cls(
            np.zeros(9),
            np.full(2 * season, np.nan),
            np.zeros(rules),
            np.zeros(rules),
            np.zeros(rules),
            np.zeros((_count_seasonal(season), season)),
            mean.copy(),
            np.diag(prior_var),
            np.full(recent_rows, np.nan),
            np.zeros(recent_rows),
        )

    @property
    def season(self) -> int:
        """Rows per season, 0 without one."""
        return int(self.seasonal.shape[1])

    def is_valid(self) -> bool:
        """Return whether shapes and values are possible."""
        if self.seasonal.ndim != 2 or self.season > MAX_SEASON_ROWS:
            return False
        like = SeriesState.create(self.season)
        known = [self.level, self.trend, self.seasonal, self.weight, self.cov, self.errors]
        sums = self.counts[:_MEAN], self.square
        return (
            all(part.shape == other.shape for part, other in zip(self, like, strict=True))
            and all(bool(np.all(np.abs(part) <= 1e308)) for part in known)
            and all(bool(np.all((part >= 0.0) & (part <= 1e308))) for part in sums)
            and bool(np.all(self.counts[:2] < 2.0**53))
            and bool(np.isfinite(self.counts[_MEAN]))
            and not any(bool(np.any(np.abs(part) > 1e308)) for part in (self.start, self.recent))
        )


def learn_series(
    state: SeriesState, y: FloatArray, steps: int = 0, compiled: bool | None = None
) -> tuple[SeriesState, FloatArray]:
    """Learn consecutive values; return the state and forecasts (n, 2, steps) made before each.

    Missing values are NaN. `compiled` is whether the compiled kernel is used; None: if available.
    """
    y = np.ascontiguousarray(y, np.float64)
    if kernel.is_compiled() if compiled is None else compiled:
        copy = SeriesState(*(part.copy() for part in state))
        return copy, kernel.learn_series(copy, _list_constants(state), y, steps)
    models = _SeriesModels(state)
    paths = np.empty((len(y), MODELS, steps))
    for row, value in enumerate(np.clip(y, -LARGEST, LARGEST)):
        if steps:
            paths[row] = models.forecast(steps)
        models.learn(value if np.isfinite(y[row]) else np.nan)
    return models.state(), paths


def forecast_series(state: SeriesState, steps: int, compiled: bool | None = None) -> FloatArray:
    """Forecast some steps: (2, steps), NaN while a model has too few values."""
    if kernel.is_compiled() if compiled is None else compiled:
        return kernel.forecast_series(state, _list_constants(state), steps)
    return _SeriesModels(state).forecast(steps)


def _list_constants(state: SeriesState) -> tuple[FloatArray, FloatArray, FloatArray]:
    seasonal = state.season > 0
    return _RULES[seasonal], _CONSTANTS, _PRIOR[seasonal][1]


def compute_lag_slopes(state: SeriesState, lags: list[int]) -> FloatArray:
    """Compute the derivatives (2, lags) of both forecasts of one step by past values.

    Rules on logarithms count as if they were not; lags beyond the season have a slope of 0 where
    smoothing is concerned.
    """
    slopes = np.zeros((MODELS, len(lags)))
    season = state.season
    slopes[AUTOREGRESSION] = _compute_regression_response(state, max(lags, default=0))[lags]
    rule_weights = _SeriesModels(state).weigh_rules()
    alpha, beta, phi, gamma, _ = _RULES[season > 0].T
    level, trend = alpha, alpha * beta
    response = np.zeros(max([*lags, season]) + 1)
    for back in range(1, max(lags, default=0) + 1):
        response[back] += rule_weights @ (level + phi * trend)
        level, trend = _decay_response(level, trend, alpha, beta, phi)
    if season and state.counts[_SEASON_READY]:
        response[season] += rule_weights @ (gamma * (1.0 - alpha))
    slopes[SMOOTHING] = response[lags]
    return slopes


def _compute_regression_response(state: SeriesState, rows: int) -> FloatArray:
    """Compute the derivatives of the autoregression's forecast by the value of 0 to R rows ago.

    R is at least `rows`. Past errors are e = y - forecast, so that they have derivatives too.
    """
    w, season = state.weight, state.season
    values = np.zeros(max(rows, LAGS + 1, 2 * season + 1) + 1)
    errors = np.zeros(len(values))
    changes = [(k + 1, k + 2) for k in range(LAGS)]
    weights = w[:LAGS]
    if season:
        pairs = [(season, season + 1), (season + 1, season + 2), (2 * season, 2 * season + 1)]
        changes += [*pairs, (1, season + 1)]
        weights = np.concatenate((weights, w[LAGS + 1 : LAGS + 5]))
        errors[[season, season + 1]] = w[LAGS + 5 : LAGS + 7]
    for weight, (newer, older) in zip(weights, changes, strict=True):
        values[newer] += weight
        values[older] -= weight
    values[1] += 1.0 + w[-2]
    errors[1] += w[LAGS]
    used = np.flatnonzero(errors)
    response = values + errors
    for back in range(1, len(values)):
        earlier = used[used < back]
        response[back] -= errors[earlier] @ response[back - earlier]
    response[1] -= max(w[-2], 0.0)  # is learned and not forecast
    return response


def _decay_response(
    level: FloatArray, trend: FloatArray, alpha: FloatArray, beta: FloatArray, phi: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the response of level and trend to a change, one row later."""
    ahead = level + phi * trend
    return ahead - alpha * ahead, phi * trend - beta * alpha * ahead


def _count_seasonal(season: int) -> int:
    return len(GAMMAS) * len(ALPHAS) * len(TRENDS) * 2 if season else 0


class _SeriesModels:
    """Both models, readable: one row at a time, all rules at once."""

    def __init__(self, state: SeriesState) -> None:
        (self._counts, self._start, self._level, self._trend, self._square, self._seasonal,
         self._weight, self._cov, self._recent, self._errors) = (
             part.copy() for part in state)  # fmt: skip
        self._season = state.season
        alpha, beta, phi, gamma, log = _RULES[self._season > 0].T
        self._alpha, self._beta, self._phi, self._gamma = alpha, beta, phi, gamma
        self._uses_log = log > 0.0

    def state(self) -> SeriesState:
        """Return what was learned."""
        return SeriesState(
            self._counts, self._start, self._level, self._trend, self._square, self._seasonal,
            self._weight, self._cov, self._recent, self._errors,
        )  # fmt: skip

    def forecast(self, steps: int) -> FloatArray:
        """Forecast some steps (2, steps)."""
        return np.stack((self._forecast_smoothing(steps), self._forecast_regression(steps)))

    def learn(self, y: float) -> None:
        """Learn one value; one that may be a glitch counts as a smaller change."""
        last, number = self._recent[-1], self._counts[_CHANGES]
        if number >= MIN_JUMP_CHANGES and self._counts[_CHANGE_SQUARE] > 0.0 and np.isfinite(last):
            limit = MAX_JUMP_SD * self._change_sd
            y = last + float(np.clip(y - last, -limit, limit))
        self._learn_smoothing(y)
        self._learn_regression(y)

    def weigh_rules(self) -> FloatArray:
        """Return the weights (K,) of the rules; all 0 if none is usable."""
        usable = ~(self._uses_log & (self._counts[_NONPOSITIVE] > 0.0))
        least = np.min(self._square[usable])
        power = EVIDENCE_POWER * min(self._counts[_SCORED], EVIDENCE_LIMIT_ROWS)
        ratio = np.ones_like(self._square)
        np.divide(least, self._square, out=ratio, where=self._square > 0.0)
        weight = np.where(usable, ratio**power, 0.0)
        weight[weight < MIN_RULE_WEIGHT] = 0.0
        return np.asarray(weight / np.sum(weight))

    def _get_seasonal(self, rows: FloatArray) -> FloatArray:
        """Return the seasonal terms (K, n) at some rows."""
        terms = np.zeros((len(self._level), len(rows)))
        if self._counts[_SEASON_READY]:
            terms[: len(self._seasonal)] = self._seasonal[:, rows.astype(np.int64) % self._season]
        return terms

    def _forecast_smoothing(self, steps: int) -> FloatArray:
        if self._counts[_KNOWN] < 1.0:
            return np.full(steps, np.nan)
        ahead = np.arange(1, steps + 1)
        drift = np.cumsum(self._phi[:, None] ** ahead, axis=1) * self._trend[:, None]
        m = self._level[:, None] + drift + self._get_seasonal(self._counts[_ROWS] + ahead - 1)
        with np.errstate(over="ignore"):
            made = np.where(self._uses_log[:, None], np.exp(m), m)
        return np.asarray(self.weigh_rules() @ np.clip(made, -LARGEST, LARGEST))

    def _learn_smoothing(self, y: float) -> None:
        counts, row = self._counts, int(self._counts[_ROWS])
        known, first = np.isfinite(y), not counts[_KNOWN] and np.isfinite(y)
        if known and y <= 0.0:
            counts[_NONPOSITIVE] = 1.0
        log = np.log(y) if y > 0.0 else np.nan
        v = np.where(self._uses_log, log, y)
        if first:
            self._level = np.where(np.isfinite(v), v, 0.0)
        elif counts[_KNOWN]:
            ahead = self._level + self._phi * self._trend
            m = ahead + self._get_seasonal(counts[:1])[:, 0]
            if known:
                with np.errstate(over="ignore"):
                    gap = np.where(self._uses_log, np.exp(m), m) - y
                self._square *= SQUARE_DECAY
                self._square += np.clip(gap, -LARGEST, LARGEST) ** 2
                counts[_SCORED] = counts[_SCORED] * SQUARE_DECAY + 1.0
            e = np.where(np.isfinite(v - m), v - m, 0.0)
            gain = np.maximum(self._alpha, 1.0 / (counts[_KNOWN] + 1.0))
            self._level = ahead + gain * e
            self._trend = self._phi * self._trend + self._beta * gain * e
            if counts[_SEASON_READY]:
                n = len(self._seasonal)
                self._seasonal[:, row % self._season] += (self._gamma * (1.0 - gain) * e)[:n]
        counts[_KNOWN] += known
        if row < 2 * self._season:
            self._start[row] = y
        counts[_ROWS] = row + 1.0
        if self._season and row == 2 * self._season - 1 and counts[_KNOWN]:
            self._start_season()

    def _start_season(self) -> None:
        """Start from the first two seasons: a line through their means, and mean deviations."""
        s, n = self._season, len(self._seasonal)
        y = np.where(self._start > 0.0, self._start, np.nan)
        values = np.where(self._uses_log[:n, None], np.log(y), self._start)
        known = np.isfinite(values)
        halves = known.reshape(n, 2, s).sum(axis=2)
        total = np.where(known, values, 0.0).reshape(n, 2, s).sum(axis=2)
        mean = np.where(halves > 0, total / np.maximum(halves, 1), self._level[:n, None])
        slope = np.where(halves[:, 0] > 0, (mean[:, 1] - mean[:, 0]) / s, 0.0)
        line = mean[:, :1] + slope[:, None] * (np.arange(2 * s) - 0.5 * (s - 1))
        gap = np.where(known, values - line, 0.0).reshape(n, 2, s).sum(axis=1)
        terms = gap / np.maximum(known.reshape(n, 2, s).sum(axis=1), 1)
        level = mean[:, 1] - 0.5 * slope * (s + 1)
        trend = np.where(self._beta[:n] > 0.0, slope, 0.0)
        alpha, beta, phi = self._alpha[:n], self._beta[:n], self._phi[:n]
        for j in range(s, 2 * s):
            ahead = level + phi * trend
            e = np.where(known[:, j], values[:, j] - ahead - terms[:, j - s], 0.0)
            level, trend = ahead + alpha * e, phi * trend + beta * alpha * e
        self._level[:n] = np.where(np.isfinite(level), level, 0.0)
        self._trend[:n] = np.where(np.isfinite(trend), trend, 0.0)
        self._seasonal[:] = terms
        self._square[:] = 0.0
        self._counts[_SCORED], self._counts[_SEASON_READY] = 0.0, 1.0

    @property
    def _is_regression_ready(self) -> bool:
        known = bool(np.isfinite(self._recent[-1 - LAGS]))
        return known and bool(self._counts[_CHANGE_SQUARE] > 0.0)

    @property
    def _change_sd(self) -> float:
        return float(np.sqrt(self._counts[_CHANGE_SQUARE] / self._counts[_CHANGES]))

    def _regress(self, recent: FloatArray, errors: FloatArray, scale: float) -> FloatArray:
        """Return the regressors (P,) of the change after some values and errors."""
        change, s = np.nan_to_num(np.diff(recent)), self._season
        parts = [change[: -LAGS - 1 : -1], errors[-1:]]
        if s:
            level = np.nan_to_num(recent[-1:] - recent[-1 - s])
            parts += [change[[-s, -s - 1, -2 * s]], level, errors[[-s, -s - 1]]]
        parts.append(recent[-1:] - self._counts[_MEAN])
        with np.errstate(over="ignore"):
            return np.concatenate((*(part / scale for part in parts), [1.0]))

    def _forecast_regression(self, steps: int) -> FloatArray:
        path = np.full(steps, np.nan)
        if not self._is_regression_ready:
            return path
        recent, errors, sd = self._recent, np.append(self._errors, np.zeros(steps)), self._change_sd
        weight = self._weight.copy()
        weight[-2] = min(weight[-2], 0.0)  # never away from the mean
        for h in range(steps):
            with np.errstate(over="ignore", invalid="ignore"):
                known = errors[h : h + len(recent)]
                made = recent[-1] + sd * (weight @ self._regress(recent, known, sd))
            path[h] = recent[-1] if np.isnan(made) else np.clip(made, -LARGEST, LARGEST)
            recent = np.append(recent[1:], path[h])
        return path

    def _learn_regression(self, y: float) -> None:
        counts, ready, error = self._counts, self._is_regression_ready, 0.0
        value = y
        if not np.isfinite(y):
            value = self._forecast_regression(1)[0] if ready else self._recent[-1]
        else:
            change = y - self._recent[-1]
            if ready:
                sd = self._change_sd
                target = float(np.clip(change / sd, -MAX_CHANGE_SD, MAX_CHANGE_SD))
                x = self._regress(self._recent, self._errors, sd)
                missed = self._learn_weights(x, target)
                error = sd * float(np.clip(missed, -MAX_CHANGE_SD, MAX_CHANGE_SD))
            if np.isfinite(change):
                counts[_CHANGES] = counts[_CHANGES] * CHANGE_DECAY + 1.0
                counts[_CHANGE_SQUARE] = counts[_CHANGE_SQUARE] * CHANGE_DECAY + change**2
            counts[_MEAN_NUMBER] = counts[_MEAN_NUMBER] * CHANGE_DECAY + 1.0
            counts[_MEAN] += (y - counts[_MEAN]) / counts[_MEAN_NUMBER]
        self._recent = np.append(self._recent[1:], value)
        self._errors = np.append(self._errors[1:], error)

    def _learn_weights(self, x: FloatArray, target: float) -> float:
        """Learn one row of recursive least squares, with forgetting down to the prior.

        Returns the error before.
        """
        prior_var = _PRIOR[self._season > 0][1]
        with np.errstate(over="ignore", invalid="ignore"):
            gain = self._cov @ x
            total, error = 1.0 + gain @ x, target - self._weight @ x
        if not (np.isfinite(total) and np.isfinite(error) and total >= 1.0):  # lost by rounding
            self._cov = np.diag(prior_var)
            return 0.0
        self._weight = self._weight + gain / total * error
        self._cov = (self._cov - np.outer(gain, gain) / total) / CHANGE_DECAY
        excess = np.maximum(np.diag(self._cov) / prior_var, 1.0)
        self._cov = self._cov / np.sqrt(np.outer(excess, excess))
        return float(error)
