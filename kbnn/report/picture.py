"""The main picture of a model as a file: PNG, SVG or PDF.

One feature: the prediction with its bands, over the data. Two features: the fields of the mean and
of the standard deviation. Otherwise: predicted against true with 90 % intervals.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.distributions.predictive import INTERVAL_HALF_WIDTHS_SD
from kbnn.errors import UsageError
from kbnn.metrics.sections import ChartSpec, PartialDependenceSpec, PredictionCurve
from kbnn.report.page import CHART_FUNCTIONS
from kbnn.report.styles import BLUE, INK, MUTED, drawing_style, shorten_label
from kbnn.sink import write_atomically

PICTURE_FORMATS = ("png", "svg", "pdf")
GRID_POINTS = 80
"""Points of the grid along each feature."""


@dataclass(frozen=True)
class PictureData:
    """What the picture needs: a sample of rows, and the model as a function when D is 1 or 2.

    features (D names)   x (k, D)   truth (k,): what was true of them, as the task draws it
    predict              features (n, D) to what is drawn
    """

    target: str
    features: Sequence[str]
    x: FloatArray
    truth: FloatArray
    drawn: PartialDependenceSpec
    predict: Callable[[FloatArray], PredictionCurve]


def write_picture(data: PictureData | ChartSpec, path: str | Path) -> None:
    """Draw and write; the ending of the name decides the format."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in PICTURE_FORMATS:
        raise UsageError(f"--plot {os.fspath(path)!r}: the name must end in .png, .svg or .pdf.")
    overrides = {"font.size": 10, "axes.facecolor": "white", "figure.facecolor": "white"}
    if kind != "svg":
        overrides["svg.fonttype"] = "path"
    with drawing_style(
        **overrides, **{"savefig.facecolor": "white", "svg.hashsalt": "kbnn"}
    ) as figure:
        buffer = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"CreationDate": None}
        drawn = draw_picture(figure, data)
        drawn.savefig(buffer, format=kind, dpi=200, metadata=None if kind == "png" else metadata)
    write_atomically(str(path), buffer.getvalue())


def draw_picture(figure_class: Any, data: PictureData | ChartSpec) -> Any:
    """The chart, or the figure that suits the number of features."""
    if isinstance(data, ChartSpec):
        figure = figure_class(figsize=(8.0, 4.2), layout="constrained")
        CHART_FUNCTIONS[data.kind](figure.add_subplot(), **data.data)
        return figure
    if len(data.features) == 1:
        figure = figure_class(figsize=(6.4, 4.2), layout="constrained")
        draw_band(figure.add_subplot(), data)
        return figure
    if len(data.features) == 2:
        figure = figure_class(figsize=(9.6, 4.2), layout="constrained")
        draw_planes(figure, data)
        return figure
    figure = figure_class(figsize=(5.4, 5.0), layout="constrained")
    chart = data.drawn.chart
    CHART_FUNCTIONS[chart.kind](figure.add_subplot(), **chart.data)
    return figure


def padded_range(values: FloatArray) -> tuple[float, float]:
    """Range of the known values with a tenth of air on both sides."""
    known = values[np.isfinite(values)]
    if known.shape[0] == 0:
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    air = 0.1 * (high - low) or 1.0
    return low - air, high + air


def draw_band(ax: Any, data: PictureData) -> None:
    """What is drawn, the 90 % band of the prediction, and inside it that of the function."""
    grid = np.linspace(*padded_range(data.x[:, 0]), 4 * GRID_POINTS)
    made = data.predict(grid[:, None])
    if made.function_sd is not None:
        lower, upper = made.lower, made.upper
        half = INTERVAL_HALF_WIDTHS_SD[90] * made.function_sd
        inner = [np.clip(made.value + side * half, lower, upper) for side in (-1.0, 1.0)]
        for edges, alpha, text in (
            ((lower, upper), 0.16, "90 %, data"),
            (inner, 0.32, "90 %, function"),
        ):
            ax.fill_between(grid, *edges, color=BLUE, alpha=alpha, lw=0, label=text)
    named = data.drawn.name
    ax.plot(
        grid, made.value, color=BLUE, label=shorten_label(named if data.drawn.marks else "mean")
    )
    ax.plot(data.x[:, 0], data.truth, ".", color=INK, ms=4, alpha=0.6, label="rows", zorder=1)
    ax.set(
        xlim=(grid[0], grid[-1]),
        xlabel=shorten_label(data.features[0]),
        ylabel=shorten_label(named),
    )
    ax.legend(loc="best")


def draw_planes(figure: Any, data: PictureData) -> None:
    """What is drawn and its standard deviation over the plane of two features."""
    across, up = (np.linspace(*padded_range(data.x[:, j]), GRID_POINTS) for j in (0, 1))
    table = np.column_stack([part.ravel() for part in np.meshgrid(across, up)])
    made = data.predict(table)
    drawn = data.drawn
    for ax, values, name, colours in zip(
        figure.subplots(1, 2, sharex=True, sharey=True),
        (made.value, made.sd),
        (drawn.name if drawn.marks else "mean", drawn.sd_name),
        ("cividis", "magma_r"),
        strict=True,
    ):
        image = ax.pcolormesh(
            across,
            up,
            values.reshape(GRID_POINTS, GRID_POINTS),
            cmap=colours,
            shading="gouraud",
            rasterized=True,
        )
        dark = (data.truth == 1) & drawn.marks
        for chosen, colour in ((~dark, "white"), (dark, INK)):
            x, y = data.x[chosen, 0], data.x[chosen, 1]
            ax.plot(x, y, ".", color=colour, mec=MUTED, mew=0.4, ms=5, alpha=0.8)
        ax.grid(visible=False)
        ax.set(xlabel=shorten_label(data.features[0]), title=shorten_label(name, 40))
        ax.set(xlim=(across[0], across[-1]), ylim=(up[0], up[-1]))
        figure.colorbar(image, ax=ax, shrink=0.92)
    figure.axes[0].set_ylabel(shorten_label(data.features[1]))
