"""Alerts on made series of servers, sensors and traffic: a time and a value, one event or two each.

    python -m tests.bench.alert_series [--repeats 3] [--rate 1e-3] [--seed 0] [--only taxi]

Every series is a CSV file that `kbnn train FILE --alerts alerts.csv --alert-rate 1e-3` learns as
it is. The first 15 % are a probation period, whose alerts do not count. A window around each event
has a tenth of the rows, divided by the number of events. The first alert in a window counts up to
1: the earlier, the more. An alert outside costs up to 0.11, the more the farther from the last
window; a window without an alert costs 1. The score is 100 for one alert at the start of each
window, and 0 for no alert at all.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from tests.commands import kbnn

Floats = NDArray[np.float64]
Series = tuple[NDArray[Any], NDArray[Any], list[int]]
"""Seconds, values and the rows at which events begin."""

PROBATION = 0.15
FALSE_COST = 0.11


def smooth_noise(rng: np.random.Generator, rows: int, memory: float) -> Floats:
    """Make AR(1) noise of sd 1."""
    e = rng.standard_normal(rows) * math.sqrt(1.0 - memory**2)
    return np.asarray(lfilter([1.0], [1.0, -memory], e))


def pick_events(rng: np.random.Generator, rows: int, count: int) -> list[int]:
    """Pick rows of events, far from each other and from the ends."""
    parts = np.linspace(0.3, 0.95, count + 1)
    return [int(rows * rng.uniform(a, b - 0.06)) for a, b in pairwise(parts)]


def make_processor(rng: np.random.Generator) -> Series:
    """Load of a server: low, skewed, with bursts; an event is another level or a huge burst."""
    rows = 4032
    y = 2.0 + 0.3 * rng.gamma(1.5, 1.0, rows) + (rng.random(rows) < 0.01) * rng.exponential(5, rows)
    at = pick_events(rng, rows, 2)
    y[at[0] : at[0] + 150] += rng.choice([6.0, 20.0])
    y[at[1] : at[1] + 3] += 60.0
    return 300.0 * np.arange(rows), np.round(y, 3), at


def make_writes(rng: np.random.Generator) -> Series:
    """Bytes written: mostly 0, sometimes much; an event is a long run of writes."""
    rows = 4730
    y = np.where(rng.random(rows) < 0.04, rng.lognormal(12.0, 1.5, rows), 0.0)
    (at,) = pick_events(rng, rows, 1)
    y[at : at + 40] = rng.lognormal(14.0, 1.0, 40)
    return 300.0 * np.arange(rows), np.round(y), [at]


def make_taxi(rng: np.random.Generator) -> Series:
    """Passengers in half an hour: day and week; an event is a day with half or twice as many."""
    rows = 10_320
    hour = np.arange(rows) / 2.0
    day = 1.0 + 0.7 * np.sin(2 * np.pi * (hour - 9) / 24) + 0.3 * np.sin(4 * np.pi * hour / 24)
    week = 1.0 + 0.15 * np.sin(2 * np.pi * hour / 168)
    y = 15000 * np.maximum(day * week, 0.1) * np.exp(0.06 * smooth_noise(rng, rows, 0.8))
    at = pick_events(rng, rows, 4)
    for start, factor in zip(at, (0.5, 1.5, 0.4, 0.6), strict=True):
        y[start : start + 48] *= factor
    return 1800.0 * np.arange(rows), np.round(y), at


def make_machine(rng: np.random.Generator) -> Series:
    """Temperature of a machine: a wandering level; events are a drop and a failure."""
    rows = 22_000
    y = 85 + 6 * smooth_noise(rng, rows, 0.999) + smooth_noise(rng, rows, 0.9)
    at = pick_events(rng, rows, 2)
    y[at[0] : at[0] + 300] -= np.linspace(0, 35, 300)
    y[at[1] : at[1] + 100] -= 50
    return 300.0 * np.arange(rows), np.round(y, 4), at


def make_room(rng: np.random.Generator) -> Series:
    """Room temperature by the hour with gaps in the stamps; an event is a heating that is off."""
    rows = 7267
    seconds = 3600.0 * np.cumsum(1 + (rng.random(rows) < 0.01) * rng.integers(1, 30, rows))
    y = 71 + 2 * np.sin(2 * np.pi * seconds / 86400) + 2.5 * smooth_noise(rng, rows, 0.97)
    at = pick_events(rng, rows, 2)
    y[at[0] : at[0] + 60] -= np.linspace(0, 14, 60)
    y[at[1] : at[1] + 24] += 9
    return seconds, np.round(y, 2), at


def make_speed(rng: np.random.Generator) -> Series:
    """Speed of traffic at irregular times, whole numbers; an event is a jam or a stuck sensor."""
    rows = 2400
    seconds = np.cumsum(60.0 * rng.choice([5, 5, 5, 10, 15, 40], rows))
    day = np.sin(2 * np.pi * seconds / 86400)
    y = 70 - 8 * (day > 0.7) + 5 * smooth_noise(rng, rows, 0.6)
    at = pick_events(rng, rows, 2)
    y[at[0] : at[0] + 25] -= 35
    y[at[1] : at[1] + 40] = y[at[1]]
    return seconds, np.round(np.clip(y, 3, 90)), at


def make_requests(rng: np.random.Generator) -> Series:
    """Requests by five minutes with a daily curve: Poisson; an event is an outage or a rush."""
    rows = 4032
    seconds = 300.0 * np.arange(rows)
    mean = 60 + 50 * np.sin(2 * np.pi * seconds / 86400)
    at = pick_events(rng, rows, 2)
    mean[at[0] : at[0] + 20] = 0.0
    mean[at[1] : at[1] + 60] *= 2.5
    return seconds, rng.poisson(np.maximum(mean, 0)).astype(float), at


def make_square(rng: np.random.Generator) -> Series:
    """A square wave with little noise; an event is a day without it."""
    rows = 4032
    seconds = 300.0 * np.arange(rows)
    y = np.where((seconds % 86400) < 43200, 20.0, 80.0) + rng.uniform(-1, 1, rows)
    (at,) = pick_events(rng, rows, 1)
    at += 288 - at % 288
    y[at : at + 144] = 80 + rng.uniform(-1, 1, 144)
    return seconds, np.round(y, 4), [at]


def make_noise(rng: np.random.Generator) -> Series:
    """Nothing but noise: no event."""
    return 300.0 * np.arange(4032), np.round(20 + 3 * rng.standard_normal(4032), 4), []


def make_latency(rng: np.random.Generator) -> Series:
    """Latency of requests: log-normal, by day, with single spikes; the event is a slow rise."""
    rows = 4032
    seconds = 300.0 * np.arange(rows)
    y = 40 + 10 * np.sin(2 * np.pi * seconds / 86400) + rng.lognormal(1.0, 0.8, rows)
    (at,) = pick_events(rng, rows, 1)
    y[at : at + 250] += np.linspace(0, 45, 250)
    return seconds, np.round(y, 2), [at]


KINDS: dict[str, Callable[[np.random.Generator], Series]] = {
    make.__name__.removeprefix("make_"): make
    for make in (
        *(make_processor, make_writes, make_taxi, make_machine, make_room),
        *(make_speed, make_requests, make_square, make_noise, make_latency),
    )
}


def find_alerts(series: Series, rate: float) -> list[int]:
    """Train on the series as a CSV file; return the rows of the alerts, from 0."""
    seconds, y, _ = series
    start = np.datetime64("2024-01-01T00:00:00")
    times = np.datetime_as_string(start + seconds.astype(np.int64)).tolist()
    lines = [f"{t.replace('T', ' ')},{v:g}" for t, v in zip(times, y.tolist(), strict=True)]
    with TemporaryDirectory() as folder:
        source, alerts = f"{folder}/series.csv", f"{folder}/alerts.csv"
        Path(source).write_text("\n".join(["timestamp,value", *lines, ""]))
        words = ["-m", f"{folder}/m.npz", "-q", "--alerts", alerts, "--alert-rate", f"{rate:g}"]
        ran = kbnn("train", source, *words)
        assert ran.code == 0, ran.err
        with open(alerts) as file:
            return [int(alert["row"]) - 1 for alert in csv.DictReader(file)]


def weigh_position(x: float) -> float:
    """Return the weight of an alert at x: -1 at the start of a window, 0 at its end, beyond > 0."""
    return 2.0 / (1.0 + math.exp(5.0 * x)) - 1.0 if x < 3.0 else -1.0


def score_alerts(rows: int, events: list[int], alerts: list[int]) -> tuple[float, int, int]:
    """Return score, windows found and false alarms."""
    width = int(0.1 * rows / max(len(events), 1))
    windows = [(at - width // 2, at + width // 2) for at in events]
    score, found, false = -float(len(windows)), 0, 0
    hit: set[int] = set()
    for row in alerts:
        if row < PROBATION * rows:
            continue
        inside = [k for k, (a, b) in enumerate(windows) if a <= row <= b]
        if inside:
            k = inside[0]
            if k not in hit:
                hit.add(k)
                a, b = windows[k]
                score += 1.0 + weigh_position(-(b - row + 1) / (b - a + 1)) / weigh_position(-1.0)
                found += 1
            continue
        false += 1
        ended = [b for _, b in windows if b < row]
        past = (row - max(ended)) / (width - 1) if ended else math.inf
        score += FALSE_COST * weigh_position(past)
    return score, found, false


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    total = np.zeros(5)
    print(f"{'series':<12}{'rows':>8}{'events':>8}{'found':>8}{'false':>8}{'score':>8}")
    for name, make in KINDS.items():
        if asked.only not in name:
            continue
        part = np.zeros(5)
        for seed in range(asked.seed, asked.seed + asked.repeats):
            series = make(np.random.default_rng(seed))
            rows, events = len(series[1]), series[2]
            score, found, false = score_alerts(rows, events, find_alerts(series, asked.rate))
            part += rows, len(events), found, false, score
        total += part
        print_line(name, part)
    print_line("all", total)


def print_line(name: str, part: Floats) -> None:
    """Print the sums of some series: rows, events, found, false alarms and score."""
    rows, events, found, false, score = part.tolist()
    shown = f"{50.0 * (score + events) / events:8.1f}" if events else f"{score:8.2f}"
    print(f"{name:<12}{rows:8.0f}{events:8.0f}{found:8.0f}{false:8.0f}{shown}", flush=True)


if __name__ == "__main__":
    main()
