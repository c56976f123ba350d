"""What packed models have in common: each is a row of numbers, and these lie side by side.

The kernel learns them in place (kbnn/core/csrc/batched.h), so the order of counts and of what is kept
of a row are its own too.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from dataclasses import asdict
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.core import tails
from kbnn.core.config import Config
from kbnn.core.layout import IntArray, layout_of
from kbnn.core.normal import FloatArray
from kbnn.core.state import ARRAYS, COUNT, State, init
from kbnn.model import scaling
from kbnn.model.limits import BELIEF_LIMIT
from kbnn.model.plain import read_dataclass, read_value
from kbnn.model.rows import MAX_ABS_VALUE as LARGEST_VALUE
from kbnn.model.settings import Settings
from kbnn.model.warmup import compute_buffer_rows
from kbnn.score.histograms import PIT_BINS
from kbnn.score.score import LARGEST_SUM, check_stored_count
from kbnn.task.numeric_score import NumericScore

MAX_PACKED_NUMBERS: Final = 8192
"""Numbers of a belief up to which it is packed: to copy a larger one costs more than it saves."""
SEEN, CHANGES, ROWS_SEEN, SKIPPED, DROPPED_ROWS, BUFFERED_ROWS = range(6)
SCORED, UNSCORED, INVALID, CURVE = range(6, 10)
REPLAY_SINCE, REPLAY_CORRECTED, REPLAYED_ROWS, LAST_ALARM = range(10, 14)
COUNT_FIELDS: Final = 14
"""Numbers of a packed model that count: of its rows, of its record, of what it rehearses."""
Y, WEIGHT, NUMBER, TRUST = range(4)
ROW_META_FIELDS: Final = 4
"""What is kept of a row beside its inputs."""
ORIGIN, TOTAL, SHIFT, SPREAD = range(4)
CONSTANT_FIELDS: Final = 4
"""The best constant of the record, see kbnn.task.numeric_score."""
INTEGER_PARTS: Final = frozenset(("pit", "counts"))
"""Parts of a packed model that are whole numbers."""
_SCORE_TEMPLATE: Final = NumericScore()
FIGURES: Final = tuple(_SCORE_TEMPLATE._summed_metrics)
FIGURE_NAMES: Final = tuple(_SCORE_TEMPLATE._index_by_name)
SUM_FIELDS: Final = 1 + len(FIGURES)
CURVE_SUMS: Final = tuple([0, *(1 + at for at in _SCORE_TEMPLATE._curve_indices)])
"""The sums, of which the weight is the first, that a learning curve shows."""
_NONNEGATIVE_SUMS: Final = frozenset(("weight", "rmse", "spread"))
"""Sums that are never negative: of weights, and of squares, of which the root is taken."""
SMALLEST_FLOAT: Final = 5e-324
LARGEST_FLOAT: Final = sys.float_info.max
_CURVE_FIGURES: Final = frozenset(FIGURE_NAMES[at] for at in _SCORE_TEMPLATE._curve_indices)


class PackedLimits(NamedTuple):
    """Of each number of a packed model: its range, or why it has none.

    free     whole numbers and what is known of tails, which have checks of their own
    unknown  may be NaN: a missing value, or a mean of no rows
    """

    low: FloatArray
    high: FloatArray
    free: NDArray[np.bool_]
    unknown: NDArray[np.bool_]


class PackedLayout:
    """What models have in common that lie side by side."""

    def __init__(
        self,
        settings: Settings,
        config: Config,
        seed: int,
        figures: tuple[str, ...] = FIGURE_NAMES,
    ) -> None:
        self.settings, self.config, self.seed = settings, config, seed
        self.figures = figures
        """The names of those that its models' records add up: others at another time."""
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
            ("columns", (1 + self.inputs, scaling.FIELDS)),
            ("tails", (tails.CALIBRATION_FIELDS,)),
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
        """The limits of every number of a row, as the reader of model files has them."""
        state = {name: np.full(shape, -BELIEF_LIMIT) for name, shape in self._shapes}
        state["cov"][layout_of(self.config).variance_positions] = 0.0
        state["surprise"][:] = 0.0
        state["prior_var"][:] = SMALLEST_FLOAT
        state["noise"][:, : 1 if self.config.kind.has_signed_noise else None] = SMALLEST_FLOAT
        columns = np.full((1 + self.inputs, scaling.FIELDS), -LARGEST_FLOAT)
        columns[:, [scaling.COUNT, scaling.SQUARES, scaling.SCALE]] = 0.0
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
        """Whether its figures are those that are added up now."""
        return self.figures == FIGURE_NAMES

    @property
    def kernel_offsets(self) -> tuple[int, ...]:
        """The same in the kernel's terms (kb_packed_layout): where parts begin, and how long some are."""
        named = ("columns", "tails", "sums", "recent", "constant", "pit", "counts", "kept")
        starts = [self.parts[name][0].start for name in named]
        return self.size, *starts, self.keep, SUM_FIELDS, len(CURVE_SUMS), PIT_BINS

    def view_part(self, rows: FloatArray, name: str) -> Any:
        """A part of packed models (..., size), as it is there: a view."""
        place, shape = self.parts[name]
        found = rows[..., place]
        found = found.view(np.int64) if name in INTEGER_PARTS else found
        return found if len(shape) == 1 else found.reshape(*found.shape[:-1], *shape)

    def used_length(self, counts: IntArray) -> int:
        """How much of a row is in use, with these counts."""
        return self.min_size + min(int(counts[BUFFERED_ROWS]), self.keep) * (
            ROW_META_FIELDS + self.inputs
        )

    @cached_property
    def json_data(self) -> dict[str, Any]:
        """The form as plain data."""
        config = {**asdict(self.config), "hidden": list(self.config.hidden)}
        return {
            "settings": self.settings.to_json(),
            "config": config,
            "seed": self.seed,
            "figures": list(self.figures),
        }

    @cached_property
    def name(self) -> bytes:
        """By which models say which form they have."""
        text = json.dumps(self.json_data, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> PackedLayout:
        """The inverse of `plain`."""
        settings = Settings.from_json(plain["settings"])
        figures = tuple(read_value(list[str], plain["figures"], "figures"))
        config, seed = read_dataclass(Config, plain["config"]), check_stored_count(plain["seed"])
        small = (
            config.weights <= MAX_PACKED_NUMBERS
            and config.weights + layout_of(config).size <= MAX_PACKED_NUMBERS
        )
        if not small or config.directions or len(set(figures)) != len(figures) or seed >= 2**63:
            raise ValueError("no packed model has such a form")
        return cls(settings, config, seed, figures)

    def pack_state(self, state: State) -> FloatArray:
        """The arrays of a belief one after another."""
        parts = [getattr(state, name).ravel() for name in ARRAYS]
        parts[self._counts_place] = parts[self._counts_place].view(np.float64)
        return np.concatenate(parts)

    def unpack_state(self, belief: FloatArray) -> State:
        """The belief that `belief_of` laid out, in arrays of its own."""
        arrays: dict[str, Any] = {}
        at = 0
        for name, shape in self._shapes:
            size = math.prod(shape)
            part = belief[at : at + size].copy()
            arrays[name] = (part.view(np.int64) if name == "counts" else part).reshape(shape)
            at += size
        return State(config=self.config, seed=self.seed, **arrays)

    def view_counts(self, belief: FloatArray) -> IntArray:
        """The counts of beliefs (..., numbers), see kbnn.core.state.Counts."""
        return belief[..., self._counts_start : self._counts_start + len(COUNT)].view(np.int64)
