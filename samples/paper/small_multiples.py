"""One panel per data set, RMSE above and NLL below: for experiments that vary one thing."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from samples.paper import figures
from samples.paper.options import Options
from samples.paper.published import Figure

LOOKS = {
    "paper as printed": (figures.BLACK, "s", "--"),
    "paper mode": (figures.ORANGE, "^", "-"),
    "kbnn": (figures.BLUE, "o", "-"),
}


class Line(NamedTuple):
    """Figures over the thing that varies."""

    x: Sequence[float]
    figures: Sequence[Figure]


Panels = Mapping[tuple[str, str], Mapping[str, Line]]
"""(data set, measure) -> name of the line -> the line."""


def draw(
    plt: Any,
    panels: Panels,
    across: str,
    ticks: Sequence[float],
    name: str,
    title: str,
    options: Options,
    log: bool = False,
    nll_top: float | None = None,
) -> None:
    """Lines with bars of one standard deviation; an NLL above `nll_top` is named at the edge."""
    sets = list(dict.fromkeys(one for one, _ in panels))
    figure, grid = plt.subplots(
        2, len(sets), figsize=(max(2.3 * len(sets) + 0.6, 5.0), 5.0), sharex=True, squeeze=False
    )
    for column, one in enumerate(sets):
        for row, measure in enumerate(("rmse", "nll")):
            axes = grid[row, column]
            for label, line in panels[one, measure].items():
                colour, mark, style = LOOKS[label]
                bars = [figure.spread or 0.0 for figure in line.figures]
                axes.errorbar(
                    line.x,
                    [figure.mean for figure in line.figures],
                    yerr=bars,
                    color=colour,
                    marker=mark,
                    ls=style,
                    ms=3.5,
                    lw=1.2,
                    elinewidth=0.7,
                    label=label,
                )
            if measure == "nll" and nll_top is not None and axes.get_ylim()[1] > nll_top:
                axes.set_ylim(top=nll_top)
                _name_hidden(axes, panels[one, measure], nll_top)
        grid[0, column].set_title(one.capitalize())
        grid[1, column].set_xlabel(across)
        if log:
            grid[1, column].set_xscale("log")
        grid[1, column].set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        grid[1, column].minorticks_off()
    grid[0, 0].set_ylabel("RMSE (target's units)")
    grid[1, 0].set_ylabel("NLL (nats per row)")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    figure.suptitle(title)
    figures.save(plt, figure, options, name)


def _name_hidden(axes: Any, lines: Mapping[str, Line], top: float) -> None:
    """Say which lines leave the panel at the top, and how far they go."""
    hidden = [
        (label, max(figure.mean for figure in line.figures))
        for label, line in lines.items()
        if any(figure.mean > top for figure in line.figures)
    ]
    for place, (label, most) in enumerate(hidden):
        axes.text(
            0.98,
            0.93 - 0.09 * place,
            f"{label}: up to {most:.0f}",
            color=LOOKS[label][0],
            fontsize=7,
            ha="right",
            transform=axes.transAxes,
        )
