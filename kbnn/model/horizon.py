"""Several steps ahead: what was forecast for one step is what the next one looks back to.

Each step's mean is that of the network at lags which are means themselves. What is not known goes
along in closed form. With y_h the target h steps ahead, H its derivative by the weights and J_l by
its lags, the lag that a change is counted from included,
    D_h = H_h + sum_l J_l D_(h-l),    A_h = sum_l J_l A_(h-l) + sqrt(EV_h) e_h,
are the total derivative by the weights, which all steps share, and the share of each step's own
noise; var y_h = kappa D_h P D_h' + |A_h|^2. To first order in what is not known that is exact. The
mean path stays within the range that was seen, and a quarter of it beyond; so does the sd.

How wide a band of 90 % is, the last errors of one step tell: in units of what was stated they are
e_t, and sum_k A_hk e_(t+k)/|A_h| is what the same path would have missed from row t on. The 90 %
quantiles of their sizes, beside that of a Gaussian, make steps wider or narrower. So heavy tails,
of which sums have less, and errors that follow one another are reckoned with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from kbnn.core import tails
from kbnn.core.belief import Belief, open_state
from kbnn.core.normal import FloatArray
from kbnn.core.slopes import function_var, slopes
from kbnn.errors import ArgumentError, UsageError
from kbnn.model import ensemble, scaling
from kbnn.model.lags import JUDGED, History, Lag
from kbnn.model.model import Model
from kbnn.model.rows import Rows, sliced
from kbnn.task.base import blank
from kbnn.task.forecast import Forecast
from kbnn.task.gaussian import Z

BEYOND: Final = 0.25
ENOUGH: Final = 64
"""Forecasts that must have been judged before they say anything of others."""
ALONE: Final = (0.9, 1.5)
CARRIED: Final = (0.7, 1.5)
"""How much narrower or wider the last errors make a band: by themselves, and carried along."""
MOST_STEPS: Final = 10_000


class Ahead(NamedTuple):
    """Of n origins and S steps."""

    mean: FloatArray  # (n, S)
    function_var: FloatArray  # (n, S) what the model does not know yet
    noise_var: FloatArray  # (n, S) what no model could know

    @property
    def sd(self) -> FloatArray:
        """Standard deviations of the forecasts (n, S)."""
        return np.sqrt(self.function_var + self.noise_var)

    def forecast(self) -> Forecast:
        """The steps of the first origin as forecasts of rows."""
        mean, function_var, noise_var = (part[0][:, None] for part in self)
        said, sd = blank(len(mean), 1), np.sqrt(function_var + noise_var)
        return said._replace(
            mean=mean,
            sd=sd,
            function_sd=np.sqrt(function_var),
            noise_sd=np.sqrt(noise_var),
            stated=tails.stated(
                tails.blank(1, mixed=False), mean, np.sqrt(function_var + noise_var)
            ),
        )


def check_horizon(model: Model, steps: int) -> None:
    """Refuse a horizon that a model cannot see."""
    schema = model.schema
    if not isinstance(steps, int | np.integer):
        raise ArgumentError(f"--horizon is a whole number of steps, not {steps!r}")
    if not 1 <= steps <= MOST_STEPS:
        raise UsageError(f"--horizon is between 1 and {MOST_STEPS:,}, not {steps}")
    model.task.check_ahead()
    if not any(lag.column in schema.targets for lag in schema.lags):
        raise UsageError(
            f"--horizon needs a model with lags of '{schema.targets[0]}' (kbnn train --lags)"
        )


def coming(model: Model, steps: int) -> Rows:
    """Rows that follow the last one learned: the clock goes on, all else is missing."""
    schema = model.schema
    x = np.full((steps, schema.width), np.nan)
    time = None
    if schema.clock is not None:
        known = model.history.time[np.isfinite(model.history.time[:, 0])]
        last = known[-1] if len(known) else np.full(2, np.nan)
        time = schema.clock.after(last, steps)
        names = schema.encoded_names()
        x[:, [names.index(name) for name in schema.clock.names]] = schema.clock.values(time)
    number = np.arange(1, steps + 1)
    return Rows(x, np.full((steps, 1), np.nan), number, schema=schema, time=time)


def ahead(model: Model, histories: Sequence[History], steps: Sequence[Rows]) -> Ahead:
    """Go on from n histories: `steps` has the n rows of each step, their targets not looked at."""
    learned = model.known()
    weights = ensemble.mixture_weights(learned.log_weight)
    parts = [
        _member(model, open_state(member.state()), learned.columns, histories, steps)
        for member in learned.members
    ]
    mean = np.asarray(sum(w * part.mean for w, part in zip(weights, parts, strict=True)))
    between = sum(w * (p.mean - mean) ** 2 for w, p in zip(weights, parts, strict=True))
    function = sum(w * p.function_var for w, p in zip(weights, parts, strict=True))
    noise = sum(w * p.noise_var for w, p in zip(weights, parts, strict=True))
    width = learned.tails[0, tails.MEAN_WIDTH]
    return Ahead(mean, np.asarray(function + between) * width, np.asarray(noise) * width)


def wider(missed: FloatArray, shares: FloatArray) -> float:
    """By how much a step should be wider to hold 90 %, by the last errors and its shares of noise.

    There are but n/h stretches of h among n errors: the power n/(n + h) trusts few of them less.
    """
    n, h, norm = len(missed), len(shares), float(np.linalg.norm(shares))
    alone = float(np.quantile(np.abs(missed), 0.9)) if n >= ENOUGH else 0.0
    if alone == 0.0 or norm == 0.0:
        return 1.0
    carried = np.abs(np.convolve(missed, shares[::-1] / norm, "valid"))
    more = (float(np.quantile(carried, 0.9)) / alone) ** (n / (n + h))
    return float(np.clip(alone / Z[90], *ALONE) * np.clip(more, *CARRIED))


def back(lag: Lag, step: float) -> int:
    """How many steps a lag looks back."""
    return lag.rows or (round(lag.seconds / step) if step else 0)


def _member(
    model: Model,
    belief: Belief,
    columns: FloatArray,
    histories: Sequence[History],
    steps: Sequence[Rows],
) -> Ahead:
    schema, timeline = model.schema, model.timeline
    center, scale = columns[0, scaling.CENTER], columns[0, scaling.SCALE]
    width, step = len(columns) - 1, 0.0 if schema.clock is None else schema.clock.step
    lags = [
        (place, back(lag, step), _safe(columns[1 + place, scaling.SCALE]))
        for place, lag in zip(timeline.places, schema.lags, strict=True)
        if lag.column == schema.targets[0]
    ]
    histories = [history.copy() for history in histories]
    low, high = _range(histories)
    n, count = len(histories), len(steps)
    made = Ahead(*np.zeros((3, n, count)))
    d: list[FloatArray] = []
    a = np.zeros((count, n, count))
    width_of = [1.0] * n
    for h, rows in enumerate(steps):
        rows = rows._replace(y=np.full((n, 1), np.nan))
        placed = [timeline.look(past, sliced(rows, k, k + 1)) for k, past in enumerate(histories)]
        x = np.concatenate([one.rows.x for one in placed])[:, :width]
        z = scaling.standardise(columns[1:], x, model.learner.as_is[:width])
        found = slopes(belief, z)
        mean = center + scale * found.mean
        now = scale * found.weights
        a[h, :, h] = scale * np.sqrt(found.new_var)
        feeds = [(at, scale * found.inputs[:, place] / unit) for place, at, unit in lags]
        if schema.changes:
            mean = mean + np.concatenate([one.base for one in placed if one.base is not None])[:, 0]
            feeds.append((1, np.ones(n)))
        for at, slope in feeds:
            if 1 <= at <= h:
                now = now + slope[:, None] * d[h - at]
                a[h] += slope[:, None] * a[h - at]
        function, noise = function_var(belief, now), np.sum(a[h] ** 2, axis=1)
        share = _bounded(function + noise, high - low)
        d.append(now * share[:, None])
        a[h] *= share[:, None]
        made.mean[:, h] = np.clip(mean, low, high)
        if 2 * (h + 1) <= JUDGED:  # of longer stretches there are too few to tell
            width_of = [
                wider(past.missed[:, 0], a[h, k, : h + 1]) for k, past in enumerate(histories)
            ]
        widened = (share * np.array(width_of)) ** 2
        made.function_var[:, h], made.noise_var[:, h] = function * widened, noise * widened
        for k, past in enumerate(histories):
            row = sliced(rows, k, k + 1)._replace(y=made.mean[k : k + 1, h : h + 1])
            timeline.move(past, row)
    return made


def _bounded(var: FloatArray, most: FloatArray) -> FloatArray:
    """What is left of derivatives whose sd is beyond all that was seen, as the path is cut."""
    beyond = (var > most**2) & (most > 0.0)
    return np.where(beyond, most / np.sqrt(np.where(beyond, var, 1.0)), 1.0)


def _safe(scale: float) -> float:
    return float(scale) if scale > 0.0 else np.inf


def _range(histories: Sequence[History]) -> tuple[FloatArray, FloatArray]:
    """How far the mean path may go from each origin."""
    low = np.array([history.low[0] for history in histories])
    high = np.array([history.high[0] for history in histories])
    reach = BEYOND * (high - low)
    return low - reach, high + reach
