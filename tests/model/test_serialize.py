"""Parts of a stored model that are sound but do not fit one another are refused."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbnn.data.batch import Rows
from kbnn.data.schema import Column, Place, Schema
from kbnn.errors import ModelError
from kbnn.model import file as modelfile
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import from_state, to_state
from kbnn.model.settings import Settings
from tests.bench.data import trained
from tests.modelling import same


def stored() -> tuple[dict[str, Any], dict[str, Any]]:
    x = np.random.default_rng(0).standard_normal((60, 2))
    return to_state(trained(x, x[:, 0], hidden=(3,), ensemble=2))


@pytest.mark.parametrize("rows", [slice(0, 2), slice(0, 0)])
def test_the_scale_must_have_a_row_for_every_column(rows: slice) -> None:
    header, arrays = stored()
    name = "racer0/scale/columns"
    arrays[name] = arrays[name][rows]
    with pytest.raises(ModelError, match="invalid scale"):
        from_state(header, arrays)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("field", [1, 3, 5])  # the mean, the recent mean, the center
def test_a_scale_is_made_of_numbers(field: int, value: float) -> None:
    header, arrays = stored()
    arrays["racer0/scale/columns"][1, field] = value
    with pytest.raises(ModelError, match="invalid scale"):
        from_state(header, arrays)


@pytest.mark.parametrize("weight", [-0.5, 0.5, np.nan, -np.inf])
def test_weights_of_networks_are_shares_of_one(weight: float) -> None:
    header, arrays = stored()
    arrays["racer0/ensemble/weight"] = np.array([1.0, weight])
    with pytest.raises(ModelError, match="invalid ensemble weights"):
        from_state(header, arrays)


@pytest.mark.parametrize("weights", [slice(0, -1), slice(0, 0)])
def test_a_network_must_have_all_its_weights(weights: slice) -> None:
    header, arrays = stored()
    name = "racer0/network1/mean"
    arrays[name] = arrays[name][weights]
    with pytest.raises(ModelError, match="invalid weights"):
        from_state(header, arrays)


def test_all_networks_must_be_alike() -> None:
    header, arrays = stored()
    header["racers"][0]["networks"][1]["config"]["observation"] = "bernoulli"
    with pytest.raises(ModelError, match=r"invalid (scale|noise|outputs|counts)"):
        from_state(header, arrays)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_lists_a_part_twice_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "twice.npz"
    with path.open("wb") as file:
        modelfile.write(file, *stored())
    modelfile.load(str(path))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("racer0/kept/y.npy", archive.read("racer0/kept/y.npy"))
    with pytest.raises(ModelError, match="its list of contents"):
        modelfile.load(str(path))


def test_an_array_that_is_empty_is_not_missed() -> None:
    schema = Schema(
        [Column("a", "number", "feature"), Column("y", "category", "target")],
        "classification",
        ["no", "yes"],
        closed=True,
        layout=[Place("a", None)],
    )
    x = np.random.default_rng(0).standard_normal((60, 1))
    model = OnlineModel(Settings(hidden=()), schema)
    rows = Rows(x, (x > 0.0).astype(np.float64), np.arange(1, 61))
    model.learn(rows)
    header, arrays = to_state(model)
    name = "racer0/network0/head_mean"
    assert not arrays[name].size
    without = {one: array for one, array in arrays.items() if one != name}
    for changed in (without, {**arrays, name: np.zeros((0, 7))}):
        assert same(from_state(header, changed).predict(rows), model.predict(rows))
