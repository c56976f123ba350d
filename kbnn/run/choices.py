"""Whether what was said fits what is there: a model, its columns, the files that are read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from kbnn.core.layout import layout_of
from kbnn.errors import KbnnError, UsageError
from kbnn.fleet.store import MODELS, is_fleet
from kbnn.model import file as modelfile
from kbnn.model.lags import parse
from kbnn.model.schema import Column, Schema
from kbnn.model.settings import Settings, contradiction
from kbnn.stream.forms import Stated, shown_mark
from kbnn.stream.readoptions import ReadOptions
from kbnn.stream.series import OFF
from kbnn.stream.sources import expand
from kbnn.task.table import task_of

TRAINED: Final = "--model"
"""The option of the model that is trained: the only output that may replace a model."""


def check_size(settings: Settings, schema: Schema) -> None:
    """Refuse a network too large for any machine, before the first row."""
    task = task_of(schema, settings)
    try:
        for candidate in settings.candidates(inputs=schema.width):
            layout_of(candidate.config(task, schema.width, task.foreseen, 1.0))
    except ValueError as error:
        raise UsageError(
            f"{error} (fewer --layers or --features, or --covariance neuron)"
        ) from error


def check_one_of(option: str, value: str, allowed: Sequence[str]) -> str:
    """A word from a list, or UsageError."""
    if value not in allowed:
        *most, last = allowed
        raise UsageError(f"{option} is {', '.join(most)} or {last}, not '{value}'")
    return value


def check_columns(path: str, stated: ReadOptions, schema: Schema) -> None:
    """Refuse statements about columns that contradict a model's schema."""
    for option, there, wanted in _columns(stated, schema):
        if set(there) != set(wanted):
            raise contradiction(path, option, _names(there), _names(wanted))
    if stated.task not in ("auto", schema.task):
        raise contradiction(path, "--task", schema.task, stated.task)
    for name in (*stated.categorical, *stated.numeric, *dict(stated.hashed)):
        if name not in {column.name for column in schema.columns}:
            raise UsageError(f"{path} knows no column '{name}' (--fresh starts a new model)")
    for name in stated.categorical:
        column = schema.column(name)
        if column.kind != "category" or column.buckets:
            raise contradiction(path, "--categorical", f"{name} as a {_kind(column)}", name)
    for name in stated.numeric:
        if schema.column(name).kind != "number":
            kind = _kind(schema.column(name))
            raise contradiction(path, "--numeric", f"{name} as a {kind}", name)
    for name, buckets in stated.hashed:
        if schema.column(name).buckets != buckets:
            there = f"{name} as a {_kind(schema.column(name))}"
            raise contradiction(path, "--hash", there, f"{name}:{buckets}")
    marks = Stated(stated.decimal, stated.thousands)
    if marks.decimal and marks.decimal != (schema.decimal or "."):
        raise contradiction(path, "--decimal", schema.decimal or ".", marks.decimal)
    if marks.thousands and marks.thousands != schema.thousands:
        there = shown_mark(schema.thousands) or "none"
        raise contradiction(path, "--thousands", there, shown_mark(marks.thousands))
    used = [c.name for c in schema.columns if c.name in stated.ignore and c.role != "none"]
    if used:
        raise UsageError(
            f"--ignore {used[0]}: {path} learns from that column (--fresh starts a new model)"
        )
    unknown = [token for token in stated.na if token not in schema.missing]
    if unknown:
        raise contradiction(path, "--na", _names(schema.missing), _names(unknown))


def check_outputs(
    sources: Iterable[str],
    outputs: Mapping[str, str | None],
    *,
    models: Iterable[str] = (),
    new_models: Mapping[str, str | None] | None = None,
    force: bool = False,
) -> None:
    """Refuse output files that would destroy something; the one rule of every command.

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
            for name in expand([source]):
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
        if option not in (TRAINED, *new_models) and modelfile.is_model_file(real):
            raise UsageError(
                f"{option} {path}: would write over a kbnn model. "
                "Choose another name, or remove the file first."
            )
        taken[real] = f"{option} {path}"


def _check_folders(named: str, real: str, taken: Mapping[str, str]) -> None:
    """Refuse an output inside a fleet, whose folder holds nothing but the fleet's own files."""
    folder = os.path.dirname(real)
    while True:
        if folder in taken and not os.path.isfile(folder):
            raise UsageError(f"{named}: is inside {taken[folder]}. Choose another folder.")
        if is_fleet(folder) and os.path.exists(os.path.join(folder, MODELS)):
            raise UsageError(f"{named}: is inside the fleet {folder}. Choose another folder.")
        above = os.path.dirname(folder)
        if above == folder:
            return
        folder = above


def _columns(
    stated: ReadOptions, schema: Schema
) -> Iterator[tuple[str, Iterable[str], Iterable[str]]]:
    if stated.target:
        yield "--target", schema.targets, stated.target
    if stated.features:
        yield "--features", schema.features, stated.features
    if stated.weight is not None:
        yield "--weight", schema.names("weight"), (stated.weight,)
    if stated.time is not None:
        yield "--time", () if schema.clock is None else (schema.clock.column,), (stated.time,)
    if stated.id is not None:
        yield "--id", schema.names("id"), (stated.id,)
    if stated.wait is not None:
        yield "--wait", (str(schema.wait),), (str(stated.wait),)
    if stated.lags is not None:
        yield "--lags", [lag.name for lag in schema.lags], _lag_names(stated.lags, schema)
    if stated.input_sd and not schema.names("input_sd"):
        yield "--input-sd", (), ("yes",)


def _kind(column: Column) -> str:
    return f"hash of {column.buckets}" if column.buckets else column.kind


def _lag_names(stated: str, schema: Schema) -> list[str]:
    said = () if stated == OFF else parse(stated)
    return [
        f"{name} lag {lag.text}"
        for lag in said
        for name in (schema.targets if lag.column is None else [lag.column])
    ]


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
