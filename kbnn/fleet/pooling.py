"""A common start: a new key begins from the model of all rows, as wide as keys differ.

Each weight w of a key is drawn around that of the common model, w ~ N(m0, P0 + s^2), where P0 is
what the common model does not know and s^2 by how much keys differ. The common model takes what
sets the levels of keys apart for noise: for the bias of an output s^2 is its noise less that which
keys have found. Of the other weights, s^2 is one number for the biases and one for the rest of each
layer, learned from keys that have met 32 rows, whose means m have moved and whose variances have
shrunk from p0 to p (MacKay's fixed point, empirical Bayes):

    s^2 = 0.1 sum (m - m0)^2 / sum (1 - p/p0)

over the weights of all such keys, later ones counting for more, and the prior for a little. The
factor was chosen by the log density of young keys of made fleets with little and with much noise.

After 64 rows a key begins once more, from what keys begin from by then, and learns its rows anew:
the first keys began when the common model knew next to nothing, and all that they learned later
rested on that.

What the keys of a fleet begin from: the common model as it was where a window of rows began.

The common model learns every row. How far keys have moved from their beginning says how wide the
next ones begin (kbnn.fleet.pooling); keys that come before the common model has begun hold their rows
until it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.kernel import open_session
from kbnn.core.layout import layout_of
from kbnn.core.state import State, init
from kbnn.data.batch import Rows
from kbnn.distributions.calibration import LINK_UNIT
from kbnn.fleet import packing
from kbnn.fleet import packing as of
from kbnn.fleet.packing import PackedLayouts
from kbnn.metrics.figures import restore_floats
from kbnn.metrics.score import check_stored_count
from kbnn.model import file as modelfile
from kbnn.model.candidates import Candidate
from kbnn.model.learner import LearnerState
from kbnn.model.limits import BELIEF_LIMIT
from kbnn.model.model import OnlineModel
from kbnn.model.replay import ReplayState
from kbnn.model.replay_buffer import ReplayBuffer
from kbnn.model.serialize import to_state
from kbnn.model.settings import Settings
from kbnn.plain_values import read_value

SHIFT_ROWS: Final = 32
"""Rows after which a key tells how far it has moved."""
REFIT_ROWS: Final = 64
"""Rows after which a key begins once more, see `begun_again`: what a fleet keeps of each."""
KEY_DISCOUNT: Final = 0.99
"""What a key counts for beside the next one."""
PRIOR_WEIGHT_COUNT: Final = 0.5
"""How many well-known weights the prior counts for, which the widths begin with."""
SHIFT_SHRINKAGE: Final = 0.1
"""Of how far weights have moved, what is expected of the next key. Most of what sets keys apart is
their level, which weights that began wide have taken over in part."""
KEY_NOISE_SHARE: Final = 0.05
"""Of what the common model takes for noise, what is a key's own before any has told."""
MIN_LEVEL_SHARE: Final = 0.1
"""Of the same, what sets keys apart at least."""
MAX_MEAN_LOG_NOISE: Final = 700.0
"""Of a key on average: no noise is beyond the exponential of it."""
NOISE_PRIOR_ROWS: Final = 4.0
"""Rows that the noise of other keys counts for."""


BIASES_AND_WEIGHTS: Final = (np.s_[:, :1], np.s_[:, 1:])
"""The biases of a layer, and its other weights."""


def measure_shift(state: State) -> FloatArray:
    """How far a key has moved: (moved, known) of biases and others by layer, then its noise."""
    layout = layout_of(state.config)
    step = (state.mean - state.prior_mean) ** 2
    gained = np.clip(1.0 - state.cov[layout.variance_positions] / state.prior_var, 0.0, 1.0)
    sums = [
        float(layout.weight_matrix(values, layer)[part].sum())
        for values in (step, gained)
        for layer in range(layout.layers)
        for part in BIASES_AND_WEIGHTS
    ]
    level = np.nan
    if len(state.noise) and not state.config.kind.has_signed_noise:
        level = float(np.mean(np.log(state.noise[:, 1] / state.noise[:, 0])))
    return np.array([*sums, level])


@dataclass
class BetweenKeyVariance:
    """By how much keys differ: sums over keys, (layers, 2) of biases and of other weights."""

    squared_shifts: FloatArray = field(default_factory=lambda: np.zeros((0, 2)))
    information_gains: FloatArray = field(default_factory=lambda: np.zeros((0, 2)))
    log_noise: float = 0.0
    keys: float = 0.0  # discounted

    def add_shift(self, move: FloatArray) -> None:
        """Count in how far a key has moved from its start, see `moved_by`."""
        layers = (len(move) - 1) // 4
        if len(self.squared_shifts) != layers:
            self.squared_shifts, self.information_gains = (
                np.zeros((layers, 2)),
                np.zeros((layers, 2)),
            )
        moved, known = move[:-1].reshape(2, layers, 2)
        self.squared_shifts, self.information_gains = (
            KEY_DISCOUNT * self.squared_shifts + moved,
            KEY_DISCOUNT * self.information_gains + known,
        )
        if not np.isnan(move[-1]):
            self.log_noise = KEY_DISCOUNT * self.log_noise + float(move[-1])
            self.keys = KEY_DISCOUNT * self.keys + 1.0

    def make_initial_state(self, state: State) -> State:
        """The state that a new key begins with, from that of the common model."""
        first, layout = init(state.config), layout_of(state.config)
        noise = self._initial_noise(state)
        cov = state.cov.copy()
        cov[layout.variance_positions] += self._weight_variance(first, state.noise, noise)
        return first._replace(
            seed=state.seed,
            mean=state.mean.copy(),
            cov=cov,
            prior_mean=state.mean.copy(),
            prior_var=cov[layout.variance_positions],
            noise=noise,
            input_mean=state.input_mean.copy(),
            input_cov=state.input_cov.copy(),
        )

    def _weight_variance(self, first: State, common: FloatArray, own: FloatArray) -> FloatArray:
        """By how much each weight of a key differs from the common one, as a variance."""
        layout, spread = layout_of(first.config), first.prior_var.copy()
        sums = np.zeros((2, layout.layers, 2))
        if len(self.squared_shifts) == layout.layers:
            sums[:] = self.squared_shifts, self.information_gains
        for layer in range(layout.layers):
            weights = layout.weight_matrix(spread, layer)
            for place, part in enumerate(BIASES_AND_WEIGHTS):
                moved, known = sums[:, layer, place]
                weights[part] = (SHIFT_SHRINKAGE * moved + PRIOR_WEIGHT_COUNT * weights[part]) / (
                    known + PRIOR_WEIGHT_COUNT
                )
        if len(common) and not first.config.kind.has_signed_noise:
            own_bias = layout.weight_matrix(spread, layout.layers - 1)[: len(common), 0]
            own_bias[:] = _noise_level(common) - _noise_level(own)
        return spread

    def _initial_noise(self, state: State) -> FloatArray:
        if not len(state.noise) or state.config.kind.has_signed_noise:
            return state.noise.copy()
        common = _noise_level(state.noise)
        level = KEY_NOISE_SHARE * common
        if self.keys > 0.0:
            level = np.minimum(np.exp(self.log_noise / self.keys), (1.0 - MIN_LEVEL_SHARE) * common)
        return np.stack([np.full(len(level), NOISE_PRIOR_ROWS), NOISE_PRIOR_ROWS * level], axis=1)

    def to_json(self) -> dict[str, Any]:
        """Plain data for the fleet's state."""
        sums = {"moved": self.squared_shifts.tolist(), "known": self.information_gains.tolist()}
        return {**sums, "log_noise": self.log_noise, "keys": self.keys}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> BetweenKeyVariance:
        """The inverse of `to_json`."""
        moved, known = (
            np.asarray(plain[name], np.float64).reshape(-1, 2) for name in ("moved", "known")
        )
        log_noise, keys = restore_floats([plain["log_noise"], plain["keys"]], (2,)).tolist()
        sums = np.concatenate((moved, known))
        if moved.shape != known.shape or keys < 0.0 or abs(log_noise) > MAX_MEAN_LOG_NOISE * keys:
            raise ValueError("by how much keys differ is damaged")
        if not np.all((sums >= 0.0) & (sums <= BELIEF_LIMIT)):
            raise ValueError("by how much keys differ is damaged")
        return cls(moved, known, log_noise, keys)


def _noise_level(noise: FloatArray) -> FloatArray:
    """The level of a belief about noise, for each output."""
    return np.asarray(noise[:, 1] / noise[:, 0])


def create_pooled_model(
    settings: Settings, common: OnlineModel, widths: BetweenKeyVariance
) -> OnlineModel:
    """The model of a key that begins from the common one."""
    leader = common.racers[0]
    model = OnlineModel.create(settings, common.schema)
    learner = model.make_learner(_key_settings(settings, common))
    tails = learner.task.init_calibration(settings.robust)
    tails[:, LINK_UNIT] = leader.learned.tails[:, LINK_UNIT]
    learned = LearnerState(
        tuple(
            open_session(widths.make_initial_state(member.state()))
            for member in leader.learned.members
        ),
        leader.learned.columns.copy(),
        np.zeros(len(leader.learned.members)),
        leader.learned.seen,
        0,
        ReplayBuffer(settings.keep, len(common.schema.targets)),
        tails,
        ReplayState(since=leader.learned.seen, settled=True),
        learner.task.init_temperature(settings.robust, leader.learned.members[0].config.outputs),
    )
    model.racers = (Candidate(learner, learned),)
    return model


def serialize_initial_model(model: OnlineModel, forms: PackedLayouts) -> bytes:
    """What rests of a key that begins as that model before its first row."""
    said = of.describe_layout(model) if of.supports_packing(model.settings, model.schema) else None
    if said is None:
        return modelfile.to_bytes(*to_state(model))
    form = forms.get_or_create(*said)
    return packing.packed_to_bytes(form, of.pack_model(form, model))


def _key_settings(settings: Settings, common: OnlineModel) -> Settings:
    """The settings of a key that begins from the common model: with what was chosen there."""
    return replace(common.learner.settings, keep=settings.keep, sample=settings.sample)


def refit_pooled(model: OnlineModel, young: OnlineModel) -> OnlineModel:
    """What a key has met, learned from a later beginning; `young` where some of it is not kept.

    The first keys begin from a common model that knows little more than they do. By the time they
    have met their first rows it knows more, and how keys differ too.
    """
    numbers = young.learner_state.kept.rows(young.schema.width).number
    return learn_held_rows(model, young) if len(numbers) and numbers[0] == 1.0 else young


def learn_held_rows(model: OnlineModel, held: OnlineModel) -> OnlineModel:
    """Learn rows that were held: they were answered when they came, and are no news to a record."""
    rows = held.learner_state.kept.rows(model.schema.width)
    if len(rows.y):
        number = rows.number.astype(np.int64)
        x_sd = rows.x_sd if rows.x_sd.shape[1] else None
        model.learn(Rows(rows.x, rows.y, number, x_sd, rows.weight))
        _ = model.card
    model.set_record(lambda: held.card)
    model.skipped, model.met = held.skipped, held.met
    return model


MAX_SHIFT_VALUES: Final = 1 + 4 * 1024
"""Numbers that say how far a key has moved: four of a layer, and its noise."""
EMPTY_MODEL: Final = b""
"""What rests of a key that begins from ignorance."""
MAX_WINDOW_ROWS: Final = 8192
WINDOWS_PER_DOUBLING: Final = 16
"""New keys begin from the common model as it was where a window of the stream began: of 8,192 rows,
and of a sixteenth to an eighth of all rows so far while these are fewer. How far keys have moved
counts from the window after the next on. So no row waits for what the one before has taught."""


def window_start(row: int) -> int:
    """Where the window began in which the row after so many is."""
    size = min(max(1, (1 << row.bit_length()) // WINDOWS_PER_DOUBLING), MAX_WINDOW_ROWS)
    return row // size * size


def window_end(row: int) -> int:
    """Where the window ends in which the row after so many is."""
    size = min(max(1, (1 << row.bit_length()) // WINDOWS_PER_DOUBLING), MAX_WINDOW_ROWS)
    return window_start(row) + size


class Pooling:
    """The common model, if there is one, and what is known of how keys differ from it."""

    def __init__(
        self, settings: Settings, forms: PackedLayouts, common: OnlineModel | None
    ) -> None:
        self.pooled_model = common
        self.key_variance = BetweenKeyVariance()
        self.unpooled_keys: set[str] = set()  # keys that came before the common model had begun
        self._settings, self._layouts = settings, forms
        self._queued_shifts: list[
            tuple[int, list[float]]
        ] = []  # by row, what the widths have to learn
        self._initial: OnlineModel | bytes = EMPTY_MODEL  # what new keys begin from in this window

    @property
    def is_ready(self) -> bool:
        """Whether there is a common model that keys begin from."""
        return self.pooled_model is not None and not self.pooled_model.is_warming_up

    def rows_left_in_window(self, row: int) -> int:
        """Rows that are left in the window of the row after so many; one before it all begins."""
        return window_end(row) - row if self.is_ready else 1

    def results_needed_before(self, row: int) -> int | None:
        """Where a window begins, the row up to which is to be known what became of keys."""
        if not self.is_ready or row != window_start(row):
            return None
        return window_start(row - 1)

    def start_window(self, before: int) -> None:
        """A window begins: how far keys have moved counts for those that are new in it."""
        self._initial = EMPTY_MODEL
        while self._queued_shifts and self._queued_shifts[0][0] <= before:
            self.key_variance.add_shift(np.array(self._queued_shifts.pop(0)[1]))

    def add_shifts(self, first: int, moves: Iterable[tuple[int, FloatArray]]) -> None:
        """Keys have moved that far, by place in a block that begins after so many rows."""
        if self.pooled_model is not None:
            self._queued_shifts += [(first + at + 1, move.tolist()) for at, move in moves]

    def make_initial_bytes(self) -> bytes:
        """What a new key begins from in this window."""
        if self.is_ready and not self._initial:
            self._initial = self.create_new_key_model()
        if isinstance(self._initial, OnlineModel):
            self._initial = serialize_initial_model(self._initial, self._layouts)
        return self._initial

    def create_new_key_model(self) -> OnlineModel:
        """The model of a key of which no more is known than of keys at large."""
        assert self.pooled_model is not None
        return create_pooled_model(self._settings, self.pooled_model, self.key_variance)

    def learn(self, rows: Rows, row: int, again: bool) -> None:
        """The common model goes on, and what this window's keys begin from does not."""
        if self.pooled_model is None:
            return
        if self.is_ready and not self._initial and len(rows.y) < self.rows_left_in_window(row):
            self._initial = self.create_new_key_model()
        self.pooled_model.learn(rows, again)

    def to_json(self) -> dict[str, Any]:
        """Plain data for the fleet's state, beside the common model and `first`."""
        return {
            "young": sorted(self.unpooled_keys),
            "widths": self.key_variance.to_json(),
            "moved": self._queued_shifts,
        }

    def restore(self, plain: Mapping[str, Any], start: bytes) -> None:
        """The inverse of `to_json`."""
        self.unpooled_keys = set(read_value(list[str], plain["young"], "young"))
        self.key_variance = BetweenKeyVariance.from_json(plain["widths"])
        self._queued_shifts = [
            (check_stored_count(row), _check_shift(move)) for row, move in plain.get("moved", [])
        ]
        self._initial = start

    def settled_initial_bytes(self) -> bytes:
        """What keys begin from in this window, as far as that is settled."""
        return self.make_initial_bytes() if self._initial else EMPTY_MODEL


def _check_shift(move: Any) -> list[float]:
    """How far a key has moved, see `moved_by`, from a file; its noise alone may be unknown."""
    values = np.array(move, np.float64)
    fits = values.ndim == 1 and len(values) % 4 == 1 and len(values) <= MAX_SHIFT_VALUES
    if not fits or not np.all(values[:-1] >= 0.0) or np.isinf(values).any():
        raise ValueError("how far a key has moved is damaged")
    return list(move)
