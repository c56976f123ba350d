"""`--preset paper` is the paper's algorithm and nothing else: row by row, and on its Moon table."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from kbnn.array_types import FloatArray
from kbnn.core.constants import LAMBDA
from kbnn.data.batch import Rows
from kbnn.data.schema import Column, Place, Schema
from kbnn.errors import DataError, UsageError
from kbnn.model import file as modelfile
from kbnn.model.model import OnlineModel
from kbnn.model.settings import PRESETS, Settings
from kbnn.model.warmup import finish_warmup
from kbnn.workflows.options import SettingOverrides
from samples import make, tiny
from tests.commands import kbnn
from tests.modelling import differences, network, restored
from tests.project.test_tiny import opened

SIGMOID = {"task": "classification", "classes": ["0", "1"], "closed": True}


def schema(inputs: int, **task: Any) -> Schema:
    names = [f"x{i}" for i in range(inputs)]
    columns = [Column(name, "number", "feature") for name in names]
    return Schema(
        [*columns, Column("y", "number", "target")],
        **{"task": "regression", **task},
        layout=[Place(name, None) for name in names],
    )


def rows(x: FloatArray, y: FloatArray, first: int = 1) -> Rows:
    return Rows(x, y.reshape(len(x), 1), np.arange(first, first + len(x)))


def raw(count: int) -> tuple[FloatArray, FloatArray]:
    """Columns of any center and scale, some values far out."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((count, 3)) * [0.3, 2.0, 1.0] + [1.0, 0.0, -2.0]
    x[::50, 1] = 30.0
    return x, np.sin(3.0 * x[:, 0]) + 0.3 * x[:, 1] + 0.1 * rng.standard_normal(count) + 5.0


@pytest.mark.parametrize(
    ("hidden", "noise", "count"),
    [((), 0.3, 250), ((8,), 0.3, 250), ((6, 5), 0.3, 250), ((8,), 0.0, 40), ((6, 5), 0.0, 40)],
)
def test_the_preset_is_the_algorithm_on_one_screen(
    hidden: tuple[int, ...], noise: float, count: int
) -> None:
    """Exact labels take digits with every row: there are fewer of them."""
    x, y = raw(count)
    model = OnlineModel(
        SettingOverrides(
            preset="paper", hidden=hidden, noise=noise, units=False, seed=3
        ).make_settings(),
        schema(3),
    )
    finish_warmup(model)
    layers = opened(network(model))
    for epoch in range(2):
        for i in range(len(x)):
            passes = tiny.forward(layers, x[i])
            said = model.learn(rows(x[i : i + 1], y[i : i + 1], i + 1), again=epoch > 0)
            assert said.mean[0, 0] == pytest.approx(passes[-1].mu_a[0], rel=1e-10, abs=1e-10)
            sd = np.sqrt(passes[-1].var_a[0])
            assert said.function_sd[0, 0] == pytest.approx(sd, rel=1e-10, abs=1e-10)
            assert said.noise_sd[0, 0] == pytest.approx(noise, rel=1e-12)
            layers = tiny.learn(layers, passes, float(y[i]), noise**2)
    for ours, theirs in zip(layers, opened(network(model)), strict=True):
        np.testing.assert_allclose(ours.mean, theirs.mean, rtol=0.0, atol=1e-10)
        np.testing.assert_allclose(ours.cov, theirs.cov, rtol=0.0, atol=1e-10)
    unlike = [
        model.learner_state.get_count(name)
        for name in ("bounded", "raised", "repairs", "rejected", "clipped")
    ]
    assert unlike == [0] * 5


def test_a_sigmoid_output_is_one_more_activation() -> None:
    """The label itself becomes the posterior of z, as printed: k = cov/var_z on the last layer."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((120, 3))
    label = (x[:, 0] + 0.5 * x[:, 1] > 0.0).astype(np.float64)
    model = OnlineModel(
        SettingOverrides(preset="paper", hidden=(7,), units=False, seed=2).make_settings(),
        schema(3, **SIGMOID),
    )
    finish_warmup(model)
    layers, raised = opened(network(model)), 0
    for i in range(len(x)):
        passes = tiny.forward(layers, x[i])
        mu, var = float(passes[-1].mu_a[0]), float(passes[-1].var_a[0])
        t = np.sqrt(1.0 + LAMBDA**2 * var)
        p = float(norm.cdf(LAMBDA * mu / t))
        cov = LAMBDA * var / t * float(norm.pdf(LAMBDA * mu / t))
        printed, least = p * (1.0 - p) * (1.0 - 1.0 / t), cov**2 / var
        raised += printed < least
        k = cov / max(printed, least)
        said = model.learn(rows(x[i : i + 1], label[i : i + 1], i + 1))
        assert said.probability[0] == pytest.approx([1.0 - p, p], rel=1e-10, abs=1e-10)
        change = np.array([k * (label[i] - p) / var])
        layers = smoothed(layers, passes, change, np.array([k * cov / var**2]))
    for ours, theirs in zip(layers, opened(network(model)), strict=True):
        np.testing.assert_allclose(ours.mean, theirs.mean, rtol=0.0, atol=1e-10)
        np.testing.assert_allclose(ours.cov, theirs.cov, rtol=0.0, atol=1e-10)
    assert model.learner_state.get_count("raised") == raised > 10


def smoothed(
    layers: list[tiny.Layer], passes: list[tiny.Pass], alpha: FloatArray, beta: FloatArray
) -> list[tiny.Layer]:
    """Smoothing II and I from D mu_a / var_a and -D var_a / var_a^2 of the outputs."""
    learned = []
    for i in range(len(layers) - 1, -1, -1):
        (mean, cov), gain = layers[i], passes[i].gain
        shrunk = cov - beta[:, None, None] * gain[:, :, None] * gain[:, None, :]
        learned.append(tiny.Layer(mean + alpha[:, None] * gain, shrunk))
        if i:
            slope = passes[i - 1].cov_az / passes[i - 1].var_a
            alpha, beta = slope * (mean[:, 1:].T @ alpha), slope**2 * (mean[:, 1:].T ** 2 @ beta)
    return learned[::-1]


def test_options_beside_the_preset_win_and_each_can_be_said_alone() -> None:
    chosen = SettingOverrides(preset="paper", noise=0.1, robust=True).make_settings()
    assert chosen == replace(Settings(**PRESETS["paper"]), preset="paper", noise=0.1, robust=True)
    plain = Settings()
    for name, value in PRESETS["paper"].items():
        assert getattr(chosen, name) == value or name in ("noise", "robust")
        assert name == "hidden" or getattr(plain, name) != value


def test_without_units_cutting_changes_no_bit_and_a_model_goes_on(tmp_path: Path) -> None:
    x, y = raw(200)
    x[3, 1] = np.nan
    settings = SettingOverrides(preset="paper", hidden=(5,), noise=0.2, units=False).make_settings()
    one, two = OnlineModel(settings, schema(3)), OnlineModel(settings, schema(3))
    one.learn(rows(x, y))
    for start in range(0, 200, 7):
        two.learn(rows(x[start : start + 7], y[start : start + 7], start + 1))
        two = restored(two)
    assert differences(one, two) == []
    assert not one.is_warming_up
    assert one.learner_state.changes == 0


def test_labels_without_units_that_no_belief_could_hold_are_rejected() -> None:
    settings = SettingOverrides(preset="paper", hidden=(5,), noise=0.2, units=False).make_settings()
    model = OnlineModel(settings, schema(3))
    x, y = raw(50)
    y[10] = 1e90
    x[20, 0] = 1e90
    model.learn(rows(x, y))
    assert (model.rejected_rows, model.rows) == (1, 49)
    assert differences(model, restored(model)) == []


def test_the_prior_variance_by_rule_and_by_number() -> None:
    def variances(**stated: Any) -> list[float]:
        model = OnlineModel(Settings(hidden=(9,), units=False, **stated), schema(3))
        finish_warmup(model)
        return sorted({round(float(v), 12) for v in network(model).prior_var})

    assert variances() == [0.1, 0.25]
    assert variances(prior_variance="he") == [0.2, 0.5]
    assert variances(prior_variance="glorot") == pytest.approx([2 / 13, 2 / 11])
    assert variances(prior_variance=0.7) == [0.7]


def moons(folder: Path, seed: int) -> tuple[Path, Path]:
    """A set of the paper's size in two files, 1,350 rows to learn and 150 to be judged on."""
    x, label = make.moons(1500, seed=1000 + seed)
    parts = (folder / f"moons{seed}.csv", folder / f"test{seed}.csv")
    for path, part in zip(parts, (slice(1350), slice(1350, None)), strict=True):
        with path.open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["x1", "x2", "label"])
            table.writerows([*point, int(c)] for point, c in zip(x[part], label[part], strict=True))
    return parts


@pytest.mark.parametrize("extra", [[], ["--noise", "0.1", "--hidden-noise", "0.01"]], ids=len)
def test_the_moon_table_from_the_shell(extra: list[str], tmp_path: Path) -> None:
    """Printed after 50, 1,000 and 1,350 rows: 88 %, 97.87 % and 99.93 %."""
    model, accuracy = tmp_path / "m.npz", []
    for seed in range(3):
        learn, judge = moons(tmp_path, seed)
        for limit in ("50", "1000", "1350"):
            options = ["--layers", "10,10", "--seed", str(seed), *extra]
            train = ["train", str(learn), "--preset", "paper", "--limit", limit, *options]
            assert kbnn(*train, "-m", model, "--fresh", "-q").code == 0
            accuracy.append(json.loads(kbnn("evaluate", model, judge, "--json").out)["accuracy"])
    found = np.reshape(accuracy, (3, 3)).mean(axis=0)
    assert abs(found[0] - 0.88) < 0.05
    assert found[1] > 0.97
    assert found[2] > 0.99


def test_inspect_says_as_printed_only_where_it_is(tmp_path: Path) -> None:
    table, model = tmp_path / "a.csv", tmp_path / "m.npz"
    x, y = raw(80)
    lines = [",".join(map(str, [*row, value])) for row, value in zip(x, y, strict=True)]
    table.write_text("a,b,c,y\n" + "\n".join(lines) + "\n")

    def algorithm(*options: str) -> str:
        ran = kbnn("train", table, "-m", model, "--fresh", "-q", "--layers", "6", *options)
        assert (ran.code, ran.err) == (0, "")
        found = json.loads(kbnn("inspect", model, "--json").out)["departures"]
        shown = " ".join(kbnn("inspect", model).out.split())
        assert ("the paper's, as printed" in shown) == (found == [])
        return "none" if found is None else "; ".join(found)

    assert algorithm("--preset", "paper", "--units", "off") == ""
    assert algorithm("--preset", "paper", "--units", "off", "--noise", "0.2") == (
        "labels have a noise of sd 0.2"
    )
    exact = "--activation sigmoid --sigmoid-variance exact --hidden-noise 0.01 --drift auto"
    assert algorithm("--preset", "paper", "--units", "off", *exact.split()) == (
        "hidden units have a noise of variance 0.01; the exact variance of sigmoids; "
        "drift is monitored"
    )
    assert "variances of sigmoids raised" in algorithm(
        "--preset", "paper", "--units", "off", "--activation", "sigmoid"
    )
    assert algorithm() == "none"
    assert "the noise is learned" in algorithm("--covariance", "paper", "--rehearse", "off")


def test_a_model_goes_on_with_its_preset_and_no_other(tmp_path: Path) -> None:
    learn, _ = moons(tmp_path, 0)
    model = tmp_path / "m.npz"
    train = ["train", str(learn), "-m", str(model), "-q", "--limit", "60"]
    assert kbnn(*train, "--preset", "paper", "--noise", "0.1").code == 0
    assert kbnn(*train, "--again").code == 0
    assert kbnn(*train, "--again", "--preset", "paper").code == 0
    assert modelfile.load(str(model)).settings.noise == 0.1
    ran = kbnn(*train, "--again", "--preset", "none")
    assert (ran.code, ran.err) == (
        2,
        f"kbnn: --preset none contradicts {model}, which has paper "
        "(leave out --preset, or start over with --fresh)\n",
    )


IMPOSSIBLE = {
    "--hidden-noise 0.1": "--hidden-noise 0.1 needs --covariance paper, not auto",
    "--sigmoid-variance printed --covariance group": "--sigmoid-variance printed needs "
    "--covariance paper, not group",
    "--preset paper --covariance full": "--sigmoid-variance printed (it comes with --preset paper) "
    "needs --covariance paper, not full",
    "--layers 5,5 --activation relu,tanh,relu": "--activation relu,tanh,relu is for 3 hidden "
    "layers, but --layers 5,5 has 2",
    "--layers auto --activation relu,tanh": "--activation relu,tanh is for 2 hidden layers: "
    "--layers must say their sizes",
    "--preset print": "--preset is none, fast, best or paper, not 'print'",
    "--hidden-noise=-1": "--hidden-noise is a variance, 0 or more and less than 1e+20; not '-1'",
    "--prior-variance 0": "--prior-variance is fan-in, he, glorot or a variance greater than 0; "
    "not '0'",
    "--standardize sometimes": "--standardize is auto or off, not 'sometimes'",
}


@pytest.mark.parametrize("options", IMPOSSIBLE)
def test_what_is_impossible_is_said(options: str, tmp_path: Path) -> None:
    learn, _ = moons(tmp_path, 0)
    ran = kbnn("train", learn, "-m", tmp_path / "m.npz", *options.split())
    assert (ran.code, ran.out, ran.err) == (2, "", f"kbnn: {IMPOSSIBLE[options]}\n")


def test_a_sigmoid_output_has_two_classes() -> None:
    three = schema(3, task="classification", classes=["a", "b", "c"], closed=True)
    settings = SettingOverrides(preset="paper", units=False).make_settings()
    with pytest.raises(
        UsageError, match=r"supports two classes, but 'y' has 3 \(use --link probit\)"
    ):
        OnlineModel(settings, three)
    model = OnlineModel(settings, schema(3, task="classification", classes=["a", "b"]))
    x, _ = raw(9)
    grown = schema(3, task="classification", classes=["a", "b", "c"])
    block = rows(x, np.array([0, 1, 1, 0, 0, 2, 1, 1, 0.0]))._replace(schema=grown)
    with pytest.raises(DataError, match="'y' has a third class, 'c'"):
        model.learn(block)


def test_weights_and_covariances_as_a_file(tmp_path: Path) -> None:
    learn, _ = moons(tmp_path, 0)
    model, to = tmp_path / "m.npz", tmp_path / "w.npz"
    for options in (["--preset", "paper", "--layers", "4,3"], ["--layers", "12"]):
        assert kbnn("train", learn, "-m", model, "--fresh", "-q", *options).code == 0
        assert kbnn("inspect", model, "--weights-file", to).code == 0
        state, listed = network(modelfile.load(str(model))), np.load(to, allow_pickle=False)
        mean, var = listed["network1/mean"], np.zeros(state.config.weights)
        assert np.array_equal(mean, state.mean)
        blocks = [name for name in listed.files if name.endswith("/cov")]
        for name in blocks:
            of, cov = listed[name.replace("cov", "weights")], listed[name]
            assert np.array_equal(cov, cov.T)
            var[of] = np.diag(cov)
        table = list(csv.DictReader(kbnn("inspect", model, "--weights").out.splitlines()))
        assert np.allclose(np.sqrt(var), [float(row["sd"]) for row in table], rtol=1e-12)
        assert [int(row["layer"]) for row in table] == listed["network1/layer"].tolist()
        assert [int(row["unit"]) for row in table] == listed["network1/unit"].tolist()
        assert listed["network1/source"][:4].tolist() == [0, 1, 2, 0]
    ran = kbnn("inspect", model, "--weights-file", "w.csv")
    assert (ran.code, ran.err) == (
        2,
        "kbnn: --weights-file 'w.csv': the name must end in .npz\n",
    )
    assert kbnn("inspect", model, "--weights-file", model).code == 2
