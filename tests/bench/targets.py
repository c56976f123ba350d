"""Targets as they are: counts, prices, heavy tails; what is stated of each, and which kind wins.

    python -m tests.bench.targets [--seeds 3] [SET ...]

Every row is predicted before it is learned. `constant` is the Gaussian with the mean and variance
of all targets, `GLM` a negative binomial regression fitted to all rows and judged on the same. Sets
of others come from statsmodels and river where those are installed.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

import kbnn
from tests.bench.data import FloatArray
from tests.bench.made import teacher

ROWS = 4000


class Table(NamedTuple):
    """Columns by name, and which of them is the target."""

    columns: dict[str, Any]
    target: str


def _value(kind: str, f: FloatArray, rng: np.random.Generator) -> FloatArray:
    if kind == "prices":
        return np.exp(10.0 + 0.8 * f + 0.4 * rng.standard_normal(ROWS))
    if kind == "gamma":
        return np.exp(f) * rng.gamma(2.0, 0.5, ROWS)
    if kind == "poisson":
        return rng.poisson(np.exp(1.0 + 0.8 * f)).astype(float)
    if kind == "negative binomial":
        return rng.poisson(np.exp(1.0 + 0.8 * f) * rng.gamma(1.0, 1.0, ROWS)).astype(float)
    if kind == "student-t3":
        return f + 0.25 * rng.standard_t(3, ROWS)
    if kind == "rounded":
        return np.rint(20.0 + 3.0 * f + rng.standard_normal(ROWS))
    dry = rng.random(ROWS) < 1.0 / (1.0 + np.exp(-2.0 * f - 0.5))
    return np.where(dry, 0.0, 5.0 * np.exp(0.5 * f) * rng.gamma(1.0, 1.0, ROWS))


def made(kind: str) -> Callable[[int], Table]:
    """A made target of five inputs."""

    def rows(seed: int) -> Table:
        rng = np.random.default_rng([seed, 13])
        x = rng.standard_normal((ROWS, 5))
        f = teacher(rng)(x)
        y = _value(kind, f, rng)
        return Table({**{f"x{j}": x[:, j] for j in range(5)}, "y": y}, "y")

    return rows


def randhie(shuffled: bool) -> Callable[[int], Table]:
    """Visits to a doctor, in the order of the file or in another."""

    def rows(seed: int) -> Table:
        from statsmodels.datasets import randhie as source

        frame = source.load_pandas().data
        order = np.random.default_rng(seed).permutation(len(frame)) if shuffled else slice(None)
        return Table({str(name): frame[name].to_numpy(float)[order] for name in frame}, "mdvis")

    return rows


def solar(target: str) -> Callable[[int], Table]:
    """Flares of one class on the sun."""

    def rows(seed: int) -> Table:
        from river.datasets import SolarFlare

        found = list(SolarFlare())
        columns = {name: [x[name] for x, _ in found] for name in found[0][0]}
        return Table({**columns, target: [float(y[target]) for _, y in found]}, target)

    return rows


SETS: dict[str, Callable[[int], Table]] = {
    name: made(name)
    for name in (
        "prices",
        "gamma",
        "poisson",
        "negative binomial",
        "student-t3",
        "rounded",
        "rain",
    )
}
if find_spec("statsmodels"):
    SETS |= {"randhie": randhie(False), "randhie, shuffled": randhie(True)}
if find_spec("river"):
    SETS |= {f"flares {c}": solar(f"{c}-class-flares") for c in "cmx"}


def regression(table: Table) -> float | None:
    """NLL of a negative binomial regression in its own sample; None where there is no count."""
    y = np.asarray(table.columns[table.target])
    if np.any(y != np.rint(y)) or np.any(y < 0.0) or not find_spec("statsmodels"):
        return None
    import statsmodels.api as sm

    parts = []
    for name, column in table.columns.items():
        if name == table.target:
            continue
        if isinstance(column[0], str):
            parts += [np.array([value == one for value in column]) * 1.0 for one in set(column)]
        else:
            parts.append(np.asarray(column, dtype=float))
    x = np.column_stack([np.ones(len(y)), *(p for p in parts if np.std(p) > 0.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fitted = sm.NegativeBinomial(y, x).fit_regularized(alpha=1e-6, disp=0, maxiter=500)
        except np.linalg.LinAlgError:  # hardly anything but zeros
            return None
    return float(-fitted.model.loglike(fitted.params) / len(y))


def main() -> None:
    """Print a line for each set and seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--options", default="", help="of kbnn.train, such as task=count")
    parser.add_argument("sets", nargs="*")
    said = parser.parse_args()
    options = dict(pair.split("=") for pair in said.options.split(",") if pair)
    heads = {"kind": 11, "RMSE": 10, "NLL": 9, "constant": 9, "GLM": 8, "in 90 %": 8}
    print(" " * 20 + "".join(head.rjust(width) for head, width in heads.items()) + "  intervals")
    for name in said.sets or SETS:
        for seed in range(said.seeds):
            table = SETS[name](seed)
            model = kbnn.train(table.columns, table.target, seed=seed, **options)
            found = model.record()
            glm = regression(table)
            lowest = float(np.min(model.predict(table.columns).lower))
            print(
                f"{name:20}{model.task:>11}{found['rmse']:10.4g}{found['nll']:9.3f}"
                f"{found['baseline_nll']:9.3f}{'' if glm is None else f'{glm:.3f}':>8}"
                f"{100 * found['coverage']['90']:8.1f}  from {lowest:.3g}",
                flush=True,
            )


if __name__ == "__main__":
    main()
