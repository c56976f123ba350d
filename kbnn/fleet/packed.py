"""The model of a key as a few arrays: a tenth of the memory of an object, and what rests on disk.

A model is packed that has begun, has one network of one real target, nothing that races or is
rehearsed, and a record without samples: what a fleet's models are by default once they have begun.
What all such models share, their settings and the shape of their network, is their `Form`. Packed
and unpacked a model is the same to the bit, and so are the bytes of its model file.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from dataclasses import asdict
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from kbnn.core import engine, tails
from kbnn.core.config import Config
from kbnn.core.engine import open_session
from kbnn.core.layout import IntArray, layout_of
from kbnn.core.normal import FloatArray
from kbnn.core.state import ARRAYS, COUNT, State, init
from kbnn.errors import ModelError
from kbnn.fleet.store import PACKED, Standing
from kbnn.model import scaling
from kbnn.model.learner import Learned
from kbnn.model.model import Model
from kbnn.model.plain import read
from kbnn.model.race import Racer
from kbnn.model.rehearsal import Rehearsal
from kbnn.model.schema import Schema
from kbnn.model.settings import Settings
from kbnn.model.warmup import Kept, KeptRows, rows_kept
from kbnn.score.curve import CurvePoint
from kbnn.score.histograms import PIT_BINS
from kbnn.score.scorecard import Scorecard
from kbnn.task.numeric_score import NumericScore
from kbnn.task.real import Real

SEEN, CHANGES, MET, SKIPPED, LET_GO, KEPT = range(6)
SCORED, UNSCORED, INVALID, CURVE = range(6, 10)
SINCE, SETTLED, REHEARSED, WARNED = range(10, 14)
COUNTS: Final = 14
"""Numbers of a packed model that count: of its rows, of its record, of what it rehearses."""
LARGEST: Final = 8192
"""Numbers of a belief up to which it is packed: to copy a larger one costs more than it saves."""
Y, WEIGHT, NUMBER, TRUST = range(4)
REST: Final = 4
"""What is kept of a row beside its inputs."""
ORIGIN, TOTAL, SHIFT, SPREAD = range(4)
CONSTANT: Final = 4
"""The best constant of the record, see kbnn.task.numeric_score."""
WHOLE: Final = frozenset(("pit", "counts"))
"""Parts of a packed model that are whole numbers."""
_HEAD: Final = struct.Struct("<5s16sII")
_FIGURES: Final = NumericScore()
FIGURES: Final = tuple(_FIGURES._summed)
SUMS: Final = 1 + len(FIGURES)
DRAWN: Final = tuple([0, *(1 + at for at in _FIGURES._drawn)])
"""The sums, of which the weight is the first, that a learning curve shows."""


class Packed(NamedTuple):
    """A model: a row of numbers as its form lays them out, points of its curve, its alarms."""

    row: FloatArray
    points: tuple[CurvePoint, ...] = ()
    alarms: tuple[int, ...] = ()


class Form:
    """What models have in common that lie side by side."""

    def __init__(self, settings: Settings, config: Config, seed: int) -> None:
        self.settings, self.config, self.seed = settings, config, seed
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
            ("sums", (SUMS,)),
            ("recent", (len(DRAWN),)),
            ("constant", (CONSTANT,)),
            ("pit", (PIT_BINS,)),
            ("counts", (COUNTS,)),
            ("kept", (self.keep, width)),
        ):
            self.part[name] = slice(at, at + math.prod(shape)), shape
            at += math.prod(shape)
        self.size, self.least = at, at - self.keep * width

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
            "figures": list(_FIGURES._place),
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
        return cls(settings, read(Config, plain["config"]), int(plain["seed"]))

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
        """The counts of a belief, see kbnn.core.state.Counts."""
        return belief[self._counted : self._counted + len(COUNT)].view(np.int64)


def packs(settings: Settings, schema: Schema) -> bool:
    """Whether models of a fleet are packed, once they have begun."""
    return (
        engine.compiled()
        and settings.sample == 0
        and settings.ensemble == 1
        and settings.units
        and len(schema.targets) == 1
        and not schema.lags
        and not schema.wait
    )


def form_of(model: Model) -> tuple[Settings, Config, int] | None:
    """What the form of a model is of, None where it cannot be packed as it is now."""
    racer = model.racers[0]
    learned, settings = racer.learned, racer.learner.settings
    plain = (
        not model.warming_up
        and len(model.racers) == 1
        and len(learned.members) == 1
        and type(racer.learner.task) is Real
        and not settings.often
        and not model.lost
        and racer.evidence == 0.0
        and not learned.log_weight.any()
        and learned.rehearsal.debt == 0.0
        and not learned.kept.rows().x_sd.any()
        and learned.kept.most == rows_kept(learned.members[0].config.inputs, settings.keep)
    )
    if not plain or learned.members[0].config.directions:
        return None
    config = learned.members[0].config
    if config.weights + layout_of(config).size > LARGEST:
        return None
    return settings, config, learned.members[0].state().seed


def packed(form: Form, model: Model) -> Packed:
    """A model of that form in arrays."""
    racer, card = model.racers[0], model.card
    learned, score = racer.learned, card.scores[0]
    assert isinstance(score, NumericScore)
    kept, again = learned.kept.rows(form.inputs), learned.rehearsal
    counts = [learned.seen, learned.changes, model.met, model.skipped, model.let_go, len(kept.y)]
    counts += [score.rows, score.skipped, score.invalid, card.curve.rows]
    counts += [again.since, int(again.settled), again.rows, again.alarm]
    origin = np.nan if score._origin is None else score._origin
    row = np.zeros(form.size)
    for name, part in (
        ("belief", form.belief_of(learned.members[0].state())),
        ("columns", learned.columns),
        ("tails", learned.tails[0]),
        ("sums", np.concatenate(([score._weight], score._sums))),
        ("recent", score._recent),
        ("constant", np.array([origin, score._total, score._shift, score._spread])),
        ("pit", score.pit.counts),
        ("counts", np.array(counts)),
    ):
        form.of(row, name)[:] = part
    form.of(row, "kept")[: len(kept.y)] = np.column_stack(
        (kept.y, kept.weight, kept.number, kept.trust, kept.x)
    )
    return Packed(row, tuple(card.curve.points[0]), racer.alarms)


def unpacked(form: Form, whole: Packed, settings: Settings, schema: Schema) -> Model:
    """The model that was packed."""
    model = Model(settings, schema)
    learner = model.learner_of(form.settings)
    row = whole.row
    counts = form.of(row, "counts").tolist()
    rows = _in_order(form.of(row, "kept"), counts[KEPT])
    kept = KeptRows(
        rows[:, REST:].copy(),
        np.zeros((len(rows), 0)),
        rows[:, [Y]],
        *(rows[:, at].copy() for at in (WEIGHT, NUMBER, TRUST)),
    )
    learned = Learned(
        (open_session(form.state_of(form.of(row, "belief"))),),
        form.of(row, "columns").copy(),
        np.zeros(1),
        counts[SEEN],
        counts[CHANGES],
        Kept(form.keep, 1, kept),
        form.of(row, "tails")[None].copy(),
        Rehearsal(0.0, counts[SINCE], bool(counts[SETTLED]), counts[REHEARSED], counts[WARNED]),
    )
    model.racers = (Racer(learner, learned, 0.0, whole.alarms),)
    model.met, model.skipped, model.let_go = counts[MET], counts[SKIPPED], counts[LET_GO]
    model.remember(lambda: _record(model, form, whole))
    return model


def _in_order(kept: FloatArray, count: int) -> FloatArray:
    """The rows kept, oldest first: once all places are taken, each new one takes the oldest's."""
    most = len(kept)
    return kept[:count] if count <= most else np.roll(kept, -(count % most), axis=0)


def _record(model: Model, form: Form, whole: Packed) -> Scorecard:
    card = Scorecard(model.task, seed=model.settings.seed, sample=0)
    row = whole.row
    score, counts = card.scores[0], form.of(row, "counts").tolist()
    assert isinstance(score, NumericScore)
    score.rows, score.skipped, score.invalid = counts[SCORED], counts[UNSCORED], counts[INVALID]
    sums = form.of(row, "sums")
    score._weight, score._sums = float(sums[0]), sums[1:].copy()
    score._recent = form.of(row, "recent").copy()
    origin, score._total, score._shift, score._spread = form.of(row, "constant").tolist()
    score._origin = None if np.isnan(origin) else origin
    score.pit.counts = form.of(row, "pit").copy()
    card.curve.rows, card.curve.points = counts[CURVE], [list(whole.points)]
    card.summaries.rows = counts[CURVE]
    return card


def standing(form: Form, row: FloatArray) -> Standing:
    """How a packed model stands."""
    weight, *sums = form.of(row, "sums").tolist()
    told: dict[str, float] = {}
    for figure, total in zip(FIGURES, sums, strict=True):
        if figure.curve and weight > 0.0:
            told[figure.curve] = (figure.on_curve or figure.finish)(total / weight)
    counts = form.counted(row)
    rows, alarms = int(counts[COUNT.rows]), int(counts[COUNT.alarms])
    return Standing(rows, told.get("loss"), told.get("coverage_90"), alarms)


def to_bytes(form: Form, whole: Packed) -> bytes:
    """What rests: a head, the row as far as it is in use, points and alarms, and a checksum."""
    head = _HEAD.pack(PACKED, form.name, len(whole.points), len(whole.alarms))
    used = form.length(form.of(whole.row, "counts"))
    told = b""
    if whole.points or whole.alarms:
        points = [[np.nan if v is None else v for v in p.to_json()] for p in whole.points]
        told = np.array(points, np.float64).tobytes() + np.array(whole.alarms, np.int64).tobytes()
    content = head + whole.row[:used].tobytes() + told
    return content + zlib.crc32(content).to_bytes(4, "little")


def form_name(content: bytes) -> bytes:
    """The name of the form that packed bytes have."""
    return bytes(content[len(PACKED) : len(PACKED) + 16])


def is_packed(content: bytes) -> bool:
    """Whether bytes are a packed model and no model file."""
    return content.startswith(PACKED)


def from_bytes(form: Form, content: bytes) -> Packed:
    """The inverse of `to_bytes`; ModelError where the bytes are none of that form."""
    row = np.zeros(form.size)
    try:
        _, name, points, alarms = _HEAD.unpack_from(content)
    except struct.error as error:
        raise ModelError("is damaged (the bytes of a model are cut short)") from error
    after = 56 * points + 8 * alarms + 4
    used = (len(content) - _HEAD.size - after) // 8
    sound = name == form.name and form.least <= used <= form.size
    sound = sound and _HEAD.size + 8 * used + after == len(content)
    if not sound or zlib.crc32(content[:-4]) != int.from_bytes(content[-4:], "little"):
        raise ModelError("is damaged (the bytes of a model do not fit)")
    row[:used] = np.frombuffer(content, np.float64, used, _HEAD.size)
    if form.length(form.of(row, "counts")) != used:
        raise ModelError("is damaged (the rows that a model keeps do not fit)")
    if not points and not alarms:
        return Packed(row)
    at = _HEAD.size + 8 * used
    told = np.frombuffer(content, np.float64, 7 * points, at).reshape(-1, 7).tolist()
    rows = np.frombuffer(content, np.int64, alarms, at + 56 * points).tolist()
    curve = tuple(
        CurvePoint(int(count), *(None if np.isnan(v) else v for v in values))
        for count, *values in told
    )
    return Packed(row, curve, tuple(rows))
