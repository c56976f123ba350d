"""The score of a number as a few arrays, and back: what rests of it in a fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kbnn.score.score import Score
from kbnn.task.numeric_score import NumericScore


def pack_score(score: Score) -> dict[str, Any]:
    """Sums and those since the last mark, the weight first; the best constant; the PIT."""
    assert isinstance(score, NumericScore)
    return {
        "sums": np.concatenate(([score._weight], score._sums)),
        "recent": score._recent,
        "constant": score.constant.sums,
        "pit": score.pit.counts,
    }


def unpack_score(
    score: Score, kept: Mapping[str, Any], figures: Sequence[str], drawn: Sequence[str]
) -> None:
    """The inverse, of sums that are of these figures, some of them drawn."""
    assert isinstance(score, NumericScore)
    score.restore_sums(
        dict(zip(("weight", *figures), kept["sums"].tolist(), strict=True)),
        dict(zip(("weight", *drawn), kept["recent"].tolist(), strict=True)),
    )
    score.constant.sums = kept["constant"].copy()
    score.pit.counts = kept["pit"].copy()
