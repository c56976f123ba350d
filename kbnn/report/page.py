"""The HTML page: headline, verdict, pictures, tables and model card, all in one file."""

from __future__ import annotations

from pathlib import Path

from kbnn.report.css import CSS
from kbnn.report.data import ReportData
from kbnn.report.section import section_html
from kbnn.report.svg import drawing_style
from kbnn.report.text import escape_html
from kbnn.sink import write_atomically
from kbnn.wording import clean_page

SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The browser itself is told to load nothing and to run no script."""


def report_html(data: ReportData) -> str:
    """The whole page as text."""
    sections = []
    with drawing_style() as figure:
        for i, target in enumerate(data.targets):
            body = section_html(target, figure, f"t{i}")
            name = escape_html(target.section.name)
            title = f'<h2 id="t{i}">{name}</h2>' if len(data.targets) > 1 else ""
            sections.append(f"<section>{title}{body}</section>")
    links = [
        f'<a href="#t{i}">{escape_html(target.section.name)}</a>'
        for i, target in enumerate(data.targets)
    ]
    nav = f"<nav>{''.join(links)}</nav>" if len(links) > 1 else ""
    notes = "".join(f'<p class="sub">{escape_html(note)}</p>' for note in data.notes)
    made = f"Made by kbnn {escape_html(data.version)}".strip()
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{SECURITY_POLICY}">
<link rel="icon" href="data:,">
<title>{escape_html(data.title)}</title>
<style>
{CSS}</style>
</head>
<body>
<main>
<header><h1>{escape_html(data.title)}</h1><p class="sub">{escape_html(data.subtitle)}</p>{notes}{nav}</header>
{"".join(sections)}
{model_card(data)}
<footer>{made}. This page loads nothing from anywhere: keep it, print it, send it.</footer>
</main>
</body>
</html>
"""


def model_card(data: ReportData) -> str:
    """What the model is and what it has seen."""
    if not data.card:
        return ""
    items = "".join(
        f"<dt>{escape_html(name)}</dt><dd>{escape_html(value)}</dd>" for name, value in data.card
    )
    return f'<h3>Model card</h3><div class="box"><dl>{items}</dl></div>'


def write_report(data: ReportData, path: str | Path) -> None:
    """Write the page; a reader never sees half of it."""
    write_atomically(str(path), clean_page(report_html(data)).encode())
