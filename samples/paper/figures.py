"""Figures: one look for all of them, safe for the colour-blind, as PNG and SVG."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from samples.paper.options import Options

FloatArray = NDArray[np.float64]

# Okabe and Ito's palette: distinct with every common kind of colour vision, and in grey.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#000000",
)
CLASS_COLOURS = (BLUE, RED)
CLASS_MARKS = ("o", "^")


def plots() -> Any:
    """matplotlib's pyplot, drawing to files only; None, and a word about it, without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        print("No figures: matplotlib is not installed (pip install 'kbnn[report]').")
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "font.size": 9,
            "axes.titlesize": 9,
            "axes.grid": True,
            "grid.alpha": 0.25,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
            "figure.dpi": 110,
            "savefig.dpi": 150,
            "svg.hashsalt": "kbnn",
            "figure.constrained_layout.use": True,
        }
    )
    return plt


def save(plt: Any, figure: Any, options: Options, name: str) -> None:
    """Write name.png and name.svg, without dates, so that the same run gives the same files."""
    figure.savefig(options.out / f"{name}.png", metadata={"Software": None})
    figure.savefig(options.out / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
    print(f"{options.out / name}.png and .svg")


def grid(low: float, high: float, points: int) -> tuple[FloatArray, FloatArray]:
    """A square of points x points: the axis, and all its points one per row."""
    axis = np.linspace(low, high, points)
    return axis, plane(axis, axis)


def plane(across: FloatArray, up: FloatArray) -> FloatArray:
    """All points of two axes, one per row, `across` running fastest."""
    first, second = np.meshgrid(across, up)
    return np.column_stack([first.ravel(), second.ravel()])


def scatter(axes: Any, x: FloatArray, label: NDArray[np.int64], size: float = 6.0) -> None:
    """Rows of two classes, told apart by colour and by mark."""
    for c, (colour, mark) in enumerate(zip(CLASS_COLOURS, CLASS_MARKS, strict=True)):
        part = x[label == c]
        axes.scatter(
            *part.T,
            s=size,
            color=colour,
            marker=mark,
            edgecolors="white",
            linewidths=0.25,
            label=f"class {c}",
        )


def probability_field(axes: Any, across: FloatArray, up: FloatArray, p: FloatArray) -> Any:
    """A probability from 0 (pale blue) to 1 (pale orange) with the line of 1/2; returns the mesh.

    Paler than the marks on it, so that rows stand out on the field of their own class.
    """
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("classes", ["#9CCFF0", "#FFFFFF", "#F8D58C"])
    mesh = axes.pcolormesh(
        across, up, p, cmap=colours, vmin=0.0, vmax=1.0, shading="gouraud", rasterized=True
    )
    if p.min() < 0.5 < p.max():
        axes.contour(across, up, p, levels=[0.5], colors=BLACK, linewidths=1.2)
    axes.grid(False)
    return mesh


def variance_field(
    axes: Any, across: FloatArray, up: FloatArray, var: FloatArray, top: float | None = None
) -> Any:
    """A variance from 0 (pale) to `top` (dark), the maximum if None; returns the mesh."""
    mesh = axes.pcolormesh(
        across, up, var, cmap="Purples", vmin=0.0, vmax=top, shading="gouraud", rasterized=True
    )
    axes.grid(False)
    return mesh
