"""A model in one line for the console, and as a small table for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from kbnn.model.model import OnlineModel
from kbnn.wording import clean_text, format_rows


def _format_names(names: Sequence[str], most: int = 3) -> str:
    if len(names) > most:
        return f"{len(names):,} columns"
    return ", ".join(map(clean_text, names)) or "nothing"


def format_model_text(model: OnlineModel | None, target: Sequence[str]) -> str:
    """`<kbnn.Model: regression of price from 13 columns, 4,000 rows learned>`."""
    if model is None:
        return f"<kbnn.Model of {_format_names(target) if target else 'y'}: nothing learned yet>"
    schema = model.schema
    what = f"{model.task.description} from {_format_names(schema.features)}"
    return f"<kbnn.Model: {what}, {format_rows(model.rows)} learned>"


def format_model_html(model: OnlineModel | None, target: Sequence[str]) -> str:
    """The same with the figures of what it forecast."""
    title = f"<p><b>{escape(format_model_text(model, target).strip('<>'))}</b></p>"
    if model is None or not any(score.rows for score in model.card.scores):
        return title
    body = ""
    for name, score in zip(model.task.targets, model.card.scores, strict=True):
        table = model.task.build_table(score.metric_values(), name, brief=True)
        body += f"<tr><th>{escape(clean_text(name))}</th><th></th><th>{escape(table.baseline)}</th></tr>"
        for row in table.rows:
            cells = (row.label, row.value, row.constant or "")
            body += f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
    return f"{title}<p>Each row was predicted before it was learned:</p><table>{body}</table>"
