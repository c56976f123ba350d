"""Do intervals keep their promise? Coverage of 90 % in every window of 2,000 rows, and the width.

    python -m tests.bench.intervals [--data DIR] [--seeds 2]

Every row is predicted before it is learned; the first 1,000 rows are left out. `tracked` is the
default, `stated` what the distribution says by itself; `wider` is the mean width of the former over
that of the latter.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from kbnn.model.model import Model
from kbnn.model.settings import Settings
from kbnn.task import stated
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


def covered(x: FloatArray, y: FloatArray, seed: int, intervals: str) -> tuple[FloatArray, float]:
    """Coverage of each window, and the mean width."""
    settings = Settings(seed=seed, intervals=intervals)  # type: ignore[arg-type]  # one of the two
    model = Model.create(settings, data.schema(x.shape[1]))
    said = model.learn(data.block(x, y))
    told = stated.judge(y[SKIPPED:], said.stated[SKIPPED:, 0])
    whole = len(told.in_90) // WINDOW * WINDOW
    return told.in_90[:whole].reshape(-1, WINDOW).mean(axis=1), float(
        np.mean(told.upper - told.lower)
    )


def main() -> None:
    """Print a line for each stream."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    said = parser.parse_args()
    print(f"{'':22}{'tracked, %':>14}{'stated, %':>14}{'wider':>9}")
    for seed in range(said.seeds):
        for name, (x, y) in streams(said.data, seed).items():
            (one, width), (other, plain) = (covered(x, y, seed, k) for k in ("tracked", "stated"))
            ranges = [f"{100 * w.min():.1f}-{100 * w.max():.1f}" for w in (one, other)]
            wider = f"{100 * (width / plain - 1):+.1f} %"
            print(f"{name:22}{ranges[0]:>14}{ranges[1]:>14}{wider:>9}", flush=True)


if __name__ == "__main__":
    main()
