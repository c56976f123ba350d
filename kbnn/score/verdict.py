"""A verdict: figures in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kbnn.wording import format_rows

Level = Literal["good", "fair", "poor", "unknown"]

MIN_VERDICT_ROWS = 20
"""Fewer rows than this are not judged at all."""


@dataclass(frozen=True)
class Verdict:
    """A judgement: how good in one word, a headline, and the sentences that give the reasons."""

    level: Level
    headline: str
    sentences: tuple[str, ...]
    overconfident: bool = False  # intervals or probabilities hold clearly less than they promise


def too_few_rows_verdict(rows: int) -> Verdict:
    """The verdict on next to nothing."""
    text = f"{format_rows(rows)} scored: judge from {MIN_VERDICT_ROWS} rows on."
    return Verdict("unknown", "Too few rows to judge", (text.capitalize(),))
