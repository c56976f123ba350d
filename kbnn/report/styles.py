"""Colours told apart by every kind of eye (after Okabe and Ito), for light and for dark paper.

Charts are drawn with the light values; in the page each one becomes a CSS variable, so the same
drawing follows the reader's light or dark setting.

The look of the page: one column on a phone, up to three on a desk, light, dark and print.

Words inside pictures and pages: names from strangers made short, printable and harmless.

From a matplotlib figure to SVG that can stand inside a page beside others.
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


LIGHT = f"{css_variables(False)} --back: #f5f4f1; --edge: #e4e2dd; --shade: #f0efeb;"
DARK = f"{css_variables(True)} --back: #121418; --edge: #2b2f36; --shade: #23272d;"

RULES = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--back); color: var(--ink); line-height: 1.5;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  font-size: 16px; }
main { max-width: 1200px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0; letter-spacing: -0.015em; }
h2 { font-size: 1.3rem; line-height: 1.25; margin: 56px 0 0; letter-spacing: -0.01em; }
h3 { font-size: 1rem; margin: 40px 0 14px; color: var(--muted); font-weight: 600; }
h4 { font-size: 0.95rem; margin: 0 0 2px; }
h1, h2, h3, h4, p, td, th, dd { overflow-wrap: anywhere; }
p { margin: 0; }
.sub { color: var(--muted); margin-top: 6px; }
nav { display: flex; flex-wrap: wrap; gap: 6px 18px; margin-top: 14px; font-size: 0.9rem; }
a { color: var(--blue); }
.verdict { background: var(--paper); border: 1px solid var(--edge); border-left: 6px solid var(--c);
  border-radius: 10px; padding: 20px 24px; margin-top: 24px; }
.verdict strong { display: block; font-size: 1.2rem; line-height: 1.3; margin-bottom: 6px; }
.verdict p + p { margin-top: 2px; }
.good { --c: var(--green); } .fair { --c: #e69f00; } .poor { --c: var(--orange); }
.unknown { --c: var(--muted); }
.tiles { display: grid; grid-template-columns: repeat(var(--n), 1fr); gap: 1px;
  background: var(--paper); border: 1px solid var(--edge); border-radius: 10px; overflow: hidden;
  margin-top: 16px; }
.tile { padding: 14px 24px; box-shadow: 0 0 0 1px var(--edge); }
.tile span { display: block; color: var(--muted); font-size: 0.8rem; }
.tile b { display: block; font-size: 1.45rem; line-height: 1.3; font-weight: 650;
  font-variant-numeric: tabular-nums; letter-spacing: -0.01em; }
.grid { display: grid; gap: 16px; grid-template-columns: repeat(auto-fill, minmax(320px, 1fr)); }
figure, .box { background: var(--paper); border: 1px solid var(--edge); border-radius: 10px;
  margin: 0; padding: 16px 18px; min-width: 0; }
figure { display: flex; flex-direction: column; }
figcaption p { color: var(--muted); font-size: 0.83rem; line-height: 1.4; margin-bottom: 10px; }
svg { display: block; width: 100%; height: auto; margin-top: auto;
  stroke-linejoin: round; stroke-linecap: butt; font-family: inherit; }
.scroll { overflow-x: auto; padding: 0; }
table { border-collapse: collapse; width: 100%; font-size: 0.85rem;
  font-variant-numeric: tabular-nums; }
td { max-width: 240px; overflow: hidden; text-overflow: ellipsis; }
th, td { text-align: right; padding: 8px 14px; white-space: nowrap; overflow-wrap: normal; }
th { color: var(--muted); font-weight: 600; border-bottom: 1px solid var(--edge); }
thead th { max-width: 132px; overflow: hidden; text-overflow: ellipsis; }
tbody tr + tr td, tbody tr + tr th { border-top: 1px solid var(--edge); }
tbody th { border-bottom: 0; color: var(--ink); }
.left { text-align: left; }
.heat td { background: color-mix(in srgb, var(--h, var(--blue)) var(--p), transparent); }
.heat .zero { color: var(--muted); }
.heat .own { font-weight: 700; }
.heat td.wrong { --h: var(--orange); }
dl { display: grid; grid-template-columns: minmax(110px, max-content) 1fr; gap: 8px 24px; margin: 0;
  font-size: 0.9rem; }
dt { color: var(--muted); } dd { margin: 0; min-width: 0; }
footer { color: var(--muted); font-size: 0.8rem; margin-top: 56px; }
@media (max-width: 860px) { .tiles { grid-template-columns: 1fr 1fr; } }
@media (max-width: 520px) {
  main { padding: 24px 16px 48px; }
  h1 { font-size: 1.45rem; }
  .verdict { padding: 16px 18px; }
  .grid { grid-template-columns: minmax(0, 1fr); }
  .tile:last-child:nth-child(odd) { grid-column: 1 / -1; }
  .tile { padding: 12px 14px; }
  .tile b { font-size: 1.25rem; }
  figure { padding: 14px 12px; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: 10px; }
}
@page { margin: 12mm; }
@media print {
  html { font-size: 10.5px; }
  body { font-size: 1rem; background: none; }
  main { padding: 0; max-width: none; }
  h3 { margin: 18px 0 8px; }
  .grid { grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 8px; }
  .tiles { grid-template-columns: repeat(var(--n), 1fr); }
  .tile { padding: 8px 14px; }
  figure, .box { padding: 8px 10px; }
  figure, .box, .verdict, .tiles, tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .scroll { overflow: visible; padding: 0; }
  th, td { padding: 4px 8px; }
  thead th { max-width: 80px; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""

CSS = (
    f":root {{ color-scheme: light dark; {LIGHT} }}\n"
    f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}\n{RULES}"
)


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
    """The house style; yields the Figure class. Scripts the font lacks are no reason to stop."""
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
