"""A fleet of many keys: time, memory and disk a key, and what a common start is worth.

`python -m tests.bench.fleet` ends with 1 when something that it promises is not kept. Each run is
a process of its own, so that memory is its own. `--keys 100000` is the size of the promise.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import kbnn
from kbnn.core.layout import IntArray
from kbnn.core.normal import FloatArray
from tests.fleets import made, write

MOST_BYTES = 25_000
LEAST_SHARE = 0.1
"""Of the rate of one small model, with every model open."""
MOST_MEMORY = {True: 3e9, False: 1e9}
"""Bytes, with every model open or not."""
MOST_ERROR = 0.6
"""Of keys that come late, in their rows 1 to 20, beside the same without a common start."""

_CHILD = """
import json, resource, sys, time
from kbnn.run.training import Training
from kbnn.run.trainoptions import stated
words = json.loads(sys.argv[1])
if __name__ == "__main__":
    training = Training(stated(**words))
    start = time.process_time()
    training.run()
    used = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    seconds = vars(training.seconds)
    print(json.dumps({"processor": used, "peak": peak, "rows": training.rows, **seconds}))
"""


def run(**words: object) -> dict[str, float]:
    """Train in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, json.dumps(words)],
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


def common_start(folder: Path, devices: int) -> bool:
    """Devices that share a shape: the error of those that come late, with and without."""
    device, x, y = made(devices, 60)
    write(folder / "made.csv", device, x, y)
    first: dict[int, int] = {}
    met = np.zeros(len(y), np.int64)
    seen: dict[int, int] = {}
    for at, one in enumerate(device.tolist()):
        first.setdefault(one, at)
        seen[one] = seen.get(one, 0) + 1
        met[at] = seen[one]
    late = np.array([first[one] >= len(y) // 2 for one in device.tolist()])
    errors = {}
    for common in (True, False):
        out = folder / "p.csv"
        words = {"sources": str(folder / "made.csv"), "target": "y", "key": "device"}
        run(**words, common=common, predictions=str(out), model=str(folder / f"made{common}"))
        said = np.genfromtxt(out, delimiter=",", skip_header=1, usecols=(2, 3))
        off = (said[:, 0] - said[:, 1]) ** 2
        parts = [(1, 20), (21, 40), (41, 60)]
        errors[common] = [
            float(np.sqrt(np.nanmean(off[late & (met >= a) & (met <= b)]))) for a, b in parts
        ]
    print(f"\n{devices} devices, half of them late: RMSE over their rows")
    print(f"{'':>16}{'1-20':>9}{'21-40':>9}{'41-60':>9}")
    for common, told in ((True, "common start"), (False, "without")):
        print(f"{told:>16}" + "".join(f"{error:>9.3f}" for error in errors[common]))
    share = errors[True][0] / errors[False][0]
    print(f"{'share':>16}{100 * share:>8.1f}%")
    return share <= MOST_ERROR


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--keys", type=int, default=2_000)
    reader.add_argument("--rows", type=int, default=20)
    reader.add_argument("--open", type=int, nargs="*", default=None)
    reader.add_argument("--workers", type=int, default=2, help="of Dask; 0: none")
    reader.add_argument("--devices", type=int, default=500)
    said = reader.parse_args()
    opened = said.open or [said.keys]
    with tempfile.TemporaryDirectory() as folder:
        kept = many_keys(Path(folder), said.keys, said.rows, opened, said.workers)
        if said.devices:
            kept = common_start(Path(folder), said.devices) and kept
    print("\neverything promised is kept" if kept else "\nNOT KEPT: see above")
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
