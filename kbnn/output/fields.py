"""Predicted columns and single predictions of each target type.

Numbers have mean, sd, interval and quantiles, classes a label and probabilities. `ZERO_TYPES` names
the numeric types that also have the probability of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.data.batch import Anomalies
from kbnn.distributions.dispatch import read_distribution
from kbnn.errors import UsageError
from kbnn.targets.base import TargetType
from kbnn.targets.classification import class_name
from kbnn.targets.prediction import IN_WARMUP, Forecast, Label, Number

ZERO_TYPES: Final = ("count", "amount")
"""Numeric target types with a column for the probability of 0."""


class OutputField(NamedTuple):
    """One predicted column."""

    name: str
    text: bool
    values: Callable[[Forecast], Any]  # (n,) float64, or a list of texts
    score: Callable[[Anomalies], FloatArray] | None = None  # of columns that need the targets
    size: Callable[[Forecast, FloatArray], FloatArray] | None = None
    """Returns (n,) numbers whose leading digits matter; None: those of the column itself."""

    def read(self, forecast: Forecast, anomalies: Anomalies | None) -> Any:
        """Return the values of the column."""
        if self.score is None or anomalies is None:
            return self.values(forecast)
        return self.score(anomalies)


class OutputOptions(NamedTuple):
    """Which predicted columns are requested."""

    interval: float = 0.9  # probability between lower and upper
    quantiles: tuple[float, ...] = ()
    decompose: bool = False  # both parts of sd
    outlier: bool = False
    open: bool = False  # more classes may still appear
    surprise: bool = False  # how unlikely the target was, where it is there


def make_output_name(name: str, taken: Collection[str]) -> str:
    """Prefix the name of an added column until no column of the input has it."""
    while name in taken:
        name = f"kbnn_{name}"
    return name


def list_output_fields(task: TargetType, wanted: OutputOptions) -> list[OutputField]:
    """List the predicted columns; UsageError if classes are asked for columns of numbers."""
    if task.labels:
        return _class_fields(task, wanted) + _surprise_fields([""] * wanted.surprise)
    suffixes = [f"_{target}" if len(task.targets) > 1 else "" for target in task.targets]
    made = [field for j, suffix in enumerate(suffixes) for field in _fields(j, suffix, wanted)]
    if wanted.outlier:
        made.append(OutputField("outlier", False, lambda f: f.outlier, size=_probability_size))
    if task.name in ZERO_TYPES:
        made += [_zero_field(j, suffix) for j, suffix in enumerate(suffixes)]
    return made + (_surprise_fields(suffixes) if wanted.surprise else [])


def _surprise_fields(suffixes: list[str]) -> list[OutputField]:
    """List surprise and PIT of each target."""

    def missing(forecast: Forecast) -> FloatArray:
        return np.full(len(forecast.status), np.nan)

    def make_field(name: str, j: int) -> OutputField:
        return OutputField(
            f"{name}{suffixes[j]}",
            False,
            missing,
            lambda found: getattr(found, name)[:, j],
            size=_probability_size if name == "pit" else None,
        )

    return [make_field(name, j) for j in range(len(suffixes)) for name in ("surprise", "pit")]


def _probability_size(forecast: Forecast, values: FloatArray) -> FloatArray:
    """Return the smaller of p and 1 - p, so that rounding keeps the odds on both sides."""
    return np.minimum(values, 1.0 - values)


def _fields(j: int, suffix: str, wanted: OutputOptions) -> list[OutputField]:
    """List mean, sd, lower and upper of one target, then what else is requested."""

    def get_sd(forecast: Forecast, values: FloatArray) -> FloatArray:
        return forecast.sd[:, j]

    def interval_field(side: int) -> OutputField:
        name = ("lower", "upper")[side]
        return OutputField(
            f"{name}{suffix}",
            False,
            lambda f: read_distribution(f.stated[:, j]).interval(wanted.interval)[side],
            size=get_sd,
        )

    def quantile_field(share: float) -> OutputField:
        return OutputField(
            f"{quantile_name(share)}{suffix}",
            False,
            lambda f: read_distribution(f.stated[:, j]).quantile(share),
            size=get_sd,
        )

    parts = [
        OutputField(f"function_sd{suffix}", False, lambda f: f.function_sd[:, j]),
        OutputField(f"noise_sd{suffix}", False, lambda f: f.noise_sd[:, j]),
    ]
    return [
        OutputField(f"mean{suffix}", False, lambda f: f.mean[:, j], size=get_sd),
        OutputField(f"sd{suffix}", False, lambda f: f.sd[:, j]),
        interval_field(0),
        interval_field(1),
        *(quantile_field(share) for share in wanted.quantiles),
        *(parts if wanted.decompose else []),
    ]


def _zero_field(j: int, suffix: str) -> OutputField:
    return OutputField(
        f"p_0{suffix}",
        False,
        lambda f: read_distribution(f.stated[:, j]).cdf(np.zeros(len(f.mean))),
        size=_probability_size,
    )


def quantile_name(share: float) -> str:
    """Name the column of a quantile: q05 for 0.05, q975 for 0.975."""
    return "q" + f"{share:.12g}".removeprefix("0.").ljust(2, "0")


def _class_fields(task: TargetType, wanted: OutputOptions) -> list[OutputField]:
    """List the label and the probability of each class.

    While classes may still appear, only the probability of the predicted label is listed.
    """
    for asked, option in ((wanted.quantiles, "--quantiles"), (wanted.decompose, "--decompose")):
        if asked:
            raise UsageError(f"{option} is for numbers, and the target holds classes")
    made = [OutputField("label", True, lambda f: _predicted_labels(task, f))]
    if wanted.open and not task.schema.closed:
        return [*made, OutputField("probability", False, _max_probability, size=_probability_size)]
    return made + [
        OutputField(
            f"p_{name}",
            False,
            lambda f, k=k: f.probability[:, k],  # type: ignore[misc]  # bound now
            size=_probability_size,
        )
        for k, name in enumerate(task.schema.classes)
    ]


def _predicted_labels(task: TargetType, forecast: Forecast) -> list[str | None]:
    p = forecast.probability
    if not p.shape[1]:
        return [None] * len(p)
    # Before any class is known all are equally probable, and naming the first class would
    # reveal the row's own label.
    even = (forecast.status & IN_WARMUP > 0) & (p.max(axis=1) * np.sum(p > 0.0, axis=1) <= 1.0)
    known = np.atleast_1d(np.isfinite(p).all(axis=1) & ~even).tolist()
    best = p.argmax(axis=1).tolist()
    return [class_name(task, k) if sure else None for k, sure in zip(best, known, strict=True)]


def _max_probability(forecast: Forecast) -> FloatArray:
    p = forecast.probability
    return p.max(axis=1) if p.shape[1] else np.full(len(p), np.nan)


def make_single_prediction(
    task: TargetType, forecast: Forecast
) -> Number | dict[str, Number] | Label:
    """Return the forecast of the first row: a `Number`, a dict of them by target, or a `Label`."""
    if task.labels:
        known = forecast.probability[0].tolist()
        names = enumerate(task.schema.classes)
        named = {name: known[k] if k < len(known) else 0.0 for k, name in names}
        return Label(max(named, key=named.__getitem__) if named else None, named)
    made = [_single_number(forecast, j) for j in range(len(task.targets))]
    return made[0] if len(made) == 1 else dict(zip(task.targets, made, strict=True))


def _single_number(forecast: Forecast, j: int) -> Number:
    lower, upper = read_distribution(forecast.stated[:1, j]).interval(0.9)
    parts = (forecast.function_sd, forecast.noise_sd)
    return Number(
        float(forecast.mean[0, j]),
        float(forecast.sd[0, j]),
        float(lower[0]),
        float(upper[0]),
        *(float(part[0, j]) for part in parts),
    )


def shape_numbers(task: TargetType, values: FloatArray, what: str = "mean") -> FloatArray:
    """Return numeric values (n, T), or (n,) for a single target; UsageError for classes."""
    if task.labels:
        raise UsageError(f"classes have no {what}: see label and probability")
    return values[:, 0] if values.shape[1] == 1 else values


def list_class_probabilities(task: TargetType, forecast: Forecast) -> FloatArray:
    """Return (n, classes); 0 for classes that appeared later; UsageError for numbers."""
    if not task.labels:
        raise UsageError("numbers have no classes: see mean and sd")
    known, classes = forecast.probability, len(task.schema.classes)
    missing = max(classes - known.shape[1], 0)
    return np.pad(known, ((0, 0), (0, missing)))[:, :classes]


def decode_targets(task: TargetType, y: FloatArray) -> FloatArray | list[str | None]:
    """Return targets (n,) in the form that users know: numbers, or the names of classes."""
    if not task.labels:
        return y
    return [None if np.isnan(value) else class_name(task, int(value)) for value in y]
