"""Migrate models written in earlier versions of the format.

Each step converts header and arrays from one version to the next; a file passes through all steps
after its own version. tests/fixtures holds a model of every version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from kbnn.core.constants import HALF_90
from kbnn.distributions.calibration import (
    LINK_UNIT,
    MEAN_SCALE_FACTOR,
    SCALE_FACTOR,
    init_calibration,
)
from kbnn.errors import ModelError
from kbnn.model.forecast_combination import StepErrors
from kbnn.model.settings import REPLAY_ROWS
from kbnn.targets.classification import init_class_temperature
from kbnn.targets.registry import TARGET_TYPES

Arrays = dict[str, npt.NDArray[Any]]
Migration = Callable[[dict[str, Any], Arrays], tuple[dict[str, Any], Arrays]]


def migrate_state(
    version: int, header: dict[str, Any], arrays: Arrays
) -> tuple[dict[str, Any], Arrays]:
    """Convert header and arrays to the current version; ModelError if they are inconsistent."""
    try:
        for step in MIGRATIONS[version - 1 :]:
            header, arrays = step(header, arrays)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelError("is damaged (its parts do not fit together)") from error
    return header, arrays


def migrated_form(version: int, form: dict[str, Any], task: str) -> dict[str, Any]:
    """Migrate the settings and the network config that packed models of a fleet share.

    They pass the steps of a model file, as the settings and the network of its only candidate.
    """
    candidate = {"settings": form["settings"], "networks": [{"config": form["config"]}]}
    header = {
        "settings": form["settings"],
        "schema": {"task": task},
        "racers": [{**candidate, "rehearsal": {}}],
        "record": {"scores": []},
    }
    (found,) = migrate_state(version, header, {})[0]["racers"]
    return {**form, "settings": found["settings"], "config": found["networks"][0]["config"]}


_RENAMED_SUMS = {
    "error": "bias",
    "absolute": "mae",
    "square": "rmse",
    "sd": "interval_width_90",
    "z2": "spread",
    "in50": "coverage.50",
    "in80": "coverage.80",
    "in90": "coverage.90",
    "in95": "coverage.95",
    "correct": "accuracy",
}
"""Names of metrics in version 1 that were changed in version 2."""


def _migrate_to_v2(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Join held and recent rows, and move PIT counts and confusion matrix into the scores."""
    source = "recent" if header["networks"] else "held"
    moved = {
        name: array
        for name, array in arrays.items()
        if not name.startswith(("held/", "recent/", "record/pit", "record/confusion"))
    }
    for name, array in arrays.items():
        if name.startswith(f"{source}/"):
            moved[f"kept/{name.removeprefix(f'{source}/')}"] = array
    record = header["record"]
    scores = [
        _migrate_score(score, arrays, j, bool(record["classes"]))
        for j, score in enumerate(record["scores"])
    ]
    kept = {name: value for name, value in record.items() if name != "classes"}
    return {**header, "record": {**kept, "scores": scores}}, moved


def _migrate_score(
    old: dict[str, Any], arrays: Arrays, target: int, classes: bool
) -> dict[str, Any]:
    sums = {_RENAMED_SUMS.get(name, name): value for name, value in old["sums"].items()}
    recent = {_RENAMED_SUMS.get(name, name): value for name, value in old["recent"].items()}
    score = {
        **{name: old[name] for name in ("rows", "skipped", "invalid")},
        "weight": sums.pop("weight") if classes else old["weight"],
        "sums": sums,
        "recent": recent,
    }
    if classes:
        confusion = np.asarray(arrays["record/confusion"])
        grow = len(old["frequency"]) - len(confusion)
        return {
            **score,
            "bins": old["bins"],
            "frequency": old["frequency"],
            "confusion": np.pad(confusion, ((0, grow), (0, grow))).tolist(),
        }
    constant = {name: old[name] for name in ("origin", "weight", "shift", "spread")}
    return {**score, "constant": constant, "pit": arrays["record/pit"][target].tolist()}


def _migrate_to_v3(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Wrap the only network as a candidate that does not replay."""
    settings = {**header["settings"], "rehearse": 0, "kind": "regression"}
    candidate = {
        "settings": settings,
        "networks": [
            {**one, "config": {**one["config"], "repeats": 0.5}} for one in header["networks"]
        ],
        "scale": header["scale"],
        "rehearsal": {"debt": 0.0, "since": 0, "settled": False, "rows": 0, "alarm": 0},
        "evidence": 0.0,
        "alarms": header["alarms"],
    }
    moved: Arrays = {}
    for name, array in arrays.items():
        if name.endswith("/counts"):
            array = np.append(array, np.zeros(4, dtype=np.int64))
        moved[name if name.startswith("record/") else f"racer0/{name}"] = array
    moved["racer0/kept/trust"] = np.ones(len(arrays["kept/y"]))
    targets = 0 if header["schema"]["task"] == "classification" else len(header["record"]["scores"])
    moved["racer0/stated/tails"] = init_calibration(targets, mixed=False)[:, :LINK_UNIT]
    for name in ("record/sample.forecast", "record/worst.forecast") if targets else ():
        mean, sd = np.split(np.asarray(moved[name]), 2, axis=1)
        moved[name] = np.hstack((mean, sd, mean - HALF_90 * sd, mean + HALF_90 * sd))
    gone = ("networks", "scale", "alarms")
    kept = {name: value for name, value in header.items() if name not in gone}
    record = {
        **header["record"],
        "scores": [_migrate_interval_width(one) for one in header["record"]["scores"]],
    }
    return {
        **kept,
        "settings": settings,
        "racers": [candidate],
        "lost": [],
        "record": record,
    }, moved


def _migrate_interval_width(score: dict[str, Any]) -> dict[str, Any]:
    """Convert the sum of standard deviations to a sum of interval widths."""
    name = "interval_width_90"
    if name not in score["sums"]:
        return score
    return {**score, "sums": {**score["sums"], name: 2 * HALF_90 * score["sums"][name]}}


def _migrate_to_v4(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Add the unit of the link: 0 means the logarithm, as version 3 had for positive targets."""
    moved = dict(arrays)
    for name, array in arrays.items():
        if name.endswith("/stated/tails"):
            moved[name] = np.pad(array, ((0, 0), (0, 1)))
    if "waiting/stated" in arrays:
        forecasts = arrays["waiting/stated"].reshape(
            len(arrays["waiting/stated"]), -1, _STATED_FIELDS_V3
        )
        moved["waiting/stated"] = np.pad(forecasts, ((0, 0), (0, 0), (0, 1))).reshape(
            len(forecasts), -1
        )
    return header, moved


def _migrate_to_v5(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Add the probability of an exact 0 to pending forecasts; it is 0 in version 4."""
    moved = dict(arrays)
    if "waiting/stated" in arrays:
        forecasts = arrays["waiting/stated"]
        forecasts = forecasts.reshape(len(forecasts), -1, _STATED_FIELDS_V3 + 1)
        moved["waiting/stated"] = np.pad(forecasts, ((0, 0), (0, 0), (0, 1))).reshape(
            len(forecasts), -1
        )
    return header, moved


def _migrate_to_v6(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Add the temperature of class probabilities, and the row count at which replay is corrected.

    Version 5 had no temperature and always corrected replay after REPLAY_ROWS rows.
    """
    candidates = [
        {**candidate, "rehearsal": {**candidate["rehearsal"], "grown": REPLAY_ROWS}}
        for candidate in header["racers"]
    ]
    moved = dict(arrays)
    task = TARGET_TYPES[header["schema"]["task"]]
    for k, candidate in enumerate(header["racers"]):
        network = next(iter(candidate["networks"]), None)
        outputs = 0 if network is None else network["config"]["outputs"]
        mixed = network is not None and candidate["settings"]["robust"]
        known = init_class_temperature(task.labels, mixed, outputs)
        moved[f"racer{k}/stated/sharpness"] = known
    return {**header, "racers": candidates}, moved


def _migrate_to_v7(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Keep one candidate of each target type, and describe the members of its ensemble.

    Version 6 also compared shapes and replay as candidates; the first one of a type leads it. The
    weights of an ensemble were proportional to exp(0.3 log_weight).
    """
    first: dict[str, int] = {}
    for k, candidate in enumerate(header["racers"]):
        first.setdefault(candidate["settings"]["kind"], k)
    moved = {name: array for name, array in arrays.items() if not name.startswith("racer")}
    candidates: list[dict[str, Any]] = []
    for k in first.values():
        candidate, prefix = header["racers"][k], f"racer{len(candidates)}/"
        settings = _migrate_replay(candidate["settings"])
        networks = [
            {**network, "member": _describe_member(settings, variant)}
            for variant, network in enumerate(candidate["networks"])
        ]
        pool = {"rows": 0, "scale": 1.0, "benefit_rows": 0}
        candidates.append({**candidate, "settings": settings, "networks": networks, "pool": pool})
        for name, array in arrays.items():
            if name.startswith(f"racer{k}/"):
                moved[prefix + name.removeprefix(f"racer{k}/")] = array
        log_weight = moved.pop(f"{prefix}ensemble/log_weight", None)
        if log_weight is not None:
            weight = np.exp(0.3 * (log_weight - np.max(log_weight)))
            moved[f"{prefix}ensemble/weight"] = weight / np.sum(weight)
            moved[f"{prefix}ensemble/benefit"] = np.zeros(len(weight))
    eliminated = [
        {**one, **{name: _migrate_replay(one[name]) for name in ("settings", "leader")}}
        for one in header.get("lost", [])
        if one["settings"]["kind"] != one["leader"]["kind"]
    ]
    return {**header, "racers": candidates, "lost": eliminated}, moved


def _migrate_replay(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with a replay ratio instead of `later`, which meant none at first."""
    return {**settings, "rehearse": 0} if settings.get("rehearse") == "later" else settings


def _describe_member(settings: dict[str, Any], variant: int) -> dict[str, Any]:
    """Return what distinguishes a network of an ensemble of equal shapes."""
    same = {name: settings[name] for name in ("hidden", "covariance")}
    return {**same, "encoding": "none", "replays": True, "variant": variant}


def _migrate_to_v8(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Add what combined forecasts of a series have learned since: nothing yet.

    Version 7 did not tell levels of the predicted variance apart, and combined forecasts kept the
    calibration of the network.
    """
    if "ahead/one_step" not in arrays:
        return header, arrays
    one_step = np.zeros((2, 5, 4))
    one_step[:, 0] = arrays["ahead/one_step"]
    steps = arrays["ahead/number"].shape[1]
    calibration = np.array(arrays["racer0/stated/tails"][:1])
    calibration[:, [SCALE_FACTOR, MEAN_SCALE_FACTOR]] = 1.0  # the network's sd is scaled already
    return header, {
        **arrays,
        "ahead/one_step": one_step,
        "ahead/naive_number": np.zeros((3, steps)),
        "ahead/naive_square": np.zeros((3, steps)),
        "ahead/level": np.zeros(2),
        "ahead/pull": np.zeros(3),
        "ahead/calibration": calibration,
    }


def _migrate_to_v9(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Add what combined forecasts of a series have learned since: nothing yet.

    Files of version 8 have some of these arrays or none.
    """
    if "ahead/number" not in arrays:
        return header, arrays
    new, steps = StepErrors.create(), arrays["ahead/number"].shape[1]
    fields = ("ratio", "histogram", "widths", "combined_square", "gain", "volatility")
    added = {f"ahead/{name}": getattr(new, name) for name in fields}
    added |= {f"ahead/{name}": np.zeros((3, steps)) for name in ("naive_number", "naive_square")}
    added["ahead/naive_histogram"] = new.simple_histogram[:3]
    pending = arrays["ahead/pending"]
    pad = ((0, 0), (0, _PENDING_ROWS_V9 - pending.shape[1]), (0, 0))
    padded = np.pad(pending, pad, constant_values=np.nan)
    return header, {**added, **arrays, "ahead/pending": padded}


def _migrate_to_v10(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Add two candidates to the forecasts of a series, without errors: the series models."""
    if "ahead/number" not in arrays:
        return header, arrays
    old = {name.removeprefix("ahead/"): a for name, a in arrays.items() if name[:6] == "ahead/"}
    more = {name: np.pad(old[name], ((0, 2), (0, 0))) for name in ("number", "square")}
    for name in ("number", "square", "histogram"):
        array = old.pop(f"naive_{name}")
        more[f"simple_{name}"] = np.pad(array, ((0, 2), *[(0, 0)] * (array.ndim - 1)))
    more["one_step"] = np.pad(old["one_step"], ((0, 0), (0, 0), (0, 2)))
    more["pending"] = np.insert(old["pending"], [4, 4], np.nan, axis=1)
    new = StepErrors.create()
    made = {**old, **more, "modeled": new.modeled, "modeled_errors": new.modeled_errors}
    others = {name: array for name, array in arrays.items() if name[:6] != "ahead/"}
    return header, {**others, **{f"ahead/{name}": array for name, array in made.items()}}


_PENDING_ROWS_V9 = 10
"""Rows of a pending forecast of several steps in version 9."""


_STATED_FIELDS_V3 = 15
"""Fields of a pending forecast up to version 3; version 4 has one more."""

MIGRATIONS: tuple[Migration, ...] = (
    _migrate_to_v2,
    _migrate_to_v3,
    _migrate_to_v4,
    _migrate_to_v5,
    _migrate_to_v6,
    _migrate_to_v7,
    _migrate_to_v8,
    _migrate_to_v9,
    _migrate_to_v10,
)
