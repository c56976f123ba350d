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

**The autoregression** is linear in past changes d_t = y_t - y_(t-1) and in the level:

    d_(t+1) ~ w . (d_t, ..., d_(t-7), d_(t+1-s), d_(t-s), y_t - mean)

by recursive least squares with forgetting (half after 1,000 rows) from the prior w ~ N(0, 1/30), in
units of the changes' root mean square. Forecasts of several steps are recursive. A missing value is
replaced by the forecast of one step.

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
MAX_CHANGE_SD: Final = 5.0
"""Limit of a change that is learned, in root mean squares."""
LARGEST: Final = 1e141
"""Limit of values and forecasts: their squares are finite."""

_CONSTANTS: Final = np.array([
    SQUARE_DECAY, CHANGE_DECAY, EVIDENCE_POWER, EVIDENCE_LIMIT_ROWS, PRIOR_PRECISION, MAX_CHANGE_SD,
    MIN_RULE_WEIGHT, LARGEST,
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


_RULES: Final = (list_rules(0), list_rules(1))


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

    @classmethod
    def create(cls, season: int) -> SeriesState:
        """Create a state without rows; seasons that are too long are left out."""
        season = season if 1 < season <= MAX_SEASON_ROWS else 0
        rules, order = len(_RULES[season > 0]), LAGS + 1 + 2 * (season > 0)
        return cls(
            np.zeros(9),
            np.full(2 * season, np.nan),
            np.zeros(rules),
            np.zeros(rules),
            np.zeros(rules),
            np.zeros((_count_seasonal(season), season)),
            np.zeros(order),
            np.eye(order) / PRIOR_PRECISION,
            np.full(max(LAGS + 1, season + 2), np.nan),
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
        known = [self.level, self.trend, self.seasonal, self.weight, self.cov]
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
        rules = _RULES[state.season > 0]
        return copy, kernel.learn_series(copy, rules, _CONSTANTS, y, steps)
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
        return kernel.forecast_series(state, _RULES[state.season > 0], _CONSTANTS, steps)
    return _SeriesModels(state).forecast(steps)


def compute_lag_slopes(state: SeriesState, lags: list[int]) -> FloatArray:
    """Compute the derivatives (2, lags) of both forecasts of one step by past values.

    Rules on logarithms count as if they were not; lags beyond the season have a slope of 0 where
    smoothing is concerned.
    """
    slopes = np.zeros((MODELS, len(lags)))
    w, season = state.weight, state.season
    past = np.zeros(max([*lags, LAGS + 1, season + 2]) + 2)
    past[1] += 1.0 + w[-1]
    for i in range(1, LAGS + 1):
        past[i : i + 2] += w[i - 1] * np.array([1.0, -1.0])
    for k, back in enumerate((season, season + 1) if season else ()):
        past[back : back + 2] += w[LAGS + k] * np.array([1.0, -1.0])
    slopes[AUTOREGRESSION] = past[lags]
    rule_weights = _SeriesModels(state).weigh_rules()
    alpha, beta, phi, gamma, _ = _RULES[season > 0].T
    level, trend = alpha, alpha * beta
    response = np.zeros(len(past))
    for back in range(1, max(lags) + 1 if lags else 1):
        response[back] += rule_weights @ (level + phi * trend)
        level, trend = _decay_response(level, trend, alpha, beta, phi)
    if season and state.counts[_SEASON_READY]:
        response[season] += rule_weights @ (gamma * (1.0 - alpha))
    slopes[SMOOTHING] = response[lags]
    return slopes


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
         self._weight, self._cov, self._recent) = (part.copy() for part in state)  # fmt: skip
        self._season = state.season
        alpha, beta, phi, gamma, log = _RULES[self._season > 0].T
        self._alpha, self._beta, self._phi, self._gamma = alpha, beta, phi, gamma
        self._uses_log = log > 0.0

    def state(self) -> SeriesState:
        """Return what was learned."""
        return SeriesState(
            self._counts, self._start, self._level, self._trend, self._square, self._seasonal,
            self._weight, self._cov, self._recent,
        )  # fmt: skip

    def forecast(self, steps: int) -> FloatArray:
        """Forecast some steps (2, steps)."""
        return np.stack((self._forecast_smoothing(steps), self._forecast_regression(steps)))

    def learn(self, y: float) -> None:
        """Learn one value."""
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

    def _regress(self, recent: FloatArray, scale: float) -> FloatArray:
        """Return the regressors (P,) of the change after some values."""
        change = np.nan_to_num(np.diff(recent))
        parts = [change[: -LAGS - 1 : -1]]
        if self._season:
            parts.append(change[[-self._season, -self._season - 1]])
        return np.concatenate((*parts, [recent[-1] - self._counts[_MEAN]])) / scale

    def _forecast_regression(self, steps: int) -> FloatArray:
        path, recent = np.full(steps, np.nan), self._recent.copy()
        if not self._is_regression_ready:
            return path
        for h in range(steps):
            made = recent[-1] + self._weight @ self._regress(recent, 1.0)
            path[h] = np.clip(made, -LARGEST, LARGEST) if np.isfinite(made) else recent[-1]
            recent = np.append(recent[1:], path[h])
        return path

    def _learn_regression(self, y: float) -> None:
        counts, ready = self._counts, self._is_regression_ready
        if not np.isfinite(y):
            y = self._forecast_regression(1)[0] if ready else self._recent[-1]
            self._recent = np.append(self._recent[1:], y)
            return
        change = y - self._recent[-1]
        if ready:
            sd = float(np.sqrt(counts[_CHANGE_SQUARE] / counts[_CHANGES]))
            target = float(np.clip(change / sd, -MAX_CHANGE_SD, MAX_CHANGE_SD))
            self._learn_weights(self._regress(self._recent, sd), target)
        if np.isfinite(change):
            counts[_CHANGES] = counts[_CHANGES] * CHANGE_DECAY + 1.0
            counts[_CHANGE_SQUARE] = counts[_CHANGE_SQUARE] * CHANGE_DECAY + change**2
        counts[_MEAN_NUMBER] = counts[_MEAN_NUMBER] * CHANGE_DECAY + 1.0
        counts[_MEAN] += (y - counts[_MEAN]) / counts[_MEAN_NUMBER]
        self._recent = np.append(self._recent[1:], y)

    def _learn_weights(self, x: FloatArray, target: float) -> None:
        """Learn one row of recursive least squares, with forgetting down to the prior."""
        with np.errstate(over="ignore", invalid="ignore"):
            gain = self._cov @ x
            total, error = 1.0 + gain @ x, target - self._weight @ x
        if not (np.isfinite(total) and np.isfinite(error) and total >= 1.0):  # lost by rounding
            self._cov = np.eye(len(x)) / PRIOR_PRECISION
            return
        self._weight = self._weight + gain / total * error
        self._cov = (self._cov - np.outer(gain, gain) / total) / CHANGE_DECAY
        excess = np.maximum(np.diag(self._cov) * PRIOR_PRECISION, 1.0)
        self._cov = self._cov / np.sqrt(np.outer(excess, excess))
