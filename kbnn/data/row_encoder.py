"""Encode rows given one at a time as dicts, and infer a schema from the first row.

Values are decoded as in a table (kbnn.data.decoder). An absent key is a missing value, the order of
keys does not matter, and a key that first appears later becomes a column and is reported once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Final

import numpy as np

from kbnn.array_types import MAX_ABS_VALUE, MIN_ABS_VALUE, FloatArray
from kbnn.data.batch import Rows
from kbnn.data.chunk import shorten
from kbnn.data.column_types import ColumnSample, Notice
from kbnn.data.csv_format import read_plain_row
from kbnn.data.decoder import CellDecoder, check_label, check_new_class, decide_column
from kbnn.data.infer import infer_schema
from kbnn.data.read_options import ReadOptions
from kbnn.data.schema import Schema
from kbnn.data.timestamps import has_changing_offset
from kbnn.data.values import MissingSpellings, is_encodable, value_to_text
from kbnn.errors import ArgumentError, DataError, UsageError
from kbnn.targets.registry import TARGET_TYPES

_NAN: Final = math.nan


class RowEncoder:
    """Encodes dicts; `schema` is the schema after the last row, a new object whenever it grew."""

    def __init__(self, schema: Schema, notice: Notice) -> None:
        self.schema = schema
        self.plain_columns: list[str] | None = None
        """The names of the columns of x in order, if all are numbers; otherwise None."""
        self._missing = MissingSpellings(schema.missing)
        self._notice = notice
        self._index_schema()

    def _index_schema(self) -> None:
        """Build the lookup tables that every row needs."""
        schema = self.schema
        self._cells = {
            column.name: CellDecoder(column, self._missing, schema.clock)
            for column in schema.columns
        }
        self._features = [
            column
            for column in schema.columns
            if column.role == "feature" and column.kind != "time"
        ]
        self._labels = {name: at for at, name in enumerate(schema.classes)}
        self._at: dict[str, dict[str | None, int]] = {}
        for at, place in enumerate(schema.layout):
            self._at.setdefault(place.column, {})[place.category] = at
        self._decoders = [
            (
                column.name,
                self._at[column.name],
                self._cells[column.name].decode_label if column.kind == "category" else None,
                # undecided and ignored columns count as missing
                self._cells[column.name].decode_number
                if column.kind in ("number", "boolean")
                else lambda value: _NAN,
            )
            for column in self._features
        ]
        numbers = [c.name for c in self._features if c.kind == "number"]
        plain = len(numbers) == len(schema.layout) == len(self._features)
        plain = plain and not self._missing.numbers
        self.plain_columns = [place.column for place in schema.layout] if plain else None
        self._sd = [c for c in schema.columns if c.role == "input_sd"]
        self._known = frozenset(self._cells)
        self._targets = schema.targets
        self._derived = schema.derived_columns
        labels = TARGET_TYPES[schema.task].labels
        self._read = self._encode_class if labels else self._encode_numbers
        self._id = schema.id

    def encode_features(self, x: Mapping[str, Any], *, admit: bool) -> FloatArray:
        """Encode the features of one row as (1, D); with `admit`, the schema may grow."""
        if admit and not self.schema.chosen and not self._known.issuperset(x):
            self._admit_columns(x)
        if self.plain_columns is not None:
            row = read_plain_row(x, self.plain_columns)
            if row is not None:
                return row
            get = x.get
            values = []
            for name in self.plain_columns:
                value = get(name)
                if type(value) is not float or not MIN_ABS_VALUE < abs(value) < MAX_ABS_VALUE:
                    value = self._cells[name].decode_number(value)
                values.append(value)
            return np.array([values])
        return self._encode_mixed(x, admit)

    def _encode_mixed(self, x: Mapping[str, Any], admit: bool) -> FloatArray:
        if admit:
            self._admit_values(x)
        row = np.zeros((1, self.schema.width))
        for name in self._derived:
            row[0, self._at[name][None]] = _NAN
        time = self.encode_time(x)
        if time is not None and self.schema.clock is not None:
            clock = self.schema.clock
            row[:, [self._at[name][None] for name in clock.names]] = clock.encode_times(time)
        for name, places, decode_label, decode_number in self._decoders:
            if decode_label is None:
                row[0, places[None]] = decode_number(x.get(name))
                continue
            label = decode_label(x.get(name))
            if label is None:
                row[0, list(places.values())] = _NAN
            elif label in places:
                row[0, places[label]] = 1.0
        return row

    def encode_time(self, x: Mapping[str, Any]) -> FloatArray | None:
        """Encode the time of one row as (1, 2); None if the schema has no clock."""
        clock = self.schema.clock
        if clock is None:
            return None
        return np.array([self._cells[clock.column].decode_time(x.get(clock.column))])

    def _has_value(self, value: Any) -> bool:
        text = value_to_text(value)
        return text is not None and text not in self._missing.texts

    def _admit_columns(self, x: Mapping[str, Any]) -> None:
        """Add new keys that have a value as columns."""
        new = [
            name
            for name in sorted(x, key=str)  # the order of keys must not matter
            if name not in self._known and self._has_value(x[name])
        ]
        if not new:
            return
        schema = self.schema.copy()
        for name in new:
            check_column_name(name)
            first = f"the column '{shorten(name)}' is new"
            decide_column(schema, name, _sample_value(x[name]), first, self._notice)
        self.schema = schema
        self._index_schema()

    def _admit_values(self, x: Mapping[str, Any]) -> None:
        """Infer undecided columns that have a first value, and add new categories."""
        schema = None
        for column in self._features:
            name, value = column.name, x.get(column.name)
            if column.kind == "undecided" and self._has_value(value):
                schema = schema or self.schema.copy()
                column = decide_column(schema, name, _sample_value(value), "", self._notice)
            if column.kind == "category":
                label = self._cells[name].decode_label(value)
                if label is not None and label not in column.categories:
                    check_label(name, label)
                    schema = schema or self.schema.copy()
                    schema.add_category(schema.get_column(name), label)
        if schema is not None:
            self.schema = schema
            self._index_schema()

    def encode_targets(self, y: Any) -> FloatArray:
        """Encode the targets as (1, T); several targets come as a dict or a sequence."""
        return self._read(y)

    def _encode_numbers(self, y: Any) -> FloatArray:
        names = self._targets
        if len(names) == 1:
            if type(y) is float and MIN_ABS_VALUE < abs(y) < MAX_ABS_VALUE:
                return np.array([[y]])
            return np.array([[self._cells[names[0]].decode_number(y)]])
        if isinstance(y, Mapping):
            values = [y.get(name) for name in names]
        elif y is None:
            values = [None] * len(names)
        else:
            values = split_targets(names, y)
        pairs = zip(names, values, strict=True)
        return np.array([[self._cells[name].decode_number(value) for name, value in pairs]])

    def _encode_class(self, y: Any) -> FloatArray:
        cells = self._cells[self._targets[0]]
        label = cells.decode_class(y)
        if label is None:
            return np.array([[_NAN]])
        if label not in self._labels:
            refusal = check_new_class(self.schema, cells.column, label, grows=True)
            if refusal is not None:
                raise DataError(f"column '{refusal.column}': {refusal.reason}")
            self.schema = self.schema.copy()
            self.schema.classes.append(label)
            self._index_schema()
        return np.array([[float(self._labels[label])]])

    def encode_row(self, x: Mapping[str, Any], y: Any, weight: float, number: int) -> Rows:
        """Encode a row to learn."""
        if type(weight) is not float or weight != 1.0:
            weight = _validate_weight(weight)
        inputs = self.encode_features(x, admit=True)
        target = self.encode_targets(y)
        return Rows(
            inputs,
            target,
            np.array([number]),
            self._encode_input_sd(x),
            None if weight == 1.0 else np.array([weight]),
            schema=self.schema,
            time=self.encode_time(x),
            id=None if self._id is None else [self._cells[self._id].decode_text(x.get(self._id))],
        )

    def encode_query(self, x: Mapping[str, Any]) -> Rows:
        """Encode a row to predict."""
        inputs = self.encode_features(x, admit=False)
        target = np.full((1, len(self._targets)), _NAN)
        return Rows(
            inputs,
            target,
            _NO_NUMBER,
            self._encode_input_sd(x),
            schema=self.schema,
            time=self.encode_time(x),
        )

    def _encode_input_sd(self, x: Mapping[str, Any]) -> FloatArray | None:
        if not self._sd:
            return None
        sd = np.zeros((1, self.schema.width))
        for column in self._sd:
            places = self._at.get(column.of or "", {})
            if None in places:
                stated = self._cells[column.name].decode_number(x.get(column.name))
                sd[0, places[None]] = 0.0 if math.isnan(stated) else stated
        return sd


def split_targets(names: Sequence[str], y: Any) -> list[Any]:
    """Return the values of several targets given as a sequence; raise an error otherwise."""
    if isinstance(y, str) or not isinstance(y, Iterable):
        raise ArgumentError(
            f"a row has {len(names)} targets: give a dict by name or a sequence, "
            f"not {shorten(repr(y))}"
        )
    values = list(y)
    if len(values) != len(names):
        raise DataError(f"a row has {len(names)} targets, not {len(values)}")
    return values


def check_row(x: object) -> None:
    """Raise ArgumentError if a row is not a dict."""
    if not isinstance(x, Mapping):
        raise ArgumentError(
            f"a row must be a dict of values by column name, not {shorten(repr(x))} "
            f"({type(x).__name__})"
        )


def _validate_weight(weight: Any) -> float:
    """Return a weight as a float; raise an error unless it is positive and finite."""
    try:
        number = math.nan if isinstance(weight, str | bytes) else float(weight)
    except (TypeError, ValueError):
        number = math.nan
    except OverflowError:
        number = math.inf
    if 0.0 < number < math.inf:
        return number
    shown = f"{number:g}" if isinstance(weight, float | int) else shorten(repr(weight))
    what = f"a weight must be a positive, finite number, not {shown}"
    raise DataError(what) if isinstance(weight, float | int | np.generic) else ArgumentError(what)


_NO_NUMBER: Final = np.zeros(1, np.int64)


def check_column_name(name: object) -> None:
    """Raise an error if this cannot be a column name."""
    if not isinstance(name, str):
        raise ArgumentError(f"column names must be strings, not {shorten(repr(name))}")
    if not is_encodable(name):
        raise UsageError(
            f"column {name!a}: the name holds a lone surrogate, which is not valid Unicode text"
        )


def infer_row_schema(
    x: Mapping[str, Any],
    targets: Mapping[str, Any],
    options: ReadOptions,
    notice: Notice = lambda text: None,
) -> Schema:
    """Infer a schema from the values of a first row and from the options.

    The weight of a row is an argument, and columns named by the options may come later.
    """
    for name in (*targets, *x):
        check_column_name(name)
    features = [n for n in options.features or x if n != options.id and n not in options.ignore]
    ids = [] if options.id is None else [options.id]
    cells = {name: x.get(name) for name in (*features, *options.ignore)}
    cells |= {**targets, **dict.fromkeys(ids)}
    stated = replace(
        options,
        weight=None,
        input_sd=False,
        categorical=tuple(name for name in options.categorical if name in features),
        hashed=tuple(pair for pair in options.hashed if pair[0] in features),
        numeric=tuple(name for name in options.numeric if name in (*features, *targets)),
    )
    missing = MissingSpellings(options.na).texts
    samples = [
        _sample_value(value, frozenset() if name in targets else missing)
        for name, value in cells.items()
    ]
    return infer_schema(list(cells), samples, stated, notice, first_row=True)


def _sample_value(value: Any, missing: frozenset[str] = frozenset()) -> ColumnSample:
    text, unusable = value_to_text(value), "nested values" if _is_nested(value) else None
    if text is not None and isinstance(value, np.datetime64 | date):
        unusable = "timestamps"
    zone = getattr(getattr(value, "tzinfo", None), "key", "")  # of zoneinfo: Europe/Berlin
    return ColumnSample(
        [None if text in missing else text],
        unusable,
        not isinstance(value, str),
        zone if has_changing_offset(zone) else "",
    )


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping | Sequence) and not isinstance(value, str)
