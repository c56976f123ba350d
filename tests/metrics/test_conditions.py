"""Conditions of --fail-if: what they mean, and what is said about those that mean nothing."""

from __future__ import annotations

import pytest

from kbnn.errors import UsageError
from kbnn.metrics.figures import MetricCheck, explain_met_checks, flatten_metrics, parse_check

FIGURES = {
    "rows": 100,
    "rmse": 3.5,
    "nll": None,
    "coverage": {"50": 0.5, "90": 0.83},
    "baseline_rmse": 3.0,
}
NAMES = list(flatten_metrics(FIGURES))


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("rmse>3", True),
        ("rmse>3.5", False),
        ("rmse>=3.5", True),
        ("rmse < 3.5", False),
        ("rmse<=3.5", True),
        (" rmse > 3 ", True),
        ("RMSE>3", True),
        ("rmse>baseline_rmse", True),
        ("rmse<baseline_rmse", False),
        ("coverage_90<0.85", True),
        ("coverage.90<85%", True),
        ("coverage_90<80%", False),
        ("rows<1000", True),
        ("rmse>3e0", True),
        ("nll>1000", True),
        ("rmse>nll", True),
    ],
)
def test_a_condition(text: str, met: bool) -> None:
    assert bool(explain_met_checks([parse_check(text, NAMES, ["y"])], {"y": FIGURES})) is met


def test_the_reason_is_a_sentence() -> None:
    conditions = [
        parse_check(text, NAMES, ["y"]) for text in ("rmse>3", "rmse>baseline_rmse", "nll>1")
    ]
    assert explain_met_checks(conditions, {"y": FIGURES}) == [
        "rmse is 3.500, so 'rmse>3' is met",
        "rmse is 3.500, so 'rmse>baseline_rmse' is met (baseline_rmse is 3.000)",
        "nll is undefined, so 'nll>1' cannot be checked",
    ]


def test_several_targets() -> None:
    """Unnamed: any of them. Named: that one, even where its name looks like a condition."""
    better = {**FIGURES, "rmse": 1.0}
    both = {"a<b.c": FIGURES, "d": better}
    names = list(both)
    assert explain_met_checks([parse_check("rmse>3", NAMES, names)], both) == [
        "a<b.c: rmse is 3.500, so 'rmse>3' is met"
    ]
    named = parse_check("a<b.c.rmse>3", NAMES, names)
    assert named == MetricCheck("a<b.c.rmse>3", "a<b.c", "rmse", ">", 3.0)
    assert explain_met_checks([named], both)
    assert not explain_met_checks([parse_check("d.rmse>3", NAMES, names)], both)
    assert parse_check("d.coverage.90<.8", NAMES, names).figure == "coverage_90"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rmse", "--fail-if 'rmse': write a check such as 'rmse>3'"),
        ("", "--fail-if '': write a check such as 'rmse>3'"),
        ("rmse=3", "--fail-if 'rmse=3': write a check such as 'rmse>3'"),
        (
            "rmsee>3",
            "--fail-if 'rmsee>3': unknown metric 'rmsee' "
            "(choose from rows, rmse, nll, coverage_50, coverage_90, baseline_rmse)",
        ),
        ("rmse>three", "--fail-if 'rmse>three': 'three' is neither a number nor a metric"),
        ("rmse>nan", "--fail-if 'rmse>nan': 'nan' is neither a number nor a metric"),
        ("rmse>inf", "--fail-if 'rmse>inf': 'inf' is neither a number nor a metric"),
    ],
)
def test_what_means_nothing(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_check(text, NAMES, ["y"])
    assert str(caught.value) == message
