"""Pooling: new keys start from a pooled model of all rows, as uncertain as keys differ.

Each weight w of a key is drawn around that of the pooled model, w ~ N(m0, P0 + s^2), where P0 is
the uncertainty of the pooled model and s^2 the variance between keys. The pooled model sees
different levels of keys as noise: for the bias of an output, s^2 is its noise minus the noise found
by keys. For the other weights, s^2 is one number for the biases and one for the rest of each layer,
estimated from keys with 32 rows, whose means m have moved and whose variances have shrunk from p0
to p (MacKay's fixed point, empirical Bayes):

    s^2 = 0.1 sum (m - m0)^2 / sum (1 - p/p0)

over the weights of all such keys. Later keys count more, and the prior counts a little. The factor
was chosen by the log density of the first rows of keys in simulated fleets with little and with
much noise.

After 64 rows a key restarts from the current initial model and relearns its rows, because the first
keys started from a pooled model that knew little.

The pooled model learns every row. New keys start from its state at the start of a window of rows.
Keys that come before the pooled model has finished its warm-up hold their rows until it has.
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
from kbnn.fleet.packing import PackedLayouts
from kbnn.metrics.figures import check_stored_count, restore_floats
from kbnn.model import file as modelfile
from kbnn.model.candidates import Candidate
from kbnn.model.learner import LearnerState, make_learner
from kbnn.model.model import OnlineModel
from kbnn.model.replay import ReplayBuffer, ReplayState
from kbnn.model.serialize import to_state
from kbnn.model.settings import BELIEF_LIMIT, Settings
from kbnn.plain_values import read_value
from kbnn.targets.classification import init_class_temperature

SHIFT_ROWS: Final = 32
"""Rows after which the shift of a key is measured."""
REFIT_ROWS: Final = 64
"""Rows after which a key is refitted, see `refit_pooled`; a fleet buffers as many per key."""
KEY_DISCOUNT: Final = 0.99
"""Weight of a key relative to the next one."""
PRIOR_WEIGHT_COUNT: Final = 0.5
"""Number of fully known weights that the prior variance counts for."""
SHIFT_SHRINKAGE: Final = 0.1
"""Share of the squared shifts that is expected of the next key. Keys differ mostly in their level,
part of which weights with a wide prior have absorbed."""
KEY_NOISE_SHARE: Final = 0.05
"""Noise of a key as a share of the pooled model's noise, before any key was measured."""
MIN_LEVEL_SHARE: Final = 0.1
"""Smallest share of the pooled model's noise that is attributed to levels of keys."""
MAX_MEAN_LOG_NOISE: Final = 700.0
"""Limit of the mean log noise of keys, so that its exponential is finite."""
NOISE_PRIOR_ROWS: Final = 4.0
"""Rows that the noise of other keys counts for."""
BIASES_AND_WEIGHTS: Final = (np.s_[:, :1], np.s_[:, 1:])
"""Slices of the biases of a layer, and of its other weights."""


def measure_shift(state: State) -> FloatArray:
    """Measure how far a key has moved from its initial state.

    Returns sum (m - m0)^2 of biases and of other weights by layer, sum (1 - p/p0) likewise, and
    last the mean log noise (NaN if there is none).
    """
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
    """Sums over keys that estimate how much keys differ: (layers, 2), biases and other weights."""

    squared_shifts: FloatArray = field(default_factory=lambda: np.zeros((0, 2)))
    information_gains: FloatArray = field(default_factory=lambda: np.zeros((0, 2)))
    log_noise: float = 0.0
    keys: float = 0.0  # discounted

    def add_shift(self, move: FloatArray) -> None:
        """Add the shift of a key, see `measure_shift`."""
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
        """Return the initial state of a new key, given the state of the pooled model."""
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
        """Return the variance of each weight between keys."""
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
        """Return the initial noise of a key: the mean of keys, or a share of the pooled noise."""
        if not len(state.noise) or state.config.kind.has_signed_noise:
            return state.noise.copy()
        common = _noise_level(state.noise)
        level = KEY_NOISE_SHARE * common
        if self.keys > 0.0:
            level = np.minimum(np.exp(self.log_noise / self.keys), (1.0 - MIN_LEVEL_SHARE) * common)
        return np.stack([np.full(len(level), NOISE_PRIOR_ROWS), NOISE_PRIOR_ROWS * level], axis=1)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the fleet's state."""
        sums = {"moved": self.squared_shifts.tolist(), "known": self.information_gains.tolist()}
        return {**sums, "log_noise": self.log_noise, "keys": self.keys}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> BetweenKeyVariance:
        """Restore from `to_json`."""
        moved, known = (
            np.asarray(plain[name], np.float64).reshape(-1, 2) for name in ("moved", "known")
        )
        log_noise, keys = restore_floats([plain["log_noise"], plain["keys"]], (2,)).tolist()
        sums = np.concatenate((moved, known))
        if moved.shape != known.shape or keys < 0.0 or abs(log_noise) > MAX_MEAN_LOG_NOISE * keys:
            raise ValueError("the variance between keys is damaged")
        if not np.all((sums >= 0.0) & (sums <= BELIEF_LIMIT)):
            raise ValueError("the variance between keys is damaged")
        return cls(moved, known, log_noise, keys)


def _noise_level(noise: FloatArray) -> FloatArray:
    """Return the noise variance of each output."""
    return np.asarray(noise[:, 1] / noise[:, 0])


def create_pooled_model(
    settings: Settings, common: OnlineModel, widths: BetweenKeyVariance
) -> OnlineModel:
    """Create the model of a key that starts from the pooled model."""
    leader = common.candidates[0]
    model = OnlineModel(settings, common.schema)
    learner = make_learner(model.schema, _key_settings(settings, common))
    calibration = learner.task.init_calibration(settings.robust)
    calibration[:, LINK_UNIT] = leader.learned.calibration[:, LINK_UNIT]
    learned = LearnerState(
        tuple(
            open_session(widths.make_initial_state(member.state()))
            for member in leader.learned.members
        ),
        leader.learned.columns.copy(),
        leader.learned.pool,
        leader.learned.seen,
        0,
        ReplayBuffer(settings.keep, len(common.schema.targets)),
        calibration,
        ReplayState(since=leader.learned.seen, is_corrected=True),
        init_class_temperature(
            learner.task.labels, settings.robust, leader.learned.members[0].config.outputs
        ),
        leader.learned.specs,
        leader.learned.bins,
    )
    model.candidates = (Candidate(learner, learned),)
    return model


def serialize_initial_model(model: OnlineModel, layouts: PackedLayouts) -> bytes:
    """Serialise the initial model of a key."""
    description = (
        packing.describe_layout(model)
        if packing.supports_packing(model.settings, model.schema)
        else None
    )
    if description is None:
        return modelfile.to_bytes(*to_state(model))
    layout = layouts.get_or_create(*description)
    return packing.packed_to_bytes(layout, packing.pack_model(layout, model))


def _key_settings(settings: Settings, common: OnlineModel) -> Settings:
    """Return the settings of a key that starts from the pooled model, with its choices."""
    return replace(common.learner.settings, keep=settings.keep, sample=settings.sample)


def refit_pooled(model: OnlineModel, current: OnlineModel) -> OnlineModel:
    """Relearn the rows of a key from the current initial model, if all of them are buffered.

    The first keys start from a pooled model that knows little more than they do. By the time they
    have REFIT_ROWS rows, it knows more, also about how keys differ.
    """
    numbers = current.learner_state.buffer.rows(current.schema.width).number
    return learn_held_rows(model, current) if len(numbers) and numbers[0] == 1.0 else current


def learn_held_rows(model: OnlineModel, held: OnlineModel) -> OnlineModel:
    """Learn buffered rows of `held`; its record is kept, because the rows were scored before."""
    rows = held.learner_state.buffer.rows(model.schema.width)
    if len(rows.y):
        number = rows.number.astype(np.int64)
        x_sd = rows.x_sd if rows.x_sd.shape[1] else None
        model.learn(Rows(rows.x, rows.y, number, x_sd, rows.weight))
        _ = model.card
    model.record.set_card(lambda: held.card)
    model.skipped, model.rows_seen = held.skipped, held.rows_seen
    return model


FORMER_UNPOOLED_KEY: Final = "young"
"""Name of the unpooled keys in fleets saved before version 0.2.0."""
MAX_SHIFT_VALUES: Final = 1 + 4 * 1024
"""Largest length of a stored shift: four numbers per layer, and the noise."""
EMPTY_MODEL: Final = b""
"""Stored bytes of a key that starts from the prior."""
MAX_WINDOW_ROWS: Final = 8192
WINDOWS_PER_DOUBLING: Final = 16
"""New keys start from the pooled model at the start of a window of 8,192 rows, or of a sixteenth to
an eighth of all rows so far while these are fewer. Shifts of keys take effect from the window after
the next on, so that no row has to wait for the result of the row before."""


def window_start(row: int) -> int:
    """Return the start of the window that contains the next row after `row` rows."""
    size = min(max(1, (1 << row.bit_length()) // WINDOWS_PER_DOUBLING), MAX_WINDOW_ROWS)
    return row // size * size


def window_end(row: int) -> int:
    """Return the end of the window that contains the next row after `row` rows."""
    size = min(max(1, (1 << row.bit_length()) // WINDOWS_PER_DOUBLING), MAX_WINDOW_ROWS)
    return window_start(row) + size


class Pooling:
    """The pooled model, if there is one, and the variance between keys."""

    def __init__(
        self, settings: Settings, layouts: PackedLayouts, common: OnlineModel | None
    ) -> None:
        self.pooled_model = common
        self.key_variance = BetweenKeyVariance()
        self.unpooled_keys: set[str] = set()  # keys seen before the pooled model was ready
        self._settings, self._layouts = settings, layouts
        # Row and shift of keys that are not yet added to `key_variance`.
        self._queued_shifts: list[tuple[int, list[float]]] = []
        self._initial: OnlineModel | bytes = EMPTY_MODEL  # initial model of this window

    @property
    def is_ready(self) -> bool:
        """Whether there is a pooled model that new keys can start from."""
        return self.pooled_model is not None and not self.pooled_model.is_warming_up

    def rows_left_in_window(self, row: int) -> int:
        """Return the rows left in the window of the next row; 1 until the pooled model is ready."""
        return window_end(row) - row if self.is_ready else 1

    def results_needed_before(self, row: int) -> int | None:
        """At the start of a window, return the row up to which results are needed; else None."""
        if not self.is_ready or row != window_start(row):
            return None
        return window_start(row - 1)

    def start_window(self, before: int) -> None:
        """Start a window: shifts of keys measured before a row count for its new keys."""
        self._initial = EMPTY_MODEL
        while self._queued_shifts and self._queued_shifts[0][0] <= before:
            self.key_variance.add_shift(np.array(self._queued_shifts.pop(0)[1]))

    def add_shifts(self, first: int, moves: Iterable[tuple[int, FloatArray]]) -> None:
        """Queue shifts of keys, by position in a block that starts after `first` rows."""
        if self.pooled_model is not None:
            self._queued_shifts += [(first + at + 1, move.tolist()) for at, move in moves]

    def make_initial_bytes(self) -> bytes:
        """Return the serialised initial model of new keys in this window."""
        if self.is_ready and not self._initial:
            self._initial = self.create_new_key_model()
        if isinstance(self._initial, OnlineModel):
            self._initial = serialize_initial_model(self._initial, self._layouts)
        return self._initial

    def create_new_key_model(self) -> OnlineModel:
        """Create the model of a key without rows."""
        assert self.pooled_model is not None
        return create_pooled_model(self._settings, self.pooled_model, self.key_variance)

    def learn(self, rows: Rows, row: int, again: bool) -> None:
        """Update the pooled model; the initial model of this window does not change."""
        if self.pooled_model is None:
            return
        if self.is_ready and not self._initial and len(rows.y) < self.rows_left_in_window(row):
            self._initial = self.create_new_key_model()
        self.pooled_model.learn(rows, again)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the fleet's state, without the pooled and the initial model."""
        return {
            "unpooled": sorted(self.unpooled_keys),
            "widths": self.key_variance.to_json(),
            "moved": self._queued_shifts,
        }

    def restore(self, plain: Mapping[str, Any], start: bytes) -> None:
        """Restore from `to_json` and the bytes of the initial model."""
        unpooled = plain["unpooled" if "unpooled" in plain else FORMER_UNPOOLED_KEY]
        self.unpooled_keys = set(read_value(list[str], unpooled, "unpooled"))
        self.key_variance = BetweenKeyVariance.from_json(plain["widths"])
        self._queued_shifts = [
            (check_stored_count(row), _check_shift(move)) for row, move in plain.get("moved", [])
        ]
        self._initial = start

    def settled_initial_bytes(self) -> bytes:
        """Return the initial model of this window if it is fixed already, else EMPTY_MODEL."""
        return self.make_initial_bytes() if self._initial else EMPTY_MODEL


def _check_shift(move: Any) -> list[float]:
    """Check a stored shift, see `measure_shift`; only its noise may be NaN."""
    values = np.array(move, np.float64)
    fits = values.ndim == 1 and len(values) % 4 == 1 and len(values) <= MAX_SHIFT_VALUES
    if not fits or not np.all(values[:-1] >= 0.0) or np.isinf(values).any():
        raise ValueError("the shift of a key is damaged")
    return list(move)
