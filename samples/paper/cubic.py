"""Synthetic regression: y = x^3 + e, e ~ N(0, 9), x in [-4, 4], a hidden layer of 100.

800 rows once, and 40 rows twenty times over: the mean and the 90 % band, also beyond the data.
Run: python -m samples.paper.cubic
"""

from typing import Any

import numpy as np

from samples import make
from samples.paper import common, figures, learners, report
from samples.paper.options import Options, parse

HIDDEN = (100,)
RUNS = (("800 rows, one pass", 800, 1, 10), ("40 rows, 20 passes", 40, 20, 20))
AXIS = np.linspace(-6.0, 6.0, 241)[:, None]


def main(options: Options) -> None:
    """Learn both files in both modes, print the table and draw the bands."""
    rows = []
    panels: list[Panel] = []
    for title, count, epochs, seed in RUNS:
        x, y = (column[:, None] for column in make.cubic(count, seed))
        x_test, y_test = (column[:, None] for column in make.cubic(2000, seed=999))
        for mode in common.MODES:
            learner = learners.begin(mode, HIDDEN, x, y, seed=0)
            *_, learner = common.passes(learner, x, y, epochs)
            answer, curve = learner.ask(x_test), learner.ask(AXIS)
            sd = np.sqrt(curve.var[:, 0])
            inside = np.abs(AXIS[:, 0]) <= 4.0
            rows.append(
                [
                    title,
                    common.MODE_NAMES[mode],
                    f"{common.rmse(answer, x_test**3):.2f}",
                    f"{common.rmse(answer, y_test):.2f}",
                    f"{common.nll(answer.mean, answer.var, y_test):.3f}",
                    f"{common.coverage(answer, y_test):.1f} %",
                    f"{sd[inside].mean():.2f}",
                    f"{sd[[0, -1]].mean():.2f}",
                ]
            )
            panels.append((f"{title}, {common.MODE_NAMES[mode]}", mode, x, y, curve))
    report.show(
        report.Table(
            "cubic",
            "y = x³ + N(0, 9): one hidden layer of 100 units",
            ("data", "mode", "RMSE to x³", "RMSE", "NLL", "90 % coverage", "sd inside", "sd at ±6"),
            rows,
            "On 2,000 new rows of [-4, 4]. The noise alone has sd 3: RMSE 3 and NLL 2.518 are "
            "the best there can be. The paper shows a figure and prints no numbers.",
        ),
        options,
    )
    draw(panels, options)


Panel = tuple[str, common.Mode, common.FloatArray, common.FloatArray, common.Answer]
"""Title, mode, the rows learned, and the answer along the axis."""


def draw(panels: list[Panel], options: Options) -> None:
    """One row per run: the bands of both modes, and how wide they are."""
    plt = figures.plots()
    if plt is None:
        return
    figure, grid = plt.subplots(len(RUNS), 3, figsize=(11, 6.4), sharex=True)
    for number, (title, *_) in enumerate(RUNS):
        both = panels[2 * number : 2 * number + 2]
        for axes, panel in zip(grid[number], both, strict=False):
            draw_band(axes, panel)
        draw_width(grid[number, 2], both)
        grid[number, 2].set_title(f"{title}: width of the band")
        grid[number, 0].set_ylabel("y")
    for axes in grid[-1]:
        axes.set_xlabel("x (data only between the dotted lines)")
    for axes in grid.ravel():
        axes.set_xlim(-6, 6)
        for edge in (-4.0, 4.0):
            axes.axvline(edge, color="grey", lw=0.8, ls=":")
    for axes in (grid[0, 0], grid[0, 2]):
        axes.legend(loc="upper left" if axes is grid[0, 0] else "best", fontsize=7)
    figures.save(plt, figure, options, "cubic")


def draw_band(axes: Any, panel: Panel) -> None:
    """Data, truth, mean and the band, split into the network's doubt and the noise."""
    title, _, x, y, curve = panel
    line, mean = AXIS[:, 0], curve.mean[:, 0]
    for var, alpha, label in (
        (curve.var, 0.3, "90 % of new observations"),
        (curve.function_var, 0.55, "90 % band of the function"),
    ):
        half = common.Z90 * np.sqrt(var[:, 0])
        axes.fill_between(
            line, mean - half, mean + half, color=figures.SKY, alpha=alpha, lw=0, label=label
        )
    axes.plot(line, mean, color=figures.BLUE, label="predicted mean")
    axes.plot(line, line**3, color=figures.BLACK, ls="--", lw=1, label="x³")
    axes.scatter(
        x, y, s=5 if len(x) > 100 else 14, color=figures.RED, alpha=0.6, lw=0, label="data"
    )
    axes.set(title=title, ylim=(-160, 160))


def draw_width(axes: Any, panels: list[Panel]) -> None:
    """Standard deviations along the axis, on a scale of ratios: the doubt is least in the data."""
    looks = {"paper": (figures.ORANGE, "paper mode"), "default": (figures.BLUE, "kbnn")}
    for _, mode, _, _, curve in panels:
        colour, name = looks[mode]
        for var, style, label in (
            (curve.var, "-", "new observation"),
            (curve.function_var, "--", "function"),
        ):
            sd = np.sqrt(var[:, 0])
            axes.plot(AXIS[:, 0], sd, color=colour, ls=style, lw=1.4, label=f"{name}: {label}")
    axes.axhline(3.0, color=figures.BLACK, lw=0.8, ls="-.", label="noise of the data")
    axes.set(yscale="log", ylabel="standard deviation", ylim=(0.1, 100))
    axes.set_yticks((0.1, 0.3, 1, 3, 10, 30, 100), ("0.1", "0.3", "1", "3", "10", "30", "100"))
    axes.minorticks_off()


if __name__ == "__main__":
    main(parse(__doc__))
