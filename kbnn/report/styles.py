"""Colours, labels and SVG of the report.

The colours are distinguishable with every kind of colour vision (after Okabe and Ito). Charts are
drawn in the colours of light paper; in the page each colour becomes a CSS variable, so that the
same drawing follows the reader's light or dark setting.
"""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

from kbnn.errors import UsageError
from kbnn.wording import clean_text

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
