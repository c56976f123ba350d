"""What training, prediction and evaluation need from a model: a single one, or a fleet."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from kbnn.data.batch import LearnResult, Rows
from kbnn.data.schema import Schema
from kbnn.metrics.scorecard import Scorecard
from kbnn.model.record import PrequentialRecord
from kbnn.model.recursive_forecast import SequenceNotices
from kbnn.model.settings import Settings
from kbnn.targets.base import TargetType
from kbnn.targets.prediction import Forecast


class StreamModel(Protocol):
    """A model that learns batches of rows and predicts: `OnlineModel` or `Fleet`."""

    key: tuple[str, ...]  # key columns; empty for a single model
    settings: Settings
    rows_seen: int  # rows of the stream, in all passes
    skipped: int  # rows without a target
    position: dict[str, Any]  # in the sources, see kbnn.workflows.checkpoint

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held while rows are learned or predicted."""

    @property
    def schema(self) -> Schema:
        """Names and types of the columns."""

    @property
    def task(self) -> TargetType:
        """Target type."""

    @property
    def record(self) -> PrequentialRecord:
        """Prequential record with the rows that are not yet counted."""

    @property
    def card(self) -> Scorecard:
        """Prequential record of all rows."""

    @property
    def rows(self) -> int:
        """Rows learned in all passes."""

    @property
    def rejected_rows(self) -> int:
        """Rows with a target that could not be learned."""

    @property
    def interval_mode(self) -> str | None:
        """`tracked` if intervals are calibrated online, else `stated`; None if there are none."""

    @property
    def wants_saving(self) -> bool:
        """Whether the model asks to be saved soon."""

    def set_interval_mode(self, wanted: str | None) -> None:
        """Switch calibration off if `stated` is wanted."""

    def recover_transaction(self) -> None:
        """Undo or complete rows whose learning was interrupted."""

    def learn(self, rows: Rows, again: bool = False) -> Forecast:
        """Predict each row, then learn it."""

    def learn_batch(self, rows: Rows, again: bool = False) -> LearnResult:
        """Predict and learn rows as `learn` does; also return changes of the target type."""

    def start_pass(self) -> None:
        """Start a further pass over the rows."""

    def predict(self, rows: Rows) -> Forecast:
        """Predict rows that are independent of one another."""

    def open_predictor(self, notices: SequenceNotices | None = None) -> Callable[[Rows], Forecast]:
        """Open a predictor of consecutive rows."""
