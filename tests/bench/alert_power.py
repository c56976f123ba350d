"""Share of made anomalies found and delay in rows, at one false alarm per 1,000 rows.

    pip install river
    python -m tests.bench.alert_power [--repeats 12]

Each series has a daily curve, AR(1) noise and one event from row 2,400 on. The same rows are given
to river's HalfSpaceTrees, whose threshold is the 99.9 % quantile of its scores of the rows before,
and to a Gaussian of the last 500 rows. All three open an alert after 75 rows below the threshold.
`kbnn frozen` is a model that learned the first 1,500 rows with `--alerts` and evaluates the others
without learning; it is shown for its lags, which must not make it follow what it should report.
An event is found if an alert opens in its rows or in the 50 rows after them. `before` counts the
alerts of rows 500 to 2,399 per 1,000 rows: false alarms.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from csv import DictReader
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter
from scipy.stats import norm

from kbnn.model.anomaly import init_detector, update_detector
from kbnn.model.anomaly_reference import QUIET_ROWS
from tests.bench.alert_streams import ROW_SECONDS, Floats, Made, name_times, state_rows
from tests.commands import kbnn

ROWS = 3000
FIRST = 2400
QUIET_FROM = 500
AFTER_ROWS = 50
RATE = 1e-3
WINDOW = 500
FROZEN_FROM = 1500


class Event(NamedTuple):
    """An anomaly of some rows: how it changes curve (n,) and noise (n,) of unit sd."""

    rows: int
    change: Callable[[Floats, Floats], Floats]


EVENTS = {
    "spike 6 sd": Event(1, lambda curve, e: curve + e + 6.0),
    "level shift 2 sd": Event(200, lambda curve, e: curve + e + 2.0),
    "level shift 4 sd": Event(200, lambda curve, e: curve + e + 4.0),
    "variance doubled": Event(200, lambda curve, e: curve + math.sqrt(2.0) * e),
    "sd doubled": Event(200, lambda curve, e: curve + 2.0 * e),
    "flat line": Event(50, lambda curve, e: np.full_like(e, curve[0] + e[0])),
    "missing block": Event(20, lambda curve, e: np.full_like(e, np.nan)),
    "slow ramp to 6 sd": Event(400, lambda curve, e: curve + e + np.linspace(0.0, 6.0, len(e))),
}


def make_series(event: Event, seed: int) -> Floats:
    """Make a series with an event at FIRST."""
    e = np.random.default_rng(seed).standard_normal(ROWS)
    e = np.asarray(lfilter([math.sqrt(1.0 - 0.25)], [1.0, -0.5], e))
    curve = 5.0 * np.sin(2.0 * np.pi * ROW_SECONDS * np.arange(ROWS) / 86400.0)
    y = np.asarray(curve + e, dtype=np.float64)
    rows = slice(FIRST, FIRST + event.rows)
    y[rows] = event.change(curve[rows], e[rows])
    return y


def open_alerts(exceeds: np.ndarray) -> list[int]:
    """Return the rows that exceed after QUIET_ROWS rows that do not."""
    rows = np.flatnonzero(exceeds)
    return rows[np.diff(rows, prepend=-math.inf) > QUIET_ROWS].tolist()  # type: ignore[no-any-return]


def detect_with_model(y: Floats) -> list[int]:
    """Alert from what a model stated of each row."""
    table = {"time": name_times(ROWS), "y": [None if math.isnan(v) else v for v in y]}
    stated = state_rows(Made(table, {}))
    state = init_detector(has_clock=True)
    _, found = update_detector(state, y, stated.z, rate=RATE, seconds=stated.seconds)
    return [alert.row for alert in found.alerts if alert.is_open]


def detect_with_frozen_model(y: Floats) -> list[int]:
    """Alert from `evaluate --alerts` on the rows after the first, which a model has learned."""
    cells = ["" if math.isnan(v) else repr(v) for v in y.tolist()]
    lines = [f"{t},{cell}" for t, cell in zip(name_times(ROWS), cells, strict=True)]
    with TemporaryDirectory() as folder:
        paths = [f"{folder}/{name}.csv" for name in ("first", "rest", "alerts")]
        for path, part in zip(paths[:2], (lines[:FROZEN_FROM], lines[FROZEN_FROM:]), strict=True):
            Path(path).write_text("\n".join(["time,y", *part, ""]))
        model = f"{folder}/m.npz"
        words = ["--alert-rate", str(RATE), "-q", "--alerts"]
        learned = kbnn("train", paths[0], "-m", model, *words, paths[2])
        assert learned.code == 0, learned.err
        with open(paths[2]) as file:
            rows = [int(alert["row"]) - 1 for alert in DictReader(file)]
        judged = kbnn("evaluate", model, paths[1], *words, paths[2])
        assert judged.code == 0, judged.err
        with open(paths[2]) as file:
            return rows + [FROZEN_FROM + int(alert["row"]) - 1 for alert in DictReader(file)]


def detect_with_trees(y: Floats) -> list[int]:
    """Alert from river's HalfSpaceTrees on the value and the value before it."""
    from river import anomaly

    low, high = float(np.nanmin(y[:FIRST])) - 1.0, float(np.nanmax(y[:FIRST])) + 1.0
    trees = anomaly.HalfSpaceTrees(
        n_trees=25, height=8, window_size=250, seed=1, limits={"now": (0, 1), "before": (0, 1)}
    )
    scores, before = np.zeros(ROWS), 0.5
    for i, value in enumerate(y.tolist()):
        if math.isnan(value):
            continue
        now = min(max((value - low) / (high - low), 0.0), 1.0)
        row = {"now": now, "before": before}
        scores[i] = trees.score_one(row)
        trees.learn_one(row)
        before = now
    return open_alerts(scores > np.quantile(scores[QUIET_FROM:FIRST], 1.0 - RATE))


def detect_with_gaussian(y: Floats) -> list[int]:
    """Alert where a value has a tail probability below the rate in the last WINDOW values."""
    far = np.zeros(ROWS)
    for i in range(50, ROWS):
        window = y[max(0, i - WINDOW) : i]
        far[i] = abs(y[i] - np.nanmean(window)) / np.nanstd(window)
    return open_alerts(far > norm.isf(RATE / 2.0))


DETECTORS = {
    "kbnn": detect_with_model,
    "kbnn frozen": detect_with_frozen_model,
    "half-space trees": detect_with_trees,
    "windowed Gaussian": detect_with_gaussian,
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=12)
    repeats = parser.parse_args().repeats
    print("found / median delay".ljust(20), *(f"{name:>20}" for name in DETECTORS))
    before = dict.fromkeys(DETECTORS, 0)
    for name, event in EVENTS.items():
        cells = []
        for which, detect in DETECTORS.items():
            delays = []
            for seed in range(repeats):
                alerts = detect(make_series(event, seed))
                before[which] += sum(QUIET_FROM <= row < FIRST for row in alerts)
                end = FIRST + event.rows + AFTER_ROWS
                delays += [row - FIRST for row in alerts if FIRST <= row < end][:1]
            delay = f"{np.median(delays):5.0f}" if delays else "    -"
            cells.append(f"{len(delays) / repeats:.2f} / {delay}")
        print(name.ljust(20), *(f"{cell:>20}" for cell in cells), flush=True)
    rows = len(EVENTS) * repeats * (FIRST - QUIET_FROM) / 1000.0
    print("before, per 1,000".ljust(20), *(f"{count / rows:20.2f}" for count in before.values()))


if __name__ == "__main__":
    main()
