"""Partial dependence and interactions, against averages of predictions computed one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.metrics.sections import describe_dependence
from kbnn.model.dependence import (
    INTERACTION_ROWS,
    Dependence,
    Interaction,
    compute_dependences,
    compute_interaction,
    describe_interaction,
    measure_interaction,
)
from kbnn.model.model import OnlineModel
from tests.bench.data import block, trained


def learn(y: FloatArray, x: FloatArray) -> OnlineModel:
    """Train one small network."""
    return trained(x, y, hidden=(20,), seed=1)


def inputs(rows: int = 600) -> FloatArray:
    """Independent inputs."""
    return np.random.default_rng(3).uniform(-2.0, 2.0, (rows, 3))


def explain(
    model: OnlineModel, names: Sequence[str]
) -> tuple[list[Dependence], Interaction | None]:
    """Return the dependences on columns, and the interaction of the first two."""
    card = model.card
    spec = describe_dependence(model.task, card.scores[0], card.summaries, 0)
    return (
        compute_dependences(model, card, names, spec),
        compute_interaction(model, card, names, spec),
    )


def test_dependence_is_the_average_of_predictions_of_sampled_rows() -> None:
    x = inputs()
    model = learn(np.sin(x[:, 0]) + x[:, 1], x)
    found, _ = explain(model, model.schema.features[:2])
    sample = model.card.summaries.sample.x
    rows = sample[:: max(1, len(sample) // 64)][:64]
    for one in found:
        column = model.schema.features.index(one.feature)
        for at in (0, 17, 39):
            changed = rows.copy()
            changed[:, column] = one.grid[at]
            forecast = model.predict(block(changed, np.full(len(rows), np.nan)))
            assert one.mean[at] == pytest.approx(np.mean(forecast.mean[:, 0]), rel=1e-12)
            var = np.mean(forecast.function_sd[:, 0] ** 2)
            assert one.sd[at] == pytest.approx(np.sqrt(var), rel=1e-12)


def test_the_band_holds_the_true_dependence() -> None:
    x = inputs(1500)
    y = np.sin(x[:, 0]) + x[:, 1] + 0.1 * np.random.default_rng(0).standard_normal(1500)
    model = learn(y, x)
    (found,), _ = explain(model, model.schema.features[:1])
    level = np.mean(found.mean - np.sin(found.grid))
    error = np.abs(found.mean - level - np.sin(found.grid))
    assert np.mean(error <= 3.0 * found.sd + 0.1) > 0.9


def test_interactions_of_products_and_sums_are_told_apart() -> None:
    x = inputs(1500)
    product = learn(x[:, 0] * x[:, 1] + 0.1 * x[:, 2], x)
    plus = learn(x[:, 0] + x[:, 1] + 0.1 * x[:, 2], x)
    _, crossed = explain(product, product.schema.features)
    _, added = explain(plus, plus.schema.features)
    assert crossed is not None
    assert added is not None
    assert crossed.share is not None
    assert added.share is not None
    assert crossed.error is not None
    assert crossed.share > 0.9
    assert added.share < 0.02
    assert 0.0 < crossed.error < 0.2
    assert describe_interaction(crossed).endswith("is interaction.")


def test_an_interaction_is_the_table_of_average_predictions() -> None:
    x = inputs()
    model = learn(x[:, 0] * x[:, 1], x)
    _, pair = explain(model, model.schema.features)
    assert pair is not None
    sample = model.card.summaries.sample.x
    rows = sample[:: max(1, len(sample) // INTERACTION_ROWS)][:INTERACTION_ROWS]
    for g, h in ((0, 0), (3, 11), (11, 5)):
        changed = rows.copy()
        changed[:, 0], changed[:, 1] = pair.grids[0][g], pair.grids[1][h]
        forecast = model.predict(block(changed, np.full(len(rows), np.nan)))
        assert pair.mean[g, h] == pytest.approx(np.mean(forecast.mean[:, 0]), rel=1e-12)


def test_the_share_of_a_table_is_exact() -> None:
    rows, columns = np.arange(5.0), np.array([-1.0, 0.0, 1.0])
    assert measure_interaction(rows[:, None] + columns) == pytest.approx(0.0, abs=1e-15)
    centred = rows - rows.mean()
    assert measure_interaction(centred[:, None] * columns) == pytest.approx(1.0)
    mixed = centred[:, None] * columns + 2.0 * columns
    assert measure_interaction(mixed) == pytest.approx(20.0 / (20.0 + 40.0))
    assert measure_interaction(np.full((4, 4), 7.0)) is None


def test_one_column_has_no_interaction() -> None:
    x = inputs()[:, :1]
    model = learn(x[:, 0], x)
    found, pair = explain(model, model.schema.features)
    assert len(found) == 1
    assert pair is None
