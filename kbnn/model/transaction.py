"""Make learning atomic: after any exception (Ctrl-C, out of memory) rows are learned fully or not.

A transaction records the model's state before its rows. This costs a few references, because most
parts are replaced rather than changed, and the others can be reset to a mark. Only network sessions
learn in place. They log the results of their calls, so that rows which some network has already
learned are completed by running the same calls again: logged calls return their logged results.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from kbnn.core.kernel import Session
from kbnn.data.batch import Rows
from kbnn.model.replay import ReplayBuffer

if TYPE_CHECKING:
    from kbnn.model.model import OnlineModel

_REPLACED: Final = (
    "_schema",
    "timeline",
    "candidates",
    "eliminated",
    "skipped",
    "dropped_rows",
    "rows_seen",
    "monitor",
    "step_errors",
)
"""Attributes of a model that learning replaces."""

_get_replaced = attrgetter(*_REPLACED)


class Transaction:
    """A model's state before some rows, and these rows."""

    __slots__ = (
        "_before",
        "_history",
        "_kept",
        "_record",
        "_room",
        "_sessions",
        "again",
        "done",
        "rows",
    )

    def __init__(self, model: OnlineModel, rows: Rows, again: bool) -> None:
        self.rows, self.again = rows, again
        self.done = False
        """Whether the rows were learned, so that only the logs have to be closed."""
        self._before = _get_replaced(model)
        self._record = model.record.mark()
        self._history = model.history.mark() if model._schema.lags else None
        self._room = model.pending_rows.mark() if model._schema.wait else None
        self._kept: list[tuple[ReplayBuffer, Any]] = []
        self._sessions: tuple[Session, ...] = ()
        for candidate in model.candidates:
            learned = candidate.learned
            self._kept.append((learned.buffer, learned.buffer.mark()))
            self._sessions += learned.members
            for session in learned.members:
                session.begin_log()

    @property
    def has_learned(self) -> bool:
        """Whether some network has learned any of the rows."""
        return any(session.has_learned for session in self._sessions)

    def restore(self, model: OnlineModel) -> None:
        """Restore the model, except for the networks, whose logs are rewound."""
        for name, value in zip(_REPLACED, self._before, strict=True):
            setattr(model, name, value)
        for candidate in model.candidates:
            candidate.learner.task.schema = model._schema
        model.record.reset(self._record)
        if self._history is not None:
            model.history.reset(self._history)
        if self._room is not None:
            model.pending_rows.reset(self._room)
        for kept, mark in self._kept:
            kept.reset(mark)
        for session in self._sessions:
            session.rewind_log()
        model.trial_state = model.cold_start = None

    def end(self) -> None:
        """Close the logs of all sessions."""
        for session in self._sessions:
            session.end_log()
