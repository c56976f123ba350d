"""Check conditions on metrics for scripts: `rmse>3`, `coverage_90<0.85`, `rmse>baseline_rmse`.

A check names a metric of `evaluate`, a comparison and a limit: a number, a percentage or another
metric. With several targets it applies to each of them, or to one: `yield.rmse>3`. A metric that is
undefined (no row could be scored) meets every check, so that a script never passes unchecked.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kbnn.errors import UsageError
from kbnn.metrics.figures import MetricValues, flatten_metrics
from kbnn.wording import format_number

_CHECK_PATTERN = re.compile(r"(.+)(>=|<=|>|<)(.+)", re.DOTALL)
_COMPARISONS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


class MetricCheck(NamedTuple):
    """One parsed check; `target` is None if it applies to every target."""

    text: str
    target: str | None
    figure: str
    comparison: str
    limit: float | str


def parse_check(text: str, figures: Sequence[str], targets: Sequence[str]) -> MetricCheck:
    """Parse a check on the given metrics and targets; raise UsageError if it is invalid."""
    match = _CHECK_PATTERN.fullmatch(text)
    if match is None:
        raise UsageError(f"--fail-if '{text}': write a check such as 'rmse>3'")
    name, comparison, limit = (part.strip() for part in match.groups())
    target, figure = _parse_metric_name(text, name, figures, targets)
    return MetricCheck(text, target, figure, comparison, _parse_limit(text, limit, figures))


def _parse_metric_name(
    text: str, name: str, figures: Sequence[str], targets: Sequence[str]
) -> tuple[str | None, str]:
    """Return the target (None: all targets) and the metric that a name refers to."""
    if _normalize_name(name) in figures:
        return None, _normalize_name(name)
    for target in targets:
        rest = name.removeprefix(f"{target}.")
        if rest != name and _normalize_name(rest) in figures:
            return target, _normalize_name(rest)
    raise UsageError(
        f"--fail-if '{text}': unknown metric '{name}' (choose from {', '.join(figures)})"
    )


def _normalize_name(name: str) -> str:
    """Return the name as checks spell it: `coverage.90` and `Coverage_90` are `coverage_90`."""
    return name.lower().replace(".", "_")


def _parse_limit(text: str, limit: str, figures: Sequence[str]) -> float | str:
    if _normalize_name(limit) in figures:
        return _normalize_name(limit)
    try:
        value = float(limit.removesuffix("%")) / (100 if limit.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if math.isfinite(value):
        return value
    raise UsageError(f"--fail-if '{text}': '{limit}' is neither a number nor a metric")


def explain_met_checks(
    checks: Sequence[MetricCheck], by_target: Mapping[str, MetricValues]
) -> list[str]:
    """Return one sentence for every check that is met, per target; empty if none is."""
    found = []
    for check in checks:
        for target, figures in by_target.items():
            if check.target in (None, target):
                reason = _explain_check(check, flatten_metrics(figures))
                if reason:
                    found.append(f"{target}: {reason}" if len(by_target) > 1 else reason)
    return found


def _explain_check(check: MetricCheck, figures: Mapping[str, float | None]) -> str | None:
    value = figures[check.figure]
    named = isinstance(check.limit, str)
    limit = figures[check.limit] if isinstance(check.limit, str) else check.limit
    if value is None or limit is None:
        unknown = check.figure if value is None else check.limit
        return f"{unknown} is undefined, so '{check.text}' cannot be checked"
    if not _COMPARISONS[check.comparison](value, limit):
        return None
    against = f" ({check.limit} is {format_number(limit)})" if named else ""
    return f"{check.figure} is {format_number(value)}, so '{check.text}' is met{against}"
