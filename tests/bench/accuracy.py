"""Accuracy on eight UCI sets beside what other methods reach.

    python -m tests.bench.accuracy --data DIR [--ways defaults auto ..] [--passes 1 10 40]

Every run goes the way of `kbnn train`: rows in the order of the split, scales learned from the
stream, later passes marked as such (`--epochs`), the number of the split as --seed. Five splits;
90 % coverage on sets under 1,100 rows from twenty with --coverage-seeds 20. Ends with 1 when a
promise is not kept.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kbnn.model.model import OnlineModel
from kbnn.model.settings import Settings
from tests.bench import data, tables
from tests.bench.bars import Found, bars

WAYS = {
    "defaults": Settings(),
    "best": Settings(hidden="best"),
    "single": Settings(hidden=(50,)),
    "off": Settings(rehearse=0),
    "neuron": Settings(covariance="neuron"),
    "full": Settings(covariance="full"),
    "paper": Settings(covariance="paper"),
    "ensemble": Settings(ensemble=5),
}
"""What is said to `kbnn train`: nothing, or one option."""
USUAL = ("defaults", "single", "best")


class Job(NamedTuple):
    """One split of one set, learned in one way."""

    folder: Path
    name: str
    way: str
    seed: int
    passes: tuple[int, ...]


class Outcome(NamedTuple):
    """What a job found after so many passes."""

    name: str
    way: str
    seed: int
    passes: int
    rmse: float
    nll: float
    coverage: float
    micros: float  # processor time per row and pass
    alarms: int


def run(job: Job) -> list[Outcome]:
    """Learn a split and judge it after each of the asked numbers of passes."""
    split = data.split(job.folder, job.name, job.seed)
    rows = data.block(split.x, split.y)
    settings = replace(WAYS[job.way], seed=job.seed)
    model = OnlineModel(settings, data.schema(split.x.shape[1]))
    found, spent = [], 0.0
    for number in range(1, max(job.passes) + 1):
        start = time.process_time()
        model.learn(rows, again=number > 1)
        spent += time.process_time() - start
        if number in job.passes:
            scored = data.judged(model, split.x_test, split.y_test)
            micros = 1e6 * spent / (number * len(split.y))
            found.append(
                Outcome(
                    job.name,
                    job.way,
                    job.seed,
                    number,
                    *scored,
                    micros,
                    model.learner_state.get_count("alarms"),
                )
            )
    return found


def run_all(jobs: Sequence[Job], processes: int) -> list[Outcome]:
    """All jobs, the long ones first."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    done: list[Outcome] = []
    with ProcessPoolExecutor(processes) as pool:
        for found in pool.map(run, jobs):
            done += found
            last = found[-1]
            print(
                f"\r{len(done):4d} {last.name:9s} {last.way:9s} split {last.seed:2d}",
                end="",
                file=sys.stderr,
                flush=True,
            )
    print(file=sys.stderr)
    return done


def averages(outcomes: Sequence[Outcome], seeds: int) -> Found:
    """Means over the first `seeds` splits and their errors; coverage over all that were run."""
    found: Found = {}
    order = list(WAYS)
    keys = sorted(
        {(o.way, o.passes, o.name) for o in outcomes},
        key=lambda key: (order.index(key[0]), key[1], data.SETS.index(key[2])),
    )
    for key in keys:
        every = [o for o in outcomes if (o.way, o.passes, o.name) == key]
        first = [o for o in every if o.seed < seeds]
        rmse, nll = ([o.rmse for o in first], [o.nll for o in first])
        found[key] = {
            "rmse": float(np.mean(rmse)),
            "rmse_error": data.error(rmse),
            "nll": float(np.mean(nll)),
            "nll_error": data.error(nll),
            "coverage": 100.0 * float(np.mean([o.coverage for o in every])),
            "micros": float(np.median([o.micros for o in first])),
            "alarms": float(np.mean([o.alarms for o in every])),
            "splits": float(len(every)),
        }
    return found


def show(found: Found) -> None:
    """Our figures beside every anchor."""
    for way, passes in dict.fromkeys((way, passes) for way, passes, _ in found):
        ours = {n: found[way, passes, n] for n in data.SETS if (way, passes, n) in found}
        print(f"\n{way}, {passes} pass{'es' if passes > 1 else ''}\n")
        print("\n".join(tables.beside_anchors(ours)))
    print()


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print, and write; 1 when a promise is not kept."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.accuracy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", help="folder with boston.csv and so on (or KBNN_DATA)")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--sets", nargs="+", choices=data.SETS, default=data.SETS)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=USUAL)
    parser.add_argument("--passes", nargs="+", type=int, default=[1, 10])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--coverage-seeds",
        type=int,
        default=0,
        help="splits of sets under 1,100 rows, for their coverage",
    )
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args(arguments)
    folder = data.folder(given.data)
    jobs = [
        Job(folder, name, way, seed, tuple(given.passes))
        for way in reversed(given.ways)
        for name in reversed(data.SETS)
        if name in given.sets
        for seed in range(max(given.seeds, given.coverage_seeds if name in data.SMALL else 0))
    ]
    outcomes = run_all(jobs, given.processes)
    found = averages(outcomes, given.seeds)
    show(found)
    verdicts = bars(found)
    print("\n".join(str(bar) for bar in verdicts))
    if given.json:
        written = {
            "found": [{"way": w, "passes": p, "set": n, **one} for (w, p, n), one in found.items()],
            "runs": [o._asdict() for o in outcomes],
            "bars": [{**bar._asdict(), "kept": bar.kept} for bar in verdicts],
        }
        given.json.write_text(json.dumps(written, indent=1))
    return 0 if all(bar.kept for bar in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
