"""Bit-exact predictions of many models: written before a change of structure, compared after it.

    python -m tests.bench.golden --write before.json
    python -m tests.bench.golden --compare before.json

Numbers depend on the machine's instruction set, so that both must run on one machine. Only public
functions are used: the bench survives every renaming of what is below them. Forecasts must be equal
to the bit; figures and columns that were there before must be there with the same values, and new
ones may join.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import kbnn

FIXTURES = Path(__file__).parent.parent / "fixtures"
ROWS = 700
COVARIANCES = ("neuron", "group", "full", "wide", "paper")
TASKS = ("regression", "positive", "count", "amount", "classification")
OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "chosen by evidence": {"layers": "auto"},
    "two layers": {"layers": "8,6", "activation": "tanh,relu"},
    "no layer": {"layers": "none"},
    "ensemble": {"layers": "6", "ensemble": 3},
    "replay": {"layers": "6", "rehearse": 2},
    "no replay": {"layers": "6", "rehearse": "off"},
    "guards off": {"layers": "6", "robust": "off", "drift": "off", "clip": "off", "widen": "off"},
    "units off": {"layers": "6", "units": "off"},
    "intervals": {"layers": "6", "intervals": "stated"},
    "fixed noise": {"layers": "6", "noise": 0.2},
    "preset paper": {"preset": "paper"},
    "passes": {"layers": "6", "epochs": 2, "shuffle": True},
    "seed": {"layers": "6", "seed": 7},
    "hashing": {"layers": "6", "hash": "kind:8"},
    "weights": {"layers": "6", "weight": "w"},
}


def table(task: str) -> dict[str, Any]:
    """Numbers, gaps, a category that comes late, a time and a target of the type."""
    rng = np.random.default_rng(11)
    a, b = rng.standard_normal((2, ROWS))
    f = np.sin(1.5 * a) + 0.5 * b + 0.2 * rng.standard_normal(ROWS)
    kind = np.where(b > 1.0, "high", np.where(a > 0.0, "up", "down"))
    kind[: ROWS // 2] = np.where(kind[: ROWS // 2] == "high", "up", kind[: ROWS // 2])
    target: dict[str, Any] = {
        "regression": f,
        "positive": np.exp(f),
        "count": rng.poisson(np.exp(f)).astype(np.float64),
        "amount": np.where(f > 0.0, f, 0.0),
        "classification": np.array(["x", "y", "z"])[np.digitize(f, [-0.4, 0.4])],
    }
    return {
        "a": np.where(rng.random(ROWS) < 0.05, np.nan, a),
        "b": b,
        "kind": kind,
        "w": rng.uniform(0.5, 2.0, ROWS),
        "y": target[task],
    }


def series() -> dict[str, Any]:
    """Hours with a daily cycle."""
    rng = np.random.default_rng(12)
    hour = np.datetime64("2026-01-01T00") + np.arange(ROWS)
    level = 30.0 + 8.0 * np.sin(np.arange(ROWS) * np.pi / 12) + np.cumsum(rng.normal(0, 0.3, ROWS))
    return {"time": [f"{each}:00" for each in hour], "y": level}


Result = dict[str, str]
"""Parts of a case by name: digests of columns, and figures as text."""


def digest(values: Any) -> str:
    """Return a text that tells values apart to the bit."""
    array = np.asarray(values)
    text = array.dtype.kind in "OU"
    found = hashlib.sha256(repr(array.tolist()).encode() if text else array.tobytes())
    return found.hexdigest()[:16]


def describe_forecasts(forecasts: Any) -> Result:
    """Return the digest of every column of forecasts."""
    import pyarrow as pa

    made = pa.table(forecasts)
    names = made.column_names
    return {
        f"column {name}": digest(column.to_numpy())
        for name, column in zip(names, made.columns, strict=True)
    }


def describe_figures(kind: str, figures: Any) -> Result:
    """Return the figures as text, without times."""
    found = json.loads(json.dumps(dict(figures), default=str))
    timing = ("seconds", "rows_per_second")
    return {f"{kind} {name}": json.dumps(found[name]) for name in found if name not in timing}


def part(data: dict[str, Any], rows: slice) -> dict[str, Any]:
    """Some rows."""
    return {name: column[rows] for name, column in data.items()}


def judge_model(data: dict[str, Any], **options: Any) -> Result:
    """Train on most rows; describe forecasts and figures of the others, and the record."""
    model = kbnn.train(part(data, slice(600)), target="y", **options)
    rest = part(data, slice(600, ROWS))
    restored = pickle.loads(pickle.dumps(model))
    forecasts = restored.predict(rest, decompose=model.task != "classification")
    return {
        **describe_forecasts(forecasts),
        **describe_figures("evaluate", model.evaluate(rest)),
        **describe_figures("record", model.record()),
    }


def cases() -> Iterator[tuple[str, Callable[[], Result]]]:
    """All cases by name."""
    for task in TASKS:
        for covariance in COVARIANCES:
            made = partial(judge_model, table(task), task=task, layers="7", ignore=["w"])
            yield f"{task} {covariance}", partial(made, covariance=covariance)
    for name, chosen in OPTIONS.items():
        kept = {} if "weight" in chosen else {"ignore": ["w"]}
        yield f"option {name}", partial(judge_model, table("regression"), **chosen, **kept)
    yield (
        "several targets",
        lambda: describe_forecasts(
            kbnn.train(
                {**part(table("regression"), slice(600)), "z": table("positive")["y"][:600]},
                target=["y", "z"],
                layers="6",
            ).predict(part(table("regression"), slice(600, ROWS)))
        ),
    )
    yield "series", lambda: describe_forecasts(kbnn.train(series(), target="y").forecast(30))
    yield "series on rows", lambda: judge_model(series())
    for path in sorted(FIXTURES.rglob("*.npz")):
        yield f"file {path.relative_to(FIXTURES)}", partial(open_file, path)
    yield "fleet", train_fleet
    yield "row by row", learn_row_by_row


def open_file(path: Path) -> Result:
    """Return what an old model predicts for one row, and the names of its figures."""
    with contextlib.redirect_stderr(io.StringIO()):
        model = kbnn.load(path)
    row = {name: "2026-01-01" if name == "time" else 0.5 for name in model.features}
    answer = model.predict_one(row)
    return {"answer": repr(answer), **dict.fromkeys(describe_figures("record", model.record()), "")}


def train_fleet() -> Result:
    """Describe the forecasts of a model for every kind."""
    data = table("regression")
    with tempfile.TemporaryDirectory() as folder:
        made = kbnn.train(
            part(data, slice(600)), target="y", key="kind", layers="4", model=f"{folder}/fleet"
        )
        rest = part(data, slice(600, ROWS))
        rmse = repr(made.evaluate(rest)["rmse"])
        return {**describe_forecasts(made.predict(rest)), "rmse": rmse}


def learn_row_by_row() -> Result:
    """Describe what `predict_one` says between rows learned by `learn_one`."""
    data = table("classification")
    model = kbnn.Model(target="y", layers=6)
    answers = []
    for k in range(300):
        x = {name: data[name][k] for name in ("a", "b", "kind")}
        if k > 100:
            answers.append(repr(model.predict_one(x)))
        model.learn_one(x, data["y"][k])
    return {"answers": digest(answers)}


def list_changes(before: Result, after: Result) -> list[str]:
    """Name the parts that were there before and are gone or different."""
    return [name for name, value in before.items() if after.get(name) != value]


def main() -> int:
    """Write, or compare and exit with 1 where something moved."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", type=Path)
    parser.add_argument("--compare", type=Path)
    chosen = parser.parse_args()
    found: dict[str, Result] = {}
    for name, run in cases():
        try:
            found[name] = run()
        except kbnn.errors.KbnnError as error:  # an error is a result to be compared
            found[name] = {"error": f"{type(error).__name__}: {error}"}
    if chosen.write:
        chosen.write.write_text(json.dumps(found, indent=1))
    if not chosen.compare:
        print(f"{len(found)} cases")
        return 0
    before = json.loads(chosen.compare.read_text())
    changes = {name: list_changes(before[name], found.get(name, {})) for name in before}
    moved = {name: parts for name, parts in changes.items() if parts}
    print(f"{len(before)} cases, {len(moved)} moved")
    for name, parts in moved.items():
        print(f"  {name}: {', '.join(parts)}")
    return int(bool(moved))


if __name__ == "__main__":
    sys.exit(main())
