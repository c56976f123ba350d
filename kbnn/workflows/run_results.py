"""Results of a training run: counts, the JSON object, advice and notices.

- `summarize_training` builds the object of `train --json`.
- `describe_cost` predicts the duration for many columns: a few random rows are learned by a network
  of the final size, and the number of rows follows from the size of the sources.
- `judge_targets` adds advice to a verdict.
- `measure_forgetting` checks whether row order did harm. The record holds an even sample of rows
  with the forecast made when each was first seen. If on rows of the first three quarters the final
  model's error is larger by a quarter, and by three standard errors of the difference, a notice
  is given.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from time import thread_time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kbnn.core.input_moments import leading_directions
from kbnn.core.kernel import open_session
from kbnn.core.layout import layout_of
from kbnn.core.state import init
from kbnn.data.batch import Rows
from kbnn.data.dataset import Stream
from kbnn.metrics.scorecard import Scorecard
from kbnn.metrics.verdicts import MIN_VERDICT_ROWS, NAIVE_WORDS, Verdict, find_metrics
from kbnn.model.diagnostics import list_model_noise
from kbnn.model.ensemble import count_bins
from kbnn.model.interface import StreamModel
from kbnn.model.model import OnlineModel
from kbnn.model.settings import WIDE_COVARIANCE_INPUTS
from kbnn.targets.base import max_outputs
from kbnn.wording import format_count, format_number, format_rows

if TYPE_CHECKING:
    from kbnn.workflows.training import Training


@dataclass(frozen=True)
class RowTally:
    """Rows of a model by outcome."""

    rows: int = 0  # learned
    skipped: int = 0  # without a target
    rejected: int = 0  # could not be learned from

    @classmethod
    def from_model(cls, model: StreamModel) -> RowTally:
        """Return the counts of a model."""
        return cls(model.rows, model.skipped, model.rejected_rows)

    def since(self, before: RowTally) -> RowTally:
        """Return the difference to earlier counts."""
        return RowTally(
            self.rows - before.rows,
            self.skipped - before.skipped,
            self.rejected - before.rejected,
        )


def summarize_training(training: Training) -> dict[str, Any]:
    """Return the object of `train --json`.

    Rows are those of this run, over all passes. The prequential metrics are the model's record: of
    every row, before it was first learned. `microseconds_per_row` is the processor time of learning
    alone, `rows_per_second` counts everything.
    """
    model, seconds = training.model, training.seconds
    overall = training.overall_model
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
        "noise_sd": list(list_model_noise(overall)),
        "intervals": model.interval_mode,
        "alarms": list(overall.alarms),
        "alerts": training.alert_count if training.options.wants_alerts else None,
        "seconds": asdict(seconds),
        "rows_per_second": training.rows / seconds.total if seconds.total > 0.0 else None,
        "microseconds_per_row": 1e6 * training.processor_seconds / training.rows
        if training.rows
        else None,
    }


def list_prequential_figures(model: StreamModel) -> dict[str, Any]:
    """Return the model's prequential metrics, with `coverage_90` where there are intervals."""
    figures = model.card.metric_values(model.schema.targets)
    for one in [figures, *figures.get("targets", {}).values()]:
        if "coverage" in one:
            one["coverage_90"] = one["coverage"]["90"]
    return figures


TRIAL_ROWS: Final = 8
MAX_TRIAL_COVARIANCES: Final = 1 << 24
"""Number of covariances above which even a trial takes too long."""


def measure_row_seconds(model: StreamModel) -> float | None:
    """Measure the processor time of learning one row; None for huge networks."""
    width, settings, outputs = model.schema.width, model.settings, max_outputs(model.task)
    generator = np.random.default_rng(0)
    seconds = 0.0
    for member in settings.list_members(width, outputs, bool(model.schema.lags)):
        bins = count_bins(width, outputs) * width if member.encoding == "piecewise" else 0
        config = settings.make_config(member, model.task, width + bins, outputs, 1.0)
        if layout_of(config).size > MAX_TRIAL_COVARIANCES:
            return None
        x = generator.standard_normal((TRIAL_ROWS, config.inputs))
        y = np.abs(
            generator.standard_normal((TRIAL_ROWS, config.labels)).round(0) % max(config.classes, 2)
        )
        directions = leading_directions(x, config.directions) if config.directions else None
        session = open_session(init(config, directions=directions))
        session.learn(x, y)
        start = thread_time()
        session.learn(x, y)
        seconds += (thread_time() - start) / TRIAL_ROWS
    return seconds


def describe_cost(model: StreamModel, stream: Stream, passes: int) -> str | None:
    """Describe networks, cost of a row and expected duration; None if nobody needs to know.

    That is so for few columns unless a preset was chosen.
    """
    wide = model.schema.width >= WIDE_COVARIANCE_INPUTS
    each = measure_row_seconds(model) if wide or model.settings.preset != "none" else None
    if each is None:
        return None
    members = model.settings.list_members(
        model.schema.width, max_outputs(model.task), bool(model.schema.lags)
    )
    what = f"{format_count(model.schema.width)} column{'' if model.schema.width == 1 else 's'}"
    if len(members) > 1:
        what += f", {len(members)} networks"
    text = f"{what}: {_format_duration(each)} a row to learn"
    rows = stream.expected_rows
    if rows is None:
        return text
    replayed = model.settings.replay_ratio * min(rows, 2 * model.settings.replay_rows)
    total = each * (rows * passes + replayed)
    whole = _format_duration(total) if total >= 1.0 else "a second"
    return f"{text}, about {whole} for about {format_number(rows, 2)} rows"


def _format_duration(seconds: float) -> str:
    for unit, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "s")):
        if seconds >= unit:
            return f"{format_number(seconds / unit, 2)} {name}"
    if seconds >= 1e-3:
        return f"{format_number(1e3 * seconds, 2)} ms"
    return f"{format_number(1e6 * seconds, 2)} us"


ALARMS_PER_10000_ROWS = 5
"""Number of drift alarms per 10,000 rows (or fewer) from which advice is given."""

FROZEN_ADVICE = (
    "The model did not learn from these rows. Where rows come in order, `kbnn train` continues "
    "to learn and recalibrates; `kbnn evaluate --learn` measures that without saving."
)


def judge_targets(
    model: StreamModel, held_out: Scorecard | None = None
) -> list[tuple[str, Verdict]]:
    """Return the verdict on each target, with advice.

    Rows held out decide if there are enough of them, otherwise the prequential record.
    """
    found = []
    for at, name in enumerate(model.task.targets):
        verdict = find_metrics(model.task).judge(model.card.scores[at])
        rows = 0 if held_out is None else held_out.scores[at].rows
        if held_out is None or rows < MIN_VERDICT_ROWS:
            found.append((name, _add_advice(model, verdict)))
            continue
        frozen = find_metrics(model.task).judge(held_out.scores[at])
        first = f"Judged by {format_rows(rows)} held out, which the model never learned."
        frozen = replace(frozen, sentences=(first, *frozen.sentences))
        if frozen.level == "poor" and verdict.level in ("good", "fair"):
            found.append((name, _add_sentences(frozen, _advise_on_order(model, verdict))))
        else:
            found.append((name, _add_advice(model, frozen)))
    return found


def advise_frozen(verdict: Verdict) -> Verdict:
    """Add advice to the verdict on a model that did not learn the rows."""
    return _add_sentences(verdict, FROZEN_ADVICE) if verdict.overconfident else verdict


def _add_sentences(verdict: Verdict, *more: str) -> Verdict:
    return replace(verdict, sentences=(*verdict.sentences, *(text for text in more if text)))


def _advise_on_order(model: StreamModel, before: Verdict) -> str:
    """Return advice for a model that was good while learning but is not at the end."""
    better = "Row by row, while it was learning, it did better: the order of the rows matters."
    if model.schema.is_ordered:
        return f"{better} Keep it learning (`kbnn train`) as rows arrive."
    return f"{better} Use --shuffle, or keep it learning if future rows come in this order."


def _add_advice(model: StreamModel, verdict: Verdict) -> Verdict:
    """Add advice on the verdict and on drift."""
    remedy = _advise_on_verdict(model, verdict.headline) if verdict.level == "poor" else ""
    return _add_sentences(verdict, remedy, _advise_on_drift(model))


def _advise_on_verdict(model: StreamModel, headline: str) -> str:
    if headline in [f"No better than {words}" for words in NAIVE_WORDS.values()]:
        return (
            "Some series, such as prices, cannot be forecast better. Otherwise try columns that "
            "are known ahead, or other --lags."
        )
    if headline.startswith("No better"):
        return (
            "The inputs may carry no information about the target. Try more rows, --epochs 10 or "
            "--layers auto."
        )
    if headline.startswith("Over-confident"):
        if model.settings.intervals == "stated":
            return (
                "Use --intervals calibrated to recalibrate them online, or --ensemble 5 to widen "
                "them."
            )
        return "Use --ensemble 5 to widen them, or fewer --epochs to overfit less."
    if headline.startswith("Biased") and not model.schema.is_ordered:
        return "Rows sorted by another column look like drift: try --shuffle."
    return ""


def _advise_on_drift(model: StreamModel) -> str:
    """Return advice if there were many drift alarms."""
    if not isinstance(model, OnlineModel):
        return ""
    alarms, rows = model.learner_state.get_count("alarms"), model.learner_state.seen
    if alarms < ALARMS_PER_10000_ROWS or alarms * 10_000 < ALARMS_PER_10000_ROWS * rows:
        return ""
    changed = f"The stream changed {format_count(alarms)} times in {format_rows(rows)}:"
    if model.schema.is_ordered:
        return f"{changed} if these are false alarms, --drift off keeps what was learned."
    return f"{changed} if only the order of the rows causes this, use --shuffle or --drift off."


EARLIER_SHARE: Final = 0.75
MIN_ERROR_RATIO: Final = 1.25
MIN_STANDARD_ERRORS: Final = 3.0
_MIN_SAMPLE_ROWS: Final = 40  # rows of the sample


class Forgetting(NamedTuple):
    """The error on earlier rows when they were first seen, and now, in words."""

    then: str
    now: str


def measure_forgetting(model: OnlineModel) -> Forgetting | None:
    """Measure what a model has forgotten; None if nothing, or if it cannot be measured.

    With lags or late targets the order of rows is fixed, so nothing is reported.
    """
    if model.schema.is_ordered:
        return None
    sample = model.card.summaries.sample
    earlier = sample.order < EARLIER_SHARE * model.card.summaries.rows
    if model.is_warming_up or np.count_nonzero(earlier) < _MIN_SAMPLE_ROWS:
        return None
    x, y = sample.x[earlier], sample.y[earlier]
    metrics = find_metrics(model.task)
    predicted = metrics.prediction_columns(
        model.predict(Rows(x, y, sample.row[earlier].astype(np.int64))), ()
    )
    now = metrics.errors(y, predicted)
    then = metrics.errors(y, sample.forecast[earlier])
    known = np.isfinite(now) & np.isfinite(then)
    now, then = now[known], then[known]
    if len(now) < _MIN_SAMPLE_ROWS:
        return None
    power = int(
        np.frexp(max(now.max(), then.max()))[1]
    )  # scaled by a power of two, so that squares do not overflow
    new, old = np.ldexp(now, -power), np.ldexp(then, -power)
    more = new - old
    error = float(np.std(more)) / np.sqrt(len(more))
    factor = MIN_ERROR_RATIO**metrics.error_power
    if np.mean(new) <= factor * np.mean(old) or np.mean(more) <= MIN_STANDARD_ERRORS * error:
        return None
    return Forgetting(
        *(metrics.format_error(float(np.mean(errors)), y.shape[1]) for errors in (then, now))
    )


def format_forgetting(found: Forgetting, *, shuffled: bool, alarms: int) -> str:
    """Format the notice about forgetting, with remedies."""
    remedies = [] if shuffled else ["--shuffle"]
    remedies += ["--drift off"] if alarms else []
    remedies = remedies or ["--epochs 3"]
    return (
        f"on a sample of earlier rows the final model has {found.now}, and had {found.then} when "
        f"it first saw them: row order matters. Try {' or '.join(remedies)}. On a drifting stream "
        "this is expected."
    )
