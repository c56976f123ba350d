"""Words inside pictures and pages: names from strangers made short, printable and harmless."""

from __future__ import annotations

import html

from kbnn.wording import clean_text

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
