"""What the costly targets take beside an ordinary row: large counts and many classes.

    python -m tests.bench.costly_targets [--rows 3000] [--repeats 3]

Each stream is learned by `kbnn.Model.learn`, replay and scores included, and compared with a
regression of the same inputs, layers and covariance. Processor time of this process, the fastest of
the repeats, which take turns: the ratio is taken under one load. Ends with 1 when a promise is not
kept.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, NamedTuple

import numpy as np

import kbnn
from kbnn.array_types import FloatArray

MOST_TIMES = 10.0
"""Of the time of an ordinary row."""


class Stream(NamedTuple):
    """Rows and how they are learned; `beside` are the options of the ordinary rows."""

    name: str
    x: FloatArray
    y: Any
    options: dict[str, Any]
    beside: dict[str, Any]


def make_streams(rows: int) -> list[Stream]:
    """Counts near 1e6, and 40 classes of 21 inputs: all along, or after three for half the rows."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 5))
    counts = rng.poisson(1e6 * np.exp(0.3 * x[:, 0]))
    wide = rng.standard_normal((rows, 21))
    score = 0.8 * wide @ rng.standard_normal((21, 40)) + rng.gumbel(size=(rows, 40))
    labels = np.argmax(score, axis=1)
    late = np.where(np.arange(rows) < rows // 2, np.argmax(score[:, :3], axis=1), labels)
    return [
        Stream("counts near 1e6", x, counts, {"task": "count"}, {}),
        Stream("40 classes", wide, names_of(labels), {}, {"covariance": "neuron"}),
        Stream("40 classes, 3 at first", wide, names_of(late), {}, {}),
    ]


def names_of(labels: Any) -> list[str]:
    """Labels as text, so that they are read as classes."""
    return [f"c{label}" for label in labels]


def time_rows(x: FloatArray, y: Any, options: dict[str, Any]) -> float:
    """Processor milliseconds a row of a new model that learns them."""
    table = {f"x{i}": column for i, column in enumerate(x.T)} | {"y": y}
    start = time.process_time()
    kbnn.Model(target="y", **options).learn(table)
    return 1e3 * (time.process_time() - start) / len(x)


def main() -> int:
    """Print a line a stream; 1 when a promise is not kept."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.costly_targets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    kept = True
    print(f"{'stream':>22} {'ms a row':>9} {'ordinary':>9} {'times':>6}")
    for stream in make_streams(given.rows):
        ordinary = stream.x[:, 0] + 0.3 * np.random.default_rng(1).standard_normal(given.rows)
        looks = [
            (
                time_rows(stream.x, stream.y, stream.options),
                time_rows(stream.x, ordinary, stream.beside),
            )
            for _ in range(given.repeats)
        ]
        costly, plain = np.min(looks, axis=0)
        print(f"{stream.name:>22} {costly:9.3f} {plain:9.3f} {costly / plain:6.1f}", flush=True)
        kept &= bool(costly <= MOST_TIMES * plain)
    print("all promises kept" if kept else f"A PROMISE IS NOT KEPT: at most {MOST_TIMES:g} times")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
