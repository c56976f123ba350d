"""Targets that mean harm, of every kind of number: nothing breaks, nothing is below what can be."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.distributions.dispatch import read_distribution
from kbnn.model.model import Forecast, OnlineModel
from kbnn.model.settings import Settings
from tests.bench.data import block, schema

ROWS = 700
LEVELS = (0.5, 0.9, 0.99)


def values(name: str) -> FloatArray:
    rng = np.random.default_rng(7)
    small = np.exp(0.3 * rng.standard_normal(ROWS))
    if name == "constant":
        return np.full(ROWS, 3.0)
    if name == "constant, then another":
        return np.where(np.arange(ROWS) < 400, 3.0, 5e6)
    if name == "tiny":
        return 1e-300 * small
    if name == "huge":
        return 1e300 * small
    if name == "one huge":
        small[ROWS // 2] = 1e300
    if name == "one tiny":
        small[ROWS // 2] = 1e-300
    if name == "first is huge":
        small[0] = 1e300
    if name == "later far above":
        small[ROWS // 3 :] *= 1e6
    if name == "later far below":
        small[ROWS // 3 :] *= 1e-6
    if name == "every size there is":
        return np.asarray(10.0 ** rng.uniform(-300, 300, ROWS))
    if name == "mostly missing":
        small[rng.random(ROWS) < 0.9] = np.nan
    if name == "missing from the start":
        small[: ROWS // 2] = np.nan
    if name == "all missing":
        small[:] = np.nan
    return small


HOSTILE = (
    "constant",
    "constant, then another",
    "tiny",
    "huge",
    "one huge",
    "one tiny",
    "first is huge",
    "later far above",
    "later far below",
    "every size there is",
    "mostly missing",
    "missing from the start",
    "all missing",
)


def sound(said: Forecast, least: float, known: bool) -> None:
    """All that is said is a number, in order, and not below `least`."""
    rows = said.stated[:, 0]
    told = np.isfinite(said.mean[:, 0])
    assert np.all(np.isfinite(said.sd[told]))
    assert np.all(said.sd[told] >= 0.0)
    assert np.all(said.mean[told] >= least)
    if not told.any():
        return
    for level in LEVELS:
        lower, upper = read_distribution(rows[told]).interval(level)
        assert np.all(np.isfinite(lower))
        assert np.all(np.isfinite(upper))
        assert np.all(lower <= upper)
        assert np.all(lower >= least)
    for share in (0.01, 0.5, 0.99):
        q = read_distribution(rows[told]).quantile(share)
        assert np.all(np.isfinite(q))
        assert np.all(q >= least)


def zeros_in(y: FloatArray, name: str) -> FloatArray:
    """Where an amount is none at all."""
    at = np.random.default_rng(9).random(ROWS) < 0.4
    if name == "none, then some":
        at = np.arange(ROWS) < 300
    if name == "some, then none":
        at = np.arange(ROWS) >= 100
    if name == "never any":
        at[:] = True
    if name == "once":
        at = np.arange(ROWS) != 350
    if name == "one in two":
        at = np.arange(ROWS) % 2 == 0
    return np.where(at & np.isfinite(y), 0.0, y)


SPARSE = ("none, then some", "some, then none", "never any", "once", "one in two", "below 0 too")
EVERY = [(kind, name) for kind in ("regression", "positive", "count", "auto") for name in HOSTILE]
EVERY += [(kind, name) for kind in ("amount", "often 0") for name in (*HOSTILE, *SPARSE)]


@pytest.mark.thinned(4)
@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_no_target_breaks_what_is_said(kind: str, name: str) -> None:
    y = values(name)
    if kind == "count":
        y = np.rint(np.minimum(y, 2.0**53))
    if kind in ("amount", "often 0"):
        y = zeros_in(y, name)
    if name == "below 0 too":
        y[500::50] = -1.0
    kind = "auto" if kind == "often 0" else kind
    x = np.random.default_rng(8).standard_normal((ROWS, 2))
    model = OnlineModel(Settings(hidden=(6,), kind=kind), schema(2))
    least = 0.0 if kind in ("positive", "count", "amount") else -np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for start in range(0, ROWS, 100):
            rows = slice(start, start + 100)
            model.learn(block(x[rows], y[rows], first=start + 1))
        known = bool(np.isfinite(y).any())
        sound(model.predict(block(5.0 * x, y)), least, known)
        figures = model.card.metric_values()
    for figure in ("nll", "rmse", "crps"):
        said = figures[figure]  # None as long as the scale of a target is not known
        assert said is None or not np.isnan(said), (figure, said)
