"""What came of a training run: counts, and the object that `train --json` prints."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kbnn.model.model import OnlineModel

if TYPE_CHECKING:
    from kbnn.run.training import Training


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
