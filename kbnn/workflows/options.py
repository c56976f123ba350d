"""Options of a training run, and checks of options against models, columns and files.

The command line and Python give the options that `kbnn.option_table` declares. Both become
`TrainOptions`, so that names, defaults and errors are the same.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from kbnn.core.layout import layout_of
from kbnn.data.inputs import list_source_paths
from kbnn.data.lags import parse_lags
from kbnn.data.number_format import NumberMarks, format_mark
from kbnn.data.read_options import ReadOptions
from kbnn.data.schema import Column, Schema
from kbnn.data.sources import expand_paths
from kbnn.data.time_series import LAGS_OFF, NONE_KNOWN
from kbnn.errors import KbnnError, UsageError
from kbnn.fleet.fleet import FLEET_DEFAULTS
from kbnn.fleet.store import MODELS_FILE, is_fleet
from kbnn.model import file as modelfile
from kbnn.model.settings import PRESETS, AlertRate, IncompatibleOptionsError, Settings
from kbnn.option_table import (
    LOCAL_ENGINE,
    ColumnNames,
    list_keywords,
    parse_keywords,
)
from kbnn.output.writers import check_name
from kbnn.targets.base import max_outputs
from kbnn.targets.registry import make_target_type, requested_numeric_type
from kbnn.workflows.alerts import FLEET_WATCH, check_alert_name, split_command

MODEL_OPTION: Final = "--model"
"""The option of the trained model: the only output that may replace a model."""


def check_network_size(settings: Settings, schema: Schema) -> None:
    """Raise UsageError for a network that is too large, before the first row."""
    task = make_target_type(schema, settings)
    try:
        for member in settings.list_members(schema.width, max_outputs(task)):
            layout_of(settings.make_config(member, task, schema.width, max_outputs(task), 1.0))
    except ValueError as error:
        raise UsageError(
            f"{error} (fewer --layers or --features, or --covariance neuron)"
        ) from error


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
        yield (
            "--lags",
            [lag.name for lag in schema.lags if not lag.optional],
            _lag_names(stated.lags, schema),
        )
    if stated.known_ahead:
        none_known = stated.known_ahead == (NONE_KNOWN,)
        yield "--known-ahead", schema.known_ahead, () if none_known else stated.known_ahead
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


class SettingOverrides:
    """The settings that the user gave; a new model uses defaults for the others."""

    def __init__(self, **stated: Any) -> None:
        unknown = stated.keys() - {field.name for field in dataclasses.fields(Settings)}
        if unknown:
            raise UsageError(f"a model has no setting '{min(unknown)}'")
        self.stated = stated

    def make_settings(self, defaults: Mapping[str, Any] | None = None) -> Settings:
        """Return the settings of a new model; `defaults` replace the usual ones."""
        bundle = PRESETS[self.stated.get("preset", "none")]
        try:
            return Settings(**{**(defaults or {}), **bundle, **self.stated})
        except IncompatibleOptionsError as error:
            raise UsageError(str(error)) from error
        except ValueError as error:
            raise UsageError(f"--layers: {error}") from error

    @property
    def has_portfolio(self) -> bool:
        """Whether a new model is an ensemble of different networks."""
        try:
            return self.make_settings().has_portfolio
        except UsageError:  # reported where the settings are used
            return False

    def check_against(self, path: str, settings: Settings) -> None:
        """Raise UsageError for a setting that contradicts a model, naming both values."""
        for option in list_keywords().values():
            if option.home == "settings" and option.stored_name in self.stated:
                there = getattr(settings, option.stored_name)
                wanted = self.stated[option.stored_name]
                if wanted != there:
                    shown = map(option.format_value, (there, wanted))
                    raise make_contradiction_error(path, option.flag, *shown)


def make_contradiction_error(path: str, flag: str, there: str, wanted: str) -> UsageError:
    """Make the error for an option that contradicts a model."""
    return UsageError(
        f"{flag} {wanted} contradicts {path}, which has {there} "
        f"(leave out {flag}, or start over with --fresh)"
    )


DEFAULT_MODEL: Final = "model.npz"
DEFAULT_FLEET: Final = "fleet"


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
    surprise: bool = False  # whether predictions have columns of surprise
    digits: int | None = None  # significant digits of predictions; None: eight digits of sd
    alerts: str | None = None
    alert_rate: AlertRate | None = None  # None: as the model has it, or the default
    alert_exec: str | None = None  # command that is run for each alert
    watch: tuple[str, ...] = ()  # columns; none: as the model has it, or the targets
    bad_rows: str | None = None
    checkpoint_every: float = 30.0  # seconds
    key: tuple[str, ...] = ()  # columns whose values choose the model of a fleet
    common: bool = True  # whether models of new keys start from a model of all rows
    open: int | None = None  # models of a fleet in memory at a time
    engine: str = LOCAL_ENGINE  # this process, or the workers of a Dask cluster
    cluster: str = "local:2"

    @property
    def wants_alerts(self) -> bool:
        """Whether the stream is monitored for alerts."""
        return self.alerts is not None or self.alert_exec is not None

    @property
    def settings(self) -> Settings:
        """Settings of a new model or fleet."""
        return self.choices.make_settings(FLEET_DEFAULTS if self.key else None)

    def check(self, also_written: Mapping[str, str | None] | None = None) -> None:
        """Raise UsageError for invalid options, before anything is opened.

        `also_written` are further files that the caller writes, by option.
        """
        for flag, stated in (("--fresh", self.fresh), ("--relearn", self.again)):
            if stated and self.resume:
                raise UsageError(f"{flag} and --resume contradict each other")
        self.read.check()
        self._check_key()
        if self.engine != LOCAL_ENGINE and (self.model is None or not self.key):
            raise UsageError(
                f"--engine {self.engine} needs a fleet in a folder: add --key and --model"
            )
        _ = self.settings
        if self.model == "-":
            raise UsageError("--model cannot be -: a model is saved to a file")
        if not self.checkpoint_every > 0.0:
            raise UsageError(f"--checkpoint-every must be positive, not {self.checkpoint_every:g}")
        check_outputs(
            [] if _is_empty(self.sources) else list_source_paths(self.sources),
            {
                "--model": self.model,
                "--predictions": self.predictions,
                "--alerts": self.alerts,
                "--bad-rows": self.bad_rows,
                **(also_written or {}),
            },
        )
        if self.predictions is not None:
            check_name(self.predictions)
        elif self.surprise:
            raise UsageError("--surprise adds columns to the predictions: add --predictions FILE")
        elif self.digits is not None:
            raise UsageError("--digits rounds the predictions: add --predictions FILE")
        self._check_alerts()

    def _check_alerts(self) -> None:
        """Raise UsageError for invalid options of alerts."""
        if not self.wants_alerts:
            if self.alert_rate is not None:
                raise UsageError("--alert-rate sets the rate of alerts: add --alerts FILE")
            if self.watch:
                raise UsageError("--watch chooses columns for alerts: add --alerts FILE")
            return
        if self.key and self.watch not in ((), ("target",)):
            raise UsageError(FLEET_WATCH)
        if self.alerts is not None:
            check_alert_name(self.alerts)
        if self.alert_exec is not None:
            split_command(self.alert_exec)
        if self.alerts == self.predictions == "-":
            raise UsageError("--alerts - and --predictions - cannot both go to standard output")
        if self.read.shuffle:
            raise UsageError("--alerts needs the rows in their order: leave out --shuffle")

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


def _is_empty(sources: Any) -> bool:
    """Return whether no sources are named yet, as for a model that is fed row by row."""
    return isinstance(sources, tuple) and not sources


def build_train_options(
    sources: Any, target: ColumnNames | None = None, model: str | None = None, **words: Any
) -> TrainOptions:
    """Return the options of a run from the keywords of a Python call.

    Parameters
    ----------
    sources
        The data, see `kbnn.data.inputs`.
    target
        Column or columns to predict.
    model
        Path of the model file; None keeps the model in memory.
    **words
        Options of `kbnn train`; the others have their defaults.

    Raises
    ------
    UsageError
        If an option is unknown or does not take its value.
    """
    values = parse_keywords("train", {"target": target, **words}, list_keywords())
    options = store_train_options(sources, model, values)
    options.check()
    return options


def store_train_options(sources: Any, model: str | None, values: Mapping[str, Any]) -> TrainOptions:
    """Return the options of a run from parsed values, by the names of their options."""
    fields: dict[str, dict[str, Any]] = {"settings": {}, "read": {}, "run": {}}
    for name, option in list_keywords().items():
        if values.get(name) is not None:
            fields[option.home][option.stored_name] = values[name]
    kind = requested_numeric_type(values["task"])
    choices = SettingOverrides(**fields["settings"], **({} if kind is None else {"kind": kind}))
    read = ReadOptions(**fields["read"])
    if not fields["run"].get("key"):
        read = dataclasses.replace(read, tries_lags=choices.has_portfolio)
    return TrainOptions(sources, model, read, choices, **fields["run"])
