"""Rows that are not learned: what is said of them, once a run.

Of those whose target a stated kind of number cannot have the first is shown.

While kinds of numbers still race, nobody knows which will be learned: the first row against each is
kept, and told when the model is of that kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kbnn.model.rows import Rows
from kbnn.model.warmup import MAX_HELD_ROWS
from kbnn.task.table import VALUE_RANGES, find_value_ranges
from kbnn.wording import format_count


class _InvalidTarget(NamedTuple):
    row: int
    target: int
    value: float


class UnlearnedRowNotices:
    """What has come so far that some kind of number cannot be."""

    def __init__(self) -> None:
        self._first: dict[str, _InvalidTarget] = {}
        self._told = self._told_let_go = False

    def notice_dropped_rows(self, let_go: int) -> str | None:
        """The sentence about rows let go, so many, while the target did not vary, once."""
        if self._told_let_go or not let_go:
            return None
        self._told_let_go = True
        return (
            f"the target has had one value in more than {MAX_HELD_ROWS} rows: of those before it "
            f"varies the last {MAX_HELD_ROWS} are learned, the others count as rejected (--task "
            "classification learns all of a class)"
        )

    def notice_invalid_target(
        self, rows: Rows, task: str, targets: Sequence[str], *, settled: bool = True
    ) -> str | None:
        """Look at rows; the sentence about the first that the task cannot have, once.

        `settled`: what the target is will stay so.
        """
        if self._told:
            return None
        for name, range_ in find_value_ranges(task).items():
            if name in self._first or (settled and name != task):
                continue
            wrong = np.isfinite(rows.y) & (range_.possible(rows.y) == 0.0)
            if wrong.any():
                row, target = np.argwhere(wrong)[0].tolist()
                self._first[name] = _InvalidTarget(
                    int(rows.number[row]), target, rows.y[row, target]
                )
        first = self._first.get(task)
        if first is None:
            return None
        self._told = True
        return (
            f"row {format_count(first.row)}: target '{targets[first.target]}' is {first.value:g}, and "
            f"--task {task} is for {VALUE_RANGES[task].words}: such rows are left out (--task "
            "regression takes any number)"
        )
