"""A fleet of many keys: time, memory and disk a key, and what a common start is worth.

`python -m tests.bench.fleet` ends with 1 when something that it promises is not kept. Each run is
a process of its own, so that memory is its own. `--keys 100000` is the size of the promise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

import kbnn
from kbnn.array_types import FloatArray, IntArray
from tests.fleets import made, write

MOST_BYTES = 25_000
LEAST_SHARE = 0.1
"""Of the rate of one small model, with every model open."""
MOST_MEMORY = {True: 3e9, False: 1e9}
"""Bytes, with every model open or not."""
MOST_ERROR = 0.6
"""Of keys that come late, in their rows 1 to 20, beside the same without a common start."""
LEAST_GAIN = 1.6
"""Of two workers on two cores, where learning is what takes time."""
MOST_LATER = 1.02
"""The same after 500 rows."""
MANY = 100
"""Devices of which each seed keeps it."""

_CHILD = """
import json, resource, sys, time
from kbnn.workflows.training import Training
from kbnn.workflows.options import build_train_options
words = json.loads(sys.argv[1])
if __name__ == "__main__":
    training = Training(build_train_options(**words))
    start = time.process_time()
    training.run()
    used = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    others = others.ru_utime + others.ru_stime
    seconds = vars(training.seconds)
    told = {"processor": used, "others": others, "peak": peak, "rows": training.rows}
    print(json.dumps({**told, **seconds}))
"""


def run(**words: object) -> dict[str, float]:
    """Train in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, json.dumps(words)],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # as commands have it
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def many_keys(folder: Path, keys: int, rows: int, opened: list[int], workers: int) -> bool:
    """So many keys with so many rows each, in random order."""
    draw = np.random.default_rng(0)
    device = draw.permutation(np.repeat(np.arange(keys), rows))
    x = draw.normal(size=(len(device), 2))
    y = np.sin(2.0 * x[:, 0]) + draw.normal(size=keys)[device] + 0.1 * draw.normal(size=len(device))
    write(folder / "many.csv", device, x, y)
    source = {"sources": str(folder / "many.csv"), "target": "y"}
    small = {"layers": 10, "covariance": "neuron", "rehearse": "off", "task": "regression"}
    single = run(**source, **small, ignore="device", model=str(folder / "one.npz"))
    rate = single["rows"] / single["processor"]
    print(f"{keys:,} keys, {len(device):,} rows; one small model: {rate:,.0f} rows/s of processor")
    print(f"{'open':>10}{'rows/s':>10}{'of one':>9}{'learn s':>9}{'save s':>8}", end="")
    print(f"{'peak MB':>9}{'KB a key':>10}")
    kept = True
    for most in opened:
        name = folder / f"fleet{most}"
        made_of = run(**source, key="device", open=most, model=str(name))
        here = made_of["rows"] / made_of["processor"]
        size = sum(path.stat().st_size for path in name.iterdir()) / keys
        print(f"{most:>10,}{here:>10,.0f}{100 * here / rate:>8.1f}%", end="")
        print(f"{made_of['learn']:>9.1f}{made_of['save']:>8.1f}", end="")
        print(f"{made_of['peak'] / 1e6:>9,.0f}{size / 1e3:>10.1f}", flush=True)
        kept = kept and size <= MOST_BYTES and made_of["peak"] <= MOST_MEMORY[most >= keys]
        kept = kept and (most < keys or here >= LEAST_SHARE * rate)
    if workers:
        words = {"engine": "dask", "cluster": f"local:{workers}", "open": keys}
        made_of = run(**source, **words, key="device", model=str(folder / "workers"))
        told = f"{workers} workers: {made_of['rows'] / made_of['learn']:,.0f} rows/s by the clock"
        print(f"{told}, {made_of['processor']:.1f} s of processor in the process that reads")
    print(f"a plain loop over kbnn.Model.learn_one: {plain(device, x, y):,.0f} rows/s")
    return kept


def plain(device: IntArray, x: FloatArray, y: FloatArray) -> float:
    """Rows a second of the loop that a user would write: a dict of models, some rows of it."""
    models: dict[int, kbnn.Model] = {}
    start, most = time.process_time(), 5_000
    for key, (a, b), target in zip(device[:most].tolist(), x.tolist(), y.tolist(), strict=False):
        if key not in models:
            models[key] = kbnn.Model(target="y", layers=10, covariance="neuron", rehearse="off")
        models[key].learn_one({"a": a, "b": b}, target)
    return most / (time.process_time() - start)


def wide_rows(folder: Path, rows: int) -> bool:
    """Rows that take longer to learn than to read: one process, and two workers beside it.

    Workers start, and the first rows are learned before they are asked: that takes the same time
    however many rows there are. By the processor, two cores can be no faster than half of all that
    was used, nor than the process that reads.
    """
    draw, keys, inputs, units = np.random.default_rng(0), 8, 40, 100
    device, x = draw.integers(0, keys, rows), draw.normal(size=(rows, inputs))
    y = (
        np.sin(2.0 * x @ (draw.normal(size=inputs) / np.sqrt(inputs)))
        + draw.normal(size=keys)[device]
    )
    y += 0.1 * draw.normal(size=rows)
    names = ",".join(f"x{j}" for j in range(inputs))
    with (folder / "wide.csv").open("w", encoding="utf-8") as file:
        file.write(f"device,{names},y\n")
        for key, values, target in zip(device.tolist(), x.tolist(), y.tolist(), strict=True):
            file.write(f"d{key},{','.join(f'{v:.4f}' for v in values)},{target:.4f}\n")
    words = {"sources": str(folder / "wide.csv"), "target": "y", "key": "device"}
    net = {"layers": units, "covariance": "group"}
    one = run(**words, **net, model=str(folder / "wide"))
    dask = {"engine": "dask", "cluster": "local:2", "model": str(folder / "wide2")}
    two = run(**words, **net, **dask)
    reads, works = two["processor"], two["others"]
    least = max(reads, 0.5 * (reads + works))
    print(f"\n{rows:,} rows of {inputs} inputs, {units} units, {keys} keys: one process")
    print(f"  {one['total']:.1f} s, {one['processor']:.1f} s of processor; two workers", end=" ")
    print(f"{two['total']:.1f} s, {two['start']:.1f} s of it their start,")
    print(f"  {reads:.1f} s of processor in the process that reads, {works:.1f} s in workers")
    whole, started = one["total"] / two["total"], one["total"] / (two["total"] - two["start"])
    print(f"  rate by the clock {whole:.2f}, {started:.2f} without their start,", end=" ")
    print(f"by the processor {one['processor'] / least:.2f}", flush=True)
    return whole >= LEAST_GAIN


class Young(NamedTuple):
    """Of rows of keys: their error, and the share in their 90 % interval."""

    rmse: float
    inside: float


def by_age(
    folder: Path,
    device: IntArray,
    x: FloatArray,
    y: FloatArray,
    ages: list[tuple[int, int]],
    late: bool,
) -> dict[bool, list[Young]]:
    """With a common start and without, by which row of its key a row is.

    `late`: of keys alone that come first in the second half of the stream.
    """
    write(folder / "made.csv", device, x, y)
    first: dict[int, int] = {}
    met = np.zeros(len(y), np.int64)
    seen: dict[int, int] = {}
    for at, one in enumerate(device.tolist()):
        first.setdefault(one, at)
        seen[one] = seen.get(one, 0) + 1
        met[at] = seen[one]
    counted = np.array([not late or first[one] >= len(y) // 2 for one in device.tolist()])
    found: dict[bool, list[Young]] = {}
    for common in (True, False):
        out = folder / "p.csv"
        words = {"sources": str(folder / "made.csv"), "target": "y", "key": "device"}
        model = {"fresh": True, "model": str(folder / f"made{common}")}
        run(**words, **model, common=common, predictions=str(out))
        said = np.genfromtxt(out, delimiter=",", skip_header=1, usecols=(2, 3, 5, 6))
        off = (said[:, 0] - said[:, 1]) ** 2
        inside = (said[:, 0] >= said[:, 2]) & (said[:, 0] <= said[:, 3])
        found[common] = []
        for a, b in ages:
            rows = counted & (met >= a) & (met <= b)
            error = float(np.sqrt(np.nanmean(off[rows])))
            found[common].append(Young(error, float(np.mean(inside[rows]))))
    return found


def shown(found: dict[bool, list[Young]], ages: list[tuple[int, int]]) -> float:
    """Print a table; the first share of errors comes back."""
    print(f"{'RMSE, in 90 %':>16}" + "".join(f"{f'{a}-{b}':>18}" for a, b in ages))
    for common, told in ((True, "common start"), (False, "without")):
        cells = [f"{one.rmse:>10.3f}{100 * one.inside:>6.1f} %" for one in found[common]]
        print(f"{told:>16}" + "".join(cells))
    shares = [a.rmse / b.rmse for a, b in zip(found[True], found[False], strict=True)]
    print(f"{'share':>16}" + "".join(f"{100 * share:>16.1f} %" for share in shares), flush=True)
    return shares[0]


def later(folder: Path) -> bool:
    """After 500 rows: of many devices, and of six that are there from the first row on.

    What so few gain or lose depends on how the one network began that they begin from: of them the
    average over seeds is promised, and the worst is told.
    """
    ages, kept = [(501, 700)], True
    for devices, rows, seeds in ((100, 1400, 3), (12, 700, 10)):
        squares, shares = np.zeros(2), []
        for seed in range(seeds):
            found = by_age(folder, *made(devices, rows, seed), ages, late=False)
            both = np.array([found[common][0].rmse for common in (True, False)])
            squares += both**2
            shares.append(float(both[0] / both[1]))
        share = float(np.sqrt(squares[0] / squares[1]))
        print(f"{devices} devices of {rows:,} rows, rows 501-700, {seeds} seeds: share", end=" ")
        least, most = 100 * min(shares), 100 * max(shares)
        print(f"{100 * share:.1f} % on the whole, {least:.1f} to {most:.1f} % each", flush=True)
        kept = kept and (max(shares) if devices >= MANY else share) <= MOST_LATER
    return kept


def common_start(folder: Path, devices: int) -> bool:
    """Keys that share a shape: what a common start is worth to those that come late."""
    ages = [(1, 20), (21, 40), (41, 60)]
    print(f"\n{devices} devices, half of them late: over their rows")
    kept = shown(by_age(folder, *made(devices, 60), ages, late=True), ages) <= MOST_ERROR
    print()
    kept = later(folder) and kept
    try:
        from river import datasets
    except ImportError:
        return kept
    rows = sorted(datasets.ChickWeights(), key=lambda row: int(row[0]["chick"]))
    chick = np.array([x["chick"] for x, _ in rows])
    inputs = np.array([[x["time"], x["diet"]] for x, _ in rows], np.float64)
    weight = np.array([y for _, y in rows], np.float64)
    ages = [(1, 20)]
    print(
        "\nweights of 50 chicks, one after another (river's ChickWeights): those of the second half"
    )
    told = by_age(folder, chick, inputs, weight, ages, late=True)
    return shown(told, ages) <= MOST_ERROR and kept


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--keys", type=int, default=2_000)
    reader.add_argument("--rows", type=int, default=20)
    reader.add_argument("--open", type=int, nargs="*", default=None)
    reader.add_argument("--workers", type=int, default=2, help="of Dask; 0: none")
    reader.add_argument("--devices", type=int, default=500)
    reader.add_argument("--wide", type=int, default=300_000, help="wide rows for workers; 0: none")
    said = reader.parse_args()
    opened = said.open or [said.keys]
    with tempfile.TemporaryDirectory() as folder:
        kept = many_keys(Path(folder), said.keys, said.rows, opened, said.workers)
        if said.workers and said.wide:
            kept = wide_rows(Path(folder), said.wide) and kept
        if said.devices:
            kept = common_start(Path(folder), said.devices) and kept
    print("\neverything promised is kept" if kept else "\nNOT KEPT: see above")
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
