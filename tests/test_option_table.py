"""The table of options: every spelling and its meaning, and where values are stored."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pickle
from typing import Any

import numpy as np
import pytest

from kbnn.data.read_options import ReadOptions
from kbnn.errors import ArgumentError, UsageError
from kbnn.model.settings import AlertRate, Settings
from kbnn.option_table import GROUPS, OPTIONS, Option, list_keywords, list_options
from kbnn.workflows.options import TrainOptions, build_train_options
from kbnn_cli.app import COMMANDS, load_command
from kbnn_cli.command_options import parse_command_line

READING = {
    "--limit 5": ("limit", 5),
    "--on-error skip": ("on_error", "skip"),
    "--bad-rows b.csv": ("bad_rows", "b.csv"),
    "--na x --na y": ("na", ("x", "y")),
    "--format tsv": ("format", "tsv"),
    r"--delimiter \t": ("delimiter", "\t"),
    "--header": ("header", True),
    "--no-header": ("header", False),
    "--engine dask": ("engine", "dask"),
    "--engine here": ("engine", "local"),
    "--cluster local:3": ("cluster", "local:3"),
    "--quantiles 0.1,90%": ("quantiles", (0.1, 0.9)),
    "--json": ("json", True),
    "-q": ("quiet", True),
    "--quiet": ("quiet", True),
}
SPELLINGS: dict[str, dict[str, tuple[str, Any]]] = {
    "train": {
        **READING,
        "-m a.npz": ("model", "a.npz"),
        "--model a.npz": ("model", "a.npz"),
        "--fresh": ("fresh", True),
        "--resume": ("resume", True),
        "--relearn": ("relearn", True),
        "--again": ("relearn", True),
        "--checkpoint-every 2": ("checkpoint_every", 2.0),
        "--key a,b --key c": ("key", ("a", "b", "c")),
        "--pooling": ("pooling", True),
        "--no-pooling": ("pooling", False),
        "--common": ("pooling", True),
        "--no-common": ("pooling", False),
        "--max-open-models 7": ("max_open_models", 7),
        "--open 7": ("max_open_models", 7),
        "--target a,b": ("target", ("a", "b")),
        "--features a --features b": ("features", ("a", "b")),
        "--ignore a": ("ignore", ("a",)),
        "--weight w": ("weight", "w"),
        "--input-sd": ("input_sd", True),
        "--categorical a,b": ("categorical", ("a", "b")),
        "--numeric a": ("numeric", ("a",)),
        "--hash a:8": ("hash", (("a", 8),)),
        "--task count": ("task", "count"),
        "--time t": ("time", "t"),
        "--time-unit ms": ("time_unit", "ms"),
        "--lags 1,2": ("lags", "1,2"),
        "--known-ahead a,b": ("known_ahead", ("a", "b")),
        "--holidays DE": ("holidays", "DE"),
        "--id i": ("id", "i"),
        "--max-pending 9": ("max_pending", 9),
        "--wait 9": ("max_pending", 9),
        "--epochs 2": ("epochs", 2),
        "--shuffle": ("shuffle", True),
        "--test-split 10%": ("test_split", 0.1),
        "--decimal ,": ("decimal", ","),
        "--thousands .": ("thousands", "."),
        "--predictions p.csv": ("predictions", "p.csv"),
        "--interval 0.8": ("interval", 0.8),
        "--surprise": ("surprise", True),
        "--digits 4": ("digits", 4),
        "--alerts a.csv": ("alerts", "a.csv"),
        "--alert-rate 1e-4": ("alert_rate", AlertRate(1e-4)),
        "--alert-rate 2/day": ("alert_rate", AlertRate(2.0, "day")),
        "--plot a.png": ("plot", "a.png"),
        "--watch all": ("watch", ("all",)),
        "--watch a,b": ("watch", ("a", "b")),
        "--fail-if alerts>0": ("fail_if", ("alerts>0",)),
        "--alert-exec notify": ("alert_exec", "notify"),
        "--log l.jsonl": ("log", "l.jsonl"),
        "--dry-run": ("dry_run", True),
        "--preset paper": ("preset", "paper"),
        "--layers 5,4": ("layers", (5, 4)),
        "--layers none": ("layers", ()),
        "--layers auto": ("layers", "auto"),
        "--activation relu,tanh": ("activation", "relu,tanh"),
        "--preset best": ("preset", "best"),
        "--encoding piecewise": ("encoding", "piecewise"),
        "--covariance full": ("covariance", "full"),
        "--group-size 3": ("group_size", 3),
        "--noise 0.5": ("noise", 0.5),
        "--noise constant": ("noise", "constant"),
        "--hidden-noise 0.1": ("hidden_noise", 0.1),
        "--prior-variance he": ("prior_variance", "he"),
        "--prior-variance 2": ("prior_variance", 2.0),
        "--link sigmoid": ("link", "sigmoid"),
        "--sigmoid-variance printed": ("sigmoid_variance", "printed"),
        "--standardize off": ("standardize", False),
        "--units off": ("standardize", False),
        "--clip off": ("clip", False),
        "--inflate off": ("inflate", False),
        "--widen auto": ("inflate", True),
        "--intervals model": ("intervals", "stated"),
        "--intervals tracked": ("intervals", "tracked"),
        "--robust off": ("robust", False),
        "--drift off": ("drift", False),
        "--class-weight balanced": ("class_weight", "balanced"),
        "--ensemble 3": ("ensemble", 3),
        "--replay 4": ("replay", 4),
        "--rehearse off": ("replay", 0),
        "--seed 11": ("seed", 11),
    },
    "predict": {
        **READING,
        "--on-error skip": ("on_error", "keep"),
        "--on-error stop": ("on_error", "stop"),
        "--horizon 3": ("horizon", 3),
        "-o p.csv": ("output", "p.csv"),
        "--output p.csv": ("output", "p.csv"),
        "--interval 80%": ("interval", 0.8),
        "--surprise": ("surprise", True),
        "--digits 4": ("digits", 4),
        "--intervals stated": ("intervals", "stated"),
        "--decompose": ("decompose", True),
        "--explain": ("explain", True),
        "--samples 5": ("samples", 5),
        "--seed 3": ("seed", 3),
        "--ask 4": ("ask", 4),
        "--explain-text 3": ("explain_text", 3),
        "--only-predictions": ("only_predictions", True),
        "--plot p.png": ("plot", "p.png"),
    },
    "evaluate": {
        **READING,
        "--alerts a.csv": ("alerts", "a.csv"),
        "--alert-rate 1/week": ("alert_rate", AlertRate(1.0, "week")),
        "--watch inputs": ("watch", ("inputs",)),
        "--events e.csv": ("events", "e.csv"),
        "--learn": ("learn", True),
        "--horizon 3": ("horizon", 3),
        "--metric auc": ("metric", "auc"),
        "--threshold 30%": ("threshold", 0.3),
        "--cost-fn 5": ("cost_fn", 5.0),
        "--positive spam": ("positive", "spam"),
        "--cost-fp 1": ("cost_fp", 1.0),
        "--fail-if rmse>3 --fail-if r2<0": ("fail_if", ("rmse>3", "r2<0")),
        "--intervals calibrated": ("intervals", "tracked"),
        "--report r.html": ("report", "r.html"),
        "--plot p.png": ("plot", "p.png"),
        "--no-plots": ("no_plots", True),
    },
    "inspect": {
        "--key d7": ("key", "d7"),
        "--export e.npz": ("export", "e.npz"),
        "--force": ("force", True),
        "--weights": ("weights", True),
        "--weights-file w.npz": ("weights_file", "w.npz"),
        "--diff o.npz": ("diff", "o.npz"),
        "--report r.html": ("report", "r.html"),
        "--plot p.png": ("plot", "p.png"),
        "--no-plots": ("no_plots", True),
        "--json": ("json", True),
    },
    "join": {
        "-o c.npz": ("output", "c.npz"),
        "--output c.npz": ("output", "c.npz"),
        "--force": ("force", True),
        "--json": ("json", True),
        "-q": ("quiet", True),
        "--quiet": ("quiet", True),
    },
}
"""Every option up to version 0.2.0, by command and as typed, with its parsed value."""
ARGUMENTS = {"train": "d.csv", "predict": "m d.csv", "evaluate": "m d.csv", "inspect": "m"}


@pytest.mark.parametrize(
    ("name", "typed"), [(command, typed) for command in SPELLINGS for typed in SPELLINGS[command]]
)
def test_every_spelling_is_parsed_to_the_same_value(name: str, typed: str) -> None:
    words = f"{typed} {ARGUMENTS.get(name, 'a b')}".split()
    if name == "join" and SPELLINGS[name][typed][0] != "output":
        words += ["-o", "x"]
    given = load_command(name).make_context(name, words).params
    option, value = SPELLINGS[name][typed]
    assert parse_command_line(name, given)[option] == value


def test_no_option_is_missing_from_the_spellings() -> None:
    """A new option is added above, so that its spelling stays."""
    for name, spellings in SPELLINGS.items():
        flags = {word for typed in spellings for word in typed.split() if word.startswith("-")}
        for param in load_command(name).params:
            if param.param_type_name == "option" and param.name != "help_all":
                assert {*param.opts, *param.secondary_opts} <= flags, param.name


HOMES: dict[str, Any] = {"settings": Settings, "read": ReadOptions, "run": TrainOptions}


@pytest.mark.parametrize("option", list_keywords().values(), ids=lambda option: option.name)
def test_an_option_has_a_field_with_its_default(option: Option) -> None:
    fields = {field.name: field.default for field in dataclasses.fields(HOMES[option.home])}
    assert option.stored_name in fields
    if option.home != "settings":
        default = None if option.default is None else option.parse_value(option.default)
        stored = fields[option.stored_name]
        assert default == stored or (default is None and stored == "")
    else:
        assert option.default is None


def test_options_are_declared_once_for_a_command() -> None:
    for command in COMMANDS:
        names = [option.name for option in list_options(command)]
        assert len(names) == len(set(names))
    assert {option.group for option in OPTIONS} < set(GROUPS)
    assert {name for option in OPTIONS for name in option.commands.split()} < set(COMMANDS)


@pytest.mark.parametrize(
    ("words", "stored"),
    [
        ({"layers": 7}, {"hidden": (7,)}),
        ({"layers": np.int64(7)}, {"hidden": (7,)}),
        ({"layers": [7, 3]}, {"hidden": (7, 3)}),
        ({"layers": np.array([7, 3])}, {"hidden": (7, 3)}),
        ({"layers": ()}, {"hidden": ()}),
        ({"layers": 0}, {"hidden": ()}),
        ({"layers": None}, {"hidden": "auto"}),
        ({"layers": "best"}, {"hidden": "best"}),
        ({"replay": True}, {"rehearse": "auto"}),
        ({"replay": False}, {"rehearse": 0}),
        ({"activation": ["relu", "tanh"], "layers": "4,4"}, {"activation": "relu,tanh"}),
        ({"noise": 0.1 + 0.2}, {"noise": 0.1 + 0.2}),
        ({"robust": False, "drift": "off"}, {"robust": False, "drift": False}),
        ({"ensemble": 2.0}, {"ensemble": 2}),
        ({"task": "count"}, {"kind": "count"}),
        ({"task": "classification"}, {"kind": "auto"}),
    ],
)
def test_values_in_python_are_stored_as_they_are(
    words: dict[str, Any], stored: dict[str, Any]
) -> None:
    settings = build_train_options((), "y", **words).settings
    assert {name: getattr(settings, name) for name in stored} == stored


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        ({"layers": 2.5}, UsageError, "--layers takes sizes such as 50 or 50,50"),
        ({"layers": -1}, UsageError, "--layers takes sizes"),
        ({"ensemble": 2.5}, ArgumentError, "--ensemble takes a whole number, not '2.5'"),
        ({"epochs": "x"}, ArgumentError, "--epochs takes a whole number, not 'x'"),
        ({"replay": "later"}, UsageError, "--replay is auto, off, or a number up to 100"),
        ({"replay": 101}, UsageError, "--replay is auto, off, or a number up to 100"),
        ({"noise": float("nan")}, UsageError, "--noise is auto, constant"),
        ({"prior_variance": 0}, UsageError, "--prior-variance is fan-in, he, glorot"),
        ({"hidden_noise": 1e20}, UsageError, "--hidden-noise is a variance"),
        ({"checkpoint_every": "soon"}, ArgumentError, "--checkpoint-every takes a number"),
        ({"interval": 1.0}, UsageError, "^--interval must lie between 0 and 1, not 1$"),
        ({"quantiles": (0.5, 0.0)}, UsageError, "^--quantiles must lie between 0 and 1, not 0$"),
        ({"engine": "moon"}, UsageError, "--engine is local or dask"),
        ({"time_unit": "eon"}, UsageError, "--time-unit is"),
        ({"lyers": 3}, UsageError, "no such option: lyers: did you mean layers"),
        ({"json": True}, UsageError, "no such option: json"),
    ],
)
def test_bad_values_in_python_are_refused(
    words: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        build_train_options((), "y", **words)


LAYERS = "layers='auto',"
NETWORK = (
    f"{LAYERS} activation='relu', covariance='auto', group_size=None, noise='auto', robust=True, "
    "drift=True, ensemble=1, rehearse='auto'"
)
FITTED = f"{NETWORK.replace(LAYERS, LAYERS + ' *,')}, epochs=1, shuffle=True, random_state=0"
ESTIMATORS = {
    "kbnn.sklearn": {
        "KBNNRegressor": f"({FITTED})",
        "KBNNClassifier": f"({FITTED}, class_weight=None)",
    },
    "kbnn.river": {
        "KBNNRegressor": f"({NETWORK}, seed=0, lags=None, task='auto')",
        "KBNNClassifier": f"({NETWORK}, seed=0)",
    },
}


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module in ESTIMATORS for name in ESTIMATORS[module]]
)
def test_estimators_have_their_parameters(module: str, name: str) -> None:
    estimator = getattr(importlib.import_module(module), name)
    assert str(inspect.signature(estimator)) == ESTIMATORS[module][name]
    made = pickle.loads(pickle.dumps(estimator(20, rehearse="off")))
    assert (made.layers, made.rehearse, made.noise) == (20, "off", "auto")
    for parameter in inspect.signature(estimator).parameters:
        assert f"\n{parameter} : default " in estimator.__doc__
    with pytest.raises(TypeError, match="unexpected keyword argument 'lyers'"):
        estimator(lyers=3)
