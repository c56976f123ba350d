"""Six public series: one step ahead beside naive forecasts and AutoETS, and 24 steps ahead.

    pip install statsmodels river vega_datasets statsforecast
    python -m tests.bench.series

Each series is a file of a timestamp and a number, and `kbnn train FILE` with nothing else learns
it. One step: every row is forecast before it is learned, from row 34 on; AutoETS is fitted anew
whenever the rows have doubled and follows them in between. Steps ahead: from many rows on, after
all rows above them were learned; `means` is the same path with each step's own variance alone.
"""

from __future__ import annotations

import contextlib
import csv
import os
import tempfile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import kbnn
from kbnn.data.batch import slice_rows
from kbnn.distributions.predictive import INTERVAL_HALF_WIDTHS_SD
from kbnn.workflows.forecast import forecast_steps, make_future_rows

FIRST = 33
HORIZON = 24
ORIGINS = 200
LONG = 1000
"""Rows from which a series alone must keep its promise."""

Floats = NDArray[np.float64]


class Series(NamedTuple):
    """A public series as a file has it."""

    name: str
    season: int
    when: list[str]
    values: list[float]


def all_series() -> list[Series]:
    """From statsmodels, river and vega_datasets."""
    import statsmodels.api as sm
    import vega_datasets
    from river import datasets

    co2 = sm.datasets.co2.load_pandas().data["co2"].resample("MS").mean().ffill()
    spots = sm.datasets.sunspots.load_pandas().data
    temps, weather = vega_datasets.data.sf_temps(), vega_datasets.data.seattle_weather()
    air = list(datasets.AirlinePassengers())
    flow = list(datasets.WaterFlow())
    return [
        Series("airline", 12, [x["month"].strftime("%Y-%m") for x, _ in air], [y for _, y in air]),
        Series("CO2", 12, [str(d.date()) for d in co2.index], co2.round(3).tolist()),
        Series("sunspots", 0, [str(int(y)) for y in spots["YEAR"]], spots["SUNACTIVITY"].tolist()),
        Series("San Francisco", 24, [str(d) for d in temps["date"]], temps["temp"].tolist()),
        Series(
            "Seattle", 7, [str(d.date()) for d in weather["date"]], weather["temp_max"].tolist()
        ),
        Series("water flow", 24, [str(x["Time"]) for x, _ in flow], [y for _, y in flow]),
    ]


def write(series: Series, folder: str) -> str:
    """The series as a file."""
    path = os.path.join(folder, "series.csv")
    clock = "year" if series.name == "sunspots" else "time"
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([clock, "value"])
        writer.writerows(zip(series.when, series.values, strict=True))
    return path


def one_step(series: Series, folder: str) -> Floats:
    """What was said of every row before it was learned."""
    out = os.path.join(folder, "said.csv")
    kbnn.train(write(series, folder), predictions=out)
    with open(out, encoding="utf-8") as file:
        return np.array([float(row["mean"] or "nan") for row in csv.DictReader(file)])


def auto_ets(series: Series) -> Floats | None:
    """One step ahead by statsforecast, where it is there."""
    with contextlib.suppress(ImportError):
        from statsforecast.models import AutoETS

        y = np.array(series.values)
        said = np.full(len(y), np.nan)
        model = AutoETS(season_length=max(1, series.season))
        for at in range(FIRST, len(y)):
            if at == FIRST or at & (at - 1) == 0:
                model = model.fit(y[:at])
            said[at] = model.forward(y[:at], h=1)["mean"][0]
        return said
    return None


def rmse(said: Floats, truth: Floats) -> float:
    """Over the rows that all are judged by."""
    return float(np.sqrt(np.nanmean((said - truth)[FIRST:] ** 2)))


class Steps(NamedTuple):
    """Forecasts and truth (origins, HORIZON); `own` is each step's own standard deviation."""

    truth: Floats
    mean: Floats
    sd: Floats
    own: Floats


def steps_ahead(series: Series) -> Steps:
    """24 steps from many rows on, each after learning all above it."""
    rows, y = len(series.values), np.array(series.values)
    first = max(100, rows // 4) if rows >= 300 else rows // 3
    places = np.unique(np.linspace(first, rows - HORIZON, ORIGINS).astype(int)).tolist()
    clock = "year" if series.name == "sunspots" else "time"
    model: Any = kbnn.Model()
    parts: list[list[Floats]] = [[], [], [], []]
    done = 0
    for place in places:
        model.learn({clock: series.when[done:place], "value": y[done:place].tolist()})
        done = place
        inner = model._model
        ahead_rows = make_future_rows(inner, HORIZON)
        each = [slice_rows(ahead_rows, k, k + 1) for k in range(HORIZON)]
        made = forecast_steps(inner, [inner.history], each)
        own = [
            forecast_steps(inner, [past], [row]).sd[0, 0] for past, row in _along(inner, made, each)
        ]
        for part, values in zip(
            parts, (y[place : place + HORIZON], made.mean[0], made.sd[0], own), strict=True
        ):
            part.append(np.asarray(values))
    return Steps(*(np.stack(part) for part in parts))


def _along(inner: Any, made: Any, each: list[Any]) -> list[tuple[Any, Any]]:
    """The past of every step if the means had come true."""
    found, past = [], inner.history.copy()
    for h, row in enumerate(each):
        found.append((past.copy(), row))
        inner.timeline.move(past, row._replace(y=made.mean[:, h : h + 1]))
    return found


def inside(steps: Steps, sd: Floats) -> Floats:
    """The share of truths in the 90 % band, by step."""
    return np.asarray(
        np.mean(np.abs(steps.truth - steps.mean) <= INTERVAL_HALF_WIDTHS_SD[90] * sd, axis=0)
    )


def interval_score(steps: Steps, sd: Floats, unit: float) -> Floats:
    """Width and twenty times every miss, in units of the series' spread, by step."""
    half = INTERVAL_HALF_WIDTHS_SD[90] * sd
    miss = np.maximum(np.abs(steps.truth - steps.mean) - half, 0.0)
    return np.asarray(np.mean(2.0 * half + 20.0 * miss, axis=0) / unit)


def main() -> None:
    """Print both tables; 1 when a promise is not kept."""
    failed: list[str] = []
    beaten, every = 0, []
    print(f"{'one step, RMSE':16}{'rows':>7}{'kbnn':>10}{'last':>10}{'season':>10}{'AutoETS':>10}")
    series_list = all_series()
    with tempfile.TemporaryDirectory() as folder:
        for series in series_list:
            y = np.array(series.values)
            said = one_step(series, folder)
            last = np.concatenate(([np.nan], y[:-1]))
            s = series.season or 11
            season = np.concatenate((np.full(s, np.nan), y[:-s]))
            ets = auto_ets(series)
            figures = [rmse(one, y) for one in (said, last, season)]
            figures.append(float("nan") if ets is None else rmse(ets, y))
            if not figures[0] < min(figures[1:3]):
                failed.append(f"{series.name}: a naive forecast is better")
            beaten += figures[0] < figures[3]
            shown = "".join(f"{figure:10.4g}" for figure in figures)
            print(f"{series.name:16}{len(y):7,}{shown}", flush=True)
    print(f"below AutoETS on {beaten} of {len(series_list)}\n")
    at = [1, 6, 12, 24]
    head = "".join(f"{step:>8}" for step in at)
    ends = f"{'low':>8}{'high':>8}"
    print(f"{'in 90 %, by step':24}{head}{ends}   interval score{head}   means only{head}")
    for series in series_list:
        steps = steps_ahead(series)
        unit = float(np.std(series.values))
        held, own = inside(steps, steps.sd), interval_score(steps, steps.own, unit)
        score = interval_score(steps, steps.sd, unit)
        every.append((held, score, own))
        print(f"{series.name:24}{_row(held, at)}{_ends(held)}{'':17}{_row(score, at)}"
              f"{'':13}{_row(own, at)}   {len(steps.truth)} origins", flush=True)  # fmt: skip
        if len(series.values) >= LONG and not (held.min() >= 0.80 and held.max() <= 0.96):
            failed.append(f"{series.name}: {held.min():.3f} to {held.max():.3f} inside")
    held, score, own = (np.mean(np.stack(part), axis=0) for part in zip(*every, strict=True))
    all_steps = f"{_row(held, at)}{_ends(held)}{'':17}{_row(score, at)}{'':13}{_row(own, at)}"
    print(f"{'average':24}{all_steps}")
    if not (held.min() >= 0.85 and held.max() <= 0.93):
        failed.append(f"average: {held.min():.3f} to {held.max():.3f} inside")
    if not score.mean() < own.mean():
        failed.append("means only have the better interval score")
    if beaten < 4:
        failed.append("AutoETS is better on more than two")
    print("\n".join(["not kept:", *failed]) if failed else "all kept")
    raise SystemExit(1 if failed else 0)


def _ends(held: Floats) -> str:
    """The least and the greatest share over all steps."""
    return f"{held.min():8.3f}{held.max():8.3f}"


def _row(values: Floats, at: list[int]) -> str:
    return "".join(f"{values[step - 1]:8.3f}" for step in at)


if __name__ == "__main__":
    main()
