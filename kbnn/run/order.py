"""Whether the order of the rows did harm: what a finished model makes of rows that it met earlier.

A model that follows a stream may forget what it knew. The record keeps an even sample of the rows
with what was said of each when it was met; the finished model is asked about the same rows again.
Where its errors on rows of the first three quarters are larger by a quarter, and by three standard
errors of the difference, somebody should hear of it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from kbnn.model.model import OnlineModel
from kbnn.model.rows import Rows

EARLIER_SHARE: Final = 0.75
MIN_ERROR_RATIO: Final = 1.25
MIN_STANDARD_ERRORS: Final = 3.0
_MIN_SAMPLE_ROWS: Final = 40  # rows of the sample


class Forgetting(NamedTuple):
    """An error when rows were met and now, in words."""

    then: str
    now: str


def measure_forgetting(model: OnlineModel) -> Forgetting | None:
    """What a model has forgotten; None where it has not, or nobody can tell.

    Where a row's past is an input, or targets come late, no other order can be had.
    """
    if model.schema.is_ordered:
        return None
    sample = model.card.summaries.sample
    earlier = sample.order < EARLIER_SHARE * model.card.summaries.rows
    if model.is_warming_up or np.count_nonzero(earlier) < _MIN_SAMPLE_ROWS:
        return None
    x, y = sample.x[earlier], sample.y[earlier]
    said = model.task.prediction_columns(
        model.predict(Rows(x, y, sample.row[earlier].astype(np.int64))), ()
    )
    now = model.task.errors(y, said)
    then = model.task.errors(y, sample.forecast[earlier])
    known = np.isfinite(now) & np.isfinite(then)
    now, then = now[known], then[known]
    if len(now) < _MIN_SAMPLE_ROWS:
        return None
    power = int(np.frexp(max(now.max(), then.max()))[1])  # errors as shares of it can be squared
    new, old = np.ldexp(now, -power), np.ldexp(then, -power)
    more = new - old
    error = float(np.std(more)) / np.sqrt(len(more))
    factor = MIN_ERROR_RATIO**model.task.error_power
    if np.mean(new) <= factor * np.mean(old) or np.mean(more) <= MIN_STANDARD_ERRORS * error:
        return None
    return Forgetting(*(model.task.format_error(float(np.mean(errors))) for errors in (then, now)))


def format_forgetting(found: Forgetting, *, shuffled: bool, alarms: int) -> str:
    """The sentence about it, with what can be done."""
    remedies = [] if shuffled else ["--shuffle mixes the rows"]
    remedies += ["--drift off keeps what was learned before an alarm"] if alarms else []
    remedies = remedies or ["--epochs 3 goes over them again"]
    return (
        f"on a sample of earlier rows the finished model has {found.now}, it had {found.then} when "
        f"it met them: their order matters ({', '.join(remedies)}; of a stream that has changed "
        "for good nothing else is to be expected)"
    )
