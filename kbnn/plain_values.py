"""Read plain data from a file into dataclasses, checking every value against its declared type.

A model file may come from anyone: `true` is not accepted as a number, a text not as a list, and a
number must be finite. The classes themselves check ranges and sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from kbnn.errors import ModelError

T = TypeVar("T")
LARGEST_EXACT = 2**53
"""Whole numbers up to here are exact as floating-point numbers."""


def read_dataclass(kind: type[T], plain: object) -> T:
    """Build the dataclass that plain data describe; ValueError if they do not fit.

    Unknown fields raise ModelError: they were written by a newer version.
    """
    if not isinstance(plain, Mapping):
        raise ValueError(f"expected an object, found {_format_value(plain)}")
    assert is_dataclass(kind)
    hints = _get_field_types(kind)
    known = {field.name: hints[field.name] for field in fields(kind)}
    unknown = sorted(str(name) for name in plain if name not in known)
    if unknown:
        raise ModelError(f"was written by a newer kbnn ('{unknown[0]}' is unknown to this one)")
    return kind(**{name: read_value(known[name], value, name) for name, value in plain.items()})


@cache
def _get_field_types(kind: Any) -> dict[str, Any]:
    """Return the types of a class's fields, cached because they are slow to resolve."""
    return get_type_hints(kind)


def read_value(kind: Any, value: Any, name: str) -> Any:
    """Check a value against its declared type; ValueError names the field."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is UnionType or str(origin) == "typing.Union":
        for part in parts:
            try:
                return read_value(part, value, name)
            except ValueError:
                continue
    elif origin is Literal:
        if isinstance(value, str) and value in parts:
            return value
    elif origin in (list, tuple):
        if isinstance(value, list | tuple):
            one = parts[0]
            return origin(read_value(one, item, name) for item in value)
    elif kind is NoneType:
        if value is None:
            return None
    elif is_dataclass(kind) and isinstance(kind, type):
        return read_dataclass(kind, value)
    elif hasattr(kind, "_fields"):
        hints = _get_field_types(kind)
        if isinstance(value, list | tuple) and len(value) == len(kind._fields):
            pairs = zip(kind._fields, value, strict=True)
            return kind(*(read_value(hints[field], item, name) for field, item in pairs))
    elif _matches_type(kind, value):
        return value
    raise ValueError(f"{name} cannot be {_format_value(value)}")


def _matches_type(kind: Any, value: object) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        whole = isinstance(value, int) and abs(value) <= LARGEST_EXACT
        return whole or (isinstance(value, float) and math.isfinite(value))
    return kind in (int, str) and isinstance(value, kind)


def _format_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
