"""What a change of scale carries over, on a linear model with known noise: exact posteriors.

Every row that was learned counts once. After a large change 5 % of what all of them said is left,
and the last 2,048 count once more: the precision is P0 + sum_i w_i z_i z_i'/r in the new scale.
"""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.core.constants import RECENT_ROWS
from kbnn.core.layout import layout_of
from kbnn.data.batch import Rows, slice_rows
from kbnn.model import scaler
from kbnn.model.model import OnlineModel
from kbnn.model.settings import Settings
from tests.bench.data import block, schema
from tests.modelling import network


def line(rows: int, seed: int) -> Rows:
    """y = 3 x0 - x1 + noise of sd 0.4, in units far from standard ones, and weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal([50.0, -2.0], [4.0, 0.3], (rows, 2))
    y = 3.0 * x[:, :1] - x[:, 1:] + 0.4 * rng.standard_normal((rows, 1))
    return Rows(x, y, np.arange(1, rows + 1), None, rng.choice([0.5, 1.0, 2.0], rows))


def linear_model() -> OnlineModel:
    settings = Settings(
        hidden=(), covariance="full", noise=0.4, robust=False, drift=False, rehearse=0
    )
    return OnlineModel(settings, schema(2))


def posterior(model: OnlineModel, rows: Rows, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of the weights in the model's scale, row i counted counts[i] times."""
    center, scale = scaler.get_scale(model.learner_state.columns)
    z = (np.hstack([rows.y, rows.x]) - center) / scale
    assert np.max(np.abs(z)) < 8.0  # nothing is clipped
    state = network(model)
    design = np.column_stack([np.ones(len(z)), z[:, 1:]])
    assert rows.weight is not None
    share = counts * rows.weight / (0.4 / scale[0]) ** 2
    precision = np.diag(1.0 / state.prior_var) + design.T @ (share[:, None] * design)
    pull = state.prior_mean / state.prior_var + design.T @ (share * z[:, 0])
    return np.linalg.solve(precision, pull), np.linalg.inv(precision)


def agrees(model: OnlineModel, rows: Rows, counts: FloatArray) -> None:
    mean, cov = posterior(model, rows, counts)
    state = network(model)
    found = layout_of(state.config).unpack_blocks(state.cov)[0]
    assert state.mean == pytest.approx(mean, rel=1e-6, abs=1e-9)
    assert found == pytest.approx(cov, rel=1e-5, abs=1e-12)


def test_a_small_change_of_scale_loses_nothing() -> None:
    rows = line(4100, 1)
    rows.x[2100:, 0] += 1.4  # a third of its scale
    rows.y[2100:] += 3.0 * 1.4
    model = linear_model()
    model.learn(rows)
    before = linear_model()
    before.learn(line(2100, 1))
    assert model.learner_state.changes == before.learner_state.changes + 1
    agrees(model, rows, np.ones(4100))


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_a_large_change_keeps_a_twentieth_and_learns_the_last_rows_once_more(side: float) -> None:
    rows = line(2600, 2)
    rows.x[2400:, 1] += side * 4.0 * 0.3
    model, at = linear_model(), 2400
    model.learn(slice_rows(rows, 0, at))
    changes, center = (
        model.learner_state.changes,
        model.learner_state.columns[1:, scaler.CENTER].copy(),
    )
    while model.learner_state.changes == changes and at < 2600:
        model.learn(slice_rows(rows, at, at + 1))
        at += 1
    assert 2420 < at < 2520
    counts = np.full(at, 0.05)
    counts[-1024:] += 1.0
    agrees(model, slice_rows(rows, 0, at), counts)
    assert (
        model.rows == model.learner_state.get_count("distinct") == at
    )  # learned once more is no news
    new, scale = scaler.get_scale(model.learner_state.columns)
    seen = new[1:] + scale[1:] * network(model).input_mean  # and one row at the center before
    assert seen == pytest.approx((center + np.sum(rows.x[:at], axis=0)) / (at + 1), rel=1e-9)


@pytest.mark.parametrize(("rehearse", "changes"), [("auto", 1), (8, 1), (0, 0)])
def test_without_replay_an_early_scale_may_be_a_little_off(
    rehearse: str | int, changes: int
) -> None:
    """After 32 rows the scale is set, after 64 it is 7 % off."""
    at = np.arange(100)
    x = np.where(at < 32, 1.0, 1.134) * np.where(at % 2, 1.0, -1.0)
    model = OnlineModel(Settings(rehearse=rehearse, kind="regression"), schema(1))
    model.learn(block(x[:, None], np.where(at // 2 % 2, 1.0, -1.0)[:, None]))
    assert model.learner_state.changes == changes


@pytest.mark.parametrize(
    ("rows", "closely", "moves"), [(64, True, True), (64, False, False), (4096, True, False)]
)
def test_early_scales_have_half_the_tolerance(rows: int, closely: bool, moves: bool) -> None:
    columns = scaler.blank_columns(1)
    spread = 1.0 + 0.7 * scaler._SCALE_TOLERANCE
    columns[0, [scaler.COUNT, scaler.SCALE]] = rows, 1.0
    columns[0, scaler.SQUARES] = rows * spread**2
    after = scaler.refit_scale(columns, np.zeros(1), closely)
    assert after[0, scaler.SCALE] == pytest.approx(spread if moves else 1.0)


def test_an_outgrown_scale_keeps_only_the_last_rows() -> None:
    columns = scaler.blank_columns(1)
    columns[0, [scaler.COUNT, scaler.SCALE, scaler.SQUARES]] = 5000.0, 2.0, 5000.0 * 4.0
    columns[0, [scaler.RECENT, scaler.RECENT_SQUARE]] = 10.0, 109.0
    after = scaler.refit_scale(columns, np.zeros(1))
    assert after[0, scaler.COUNT] == RECENT_ROWS
    assert after[0, scaler.CENTER] == pytest.approx(2.0 * 10.0)
    assert after[0, scaler.SCALE] == pytest.approx(2.0 * np.sqrt(109.0 - 100.0))
