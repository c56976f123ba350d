"""Rows are learned whole or not at all, whatever is raised on the way (Ctrl-C, no memory left).

A transaction notes what a model was before its rows, which costs a few references: most parts are
replaced and not changed, and the others can be reset to a mark. Networks alone learn in place. They
keep the results of their calls meanwhile, so that rows which some network has learned already are
completed by doing the same once more: the calls that were made return what they returned.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from kbnn.core.kernel import Session
from kbnn.data.batch import Rows
from kbnn.model.replay_buffer import ReplayBuffer

if TYPE_CHECKING:
    from kbnn.model.model import OnlineModel

_REPLACED: Final = (
    "_schema",
    "timeline",
    "racers",
    "lost",
    "skipped",
    "let_go",
    "met",
    "_card",
    "_unscored",
)
"""Attributes of a model that learning replaces."""

_get_replaced = attrgetter(*_REPLACED)


class Transaction:
    """A model before some rows, and these rows."""

    __slots__ = (
        "_before",
        "_history",
        "_kept",
        "_room",
        "_sessions",
        "_unscored",
        "again",
        "done",
        "rows",
    )

    def __init__(self, model: OnlineModel, rows: Rows, again: bool) -> None:
        self.rows, self.again = rows, again
        self.done = False
        """Whether the rows were learned: nothing is left but to end the logs."""
        self._before = _get_replaced(model)
        self._unscored = model._unscored.mark()
        self._history = model.history.mark() if model._schema.lags else None
        self._room = model.pending_rows.mark() if model._schema.wait else None
        self._kept: list[tuple[ReplayBuffer, Any]] = []
        self._sessions: tuple[Session, ...] = ()
        for racer in model.racers:
            learned = racer.learned
            self._kept.append((learned.kept, learned.kept.mark()))
            self._sessions += learned.members
            for session in learned.members:
                session.begin_log()

    @property
    def has_learned(self) -> bool:
        """Whether some network has learned rows."""
        return any(session.has_learned for session in self._sessions)

    def restore(self, model: OnlineModel) -> None:
        """Make the model what it was, but for what networks have learned."""
        for name, value in zip(_REPLACED, self._before, strict=True):
            setattr(model, name, value)
        for racer in model.racers:
            racer.learner.task.schema = model._schema
        model._unscored.reset(self._unscored)
        if self._history is not None:
            model.history.reset(self._history)
        if self._room is not None:
            model.pending_rows.reset(self._room)
        for kept, mark in self._kept:
            kept.reset(mark)
        for session in self._sessions:
            session.rewind_log()
        model._trial_state = model._cold_start = None

    def end(self) -> None:
        """Forget the results of calls."""
        for session in self._sessions:
            session.end_log()
