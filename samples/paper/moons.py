"""Moon and Circles, row by row: two hidden layers of ten, 1,350 rows to learn, 150 to be judged on.

Accuracy after 5, 50, 500, 1,000 and 1,350 rows over ten seeds, and the fields of the predicted
probability and its variance.
Run: python -m samples.paper.moons
"""

import time
from typing import Any

import numpy as np

from samples import make
from samples.paper import common, figures, learners, published, report
from samples.paper.options import Options, parse
from samples.paper.runs import Case, Result, gather

HIDDEN = (10, 10)
MARKS = (5, 50, 500, 1000, 1350)
MAKERS = {"moons": make.moons, "circles": make.circles}
MEASURES = ("accuracy", "log_loss", "squared", "nll", "seconds")
TITLES = {"moons": "Moon", "circles": "Circles"}


def stream(name: str, seed: int) -> tuple[common.FloatArray, common.FloatArray]:
    """1,500 rows of a set, other ones for every seed."""
    x, label = MAKERS[name](1500, seed=1000 + seed)
    return x, label[:, None].astype(np.float64)


def progress(case: Case, options: Options) -> Result:
    """Accuracy, log-loss, squared error, the paper's NLL and seconds of learning at every mark."""
    x, y = stream(str(case["set"]), int(str(case["seed"])))
    mode: common.Mode = "paper" if case["mode"] == "paper" else "default"
    learner = learners.begin(mode, HIDDEN, x[:1350], y[:1350], int(str(case["seed"])), classes=True)
    result: Result = {name: [] for name in MEASURES}
    seconds, first = 0.0, 0
    for mark in MARKS:
        start = time.process_time()
        learner.learn(x[first:mark], y[first:mark])
        seconds, first = seconds + time.process_time() - start, mark
        p, var = common.after_sigmoid(learner.ask(x[1350:]))
        result["accuracy"].append(common.accuracy(p, y[1350:]))
        result["log_loss"].append(common.log_loss(p, y[1350:]))
        result["squared"].append(float(np.mean((p - y[1350:]) ** 2)))
        result["nll"].append(common.nll(p, var + common.PAPER_NOISE, y[1350:]))
        result["seconds"].append(seconds)
    return result


def main(options: Options) -> None:
    """The table of the paper with ours beside it, then the fields."""
    cases: list[Case] = [
        {"set": name, "mode": mode, "seed": seed}
        for name in MAKERS
        for mode in common.MODES
        for seed in range(10)
    ]
    found = dict(
        zip(
            [(c["set"], c["mode"], c["seed"]) for c in cases],
            gather(progress, cases, options, "Moon and Circles"),
            strict=True,
        )
    )
    for name in MAKERS:
        rows = []
        for number, mark in enumerate(MARKS):
            ours = {
                mode: {
                    measure: report.summary(
                        [found[name, mode, seed][measure][number] for seed in range(10)]
                    )
                    for measure in MEASURES
                }
                for mode in common.MODES
            }
            paper = published.MOON[str(mark)] if name == "moons" else {}
            rows.append(
                [
                    f"{mark:,}",
                    report.text(paper.get("accuracy"), 2),
                    *(report.text(ours[mode]["accuracy"], 2) for mode in common.MODES),
                    report.text(paper.get("nll"), 2),
                    *(report.text(ours[mode]["nll"], 2) for mode in common.MODES),
                    *(report.text(ours[mode]["squared"], 2) for mode in common.MODES),
                    report.text(ours["default"]["log_loss"], 3),
                    report.text(paper.get("seconds"), 2),
                    *(f"{ours[mode]['seconds'].mean:.3f}" for mode in common.MODES),
                ]
            )
        report.show(
            report.Table(
                name,
                f"{TITLES[name]}: sequential learning, two hidden layers of ten, ten seeds",
                (
                    "rows",
                    "accuracy %: paper",
                    "paper mode",
                    "kbnn",
                    "NLL: paper",
                    "paper mode",
                    "kbnn",
                    "squared error: paper mode",
                    "kbnn",
                    "log-loss: kbnn",
                    "s: paper",
                    "paper mode",
                    "kbnn",
                ),
                rows,
                "On the 150 rows not learned. NLL is the paper's: a normal density at the label, "
                f"with the moments after the sigmoid and {common.PAPER_NOISE} added to the "
                "variance. What the paper prints under that name falls like the mean squared error "
                "of the probability; log-loss is the usual one. The paper prints no numbers for "
                "Circles.",
            ),
            options,
        )
    plt = figures.plots()
    if plt is not None:
        for name in MAKERS:
            for mode in common.MODES:
                draw(plt, name, mode, options)


def draw(plt: Any, name: str, mode: common.Mode, options: Options) -> None:
    """Probability (above) and its variance (below) after 5, 50, 500 and 1,000 rows."""
    x, y = stream(name, 0)
    learner = learners.begin(mode, HIDDEN, x[:1350], y[:1350], seed=0, classes=True)
    across, up = (np.linspace(x[:, i].min() - 0.6, x[:, i].max() + 0.6, 90) for i in (0, 1))
    points = figures.plane(across, up)
    figure, grid = plt.subplots(2, 4, figsize=(11, 4.8), sharex=True, sharey=True)
    first = 0
    for column, mark in enumerate(MARKS[:4]):
        learner.learn(x[first:mark], y[first:mark])
        first = mark
        p, var = (
            field.reshape(len(up), len(across))
            for field in common.after_sigmoid(learner.ask(points))
        )
        mean = figures.probability_field(grid[0, column], across, up, p)
        spread = figures.variance_field(grid[1, column], across, up, var, top=0.25)
        for axes in grid[:, column]:
            figures.scatter(
                axes, x[:mark], y[:mark, 0].astype(np.int64), size=18 if mark <= 50 else 5
            )
        grid[0, column].set_title(f"{mark:,} rows")
        grid[1, column].set_xlabel("x1")
    for axes in grid[:, 0]:
        axes.set_ylabel("x2")
    figure.colorbar(mean, ax=grid[0], label="probability of class 1")
    figure.colorbar(spread, ax=grid[1], label="variance of it")
    grid[0, 0].legend(loc="lower left", fontsize=7, handletextpad=0.1, borderpad=0.1)
    figure.suptitle(f"{TITLES[name]}, {common.MODE_NAMES[mode]}; the black line is probability 1/2")
    figures.save(plt, figure, options, f"{name}_{mode}")


if __name__ == "__main__":
    main(parse(__doc__))
