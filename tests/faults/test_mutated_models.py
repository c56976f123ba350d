"""A model file changed anywhere gives a model that works, or one sentence."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbnn.core.kernel import is_compiled
from kbnn.data.batch import Rows, slice_rows
from kbnn.errors import KbnnError
from kbnn.model import file as modelfile
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import Arrays, from_state, to_state
from kbnn.workflows.checkpoint import Position
from kbnn.workflows.inspecting import inspect_model
from tests.bench.data import trained

FIXTURES = Path(__file__).parent.parent / "fixtures" / "format1"
NAMES = ("real", "several", "classes", "ensemble", "held")
RACES = {"race": 70, "race won": 1200}
"""Models of as many rows: target types that compete, and one that was chosen."""
ODD: tuple[Any, ...] = (
    *({}, [], None, True, -1, 0, 1, 3, 2**70, 0.5, -0.5, 1e308, "", "target", "y", "label"),
    *([[]], [1, 2], ["a", "a"], {"a": 1}, "x" * 300, [None], 10**400),
)


def leaves(plain: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all values, containers among them."""
    found = [path] if path else []
    items = plain.items() if isinstance(plain, dict) else enumerate(plain)
    for key, value in items:
        inner = isinstance(value, dict | list)
        found += leaves(value, (*path, key)) if inner else [(*path, key)]
    return found


def changed(plain: Any, path: tuple[Any, ...], rng: random.Random) -> None:
    """Another value there, or none, or one entry fewer or twice."""
    holder = plain
    for key in path[:-1]:
        holder = holder[key]
    what, value = rng.randrange(4), holder[path[-1]]
    if what == 0 and isinstance(holder, dict):
        del holder[path[-1]]
    elif what == 1 and isinstance(value, list) and value:
        value.pop(rng.randrange(len(value)))
    elif what == 2 and isinstance(value, list) and value:
        value.append(copy.deepcopy(rng.choice(value)))
    else:
        holder[path[-1]] = copy.deepcopy(rng.choice(ODD))


def stored() -> dict[str, tuple[dict[str, Any], Arrays]]:
    """Header and arrays of models of many kinds."""
    models = {name: modelfile.read(str(FIXTURES / f"{name}.npz")) for name in NAMES}
    x = np.random.default_rng(1).standard_normal((2000, 3))
    y = np.exp(np.sin(2.0 * x[:, 0]) + 0.1 * x[:, 2])  # positive
    for name, rows in RACES.items():
        header, arrays = to_state(trained(x[:rows, :2], y[:rows]))
        models[name] = json.loads(json.dumps(header)), arrays
    return models


def used(model: OnlineModel, path: str) -> None:
    """Everything that the commands do with a model."""
    rng = np.random.default_rng(0)
    rows = Rows(
        rng.standard_normal((35, model.schema.width)),
        np.zeros((35, len(model.schema.targets))),
        np.arange(1, 36),
    )
    Position.from_json(model.position)
    model.predict(slice_rows(rows, 0, 5))
    json.dumps(inspect_model(model, path).to_json(), allow_nan=False)
    model.learn(rows)  # up to the next rehearsal and beyond
    from_state(*to_state(model))
    model.learn(slice_rows(rows, 0, 5), again=True)
    to_state(model)


def campaign(count: int, seed: int) -> tuple[int, int]:
    """So many changes; how many gave a model, and how many a sentence."""
    rng, worked, refused = random.Random(seed), 0, 0
    models = stored()
    places = {name: leaves(header) for name, (header, _) in models.items()}
    for _ in range(count):
        name = rng.choice(sorted(models))
        header, arrays = copy.deepcopy(models[name])
        if rng.random() < 0.75:
            for path in rng.sample(places[name], rng.choice((1, 1, 2))):
                try:
                    changed(header, path, rng)
                except (LookupError, TypeError):  # the first change took this place away
                    continue
        else:
            array = arrays[rng.choice(sorted(arrays))]
            if array.size and rng.random() < 0.7:
                values = (np.nan, np.inf, -1.0, 0.0, 1e300, 7.0)
                with np.errstate(invalid="ignore"):
                    array.reshape(-1)[rng.randrange(array.size)] = (
                        rng.choice(values) if array.dtype.kind == "f" else rng.choice((-5, 0, 9))
                    )
            else:
                key = rng.choice(sorted(arrays))
                arrays[key] = arrays[key][:-1] if arrays[key].ndim else arrays[key]
        try:
            used(from_state(header, arrays), str(FIXTURES / "real.npz"))
            worked += 1
        except KbnnError as error:
            refused += "\n" not in str(error)
    return worked, refused


@pytest.mark.slow
@pytest.mark.skipif(not is_compiled(), reason="minutes with the twin")
def test_changed_models_work_or_are_refused() -> None:
    worked, refused = campaign(250, 1)
    assert worked + refused == 250
    assert refused > 100


@pytest.mark.slow
def test_five_thousand_changed_models_work_or_are_refused() -> None:
    worked, refused = campaign(5000, 2)
    print(f"{worked} models work, {refused} are refused in a sentence")
    assert worked + refused == 5000


def test_the_models_that_are_changed_race_and_rehearse() -> None:
    models = stored()
    (race, _), (won, _) = models["race"], models["race won"]
    assert (len(race["racers"]), len(race["lost"])) == (2, 0)
    assert (len(won["racers"]), len(won["lost"])) == (1, 1)
    assert len(won["racers"][0]["networks"]) == 4
    assert race["racers"][0]["rehearsal"]["rows"] > 0
