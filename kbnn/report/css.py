"""The look of the page: one column on a phone, up to three on a desk, light, dark and print."""

from __future__ import annotations

from kbnn.report.palette import VARIABLES


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
