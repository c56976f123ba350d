"""The main picture of a model as a file: PNG, SVG or PDF.

One feature: the prediction with its bands, over the data. Two features: the fields of the mean and
of the standard deviation. Otherwise: predicted against true with 90 % intervals.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kbnn.errors import UsageError
from kbnn.report import model_plots, plots
from kbnn.report.fill import Predict
from kbnn.report.palette import BLUE, INK, MUTED
from kbnn.report.svg import drawing
from kbnn.report.text import label
from kbnn.score.metrics import Z
from kbnn.score.rowsums import FloatArray
from kbnn.sink import write_whole

FORMATS = ("png", "svg", "pdf")
GRID = 80
"""Points of the grid along each feature."""


@dataclass(frozen=True)
class PictureData:
    """What the picture needs: a sample of rows, and the model as a function when D is 1 or 2.

    features (D names)   x (k, D)   truth, mean, sd (k,); for classes truth is 1 for the class
                         whose probability is drawn, and `reliability` stands for mean and sd
    predict              features (n, D) to mean (n,) and total standard deviation (n,)
    function             the same with the standard deviation of the function alone (inner band)
    """

    target: str
    features: Sequence[str]
    x: FloatArray
    truth: FloatArray
    mean: FloatArray
    sd: FloatArray
    predict: Predict | None = None
    function: Predict | None = None
    reliability: tuple[FloatArray, FloatArray, FloatArray] | None = None
    mean_name: str = "mean"
    sd_name: str = "standard deviation"


def write_picture(data: PictureData, path: str | Path) -> None:
    """Draw and write; the ending of the name decides the format."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UsageError(f"--plot {os.fspath(path)!r}: the name must end in .png, .svg or .pdf.")
    overrides = {"font.size": 10, "axes.facecolor": "white", "figure.facecolor": "white"}
    if kind != "svg":
        overrides["svg.fonttype"] = "path"
    with drawing(**overrides, **{"savefig.facecolor": "white", "svg.hashsalt": "kbnn"}) as figure:
        buffer = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"CreationDate": None}
        drawn = draw(figure, data)
        drawn.savefig(buffer, format=kind, dpi=200, metadata=None if kind == "png" else metadata)
    write_whole(str(path), buffer.getvalue())


def draw(figure_class: Any, data: PictureData) -> Any:
    """The figure that suits the number of features."""
    if data.predict is not None and len(data.features) == 1:
        figure = figure_class(figsize=(6.4, 4.2), layout="constrained")
        band(figure.add_subplot(), data)
        return figure
    if data.predict is not None and len(data.features) == 2:
        figure = figure_class(figsize=(9.6, 4.2), layout="constrained")
        fields(figure, data)
        return figure
    figure = figure_class(figsize=(5.4, 5.0), layout="constrained")
    ax = figure.add_subplot()
    if data.reliability is not None:
        model_plots.reliability(ax, *data.reliability)
    else:
        plots.truth(ax, data.truth, data.mean, data.sd, data.target)
    return figure


def span(values: FloatArray) -> tuple[float, float]:
    """Range of the known values with a tenth of air on both sides."""
    known = values[np.isfinite(values)]
    if known.shape[0] == 0:
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    air = 0.1 * (high - low) or 1.0
    return low - air, high + air


def band(ax: Any, data: PictureData) -> None:
    """Mean, 90 % band of the prediction, and inside it the band of the function."""
    assert data.predict is not None
    grid = np.linspace(*span(data.x[:, 0]), 4 * GRID)
    mean, sd = data.predict(grid[:, None])
    if data.reliability is None:
        half = Z[90] * sd
        ax.fill_between(
            grid, mean - half, mean + half, color=BLUE, alpha=0.16, lw=0, label="90 %, data"
        )
    if data.function is not None:
        _, inner = data.function(grid[:, None])
        edge = Z[90] * inner
        ax.fill_between(
            grid, mean - edge, mean + edge, color=BLUE, alpha=0.32, lw=0, label="90 %, function"
        )
    ax.plot(grid, mean, color=BLUE, label=label(data.mean_name))
    ax.plot(data.x[:, 0], data.truth, ".", color=INK, ms=4, alpha=0.6, label="rows", zorder=1)
    named = data.target if data.reliability is None else data.mean_name
    ax.set(xlim=(grid[0], grid[-1]), xlabel=label(data.features[0]), ylabel=label(named))
    ax.legend(loc="best")


def fields(figure: Any, data: PictureData) -> None:
    """Mean and standard deviation over the plane of two features."""
    assert data.predict is not None
    across, up = (np.linspace(*span(data.x[:, j]), GRID) for j in (0, 1))
    table = np.column_stack([part.ravel() for part in np.meshgrid(across, up)])
    mean, sd = data.predict(table)
    for ax, values, name, colours in zip(
        figure.subplots(1, 2, sharex=True, sharey=True),
        (mean, sd),
        (data.mean_name, data.sd_name),
        ("cividis", "magma_r"),
        strict=True,
    ):
        image = ax.pcolormesh(
            across, up, values.reshape(GRID, GRID), cmap=colours, shading="gouraud", rasterized=True
        )
        dark = (data.truth == 1) & (data.reliability is not None)
        for chosen, colour in ((~dark, "white"), (dark, INK)):
            x, y = data.x[chosen, 0], data.x[chosen, 1]
            ax.plot(x, y, ".", color=colour, mec=MUTED, mew=0.4, ms=5, alpha=0.8)
        ax.grid(visible=False)
        ax.set(xlabel=label(data.features[0]), title=label(name, 40))
        ax.set(xlim=(across[0], across[-1]), ylim=(up[0], up[-1]))
        figure.colorbar(image, ax=ax, shrink=0.92)
    figure.axes[0].set_ylabel(label(data.features[1]))
