"""What to learn from, into which model, and how: the options of a training run.

The command line and Python say them by the same names (`Words`), and both become `TrainOptions`
here: one set of options, defaults and errors.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict, Unpack

from kbnn.errors import UsageError
from kbnn.fleet.fleet import FLEET_DEFAULTS
from kbnn.model.settings import OPTIONS, SettingOverrides, Settings
from kbnn.output.fields import check_interval_level, check_quantile_level
from kbnn.output.writers import check_name
from kbnn.run.choices import ON_ERROR_CHOICES, check_choice, check_outputs
from kbnn.stream.hashing import parse_hash_options
from kbnn.stream.inputs import list_source_paths
from kbnn.stream.readoptions import ReadOptions
from kbnn.task.table import TARGET_TYPES, requested_numeric_type

DEFAULT_MODEL: Final = "model.npz"
DEFAULT_FLEET: Final = "fleet"
CHECKPOINT_SECONDS: Final = 30.0
LOCAL_ENGINE: Final = "here"
ENGINES: Final = (LOCAL_ENGINE, "dask")
DEFAULT_CLUSTER: Final = "local:2"


@dataclass(frozen=True)
class TrainOptions:
    """The options of a run; every default is the usual case."""

    sources: Any  # see kbnn.stream.inputs
    model: str | None = DEFAULT_MODEL  # None: kept in memory
    read: ReadOptions = field(default_factory=ReadOptions)
    choices: SettingOverrides = field(default_factory=SettingOverrides)
    fresh: bool = False  # start over, whatever model is there
    resume: bool = False  # go on where a run on the same sources was cut short, or refuse
    again: bool = False  # learn sources from their first row, though a run was cut short
    predictions: str | None = None
    interval: float = 0.9  # that lower and upper of the predictions enclose
    quantiles: Sequence[float] = ()  # of the predictions
    bad_rows: str | None = None
    checkpoint_every: float = CHECKPOINT_SECONDS  # seconds
    key: tuple[str, ...] = ()  # columns by which rows find their model, of a fleet
    common: bool = True  # whether a new key begins from what all have in common
    open: int | None = None  # models of a fleet in memory at a time
    engine: str = LOCAL_ENGINE  # where a fleet learns: here, or in the workers of a cluster
    cluster: str = DEFAULT_CLUSTER

    @property
    def settings(self) -> Settings:
        """The settings of a new model, or of a new fleet."""
        return self.choices.make_settings(FLEET_DEFAULTS if self.key else None)

    def check(self) -> None:
        """Refuse what makes no sense, before anything is opened."""
        for other in ("fresh", "again"):
            if getattr(self, other) and self.resume:
                raise UsageError(f"--{other} and --resume contradict each other")
        self.read.check()
        self._check_key()
        check_choice("--engine", self.engine, ENGINES)
        if self.engine != LOCAL_ENGINE and (self.model is None or not self.key):
            raise UsageError(
                f"--engine {self.engine} is for a fleet that is kept: say --key and --model"
            )
        _ = self.settings
        check_interval_level(self.interval)
        for share in self.quantiles:
            check_quantile_level(share)
        if self.model == "-":
            raise UsageError("a model is kept in a file: --model cannot be -")
        if not self.checkpoint_every > 0.0:
            raise UsageError(f"--checkpoint-every must be positive, not {self.checkpoint_every:g}")
        check_outputs(
            list_source_paths(self.sources),
            {
                "--model": self.model,
                "--predictions": self.predictions,
                "--bad-rows": self.bad_rows,
            },
        )
        if self.predictions is not None:
            check_name(self.predictions)

    def _check_key(self) -> None:
        """Refuse what a fleet cannot be."""
        if self.open is not None and self.open < 1:
            raise UsageError(f"--open must be at least 1, not {self.open}")
        used = {"the target": self.read.target, "a feature": self.read.features}
        for name in self.key:
            for what, names in used.items():
                if name in names:
                    raise UsageError(f"column '{name}' cannot be both {what} and the key")
        if self.key and self.read.id is not None:
            raise UsageError("--key and --id cannot be combined: rows of a fleet do not wait")


ColumnNames = str | int | Sequence[str | int]
"""A column or several by name; those of pandas may be numbers."""


class ReadKeywords(TypedDict, total=False):
    """How data are read: options of every command that reads."""

    columns: Sequence[str] | None  # names for the columns of a numpy array
    limit: int | None
    on_error: str  # stop or skip
    bad_rows: str | None
    na: ColumnNames
    format: str
    delimiter: str | None
    header: bool | None


class LearnKeywords(ReadKeywords, total=False):
    """How rows are learned."""

    epochs: int
    shuffle: bool
    test_split: float
    predictions: str | None
    interval: float
    intervals: str
    quantiles: Sequence[float]


class ModelKeywords(TypedDict, total=False):
    """What a model is: its columns and its network."""

    features: ColumnNames | None
    ignore: ColumnNames | None
    weight: str | None
    input_sd: bool
    categorical: ColumnNames | None
    numeric: ColumnNames | None
    hash: str | Sequence[str] | None  # device:32
    decimal: str | None
    thousands: str | None
    task: str
    time: str | None
    time_unit: str
    lags: str | int | Sequence[int] | None
    id: str | None
    wait: int | None
    layers: int | Sequence[int] | str
    activation: str
    covariance: str
    group_size: int
    noise: str | float
    preset: str
    hidden_noise: float
    prior_variance: str | float
    link: str
    sigmoid_variance: str
    units: bool | str
    clip: bool | str
    widen: bool | str
    robust: bool | str
    drift: bool | str
    ensemble: int
    rehearse: str | int | bool
    seed: int


class TrainKeywords(LearnKeywords, ModelKeywords, total=False):
    """Everything that can be said about a run."""

    fresh: bool
    resume: bool
    again: bool
    checkpoint_every: float
    key: ColumnNames | None
    common: bool
    open: int | None
    engine: str
    cluster: str


_READ_KEYWORDS: Final = (
    "weight",
    "input_sd",
    "format",
    "header",
    "limit",
    "shuffle",
    "test_split",
    "epochs",
    "time",
    "time_unit",
    "id",
    "wait",
)
_RUN_KEYWORDS: Final = (
    "fresh",
    "resume",
    "again",
    "predictions",
    "interval",
    "quantiles",
    "bad_rows",
    "checkpoint_every",
    "common",
    "open",
    "engine",
    "cluster",
)
_SETTING_OPTIONS: Final = {
    option.flag.removeprefix("--").replace("-", "_"): option for option in OPTIONS
}


def build_train_options(
    sources: Any,
    target: ColumnNames | None = None,
    model: str | None = None,
    **words: Unpack[TrainKeywords],
) -> TrainOptions:
    """The options that words stand for; what is not said has its default."""
    said: dict[str, Any] = dict(words)
    _check_keywords(said)
    task = check_choice("--task", said.get("task", "auto"), ("auto", *TARGET_TYPES))
    on_error = check_choice("--on-error", said.get("on_error", "stop"), ON_ERROR_CHOICES)
    columns = said.get("columns")
    read = ReadOptions(
        target=list_names(target),
        features=list_names(said.get("features")),
        ignore=list_names(said.get("ignore")),
        categorical=list_names(said.get("categorical")),
        numeric=list_names(said.get("numeric")),
        hashed=parse_hash_options(list_names(said.get("hash"))),
        decimal=said.get("decimal") or "",
        thousands=said.get("thousands") or "",
        na=list_names(said.get("na")),
        delimiter=parse_delimiter(said.get("delimiter")),
        columns=None if columns is None else tuple(map(str, columns)),
        task=task,
        on_error=on_error,  # type: ignore[arg-type]  # checked above
        lags=None if said.get("lags") is None else _format_value(said["lags"]),
        **{name: said[name] for name in _READ_KEYWORDS if name in said},
    )
    texts = {
        option.name: None if said.get(word) is None else _format_value(said[word])
        for word, option in _SETTING_OPTIONS.items()
    }
    return TrainOptions(
        key=list_names(said.get("key")),
        sources=sources,
        model=model,
        read=read,
        choices=SettingOverrides.parse_texts(texts, kind=requested_numeric_type(task)),
        **{name: said[name] for name in _RUN_KEYWORDS if name in said},
    )


def _check_keywords(said: dict[str, Any]) -> None:
    """Refuse a word that is no option, with the nearest that is one."""
    known = [*TrainKeywords.__annotations__, *_SETTING_OPTIONS, "target", "model"]
    for word in said:
        if word not in known:
            close = difflib.get_close_matches(word, known, 1, 0.5)
            hint = f": did you mean {close[0]}?" if close else ""
            raise UsageError(f"no such option: {word}{hint}")


def list_names(names: ColumnNames | None) -> tuple[str, ...]:
    """One name or several, as texts."""
    if names is None:
        return ()
    return (str(names),) if isinstance(names, str | int) else tuple(map(str, names))


def parse_delimiter(value: str | None) -> str | None:
    r"""A delimiter as it may be typed: `\t` and `tab` are the tab."""
    return "\t" if value in ("\\t", "tab") else value


def _format_value(value: Any) -> str:
    """A setting's value as the command line would say it."""
    if isinstance(value, bool):
        return "auto" if value else "off"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "none"
    return str(value)
