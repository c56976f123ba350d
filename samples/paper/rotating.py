"""Rotating Moon: 1,500 rows, then 18 steps of 100 rows, each turned by 20 degrees more.

Accuracy on 1,000 new rows of the same rotation, before and after its 100 rows are learned.
Run: python -m samples.paper.rotating
"""

from typing import Any

import numpy as np

from samples import make
from samples.paper import common, figures, learners, moons, report
from samples.paper.options import Options, parse
from samples.paper.runs import Case, Result, gather

STEPS = range(1, make.STEPS + 1)
SHOWN = (60, 120, 180, 240)
SEEDS = 10


def part(seed: int, step: int, rows: int) -> tuple[common.FloatArray, common.FloatArray]:
    """New rows of one step; step 0 is not turned."""
    x, label = make.moons(
        rows, seed=100_000 * (1 + seed) + 1000 * step + rows, degrees=make.STEP_DEGREES * step
    )
    return x, label[:, None].astype(np.float64)


def begin(mode: common.Mode, seed: int) -> common.Learner:
    """The network after the 1,500 rows that are not turned."""
    x, y = part(seed, 0, make.MOON_ROWS)
    learner = learners.begin(mode, moons.HIDDEN, x, y, seed, classes=True)
    learner.learn(x, y)
    return learner


def follow(case: Case, options: Options) -> Result:
    """Accuracy at every step, before and after its rows."""
    seed = int(str(case["seed"]))
    learner = begin("paper" if case["mode"] == "paper" else "default", seed)
    result: Result = {"before": [], "after": []}
    for step in STEPS:
        x_test, y_test = part(seed, step, 1000)
        for moment in result:
            if moment == "after":
                learner.learn(*part(seed, step, make.STEP_ROWS))
            p, _ = common.after_sigmoid(learner.ask(x_test))
            result[moment].append(common.accuracy(p, y_test))
    return result


def main(options: Options) -> None:
    """Accuracy by angle as a table and a figure, and the fields at four angles."""
    cases: list[Case] = [
        {"mode": mode, "seed": seed} for mode in common.MODES for seed in range(SEEDS)
    ]
    results = gather(follow, cases, options, "rotating Moon")
    found = {
        mode: {
            moment: np.array(
                [
                    result[moment]
                    for case, result in zip(cases, results, strict=True)
                    if case["mode"] == mode
                ]
            )
            for moment in ("before", "after")
        }
        for mode in common.MODES
    }
    rows = [
        [
            f"{make.STEP_DEGREES * step}°",
            *(
                report.text(report.summary(found[mode][moment][:, step - 1].tolist()), 1)
                for mode in common.MODES
                for moment in ("before", "after")
            ),
        ]
        for step in STEPS
    ]
    rows.append(
        [
            "mean",
            *(
                report.text(report.summary(found[mode][moment].mean(axis=1).tolist()), 1)
                for mode in common.MODES
                for moment in ("before", "after")
            ),
        ]
    )
    report.show(
        report.Table(
            "rotating",
            "Rotating Moon: accuracy in percent on 1,000 new rows of each rotation",
            (
                "turned by",
                "paper mode: before",
                "after its 100 rows",
                "kbnn: before",
                "after its 100 rows",
            ),
            rows,
            f"{SEEDS} seeds, two hidden layers of ten. The paper shows fields at 60, 120, 180 "
            "and 240 degrees and prints no numbers.",
        ),
        options,
    )
    plt = figures.plots()
    if plt is None:
        return
    draw_accuracy(plt, found, options)
    for mode in common.MODES:
        draw_fields(plt, mode, options)


def draw_accuracy(
    plt: Any, found: dict[common.Mode, dict[str, common.FloatArray]], options: Options
) -> None:
    """Accuracy against the angle, mean and range of the seeds."""
    figure, axes = plt.subplots(figsize=(7, 4.2))
    angles = [make.STEP_DEGREES * step for step in STEPS]
    looks = {"paper": (figures.ORANGE, "^"), "default": (figures.BLUE, "o")}
    for mode, (colour, mark) in looks.items():
        for moment, style in (("before", ":"), ("after", "-")):
            values = found["paper" if mode == "paper" else "default"][moment]
            axes.plot(
                angles,
                values.mean(axis=0),
                color=colour,
                ls=style,
                marker=mark,
                ms=4,
                label=f"{common.MODE_NAMES[mode]}, {moment} the 100 rows",
            )
            if moment == "after":
                axes.fill_between(
                    angles, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.2, lw=0
                )
    axes.set(
        xlabel="rotation (degrees)",
        ylabel="accuracy (%)",
        xticks=angles[::2],
        title=f"Rotating Moon: mean over {SEEDS} seeds, shaded from worst to best",
    )
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figures.save(plt, figure, options, "rotating_accuracy")


def draw_fields(plt: Any, mode: common.Mode, options: Options) -> None:
    """Probability and its variance after four of the rotations."""
    learner = begin(mode, 0)
    axis, points = figures.grid(-1.6, 2.4, 90)
    figure, grid = plt.subplots(2, 4, figsize=(11, 5.4), sharex=True, sharey=True)
    columns = iter(range(len(SHOWN)))
    for step in STEPS:
        x, y = part(0, step, make.STEP_ROWS)
        learner.learn(x, y)
        if make.STEP_DEGREES * step not in SHOWN:
            continue
        column = next(columns)
        p, var = (field.reshape(90, 90) for field in common.after_sigmoid(learner.ask(points)))
        mean = figures.probability_field(grid[0, column], axis, axis, p)
        spread = figures.variance_field(grid[1, column], axis, axis, var, top=0.25)
        for axes in grid[:, column]:
            figures.scatter(axes, x, y[:, 0].astype(np.int64), size=9)
        grid[0, column].set_title(f"{make.STEP_DEGREES * step} degrees")
        grid[1, column].set_xlabel("x1")
    for axes in grid[:, 0]:
        axes.set_ylabel("x2")
    figure.colorbar(mean, ax=grid[0], label="probability of class 1")
    figure.colorbar(spread, ax=grid[1], label="variance of it")
    grid[1, 0].legend(loc="upper left", fontsize=7, handletextpad=0.1, borderpad=0.1)
    figure.suptitle(
        f"Rotating Moon, {common.MODE_NAMES[mode]}: after the 100 rows shown; "
        "the black line is probability 1/2"
    )
    figures.save(plt, figure, options, f"rotating_{mode}")


if __name__ == "__main__":
    main(parse(__doc__))
