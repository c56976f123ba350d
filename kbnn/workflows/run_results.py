"""What came of a training run: counts, and the object that `train --json` prints.

What learning many columns will take, told before it is begun.

A few made rows are learned by a network as it will be; how many rows there are follows from the
size of the sources and of their first rows.

What may mend a model whose verdict is poor, in the words of the command line.

Whether the order of the rows did harm: what a finished model makes of rows that it met earlier.

A model that follows a stream may forget what it knew. The record keeps an even sample of the rows
with what was said of each when it was met; the finished model is asked about the same rows again.
Where its errors on rows of the first three quarters are larger by a quarter, and by three standard
errors of the difference, somebody should hear of it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kbnn.model.model import OnlineModel

if TYPE_CHECKING:
    from kbnn.workflows.training import Training
from dataclasses import replace
from time import thread_time
from typing import Final, NamedTuple

import numpy as np

from kbnn.core.input_moments import leading_directions
from kbnn.core.kernel import open_session
from kbnn.core.layout import layout_of
from kbnn.core.state import init
from kbnn.data.batch import Rows
from kbnn.data.dataset import Stream
from kbnn.metrics.scorecard import Scorecard
from kbnn.metrics.verdicts import MIN_VERDICT_ROWS, Verdict
from kbnn.model.replay import REPLAY_ROWS
from kbnn.model.settings import WIDE_COVARIANCE_INPUTS
from kbnn.wording import format_count, format_number, format_rows


@dataclass(frozen=True)
class RowTally:
    """Rows a model has met, by what became of them."""

    rows: int = 0  # learned
    skipped: int = 0  # without a target
    rejected: int = 0  # could not be learned from

    @classmethod
    def from_model(cls, model: OnlineModel) -> RowTally:
        """A model's tally."""
        return cls(model.rows, model.skipped, model.rejected_rows)

    def since(self, before: RowTally) -> RowTally:
        """What was added."""
        return RowTally(
            self.rows - before.rows,
            self.skipped - before.skipped,
            self.rejected - before.rejected,
        )


def summarize_training(training: Training) -> dict[str, Any]:
    """The object of `train --json`.

    Rows are those of this run, in all its passes. The prequential figures are the model's record:
    of every row, before it was learned for the first time. `microseconds_per_row` is the
    processor time of learning alone, `rows_per_second` counts everything.
    """
    model, seconds = training.model, training.seconds
    tally = RowTally.from_model(model).since(training.tally_before)
    return {
        "model": training.options.model,
        "continued": training.continued,
        "rows": tally.rows,
        "skipped": tally.skipped,
        "rejected": tally.rejected,
        "bad_rows": training.bad_rows,
        "rows_in_model": model.rows,
        "epochs": training.position.epochs,
        "task": model.task.name,
        "targets": model.schema.targets,
        "prequential": list_prequential_figures(model),
        "test": None if training.test is None else training.test.to_json(),
        "noise_sd": list(model.noise_sd),
        "intervals": model.interval_mode,
        "alarms": list(model.alarms),
        "seconds": asdict(seconds),
        "rows_per_second": training.rows / seconds.total if seconds.total > 0.0 else None,
        "microseconds_per_row": 1e6 * training.processor_seconds / training.rows
        if training.rows
        else None,
    }


def list_prequential_figures(model: OnlineModel) -> dict[str, Any]:
    """The model's record, with the coverage of its 90 % intervals where `train` has it."""
    figures = model.card.metric_values(model.schema.targets)
    for one in [figures, *figures.get("targets", {}).values()]:
        if "coverage" in one:
            one["coverage_90"] = one["coverage"]["90"]
    return figures


TRIAL_ROWS: Final = 8
MAX_TRIAL_COVARIANCES: Final = 1 << 24
"""Covariances beyond which even a trial would take long."""


def measure_row_seconds(model: OnlineModel) -> float | None:
    """Processor time of learning one row; None where that is not worth a trial, or too much."""
    width, settings = (
        model.schema.width,
        model.settings.list_candidates(inputs=model.schema.width)[0],
    )
    if width < WIDE_COVARIANCE_INPUTS:
        return None
    config = settings.make_config(model.task, width, model.task.max_outputs, 1.0)
    if layout_of(config).size > MAX_TRIAL_COVARIANCES:
        return None
    generator = np.random.default_rng(0)
    x = generator.standard_normal((TRIAL_ROWS, width))
    y = np.abs(
        generator.standard_normal((TRIAL_ROWS, config.labels)).round(0) % max(config.classes, 2)
    )
    session = open_session(
        init(config, directions=leading_directions(x) if config.directions else None)
    )
    session.learn(x, y)
    start = thread_time()
    session.learn(x, y)
    return (thread_time() - start) / TRIAL_ROWS


def estimate_cost(model: OnlineModel, stream: Stream, passes: int) -> str | None:
    """The sentence about it, where there is something to say."""
    each = measure_row_seconds(model)
    if each is None:
        return None
    said = f"{format_count(model.schema.width)} columns: {_format_duration(each)} a row to learn"
    rows = stream.expected_rows
    if rows is None:
        return said
    racers = len(model.settings.list_candidates(inputs=model.schema.width))
    rehearsed = max(one.replay_ratio for one in model.settings.list_candidates()) * min(
        rows, 2 * REPLAY_ROWS
    )
    total = each * (rows * passes + min(rows, REPLAY_ROWS) * racers + rehearsed)
    whole = _format_duration(total) if total >= 1.0 else "a second"
    return f"{said}, about {whole} for about {format_number(rows, 2)} rows"


def _format_duration(seconds: float) -> str:
    for unit, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "s")):
        if seconds >= unit:
            return f"{format_number(seconds / unit, 2)} {name}"
    return f"{format_number(1e3 * seconds, 2)} ms"


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
            return "--intervals calibrated calibrates intervals online, --ensemble 5 widens them."
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
