"""MAPE, median absolute error and the like, against scikit-learn on five sets."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.metrics import decision_figures
from kbnn.metrics.decision_figures import RELATIVE_ERROR, AbsoluteErrors, QuantileSketch

datasets = pytest.importorskip("sklearn.datasets")
sk = pytest.importorskip("sklearn.metrics")
linear_model = pytest.importorskip("sklearn.linear_model")

SETS = ["diabetes", "linnerud", "friedman", "sparse", "prices"]


def predicted(name: str) -> tuple[FloatArray, FloatArray]:
    """True values and forecasts of a linear model."""
    if name in ("diabetes", "linnerud"):
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        y = y if y.ndim == 1 else y[:, 0]
    elif name == "friedman":
        x, y = datasets.make_friedman1(400, random_state=0)
    elif name == "sparse":
        x, y = datasets.make_sparse_uncorrelated(300, random_state=0)
    else:
        x, y = datasets.make_regression(500, 6, noise=9.0, random_state=0)
        y = np.exp(y / 50.0)
    mean = linear_model.LinearRegression().fit(x, y).predict(x)
    return y.astype(np.float64), np.asarray(mean, dtype=np.float64)


@pytest.mark.parametrize("name", SETS)
def test_figures_of_few_rows_are_those_of_scikit_learn(name: str) -> None:
    y, mean = predicted(name)
    found = AbsoluteErrors()
    for cut in np.array_split(np.arange(len(y)), 3):
        found.add(y[cut], mean[cut])
    exact = sk.mean_absolute_percentage_error(y, mean)
    assert found.mape() == pytest.approx(exact, rel=1e-9)
    smape = np.mean(2.0 * np.abs(y - mean) / (np.abs(y) + np.abs(mean)))
    assert found.smape() == pytest.approx(smape, rel=1e-9)
    median = found.median()
    assert median is not None
    assert median.value == pytest.approx(sk.median_absolute_error(y, mean), abs=1e-9)
    assert median.error == 0.0
    naive = float(np.mean(np.abs(np.diff(y))))
    mase = sk.mean_absolute_error(y, mean) / naive
    assert found.mase(naive) == pytest.approx(mase, abs=1e-9)
    assert found.mase(0.0) is None
    weighted, w = AbsoluteErrors(), np.arange(1.0, len(y) + 1.0)
    weighted.add(y, mean, w)
    exact = sk.mean_absolute_percentage_error(y, mean, sample_weight=w)
    assert weighted.mape() == pytest.approx(exact, rel=1e-9)


def test_rows_where_a_percentage_is_undefined_do_not_count() -> None:
    found = AbsoluteErrors()
    assert found.mape() is None
    assert found.median() is None
    found.add(np.array([0.0, 0.0]), np.array([0.0, 3.0]))
    assert found.mape() is None
    assert found.smape() == 2.0
    found.add(np.array([4.0]), np.array([3.0]))
    assert found.mape() == 0.25
    assert found.median() == (1.0, 0.0)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.999])
def test_quantiles_of_many_values_are_within_their_stated_error(share: float) -> None:
    values = np.exp(np.random.default_rng(0).normal(-3.0, 4.0, 30_000))
    values[::40] = 0.0
    sketch = QuantileSketch()
    for cut in np.array_split(np.arange(len(values)), 11):
        sketch.add(values[cut])
    found, exact = (
        sketch.quantile(share),
        float(np.quantile(values, share, method="averaged_inverted_cdf")),
    )
    assert found is not None
    assert abs(found.value - exact) <= RELATIVE_ERROR * exact * 1.01
    if exact > 0.0:
        assert found.error == pytest.approx(RELATIVE_ERROR * found.value)


def test_batches_do_not_matter_and_streams_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_figures, "EXACT_ROWS", 100)
    rng = np.random.default_rng(0)
    y, mean, w = rng.standard_normal(900), rng.standard_normal(900), rng.random(900)
    whole, cut, left, right = (AbsoluteErrors() for _ in range(4))
    whole.add(y, mean, w)
    for at in np.split(np.arange(900), [3, 99, 101, 500]):
        cut.add(y[at], mean[at], w[at])
    for state, other in zip(whole.to_arrays().values(), cut.to_arrays().values(), strict=True):
        assert np.array_equal(state, other)
    left.add(y[:60], mean[:60], w[:60])
    right.add(y[60:], mean[60:], w[60:])
    for one_side, other_side in ((left, right), (right, left)):
        both = AbsoluteErrors.from_arrays(one_side.to_arrays())
        both.merge(other_side)
        assert both.median() == pytest.approx(whole.median())
        assert both.mape() == pytest.approx(whole.mape())
