"""Targets that are often exactly 0: amounts beside any number and beside the best constant.

    python -m tests.bench.amounts [--seeds 2] [SET ...]

Every row is predicted before it is learned; the first 100 rows are left out. NLL is with respect to
length and, of amounts at 0, to the width of what is rounded to 0. The
constant is the best in hindsight: the share of zeros and a log-normal of the others for the NLL,
all values that there are for the rest. `score` is the interval score of 90 %, `q50` and `q90` are
pinball losses. Sets of others come from statsmodels and vega_datasets where those are installed.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from kbnn.distributions.dispatch import read_distribution
from kbnn.model.model import OnlineModel
from kbnn.model.settings import Settings
from tests.bench.data import FloatArray, block, schema
from tests.bench.made import teacher

ROWS, SKIPPED = 3000, 100
HEADS = ("NLL", "CRPS", "RMSE", "in 90 %", "score", "q50", "q90", "below 0")


class Table(NamedTuple):
    """Inputs and the target."""

    x: FloatArray
    y: FloatArray


def _made(kind: str, f: FloatArray, g: FloatArray, rng: np.random.Generator) -> FloatArray:
    """What is there depends on g, how much on f."""
    normal = rng.standard_normal(ROWS)
    chance = {"rain": 2.0 * g, "sales": 1.5 * g + 2.0, "claims": 1.5 * g - 2.5, "calls": g + 0.3}
    if kind == "cut off":
        return np.maximum(0.0, 1.5 * g + 0.6 * normal - 0.3)
    some = rng.random(ROWS) < 1.0 / (1.0 + np.exp(-chance[kind]))
    much = {
        "rain": 4.0 * np.exp(0.6 * f) * rng.gamma(0.8, 1.0, ROWS),
        "sales": np.round(30.0 * np.exp(0.5 * f + 0.4 * normal), 2),
        "claims": np.round(1500.0 * np.exp(0.5 * f + 0.9 * normal), 2),
        "calls": np.rint(180.0 * np.exp(0.5 * f) * rng.gamma(1.5, 0.6, ROWS)) + 1.0,
    }
    return np.where(some, much[kind], 0.0)


def made(kind: str) -> Callable[[int], Table]:
    """A made target of five inputs."""

    def rows(seed: int) -> Table:
        rng = np.random.default_rng([seed, 99])
        x = rng.standard_normal((ROWS, 5))
        return Table(x, _made(kind, teacher(rng)(x), teacher(rng)(x), rng))

    return rows


def seattle(seed: int) -> Table:
    """A day's rain, by temperatures, wind and the time of the year; seed 0 in order."""
    from vega_datasets import data

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        days = data.seattle_weather()
    turn = 2.0 * np.pi * days.date.dt.dayofyear.to_numpy(float) / 365.25
    known = [days[name].to_numpy(float) for name in ("temp_max", "temp_min", "wind")]
    x = np.column_stack([*known, np.sin(turn), np.cos(turn)])
    order = np.random.default_rng(seed).permutation(len(x)) if seed else np.arange(len(x))
    return Table(x[order], days.precipitation.to_numpy(float)[order])


def study(name: str, target: str) -> Callable[[int], Table]:
    """A column of a data set of statsmodels, by all others."""

    def rows(seed: int) -> Table:
        import statsmodels.api as sm

        frame = getattr(sm.datasets, name).load_pandas().data.astype(float)
        order = np.random.default_rng(seed).permutation(len(frame))[:6000]
        x = frame.drop(columns=target).to_numpy()
        return Table(x[order], frame[target].to_numpy()[order])

    return rows


SETS: dict[str, Callable[[int], Table]] = {
    name: made(name) for name in ("rain", "sales", "claims", "calls", "cut off")
}
if find_spec("statsmodels"):
    SETS |= {
        "affairs": study("fair", "affairs"),
        "limitations": study("randhie", "physlm"),
        "diseases": study("randhie", "disea"),
        "year-round": study("star98", "PCTYRRND"),
    }
if find_spec("vega_datasets"):
    SETS["Seattle"] = seattle


def pinball(y: FloatArray, q: FloatArray, share: float) -> float:
    """The loss of a quantile."""
    return float(np.mean(np.maximum(share * (y - q), (share - 1.0) * (y - q))))


def score(y: FloatArray, lower: FloatArray, upper: FloatArray) -> float:
    """The interval score of 90 %."""
    missed = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    return float(np.mean(upper - lower + 20.0 * missed))


def learned(table: Table, seed: int, kind: str) -> tuple[str, list[float]]:
    """What a model says of each row before it is learned, judged."""
    settings = Settings(seed=seed, kind=kind)
    model = OnlineModel(settings, schema(table.x.shape[1]))
    said = model.learn(block(table.x, table.y))
    y, mean, rows = table.y[SKIPPED:], said.mean[SKIPPED:, 0], said.stated[SKIPPED:, 0]
    told = read_distribution(rows).score_values(y)
    halves = [read_distribution(rows).quantile(share) for share in (0.5, 0.9)]
    return model.task.name, [
        float(np.mean(told.nll)),
        float(np.mean(told.crps)),
        float(np.sqrt(np.mean((y - mean) ** 2))),
        100.0 * float(np.mean(told.in_90)),
        score(y, told.lower, told.upper),
        pinball(y, halves[0], 0.5),
        pinball(y, halves[1], 0.9),
        100.0 * float(np.mean(told.lower < 0.0)),
    ]


def constant(table: Table) -> list[float]:
    """The best that says the same of every row, in hindsight."""
    y = table.y[SKIPPED:]
    some = y[y > 0.0]
    logs, none = np.log(some), 1.0 - len(some) / len(y)
    first = table.y[:32]
    width = 0.01 * float(np.median(first[first > 0.0]))
    entropy = 0.5 * np.log(2.0 * np.pi * np.e * logs.var()) + logs.mean()
    nll = none * (np.log(width) - np.log(none)) + (1.0 - none) * (entropy - np.log(1.0 - none))
    ordered, n = np.sort(y), len(y)
    apart = np.sum((2.0 * np.arange(1, n + 1) - n - 1.0) * ordered) / n**2  # E |X - X'|/2
    edges = [0.0, np.quantile(y, 0.9)] if none > 0.05 else np.quantile(y, [0.05, 0.95])
    held = (y >= edges[0]) & (y <= edges[1])
    return [
        float(nll),
        float(apart),
        float(np.std(y)),
        100.0 * float(np.mean(held)),
        score(y, np.full(n, edges[0]), np.full(n, edges[1])),
        pinball(y, np.full(n, np.quantile(y, 0.5)), 0.5),
        pinball(y, np.full(n, np.quantile(y, 0.9)), 0.9),
        0.0,
    ]


def main() -> None:
    """Print a line for each set, seed and kind."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("sets", nargs="*")
    said = parser.parse_args()
    print(" " * 25 + "".join(head.rjust(9) for head in HEADS))
    for name in said.sets or SETS:
        for seed in range(said.seeds):
            table = SETS[name](seed)
            found = [learned(table, seed, kind) for kind in ("auto", "regression")]
            for kind, figures in [*found, ("constant", constant(table))]:
                line = "".join(f"{value:9.4g}" for value in figures)
                print(f"{name:13}{kind:12}{line}", flush=True)


if __name__ == "__main__":
    main()
