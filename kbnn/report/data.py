"""What a report shows, as plain data: whoever has a model fills these in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbnn.score.curve import CurvePoint
from kbnn.score.rowsums import FloatArray, IntArray
from kbnn.score.verdict import Verdict


@dataclass(frozen=True)
class Sensitivity:
    """How much the prediction moves with each feature: value and one standard deviation of it."""

    features: Sequence[str]
    value: FloatArray
    error: FloatArray
    unit: str = "change of the target per standard deviation of the feature"


@dataclass(frozen=True)
class Dependence:
    """The prediction as one feature varies and the others stay as they came (partial dependence).

    grid (g,)        values of the feature; `categories` names them when they are categories
    mean (g,)        average prediction        sd (g,)   its standard deviation, for the band
    edges, counts    histogram of the feature in the data, drawn faintly below
    """

    feature: str
    grid: FloatArray
    mean: FloatArray
    sd: FloatArray
    edges: FloatArray | None = None
    counts: IntArray | None = None
    categories: Sequence[str] | None = None


@dataclass(frozen=True)
class WorstRows:
    """The rows the model found least probable: a table of text, most surprising first."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class NumericReport:
    """One numeric target; arrays of the sample are (k,), `pit` is (20,), the levels (19,)."""

    name: str
    verdict: Verdict
    figures: Mapping[str, Any]
    levels: FloatArray
    observed: FloatArray
    pit: IntArray
    truth: FloatArray
    mean: FloatArray
    sd: FloatArray
    curve: Sequence[CurvePoint] = ()
    sensitivity: Sensitivity | None = None
    dependence: Sequence[Dependence] = ()
    worst: WorstRows | None = None


@dataclass(frozen=True)
class ClassReport:
    """One class target; reliability holds weight, mean confidence and share right per bin."""

    name: str
    verdict: Verdict
    figures: Mapping[str, Any]
    classes: Sequence[str]
    reliability: tuple[FloatArray, FloatArray, FloatArray]
    confusion: IntArray
    curve: Sequence[CurvePoint] = ()
    sensitivity: Sensitivity | None = None
    dependence: Sequence[Dependence] = ()
    worst: WorstRows | None = None
    shown: str = ""  # what the dependences show: the probability of which class


@dataclass(frozen=True)
class ReportData:
    """The whole page: what was judged on what, each target, and the model card (label, value)."""

    title: str
    subtitle: str
    targets: Sequence[NumericReport | ClassReport]
    card: Sequence[tuple[str, str]] = ()
    version: str = ""
    notes: Sequence[str] = field(default=())
