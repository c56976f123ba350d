"""Shares that met their categories and classes in different orders are joined exactly."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbnn as library
from kbnn import Config, init, learn, predict
from kbnn.array_types import IntArray
from kbnn.core.config import Covariance
from kbnn.core.input_moments import leading_directions
from kbnn.core.kernel import Prediction
from kbnn.model import file as modelfile
from kbnn.model.merge import merge_models
from kbnn.model.model import OnlineModel
from kbnn.model.rescale import reorder
from tests.commands import kbnn

COVARIANCES: tuple[Covariance, ...] = ("paper", "neuron", "group", "full", "wide")
LEVELS = {"a": 0.0, "b": 5.0, "c": -4.0, "d": 2.0}


@pytest.mark.parametrize("hidden", [(), (6,), (5, 4)], ids=["linear", "one", "two"])
@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("observation", ["gaussian", "categorical", "amount"])
def test_a_reordered_network_predicts_and_learns_the_same(
    covariance: Covariance, hidden: tuple[int, ...], observation: str
) -> None:
    rng = np.random.default_rng(5)
    outputs = {"gaussian": 1, "categorical": 3, "amount": 2}[observation]
    config = Config(9, outputs, hidden=hidden, covariance=covariance, observation=observation)
    x = rng.standard_normal((120, 9)) @ rng.standard_normal((9, 9))
    x[rng.random(x.shape) < 0.1] = np.nan  # so that the inputs' own Gaussian matters
    y = np.nansum(x[:, :2], axis=1)
    y = np.digitize(y, [-1.0, 1.0]).astype(np.float64) if outputs == 3 else y
    y = np.where(y < 0.0, -np.inf, y) if outputs == 2 else y
    directions = None
    if covariance == "wide":
        config = replace(config, directions=3)
        directions = leading_directions(x, 3)
    state, _ = learn(init(config, 4, directions=directions), x[:80], y[:80])
    inputs = rng.permutation(9)
    back = np.argsort(inputs)
    classes = np.array([2, 0, 1]) if outputs == 3 else np.arange(outputs)
    moved = reorder(state, inputs, classes)
    agree(predict(state, x[80:]), predict(moved, x[80:][:, back]), classes)
    assert np.array_equal(reorder(moved, back, np.argsort(classes)).cov, state.cov)
    # One class is learned after another, so learning may depend on their order, not on the inputs'.
    same = np.arange(outputs)
    later, _ = learn(state, x[80:], y[80:])
    moved_later, _ = learn(reorder(state, inputs, same), x[80:][:, back], y[80:])
    agree(predict(later, x[:80]), predict(moved_later, x[:80][:, back]), same)


def agree(one: Prediction, other: Prediction, classes: IntArray) -> None:
    for name in ("mean", "function_var", "noise_var", "probability"):
        expected, got = getattr(one, name), getattr(other, name)
        got = got[:, classes] if got.shape[1] == len(classes) else got
        assert np.allclose(got, expected, rtol=1e-10, atol=1e-12), name


def write_share(path: Path, target: str, labels: str, orders: str, seed: int) -> None:
    """A CSV whose first rows have the categories in the order given."""
    rng = np.random.default_rng(seed)
    kinds = [*orders, *rng.choice(list(orders), 400 - len(orders))]
    sizes = rng.normal(1.0, 3.0, len(kinds))
    lines = [f"kind,size,flag,{target}"]
    for at, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
        y = LEVELS[kind] + np.sin(size) + 0.3 * rng.standard_normal()
        label = labels[at] if at < len(labels) else ("l" if y < -1 else "m" if y < 3 else "h")
        flag = "" if rng.random() < 0.1 else "yes" if size > 2.0 else "no"
        lines.append(f"{kind},{size:.4f},{flag},{label if labels else format(y, '.4f')}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train_shares(options: Sequence[str], labels: Sequence[str] = ("", "")) -> list[OnlineModel]:
    models = []
    for name, order, first, seed in (("a", "abc", labels[0], 1), ("b", "cbda", labels[1], 2)):
        write_share(Path(f"{name}.csv"), "y", first, order, seed)
        done = kbnn("train", f"{name}.csv", "-m", f"{name}.npz", "-q", *options)
        assert done.code == 0, done.err
        models.append(modelfile.load(f"{name}.npz"))
    return models


ASKED: dict[str, list[Any]] = {
    "kind": ["a", "b", "c", "a", "c"],
    "size": [0.5, 2.5, -1.0, 4.0, 3.0],
    "flag": ["no", "yes", None, "yes", "no"],
}


@pytest.mark.parametrize(
    "options",
    [
        *(("--covariance", name) for name in COVARIANCES),
        ("--layers", "none"),
        ("--layers", "8,8"),
        ("--ensemble", "2"),
    ],
    ids=lambda options: "-".join(options).strip("-"),
)
def test_joining_does_not_depend_on_whose_order_counts(
    here: Path, options: tuple[str, ...]
) -> None:
    small = () if "--layers" in options else ("--layers", "8")
    train_shares(["--task", "regression", *small, *options])
    for names in itertools.permutations(("a", "b")):
        done = kbnn("join", *(f"{name}.npz" for name in names), "-o", f"{''.join(names)}.npz")
        assert done.code == 0, done.err
    one, other = (modelfile.load(name) for name in ("ab.npz", "ba.npz"))
    assert one.schema.get_column("kind").categories == ["a", "b", "c", "d"]
    assert other.schema.get_column("kind").categories == ["c", "b", "d", "a"]
    asked = {key: [*values, "d" if key == "kind" else values[0]] for key, values in ASKED.items()}
    first, second = (library.load(name).predict(asked) for name in ("ab.npz", "ba.npz"))
    assert np.allclose(first.mean, second.mean, rtol=1e-9)
    assert np.allclose(first.sd, second.sd, rtol=1e-9)
    # Kept rows mean the same, and learning continues.
    rows = [model.learner_state.buffer.rows() for model in (one, other)]
    halves = [len(part.y) // 2 for part in rows]
    inputs = [model.schema.encoded_names() for model in (one, other)]
    order = [inputs[1].index(name) for name in inputs[0]]
    swapped = np.roll(rows[1].x[:, order], halves[1], axis=0)
    assert np.array_equal(swapped, rows[0].x, equal_nan=True)
    assert kbnn("train", "b.csv", "-m", "ab.npz", "-q").code == 0


def test_without_a_change_of_scale_the_joined_model_is_the_mixture(here: Path) -> None:
    parts = train_shares(["--task", "regression", "--units", "off", "--layers", "8"])
    whole = merge_models(parts, ["a.npz", "b.npz"])
    assert kbnn("join", "a.npz", "b.npz", "-o", "c.npz", "-q").code == 0
    weights = whole.learner_state.pool.weight
    both = [library.load(name).predict(ASKED).mean for name in ("a.npz", "b.npz")]
    mixed = sum(weight * mean for weight, mean in zip(weights, both, strict=True))
    # The first share never met 'd', which all rows here lack: its input is 0.
    assert np.allclose(library.load("c.npz").predict(ASKED).mean, mixed, rtol=1e-9)


def test_indicators_keep_their_meaning_where_shares_have_other_frequencies(here: Path) -> None:
    rng = np.random.default_rng(0)
    for name, often in (("a", 0.9), ("b", 0.2)):
        kinds = ["p", "q", *np.where(rng.random(300) < often, "p", "q")]
        labels = [kind == "p" or rng.random() < 0.2 for kind in kinds]
        lines = [f"{kind},{int(label)}" for kind, label in zip(kinds, labels, strict=True)]
        Path(f"{name}.csv").write_text("\n".join(["kind,y", *lines]) + "\n")
        words = ("--task", "classification", "--layers", "6", "--robust", "off", "-q")
        assert kbnn("train", f"{name}.csv", "-m", f"{name}.npz", *words).code == 0
    done = kbnn("join", "a.npz", "b.npz", "-o", "c.npz", "--json")
    weights = json.loads(done.out)["weights"]
    asked = {"kind": ["p", "q"]}
    both = [library.load(f"{name}.npz").predict(asked).probability for name in ("a", "b")]
    mixed = sum(weight * said for weight, said in zip(weights, both, strict=True))
    assert np.allclose(library.load("c.npz").predict(asked).probability, mixed, rtol=1e-9)


def test_classes_in_another_order_are_mapped_and_unknown_ones_refused(here: Path) -> None:
    train_shares(["--layers", "8"], ("lmh", "hml"))
    for names in itertools.permutations(("a", "b")):
        done = kbnn("join", *(f"{name}.npz" for name in names), "-o", f"{''.join(names)}.npz")
        assert done.code == 0, done.err
    one, other = (library.load(name).predict(ASKED) for name in ("ab.npz", "ba.npz"))
    classes = [modelfile.load(name).schema.classes for name in ("ab.npz", "ba.npz")]
    assert classes == [["l", "m", "h"], ["h", "m", "l"]]
    assert np.allclose(one.probability, other.probability[:, ::-1], rtol=1e-9)
    right = kbnn("evaluate", "ab.npz", "b.csv", "--json")
    assert json.loads(right.out)["accuracy"] > 0.85
    few = Path("a.csv").read_text().splitlines()
    few = [line for line in few if not line.endswith(",h")]
    Path("few.csv").write_text("\n".join(few) + "\n")
    kbnn("train", "few.csv", "-m", "few.npz", "-q", "--layers", "8")
    done = kbnn("join", "a.npz", "few.npz", "-o", "no.npz")
    assert "only one of them has seen class 'h'" in done.err
    assert (done.code != 0, Path("no.npz").exists()) == (True, False)


def test_too_many_categories_together_are_refused(here: Path) -> None:
    for name, start in (("a", 0), ("b", 40)):
        lines = [f"k{start + int(at**0.6)},{at % 7}.5,{at % 5}.25" for at in range(500)]
        Path(f"{name}.csv").write_text("\n".join(["kind,u,y", *lines]) + "\n")
        kbnn("train", f"{name}.csv", "-m", f"{name}.npz", "-q", "--task", "regression")
    done = kbnn("join", "a.npz", "b.npz", "-o", "c.npz")
    assert "column 'kind' would have more than 64 categories" in done.err
    assert done.code != 0


def test_elapsed_time_of_shares_is_counted_from_one_start(here: Path) -> None:
    first = np.datetime64("2026-01-01T00:00")
    for name, since in (("a", 0), ("b", 400)):
        hours = [first + np.timedelta64(since + at, "h") for at in range(400)]
        lines = [f"{hour},{0.01 * (since + at):.4f}" for at, hour in enumerate(hours)]
        Path(f"{name}.csv").write_text("\n".join(["time,y", *lines]) + "\n")
        words = ("--task", "regression", "--lags", "off", "--layers", "none", "-q")
        done = kbnn("train", f"{name}.csv", "-m", f"{name}.npz", *words)
        assert done.code == 0, done.err
    assert kbnn("join", "a.npz", "b.npz", "-o", "c.npz", "-q").code == 0
    clocks = [modelfile.load(f"{name}.npz").schema.clock for name in "abc"]
    assert clocks[0] is not None
    assert clocks[1] is not None
    assert clocks[0].start != clocks[1].start
    asked = {"time": ["2026-01-05T00:00", "2026-01-30T00:00"]}
    said = library.load("c.npz").predict(asked).mean
    assert np.allclose(said, [0.96, 6.96], atol=0.2)
