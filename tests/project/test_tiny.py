"""The algorithm on one screen is the library's scheme `paper`, row after row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kbnn import Config, init
from kbnn.core.kernel import open_session
from kbnn.core.layout import layout_of
from kbnn.core.state import State
from samples import tiny

NOISE = 0.05


def opened(state: State) -> list[tiny.Layer]:
    """A belief of the library as layers of neurons."""
    layout = layout_of(state.config)
    blocks, layers = iter(layout.unpack_blocks(state.cov)), []
    for layer in range(layout.layers):
        mean = layout.weight_matrix(state.mean, layer).copy()
        layers.append(tiny.Layer(mean, np.stack([next(blocks) for _ in mean])))
    return layers


@pytest.mark.parametrize("hidden", [(), (8,), (50,), (6, 5)], ids=str)
def test_tiny_is_the_papers_scheme(hidden: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((300, 3))
    y = np.sin(x[:, 0]) + 0.3 * x[:, 1] + 0.2 * rng.standard_normal(300)
    config = Config(3, hidden=hidden, covariance="paper", noise=NOISE, robust=False, drift=False)
    state = init(config, seed=3)
    session, layers = open_session(state), opened(state)
    for row, label in zip(x, y, strict=True):
        passes = tiny.forward(layers, row)
        said = session.learn(row[None].copy(), np.array([[label]]))
        assert passes[-1].mu_a[0] == pytest.approx(said.mean[0, 0], rel=1e-12, abs=1e-12)
        assert passes[-1].var_a[0] == pytest.approx(said.function_var[0, 0], rel=1e-12)
        layers = tiny.learn(layers, passes, float(label), NOISE)
    for ours, theirs in zip(layers, opened(session.state()), strict=True):
        np.testing.assert_allclose(ours.mean, theirs.mean, rtol=0.0, atol=1e-12)
        np.testing.assert_allclose(ours.cov, theirs.cov, rtol=0.0, atol=1e-12)


def test_tiny_fits_one_screen_and_begins_where_the_library_does() -> None:
    text = Path(tiny.__file__).read_text()
    assert len(text.splitlines()) <= 100
    assert "kbnn" not in text
    layers = tiny.new([3, 40, 1], np.random.default_rng(0))
    assert [layer.mean.shape for layer in layers] == [(40, 4), (1, 41)]
    assert layers[0].cov[0, 0, 0] == 0.25
    assert np.var(layers[0].mean) == pytest.approx(0.25, rel=0.3)
