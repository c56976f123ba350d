"""Processor time per row beside that of an earlier installation.

    python -m tests.bench.cost --data DIR --old /path/to/python [--splits 3] [--repeats 2]

Each of the eight UCI sets is learned once with default options on random 90 % of its rows, as is a
made stream of 100,000 rows of 13 inputs. The time is user plus system time of `kbnn.train(file)`
alone, the least of several runs, added up over the splits; old and new alternate. Ends with 1 when
a ratio is above its limit.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.bench import data

MADE = "made"
LIMIT, MADE_LIMIT = 2.5, 1.5
MADE_ROWS, MADE_INPUTS = 100_000, 13
_WORKER = """
import sys, time
import kbnn
kbnn.train(sys.argv[2])  # loads libraries
start = time.process_time()
kbnn.train(sys.argv[1])
print(time.process_time() - start)
"""


def write_rows(path: Path, x: data.FloatArray, y: data.FloatArray) -> None:
    """Write a CSV file with the target in the last column."""
    names = ",".join([*(f"x{i}" for i in range(x.shape[1])), "y"])
    rows = [",".join(map(repr, row)) for row in np.column_stack([x, y]).tolist()]
    path.write_text("\n".join([names, *rows]) + "\n")


def make_rows() -> tuple[data.FloatArray, data.FloatArray]:
    """Make the long stream."""
    rng = np.random.default_rng(0)
    x = np.round(rng.standard_normal((MADE_ROWS, MADE_INPUTS)), 5)
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(MADE_ROWS)
    return x, np.round(y, 5)


def measure_seconds(python: str, path: Path, few: Path) -> float:
    """Return the processor time of training a file, in a process of its own."""
    command = [python, "-c", _WORKER, str(path), str(few)]
    found = subprocess.run(command, check=True, capture_output=True, text=True, cwd=path.parent)
    return float(found.stdout.split()[-1])


def write_splits(name: str, given: str | None, splits: int, folder: Path) -> Iterator[Path]:
    """Write the training part of every split, or the made stream."""
    for seed in range(1 if name == MADE else splits):
        if name == MADE:
            x, y = make_rows()
        else:
            x, y, _, _ = data.split(data.folder(given), name, seed)
        path = folder / f"{name}{seed}.csv"
        write_rows(path, x, y)
        yield path


def main() -> int:
    """Measure all sets and print a table; 1 when a ratio is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="folder with boston.csv and so on (or KBNN_DATA)")
    parser.add_argument("--old", required=True, help="python of the earlier installation")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--sets", nargs="+", choices=(*data.SETS, MADE), default=(*data.SETS, MADE))
    given = parser.parse_args()
    kept = True
    with tempfile.TemporaryDirectory() as name:
        few = Path(name) / "few.csv"
        write_rows(few, np.arange(120.0).reshape(40, 3) % 7, np.arange(40.0) % 5)
        for which in given.sets:
            before = after = rows = 0.0
            for path in write_splits(which, given.data, given.splits, Path(name)):
                times = [
                    [measure_seconds(python, path, few) for python in (given.old, sys.executable)]
                    for _ in range(given.repeats)
                ]
                old, new = np.min(times, axis=0)
                before, after = before + old, after + new
                rows += path.read_text().count("\n") - 1
            limit = MADE_LIMIT if which == MADE else LIMIT
            kept &= bool(after <= limit * before)
            print(
                f"{which:>9}: {1e6 * before / rows:6.1f} -> {1e6 * after / rows:6.1f} us a row, "
                f"x{after / before:.2f}, limit x{limit}",
                flush=True,
            )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
