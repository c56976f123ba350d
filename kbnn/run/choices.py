"""What a user said about a model, and whether it agrees with the model that is already there.

A choice that was not stated is None: a new model takes its default, an old one its own value.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields

import numpy as np

from kbnn.core.layout import layout_of
from kbnn.errors import UsageError
from kbnn.model.schema import Schema
from kbnn.model.settings import Settings
from kbnn.stream.readoptions import ReadOptions
from kbnn.task.table import task_of


@dataclass(frozen=True)
class Choices:
    """The stated ones among a model's settings."""

    hidden: tuple[int, ...] | None = None
    activation: str | None = None
    covariance: str | None = None
    group_size: int | None = None
    noise: str | float | None = None
    robust: bool | None = None
    drift: bool | None = None
    ensemble: int | None = None
    seed: int | None = None

    def settings(self) -> Settings:
        """The settings of a new model."""
        if self.group_size is not None and self.group_size < 1:
            raise UsageError(f"--group-size must be at least 1, not {self.group_size}")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise UsageError(f"--seed must lie between 0 and 2^63 - 1, not {self.seed}")
        if self.ensemble is not None and not 1 <= self.ensemble <= 64:
            raise UsageError(f"--ensemble must lie between 1 and 64, not {self.ensemble}")
        stated = {field.name: getattr(self, field.name) for field in fields(self)}
        try:
            return Settings(**{name: value for name, value in stated.items() if value is not None})
        except ValueError as error:
            option = "--activation" if "activation" in str(error) else "--layers"
            raise UsageError(f"{option}: {error}") from error

    def check_against(self, path: str, settings: Settings) -> None:
        """Refuse a choice that contradicts a model, naming both."""
        for field in fields(self):
            wanted, there = getattr(self, field.name), getattr(settings, field.name)
            if wanted is not None and wanted != there:
                _contradiction(path, _OPTIONS[field.name], _shown(there), _shown(wanted))


_OPTIONS = {
    "hidden": "--layers",
    "activation": "--activation",
    "covariance": "--covariance",
    "group_size": "--group-size",
    "noise": "--noise",
    "robust": "--robust",
    "drift": "--drift",
    "ensemble": "--ensemble",
    "seed": "--seed",
}


def check_size(settings: Settings, schema: Schema) -> None:
    """Refuse a network too large for any machine, before the first row."""
    task = task_of(schema)
    outputs = max(task.outputs(np.zeros((0, 1))), len(schema.classes))
    try:
        layout_of(settings.config(task, schema.width, outputs, 1.0))
    except ValueError as error:
        raise UsageError(
            f"{error} (fewer --layers or --features, or --covariance neuron)"
        ) from error


def check_columns(path: str, stated: ReadOptions, schema: Schema) -> None:
    """Refuse statements about columns that contradict a model's schema."""
    for option, there, wanted in _columns(stated, schema):
        if set(there) != set(wanted):
            _contradiction(path, option, _names(there), _names(wanted))
    if stated.task not in ("auto", schema.task):
        _contradiction(path, "--task", schema.task, stated.task)
    used = [c.name for c in schema.columns if c.name in stated.ignore and c.role != "none"]
    if used:
        raise UsageError(
            f"--ignore {used[0]}: {path} learns from that column (--fresh starts a new model)"
        )
    unknown = [token for token in stated.na if token not in schema.missing]
    if unknown:
        _contradiction(path, "--na", _names(schema.missing), _names(unknown))


def check_outputs(
    sources: Iterable[str], outputs: Mapping[str, str | None], *, model: str | None = None
) -> None:
    """Refuse to write over what is being read, a `model` too, or two things to one file."""
    taken = {}
    for source in sources:
        pattern = os.path.join(source, "*") if os.path.isdir(source) else source
        for name in [source] if os.path.isfile(source) else glob.glob(pattern, recursive=True):
            taken[os.path.realpath(name)] = f"the source {name}"
    if model is not None:
        taken[os.path.realpath(model)] = f"the model {model}"
    for option, path in outputs.items():
        if path is None or path == "-":
            continue
        real = os.path.realpath(path)
        if real in taken:
            raise UsageError(f"{option} {path}: would write over {taken[real]}")
        taken[real] = f"{option} {path}"


def _columns(
    stated: ReadOptions, schema: Schema
) -> Iterator[tuple[str, Iterable[str], Iterable[str]]]:
    if stated.target:
        yield "--target", schema.targets, stated.target
    if stated.features:
        yield "--features", schema.features, stated.features
    if stated.weight is not None:
        yield "--weight", schema.names("weight"), (stated.weight,)
    if stated.input_sd and not schema.names("input_sd"):
        yield "--input-sd", (), ("yes",)


def _contradiction(path: str, option: str, there: str, wanted: str) -> None:
    raise UsageError(
        f"{option} {wanted} contradicts {path}, which has {there} "
        f"(leave out {option}, or start over with --fresh)"
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "auto" if value else "off"
    return "auto" if value is None else str(value)
