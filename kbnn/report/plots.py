"""Charts of the report, their colours and labels; each function draws one idea on given axes.

The colours are distinguishable with every kind of colour vision (after Okabe and Ito). Charts are
drawn in the colours of light paper; in the page each colour becomes a CSS variable, so that the
same drawing follows the reader's light or dark setting.
"""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray, IntArray
from kbnn.distributions.predictive import INTERVAL_HALF_WIDTHS_SD
from kbnn.errors import UsageError
from kbnn.metrics.scorecard import CurvePoint
from kbnn.model.dependence import Dependence, Interaction
from kbnn.model.diagnostics import Effect
from kbnn.model.explain import Importance
from kbnn.wording import clean_text, format_number

INK = "#1c1e22"
MUTED = "#666c76"
GRID = "#dfe2e6"
BLUE = "#0072b2"
ORANGE = "#d55e00"
GREEN = "#009e73"
PAPER = "#ffffff"

VARIABLES = {
    "ink": (INK, "#e8eaed"),
    "muted": (MUTED, "#9aa1ab"),
    "grid": (GRID, "#363b43"),
    "blue": (BLUE, "#5ab4e8"),
    "orange": (ORANGE, "#f08b45"),
    "green": (GREEN, "#3cc79c"),
    "paper": (PAPER, "#1b1e23"),
}
"""CSS variable: value on light paper, value on dark paper."""


def css_variables(dark: bool) -> str:
    """The chart colours as CSS variables."""
    return " ".join(f"--{name}: {pair[dark]};" for name, pair in VARIABLES.items())


AXIS_LABEL_CHARS = 28


def shorten_label(name: str, longest: int = AXIS_LABEL_CHARS) -> str:
    """A name short enough for an axis."""
    text = clean_text(name)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def escape_html(name: str) -> str:
    """The name as HTML text."""
    return html.escape(clean_text(name), quote=True)


def format_row_tick(rows: float) -> str:
    """A tick of a row axis: 32, 1k, 10k, 1M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rows >= unit:
            return f"{rows / unit:.3g}{name}"
    return f"{rows:.3g}"


SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"

STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a column named $x$ is a name, not a formula
    "font.size": 9,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "axes.formatter.limits": (-4, 5),
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "legend.fontsize": 8,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}

MATPLOTLIB_MISSING = (
    "Charts need matplotlib, which is not installed: run pip install 'kbnn[report]' and try again."
)


def load_figure_class() -> Any:
    """matplotlib's Figure, or one clear sentence when the extra is not installed."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise UsageError(MATPLOTLIB_MISSING) from error
    return Figure


@contextmanager
def drawing_style(**overrides: Any) -> Iterator[Any]:
    """Draw in the style of the report; yields the Figure class. Missing glyphs are ignored."""
    figure = load_figure_class()
    import matplotlib

    # `svg.fonttype: none` leaves glyphs to the browser, so a missing one here costs only its width.
    with matplotlib.rc_context({**STYLE, **overrides}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support")
        yield figure


def inline_svg(figure: Any, key: str, label: str) -> str:
    """The figure as an <svg> element: ids start with `key`, colours are CSS variables."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": key}):
        # `savefig` would draw everything twice, once only to measure; the layout has measured.
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in (root, *root.findall(SVG + "defs")):
        for child in [c for c in parent if c.tag in (SVG + "metadata", SVG + "style")]:
            parent.remove(child)  # the style would apply to the whole page
    for element in root.iter():
        adapt_element(element, key)
    root.attrib.pop("width", None)
    root.attrib.pop("height", None)
    root.attrib.pop("version", None)
    root.set("role", "img")
    root.set("aria-label", label)
    ElementTree.register_namespace("", SVG.strip("{}"))
    return ElementTree.tostring(root, encoding="unicode")


def adapt_element(element: ElementTree.Element, key: str) -> None:
    """Make ids and references of one element the figure's own, and its colours variables."""
    found = element.attrib.get("id")
    if found is not None:
        element.set("id", f"{key}-{found}")
    target = element.attrib.pop(XLINK + "href", None)
    if target is not None:
        element.set("href", f"#{key}-{target[1:]}")
    clip = element.attrib.get("clip-path")
    if clip is not None:
        element.set("clip-path", clip.replace("url(#", f"url(#{key}-"))
    style = element.attrib.get("style")
    if style is not None:
        style = re.sub(r"font-family: [^;]*;? ?", "", style)
        for name, (light, _) in VARIABLES.items():
            style = style.replace(light, f"var(--{name})")
        element.set("style", style)
    if element.tag == SVG + "path" and "d" in element.attrib:
        element.set("d", " ".join(re.sub(r"(\.\d\d)\d+", r"\1", element.attrib["d"]).split()))


MAX_ERROR_BARS = 200
"""Most rows drawn with error bars: more would be a grey block."""


def evenly_spaced(n: int, most: int) -> IntArray:
    """Indices of at most `most` of n rows, evenly spaced."""
    return np.unique(np.linspace(0, max(n - 1, 0), min(n, most)).astype(np.int64))


def central_range(values: FloatArray) -> tuple[float, float]:
    """The middle 99 % of the values with some air: single outliers do not set the scale."""
    if values.shape[0] == 0:
        return 0.0, 1.0
    low, high = np.quantile(values, [0.005, 0.995])
    air = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    return float(low - air), float(high + air)


def draw_calibration(ax: Any, levels: FloatArray, observed: FloatArray, rows: int) -> None:
    """Observed against promised coverage, with the band that chance allows n honest rows."""
    p = np.concatenate(([0.0], levels, [1.0]))
    q = np.concatenate(([0.0], observed, [1.0]))
    error = 2 * np.sqrt(p * (1 - p) / max(rows, 1))
    ax.fill_between(100 * p, 100 * (p - error), 100 * (p + error), color=MUTED, alpha=0.18, lw=0)
    ax.plot([0, 100], [0, 100], color=MUTED, lw=0.9, ls=(0, (4, 3)))
    ax.plot(100 * p, 100 * q, color=BLUE, marker="o", ms=3)
    ax.set(xlim=(0, 100), ylim=(0, 100), xlabel="promised, %", ylabel="rows inside, %")


def draw_waterfall(
    ax: Any, base: float, value: float, names: Sequence[str], contributions: FloatArray, name: str
) -> None:
    """Bars from the value without known columns to that of the row, first contribution on top."""
    labels, sizes = [shorten_label(one) for one in names], contributions
    ends = base + np.cumsum(sizes)
    places = np.arange(len(sizes))
    colours = [BLUE if size >= 0.0 else ORANGE for size in sizes]
    ax.barh(places, sizes, left=ends - sizes, color=colours, height=0.6)
    for place, size, end in zip(places, sizes.tolist(), ends.tolist(), strict=True):
        text = f" {size:+.3g} "
        ax.text(end, place, text, va="center", ha="left" if size >= 0.0 else "right", fontsize=8)
    ax.axvline(base, color=MUTED, lw=0.9, ls=(0, (4, 3)))
    ax.axvline(value, color=INK, lw=0.9)
    ax.set_yticks(places, labels)
    ax.invert_yaxis()
    low, high = min(base, *ends.tolist()), max(base, *ends.tolist())
    air = 0.15 * (high - low) or 1.0
    ax.grid(axis="y", visible=False)
    ax.set(xlim=(low - air, high + air))
    ax.set(xlabel=f"{shorten_label(name)}: from {base:.4g} (nothing known) to {value:.4g}")


def draw_pit(ax: Any, bars: IntArray) -> None:
    """Histogram of the PIT relative to even, with the band that chance allows."""
    total = int(bars.sum())
    even = max(total / bars.shape[0], 1e-12)
    error = 2 * np.sqrt((1 - 1 / bars.shape[0]) / even)
    edges = np.linspace(0, 1, bars.shape[0] + 1)
    ax.bar(edges[:-1], bars / even, width=0.9 * edges[1], align="edge", color=BLUE, lw=0)
    ax.axhspan(max(1 - error, 0), 1 + error, color=MUTED, alpha=0.22, lw=0)
    ax.axhline(1, color=INK, lw=0.9, ls=(0, (4, 3)))
    ax.grid(axis="x", visible=False)
    ax.set(xlim=(0, 1), xlabel="where the truth fell in its forecast", ylabel="rows, 1 = even")


def draw_predicted_true(
    ax: Any, y: FloatArray, mean: FloatArray, lower: FloatArray, upper: FloatArray, name: str
) -> None:
    """Predicted against true with 90 % intervals."""
    index = evenly_spaced(y.shape[0], MAX_ERROR_BARS)
    y, mean, lower, upper = y[index], mean[index], lower[index], upper[index]
    low, high = central_range(np.concatenate((y, mean)))
    missed = _misses_interval(y, lower, upper)
    for chosen, colour in ((~missed, BLUE), (missed, ORANGE)):
        ax.vlines(y[chosen], lower[chosen], upper[chosen], color=colour, lw=0.7, alpha=0.4)
        ax.plot(y[chosen], mean[chosen], ".", color=colour, ms=4, alpha=0.85)
    ax.plot([low, high], [low, high], color=INK, lw=0.9, ls=(0, (4, 3)))
    ax.set(xlim=(low, high), ylim=(low, high))
    ax.set(xlabel=shorten_label(f"{name}, true"), ylabel="predicted, 90 % interval")


def draw_residuals(
    ax: Any, y: FloatArray, mean: FloatArray, lower: FloatArray, upper: FloatArray
) -> None:
    """Errors in half-widths of their 90 % interval against the prediction."""
    z, missed = _relative_errors(y, mean, lower, upper), _misses_interval(y, lower, upper)
    ax.axhspan(-1, 1, color=MUTED, alpha=0.15, lw=0)
    ax.axhline(0, color=INK, lw=0.9, ls=(0, (4, 3)))
    for chosen, colour in ((~missed, BLUE), (missed, ORANGE)):
        ax.plot(mean[chosen], z[chosen], ".", color=colour, ms=4, alpha=0.7)
    reach = min(max(float(np.abs(z).max(initial=2.0)), 2.0), 4.0)
    ax.set(xlim=central_range(mean), ylim=(-1.08 * reach, 1.08 * reach))
    ax.set(xlabel="predicted", ylabel="error / reach of 90 %")


def draw_error_histogram(
    ax: Any, y: FloatArray, mean: FloatArray, lower: FloatArray, upper: FloatArray
) -> None:
    """Histogram of errors in half-widths of 90 %, with that of a normal distribution."""
    z = np.clip(INTERVAL_HALF_WIDTHS_SD[90] * _relative_errors(y, mean, lower, upper), -4.2, 4.2)
    edges = np.linspace(-4.2, 4.2, 29)
    share = np.histogram(z, edges)[0] / max(z.shape[0], 1) / (edges[1] - edges[0])
    ax.bar(edges[:-1], share, width=0.9 * (edges[1] - edges[0]), align="edge", color=BLUE, lw=0)
    grid = np.linspace(-4.2, 4.2, 85)
    ax.plot(grid, np.exp(-0.5 * grid**2) / np.sqrt(2 * np.pi), color=ORANGE)
    ax.grid(axis="x", visible=False)
    ax.set(xlim=(-4.2, 4.2), xlabel="error, 90 % within 1.64", ylabel="density")


def draw_width_error(
    ax: Any, y: FloatArray, mean: FloatArray, lower: FloatArray, upper: FloatArray
) -> None:
    """Size of the error against the width of the 90 % interval; orange ones missed."""
    width, error = upper - lower, np.abs(y - mean)
    x_low, x_high = central_range(width)
    x_low = max(x_low, 0.0)
    missed = _misses_interval(y, lower, upper)
    ax.plot([x_low, x_high], [x_low / 2, x_high / 2], color=INK, lw=0.9, ls=(0, (4, 3)))
    for chosen, colour in ((~missed, BLUE), (missed, ORANGE)):
        ax.plot(width[chosen], error[chosen], ".", color=colour, ms=4, alpha=0.7)
    ax.set(xlim=(x_low, x_high), ylim=(0, max(central_range(error)[1], 0.55 * x_high)))
    ax.set(xlabel="width of the 90 % interval", ylabel="size of the error")


def _misses_interval(y: FloatArray, lower: FloatArray, upper: FloatArray) -> NDArray[np.bool_]:
    return np.asarray((y < lower) | (y > upper))


def _relative_errors(
    y: FloatArray, mean: FloatArray, lower: FloatArray, upper: FloatArray
) -> FloatArray:
    """Errors in units of how far the 90 % interval reaches on their side."""
    reach = np.where(y < mean, mean - lower, upper - mean)
    return (y - mean) / np.maximum(reach, 1e-300)


def draw_learning_curve(
    ax: Any,
    points: Sequence[CurvePoint],
    field: str,
    name: str,
    baseline: float | None,
    baseline_name: str = "best constant",
    alarms: Sequence[int] = (),
) -> None:
    """A figure against rows seen: since the point before, overall, and the best constant.

    Drift alarms are vertical lines.
    """
    for row in alarms:
        ax.axvline(row, color=ORANGE, lw=0.9, ls=(0, (1, 1.5)))
    for attribute, colour, text in (
        (f"since_{field}", BLUE, "latest rows"),
        (field, GREEN, "all rows so far"),
    ):
        pairs = [(p.rows, getattr(p, attribute)) for p in points]
        known = [(rows, value) for rows, value in pairs if value is not None]
        ax.plot(
            [rows for rows, _ in known],
            [value for _, value in known],
            color=colour,
            marker="o",
            ms=3,
            ls="-" if colour == BLUE else (0, (2, 1.5)),
            label=text,
        )
    if baseline is not None:
        ax.axhline(baseline, color=MUTED, lw=0.9, ls=(0, (4, 3)), label=baseline_name)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(lambda value, _: format_row_tick(value))
    ax.minorticks_off()
    ax.set(xlabel="rows seen", ylabel=name)
    ax.legend(loc="lower right", bbox_to_anchor=(1.02, 0.99), ncols=3, columnspacing=1.2)


MAX_FEATURES = 12


def draw_sensitivities(ax: Any, effects: Sequence[Effect]) -> None:
    """Effect of each feature with its 90 % interval, largest on top."""
    order = sorted(effects, key=lambda effect: -abs(effect.effect))[:MAX_FEATURES][::-1]
    place = np.arange(len(order))
    value = np.array([effect.effect for effect in order])
    half = INTERVAL_HALF_WIDTHS_SD[90] * np.array([effect.effect_sd for effect in order])
    certain = np.abs(value) > half
    ax.axvline(0, color=INK, lw=0.9)
    for chosen, colour in ((certain, BLUE), (~certain, MUTED)):
        ax.errorbar(
            value[chosen],
            place[chosen],
            xerr=half[chosen],
            fmt="o",
            ms=4,
            color=colour,
            elinewidth=1.6,
        )
    ax.set_yticks(place, [shorten_label(effect.feature, 18) for effect in order])
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.grid(axis="y", visible=False)
    ax.set_ylim(-0.7, len(order) - 0.3)
    ax.margins(x=0.08)


def draw_importance(ax: Any, importance: Sequence[Importance]) -> None:
    """Mean size of each column's contributions with its 90 % interval, largest on top."""
    order = list(importance[:MAX_FEATURES])[::-1]
    place = np.arange(len(order))
    half = INTERVAL_HALF_WIDTHS_SD[90] * np.array([one.error for one in order])
    ax.barh(place, [one.size for one in order], xerr=half, color=BLUE, ecolor=INK, height=0.6)
    ax.set_yticks(place, [shorten_label(one.column, 18) for one in order])
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.grid(axis="y", visible=False)
    ax.set_ylim(-0.7, len(order) - 0.3)
    ax.set_xlim(left=0.0)


def draw_interaction(ax: Any, data: Interaction, target: str) -> None:
    """Average prediction along the first column, one line per value of the second."""
    at = np.unique(np.linspace(0, len(data.grids[1]) - 1, 3).round().astype(int))
    names = data.categories[0]
    place = data.grids[0] if names is None else np.arange(len(names))
    for colour, k in zip((BLUE, MUTED, ORANGE), at, strict=False):
        second = data.categories[1]
        value = format_number(float(data.grids[1][k]), 3) if second is None else second[k]
        label = f"{shorten_label(data.columns[1], 14)} {shorten_label(str(value), 10)}"
        ax.plot(place, data.mean[:, k], "-" if names is None else "o", color=colour, label=label)
    if names is not None:
        ax.set_xticks(place, [shorten_label(name, 10) for name in names])
    ax.legend(loc="lower right", bbox_to_anchor=(1.02, 0.99), ncols=3, columnspacing=1.2)
    ax.set(xlabel=shorten_label(data.columns[0]), ylabel=shorten_label(target))


def draw_dependence(ax: Any, data: Dependence, target: str) -> None:
    """Average prediction along one feature with its 90 % band, and where the data lie."""
    half = INTERVAL_HALF_WIDTHS_SD[90] * data.sd
    if data.categories is not None:
        place = np.arange(len(data.categories))
        ax.errorbar(place, data.mean, half, fmt="o", ms=4, color=BLUE, elinewidth=1.4)
        ax.set_xticks(place, [shorten_label(name, 10) for name in data.categories])
        ax.grid(axis="x", visible=False)
        ax.set_xlim(-0.6, len(place) - 0.4)
    else:
        ax.fill_between(data.grid, data.mean - half, data.mean + half, color=BLUE, alpha=0.18, lw=0)
        ax.plot(data.grid, data.mean, color=BLUE)
        ax.set_xlim(float(data.grid[0]), float(data.grid[-1]))
        draw_rug(ax, data)
    ax.set(xlabel=shorten_label(data.feature), ylabel=shorten_label(target))


def draw_rug(ax: Any, data: Dependence) -> None:
    """The histogram of the feature as low bars along the bottom."""
    if data.edges is None or data.counts is None or data.counts.shape[0] == 0:
        return
    low, high = ax.get_ylim()
    height = 0.14 * (high - low) * data.counts / max(int(data.counts.max()), 1)
    start = low - 0.16 * (high - low)
    widths = np.diff(data.edges)
    inside = (data.edges[1:] > data.grid[0]) & (data.edges[:-1] < data.grid[-1])
    ax.bar(
        data.edges[:-1][inside],
        height[inside],
        width=widths[inside],
        bottom=start,
        align="edge",
        color=MUTED,
        alpha=0.45,
        lw=0,
    )
    ax.set_ylim(start, high)


def draw_reliability(
    ax: Any, weight: FloatArray, confidence: FloatArray, right: FloatArray
) -> None:
    """Share right against stated confidence; the size of a dot is the number of rows."""
    filled = weight > 0
    q, r, w = confidence[filled], right[filled], weight[filled]
    error = 2 * np.sqrt(np.maximum(r * (1 - r), 0.25 / np.maximum(w, 1)) / np.maximum(w, 1))
    ax.plot([0, 100], [0, 100], color=MUTED, lw=0.9, ls=(0, (4, 3)))
    ax.errorbar(100 * q, 100 * r, 100 * error, fmt="none", ecolor=BLUE, elinewidth=1, alpha=0.5)
    many = w >= 5  # a line through bins of a row or two would jump between 0 and 100
    ax.plot(100 * q[many], 100 * r[many], color=BLUE, lw=1.2)
    share = w / max(float(w.sum()), 1e-300)
    ax.scatter(100 * q, 100 * r, s=8 + 120 * share, color=BLUE, linewidths=0, zorder=3)
    ax.set(xlim=(0, 101), ylim=(0, 101), xlabel="sure, %", ylabel="right, %")


def draw_confidence_bars(ax: Any, weight: FloatArray, accuracy: float, confidence: float) -> None:
    """How sure the model was: share of rows per bin of confidence, with means of sure and right."""
    edges = np.linspace(0, 100, weight.shape[0] + 1)
    share = 100 * weight / max(float(weight.sum()), 1e-300)
    ax.bar(edges[:-1], share, width=0.92 * edges[1], align="edge", color=BLUE, alpha=0.6, lw=0)
    ax.axvline(100 * accuracy, color=ORANGE, lw=1.4, label="right, on average")
    ax.axvline(100 * confidence, color=INK, lw=1.2, ls=(0, (4, 3)), label="sure, on average")
    ax.grid(axis="x", visible=False)
    ax.set(xlim=(0, 101), xlabel="sure, %", ylabel="rows, %")
    ax.legend(loc="lower right", bbox_to_anchor=(1.02, 0.99), ncols=2)


def draw_selective_accuracy(ax: Any, weight: FloatArray, right: FloatArray) -> None:
    """Share right and share kept if rows below a confidence are set aside."""
    hits = np.cumsum(np.where(weight > 0, weight * np.nan_to_num(right), 0.0)[::-1])[::-1]
    kept = np.cumsum(weight[::-1])[::-1]
    least = 100 * np.arange(weight.shape[0]) / weight.shape[0]
    some = kept > 0
    ax.plot(least[some], 100 * hits[some] / kept[some], color=BLUE, marker="o", ms=3, label="right")
    ax.plot(
        least[some],
        100 * kept[some] / max(float(kept[0]), 1e-300),
        color=GREEN,
        marker="o",
        ms=3,
        ls=(0, (2, 1.5)),
        label="kept",
    )
    ax.set(xlim=(0, 101), ylim=(0, 103), xlabel="at least so sure, %", ylabel="rows, %")
    ax.legend(loc="lower left")


MAX_TIME_TICKS = 4


def draw_horizon(
    ax: Any,
    past: FloatArray,
    mean: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    name: str,
    times: Sequence[str] = (),
    truth: FloatArray | None = None,
    title: str = "",
) -> None:
    """The last values, and a forecast with its 90 % band; 0 is the last row learned."""
    before = np.arange(1 - len(past), 1)
    after = np.arange(1, len(mean) + 1)
    ax.fill_between(after, lower, upper, color=BLUE, alpha=0.22, lw=0, label="90 % band")
    ax.plot(before, past, color=INK, lw=1.2)
    if truth is not None:
        joined = np.concatenate((past[-1:], truth))
        ax.plot(np.arange(1 - len(past[-1:]), len(mean) + 1), joined, color=INK, lw=1.2,
                label="known")  # fmt: skip
    ax.plot(after, mean, color=BLUE, lw=1.4, label="forecast")
    ax.axvline(0.5, color=MUTED, lw=0.8, ls=(0, (4, 3)))
    ax.set(xlabel="" if times else "steps from the last row", ylabel=shorten_label(name))
    if times:
        shown = evenly_spaced(len(times), MAX_TIME_TICKS)
        ax.set_xticks(1 - len(past) + shown, [times[at] for at in shown.tolist()])
    if title:
        ax.set_title(title, loc="left")
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, borderaxespad=0.2)


def draw_alerts(
    ax: Any,
    row: FloatArray,
    low: FloatArray,
    high: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    surprise: FloatArray,
    marks: FloatArray,
    name: str,
) -> None:
    """The range of the values and of their interval along the rows, alerts; below, surprise."""
    figure, spec = ax.figure, ax.get_subplotspec()
    ax.remove()
    known = np.isfinite(low) & np.isfinite(high)
    parts = spec.subgridspec(2, 1, height_ratios=(2.4, 1.0))
    below = figure.add_subplot(parts[1] if known.any() else spec)
    if known.any():
        top = figure.add_subplot(parts[0], sharex=below)
        top.fill_between(row, lower, upper, color=BLUE, alpha=0.22, lw=0, step="mid")
        top.fill_between(row, low, high, color=INK, lw=0.5, ec=INK, step="mid")
        edges = [central_range(part[known]) for part in (low, high)]
        least, most = min(edges[0][0], edges[1][0]), max(edges[0][1], edges[1][1])
        inside = (marks[:, None] >= row[None, :]).sum(axis=1) - 1
        tops = np.where(known, high, most)
        shown = np.clip(tops[np.clip(inside, 0, None)], least, most) if len(marks) else marks
        air = 0.08 * (most - least)
        top.plot(marks, shown + 0.6 * air, "v", color=ORANGE, ms=5, mec=PAPER, mew=0.6, zorder=3)
        top.set(ylabel=shorten_label(name), ylim=(least - air, most + 2.0 * air))
        top.tick_params(labelbottom=False)
    for mark in marks:
        below.axvline(mark, color=ORANGE, lw=0.8, alpha=0.7)
    below.fill_between(row, 0.0, surprise, color=BLUE, lw=0.6, ec=BLUE, step="mid")
    below.set(xlabel="row", ylabel="surprise", xlim=(row[0], max(row[-1], row[0] + 1.0)))
    below.set_ylim(bottom=0.0)
