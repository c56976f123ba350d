"""What is written down of results, and how results are held against it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray

FILE = Path(__file__).parent.parent / "fixtures" / "pinned.json"
CLOSE = 1e-9
MOST_EACH = 24
"""Columns that are told apart; numbers of wider arrays are one column."""

Found = Mapping[str, Any]


class Case(NamedTuple):
    """Results by name; `engines`: whether they go through an engine that may be another."""

    make: Callable[[], Found]
    engines: bool = False
    close: float = CLOSE
    kernel_alone: bool = False  # too long for the twin


class Each(NamedTuple):
    """Numbers that are compared one by one, however small they are beside the others."""

    values: Any


class Group(NamedTuple):
    """Arrays of which one number each is kept."""

    arrays: tuple[Any, ...]


def grouped(found: Found) -> dict[str, Any]:
    """Arrays under the first parts of their names."""
    groups: dict[str, list[Any]] = {}
    for name, array in found.items():
        groups.setdefault(name.rpartition("/")[0] or name.split()[0], []).append(array)
    return {name: Group(tuple(arrays)) for name, arrays in groups.items()}


def table(*values: Any) -> Each:
    """Results of one function, one by one."""
    return Each(np.concatenate([np.ravel(np.asarray(v, np.float64)) for v in values]))


def uniform(rows: int, columns: int, seed: int) -> FloatArray:
    """Between 0 and 1, by a generator that is written out here."""
    state, made = 2 * seed + 1, []
    for _ in range(rows * columns + 4):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        made.append((state >> 11) / 2.0**53)
    return np.array(made[4:]).reshape(rows, columns)


def bells(rows: int, columns: int, seed: int) -> FloatArray:
    """Sums of four of them, with mean 0 and variance 1."""
    four = uniform(rows, 4 * columns, seed).reshape(rows, columns, 4)
    return np.asarray((four[..., 0] + four[..., 1] + four[..., 2] + four[..., 3] - 2.0) * 3.0**0.5)


def numbers(prefix: str, plain: Any) -> dict[str, Any]:
    """All numbers of nested plain data, by path."""
    if isinstance(plain, Mapping):
        parts: Iterable[tuple[Any, Any]] = plain.items()
    elif isinstance(plain, (list, tuple)):
        if plain and all(isinstance(one, (int, float)) for one in plain):
            return {prefix: np.array(plain, dtype=np.float64)}
        parts = enumerate(plain)
    elif plain is None or isinstance(plain, (int, float, np.ndarray)):
        return {prefix: np.array(np.nan if plain is None else plain, dtype=np.float64)}
    else:
        return {}
    found: dict[str, Any] = {}
    for name, part in parts:
        found |= numbers(f"{prefix}.{name}" if prefix else str(name), part)
    return found


def parts(prefix: str, plain: Mapping[str, Any]) -> dict[str, Any]:
    """The same, all numbers under one name together."""
    return {
        f"{prefix} {name}": np.concatenate([np.ravel(v) for v in numbers("", part).values()])
        for name, part in plain.items()
        if numbers("", part)
    }


def written(found: Found) -> dict[str, list[float]]:
    """The numbers of results that are kept, in eleven digits."""
    return {
        name: [float(f"{value:.11g}") for value in _kept(result)] for name, result in found.items()
    }


def _kept(result: Any) -> list[float]:
    """Of each column a weighted sum of sizes and signs; of `Each` every number.

    Large numbers count by their logarithm: none hides what became of the others.
    """
    if isinstance(result, Each):
        return [float(v) for v in _plain(np.ravel(result.values), 5e300)]
    if isinstance(result, Group):
        return [value for array in result.arrays for value in _kept(np.ravel(array))]
    array = np.asarray(result, np.float64)
    wide = array.ndim < 2 or array.shape[-1] > MOST_EACH
    columns = _plain(array.reshape(-1, 1) if wide else array.reshape(-1, array.shape[-1]))
    places = np.arange(1.0, len(columns) + 1.0)
    weights, turned = 2.0 + 0.5 * np.sin(3.7 * places), np.cos(2.4 * places)
    columns = np.arcsinh(columns)
    return [float(value) for value in weights @ np.abs(columns) + turned @ columns]


def _plain(array: FloatArray, far: float = 54.3) -> FloatArray:
    """What is no number as one."""
    return np.clip(np.nan_to_num(array, nan=12.3, posinf=far, neginf=-far), -6e300, 6e300)


def differences(found: Found, wanted: Mapping[str, list[float]], close: float) -> list[str]:
    """The results that are others than those written down, and by how much."""
    wrong = [f"{name} is written down, and was not made" for name in wanted if name not in found]
    for name, result in found.items():
        if name not in wanted:
            wrong.append(f"{name} is not written down")
            continue
        got, kept = np.array(_kept(result)), np.array(wanted[name])
        if got.shape != kept.shape:
            wrong.append(f"{name} has {len(got)} numbers, not {len(kept)}")
            continue
        beyond = np.abs(got - kept) - close * np.abs(kept)
        if np.max(beyond, initial=-1.0) > 1e-300:
            at = int(np.argmax(beyond))
            wrong.append(f"{name}[{at}] is {got[at]:.12g}, not {kept[at]:.12g}")
    return wrong


@cache
def read() -> dict[str, dict[str, list[float]]]:
    """All that is written down."""
    found: dict[str, dict[str, list[float]]] = json.loads(FILE.read_text())
    return found


def write(cases: Mapping[str, Mapping[str, list[float]]]) -> None:
    """One line for each result, so that a diff names what moved."""
    blocks = []
    for case, results in cases.items():
        lines = [
            f"  {json.dumps(name)}: {json.dumps(kept, separators=(',', ':'))}"
            for name, kept in results.items()
        ]
        blocks.append(f" {json.dumps(case)}: {{\n" + ",\n".join(lines) + "\n }")
    FILE.write_text("{\n" + ",\n".join(blocks) + "\n}\n")
