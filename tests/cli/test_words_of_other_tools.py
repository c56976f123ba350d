"""Options and commands that people know from other tools lead to the right ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import SAMPLES, trained
from tests.commands import kbnn as command


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("--passes", "did you mean --epochs?"),
        ("--label", "did you mean --target?"),
        ("--test", "did you mean --test-split?"),
        ("--random_state", "did you mean --seed?"),
        ("--learning-rate", "there is none, since rows are learned in closed form"),
    ],
)
def test_an_option_of_another_tool_names_ours(typed: str, advice: str) -> None:
    ran = command("train", "data.csv", typed, "3")
    assert ran.code == 2
    assert f"no such option: {typed}: {advice}" in ran.err


@pytest.mark.parametrize(("typed", "ours"), [("fit", "train"), ("score", "evaluate")])
def test_a_command_of_another_tool_names_ours(typed: str, ours: str) -> None:
    ran = command(typed, "data.csv")
    assert ran.code == 2
    assert f"no such command '{typed}': did you mean '{ours}'?" in ran.err


def test_a_model_may_be_named_by_an_option_everywhere(tmp_path: Path) -> None:
    model = trained(tmp_path / "m.npz", "cubic.csv", "--layers", "3")
    data = SAMPLES / "cubic_small.csv"
    expected = command("predict", model, data)
    assert expected.code == 0
    assert command("predict", "-m", model, data) == expected
    assert command("predict", data, "--model", model) == expected
    assert command("predict", data, f"--model={model}") == expected
    assert command("evaluate", data, "-m", model).code == 0
    assert command("inspect", "-m", model) == command("inspect", model)
    assert "MODEL" in command("predict", "-m").err
    kept = command("predict", "--na", "-m", model, data)  # the value of --na, not the option
    assert kept == expected


def test_a_series_without_other_columns_is_learned_from_its_past(tmp_path: Path) -> None:
    source, model = tmp_path / "one.csv", tmp_path / "m.npz"
    source.write_text("y\n" + "\n".join(str(50 + (k * 7) % 13) for k in range(300)) + "\n")
    ran = command("train", source, "--lags", "1,2", "-m", model)
    assert ran.code == 0, ran.err
    ahead = command("predict", model, "--horizon", "5")
    assert ahead.code == 0, ahead.err
    ran = command("train", source, "-m", tmp_path / "other.npz")
    assert ran.code == 1
    assert "add --lags 1,2" in ran.err
