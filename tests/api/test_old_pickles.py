"""Pickles made before modules were moved can be loaded."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kbnn
from kbnn.moved_modules import MOVED

PICKLES = Path(__file__).parent.parent / "fixtures" / "pickles"


def load(name: str) -> object:
    return pickle.loads((PICKLES / f"{name}.pkl").read_bytes())


def test_a_model_and_its_forecasts_load_and_agree() -> None:
    model, forecasts = load("model"), load("forecasts")
    assert isinstance(model, kbnn.Model)
    assert isinstance(forecasts, kbnn.Forecasts)
    x = np.linspace(-2, 2, 60)
    said = model.predict({"x": x[:3], "kind": ["a", "b", "a"]}, decompose=True)
    before, now = (pa.table(one).to_pydict() for one in (forecasts, said))
    assert list(before) == list(now)
    for name, values in before.items():
        assert values == pytest.approx(now[name], rel=1e-9)


def test_class_forecasts_and_single_answers_load() -> None:
    assert pa.table(load("class_forecasts")).column_names[:1] == ["label"]
    assert isinstance(load("number"), kbnn.Number)


@pytest.mark.parametrize("old", sorted(MOVED))
def test_an_old_name_is_the_module_that_took_its_place(old: str) -> None:
    assert importlib.import_module(old) is importlib.import_module(MOVED[old])
