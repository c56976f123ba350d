"""Packed models side by side: rows of many of them are learned in a few calls.

A round takes at most one row of each model. What happens among most rows is the same for all: they
are scaled, learned, stated and scored, and these are calls over all rows of the round. A row at
which anything else happens (its scale is looked at or outgrown, the network grows, an alarm, a
point of the learning curve) is left alone, and its model with it: whoever asked unpacks it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.core import engine
from kbnn.core.layout import IntArray
from kbnn.core.network import ALARM, UNLABELLED, Prediction
from kbnn.core.normal import FloatArray
from kbnn.core.tails import FIRST_GAIN, MEAN_WIDTH
from kbnn.fleet import packed as of
from kbnn.fleet.packed import Form, Packed
from kbnn.model import scaling
from kbnn.model.learner import FIRST_REFIT, Learner
from kbnn.model.model import Model
from kbnn.model.rows import Rows
from kbnn.model.schema import Schema
from kbnn.model.settings import Settings
from kbnn.score.curve import FIRST as FIRST_POINT
from kbnn.score.curve import CurvePoint
from kbnn.score.histograms import PIT_BINS
from kbnn.score.rowsums import cut
from kbnn.task.base import Following, Scaled
from kbnn.task.forecast import Forecast
from kbnn.task.numeric_score import Judged

ROOM: Final = 64
"""Places that a herd begins with; it doubles when they are taken."""


class Round(NamedTuple):
    """Which rows were learned, by their places in the round, and what was said of them."""

    done: IntArray
    said: Forecast


class Herd:
    """Models of one form, each at a place of its own."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self._many = engine.open_many(form.config)
        self._rows = np.zeros((ROOM, form.size))
        self._free = list(range(ROOM))
        self._told: dict[int, tuple[tuple[CurvePoint, ...], tuple[int, ...]]] = {}
        self._ready = np.zeros(ROOM, np.bool_)  # every scale is set
        self._last: tuple[FloatArray | None, bool] = None, False
        self._learner: Learner | None = None

    def fits(self, schema: Schema, settings: Settings) -> None:
        """Take rows of this schema from now on."""
        if self._learner is None or self._learner.task.schema is not schema:
            self._learner = Model(settings, schema).learner_of(self.form.settings)

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

    def drop(self, at: int) -> None:
        """Give up a place."""
        self._told.pop(at, None)
        self._free.append(at)

    def _grow(self) -> None:
        room = len(self._ready)
        more = max(ROOM, room // 2)
        self._free = list(range(room, room + more))
        # In place where the system can: nobody holds on to what `get` shows.
        self._rows.resize((room + more, self.form.size), refcheck=False)
        self._ready = np.concatenate((self._ready, np.zeros(more, np.bool_)))

    def _part(self, name: str) -> Any:
        return self.form.of(self._rows, name)

    def met(self, at: IntArray) -> IntArray:
        """Rows that models have met."""
        return np.asarray(self._part("counts")[at, of.MET])

    # Rows.

    def predict(self, at: IntArray, rows: Rows, plain: bool) -> Forecast:
        """Predict a row by each of the models at these places; `plain`: intervals as stated."""
        scale, width = self._part("columns")[at], self.form.inputs
        z = scaling.standardise(
            scale[:, 1:].reshape(-1, scaling.FIELDS),
            rows.x[:, :width].reshape(1, -1),
            np.tile(self.learner.as_is[:width], len(at)),
        )
        made = self._many.run(self._rows, at, z)
        known = self._part("tails")[at]
        if plain:
            known[:, FIRST_GAIN:MEAN_WIDTH] = 1.0
        return self._forecast(made, scale, known, None)

    def learn(self, at: IntArray, rows: Rows) -> Round:
        """Predict and learn a row at each of these places, which differ; some may be left alone."""
        columns, tails, counts = (self._part(name) for name in ("columns", "tails", "counts"))
        open_to = np.flatnonzero(self._open_to(at, rows))
        scale, width = columns[at[open_to]], self.form.inputs
        x, y = rows.x[open_to, :width], rows.y[open_to]
        raw = np.concatenate((y, x), axis=1)
        fixed = np.tile(self.learner.passing[: 1 + width], len(open_to))
        apart = scale.reshape(-1, scaling.FIELDS), np.empty((1, 0)), raw.reshape(1, -1)
        z = scaling.follow(*apart, fixed, True)[1].reshape(raw.shape)
        steady = ~(scale[:, :, scaling.RECENT_SQUARE] > scaling.OUTGROWN).any(axis=1)
        if not steady.all():
            open_to, scale, z = open_to[steady], scale[steady], z[steady]
        weight = None if rows.weight is None else np.ascontiguousarray(rows.weight[open_to])
        places = np.ascontiguousarray(at[open_to])
        labels, inputs = np.ascontiguousarray(z[:, :1]), np.ascontiguousarray(z[:, 1:])
        made = self._many.run(self._rows, places, inputs, labels, weight)
        calm = (made.status.astype(np.int64) & ALARM) == 0
        if not calm.all():
            made = Prediction._make(part[calm] for part in made)
            open_to, scale = open_to[calm], scale[calm]
        here, y = at[open_to], rows.y[open_to]
        weight = None if rows.weight is None else rows.weight[open_to]
        columns[here] = scale
        known = tails[here]
        settings = self.form.settings
        following = Following(
            np.ascontiguousarray(y.T), settings.robust, settings.intervals == "tracked"
        )
        said = self._forecast(made, scale, known, following)
        tails[here] = known
        self._keep(here, rows.x[open_to, :width], y[:, 0], weight, said.outlier)
        self._score(here, y, said, weight)
        for which in (of.SEEN, of.MET, of.CURVE):
            counts[here, which] += 1
        counts[here, of.SKIPPED] += (said.status & UNLABELLED) > 0
        return Round(open_to, said)

    def _open_to(self, at: IntArray, rows: Rows) -> NDArray[np.bool_]:
        """Rows at which nothing is due."""
        counts = self._part("counts")
        seen, curve = counts[at, of.SEEN] + 1, counts[at, of.CURVE] + 1
        due = ((seen & (seen - 1)) == 0) & (seen >= FIRST_REFIT)
        due |= ((curve & (curve - 1)) == 0) & (curve >= FIRST_POINT)
        due |= ~self._ready[at]
        width = self.form.inputs
        if rows.x.shape[1] > width:
            due |= np.any(self.learner._needed(rows.x[:, width:], width), axis=1)
        if rows.x_sd is not None:
            due |= np.any(rows.x_sd > 0.0, axis=1)
        return np.asarray(~due)

    def _forecast(
        self, made: Prediction, scale: FloatArray, tails: FloatArray, following: Following | None
    ) -> Forecast:
        """What models say of a row each: to a task that is one row of many targets."""
        scaled = Scaled(scale[:, 0, scaling.CENTER], scale[:, 0, scaling.SCALE])
        mean, function_var, noise_var = (part.T for part in made[:3])
        one = Prediction(mean, function_var, noise_var, made.probability, made.inlier, made.status)
        robust = self.form.settings.robust
        said = self.learner.task.forecast(one, scaled, robust, tails, following)
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

    def _keep(
        self,
        at: IntArray,
        x: FloatArray,
        y: FloatArray,
        weight: FloatArray | None,
        outlier: FloatArray,
    ) -> None:
        counts, kept = self._part("counts"), self._part("kept")
        rows = np.empty((len(at), of.REST + x.shape[1]))
        rows[:, of.Y], rows[:, of.REST :] = y, x
        rows[:, of.WEIGHT] = 1.0 if weight is None else weight
        rows[:, of.NUMBER] = counts[at, of.MET] + 1
        rows[:, of.TRUST] = 1.0 - outlier if self.form.settings.robust else 1.0
        kept[at, counts[at, of.KEPT] % self.form.keep] = rows
        counts[at, of.KEPT] += 1

    def _score(
        self, at: IntArray, y: FloatArray, said: Forecast, weight: FloatArray | None
    ) -> None:
        """Count a row into each record, as a score does (kbnn.task.numeric_score)."""
        judged = self.learner.task.judge(y, said, weight)[0]
        assert isinstance(judged, Judged)
        counts = self._part("counts")
        known = np.isfinite(y[:, 0])
        counts[at, of.UNSCORED] += ~known
        counts[at, of.INVALID] += known & ~judged.usable
        if not judged.usable.all():
            at = at[judged.usable]
        counts[at, of.SCORED] += 1
        terms = np.empty((len(at), of.SUMS))
        terms[:, 0] = judged.weight
        for k, figure in enumerate(of.FIGURES, start=1):
            assert figure.term is not None
            terms[:, k] = figure.term(judged)
        if not judged.even:
            terms[:, 1:] *= judged.weight[:, None]
        sums, recent, constant, pit = map(self._part, ("sums", "recent", "constant", "pit"))
        sums[at] += terms
        recent[at] += terms[:, of.DRAWN]
        bins = np.minimum((judged.told.below * PIT_BINS).astype(np.int64), PIT_BINS - 1)
        pit[at, bins] += 1
        constant[at] = _constant(constant[at], counts[at, of.SCORED] == 1, judged)


def _constant(known: FloatArray, first: NDArray[np.bool_], judged: Judged) -> FloatArray:
    """Welford's step of each record's best constant."""
    origin, total, shift, spread = known.T.copy()
    origin[first] = cut(judged.y[first])
    with np.errstate(over="ignore"):
        d = cut(judged.y - origin)
    w = judged.weight
    weights, shifts = total + w, shift + w * d
    before = np.divide(shift, total, out=d.copy(), where=total > 0)
    gain = np.maximum(w * (d - before) * (d - shifts / weights), 0.0)
    return np.column_stack((origin, weights, shifts, spread + gain))
