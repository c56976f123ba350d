"""Uncertainty far from the data: trained inside [-1, 1] x [-1, 1], asked on [-5, 5] x [-5, 5].

The variance of the output before the sigmoid grows away from the data; after the sigmoid it is
bounded by 1/4 and says little. (The paper's text has the two names the wrong way round.)
Run: python -m samples.paper.unknown
"""

import numpy as np

from samples.paper import common, figures, learners, moons, report
from samples.paper.options import Options, parse

NEAR, FAR, POINTS = 1.0, 5.0, 101


def squeezed(name: str) -> tuple[common.FloatArray, common.FloatArray]:
    """A set moved and shrunk into [-1, 1] x [-1, 1]."""
    x, y = moons.stream(name, 0)
    low, high = x.min(axis=0), x.max(axis=0)
    return 2.0 * (x - low) / (high - low) - 1.0, y


def main(options: Options) -> None:
    """Both sets in both modes: the fields, and their level near the data and at the border."""
    axis, points = figures.grid(-FAR, FAR, POINTS)
    distance = np.abs(points).max(axis=1)
    near, far = distance <= NEAR, distance >= 0.99 * FAR
    rows, panels = [], []
    for name in moons.MAKERS:
        x, y = squeezed(name)
        for mode in common.MODES:
            learner = learners.begin(mode, moons.HIDDEN, x, y, seed=0, classes=True)
            learner.learn(x, y)
            answer = learner.ask(points)
            p, after = (field[:, 0] for field in common.after_sigmoid(answer))
            before = answer.function_var[:, 0]
            sure = np.maximum(p, 1.0 - p)
            rows.append(
                [
                    moons.TITLES[name],
                    common.MODE_NAMES[mode],
                    f"{before[near].mean():.3g}",
                    f"{before[far].mean():.3g}",
                    f"{before[far].mean() / before[near].mean():.1f} x",
                    f"{after[near].mean():.4f}",
                    f"{after[far].mean():.4f}",
                    f"{100 * sure[near].mean():.1f} %",
                    f"{100 * sure[far].mean():.1f} %",
                ]
            )
            panels.append(
                (f"{moons.TITLES[name]}, {common.MODE_NAMES[mode]}", x, y, p, after, before)
            )
    report.show(
        report.Table(
            "unknown",
            "Uncertainty far from the data",
            (
                "data",
                "mode",
                "before sigmoid: near",
                "far",
                "far / near",
                "after: near",
                "far",
                "sure of its class: near",
                "far",
            ),
            rows,
            "Mean variance of the output: near = inside [-1, 1]², far = on the border of [-5, 5]². "
            "Inputs are clipped at eight standard deviations, here about ±4.3: the fields are "
            "constant from there on. The paper shows fields and prints no numbers.",
        ),
        options,
    )
    plt = figures.plots()
    if plt is None:
        return
    figure, grid = plt.subplots(3, 4, figsize=(11, 7.6), sharex=True, sharey=True)
    for column, (title, x, y, *fields) in enumerate(panels):
        p, after, before = (field.reshape(POINTS, POINTS) for field in fields)
        meshes = [
            figures.probability_field(grid[0, column], axis, axis, p),
            figures.variance_field(grid[1, column], axis, axis, after, top=0.25),
            figures.variance_field(grid[2, column], axis, axis, before),
        ]
        for axes in grid[:, column]:
            axes.add_patch(plt.Rectangle((-1, -1), 2, 2, fill=False, ls="--", lw=1))
        figures.scatter(grid[0, column], x[::6], y[::6, 0].astype(np.int64), size=2)
        figure.colorbar(meshes[2], ax=grid[2, column], location="bottom", shrink=0.9)
        grid[0, column].set_title(title)
    for axes, label in zip(
        grid[:, 0],
        ("probability of class 1", "variance after sigmoid", "variance before sigmoid"),
        strict=True,
    ):
        axes.set_ylabel(f"{label}\nx2")
    for axes in grid[2]:
        axes.set_xlabel("x1")
    figure.colorbar(meshes[0], ax=grid[0])
    figure.colorbar(meshes[1], ax=grid[1])
    figure.suptitle(
        "Learned inside the dashed square only; inputs are clipped at eight standard deviations "
        "(about ±4.3)"
    )
    figures.save(plt, figure, options, "unknown")


if __name__ == "__main__":
    main(parse(__doc__))
