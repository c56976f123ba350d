"""What to learn from, into which model, and how: the options of a training run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kbnn.errors import UsageError
from kbnn.model.settings import Choices
from kbnn.output.fields import check_interval
from kbnn.output.writers import check_name
from kbnn.run.choices import check_outputs
from kbnn.stream.readoptions import ReadOptions

MODEL: Final = "model.npz"
CHECKPOINT_EVERY: Final = 30.0


@dataclass(frozen=True)
class TrainOptions:
    """The options of a run; every default is the usual case."""

    sources: tuple[str, ...]
    model: str = MODEL
    read: ReadOptions = field(default_factory=ReadOptions)
    choices: Choices = field(default_factory=Choices)
    fresh: bool = False  # start over, whatever model is there
    resume: bool = False  # go on where a run on the same sources was cut short, or refuse
    again: bool = False  # learn sources from their first row, though a run was cut short
    predictions: str | None = None
    interval: float = 0.9  # that lower and upper of the predictions enclose
    bad_rows: str | None = None
    checkpoint_every: float = CHECKPOINT_EVERY  # seconds

    def check(self) -> None:
        """Refuse what makes no sense, before anything is opened."""
        self.read.check()
        self.choices.settings()
        check_interval(self.interval)
        if self.model == "-":
            raise UsageError("a model is kept in a file: --model cannot be -")
        if not self.checkpoint_every > 0.0:
            raise UsageError(f"--checkpoint-every must be positive, not {self.checkpoint_every:g}")
        check_outputs(
            self.sources,
            {
                "--model": self.model,
                "--predictions": self.predictions,
                "--bad-rows": self.bad_rows,
            },
        )
        if self.predictions is not None:
            check_name(self.predictions)
