"""What may mend a model whose verdict is poor, in the words of the command line."""

from __future__ import annotations

from kbnn.model.model import Model
from kbnn.score.verdict import Verdict
from kbnn.wording import count, rows_of

MANY_ALARMS = 5
"""Alarms in ten thousand rows, or in fewer, that are worth a word."""


def judged(model: Model) -> list[tuple[str, Verdict]]:
    """The record of each target in plain words, with what may help."""
    return [
        (name, _helped(model, model.task.verdict(score)))
        for name, score in zip(model.task.targets, model.card.scores, strict=True)
    ]


def _helped(model: Model, verdict: Verdict) -> Verdict:
    """The verdict with a sentence for what can be done."""
    more = list(verdict.sentences)
    if verdict.level == "poor":
        more.append(_remedy(model, verdict.headline))
    drift = _drift(model)
    if drift:
        more.append(drift)
    return Verdict(verdict.level, verdict.headline, tuple(text for text in more if text))


def _remedy(model: Model, headline: str) -> str:
    if headline.startswith("No better"):
        return (
            "The inputs may say nothing of the target; more rows, --epochs 10 or --layers auto "
            "may find what is there."
        )
    if headline.startswith("Over-confident"):
        if model.settings.intervals == "stated":
            return "--intervals tracked keeps intervals to their promise, --ensemble 5 widens them."
        return "--ensemble 5 widens them; fewer --epochs learn less by heart."
    if headline.startswith("Biased") and not model.schema.in_order:
        return "Rows in the order of another column look like drift: --shuffle mixes them."
    return ""


def _drift(model: Model) -> str:
    """A sentence where the stream has changed again and again."""
    alarms, rows = model.alarm_count, model.learned.seen
    if alarms < MANY_ALARMS or alarms * 10_000 < MANY_ALARMS * rows:
        return ""
    changed = f"The stream changed {count(alarms)} times in {rows_of(rows)}:"
    if model.schema.in_order:
        return f"{changed} where it did not, --drift off keeps what was learned before an alarm."
    return (
        f"{changed} where that is the order of the rows and not of the world, use --shuffle, or "
        "--drift off."
    )
