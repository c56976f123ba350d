"""Learners from PyPI and kbnn on the same splits of eight UCI sets, in one run.

    pip install 'kbnn[peers]'
    python -m tests.bench.peers --data DIR [--sets boston ..] [--all] [--json FILE]

Five splits (seeds 0 to 4), rows in their order, test rows in the target's units. Learners that are
not installed are left out with a word; slow ones (river's forest, NGBoost) on sets over 2,000 rows
unless --all; the Gaussian process on sets over 1,100. Ends with 1 when a promise is not kept.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.bench import data, tables
from tests.bench.bars import Bar
from tests.bench.data import SETS
from tests.bench.rivals import MANY, RIVALS, Rival, quietly

BY_NAME = {rival.name: rival for rival in RIVALS}
PROMISES = (
    ("kbnn", "VW linear", 8),
    ("kbnn", "VW --nn 50", 8),
    ("kbnn", "river linear", 8),
    ("kbnn best 10", "scikit-learn boosting", 5),
)
"""Ours, theirs, and on how many sets of eight our RMSE is lower."""


class Job(NamedTuple):
    """One split of one set, learned by one rival."""

    folder: Path
    rival: str
    name: str
    seed: int


class Run(NamedTuple):
    """What a job found; nll is None where no distribution is stated."""

    rival: str
    name: str
    seed: int
    rmse: float
    nll: float | None
    seconds: float  # processor time of learning and predicting


Figures = dict[tuple[str, str, str], list[float]]
"""By rival, set and measure: a figure for every split."""


def work(job: Job) -> Run:
    """Learn a split and judge what is said of its test rows."""
    rows = data.split(job.folder, job.name, job.seed)
    start = time.process_time()
    said = quietly(BY_NAME[job.rival], rows, job.seed)
    spent = time.process_time() - start
    e = rows.y_test[:, 0] - said.mean
    nll = None
    if said.sd is not None:
        nll = float(np.mean(0.5 * np.log(2.0 * np.pi * said.sd**2) + 0.5 * (e / said.sd) ** 2))
    return Run(job.rival, job.name, job.seed, float(np.sqrt(np.mean(e**2))), nll, spent)


def versions() -> dict[str, str]:
    """Those of the packages that are installed; the others are named on stderr."""
    found = {}
    for package in dict.fromkeys(rival.package for rival in RIVALS):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            print(f"{package} is not installed and left out", file=sys.stderr)
    return found


def suits(rival: Rival, rows: int, everything: bool) -> bool:
    """Whether a set is not too large for a rival."""
    if rival.most is not None and rows >= rival.most:
        return False
    return everything or not rival.slow or rows <= MANY


def figures(runs: Sequence[Run]) -> Figures:
    """The figures of every split, in the order of the splits."""
    found: Figures = {}
    for run in sorted(runs, key=lambda run: run.seed):
        found.setdefault((run.rival, run.name, "rmse"), []).append(run.rmse)
        if run.nll is not None:
            found.setdefault((run.rival, run.name, "nll"), []).append(run.nll)
    return found


def verdict(found: Figures, ours: str, theirs: str, name: str, measure: str) -> str:
    """Who is lower on the same splits: "ours", "theirs" or "tie"; "" where one is missing.

    A tie lies within the standard error of the difference, or is equal in the digits shown.
    """
    pair = [found.get((who, name, measure)) for who in (ours, theirs)]
    if pair[0] is None or pair[1] is None:
        return ""
    shown = [tables.text(float(np.mean(one)), name, measure) for one in (pair[0], pair[1])]
    gap = np.subtract(pair[0], pair[1])
    if shown[0] == shown[1] or abs(gap.mean()) <= data.error(gap.tolist()):
        return "tie"
    return "ours" if gap.mean() < 0.0 else "theirs"


def table(found: Figures, names: Sequence[str], measure: str) -> list[str]:
    """One measure of all rivals: bold is lower than kbnn's one pass, = a tie with it."""
    lines = [f"{tables.TITLES[measure]}\n", tables.heading(names)]
    for rival in RIVALS:
        cells = []
        for name in names:
            values = found.get((rival.name, name, measure))
            cell = tables.text(None if values is None else float(np.mean(values)), name, measure)
            who = verdict(found, "kbnn", rival.name, name, measure)
            if rival.name != "kbnn":
                cell = {"theirs": f"**{cell}**", "tie": f"{cell} ="}.get(who, cell)
            cells.append(cell)
        if any(cell != "-" for cell in cells):
            lines.append(tables.line(f"{rival.name} ({rival.passes})", cells))
    return lines


def promises(found: Figures) -> list[Bar]:
    """Counts of sets where we are lower; ties do not count."""
    out = []
    for ours, theirs, asked in PROMISES:
        who = {name: verdict(found, ours, theirs, name, "rmse") for name in SETS}
        who = {name: one for name, one in who.items() if one}
        if who:
            met, ties, behind = (
                [name for name, one in who.items() if one == kind]
                for kind in ("ours", "tie", "theirs")
            )
            what = f"RMSE of {ours} lower than of {theirs}"
            out.append(Bar(what, len(met), len(who), asked, ties, behind))
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print, and write; 1 when a promise is not kept."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", help="folder with boston.csv and so on (or KBNN_DATA)")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--all", action="store_true", help="slow learners on large sets too")
    parser.add_argument("--only", nargs="+", choices=BY_NAME)
    parser.add_argument("--json", type=Path, help="write versions, settings and figures here")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args(arguments)
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    folder, there = data.folder(given.data), versions()
    names = [name for name in SETS if name in given.sets]
    size = {name: len(data.load(folder, name)[1]) for name in names}
    jobs = [
        Job(folder, rival.name, name, seed)
        for rival in RIVALS
        if rival.package in there and (given.only is None or rival.name in given.only)
        for name in names
        if suits(rival, size[name], given.all)
        for seed in range(5)
    ]
    runs: list[Run] = []
    with ProcessPoolExecutor(given.processes) as pool:
        for run in pool.map(work, jobs):
            runs.append(run)
            said = f"{len(runs)} of {len(jobs)}: {run.rival}, {run.name}, split {run.seed}"
            print(f"\r{said:<70}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    found = figures(runs)
    for measure in tables.TITLES:
        print("\n".join(table(found, names, measure)) + "\n")
    used = {rival.name: rival for rival in RIVALS if any(run.rival == rival.name for run in runs)}
    for one in used.values():
        print(f"{one.name}: {one.package} {there[one.package]}, {one.settings}")
    kept = promises(found)
    print("\n" + "\n".join(str(bar) for bar in kept))
    if given.json:
        written = {
            "python": platform.python_version(),
            "versions": there,
            "settings": {one.name: one.settings for one in used.values()},
            "runs": [run._asdict() for run in runs],
            "promises": [{**bar._asdict(), "kept": bar.kept} for bar in kept],
        }
        given.json.write_text(json.dumps(written, indent=1))
    return 0 if all(bar.kept for bar in kept) else 1


if __name__ == "__main__":
    sys.exit(main())
