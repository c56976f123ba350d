"""Whatever a stream holds, a model that was saved can be read again, and predicts numbers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbnn
from kbnn.array_types import FloatArray
from kbnn.errors import ModelError
from kbnn.model.serialize import from_state, to_state
from kbnn.model.settings import BELIEF_LIMIT
from kbnn.workflows.checkpoint import Checkpoint
from tests.commands import kbnn as run_kbnn

ROWS = 320
BLOCK = 40
WILD = np.array([0.0, 1e-139, 1e139, -1e139, 1e100, -1e60, 1.0, np.nan, 1e8])


def hostile_streams() -> dict[str, tuple[FloatArray, FloatArray]]:
    """Inputs and targets that no network was made for."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((ROWS, 2))
    y = np.sin(x[:, 0]) + 0.1 * rng.standard_normal(ROWS)
    row = np.arange(ROWS)
    growth = 10.0 ** np.linspace(-60.0, 60.0, ROWS)
    jumps = np.where(row // 80 % 2, 1e60, 1e-60)
    spike, huge = (20.0 + 0.001 * rng.random(ROWS) for _ in range(2))
    spike[200], huge[200], huge[300] = 99999.0, 1e139, -1e139
    late = row >= 150
    return {
        "spike": (x, spike),
        "huge spikes": (x, huge),
        "target scale grows": (x, y * growth),
        "input scale grows": (x * growth[:, None], y),
        "both scales fall": (x * growth[::-1, None], y * growth[::-1]),
        "scales jump": (x * jumps[:, None], y * jumps[::-1]),
        "large inputs": (1e15 * (1.0 + x), 1e15 * y),
        "small numbers": (1e-130 * x, 1e-130 * y),
        "random walk": (np.cumsum(x, axis=0) * 1e20, np.cumsum(y) * 1e30),
        "exploding": (x, 1.5**row * y),
        "wild": (rng.choice(WILD, (ROWS, 2)), rng.choice(WILD, ROWS)),
        "constant, then not": (
            np.where(late[:, None], 1e90 * x, 1.0),
            np.where(late, 1e90 * y, 3.0),
        ),
    }


STREAMS = hostile_streams()
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "units off": {"units": "off"},
    "neuron": {"covariance": "neuron"},
    "full": {"covariance": "full"},
    "wide": {"covariance": "wide"},
    "wide, units off": {"covariance": "wide", "units": "off"},
    "paper": {"preset": "paper"},
    "robust off": {"robust": "off"},
    "robust and units off": {"robust": "off", "units": "off"},
    "clip off": {"clip": "off"},
    "no layer": {"layers": "none"},
    "ensemble": {"ensemble": 3},
    "fixed noise": {"noise": 0.1},
    "constant noise": {"noise": "constant"},
    "replay": {"rehearse": 2},
    "lags": {"lags": "1,2"},
    "drift off": {"drift": "off"},
    "intervals": {"intervals": "stated"},
    "tanh": {"activation": "tanh"},
    "two layers": {"layers": "8,8"},
    "two layers, units off": {"layers": "8,8", "units": "off"},
}
TASKS = ("auto", "regression", "positive", "count", "amount", "classification")

CASES = [
    case
    for case in itertools.product(STREAMS, OPTIONS, TASKS)
    if case[1:] != ("lags", "classification")  # class labels have no lags
]


def targets_of(y: FloatArray, task: str) -> Any:
    """A target of the type that has the sizes of y."""
    size = np.abs(y)
    if task == "positive":
        return size + 1e-140
    if task == "count":
        return np.minimum(np.floor(size), 9e15)
    if task == "amount":
        return np.where(size < np.nanmedian(size), 0.0, size)
    if task == "classification":
        return np.where(y > 0.0, "high", "low")
    return y


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.thinned(34)
@pytest.mark.parametrize(("stream", "options", "task"), CASES)
def test_a_model_opens_after_every_block(stream: str, options: str, task: str) -> None:
    x, y = STREAMS[stream]
    chosen = dict(OPTIONS[options]) if options == "paper" else {"layers": "8", **OPTIONS[options]}
    if task != "auto":
        chosen["task"] = task
    model = kbnn.Model(target="y", **chosen)
    target = targets_of(y, task)
    for start in range(0, ROWS, BLOCK):
        rows = slice(start, start + BLOCK)
        model.learn({"a": x[rows, 0], "b": x[rows, 1], "y": target[rows]})
        content = model.to_bytes()
        restored = kbnn.Model.from_bytes(content)
        assert restored.to_bytes() == content
        restored.record()
        said = restored.predict({"a": x[rows, 0], "b": x[rows, 1]})
        shown = said.probability if task == "classification" else said.mean
        assert not np.isnan(shown).any()


def test_a_target_far_from_all_others_leaves_a_readable_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lines = [
        f"{a:.6f},{99999 if row == 600 else 20 + 0.001 * b:.6f}"
        for row, (a, b) in enumerate(rng.random((700, 2)), start=1)
    ]
    source, model = tmp_path / "spike.csv", tmp_path / "m.npz"
    source.write_text("\n".join(["x,y", *lines]) + "\n")
    assert run_kbnn("train", source, "-m", model, "-q").code == 0
    said = run_kbnn("predict", model, source)
    assert said.code == 0, said.err
    assert said.out.count("\n") == 701


def test_a_state_that_could_not_be_read_replaces_nothing(tmp_path: Path) -> None:
    x = np.linspace(-1.0, 1.0, 100)
    model = kbnn.train({"x": x, "y": x}, layers=3)
    path = tmp_path / "m.npz"
    model.save(path)
    before = path.read_bytes()
    header, arrays = to_state(model._model)  # type: ignore[arg-type]  # it has learned
    arrays["racer0/network0/mean"][0] = 2.0 * BELIEF_LIMIT
    with (
        Checkpoint(str(path)) as checkpoint,
        pytest.raises(ModelError, match="not saved, because the new model could not be read back"),
    ):
        checkpoint.save_state(header, arrays)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["m.npz"]


def test_evidence_beyond_the_limit_is_counted_from_the_best_candidate() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(200)
    model = kbnn.train({"x": x, "y": np.exp(x + 0.1 * rng.standard_normal(200))})
    header, arrays = to_state(model._model)  # type: ignore[arg-type]  # it has learned
    evidence = [-2e16, -2e16 - 64.0, *[-3e16] * 9][: len(header["racers"])]
    assert len(evidence) > 1
    for candidate, large in zip(header["racers"], evidence, strict=True):
        candidate["evidence"] = large
    restored = from_state(header, arrays)
    expected = [0.0, -64.0, *[-1e5] * 9][: len(evidence)]
    assert [candidate.evidence for candidate in restored.candidates] == expected
