"""What packed models have in common: each is a row of numbers, and these lie side by side.

The kernel learns them in place (kbnn/core/csrc/herd.h), so the order of counts and of what is kept
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
from kbnn.model.plain import read, value_of
from kbnn.model.rows import LARGEST as LARGEST_VALUE
from kbnn.model.settings import Settings
from kbnn.model.warmup import rows_kept
from kbnn.score.histograms import PIT_BINS
from kbnn.score.score import LARGEST_SUM, count
from kbnn.task.numeric_score import NumericScore

LARGEST: Final = 8192
"""Numbers of a belief up to which it is packed: to copy a larger one costs more than it saves."""
SEEN, CHANGES, MET, SKIPPED, LET_GO, KEPT = range(6)
SCORED, UNSCORED, INVALID, CURVE = range(6, 10)
SINCE, SETTLED, REHEARSED, WARNED = range(10, 14)
COUNTS: Final = 14
"""Numbers of a packed model that count: of its rows, of its record, of what it rehearses."""
Y, WEIGHT, NUMBER, TRUST = range(4)
REST: Final = 4
"""What is kept of a row beside its inputs."""
ORIGIN, TOTAL, SHIFT, SPREAD = range(4)
CONSTANT: Final = 4
"""The best constant of the record, see kbnn.task.numeric_score."""
WHOLE: Final = frozenset(("pit", "counts"))
"""Parts of a packed model that are whole numbers."""
_FIGURES: Final = NumericScore()
FIGURES: Final = tuple(_FIGURES._summed)
NAMES: Final = tuple(_FIGURES._place)
SUMS: Final = 1 + len(FIGURES)
DRAWN: Final = tuple([0, *(1 + at for at in _FIGURES._drawn)])
"""The sums, of which the weight is the first, that a learning curve shows."""
_ROOTS: Final = frozenset(("weight", "rmse", "spread"))
"""Sums that are never negative: of weights, and of squares, of which the root is taken."""
TINY: Final = 5e-324
LARGEST_FLOAT: Final = sys.float_info.max
_SHOWN: Final = frozenset(NAMES[at] for at in _FIGURES._drawn)


class Limits(NamedTuple):
    """Of each number of a packed model: its range, or why it has none.

    free     whole numbers and what is known of tails, which have checks of their own
    unknown  may be NaN: a missing value, or a mean of no rows
    """

    low: FloatArray
    high: FloatArray
    free: NDArray[np.bool_]
    unknown: NDArray[np.bool_]


class Form:
    """What models have in common that lie side by side."""

    def __init__(
        self,
        settings: Settings,
        config: Config,
        seed: int,
        figures: tuple[str, ...] = NAMES,
    ) -> None:
        self.settings, self.config, self.seed = settings, config, seed
        self.figures = figures
        """The names of those that its models' records add up: others at another time."""
        self.drawn = tuple(name for name in figures if name in _SHOWN)
        self.inputs = config.inputs
        self.keep = rows_kept(config.inputs, settings.keep)
        blank = init(config, 0)
        self._shapes = [(name, getattr(blank, name).shape) for name in ARRAYS]
        self._whole = ARRAYS.index("counts")
        before = self._shapes[: self._whole]
        self._counted = sum(math.prod(shape) for _, shape in before)
        self.belief = sum(math.prod(shape) for _, shape in self._shapes)
        width = REST + self.inputs
        self.part: dict[str, tuple[slice, tuple[int, ...]]] = {}
        at = 0
        for name, shape in (
            ("belief", (self.belief,)),
            ("columns", (1 + self.inputs, scaling.FIELDS)),
            ("tails", (tails.FIELDS,)),
            ("sums", (1 + len(figures),)),
            ("recent", (1 + len(self.drawn),)),
            ("constant", (CONSTANT,)),
            ("pit", (PIT_BINS,)),
            ("counts", (COUNTS,)),
            ("kept", (self.keep, width)),
        ):
            self.part[name] = slice(at, at + math.prod(shape)), shape
            at += math.prod(shape)
        self.size, self.least = at, at - self.keep * width

    @cached_property
    def limits(self) -> Limits:
        """The limits of every number of a row, as the reader of model files has them."""
        state = {name: np.full(shape, -BELIEF_LIMIT) for name, shape in self._shapes}
        state["cov"][layout_of(self.config).diagonal] = 0.0
        state["surprise"][:] = 0.0
        state["prior_var"][:] = TINY
        state["noise"][:, : 1 if self.config.kind.noise_signed else None] = TINY
        columns = np.full((1 + self.inputs, scaling.FIELDS), -LARGEST_FLOAT)
        columns[:, [scaling.COUNT, scaling.SQUARES, scaling.SCALE]] = 0.0
        sums = [0.0 if name in _ROOTS else -LARGEST_SUM for name in ("weight", *self.figures)]
        recent = [0.0 if name in _ROOTS else -LARGEST_SUM for name in ("weight", *self.drawn)]
        kept = np.full((self.keep, REST + self.inputs), -LARGEST_VALUE)
        kept[:, [WEIGHT, NUMBER, TRUST]] = TINY, 1.0, 0.0
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
            place = self.part[name][0]
            low[place], high[place] = np.ravel(least), np.ravel(most)
        counted = slice(self._counted, self._counted + len(COUNT))
        for place in (counted, *(self.part[name][0] for name in ("tails", "pit", "counts"))):
            free[place] = True
        unknown = np.zeros(self.size, np.bool_)
        unknown[self.part["constant"][0].start + ORIGIN] = True
        cells = unknown[self.part["kept"][0]].reshape(kept.shape)
        cells[:, Y] = cells[:, REST:] = True
        return Limits(low, high, free, unknown)

    @property
    def present(self) -> bool:
        """Whether its figures are those that are added up now."""
        return self.figures == NAMES

    @property
    def places(self) -> tuple[int, ...]:
        """The same in the kernel's terms (kb_form): where parts begin, and how long some are."""
        named = ("columns", "tails", "sums", "recent", "constant", "pit", "counts", "kept")
        starts = [self.part[name][0].start for name in named]
        return self.size, *starts, self.keep, SUMS, len(DRAWN), PIT_BINS

    def of(self, rows: FloatArray, name: str) -> Any:
        """A part of packed models (..., size), as it is there: a view."""
        place, shape = self.part[name]
        found = rows[..., place]
        found = found.view(np.int64) if name in WHOLE else found
        return found if len(shape) == 1 else found.reshape(*found.shape[:-1], *shape)

    def length(self, counts: IntArray) -> int:
        """How much of a row is in use, with these counts."""
        return self.least + min(int(counts[KEPT]), self.keep) * (REST + self.inputs)

    @cached_property
    def plain(self) -> dict[str, Any]:
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
        text = json.dumps(self.plain, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Form:
        """The inverse of `plain`."""
        settings = Settings.from_json(plain["settings"])
        figures = tuple(value_of(list[str], plain["figures"], "figures"))
        config, seed = read(Config, plain["config"]), count(plain["seed"])
        small = config.weights <= LARGEST and config.weights + layout_of(config).size <= LARGEST
        if not small or config.directions or len(set(figures)) != len(figures) or seed >= 2**63:
            raise ValueError("no packed model has such a form")
        return cls(settings, config, seed, figures)

    def belief_of(self, state: State) -> FloatArray:
        """The arrays of a belief one after another."""
        parts = [getattr(state, name).ravel() for name in ARRAYS]
        parts[self._whole] = parts[self._whole].view(np.float64)
        return np.concatenate(parts)

    def state_of(self, belief: FloatArray) -> State:
        """The belief that `belief_of` laid out, in arrays of its own."""
        arrays: dict[str, Any] = {}
        at = 0
        for name, shape in self._shapes:
            size = math.prod(shape)
            part = belief[at : at + size].copy()
            arrays[name] = (part.view(np.int64) if name == "counts" else part).reshape(shape)
            at += size
        return State(config=self.config, seed=self.seed, **arrays)

    def counted(self, belief: FloatArray) -> IntArray:
        """The counts of beliefs (..., numbers), see kbnn.core.state.Counts."""
        return belief[..., self._counted : self._counted + len(COUNT)].view(np.int64)
