"""Numbers in a model file that no training wrote: one message, no endless loop, no overflow."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbnn.model.file import load
from tests.commands import SAMPLES, kbnn, program, trained

DATA = SAMPLES / "cubic.csv"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained(tmp_path_factory.mktemp("model") / "m.npz", DATA.name, "--layers", "3")


def forge(source: str, target: Path, **values: Any) -> str:
    """A copy of a model file with other values in its header; __ separates names and places."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            if info.filename == "header.json":
                header = json.loads(content)
                for path, value in values.items():
                    holder, *names = header["model"], *path.split("__")
                    for name in names[:-1]:
                        holder = holder[int(name) if name.isdigit() else name]
                    holder[names[-1]] = value
                content = json.dumps(header).encode()
            new.writestr(info.filename, content)
    return str(target)


def test_a_forged_curve_does_not_loop(model: str, tmp_path: Path) -> None:
    forged = forge(model, tmp_path / "f.npz", record__curve__rows=10**9)
    ran = program("train", DATA, "-m", forged, "-q")  # which ends long before its time is up
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        f"kbnn: {forged}: its record of past forecasts is damaged "
        "(the learning curve cannot have 1000000000 rows)\n"
    )


@pytest.mark.parametrize(
    "values",
    [
        {"settings__noise": 1e308, "racers__0__settings__noise": 1e308},
        {"racers__0__networks__0__config__noise": 2**70},
        {"racers__0__networks__0__config__hidden_noise": 1e308},
        {"record__curve__rows": 0},
        {"record__curve__points": [[[32, None, None, None, None, None, None]] * 4]},
        {"record__curve__points": [[[32, float("nan"), None, None, None, None, None]]]},
        {"record__scores__0__weight": 1e-308},
        {"record__scores__0__recent__rmse": -1.0},
        {"record__scores__0__sums__rmse": float("inf")},
    ],
    ids=lambda values: next(iter(values)),
)
def test_forged_numbers_are_refused(model: str, tmp_path: Path, values: dict[str, Any]) -> None:
    forged = forge(model, tmp_path / "f.npz", **values)
    ran = kbnn("train", DATA, "-m", forged, "-q")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1), ran
    assert ran.err.startswith(f"kbnn: {forged}: ")
    assert "damaged" in ran.err


@pytest.mark.parametrize("option", ["--noise", "--hidden-noise"])
def test_noise_that_cannot_be_squared_is_refused(tmp_path: Path, option: str) -> None:
    ran = kbnn("train", DATA, "-m", tmp_path / "m.npz", "--preset", "paper", option, "1e308")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert option in ran.err


def test_a_large_noise_is_learned_and_read_again(tmp_path: Path) -> None:
    made = trained(tmp_path / "m.npz", DATA.name, "--noise", "1e99")
    assert np.isfinite(load(made).learner_state.members[0].state().mean).all()
    assert kbnn("inspect", made).code == 0


def test_records_of_large_weights_are_read_again(tmp_path: Path) -> None:
    """Squared errors times weights are sums that the reader accepts."""
    rows = (
        f"{at % 7},{1e139 if at % 3 else 1},{(-1) ** at * 1e60 * (at % 11)}" for at in range(99)
    )
    source = tmp_path / "d.csv"
    source.write_text("x,w,y\n" + "\n".join(rows) + "\n")
    model = str(tmp_path / "m.npz")
    for _ in range(2):
        ran = kbnn("train", source, "--weight", "w", "-m", model, "-q", "--layers", "3")
        assert (ran.code, ran.err) == (0, "")
    assert kbnn("inspect", model).code == 0
