"""Accuracy on eight UCI sets beside what other methods reach, in the default settings.

    python -m tests.bench.accuracy --data DIR [--quick] [--json FILE]

Every run goes the way of `kbnn train`: rows in the order of the split, scales learned from the
stream, later passes marked as such. Five splits; 90 % coverage on sets under 1,100 rows from
twenty with --coverage-seeds 20.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kbnn.model.model import Model
from kbnn.model.settings import Settings
from tests.bench import anchors, data
from tests.bench.bars import Found, bars

STRUCTURES = ("paper", "neuron", "group", "full")
QUICK_SETS = ("boston", "energy", "yacht", "wine", "kin8nm")


class Job(NamedTuple):
    """One split of one set, learned by one structure."""

    folder: Path
    name: str
    structure: str
    seed: int
    passes: tuple[int, ...]


class Outcome(NamedTuple):
    """What a job found after so many passes."""

    name: str
    structure: str
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
    model = Model.create(
        Settings(covariance=job.structure, seed=job.seed), data.schema(split.x.shape[1])
    )
    found, spent = [], 0.0
    for number in range(1, max(job.passes) + 1):
        start = time.process_time()
        model.learn(rows, again=number > 1)
        spent += time.process_time() - start
        if number in job.passes:
            scored = data.judged(model, split.x_test, split.y_test)
            found.append(
                Outcome(
                    job.name,
                    job.structure,
                    job.seed,
                    number,
                    *scored,
                    1e6 * spent / (number * len(split.y)),
                    model.alarm_count,
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
                f"\r{len(done):4d} {last.name:9s} {last.structure:7s} split {last.seed:2d}",
                end="",
                flush=True,
            )
    print("\r" + " " * 40 + "\r", end="")
    return done


def averages(outcomes: Sequence[Outcome], seeds: int) -> Found:
    """Means over the first `seeds` splits; coverage over all that were run."""
    found: Found = {}
    keys = sorted(
        {(o.structure, o.passes, o.name) for o in outcomes},
        key=lambda key: (STRUCTURES.index(key[0]), key[1], data.SETS.index(key[2])),
    )
    for structure, passes, name in keys:
        all_runs = [
            o for o in outcomes if (o.structure, o.passes, o.name) == (structure, passes, name)
        ]
        first = [o for o in all_runs if o.seed < seeds]
        found[structure, passes, name] = {
            "rmse": float(np.mean([o.rmse for o in first])),
            "nll": float(np.mean([o.nll for o in first])),
            "coverage": 100.0 * float(np.mean([o.coverage for o in all_runs])),
            "micros": float(np.median([o.micros for o in first])),
            "alarms": float(np.mean([o.alarms for o in all_runs])),
            "splits": float(len(all_runs)),
        }
    return found


def show(found: Found) -> None:
    """Our figures beside every anchor; `<` marks an anchor that is ahead of us."""
    for structure, passes in dict.fromkeys((s, p) for s, p, _ in found):
        ours = {
            name: found[structure, passes, name]
            for name in data.SETS
            if (structure, passes, name) in found
        }
        print(f"\n{structure}, {passes} pass{'es' if passes > 1 else ''}")
        print(f"{'':22s}" + "".join(f"{name:>10s}" for name in ours))
        for measure, table in (("rmse", anchors.RMSE), ("nll", anchors.NLL)):
            _line(
                f"{measure.upper()} kbnn",
                [_text(one[measure], name, measure) for name, one in ours.items()],
            )
            for method in table:
                _line(
                    f"  {method}",
                    [
                        _beside(anchors.anchor(table, method, name), one[measure], name, measure)
                        for name, one in ours.items()
                    ],
                )
        _line("90 % coverage", [f"{one['coverage']:.1f}" for one in ours.values()])
        _line("us/row and pass", [f"{one['micros']:.1f}" for one in ours.values()])
        _line("alarms a run", [f"{one['alarms']:.2f}" for one in ours.values()])
    print("\nus/row of others: " + "; ".join(f"{k} {v}" for k, v in anchors.MICROSECONDS.items()))


def _line(label: str, cells: Sequence[str]) -> None:
    print(f"{label:22s}" + "".join(f"{cell:>10s}" for cell in cells))


def _text(value: float, name: str, measure: str) -> str:
    return f"{value:.6f}" if (name, measure) == ("naval", "rmse") else f"{value:.3f}"


def _beside(anchor: float | None, ours: float, name: str, measure: str) -> str:
    if anchor is None:
        return "-"
    return ("<" if anchor < ours else "") + _text(anchor, name, measure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, print, and write."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.accuracy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", help="folder with boston.csv and so on (or KBNN_DATA)")
    parser.add_argument("--quick", action="store_true", help="five sets, group, three splits")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--sets", nargs="+", choices=data.SETS)
    parser.add_argument("--structures", nargs="+", choices=STRUCTURES)
    parser.add_argument("--passes", nargs="+", type=int, default=[1, 10])
    parser.add_argument("--seeds", type=int)
    parser.add_argument(
        "--coverage-seeds",
        type=int,
        default=0,
        help="splits of sets under 1,100 rows, for their coverage",
    )
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args(arguments)
    sets = given.sets or (QUICK_SETS if given.quick else data.SETS)
    structures = given.structures or (("group",) if given.quick else STRUCTURES)
    seeds = given.seeds or (3 if given.quick else 5)
    folder = data.folder(given.data)
    jobs = [
        Job(folder, name, structure, seed, tuple(given.passes))
        for structure in reversed(structures)
        for name in reversed(data.SETS)
        if name in sets
        for seed in range(max(seeds, given.coverage_seeds if name in data.SMALL else 0))
    ]
    outcomes = run_all(jobs, given.processes)
    found = averages(outcomes, seeds)
    show(found)
    verdicts = bars(found)
    print("\n" + "\n".join(str(bar) for bar in verdicts))
    if given.json:
        given.json.write_text(
            json.dumps(
                {
                    "found": [
                        {"structure": s, "passes": p, "set": n, **one}
                        for (s, p, n), one in found.items()
                    ],
                    "runs": [o._asdict() for o in outcomes],
                    "bars": [bar._asdict() for bar in verdicts],
                },
                indent=1,
            )
        )


if __name__ == "__main__":
    main()
