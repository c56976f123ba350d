"""Models of made rows for the tests, and how to compare them bit for bit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from kbnn.core.state import State
from kbnn.data.batch import Rows, slice_rows
from kbnn.data.schema import Column, Place, Schema
from kbnn.model.model import Forecast, OnlineModel
from kbnn.model.serialize import from_state, to_state
from kbnn.model.settings import Settings
from kbnn.targets.prediction import join_forecasts
from tests.bench.data import block, schema, trained

CATEGORY = Column("c", "category", "feature", categories=["a", "b"])


def mixed_schema() -> Schema:
    """Three numbers, a category with two indicators, and a target."""
    names = ["x0", "x1", "x2"]
    columns = [
        *(Column(name, "number", "feature") for name in names),
        CATEGORY,
        Column("y", "number", "target"),
    ]
    layout = [*(Place(name, None) for name in names), Place("c", "a"), Place("c", "b")]
    return Schema(columns, "regression", layout=layout)


def mixed_rows(count: int, seed: int = 0) -> Rows:
    """Everything at once: gaps, stated errors, weights, a late category, growing scales, a change.

    Row 9 and some others have no target.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 5))
    x[:, 3] = rng.random(count) < 0.4
    x[:, 4] = (rng.random(count) < 0.3) & (np.arange(count) > min(300, count // 2))
    y = np.tanh(x[:, 0]) + 0.5 * x[:, 1] + x[:, 4] + 0.1 * rng.standard_normal(count)
    y[count * 4 // 5 :] *= -1.0
    x[count // 3 :, 1] *= 30.0
    x[:, 2] = np.where(np.arange(count) < 100, 2.5, x[:, 2])
    x[:, :2][rng.random((count, 2)) < 0.1] = np.nan
    x_sd = np.zeros_like(x)
    x_sd[:, 0] = np.where(rng.random(count) < 0.2, 0.3, 0.0)
    y[9::53] = np.nan
    weight = rng.choice([0.5, 1.0, 2.0], count)
    return Rows(x, y[:, None], np.arange(1, count + 1), x_sd, weight)


def learn_in(model: OnlineModel, rows: Rows, sizes: Sequence[int], again: bool = False) -> Forecast:
    """Learn a block cut into pieces; what was said of all its rows."""
    parts, at = [], 0
    for size in sizes:
        parts.append(model.learn(slice_rows(rows, at, at + size), again))
        at += size
    assert at == rows.count
    return join_forecasts(parts)


def restored(model: OnlineModel) -> OnlineModel:
    """A model that went through its plain form, as through a file."""
    header, arrays = to_state(model)
    return from_state(json.loads(json.dumps(header)), {k: v.copy() for k, v in arrays.items()})


def differences(one: OnlineModel, other: OnlineModel) -> list[str]:
    """The names of all parts in which two models differ by a bit."""
    (header, arrays), (header2, arrays2) = to_state(one), to_state(other)
    names = [
        name
        for name in sorted({*arrays, *arrays2})
        if name not in arrays
        or name not in arrays2
        or not np.array_equal(arrays[name], arrays2[name], equal_nan=True)
    ]
    return names + [
        name for name in header if json.dumps(header[name]) != json.dumps(header2[name])
    ]


def same(one: Forecast, other: Forecast) -> bool:
    """Whether two forecasts are the same bits."""
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))


def network(model: OnlineModel, member: int = 0) -> State:
    """The belief of one of a model's networks."""
    return model.learner_state.members[member].state()


def new_model(**settings: Any) -> OnlineModel:
    """A small model of mixed rows."""
    return OnlineModel(Settings(**{"hidden": (6,), **settings}), mixed_schema())


def train_line(rows: int = 200, targets: int = 1, seed: int = 0) -> OnlineModel:
    """Train a small network on targets that are linear in two inputs."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 2))
    y = np.column_stack([(10.0**k) * (x[:, 0] + 0.1 * x[:, 1]) for k in range(targets)])
    made = OnlineModel(Settings(hidden=(4,), rehearse=0, kind="regression"), schema(2, targets))
    made.learn(block(x, y))
    return made


def small_state() -> tuple[dict[str, Any], dict[str, Any]]:
    """What a small model would be saved as."""
    x = np.linspace(-1.0, 1.0, 40)
    return to_state(trained(x[:, None], x, hidden=(2,)))
