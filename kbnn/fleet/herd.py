"""Packed models side by side: rows of many of them are learned in one call.

What happens among most rows is the same for all: they are scaled, learned, stated, kept and judged,
one after another in the kernel (kbnn/core/csrc/herd.c), each by its own model. A row at which
anything else happens (its scale is looked at or outgrown, the network grows, an alarm, a point of
the learning curve, a key that comes of age) is left alone, and with it the later rows of its model:
whoever asked unpacks it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.core import engine
from kbnn.core.layout import IntArray
from kbnn.core.mixture import Verdicts
from kbnn.core.network import Prediction
from kbnn.core.normal import FloatArray
from kbnn.core.tails import FIRST_GAIN, MEAN_WIDTH
from kbnn.fleet import resting
from kbnn.fleet.form import DRAWN, FIGURES, SUMS, Form
from kbnn.fleet.packed import Packed, check_form
from kbnn.fleet.start import KNOWN, OF_AGE
from kbnn.fleet.store import Standing
from kbnn.model import scaling
from kbnn.model.changes import FIRST_REFIT
from kbnn.model.learner import Learner
from kbnn.model.model import Model
from kbnn.model.rows import Rows
from kbnn.model.schema import Schema
from kbnn.model.settings import Settings
from kbnn.score.curve import FIRST as FIRST_POINT
from kbnn.score.curve import CurvePoint
from kbnn.score.histograms import PIT_BINS
from kbnn.task.base import Scaled
from kbnn.task.forecast import Forecast, taken
from kbnn.task.numeric_score import Judged

ROOM: Final = 1 << 22
"""Bytes of memory that a herd begins with, not used before there are models; from that size on
numpy asks for large pages, which spare every second visit to a model a detour."""
JUDGED: Final = 2
"""What becomes of a row that is learned and counted, see kb_herd_learn; 1: learned, 0: neither."""
_DRAWN: Final = np.array(DRAWN)


class Round(NamedTuple):
    """Which rows were learned, by their places in the block, and what was said of them."""

    done: IntArray
    said: Forecast


class Herd:
    """Models of one form, each at a place of its own."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self._many = engine.open_many(form.config, form.places)
        room = 1 + ROOM // (8 * form.size)
        self._rows = np.zeros((room, form.size))
        self._free = list(range(room))
        self._told: dict[int, tuple[tuple[CurvePoint, ...], tuple[int, ...]]] = {}
        self._ready = np.zeros(room, np.bool_)  # every scale is set
        self._last: tuple[FloatArray | None, bool] = None, False
        self._learner: Learner | None = None
        tracked = form.settings.intervals == "tracked"
        manner = (form.settings.robust, tracked, FIRST_REFIT, FIRST_POINT, KNOWN, OF_AGE)
        self._manner = np.array(manner, np.int64)

    def fits(self, schema: Schema, settings: Settings) -> None:
        """Take rows of this schema from now on."""
        if self._learner is None or self._learner.task.schema is not schema:
            learner = Model(settings, schema).learner_of(self.form.settings)
            check_form(self.form, learner.task, schema.width)
            self._learner = learner

    @property
    def learner(self) -> Learner:
        """How all learn."""
        assert self._learner is not None
        return self._learner

    # Places.

    def put(self, whole: Packed) -> int:
        """Give a model a place."""
        if not self._free:
            self._grow()
        at = self._free.pop()
        self.set(at, whole)
        return at

    def set(self, at: int, whole: Packed) -> None:
        """Let a model be at a place what it is now."""
        self._rows[at] = whole.row
        if whole.points or whole.alarms:
            self._told[at] = whole.points, whole.alarms
        else:
            self._told.pop(at, None)
        if whole.row is not self._last[0]:
            columns = self.form.of(whole.row, "columns")
            fixed = self.learner.passing[: len(columns)] > 0.0
            still = (columns[:, scaling.SCALE] == 0.0) & ~fixed
            ready = not still.any() and columns[0, scaling.COUNT] > 0.0
            self._last = whole.row, bool(ready)
        self._ready[at] = self._last[1]

    def get(self, at: int) -> Packed:
        """The model at a place, as it is there: a view."""
        return Packed(self._rows[at], *self._told.get(at, ((), ())))

    def standings(self, at: IntArray) -> list[Standing]:
        """How the models at these places stand."""
        return resting.standings(self.form, self._rows[at, : self.form.least])

    def drop(self, at: int) -> None:
        """Give up a place."""
        self._told.pop(at, None)
        self._free.append(at)

    def _grow(self) -> None:
        room = len(self._ready)
        more = room // 2
        self._free = list(range(room, room + more))
        # In place where the system can: nobody holds on to what `get` shows.
        self._rows.resize((room + more, self.form.size), refcheck=False)
        self._ready = np.concatenate((self._ready, np.zeros(more, np.bool_)))

    # Rows.

    def predict(self, at: IntArray, rows: Rows, plain: bool) -> Forecast:
        """Predict a row by each of the models at these places; `plain`: intervals as stated."""
        scale, width = self.form.of(self._rows, "columns")[at], self.form.inputs
        z = scaling.standardise(
            scale[:, 1:].reshape(-1, scaling.FIELDS),
            rows.x[:, :width].reshape(1, -1),
            np.tile(self.learner.as_is[:width], len(at)),
        )
        made = self._many.predict(self._rows, at, z)
        known = self.form.of(self._rows, "tails")[at]
        if plain:
            known[:, FIRST_GAIN:MEAN_WIDTH] = 1.0
        return self._forecast(made, scale, known)

    def _forecast(self, made: Prediction, scale: FloatArray, tails: FloatArray) -> Forecast:
        """What models say of a row each: to a task that is one row of many targets."""
        scaled = Scaled(scale[:, 0, scaling.CENTER], scale[:, 0, scaling.SCALE])
        mean, function_var, noise_var = (part.T for part in made[:3])
        one = Prediction(mean, function_var, noise_var, made.probability, made.inlier, made.status)
        said = self.learner.task.forecast(one, scaled, self.form.settings.robust, tails)
        turned = [np.ascontiguousarray(part.swapaxes(0, 1)) for part in said[:4]]
        return Forecast(
            turned[0],
            turned[1],
            turned[2],
            turned[3],
            said.probability,
            said.outlier,
            said.status,
            np.ascontiguousarray(said.stated.swapaxes(0, 1)),
        )

    def learn(self, at: IntArray, rows: Rows) -> Round:
        """Predict and learn each row at its place; some may be left alone."""
        width = self.form.inputs
        y = np.ascontiguousarray(rows.y[:, 0])
        weight = None if rows.weight is None else np.ascontiguousarray(rows.weight)
        became, status, made = self._many.learn(
            self._rows,
            np.argsort(at, kind="stable"),
            at,
            np.ascontiguousarray(rows.x[:, :width]),
            y,
            weight,
            self._alone(at, rows),
            np.ascontiguousarray(self.learner.passing[: 1 + width]),
            self._manner,
        )
        mean, sd, function_sd, noise_sd, outlier, stated, judged = made
        said = Forecast(
            mean[:, None],
            sd[:, None],
            function_sd[:, None],
            noise_sd[:, None],
            np.empty((len(at), 0)),
            outlier,
            status,
            stated[:, None],
        )
        self._count(at, became == JUDGED, y, mean, stated, judged, weight)
        done = np.flatnonzero(became)
        return Round(done, said if len(done) == len(at) else taken(said, done))

    def _alone(self, at: IntArray, rows: Rows) -> bytes:
        """Rows that are beyond what all have in common, a byte for each."""
        alone, width = ~self._ready[at], self.form.inputs
        if rows.x.shape[1] > width:
            alone |= np.any(self.learner._needed(rows.x[:, width:], width), axis=1)
        if rows.x_sd is not None:
            alone |= np.any(rows.x_sd > 0.0, axis=1)
        return alone.tobytes()

    def _count(
        self,
        at: IntArray,
        counted: NDArray[np.bool_],
        y: FloatArray,
        mean: FloatArray,
        stated: FloatArray,
        judged: FloatArray,
        weight: FloatArray | None,
    ) -> None:
        """Count rows into their records, as a score does (kbnn.task.numeric_score)."""
        if not counted.all():
            at, y, mean = at[counted], y[counted], mean[counted]
            stated, judged = stated[counted], judged[counted]
            weight = None if weight is None else weight[counted]
        if not len(at):
            return
        verdicts = Verdicts._make(np.ascontiguousarray(judged.T))
        told = Judged(y, mean, stated, weight, verdicts)
        terms = np.empty((len(at), SUMS))
        terms[:, 0] = told.weight
        for k, figure in enumerate(FIGURES, start=1):
            assert figure.term is not None
            terms[:, k] = figure.term(told)
        if not told.even:
            terms[:, 1:] *= told.weight[:, None]
        bins = np.minimum((verdicts.below * PIT_BINS).astype(np.int64), PIT_BINS - 1)
        self._many.count(self._rows, at, terms, _DRAWN, bins, y)
