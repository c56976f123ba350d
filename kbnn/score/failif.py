"""Conditions on figures, for scripts: `rmse>3`, `coverage_90<0.85`, `rmse>baseline_rmse`.

A check names a figure of `evaluate`, a comparison and a limit: a number, a percentage or
another figure. With several targets it speaks of each of them, or of one: `yield.rmse>3`. A figure
that is undefined (no row could be scored) meets every check: what cannot be checked has not
passed.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kbnn.errors import UsageError
from kbnn.score.figures import Values, flat
from kbnn.wording import number

_FORM = re.compile(r"(.+)(>=|<=|>|<)(.+)", re.DOTALL)
_HOLDS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


class Check(NamedTuple):
    """One parsed check; `target` is None when it speaks of every target."""

    text: str
    target: str | None
    figure: str
    comparison: str
    limit: float | str


def parse(text: str, figures: Sequence[str], targets: Sequence[str]) -> Check:
    """Read a check on the given figures and targets; UsageError when it makes no sense."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise UsageError(f"--fail-if '{text}': write a check such as 'rmse>3'")
    name, comparison, limit = (part.strip() for part in match.groups())
    target, figure = _named(text, name, figures, targets)
    return Check(text, target, figure, comparison, _limit(text, limit, figures))


def _named(
    text: str, name: str, figures: Sequence[str], targets: Sequence[str]
) -> tuple[str | None, str]:
    """The target (None: all) and the figure that a name stands for."""
    if _plain(name) in figures:
        return None, _plain(name)
    for target in targets:
        rest = name.removeprefix(f"{target}.")
        if rest != name and _plain(rest) in figures:
            return target, _plain(rest)
    raise UsageError(
        f"--fail-if '{text}': there is no figure '{name}' (choose from {', '.join(figures)})"
    )


def _plain(name: str) -> str:
    """`coverage.90` and `Coverage_90` are `coverage_90`."""
    return name.lower().replace(".", "_")


def _limit(text: str, limit: str, figures: Sequence[str]) -> float | str:
    if _plain(limit) in figures:
        return _plain(limit)
    try:
        value = float(limit.removesuffix("%")) / (100 if limit.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if math.isfinite(value):
        return value
    raise UsageError(f"--fail-if '{text}': '{limit}' is neither a number nor a figure")


def reasons(checks: Sequence[Check], by_target: Mapping[str, Values]) -> list[str]:
    """A sentence for every check that is met, target by target; empty: all is well."""
    found = []
    for check in checks:
        for target, figures in by_target.items():
            if check.target in (None, target):
                reason = _reason(check, flat(figures))
                if reason:
                    found.append(f"{target}: {reason}" if len(by_target) > 1 else reason)
    return found


def _reason(check: Check, figures: Mapping[str, float | None]) -> str | None:
    value = figures[check.figure]
    named = isinstance(check.limit, str)
    limit = figures[check.limit] if isinstance(check.limit, str) else check.limit
    if value is None or limit is None:
        unknown = check.figure if value is None else check.limit
        return f"{unknown} is undefined, so '{check.text}' cannot be checked"
    if not _HOLDS[check.comparison](value, limit):
        return None
    against = f" ({check.limit} is {number(limit)})" if named else ""
    return f"{check.figure} is {number(value)}, so '{check.text}' is met{against}"
