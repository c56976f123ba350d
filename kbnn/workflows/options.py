"""Options of a training run, and checks of options against models, columns and files.

The command line and Python use the same names (`TrainKeywords`). `build_train_options` turns both
into `TrainOptions`, so that names, defaults and errors are the same.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict, Unpack

from kbnn.core.layout import layout_of
from kbnn.data.decoder import parse_hash_options
from kbnn.data.inputs import list_source_paths
from kbnn.data.lags import parse_lags
from kbnn.data.number_format import NumberMarks, format_mark
from kbnn.data.read_options import ReadOptions
from kbnn.data.schema import Column, Schema
from kbnn.data.sources import expand_paths
from kbnn.data.time_series import LAGS_OFF
from kbnn.errors import KbnnError, UsageError
from kbnn.fleet.fleet import FLEET_DEFAULTS
from kbnn.fleet.store import MODELS_FILE, is_fleet
from kbnn.model import file as modelfile
from kbnn.model.settings import (
    FORMER_FLAGS,
    OPTIONS,
    SettingOverrides,
    Settings,
    get_keyword,
    make_contradiction_error,
)
from kbnn.output.writers import check_interval_level, check_name, check_quantile_level
from kbnn.targets.registry import TARGET_TYPES, make_target_type, requested_numeric_type

MODEL_OPTION: Final = "--model"
"""The option of the trained model: the only output that may replace a model."""


def check_network_size(settings: Settings, schema: Schema) -> None:
    """Raise UsageError for a network that is too large, before the first row."""
    task = make_target_type(schema, settings)
    try:
        for candidate in settings.list_candidates(inputs=schema.width):
            layout_of(candidate.make_config(task, schema.width, task.max_outputs, 1.0))
    except ValueError as error:
        raise UsageError(
            f"{error} (fewer --layers or --features, or --covariance neuron)"
        ) from error


ON_ERROR_CHOICES: Final = ("stop", "skip")


def check_choice(option: str, value: str, allowed: Sequence[str]) -> str:
    """Return a value that is one of those allowed, or raise UsageError."""
    if value not in allowed:
        *most, last = allowed
        raise UsageError(f"{option} is {', '.join(most)} or {last}, not '{value}'")
    return value


def check_columns(path: str, stated: ReadOptions, schema: Schema) -> None:
    """Raise UsageError for options about columns that contradict a model's schema."""
    for option, there, wanted in _list_column_options(stated, schema):
        if set(there) != set(wanted):
            raise make_contradiction_error(path, option, _join_names(there), _join_names(wanted))
    if stated.task not in ("auto", schema.task):
        raise make_contradiction_error(path, "--task", schema.task, stated.task)
    for name in (*stated.categorical, *stated.numeric, *dict(stated.hashed)):
        if name not in {column.name for column in schema.columns}:
            raise UsageError(f"{path} has no column '{name}' (--fresh starts a new model)")
    for name in stated.categorical:
        column = schema.get_column(name)
        if column.kind != "category" or column.buckets:
            raise make_contradiction_error(
                path, "--categorical", f"{name} as a {_describe_kind(column)}", name
            )
    for name in stated.numeric:
        if schema.get_column(name).kind != "number":
            kind = _describe_kind(schema.get_column(name))
            raise make_contradiction_error(path, "--numeric", f"{name} as a {kind}", name)
    for name, buckets in stated.hashed:
        if schema.get_column(name).buckets != buckets:
            there = f"{name} as a {_describe_kind(schema.get_column(name))}"
            raise make_contradiction_error(path, "--hash", there, f"{name}:{buckets}")
    marks = NumberMarks(stated.decimal, stated.thousands)
    if marks.decimal and marks.decimal != (schema.decimal or "."):
        raise make_contradiction_error(path, "--decimal", schema.decimal or ".", marks.decimal)
    if marks.thousands and marks.thousands != schema.thousands:
        there = format_mark(schema.thousands) or "none"
        raise make_contradiction_error(path, "--thousands", there, format_mark(marks.thousands))
    used = [c.name for c in schema.columns if c.name in stated.ignore and c.role != "none"]
    if used:
        raise UsageError(
            f"--ignore {used[0]}: {path} learns from that column (--fresh starts a new model)"
        )
    unknown = [token for token in stated.na if token not in schema.missing]
    if unknown:
        raise make_contradiction_error(
            path, "--na", _join_names(schema.missing), _join_names(unknown)
        )


def check_outputs(
    sources: Iterable[str],
    outputs: Mapping[str, str | None],
    *,
    models: Iterable[str] = (),
    new_models: Mapping[str, str | None] | None = None,
    force: bool = False,
) -> None:
    """Raise UsageError for output files that would destroy something, for every command.

    No output may replace a source, a model that is read, another output or, unless it is the
    model that is trained, any kbnn model, nor lie inside a fleet. A new model replaces no file at
    all unless `force` is set.

    Parameters
    ----------
    sources : the data that are read
    outputs : the files that are written, by option
    models : the model files or fleets that are read
    new_models : model files that are written whole, by option
    force : whether a new model may replace a file

    Raises
    ------
    UsageError
        With the option, the file and why it may not be written.
    """
    taken = {}
    for source in sources:
        with suppress(KbnnError):  # reading the source reports what is wrong with it
            for name in expand_paths([source]):
                taken[os.path.realpath(name)] = f"the source {name}"
    for model in models:
        taken[os.path.realpath(model)] = f"the model {model}"
    new_models = new_models or {}
    for option, path in {**outputs, **new_models}.items():
        if path is None or path == "-":
            continue
        real = os.path.realpath(path)
        if real in taken:
            raise UsageError(f"{option} {path}: would write over {taken[real]}")
        _check_folders(f"{option} {path}", real, taken)
        if option in new_models and not force and os.path.isfile(real):
            raise UsageError(f"{option} {path}: is there already (--force replaces it)")
        if option not in (MODEL_OPTION, *new_models) and modelfile.is_model_file(real):
            raise UsageError(
                f"{option} {path}: would write over a kbnn model. "
                "Choose another name, or remove the file first."
            )
        taken[real] = f"{option} {path}"


def _check_folders(named: str, real: str, taken: Mapping[str, str]) -> None:
    """Raise UsageError for an output inside a fleet, whose folder holds only its own files."""
    folder = os.path.dirname(real)
    while True:
        if folder in taken and not os.path.isfile(folder):
            raise UsageError(f"{named}: is inside {taken[folder]}. Choose another folder.")
        if is_fleet(folder) and os.path.exists(os.path.join(folder, MODELS_FILE)):
            raise UsageError(f"{named}: is inside the fleet {folder}. Choose another folder.")
        above = os.path.dirname(folder)
        if above == folder:
            return
        folder = above


def _list_column_options(
    stated: ReadOptions, schema: Schema
) -> Iterator[tuple[str, Iterable[str], Iterable[str]]]:
    if stated.target:
        yield "--target", schema.targets, stated.target
    if stated.features:
        yield "--features", schema.features, stated.features
    if stated.weight is not None:
        yield "--weight", schema.get_names("weight"), (stated.weight,)
    if stated.time is not None:
        yield "--time", () if schema.clock is None else (schema.clock.column,), (stated.time,)
    if stated.id is not None:
        yield "--id", schema.get_names("id"), (stated.id,)
    if stated.wait is not None:
        yield "--max-pending", (str(schema.wait),), (str(stated.wait),)
    if stated.lags is not None:
        yield "--lags", [lag.name for lag in schema.lags], _lag_names(stated.lags, schema)
    if stated.input_sd and not schema.get_names("input_sd"):
        yield "--input-sd", (), ("yes",)


def _describe_kind(column: Column) -> str:
    return f"hash of {column.buckets}" if column.buckets else column.kind


def _lag_names(stated: str, schema: Schema) -> list[str]:
    lags = () if stated == LAGS_OFF else parse_lags(stated)
    return [
        f"{name} lag {lag.text}"
        for lag in lags
        for name in (schema.targets if lag.column is None else [lag.column])
    ]


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


DEFAULT_MODEL: Final = "model.npz"
DEFAULT_FLEET: Final = "fleet"
CHECKPOINT_SECONDS: Final = 30.0
LOCAL_ENGINE: Final = "local"
FORMER_LOCAL_ENGINE: Final = "here"
ENGINES: Final = (LOCAL_ENGINE, "dask")
DEFAULT_CLUSTER: Final = "local:2"


@dataclass(frozen=True)
class TrainOptions:
    """The options of a run, with their defaults."""

    sources: Any  # see kbnn.data.inputs
    model: str | None = DEFAULT_MODEL  # None: in memory only
    read: ReadOptions = field(default_factory=ReadOptions)
    choices: SettingOverrides = field(default_factory=SettingOverrides)
    fresh: bool = False  # start a new model even if the file holds one
    resume: bool = False  # continue an interrupted run on the same sources, or refuse
    again: bool = False  # learn all rows from the first, even after an interrupted run
    predictions: str | None = None
    interval: float = 0.9  # probability between lower and upper
    quantiles: Sequence[float] = ()  # of the predictions
    bad_rows: str | None = None
    checkpoint_every: float = CHECKPOINT_SECONDS  # seconds
    key: tuple[str, ...] = ()  # columns whose values choose the model of a fleet
    common: bool = True  # whether models of new keys start from a model of all rows
    open: int | None = None  # models of a fleet in memory at a time
    engine: str = LOCAL_ENGINE  # this process, or the workers of a Dask cluster
    cluster: str = DEFAULT_CLUSTER

    @property
    def settings(self) -> Settings:
        """Settings of a new model or fleet."""
        return self.choices.make_settings(FLEET_DEFAULTS if self.key else None)

    def check(self) -> None:
        """Raise UsageError for invalid options, before anything is opened."""
        for flag, stated in (("--fresh", self.fresh), ("--relearn", self.again)):
            if stated and self.resume:
                raise UsageError(f"{flag} and --resume contradict each other")
        self.read.check()
        self._check_key()
        check_choice("--engine", self.engine, ENGINES)
        if self.engine != LOCAL_ENGINE and (self.model is None or not self.key):
            raise UsageError(
                f"--engine {self.engine} needs a fleet in a folder: add --key and --model"
            )
        _ = self.settings
        check_interval_level(self.interval)
        for share in self.quantiles:
            check_quantile_level(share)
        if self.model == "-":
            raise UsageError("--model cannot be -: a model is saved to a file")
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
        """Raise UsageError for invalid options of a fleet."""
        if self.open is not None and self.open < 1:
            raise UsageError(f"--max-open-models must be at least 1, not {self.open}")
        used = {"the target": self.read.target, "a feature": self.read.features}
        for name in self.key:
            for what, names in used.items():
                if name in names:
                    raise UsageError(f"column '{name}' cannot be both {what} and the key")
        if self.key and self.read.id is not None:
            raise UsageError("--key and --id cannot be combined: a fleet has no pending labels")


ColumnNames = str | int | Sequence[str | int]
"""One or several names of columns; in pandas they may be numbers."""


class ReadKeywords(TypedDict, total=False):
    """Options of everything that reads data."""

    columns: Sequence[str] | None  # names for the columns of a numpy array
    limit: int | None
    on_error: str  # stop or skip
    bad_rows: str | None
    na: ColumnNames
    format: str
    delimiter: str | None
    header: bool | None


class LearnKeywords(ReadKeywords, total=False):
    """Options of learning."""

    epochs: int
    shuffle: bool
    test_split: float
    predictions: str | None
    interval: float
    intervals: str
    quantiles: Sequence[float]


class ModelKeywords(TypedDict, total=False):
    """Options of a model: its columns and its network."""

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
    known_ahead: ColumnNames | None
    id: str | None
    max_pending: int | None
    wait: int | None  # former name of max_pending
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
    standardize: bool | str
    units: bool | str  # former name of standardize
    clip: bool | str
    inflate: bool | str
    widen: bool | str  # former name of inflate
    robust: bool | str
    drift: bool | str
    ensemble: int
    replay: str | int | bool
    rehearse: str | int | bool  # former name of replay
    seed: int


class TrainKeywords(LearnKeywords, ModelKeywords, total=False):
    """Options of a training run."""

    fresh: bool
    resume: bool
    relearn: bool
    again: bool  # former name of relearn
    checkpoint_every: float
    key: ColumnNames | None
    pooling: bool
    common: bool  # former name of pooling
    max_open_models: int | None
    open: int | None  # former name of max_open_models
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
    "max_pending",
)
_RUN_KEYWORDS: Final = (
    "fresh",
    "resume",
    "relearn",
    "predictions",
    "interval",
    "quantiles",
    "bad_rows",
    "checkpoint_every",
    "pooling",
    "max_open_models",
    "cluster",
)
_KEYWORD_FIELDS: Final = {
    "max_pending": "wait",
    "relearn": "again",
    "pooling": "common",
    "max_open_models": "open",
}
"""Keywords whose fields in `ReadOptions` and `TrainOptions` have other names."""
_SETTING_OPTIONS: Final = {get_keyword(option.flag): option for option in OPTIONS}


def build_train_options(
    sources: Any,
    target: ColumnNames | None = None,
    model: str | None = None,
    **words: Unpack[TrainKeywords],
) -> TrainOptions:
    """Return the options of a run from keywords; the others have their defaults."""
    _check_keywords(words)
    said = _rename_former_keywords(words)
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
        known_ahead=None if said.get("known_ahead") is None else list_names(said["known_ahead"]),
        **_select_fields(said, _READ_KEYWORDS),
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
        engine=rename_former_engine(said.get("engine", LOCAL_ENGINE)),
        **_select_fields(said, _RUN_KEYWORDS),
    )


def rename_former_engine(engine: str) -> str:
    """Return the present name of an engine, which is checked elsewhere."""
    return LOCAL_ENGINE if engine == FORMER_LOCAL_ENGINE else engine


def _select_fields(said: Mapping[str, Any], keywords: Iterable[str]) -> dict[str, Any]:
    return {_KEYWORD_FIELDS.get(name, name): said[name] for name in keywords if name in said}


def _rename_former_keywords(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options by their present names; UsageError if one is given by both names."""
    said = dict(words)
    for former, present in FORMER_FLAGS.items():
        old, new = get_keyword(former), get_keyword(present)
        if old in said:
            if new in said:
                raise UsageError(f"{old} is the former name of {new}: give only {new}")
            said[new] = said.pop(old)
    return said


def _check_keywords(said: Mapping[str, Any]) -> None:
    """Raise UsageError for an unknown keyword, with the nearest known one."""
    known = [*TrainKeywords.__annotations__, *_SETTING_OPTIONS, "target", "model"]
    for word in said:
        if word not in known:
            close = difflib.get_close_matches(word, known, 1, 0.5)
            hint = f": did you mean {close[0]}?" if close else ""
            raise UsageError(f"no such option: {word}{hint}")


def list_names(names: ColumnNames | None) -> tuple[str, ...]:
    """Return one or several names as texts."""
    if names is None:
        return ()
    return (str(names),) if isinstance(names, str | int) else tuple(map(str, names))


def parse_delimiter(value: str | None) -> str | None:
    r"""Return a delimiter as typed; `\t` and `tab` are the tab."""
    return "\t" if value in ("\\t", "tab") else value


def _format_value(value: Any) -> str:
    """Format a setting's value as on the command line."""
    if isinstance(value, bool):
        return "auto" if value else "off"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "none"
    return str(value)
