"""What may mend a model whose verdict is poor, in the words of the command line."""

from __future__ import annotations

from dataclasses import replace

from kbnn.model.model import Model
from kbnn.score.scorecard import Scorecard
from kbnn.score.verdict import FEW, Verdict
from kbnn.wording import count, rows_of

MANY_ALARMS = 5
"""Alarms in ten thousand rows, or in fewer, that are worth a word."""

STILL_LEARNING = (
    "The model did not learn from these rows. Where rows come in order, `kbnn train` continues "
    "to learn and recalibrates; `kbnn evaluate --learn` measures that without saving."
)


def judged(model: Model, held_out: Scorecard | None = None) -> list[tuple[str, Verdict]]:
    """The verdict on each target in plain words, with what may help.

    Rows held out decide where there are enough of them; else the record of the rows learned.
    """
    found = []
    for at, name in enumerate(model.task.targets):
        verdict = model.task.verdict(model.card.scores[at])
        rows = 0 if held_out is None else held_out.scores[at].rows
        if held_out is None or rows < FEW:
            found.append((name, _helped(model, verdict)))
            continue
        frozen = model.task.verdict(held_out.scores[at])
        first = f"Judged by {rows_of(rows)} held out, which the model never learned."
        frozen = replace(frozen, sentences=(first, *frozen.sentences))
        if frozen.level == "poor" and verdict.level in ("good", "fair"):
            found.append((name, _with(frozen, _forgetful(model, verdict))))
        else:
            found.append((name, _helped(model, frozen)))
    return found


def judge_frozen(verdict: Verdict) -> Verdict:
    """The verdict on a model that did not learn from the rows, with what may help."""
    return _with(verdict, STILL_LEARNING) if verdict.overconfident else verdict


def _with(verdict: Verdict, *more: str) -> Verdict:
    return replace(verdict, sentences=(*verdict.sentences, *(text for text in more if text)))


def _forgetful(model: Model, before: Verdict) -> str:
    """What to do about a model that was good while it learned, and is not at the end."""
    better = "Row by row, while it was learning, it did better: the order of the rows matters."
    if model.schema.in_order:
        return f"{better} Keep it learning (`kbnn train`) as rows come."
    return f"{better} Use --shuffle, or keep it learning where rows will come in this order."


def _helped(model: Model, verdict: Verdict) -> Verdict:
    """The verdict with a sentence for what can be done."""
    remedy = _remedy(model, verdict.headline) if verdict.level == "poor" else ""
    return _with(verdict, remedy, _drift(model))


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
