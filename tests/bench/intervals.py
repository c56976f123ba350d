"""Do intervals keep their promise? Coverage of 90 % in every window of 2,000 rows, and the width.

    python -m tests.bench.intervals [--data DIR] [--seeds 2]

Every row is predicted before it is learned; the first 1,000 rows are left out. `tracked` is the
default, `stated` what the distribution says by itself; `wider` is the mean width of the former over
that of the latter, `price` the same over the stated interval of whatever share would have covered
as many of these rows, which nobody can know before: what is left there is the cost of tracking.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kbnn.distributions.dispatch import read_distribution
from kbnn.distributions.negative_binomial import NegativeBinomial
from kbnn.distributions.predictive import PARAM
from kbnn.model.model import OnlineModel
from kbnn.model.settings import Settings
from tests.bench import data, made
from tests.bench.data import FloatArray
from tests.bench.targets import randhie

WINDOW, SKIPPED = 2000, 1000


def streams(folder: Path | None, seed: int) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Inputs and targets by name."""
    found = {}
    for kind in ("quiet", "two abrupt changes", "heavy tails", "outliers"):
        stream = made.drifting(kind, seed)
        found[kind] = (stream.x, stream.y)
    if folder is not None:
        for name in ("naval", "power", "kin8nm"):
            part = data.split(folder, name, seed)
            found[name] = (part.x, part.y[:, 0])
    if find_spec("statsmodels"):
        table = randhie(False)(seed)
        y = table.columns.pop(table.target)
        found["randhie"] = (np.column_stack(list(table.columns.values())), y)
    return found


class Covered(NamedTuple):
    """Coverage of each window, of all rows, and the mean width."""

    windows: FloatArray
    share: float
    width: float


def said(x: FloatArray, y: FloatArray, seed: int, intervals: str) -> FloatArray:
    """What is stated of every row but the first ones."""
    settings = Settings(seed=seed, intervals=intervals)  # type: ignore[arg-type]  # one of the two
    model = OnlineModel(settings, data.schema(x.shape[1]))
    return model.learn(data.block(x, y)).stated[SKIPPED:, 0]


def covered(y: FloatArray, rows: FloatArray, share: float = 0.9) -> Covered:
    """How the central interval of that share did; the edge of a count is inside in part."""
    lower, upper = read_distribution(rows).interval(share)
    inside = (
        read_distribution(rows).score_values(y).in_90
        if share == 0.9
        else (y >= lower) & (y <= upper)
    )
    whole = len(y) // WINDOW * WINDOW
    windows = inside[:whole].reshape(-1, WINDOW).mean(axis=1)
    return Covered(windows, float(np.mean(inside)), float(np.mean(upper - lower)))


def as_wide(y: FloatArray, rows: FloatArray, share: float) -> float:
    """The width of the stated interval that covers this share of the rows, found by bisection."""
    low, high = 0.5, 0.99
    for _ in range(12):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if covered(y, rows, middle).share < share else (low, middle)
    return covered(y, rows, high).width


def main() -> None:
    """Print a line for each stream."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    print(f"{'':22}{'tracked, %':>14}{'stated, %':>14}{'wider':>10}{'price':>10}")
    for seed in range(given.seeds):
        for name, (x, y) in streams(given.data, seed).items():
            rows = {kind: said(x, y, seed, kind) for kind in ("tracked", "stated")}
            tracked, plain = (covered(y[SKIPPED:], part) for part in rows.values())
            counts = np.any(
                rows["stated"][:, PARAM.kind] == NegativeBinomial.code
            )  # they have no width
            same = np.nan if counts else as_wide(y[SKIPPED:], rows["stated"], tracked.share)
            ranges = [
                f"{100 * w.min():.1f}-{100 * w.max():.1f}" for w in (tracked.windows, plain.windows)
            ]
            over = [
                "" if np.isnan(w) else f"{100 * (tracked.width / w - 1):+.1f} %"
                for w in (plain.width, same)
            ]
            print(f"{name:22}{ranges[0]:>14}{ranges[1]:>14}{over[0]:>10}{over[1]:>10}", flush=True)


if __name__ == "__main__":
    main()
