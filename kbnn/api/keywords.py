"""Types of the keywords of Python calls, for type checkers and editors.

`python -m docs.commands` generates this module from `kbnn.option_table`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from kbnn.option_table import ColumnNames


class ReadKeywords(TypedDict, total=False):
    """Options of calls that read rows."""

    limit: int | str | None
    on_error: str | None
    columns: ColumnNames | None
    bad_rows: str | None
    na: ColumnNames | None
    format: str | None
    delimiter: str | None
    header: bool | None


class LearnKeywords(ReadKeywords, total=False):
    """Options of `Model.learn`."""

    interval: float | str | None
    quantiles: str | Sequence[float] | None
    surprise: bool | None
    digits: int | str | None
    epochs: int | str | None
    shuffle: bool | None
    test_split: float | str | None
    intervals: str | None
    predictions: str | None


class ColumnKeywords(TypedDict, total=False):
    """The columns of a model."""

    features: ColumnNames | None
    ignore: ColumnNames | None
    weight: str | None
    input_sd: bool | None
    categorical: ColumnNames | None
    numeric: ColumnNames | None
    hash: ColumnNames | None
    task: str | None
    time: str | None
    time_unit: str | None
    lags: str | int | Sequence[int] | None
    known_ahead: ColumnNames | None
    holidays: str | None
    id: str | None
    max_pending: int | str | None
    wait: int | str | None  # former name
    decimal: str | None
    thousands: str | None


class NetworkKeywords(TypedDict, total=False):
    """The network of a model."""

    preset: str | None
    layers: int | Sequence[int] | str | None
    activation: str | Sequence[str] | None
    encoding: str | None
    covariance: str | None
    group_size: int | str | None
    noise: float | str | None
    hidden_noise: float | str | None
    prior_variance: float | str | None
    link: str | None
    sigmoid_variance: str | None
    standardize: bool | str | None
    units: bool | str | None  # former name
    clip: bool | str | None
    inflate: bool | str | None
    widen: bool | str | None  # former name
    class_weight: str | Mapping[Any, float] | None
    robust: bool | str | None
    drift: bool | str | None
    ensemble: int | str | None
    replay: int | bool | str | None
    rehearse: int | bool | str | None  # former name
    seed: int | str | None


class ModelKeywords(ColumnKeywords, NetworkKeywords, total=False):
    """Options of `Model`."""


class TrainKeywords(LearnKeywords, ModelKeywords, total=False):
    """Options of `kbnn.train`."""

    engine: str | None
    cluster: str | None
    fresh: bool | None
    resume: bool | None
    relearn: bool | None
    again: bool | None  # former name
    checkpoint_every: float | str | None
    key: ColumnNames | None
    pooling: bool | None
    common: bool | None  # former name
    max_open_models: int | str | None
    open: int | str | None  # former name
    alerts: str | None
    alert_rate: float | str | None
    watch: ColumnNames | None
    alert_exec: str | None


class StepKeywords(ModelKeywords, ReadKeywords, total=False):
    """Options of `kbnn.step`."""


class PredictKeywords(ReadKeywords, total=False):
    """Options of `Model.predict`."""

    interval: float | str | None
    quantiles: str | Sequence[float] | None
    decompose: bool | None
    surprise: bool | None
