"""What a report shows, as plain data: whoever has a model fills these in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kbnn.model.effects import Effect
from kbnn.score.rowsums import FloatArray, IntArray
from kbnn.task.section import TargetSection


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
class TargetReport:
    """One target: what its task shows, and what only the model knows.

    `effect` says what the effects are changes of, `drawn` what the dependences show.
    """

    section: TargetSection
    effects: Sequence[Effect] = ()
    effect: str = ""
    dependence: Sequence[Dependence] = ()
    drawn: str = ""
    worst: WorstRows | None = None


@dataclass(frozen=True)
class ReportData:
    """The whole page: what was judged on what, each target, and the model card (label, value)."""

    title: str
    subtitle: str
    targets: Sequence[TargetReport]
    card: Sequence[tuple[str, str]] = ()
    version: str = ""
    notes: Sequence[str] = field(default=())
