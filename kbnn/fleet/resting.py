"""A packed model as it rests: a head, its numbers as far as they are in use, and a checksum."""

from __future__ import annotations

import struct
import zlib
from typing import Final

import numpy as np

from kbnn.core.normal import FloatArray
from kbnn.core.state import COUNT
from kbnn.errors import ModelError
from kbnn.fleet.form import FIGURES, PackedLayout
from kbnn.fleet.packed import PackedModel, check_numbers
from kbnn.fleet.store import PACKED_MAGIC, KeyMetrics
from kbnn.score.curve import CurvePoint

METRIC_FIGURES: Final = ("loss", "coverage_90")
"""Figures of a learning curve that a standing has."""
_HEADER: Final = struct.Struct("<5s16sII")


def compute_key_metrics(form: PackedLayout, rows: FloatArray) -> list[KeyMetrics]:
    """How packed models (n, size) stand."""
    weight, *sums = form.view_part(rows, "sums").T
    told: dict[str, list[float | None]] = {}
    for figure, total in zip(FIGURES, sums, strict=True):
        if figure.curve in METRIC_FIGURES:
            finish = figure.on_curve or figure.finish
            means = np.divide(total, weight, out=np.full(len(rows), np.nan), where=weight > 0.0)
            told[figure.curve] = [None if m != m else finish(m) for m in means.tolist()]
    counts = form.view_counts(rows)
    columns = (counts[:, COUNT.rows].tolist(), *(told[name] for name in METRIC_FIGURES))
    return list(map(KeyMetrics, *columns, counts[:, COUNT.alarms].tolist()))


def packed_to_bytes(form: PackedLayout, whole: PackedModel) -> bytes:
    """What rests: a head, the row as far as it is in use, points and alarms, and a checksum."""
    head = _HEADER.pack(PACKED_MAGIC, form.name, len(whole.points), len(whole.alarms))
    used = form.used_length(form.view_part(whole.row, "counts"))
    told = b""
    if whole.points or whole.alarms:
        points = [[np.nan if v is None else v for v in p.to_json()] for p in whole.points]
        told = np.array(points, np.float64).tobytes() + np.array(whole.alarms, np.int64).tobytes()
    content = b"".join((head, whole.row[:used].data, told))
    return content + zlib.crc32(content).to_bytes(4, "little")


def read_layout_name(content: bytes) -> bytes:
    """The name of the form that packed bytes have."""
    return bytes(content[len(PACKED_MAGIC) : len(PACKED_MAGIC) + 16])


def is_packed(content: bytes) -> bool:
    """Whether bytes are a packed model and no model file."""
    return content.startswith(PACKED_MAGIC)


def packed_from_bytes(form: PackedLayout, content: bytes) -> PackedModel:
    """The inverse of `to_bytes`; ModelError where the bytes are none of that form."""
    row = np.zeros(form.size)
    try:
        _, _, points, alarms = _HEADER.unpack_from(content)
    except struct.error as error:
        raise ModelError("is damaged (the bytes of a model are cut short)") from error
    after = 56 * points + 8 * alarms + 4
    used = (len(content) - _HEADER.size - after) // 8
    sound = form.min_size <= used <= form.size
    sound = sound and _HEADER.size + 8 * used + after == len(content)
    if not sound or zlib.crc32(content[:-4]) != int.from_bytes(content[-4:], "little"):
        raise ModelError("is damaged (the bytes of a model do not fit)")
    row[:used] = np.frombuffer(content, np.float64, used, _HEADER.size)
    if form.used_length(form.view_part(row, "counts")) != used:
        raise ModelError("is damaged (the rows that a model keeps do not fit)")
    whole = PackedModel(row)
    if points or alarms:
        at = _HEADER.size + 8 * used
        told = np.frombuffer(content, np.float64, 7 * points, at).reshape(-1, 7)
        rows = np.frombuffer(content, np.int64, alarms, at + 56 * points).tolist()
        if not (np.isfinite(told[:, 0]).all() and not np.isinf(told).any()):
            raise ModelError("is damaged (the learning curve of a model)")
        curve = tuple(
            CurvePoint(int(count), *(None if np.isnan(v) else v for v in values))
            for count, *values in told.tolist()
        )
        whole = PackedModel(row, curve, tuple(rows))
    check_numbers(form, whole)
    return whole
