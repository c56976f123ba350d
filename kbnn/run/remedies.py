"""What may mend a model whose verdict is poor, in the words of the command line."""

from __future__ import annotations

from dataclasses import replace

from kbnn.model.model import OnlineModel
from kbnn.score.scorecard import Scorecard
from kbnn.score.verdict import MIN_VERDICT_ROWS, Verdict
from kbnn.wording import format_count, format_rows

ALARMS_PER_10000_ROWS = 5
"""Alarms in ten thousand rows, or in fewer, that are worth a word."""

FROZEN_ADVICE = (
    "The model did not learn from these rows. Where rows come in order, `kbnn train` continues "
    "to learn and recalibrates; `kbnn evaluate --learn` measures that without saving."
)


def judge_targets(
    model: OnlineModel, held_out: Scorecard | None = None
) -> list[tuple[str, Verdict]]:
    """The verdict on each target in plain words, with what may help.

    Rows held out decide where there are enough of them; else the record of the rows learned.
    """
    found = []
    for at, name in enumerate(model.task.targets):
        verdict = model.task.build_verdict(model.card.scores[at])
        rows = 0 if held_out is None else held_out.scores[at].rows
        if held_out is None or rows < MIN_VERDICT_ROWS:
            found.append((name, _add_advice(model, verdict)))
            continue
        frozen = model.task.build_verdict(held_out.scores[at])
        first = f"Judged by {format_rows(rows)} held out, which the model never learned."
        frozen = replace(frozen, sentences=(first, *frozen.sentences))
        if frozen.level == "poor" and verdict.level in ("good", "fair"):
            found.append((name, _add_sentences(frozen, _advise_on_order(model, verdict))))
        else:
            found.append((name, _add_advice(model, frozen)))
    return found


def advise_frozen(verdict: Verdict) -> Verdict:
    """The verdict on a model that did not learn from the rows, with what may help."""
    return _add_sentences(verdict, FROZEN_ADVICE) if verdict.overconfident else verdict


def _add_sentences(verdict: Verdict, *more: str) -> Verdict:
    return replace(verdict, sentences=(*verdict.sentences, *(text for text in more if text)))


def _advise_on_order(model: OnlineModel, before: Verdict) -> str:
    """What to do about a model that was good while it learned, and is not at the end."""
    better = "Row by row, while it was learning, it did better: the order of the rows matters."
    if model.schema.is_ordered:
        return f"{better} Keep it learning (`kbnn train`) as rows come."
    return f"{better} Use --shuffle, or keep it learning where rows will come in this order."


def _add_advice(model: OnlineModel, verdict: Verdict) -> Verdict:
    """The verdict with a sentence for what can be done."""
    remedy = _advise_on_verdict(model, verdict.headline) if verdict.level == "poor" else ""
    return _add_sentences(verdict, remedy, _advise_on_drift(model))


def _advise_on_verdict(model: OnlineModel, headline: str) -> str:
    if headline.startswith("No better"):
        return (
            "The inputs may say nothing of the target; more rows, --epochs 10 or --layers auto "
            "may find what is there."
        )
    if headline.startswith("Over-confident"):
        if model.settings.intervals == "stated":
            return "--intervals tracked keeps intervals to their promise, --ensemble 5 widens them."
        return "--ensemble 5 widens them; fewer --epochs learn less by heart."
    if headline.startswith("Biased") and not model.schema.is_ordered:
        return "Rows in the order of another column look like drift: --shuffle mixes them."
    return ""


def _advise_on_drift(model: OnlineModel) -> str:
    """A sentence where the stream has changed again and again."""
    alarms, rows = model.alarm_count, model.learner_state.seen
    if alarms < ALARMS_PER_10000_ROWS or alarms * 10_000 < ALARMS_PER_10000_ROWS * rows:
        return ""
    changed = f"The stream changed {format_count(alarms)} times in {format_rows(rows)}:"
    if model.schema.is_ordered:
        return f"{changed} where it did not, --drift off keeps what was learned before an alarm."
    return (
        f"{changed} where that is the order of the rows and not of the world, use --shuffle, or "
        "--drift off."
    )
