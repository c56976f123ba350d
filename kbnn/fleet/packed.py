"""The model of a key as a few arrays: a tenth of the memory of an object, and what rests on disk.

A model is packed that has begun, has one network of one real target, nothing that races or is
rehearsed, and a record without samples: what a fleet's models are by default once they have begun.
What all such models share, their settings and the shape of their network, is their `Form`. Packed
and unpacked a model is the same to the bit, and so are the bytes of its model file.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from dataclasses import asdict
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from kbnn.core import engine, tails
from kbnn.core.config import Config
from kbnn.core.engine import open_session
from kbnn.core.layout import IntArray
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
Y, WEIGHT, NUMBER, TRUST = range(4)
REST: Final = 4
"""What is kept of a row beside its inputs."""
ORIGIN, TOTAL, SHIFT, SPREAD = range(4)
CONSTANT: Final = 4
"""The best constant of the record, see kbnn.task.numeric_score."""
_HEAD: Final = struct.Struct("<5s16sIII")
_FIGURES: Final = NumericScore()
FIGURES: Final = tuple(_FIGURES._summed)
SUMS: Final = 1 + len(FIGURES)
DRAWN: Final = tuple([0, *(1 + at for at in _FIGURES._drawn)])
"""The sums, of which the weight is the first, that a learning curve shows."""


class Packed(NamedTuple):
    """A model; what is kept of the last rows is in their order."""

    belief: FloatArray  # every array of the belief, one after another
    columns: FloatArray  # of the target and the inputs, see kbnn.model.scaling
    tails: FloatArray
    x: FloatArray  # (kept, inputs)
    rest: FloatArray  # (kept, REST)
    sums: FloatArray  # of the record: weight, then the sums of its figures
    recent: FloatArray  # and those of the curve since its last point
    constant: FloatArray
    pit: IntArray
    counts: IntArray
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
        self._counted = sum(int(np.prod(shape)) for _, shape in before)
        self.belief = sum(int(np.prod(shape)) for _, shape in self._shapes)
        self.tails = tails.FIELDS

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
            size = int(np.prod(shape))
            part = belief[at : at + size].copy()
            arrays[name] = (part.view(np.int64) if name == "counts" else part).reshape(shape)
            at += size
        return State(config=self.config, seed=self.seed, **arrays)

    def counted(self, belief: FloatArray) -> IntArray:
        """The counts of a belief, see kbnn.core.state.Counts."""
        return belief[self._counted : self._counted + len(COUNT)].view(np.int64)

    def shapes(self, kept: int) -> list[tuple[tuple[int, ...], type]]:
        """Shape and type of each array of a packed model with so many rows kept."""
        return [
            ((self.belief,), np.float64),
            ((1 + self.inputs, scaling.FIELDS), np.float64),
            ((self.tails,), np.float64),
            ((kept, self.inputs), np.float64),
            ((kept, REST), np.float64),
            ((SUMS,), np.float64),
            ((len(DRAWN),), np.float64),
            ((CONSTANT,), np.float64),
            ((PIT_BINS,), np.int64),
            ((COUNTS,), np.int64),
        ]


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
    state = learned.members[0].state()
    return settings, state.config, state.seed


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
    return Packed(
        form.belief_of(learned.members[0].state()),
        learned.columns,
        learned.tails[0],
        kept.x,
        np.column_stack((kept.y, kept.weight, kept.number, kept.trust)),
        np.concatenate(([score._weight], score._sums)),
        score._recent,
        np.array([origin, score._total, score._shift, score._spread]),
        score.pit.counts,
        np.array(counts),
        tuple(card.curve.points[0]),
        racer.alarms,
    )


def unpacked(form: Form, whole: Packed, settings: Settings, schema: Schema) -> Model:
    """The model that was packed."""
    model = Model(settings, schema)
    learner = model.learner_of(form.settings)
    counts, rest = whole.counts.tolist(), whole.rest
    kept = KeptRows(
        whole.x.copy(),
        np.zeros((len(rest), 0)),
        rest[:, [Y]],
        *(rest[:, at].copy() for at in (WEIGHT, NUMBER, TRUST)),
    )
    learned = Learned(
        (open_session(form.state_of(whole.belief)),),
        whole.columns.copy(),
        np.zeros(1),
        counts[SEEN],
        counts[CHANGES],
        Kept(form.keep, 1, kept),
        whole.tails[None].copy(),
        Rehearsal(0.0, counts[SINCE], bool(counts[SETTLED]), counts[REHEARSED], counts[WARNED]),
    )
    model.racers = (Racer(learner, learned, 0.0, whole.alarms),)
    model.met, model.skipped, model.let_go = counts[MET], counts[SKIPPED], counts[LET_GO]
    model.remember(lambda: _record(model, whole))
    return model


def _record(model: Model, whole: Packed) -> Scorecard:
    card = Scorecard(model.task, seed=model.settings.seed, sample=0)
    score, counts = card.scores[0], whole.counts.tolist()
    assert isinstance(score, NumericScore)
    score.rows, score.skipped, score.invalid = counts[SCORED], counts[UNSCORED], counts[INVALID]
    score._weight, score._sums = float(whole.sums[0]), whole.sums[1:].copy()
    score._recent = whole.recent.copy()
    origin, score._total, score._shift, score._spread = whole.constant.tolist()
    score._origin = None if np.isnan(origin) else origin
    score.pit.counts = whole.pit.copy()
    card.curve.rows, card.curve.points = counts[CURVE], [list(whole.points)]
    card.summaries.rows = counts[CURVE]
    return card


def standing(form: Form, belief: FloatArray, sums: FloatArray) -> Standing:
    """How a packed model stands."""
    score = NumericScore()
    score._weight, score._sums = float(sums[0]), sums[1:]
    lines = score.lines()
    counts = form.counted(belief)
    rows, alarms = int(counts[COUNT.rows]), int(counts[COUNT.alarms])
    return Standing(rows, lines["loss"][0], lines["coverage_90"][0], alarms)


def to_bytes(form: Form, whole: Packed) -> bytes:
    """What rests: a head, the arrays, points of the curve and alarms, and a checksum."""
    head = _HEAD.pack(PACKED, form.name, len(whole.rest), len(whole.points), len(whole.alarms))
    parts = [head, *(np.ascontiguousarray(part).tobytes() for part in whole[:10])]
    if whole.points:
        told = [[np.nan if v is None else v for v in p.to_json()] for p in whole.points]
        parts.append(np.array(told, np.float64).tobytes())
    parts.append(np.array(whole.alarms, np.int64).tobytes())
    content = b"".join(parts)
    return content + zlib.crc32(content).to_bytes(4, "little")


def form_name(content: bytes) -> bytes:
    """The name of the form that packed bytes have."""
    return bytes(content[len(PACKED) : len(PACKED) + 16])


def is_packed(content: bytes) -> bool:
    """Whether bytes are a packed model and no model file."""
    return content.startswith(PACKED)


def from_bytes(form: Form, content: bytes) -> Packed:
    """The inverse of `to_bytes`; ModelError where the bytes are none of that form."""
    try:
        _, name, kept, points, alarms = _HEAD.unpack_from(content)
        shapes = form.shapes(kept)
        size = sum(8 * int(np.prod(shape)) for shape, _ in shapes) + 56 * points + 8 * alarms
        sound = name == form.name and _HEAD.size + size + 4 == len(content)
        if not sound or zlib.crc32(content[:-4]) != int.from_bytes(content[-4:], "little"):
            raise ModelError("is damaged (the bytes of a model do not fit)")
    except struct.error as error:
        raise ModelError("is damaged (the bytes of a model are cut short)") from error
    at = _HEAD.size
    arrays: list[Any] = []
    for shape, kind in shapes:
        many = int(np.prod(shape))
        arrays.append(np.frombuffer(content, kind, many, at).reshape(shape))
        at += 8 * many
    told = np.frombuffer(content, np.float64, 7 * points, at).reshape(-1, 7).tolist()
    rows = np.frombuffer(content, np.int64, alarms, at + 56 * points).tolist()
    curve = tuple(
        CurvePoint(int(row), *(None if np.isnan(v) else v for v in values)) for row, *values in told
    )
    return Packed._make([*arrays, curve, tuple(rows)])
