"""Made streams for the benches of alerts, and what a model states of each row before it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

import kbnn
from kbnn.data.batch import LearnResult, Rows
from kbnn.model.model import OnlineModel
from kbnn.targets.prediction import score_targets

Floats = NDArray[np.float64]
ROW_SECONDS = 300.0


class Made(NamedTuple):
    """A stream as a table, and the options of the model that learns it."""

    table: dict[str, Any]
    options: dict[str, Any]


class Stated(NamedTuple):
    """Rows as a detector takes them."""

    value: Floats  # NaN for classes
    z: Floats
    seconds: Floats | None


def name_times(rows: int) -> list[str]:
    """Make timestamps five minutes apart."""
    start = np.datetime64("2024-01-01T00:00:00")
    return np.datetime_as_string(start + 300 * np.arange(rows)).tolist()  # type: ignore[no-any-return]


def make_ar(rows: int, seed: int) -> Made:
    """AR(1) with coefficient 0.9, with a clock."""
    e = np.random.default_rng(seed).standard_normal(rows)
    return Made({"time": name_times(rows), "y": lfilter([1.0], [1.0, -0.9], e)}, {})


def make_t3(rows: int, seed: int) -> Made:
    """A function of an input with t3 noise."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(rows)
    return Made({"x": x, "y": np.sin(x) + 0.3 * rng.standard_t(3, rows)}, {"layers": 20})


def make_heteroscedastic(rows: int, seed: int) -> Made:
    """Noise whose sd grows from 0.14 to 7 with the input."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, rows)
    return Made({"x": x, "y": x + np.exp(x) * rng.standard_normal(rows)}, {"layers": 20})


def make_seasonal(rows: int, seed: int) -> Made:
    """A daily curve and AR(1) noise, with a clock."""
    e = np.random.default_rng(seed).standard_normal(rows)
    curve = 5.0 * np.sin(2.0 * np.pi * ROW_SECONDS * np.arange(rows) / 86400.0)
    return Made({"time": name_times(rows), "y": curve + lfilter([1.0], [1.0, -0.7], e)}, {})


def make_count(rows: int, seed: int) -> Made:
    """Poisson counts whose mean depends on an input."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(rows)
    return Made({"x": x, "y": rng.poisson(np.exp(1.0 + 0.7 * x))}, {"layers": 20, "task": "count"})


def make_class(rows: int, seed: int) -> Made:
    """Three classes, one of them rare."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(rows)
    score = np.stack([1.5 * x, -1.5 * x, np.full(rows, -3.0)]) + rng.gumbel(size=(3, rows))
    return Made({"x": x, "y": np.array(["a", "b", "c"])[score.argmax(0)]}, {"layers": 20})


STREAMS = {
    "AR(1)": make_ar,
    "t3": make_t3,
    "heteroscedastic": make_heteroscedastic,
    "seasonal": make_seasonal,
    "count": make_count,
    "class": make_class,
}


@contextmanager
def record_batches(into: list[tuple[Rows, LearnResult]]) -> Iterator[None]:
    """Record what models state of every batch that they learn."""
    learn = OnlineModel.learn_batch

    def learn_and_record(self: OnlineModel, rows: Rows, again: bool = False) -> LearnResult:
        result = learn(self, rows, again)
        into.append((rows, result))
        return result

    OnlineModel.learn_batch = learn_and_record  # type: ignore[method-assign]
    try:
        yield
    finally:
        OnlineModel.learn_batch = learn  # type: ignore[method-assign]


def state_rows(made: Made) -> Stated:
    """Learn a stream with a model; return what it stated of each row before the row."""
    batches: list[tuple[Rows, LearnResult]] = []
    with record_batches(batches):
        model = kbnn.Model("y", **made.options)
        model.learn(made.table)
    values, scores = [], []
    task = model._require_single_model().task
    for rows, (forecast, *_) in batches:
        values.append(np.full(len(rows.y), np.nan) if task.labels else rows.y[:, 0])
        scores.append(score_targets(task, rows.y, rows.number, forecast)[0][:, 0])
    rows_seen = len(made.table["y"])
    clock = ROW_SECONDS * np.arange(rows_seen, dtype=np.float64) if "time" in made.table else None
    return Stated(np.concatenate(values), np.concatenate(scores), clock)
