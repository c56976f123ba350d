"""A model as plain data: a JSON header and named arrays, and back, checked.

Arrays of member k of the ensemble are named `network<k>/<field>`; kbnn.core.state says their
meaning and kbnn.core.layout the order of weights and covariance triangles.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from kbnn.core.config import Config
from kbnn.core.layout import layout_of
from kbnn.core.state import ARRAYS, State, init
from kbnn.errors import ModelError
from kbnn.model.holding import MOST_HELD, Held
from kbnn.model.model import Model
from kbnn.model.recent import MOST_KEPT, Recent
from kbnn.model.schema import Schema
from kbnn.model.settings import Settings
from kbnn.score.scorecard import Scorecard

_HELD = ("x", "x_sd", "y", "weight", "number")

Arrays = dict[str, np.ndarray[Any, Any]]


def to_state(model: Model) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays; `from_state` restores the same bits."""
    learner = model.learner
    card, arrays = model.card.to_state()
    out: Arrays = {f"record/{name}": array for name, array in arrays.items()}
    out.update({f"held/{name}": getattr(model.held, name) for name in _HELD})
    recent = learner.recent.rows(len(model.schema.targets))
    out.update({f"recent/{name}": getattr(recent, name) for name in _HELD})
    out["scale/columns"] = learner.columns
    out["ensemble/log_weight"] = learner.log_weight
    for k, state in enumerate(learner.members):
        out.update({f"network{k}/{name}": getattr(state, name) for name in ARRAYS})
    header = {
        "settings": model.settings.to_json(),
        "schema": model.schema.to_json(),
        "networks": [
            {
                "config": {**asdict(state.config), "hidden": list(state.config.hidden)},
                "seed": state.seed,
            }
            for state in learner.members
        ],
        "scale": {"rows": learner.seen, "changes": learner.refits},
        "skipped": model.skipped,
        "alarms": model.alarms,
        "position": model.position,
        "record": card,
    }
    return header, out


def from_state(header: dict[str, Any], arrays: Arrays) -> Model:
    """The model that `to_state` described; ModelError when it cannot be one."""
    try:
        return _restored(header, arrays)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise ModelError(f"the model is damaged ({error})") from error


def _restored(header: dict[str, Any], arrays: Arrays) -> Model:
    model = Model(Settings.from_json(header["settings"]), Schema.from_json(header["schema"]))
    learner = model.learner
    model.card = Scorecard.from_state(
        header["record"],
        {
            name.removeprefix("record/"): array
            for name, array in arrays.items()
            if name.startswith("record/")
        },
    )
    model.held = _held(arrays, "held", MOST_HELD, len(model.schema.targets))
    learner.recent = Recent(_held(arrays, "recent", MOST_KEPT, len(model.schema.targets)))
    members = header["networks"]
    _require(len(members) in (0, model.settings.ensemble), "its number of networks")
    learner.members = [_network(member, arrays, f"network{k}/") for k, member in enumerate(members)]
    learner.columns = _floats(arrays, "scale/columns")
    learner.log_weight = _floats(arrays, "ensemble/log_weight")
    _require(learner.log_weight.shape == (model.settings.ensemble,), "its ensemble weights")
    for state in learner.members:
        _require(
            learner.columns.shape == (learner.targets + state.config.inputs, 7)
            and state.config == learner.members[0].config,
            "its scale",
        )
    learner.seen = int(header["scale"]["rows"])
    learner.refits = int(header["scale"]["changes"])
    model.skipped = int(header["skipped"])
    model.alarms = [int(row) for row in header["alarms"]]
    model.position = dict(header["position"])
    return model


def _held(arrays: Arrays, group: str, most: int, targets: int) -> Held:
    held = Held(*(_floats(arrays, f"{group}/{name}") for name in _HELD))
    rows = len(held.y)
    fits = (
        rows <= most
        and held.y.shape[1:] == (targets,)
        and len(held.x) == rows
        and len(held.x_sd) == rows
        and held.x_sd.shape[1] in (0, held.x.shape[1])
        and held.weight.shape == held.number.shape == (rows,)
    )
    _require(fits, f"its {group} rows")
    return held


def _network(header: dict[str, Any], arrays: Arrays, prefix: str) -> State:
    config = Config(**{**header["config"], "hidden": tuple(header["config"]["hidden"])})
    given = {name: arrays[prefix + name] for name in ARRAYS}
    _require(given["mean"].shape == (config.weights,), "its weights")
    _require(given["cov"].shape == (layout_of(config).offsets[-1],), "its covariances")
    pattern = init(config, 0)
    fields: dict[str, Any] = {}
    for name, array in given.items():
        like = getattr(pattern, name)
        _require(array.shape == like.shape and array.dtype == like.dtype, f"its {name}")
        _require(bool(np.all(np.isfinite(array))), f"its {name}")
        fields[name] = np.ascontiguousarray(array)
    return State(config=config, seed=int(header["seed"]), **fields)


def _floats(arrays: Arrays, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    array = arrays[name]
    _require(array.dtype == np.float64, name)
    return np.ascontiguousarray(array)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ModelError(f"the model is damaged ({what} do not fit)")
