"""Time per row: on the paper's sets, and how it grows with rows, units and layers.

One process, one thread, its processor time, from the first row to the last of a training part,
scales and rehearsal included. Growth: rows of Naval (16 inputs). Year is a stand-in of random
numbers (463,715 x 90), for time and memory only.
Run: python -m samples.paper.timing --data DIR
"""

import resource
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from samples.paper import common, data, figures, learners, published, report
from samples.paper.options import Options, parse
from samples.paper.runs import Case, Result, gather

WAYS = ("paper", "default")
ROWS = (500, 1000, 2000, 4000, 8000)
UNITS = (10, 25, 50, 100, 200)
LAYERS = (1, 2, 3, 4)
BLOCK = 4096
GROWN = "naval"


def measure(case: Case, options: Options) -> Result:
    """Best of `repeats` runs over the rows, in seconds, and the peak memory in megabytes."""
    rows, inputs, hidden = int(str(case["rows"])), int(str(case["inputs"])), case["hidden"]
    assert isinstance(hidden, list)
    name = str(case["set"])
    part = data.split(options.data, name, 0)[:2] if name != "year" else None
    x, y = part or data.stand_in(rows, inputs)
    x, y = x[:rows], y[:rows]
    mode: common.Mode = "paper" if case["mode"] == "paper" else "default"
    best = np.inf
    for _ in range(int(str(case["repeats"]))):
        learner = learners.begin(mode, tuple(hidden), x, y, seed=0)
        clock = time.process_time()
        for first in range(0, rows, BLOCK):
            learner.learn(x[first : first + BLOCK], y[first : first + BLOCK])
        best = min(best, time.process_time() - clock)
    unit = 2.0**20 if sys.platform == "darwin" else 2.0**10
    return {
        "seconds": [float(best)],
        "megabytes": [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit],
    }


def main(options: Options) -> None:
    """The table of the sets, the growth curves, and the Year stand-in."""
    repeats = 1 if options.quick else 3
    sets = [(name, mode) for name in data.SETS for mode in WAYS]
    growth: dict[tuple[str, str, int], Case] = {}
    for mode in WAYS:
        for count in ROWS:
            growth[mode, "rows", count] = _case(GROWN, mode, count, [50], repeats)
        for units in UNITS:
            growth[mode, "units", units] = _case(GROWN, mode, 1000, [units], repeats)
        for layers in LAYERS:
            growth[mode, "layers", layers] = _case(GROWN, mode, 1000, [10] * layers, repeats)
    cases = [
        _case(name, mode, round(0.9 * published.SIZES[name][0]), [50], repeats)
        for name, mode in sets
    ]
    results = gather(measure, [*cases, *growth.values()], options, "timing", processes=0)
    per_row = {
        key: 1e6 * result["seconds"][0] / int(str(case["rows"]))
        for key, case, result in zip(
            [*sets, *growth], [*cases, *growth.values()], results, strict=True
        )
    }
    show_sets(per_row, options)
    year(options)
    plt = figures.plots()
    if plt is not None:
        draw(plt, per_row, options)


def _case(name: str, mode: str, rows: int, hidden: list[int], repeats: int) -> Case:
    inputs = published.SIZES[name][1]
    return {
        "set": name,
        "mode": mode,
        "rows": rows,
        "inputs": inputs,
        "hidden": hidden,
        "repeats": repeats,
    }


def show_sets(per_row: dict[Any, float], options: Options) -> None:
    """Microseconds per row and pass, the paper's beside ours."""
    rows = []
    for name in data.SETS:
        count, inputs = published.SIZES[name]
        paper = 1e6 * published.SECONDS[name]["KBNN1"].mean / round(0.9 * count)
        ours = [per_row[name, mode] for mode in WAYS]
        rows.append(
            [
                name.capitalize(),
                str(inputs),
                f"{paper:,.0f}",
                *(f"{value:.1f}" for value in ours),
                f"{paper / ours[-1]:,.0f} x",
            ]
        )
    means = [float(np.mean([per_row[name, mode] for name in data.SETS])) for mode in WAYS]
    paper = 1e3 * published.MILLISECONDS_PER_ROW.mean
    rows.append(
        [
            "mean",
            "",
            f"{paper:,.0f}",
            *(f"{value:.1f}" for value in means),
            f"{paper / means[-1]:,.0f} x",
        ]
    )
    report.show(
        report.Table(
            "timing",
            "Microseconds per row, one pass, one hidden layer of 50",
            (
                "set",
                "inputs",
                "paper as printed",
                *(common.MODE_NAMES[mode] for mode in WAYS),
                "kbnn faster by",
            ),
            rows,
            "Rows of split 0 in memory, from the first to the last, scales and rehearsal included; "
            "processor time of one thread. The paper's are its "
            "seconds for KBNN 1 over its training rows, on another machine (i7-8850H, PyTorch); "
            "its own mean, Year included, is 1.659 ms.",
        ),
        options,
    )


def year(options: Options) -> None:
    """The Year stand-in in a process of its own, so that the memory is its own too."""
    plan = {
        "paper": 5000 if options.quick else 50_000,
        "default": 1000 if options.quick else 20_000,
    }
    cases = [_case("year", mode, rows, [50], 1) for mode, rows in plan.items()]
    results = [gather(measure, [case], options, "Year stand-in", processes=1)[0] for case in cases]
    paper = published.SECONDS["year"]["KBNN1"].mean
    rows = [
        [
            "paper as printed",
            f"{data.YEAR_ROWS:,}",
            f"{paper:,.1f}",
            f"{1e6 * paper / data.YEAR_ROWS:,.0f}",
            f"{paper:,.0f}",
            "-",
        ]
    ]
    for (mode, count), result in zip(plan.items(), results, strict=True):
        seconds = result["seconds"][0]
        rows.append(
            [
                common.MODE_NAMES[mode],
                f"{count:,}",
                f"{seconds:,.1f}",
                f"{1e6 * seconds / count:,.0f}",
                f"{seconds * data.YEAR_ROWS / count:,.0f}",
                f"{result['megabytes'][0]:,.0f}",
            ]
        )
    report.show(
        report.Table(
            "timing_year",
            "Year: 90 inputs, one hidden layer of 50, one pass",
            ("", "rows learned", "seconds", "us per row", "seconds for 463,715 rows", "peak MB"),
            rows,
            "Ours on random numbers of the same shape, not on the Year data: time and memory only. "
            "The seconds for 463,715 rows are in proportion where fewer were learned; memory "
            "includes the rows themselves.",
        ),
        options,
    )


def draw(plt: Any, per_row: dict[Any, float], options: Options) -> None:
    """Total time by rows, time per row by units and by layers; straight lines are power laws."""
    figure, grid = plt.subplots(1, 3, figsize=(11, 4.0))
    looks = {"paper": (figures.ORANGE, "^"), "default": (figures.BLUE, "o")}
    panels = (
        ("rows", ROWS, "rows (16 inputs, 50 units)", "milliseconds in all"),
        ("units", UNITS, "units in one hidden layer (16 inputs)", "microseconds per row"),
        ("layers", LAYERS, "hidden layers of ten units (16 inputs)", "microseconds per row"),
    )
    for axes, (what, values, across, up) in zip(grid, panels, strict=True):
        x, y = printed(what)
        axes.plot(x, y, color=figures.BLACK, marker="s", ms=4, ls="--", label="paper as printed")
        _power(axes, x, y, figures.BLACK)
        for mode, (colour, mark) in looks.items():
            own = [
                per_row[mode, what, value] * (value / 1e3 if what == "rows" else 1.0)
                for value in values
            ]
            name = common.MODE_NAMES[mode]
            axes.plot(values, own, color=colour, marker=mark, ms=5, label=name)
            _power(axes, values, own, colour)
        axes.set(xlabel=across, ylabel=up, xscale="log", yscale="log")
        ticks = values if what != "rows" else (500, 2000, 8000)
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
        axes.margins(x=0.12, y=0.15)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    figure.suptitle("Time of learning; n^k is the power law through the last three points")
    figures.save(plt, figure, options, "timing")


def printed(what: str) -> tuple[Sequence[float], list[float]]:
    """The paper's own times: sets of 6 to 13 inputs by rows, Boston by units and by layers."""
    if what == "rows":
        names = sorted(
            (name for name, (_, inputs) in published.SIZES.items() if 6 <= inputs <= 13),
            key=lambda name: published.SIZES[name][0],
        )
        rows = [0.9 * published.SIZES[name][0] for name in names]
        return rows, [1e3 * published.SECONDS[name]["KBNN1"].mean for name in names]
    table = published.NEURONS_SECONDS if what == "units" else published.LAYERS_SECONDS
    row = table["boston"]
    learned = 10 * round(0.9 * published.SIZES["boston"][0])
    return [float(label) for label in row], [1e6 * one.mean / learned for one in row.values()]


def _power(axes: Any, x: Sequence[float], y: Sequence[float], colour: str) -> None:
    """Write the exponent of the power law through the last three points beside the last one."""
    slope = np.polyfit(np.log(x[-3:]), np.log(y[-3:]), 1)[0]
    axes.annotate(
        f"n^{slope:.2f}",
        (x[-1], y[-1]),
        color=colour,
        fontsize=8,
        xytext=(-4, 7),
        textcoords="offset points",
        ha="right",
    )


if __name__ == "__main__":
    main(parse(__doc__))
