"""Packed models: the model of a key as one row of numbers, in a tenth of an object's memory.

A model is packed if its warm-up has ended and it has a single candidate with one network of one
real target, no replay, and a record without samples: the default in a fleet. All models with the
same settings and network share a `PackedLayout`. Packing is exact: an unpacked model is the same to
the bit, and so are the bytes of its model file. The batched kernel learns packed models in place,
so the order of counts and buffered values must agree with kbnn/core/csrc/batched.h. Stored bytes
consist of a header, the numbers in use, and a checksum.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import sys
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import MAX_ABS_VALUE as LARGEST_VALUE
from kbnn.array_types import FloatArray, IntArray
from kbnn.core import kernel
from kbnn.core.config import Config
from kbnn.core.constants import LARGEST_TERM
from kbnn.core.kernel import open_session
from kbnn.core.layout import layout_of
from kbnn.core.state import ARRAYS, COUNT, State, init
from kbnn.data.schema import Schema
from kbnn.distributions import calibration
from kbnn.errors import ModelError
from kbnn.fleet.store import PACKED_MAGIC, KeyMetrics
from kbnn.metrics import numeric_metrics
from kbnn.metrics.figures import LARGEST_SUM, check_stored_count
from kbnn.metrics.numeric_metrics import NumericScore
from kbnn.metrics.samples import PIT_BINS
from kbnn.metrics.scorecard import CurvePoint, LearningCurve, Scorecard
from kbnn.model import scaler
from kbnn.model.candidates import MAX_ALARM_ROWS, Candidate
from kbnn.model.ensemble import NO_BINS, make_equal_weights
from kbnn.model.learner import LearnerState, make_learner
from kbnn.model.model import OnlineModel
from kbnn.model.replay import BufferedRows, ReplayBuffer, ReplayState, compute_buffer_rows
from kbnn.model.settings import BELIEF_LIMIT, Settings
from kbnn.plain_values import read_dataclass, read_value
from kbnn.targets.base import TargetType, is_valid_output_count

MAX_PACKED_NUMBERS: Final = 8192
"""Largest number of weights and covariances: copying a larger state costs more than it saves."""
SEEN, CHANGES, ROWS_SEEN, SKIPPED, DROPPED_ROWS, BUFFERED_ROWS = range(6)
SCORED, UNSCORED, INVALID, CURVE = range(6, 10)
REPLAY_SINCE, REPLAY_CORRECTED, REPLAYED_ROWS, LAST_ALARM = range(10, 14)
COUNT_FIELDS: Final = 14
"""Counts of a packed model: of its rows, its record and its replay."""
Y, WEIGHT, NUMBER, TRUST = range(4)
ROW_META_FIELDS: Final = 4
"""Values buffered per row in addition to its inputs."""
ORIGIN, TOTAL, SHIFT, SPREAD = range(4)
CONSTANT_FIELDS: Final = 4
"""The best constant of the record, see kbnn.metrics.numeric_metrics."""
INTEGER_PARTS: Final = frozenset(("pit", "counts"))
"""Parts of a packed model that hold integers."""
_SCORE_TEMPLATE: Final = NumericScore()
FIGURES: Final = tuple(_SCORE_TEMPLATE._summed_metrics)
FIGURE_NAMES: Final = tuple(_SCORE_TEMPLATE._index_by_name)
SUM_FIELDS: Final = 1 + len(FIGURES)
CURVE_SUMS: Final = tuple([0, *(1 + at for at in _SCORE_TEMPLATE._curve_indices)])
"""Indices of the sums of a learning curve; the first is the weight."""
_NONNEGATIVE_SUMS: Final = frozenset(("weight", "rmse", "spread"))
"""Sums of weights and squares, which are never negative."""
SMALLEST_FLOAT: Final = 5e-324
LARGEST_FLOAT: Final = sys.float_info.max
_CURVE_FIGURES: Final = frozenset(FIGURE_NAMES[at] for at in _SCORE_TEMPLATE._curve_indices)


class PackedLimits(NamedTuple):
    """Allowed range of each number of a packed model.

    free     integers and calibration parameters, which have checks of their own
    unknown  may be NaN: a missing value, or a mean of no rows
    """

    low: FloatArray
    high: FloatArray
    free: NDArray[np.bool_]
    unknown: NDArray[np.bool_]


class PackedLayout:
    """Memory layout shared by packed models of the same settings and network."""

    def __init__(
        self,
        settings: Settings,
        config: Config,
        seed: int,
        figures: tuple[str, ...] = FIGURE_NAMES,
    ) -> None:
        self.settings, self.config, self.seed = settings, config, seed
        self.figures = figures
        """Names of the metrics in the records; older versions may have stored others."""
        self.curve_figures = tuple(name for name in figures if name in _CURVE_FIGURES)
        self.inputs = config.inputs
        self.keep = compute_buffer_rows(config.inputs, settings.keep)
        blank = init(config, 0)
        self._shapes = [(name, getattr(blank, name).shape) for name in ARRAYS]
        self._counts_place = ARRAYS.index("counts")
        before = self._shapes[: self._counts_place]
        self._counts_start = sum(math.prod(shape) for _, shape in before)
        self.belief = sum(math.prod(shape) for _, shape in self._shapes)
        width = ROW_META_FIELDS + self.inputs
        self.parts: dict[str, tuple[slice, tuple[int, ...]]] = {}
        at = 0
        for name, shape in (
            ("belief", (self.belief,)),
            ("columns", (1 + self.inputs, scaler.FIELDS)),
            ("tails", (calibration.CALIBRATION_FIELDS,)),
            ("sums", (1 + len(figures),)),
            ("recent", (1 + len(self.curve_figures),)),
            ("constant", (CONSTANT_FIELDS,)),
            ("pit", (PIT_BINS,)),
            ("counts", (COUNT_FIELDS,)),
            ("kept", (self.keep, width)),
        ):
            self.parts[name] = slice(at, at + math.prod(shape)), shape
            at += math.prod(shape)
        self.size, self.min_size = at, at - self.keep * width

    @cached_property
    def limits(self) -> PackedLimits:
        """Limits of every number of a row, as in the reader of model files."""
        state = {name: np.full(shape, -BELIEF_LIMIT) for name, shape in self._shapes}
        state["cov"][layout_of(self.config).variance_positions] = 0.0
        state["surprise"][:] = 0.0
        state["prior_var"][:] = SMALLEST_FLOAT
        state["noise"][:, : 1 if self.config.kind.has_signed_noise else None] = SMALLEST_FLOAT
        columns = np.full((1 + self.inputs, scaler.FIELDS), -LARGEST_FLOAT)
        columns[:, [scaler.COUNT, scaler.SQUARES, scaler.SCALE]] = 0.0
        sums = [
            0.0 if name in _NONNEGATIVE_SUMS else -LARGEST_SUM for name in ("weight", *self.figures)
        ]
        recent = [
            0.0 if name in _NONNEGATIVE_SUMS else -LARGEST_SUM
            for name in ("weight", *self.curve_figures)
        ]
        kept = np.full((self.keep, ROW_META_FIELDS + self.inputs), -LARGEST_VALUE)
        kept[:, [WEIGHT, NUMBER, TRUST]] = SMALLEST_FLOAT, 1.0, 0.0
        most_kept = -kept
        most_kept[:, [WEIGHT, NUMBER, TRUST]] = LARGEST_FLOAT, 2.0**53 - 1.0, 1.0
        low, high, free = np.zeros(self.size), np.zeros(self.size), np.zeros(self.size, np.bool_)
        for name, least, most in (
            ("belief", np.concatenate([part.ravel() for part in state.values()]), BELIEF_LIMIT),
            ("columns", columns, LARGEST_FLOAT),
            ("sums", sums, LARGEST_SUM),
            ("recent", recent, LARGEST_SUM),
            ("constant", [-LARGEST_FLOAT, 0.0, -LARGEST_FLOAT, 0.0], LARGEST_FLOAT),
            ("kept", kept, most_kept),
        ):
            place = self.parts[name][0]
            low[place], high[place] = np.ravel(least), np.ravel(most)
        counted = slice(self._counts_start, self._counts_start + len(COUNT))
        for place in (counted, *(self.parts[name][0] for name in ("tails", "pit", "counts"))):
            free[place] = True
        unknown = np.zeros(self.size, np.bool_)
        unknown[self.parts["constant"][0].start + ORIGIN] = True
        cells = unknown[self.parts["kept"][0]].reshape(kept.shape)
        cells[:, Y] = cells[:, ROW_META_FIELDS:] = True
        return PackedLimits(low, high, free, unknown)

    @property
    def is_current(self) -> bool:
        """Whether its metrics are those of this version."""
        return self.figures == FIGURE_NAMES

    @property
    def kernel_offsets(self) -> tuple[int, ...]:
        """Offsets and lengths of the parts as the kernel expects them (kb_packed_layout)."""
        named = ("columns", "tails", "sums", "recent", "constant", "pit", "counts", "kept")
        starts = [self.parts[name][0].start for name in named]
        return self.size, *starts, self.keep, SUM_FIELDS, len(CURVE_SUMS), PIT_BINS

    def view_part(self, rows: FloatArray, name: str) -> Any:
        """Return a part of packed models (..., size) as a view."""
        place, shape = self.parts[name]
        found = rows[..., place]
        found = found.view(np.int64) if name in INTEGER_PARTS else found
        return found if len(shape) == 1 else found.reshape(*found.shape[:-1], *shape)

    def used_length(self, counts: IntArray) -> int:
        """Return how many numbers of a row are in use, given its counts."""
        return self.min_size + min(int(counts[BUFFERED_ROWS]), self.keep) * (
            ROW_META_FIELDS + self.inputs
        )

    @cached_property
    def json_data(self) -> dict[str, Any]:
        """The layout as plain data."""
        config = {**asdict(self.config), "hidden": list(self.config.hidden)}
        return {
            "settings": self.settings.to_json(),
            "config": config,
            "seed": self.seed,
            "figures": list(self.figures),
        }

    @cached_property
    def name(self) -> bytes:
        """Hash of the layout, stored with each packed model."""
        text = json.dumps(self.json_data, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> PackedLayout:
        """Restore a layout from `json_data`."""
        settings = Settings.from_json(plain["settings"])
        figures = tuple(read_value(list[str], plain["figures"], "figures"))
        config, seed = read_dataclass(Config, plain["config"]), check_stored_count(plain["seed"])
        small = (
            config.weights <= MAX_PACKED_NUMBERS
            and config.weights + layout_of(config).size <= MAX_PACKED_NUMBERS
        )
        if not small or config.directions or len(set(figures)) != len(figures) or seed >= 2**63:
            raise ValueError("the layout is not that of a packed model")
        return cls(settings, config, seed, figures)

    def pack_state(self, state: State) -> FloatArray:
        """Concatenate the arrays of a network's state."""
        parts = [getattr(state, name).ravel() for name in ARRAYS]
        parts[self._counts_place] = parts[self._counts_place].view(np.float64)
        return np.concatenate(parts)

    def unpack_state(self, packed_state: FloatArray) -> State:
        """Restore the state that `pack_state` concatenated, in new arrays."""
        arrays: dict[str, Any] = {}
        at = 0
        for name, shape in self._shapes:
            size = math.prod(shape)
            part = packed_state[at : at + size].copy()
            arrays[name] = (part.view(np.int64) if name == "counts" else part).reshape(shape)
            at += size
        return State(config=self.config, seed=self.seed, **arrays)

    def view_counts(self, packed_state: FloatArray) -> IntArray:
        """Return the counts of states (..., numbers) as a view, see kbnn.core.state.Counts."""
        return packed_state[..., self._counts_start : self._counts_start + len(COUNT)].view(
            np.int64
        )


class PackedLayouts:
    """The layouts of the packed models of a fleet, by name; each is created once."""

    def __init__(self, plain: Mapping[str, Any] | None = None) -> None:
        self._by_name: dict[bytes, PackedLayout] = {}
        self._by_settings: dict[tuple[Any, ...], PackedLayout] = {}
        self.add_layouts(plain or {})

    def add_layouts(self, plain: Mapping[str, Any]) -> None:
        """Add layouts from plain data."""
        for text, one in plain.items():
            name = bytes.fromhex(text)
            if name not in self._by_name:
                layout = PackedLayout.from_json(one)
                if layout.is_current:
                    layout = self.get_or_create(layout.settings, layout.config, layout.seed)
                self._by_name[name] = layout  # its own name may differ by now

    def get_or_create(self, *description: Any) -> PackedLayout:
        """Return the layout of these settings, network config and seed."""
        layout = self._by_settings.get(description)
        if layout is None:
            layout = self._by_settings[description] = PackedLayout(*description)
            self._by_name[layout.name] = layout
        return layout

    def find_by_name(self, name: bytes) -> PackedLayout:
        """Return the layout with a name; ModelError if it is unknown."""
        if name not in self._by_name:
            raise ModelError("is damaged (a model has an unknown layout)")
        return self._by_name[name]

    def to_json(self) -> dict[str, Any]:
        """Return all layouts as plain data."""
        return {name.hex(): layout.json_data for name, layout in sorted(self._by_name.items())}


class PackedModel(NamedTuple):
    """A packed model: its row of numbers, the points of its learning curve, and its alarms."""

    row: FloatArray
    points: tuple[CurvePoint, ...] = ()
    alarms: tuple[int, ...] = ()


def supports_packing(settings: Settings, schema: Schema) -> bool:
    """Whether models of a fleet are packed after their warm-up."""
    return (
        kernel.is_compiled()
        and settings.sample == 0
        and settings.ensemble == 1
        and settings.units
        and settings.covariance != "paper"  # the kernel does not have its scale calibration
        and len(schema.targets) == 1
        and not schema.lags
        and not schema.wait
    )


def describe_layout(model: OnlineModel) -> tuple[Settings, Config, int] | None:
    """Return settings, config and seed of a model's layout; None if it cannot be packed now."""
    candidate = model.candidates[0]
    learned, settings = candidate.learned, candidate.learner.settings
    plain = (
        not model.is_warming_up
        and len(model.candidates) == 1
        and len(learned.members) == 1
        and not len(learned.bins[0])
        and candidate.learner.task.supports_batched_kernel
        and not settings.replay_ratio
        and not model.eliminated
        and candidate.evidence == 0.0
        and learned.replay_state.backlog == 0.0
        and not learned.buffer.rows().x_sd.any()
        and not model.card.scores[0]._start_weights.any()  # every metric has all rows
        and learned.buffer.max_rows
        == compute_buffer_rows(learned.members[0].config.inputs, settings.keep)
    )
    if not plain or learned.members[0].config.directions:
        return None
    config = learned.members[0].config
    if config.weights + layout_of(config).size > MAX_PACKED_NUMBERS:
        return None
    return settings, config, learned.members[0].state().seed


def pack_model(layout: PackedLayout, model: OnlineModel) -> PackedModel:
    """Pack a model with this layout."""
    candidate, card = model.candidates[0], model.card
    learned, score = candidate.learned, card.scores[0]
    kept, again = learned.buffer.rows(layout.inputs), learned.replay_state
    counts = [
        learned.seen,
        learned.changes,
        model.rows_seen,
        model.skipped,
        model.dropped_rows,
        len(kept.y),
    ]
    counts += [score.rows, score.skipped, score.invalid, card.curve.rows]
    counts += [again.since, int(again.is_corrected), again.rows, again.alarm]
    row = np.zeros(layout.size)
    for name, part in {
        "belief": layout.pack_state(learned.members[0].state()),
        "columns": learned.columns,
        "tails": learned.calibration[0],
        **numeric_metrics.pack_score(score),
        "counts": np.array(counts),
    }.items():
        layout.view_part(row, name)[:] = part
    layout.view_part(row, "kept")[: len(kept.y)] = np.column_stack(
        (kept.y, kept.weight, kept.number, kept.trust, kept.x)
    )
    return PackedModel(row, tuple(card.curve.points[0]), candidate.alarms)


def unpack_model(
    layout: PackedLayout, packed: PackedModel, settings: Settings, schema: Schema
) -> OnlineModel:
    """Restore a packed model."""
    model = OnlineModel(settings, schema)
    learner = make_learner(model.schema, layout.settings)
    check_layout(layout, learner.task, schema.width)
    row = packed.row
    counts = layout.view_part(row, "counts").tolist()
    rows = _order_buffer(layout.view_part(row, "kept"), counts[BUFFERED_ROWS])
    kept = BufferedRows(
        rows[:, ROW_META_FIELDS:].copy(),
        np.zeros((len(rows), 0)),
        rows[:, [Y]],
        *(rows[:, at].copy() for at in (WEIGHT, NUMBER, TRUST)),
    )
    learned = LearnerState(
        (open_session(layout.unpack_state(layout.view_part(row, "belief"))),),
        layout.view_part(row, "columns").copy(),
        make_equal_weights(1),
        counts[SEEN],
        counts[CHANGES],
        ReplayBuffer(layout.keep, 1, kept),
        layout.view_part(row, "tails")[None].copy(),
        ReplayState(
            0.0,
            counts[REPLAY_SINCE],
            bool(counts[REPLAY_CORRECTED]),
            counts[REPLAYED_ROWS],
            counts[LAST_ALARM],
        ),
        specs=layout.settings.list_members(),
        bins=(NO_BINS,),
    )
    model.candidates = (Candidate(learner, learned, 0.0, packed.alarms),)
    model.rows_seen, model.skipped, model.dropped_rows = (
        counts[ROWS_SEEN],
        counts[SKIPPED],
        counts[DROPPED_ROWS],
    )
    model.record.set_card(lambda: _build_scorecard(model, layout, packed))
    return model


def check_numbers(layout: PackedLayout, packed: PackedModel) -> None:
    """Reject numbers that the reader of a model file would reject.

    Raises
    ------
    ModelError
        If a number is out of range, or numbers contradict each other.
    """
    row, limits = packed.row, layout.limits
    counts = layout.view_part(row, "counts")
    used = layout.used_length(counts)
    inside = (row >= limits.low) & (row <= limits.high) | limits.free
    inside |= limits.unknown & np.isnan(row)
    whole_numbers = np.concatenate((counts, layout.view_part(row, "pit"), layout.view_counts(row)))
    sound = (
        inside[:used].all()
        and whole_numbers.min() >= 0
        and whole_numbers.max() < 2**53
        and calibration.is_valid_calibration(layout.view_part(row, "tails")[None])
        and counts[REPLAY_SINCE] <= counts[SEEN]
        and counts[REPLAY_CORRECTED] <= 1
        and len(packed.alarms) <= MAX_ALARM_ROWS
        and all(0 <= alarm < 2**53 for alarm in packed.alarms)
    )
    for name in ("sums", "recent"):  # a mean cannot exceed the largest term
        weight, *sums = layout.view_part(row, name).tolist()
        sound = sound and max(map(abs, sums), default=0.0) <= LARGEST_SUM * weight
    _, total, shift, _ = layout.view_part(row, "constant").tolist()
    if not sound or abs(shift) > 2.0 * LARGEST_TERM * total:
        raise ModelError("is damaged (the numbers of a model are out of range)")
    try:
        LearningCurve.restore(int(counts[CURVE]), [list(packed.points)])
    except ValueError as error:
        raise ModelError(f"is damaged ({error})") from error


def check_layout(layout: PackedLayout, task: TargetType, width: int) -> None:
    """Raise ModelError if a fleet with this target type and width cannot have this layout."""
    config = layout.config
    fits = (
        config.observation == task.observation
        and is_valid_output_count(task, config.outputs)
        and task.supports_batched_kernel
    )
    if not fits or config.inputs > width:
        raise ModelError("is damaged (the layout of a model does not fit the fleet)")


def _order_buffer(kept: FloatArray, count: int) -> FloatArray:
    """Return the buffered rows, oldest first; the buffer is circular once it is full."""
    most = len(kept)
    return kept[:count] if count <= most else np.roll(kept, -(count % most), axis=0)


def _build_scorecard(model: OnlineModel, layout: PackedLayout, packed: PackedModel) -> Scorecard:
    card = Scorecard(model.task, seed=model.settings.seed, sample=0)
    row = packed.row
    score, counts = card.scores[0], layout.view_part(row, "counts").tolist()
    score.rows, score.skipped, score.invalid = counts[SCORED], counts[UNSCORED], counts[INVALID]
    kept = {name: layout.view_part(row, name) for name in ("sums", "recent", "constant", "pit")}
    numeric_metrics.unpack_score(score, kept, layout.figures, layout.curve_figures)
    card.curve = LearningCurve.restore(counts[CURVE], [list(packed.points)])
    card.summaries.rows = counts[CURVE]
    return card


METRIC_FIGURES: Final = ("loss", "coverage_90")
"""Metrics of a learning curve that are stored per key."""
_HEADER: Final = struct.Struct("<5s16sII")


def compute_key_metrics(layout: PackedLayout, rows: FloatArray) -> list[KeyMetrics]:
    """Compute the metrics of packed models (n, size)."""
    weight, *sums = layout.view_part(rows, "sums").T
    extra: dict[str, list[float | None]] = {}
    for figure, total in zip(FIGURES, sums, strict=True):
        if figure.curve in METRIC_FIGURES:
            finish = figure.on_curve or figure.finish
            means = np.divide(total, weight, out=np.full(len(rows), np.nan), where=weight > 0.0)
            extra[figure.curve] = [None if m != m else finish(m) for m in means.tolist()]
    counts = layout.view_counts(rows)
    columns = (counts[:, COUNT.rows].tolist(), *(extra[name] for name in METRIC_FIGURES))
    return list(map(KeyMetrics, *columns, counts[:, COUNT.alarms].tolist()))


def packed_to_bytes(layout: PackedLayout, packed: PackedModel) -> bytes:
    """Serialise a packed model: header, numbers in use, curve points and alarms, checksum."""
    head = _HEADER.pack(PACKED_MAGIC, layout.name, len(packed.points), len(packed.alarms))
    used = layout.used_length(layout.view_part(packed.row, "counts"))
    extra = b""
    if packed.points or packed.alarms:
        points = [[np.nan if v is None else v for v in p.to_json()] for p in packed.points]
        extra = np.array(points, np.float64).tobytes() + np.array(packed.alarms, np.int64).tobytes()
    content = b"".join((head, packed.row[:used].data, extra))
    return content + zlib.crc32(content).to_bytes(4, "little")


def read_layout_name(content: bytes) -> bytes:
    """Return the name of the layout of packed bytes."""
    return bytes(content[len(PACKED_MAGIC) : len(PACKED_MAGIC) + 16])


def is_packed(content: bytes) -> bool:
    """Whether bytes are a packed model rather than a model file."""
    return content.startswith(PACKED_MAGIC)


def packed_from_bytes(layout: PackedLayout, content: bytes) -> PackedModel:
    """Restore a packed model from `packed_to_bytes`; ModelError if the bytes are invalid."""
    row = np.zeros(layout.size)
    try:
        _, _, points, alarms = _HEADER.unpack_from(content)
    except struct.error as error:
        raise ModelError("is damaged (the bytes of a model are cut short)") from error
    after = 56 * points + 8 * alarms + 4
    used = (len(content) - _HEADER.size - after) // 8
    sound = layout.min_size <= used <= layout.size
    sound = sound and _HEADER.size + 8 * used + after == len(content)
    if not sound or zlib.crc32(content[:-4]) != int.from_bytes(content[-4:], "little"):
        raise ModelError("is damaged (a model has a wrong size or checksum)")
    row[:used] = np.frombuffer(content, np.float64, used, _HEADER.size)
    if layout.used_length(layout.view_part(row, "counts")) != used:
        raise ModelError("is damaged (the buffered rows of a model do not fit its counts)")
    packed = PackedModel(row)
    if points or alarms:
        at = _HEADER.size + 8 * used
        extra = np.frombuffer(content, np.float64, 7 * points, at).reshape(-1, 7)
        rows = np.frombuffer(content, np.int64, alarms, at + 56 * points).tolist()
        if not (np.isfinite(extra[:, 0]).all() and not np.isinf(extra).any()):
            raise ModelError("is damaged (the learning curve of a model)")
        curve = tuple(
            CurvePoint(int(count), *(None if np.isnan(v) else v for v in values))
            for count, *values in extra.tolist()
        )
        packed = PackedModel(row, curve, tuple(rows))
    check_numbers(layout, packed)
    return packed
