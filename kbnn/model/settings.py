"""Settings of a model, the network that follows from them, alerts, and the limits of its numbers.

`kbnn.option_table` declares the options that set them.

Limits are shared by learning, saving and loading. Learning stays within them, so that every saved
model can be loaded. The reader rejects values beyond them, so that a damaged or forged file cannot
make predictions overflow.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from kbnn.array_types import MAX_ABS_VALUE
from kbnn.core import activations
from kbnn.core.config import DIRECTIONS, INPUT_LIMIT, NO_LIMIT, Config
from kbnn.core.state import ARRAYS, PRIORS, State
from kbnn.data.clock import DAY_SECONDS, MONTH_SECONDS, YEAR_SECONDS
from kbnn.errors import ModelError, UsageError
from kbnn.metrics.samples import MAX_SAMPLED_ROWS
from kbnn.model.ensemble import FEW_OUTPUTS, Member, count_bins
from kbnn.plain_values import read_dataclass
from kbnn.targets.base import TargetType, choose_covariance, given_noise_var
from kbnn.targets.registry import DEFAULT_TYPE, NUMERIC_TYPES, choose_default_type

if TYPE_CHECKING:
    from kbnn.data.schema import Schema

NOISE_WORDS: Final = ("auto", "constant")
MAX_ENSEMBLE: Final = 64
MAX_LAYER_UNITS: Final = 100_000
MAX_REPLAY_RATIO: Final = 100
MAX_PRIOR_VARIANCE: Final = 1e20
MAX_NOISE_SD: Final = 1e100
"""Largest standard deviation in the target's units whose square is finite with a margin."""

REPLAY_ROWS: Final = 1024
"""New rows at the start of a stream for which rows are replayed at the full ratio."""
DEFAULT_REPLAY_RATIO: Final = 8
"""Default number of replayed rows per new row during the first REPLAY_ROWS rows."""


def is_noise(value: object) -> bool:
    """Return whether a value says how the noise is learned, or is its standard deviation."""
    return value in NOISE_WORDS if isinstance(value, str) else _is_within(value, MAX_NOISE_SD)


def is_variance(value: object) -> bool:
    """Return whether a value is a variance, which may be 0."""
    return _is_within(value, MAX_PRIOR_VARIANCE) and value != MAX_PRIOR_VARIANCE


def is_prior_variance(value: object) -> bool:
    """Return whether a value is a rule for prior variances, or a variance above 0."""
    return value in PRIORS if isinstance(value, str) else is_variance(value) and value != 0.0


def is_replay_ratio(value: object) -> bool:
    """Return whether a value says how often early rows are replayed."""
    if isinstance(value, str):
        return value == "auto"
    return isinstance(value, Integral) and 0 <= int(value) <= MAX_REPLAY_RATIO


def _is_within(value: object, most: float) -> bool:
    return isinstance(value, Real) and 0.0 <= float(value) <= most


MAX_BUFFER_ROWS: Final = 2048
"""Capacity of the buffer of the last rows, see kbnn.model.replay."""

WIDE_COVARIANCE_INPUTS: Final = 91
"""Number of inputs from which --covariance auto is wide: groups would hold a single unit."""

REPEATS_BY_COVARIANCE: Final = {
    "paper": 0.35,
    "neuron": 0.7,
    "group": 0.8,
    "full": 0.95,
    "wide": 0.8,
}
"""Variance inflation exponents (`Config.repeats`), chosen on validation parts of training sets."""


DEFAULT_LAYERS: Final = (50,)
"""Hidden layers of a single network."""
ENCODINGS: Final = ("auto", "none", "piecewise")

_FEW_OUTPUT_PORTFOLIOS: Final = {
    "auto": (
        Member(DEFAULT_LAYERS),
        Member((25,), encoding="piecewise"),
        Member((20, 20), covariance="neuron"),
        Member(DEFAULT_LAYERS, replays=False),
    ),
    "best": (
        *(Member(DEFAULT_LAYERS, variant=k) for k in range(3)),
        *(Member((50, 50), covariance="group", variant=k) for k in range(2)),
        *(Member((50,), encoding="piecewise", variant=k) for k in range(2)),
        Member((50, 50), encoding="piecewise"),
        Member(DEFAULT_LAYERS, replays=False),
    ),
}
_MANY_CLASS_PORTFOLIOS: Final = {
    "auto": (
        Member(DEFAULT_LAYERS),
        Member((25,), covariance="neuron", encoding="piecewise"),
        Member(DEFAULT_LAYERS, variant=1),
        Member(DEFAULT_LAYERS, replays=False),
    ),
    "best": (
        *(Member((100,), variant=k) for k in range(2)),
        *(Member((50, 50), covariance="neuron", variant=k) for k in range(2)),
        *(Member((50,), covariance="neuron", encoding="piecewise", variant=k) for k in range(2)),
        Member(DEFAULT_LAYERS, replays=False),
    ),
}
PORTFOLIOS: Final = (*_FEW_OUTPUT_PORTFOLIOS,)
"""Words for the networks of an ensemble, instead of the sizes of layers. Encoded inputs help where
a table is made of thresholds, depth on informative rows, variants on noisy rows; a network without
replay helps where rows are few and noisy or the stream drifts. Many classes need wide networks, and
a joint update of all their outputs would make encoded networks ten times as expensive."""


PRESETS: Final[dict[str, dict[str, Any]]] = {
    "none": {},
    "fast": {"hidden": DEFAULT_LAYERS, "covariance": "neuron", "rehearse": 0},
    "best": {"hidden": "best"},
    "paper": {
        "hidden": (50,),
        "covariance": "paper",
        "noise": 0.0,
        "link": "sigmoid",
        "sigmoid_variance": "printed",
        "robust": False,
        "drift": False,
        "clip": False,
        "widen": False,
        "rehearse": 0,
        "intervals": "stated",
        "kind": "regression",
    },
}
"""Bundles of defaults. `fast` is one cheap network and `best` a large ensemble. `paper` is
Algorithms 1 and 2 as printed: labels are exact, only the weights are learned, and no guards apply.
What the paper leaves open (prior, scale) keeps the usual default; deviations from the printed
formulas are counted, see kbnn.core.paper_smoother."""


class IncompatibleOptionsError(ValueError):
    """Options that exclude each other, named as on the command line."""


@dataclass(frozen=True)
class Settings:
    """The settings of a model, by the names under which model files store them.

    noise             "auto", "constant" or a standard deviation
    hidden_noise      variance added to every hidden unit's output
    rehearse          replay: "auto" or a ratio
    prior_variance    a rule of kbnn.core.state.PRIORS, or the variance of every weight
    link              link of two classes: "probit", or "sigmoid" with a Gaussian label
    sigmoid_variance  "exact", or "printed" for the paper's formula
    units             whether columns are standardised; otherwise their own units are used
    clip, widen       see kbnn.core.config.Config: input_limit, repeats
    intervals         "tracked" (calibrated online) or "stated" (of the predictive distribution)
    kind              target type of numbers; "auto" compares the types that fit the first rows
    encoding          whether numeric inputs are encoded by bins (kbnn.model.ensemble)
    class_weight      "none", "balanced", or the weight of each class as JSON
    preset            the bundle that the defaults come from
    keep, sample      capacity of the buffer of the last rows and of the even sample of all rows
    """

    hidden: tuple[int, ...] | Literal["auto", "best"] = "auto"
    activation: str = "relu"
    covariance: str = "auto"
    group_size: int | None = None
    noise: str | float = "auto"
    hidden_noise: float = 0.0
    robust: bool = True
    drift: bool = True
    ensemble: int = 1
    seed: int = 0
    rehearse: str | int = "auto"
    prior_variance: str | float = "fan-in"
    link: Literal["probit", "sigmoid"] = "probit"
    sigmoid_variance: Literal["exact", "printed"] = "exact"
    units: bool = True
    clip: bool = True
    widen: bool = True
    preset: Literal["none", "fast", "best", "paper"] = "none"
    intervals: Literal["tracked", "stated"] = "tracked"
    kind: str = "auto"
    encoding: Literal["auto", "none", "piecewise"] = "auto"
    class_weight: str = "none"
    keep: int = MAX_BUFFER_ROWS
    sample: int = MAX_SAMPLED_ROWS

    def __post_init__(self) -> None:
        if self.hidden not in PORTFOLIOS:
            object.__setattr__(self, "hidden", tuple(self.hidden))
        self._check_together()
        for name, (is_valid, words) in _RULES.items():
            if not is_valid(getattr(self, name)):
                raise ValueError(f"{name} must be {words}, got {getattr(self, name)!r}")
        for member in self.list_members():
            _build_config(self, member, 1, 1, "gaussian", "group", None)

    def _check_together(self) -> None:
        """Refuse options that exclude each other."""
        bundled = " (it comes with --preset paper)" if self.preset == "paper" else ""
        if self.covariance != "paper":
            if self.hidden_noise:
                raise IncompatibleOptionsError(
                    f"--hidden-noise {self.hidden_noise:g} needs --covariance paper, "
                    f"not {self.covariance}"
                )
            if self.sigmoid_variance == "printed":
                raise IncompatibleOptionsError(
                    f"--sigmoid-variance printed{bundled} needs --covariance paper, "
                    f"not {self.covariance}"
                )
        names = len(activations.split_names(self.activation))
        if names > 1 and self.hidden in PORTFOLIOS:
            raise IncompatibleOptionsError(
                f"--activation {self.activation} is for {names} hidden layers: "
                "--layers must say their sizes"
            )
        if names > 1 and names != len(self.hidden):
            raise IncompatibleOptionsError(
                f"--activation {self.activation} is for {names} hidden layers, "
                f"but --layers {format_setting('hidden', self.hidden)} has {len(self.hidden)}"
            )

    def make_config(
        self, member: Member, task: TargetType, inputs: int, outputs: int, target_scale: float
    ) -> Config:
        """Return the configuration of a network for these numbers of inputs and outputs."""
        noise = given_noise_var(task, self.noise, target_scale)
        suited = choose_covariance(task, outputs)
        return _build_config(self, member, inputs, outputs, task.observation, suited, noise)

    @property
    def replay_ratio(self) -> int:
        """Number of times each early row is replayed."""
        return DEFAULT_REPLAY_RATIO if isinstance(self.rehearse, str) else self.rehearse

    @property
    def replay_rows(self) -> int:
        """Number of rows after which fewer rows are replayed per new row."""
        return REPLAY_ROWS * (2 if self.hidden == "best" else 1)

    @property
    def has_portfolio(self) -> bool:
        """Whether an ensemble of different networks is used: nothing about them was requested."""
        requested = self.covariance != "auto" or self.group_size or self.ensemble > 1
        return self.hidden in PORTFOLIOS and not requested and self.units

    @property
    def is_priced(self) -> bool:
        """Whether networks of the ensemble must pay for their cost."""
        return self.hidden != "best"

    def list_candidates(self, kinds: Sequence[str] = (DEFAULT_TYPE,)) -> list[Settings]:
        """Return the settings of the candidates, one for each target type; the first leads first.

        `kinds` are the target types that the first rows allow.
        """
        if self.kind != "auto" or not self.units or not isinstance(self.noise, str):
            kinds = [choose_default_type(kinds) if self.kind == "auto" else self.kind]
        return [self._with_choices(kind=kind) for kind in kinds]

    def list_members(
        self,
        inputs: int = 0,
        outputs: int = 1,
        is_series: bool = False,
        own_inputs: tuple[int, ...] = (),
        optional_inputs: tuple[int, ...] = (),
    ) -> tuple[Member, ...]:
        """Return the networks of the ensemble.

        An ensemble of different networks is used where nothing about the network was requested.
        Series, whose lags contain the target, use raw inputs and one hidden layer; with other
        columns, one network sees only `own_inputs`, the lags of the target and the clock, and the
        first does not see `optional_inputs`, the lags of other columns. Many classes have a
        portfolio of their own.
        """
        hidden = self.hidden
        if isinstance(hidden, tuple) or not self.has_portfolio:
            encoding = "piecewise" if self.encoding == "piecewise" else "none"
            sizes = hidden if isinstance(hidden, tuple) else DEFAULT_LAYERS
            return tuple(
                Member(sizes, self.covariance, encoding, variant=k) for k in range(self.ensemble)
            )
        few = outputs <= FEW_OUTPUTS
        found = (_FEW_OUTPUT_PORTFOLIOS if few else _MANY_CLASS_PORTFOLIOS)[hidden]
        if is_series:
            plain = found[0]._replace(replays=True)
            found = tuple(member for member in found if member._replace(replays=True) == plain)
            found = (plain._replace(excludes=optional_inputs), *found[1:])
            found += (plain._replace(inputs=own_inputs),) if own_inputs else ()
        if self.encoding == "piecewise":
            found = tuple(member._replace(encoding="piecewise") for member in found)
        elif self.encoding == "none" or count_bins(inputs, outputs) < 2:
            found = tuple(member for member in found if member.encoding == "none")
        if inputs >= WIDE_COVARIANCE_INPUTS:
            found = tuple(member._replace(covariance="auto") for member in found)
        if not self.replay_ratio:
            found = tuple(member._replace(replays=True) for member in found)
        if not is_series:
            found = tuple(
                member._replace(adapts_prior=True, forgets=self.is_priced and not member.replays)
                for member in found
            )
        return tuple(dict.fromkeys(found))

    def _with_choices(self, **choices: Any) -> Settings:
        """Return the settings with these values; the same object if nothing changes."""
        open_ = {name: value for name, value in choices.items() if getattr(self, name) != value}
        return replace(self, **open_) if open_ else self

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the model file."""
        hidden = self.hidden if isinstance(self.hidden, str) else [*self.hidden]
        return {**asdict(self), "hidden": hidden}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Settings:
        """Return the settings from the data of `to_json`."""
        try:
            settings = read_dataclass(cls, plain)
            if not 0 <= settings.seed < 2**63:
                raise ValueError(f"seed cannot be {settings.seed}")
            return settings
        except (TypeError, ValueError) as error:
            raise ModelError(f"the model's settings are damaged ({error})") from error


MAX_CLASS_WEIGHT: Final = 1e6
"""Largest weight of a class, and the inverse of the smallest."""


def is_class_weight(value: object) -> bool:
    """Whether a text is a valid value of `Settings.class_weight`."""
    if value in ("none", "balanced"):
        return True
    try:
        weights = json.loads(str(value))
    except ValueError:
        return False
    return isinstance(weights, dict) and all(
        isinstance(weight, float) and 1.0 / MAX_CLASS_WEIGHT <= weight <= MAX_CLASS_WEIGHT
        for weight in weights.values()
    )


_RULES: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "kind": (lambda value: value in ("auto", *NUMERIC_TYPES), "auto or a numeric target type"),
    "noise": (is_noise, f"auto, constant or a number between 0 and {MAX_NOISE_SD:g}"),
    "hidden_noise": (is_variance, "a variance"),
    "prior_variance": (is_prior_variance, "a rule or a variance above 0"),
    "rehearse": (is_replay_ratio, f"auto or between 0 and {MAX_REPLAY_RATIO}"),
    "class_weight": (is_class_weight, "none, balanced or a JSON object of weights above 0"),
    "keep": (lambda value: 1 <= value <= MAX_BUFFER_ROWS, f"between 1 and {MAX_BUFFER_ROWS}"),
    "sample": (lambda value: 0 <= value <= MAX_SAMPLED_ROWS, f"between 0 and {MAX_SAMPLED_ROWS}"),
    "encoding": (lambda value: value in ENCODINGS, "auto, none or piecewise"),
    "ensemble": (lambda value: 1 <= value <= MAX_ENSEMBLE, f"between 1 and {MAX_ENSEMBLE}"),
}
"""What settings must be, beyond what their types and `Config` say."""


def _count_directions(member: Member, inputs: int) -> int:
    """Return how many leading directions a wide network has; few encoded columns need fewer."""
    return DIRECTIONS if member.encoding == "none" else min(DIRECTIONS, max(4, inputs // 3))


@lru_cache(maxsize=256)  # repeated for every candidate and model
def _build_config(
    settings: Settings,
    member: Member,
    inputs: int,
    outputs: int,
    observation: str,
    suited: str,
    noise: float | None,
) -> Config:
    covariance, group_size = member.covariance, settings.group_size
    if covariance == "auto":
        encoded = member.encoding == "piecewise" and inputs > 0
        wide = encoded or inputs >= WIDE_COVARIANCE_INPUTS
        covariance = "wide" if wide else suited
    if covariance == "wide" and suited == "neuron":  # a joint update of all classes costs too much
        group_size = group_size or 1
    return Config(
        inputs=inputs,
        outputs=outputs,
        hidden=member.hidden,
        activation=settings.activation,
        covariance=covariance,  # type: ignore[arg-type]  # Config checks the word
        group_size=group_size,
        directions=_count_directions(member, inputs) if covariance == "wide" else 0,
        observation=observation,
        noise=noise,
        noise_head=settings.noise == "auto",
        hidden_noise=settings.hidden_noise,
        printed_variance=settings.sigmoid_variance == "printed",
        robust=settings.robust,
        drift=settings.drift,
        input_limit=INPUT_LIMIT if settings.clip and settings.units else NO_LIMIT,
        repeats=REPEATS_BY_COVARIANCE.get(covariance, 0.0) if settings.widen else 0.0,
    )


INTERVAL_MODES: Final = {"calibrated": "tracked", "model": "stated"}
"""The values of --intervals, each with the one that settings and JSON store."""


def format_interval_mode(stored: str) -> str:
    """Return the spelling that users see of a stored interval mode."""
    return next(word for word, value in INTERVAL_MODES.items() if value == stored)


def format_setting(name: str, value: object) -> str:
    """Format the stored value of a setting as users type it."""
    if name == "intervals":
        return format_interval_mode(str(value))
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, bool) or (name == "rehearse" and value == 0):
        return "auto" if value else "off"
    if isinstance(value, float):
        return f"{value:.15g}"
    return "auto" if value is None else str(value)


BELIEF_LIMIT: Final = 1e60
"""Limit of every number in a network's state; one row changes it by at most STEP_LIMIT."""

MAX_CANDIDATES: Final = 64
MAX_REPLAY_BACKLOG: Final = 2.0 * MAX_REPLAY_RATIO * REPLAY_ROWS

ROW_EVIDENCE_LIMIT: Final = 1e5
"""Largest loss of one row in nats. A value that is extreme for every candidate, such as one a
million standard deviations away, counts this much against all of them: only differences between
candidates matter, and rounding would lose them beside sums of 1e16."""

EVIDENCE_LIMIT: Final = 1e9
"""Limit in nats: candidates are compared for at most a few thousand rows."""

TARGET_LIMIT: Final = 2.0 * MAX_ABS_VALUE
"""Limit of a stored target: with lags it may be the difference of two values."""


def is_within_limits(state: State) -> bool:
    """Whether every number of a network's state is finite and within BELIEF_LIMIT."""
    return all(bool(np.all(np.abs(getattr(state, name)) <= BELIEF_LIMIT)) for name in ARRAYS)


# Alerts

DEFAULT_ALERT_RATE: Final = 1e-3
"""False alarms per row."""
MAX_ALERT_RATE: Final = 0.01
"""Episodes that follow within 75 rows are one, so that alerts cannot be more frequent."""
MIN_ALERT_RATE: Final = 1e-9
MAX_WATCHED: Final = 64
"""Inputs that can be watched: each has a detector."""

PERIODS: Final = {
    "hour": 3600.0,
    "day": DAY_SECONDS,
    "week": 7 * DAY_SECONDS,
    "month": MONTH_SECONDS,
    "year": YEAR_SECONDS,
}
"""Periods of a rate of alerts, in seconds."""


class AlertRate(NamedTuple):
    """A rate of false alarms: per row, or per period."""

    alarms: float
    period: str = ""  # one of PERIODS; per row if empty

    def per_row(self, schema: Schema) -> float:
        """Return false alarms per row; UsageError if the rows have no regular time."""
        if not self.period:
            return self.alarms
        step = 0.0 if schema.clock is None else schema.clock.step
        shown = f"--alert-rate {self.alarms:g}/{self.period}"
        if not step > 0.0:
            raise UsageError(
                f"{shown}: needs rows in order of time, with a time column (--time). "
                "Give a rate per row instead, such as 1e-3."
            )
        rate = self.alarms * step / PERIODS[self.period]
        if not MIN_ALERT_RATE <= rate <= MAX_ALERT_RATE:
            raise UsageError(
                f"{shown}: is {rate:.3g} per row at {step:g} seconds between rows, and the rate "
                f"per row must lie between {MIN_ALERT_RATE:g} and {MAX_ALERT_RATE:g}"
            )
        return rate


def parse_alert_rate(value: float | str) -> AlertRate:
    """Parse a rate of false alarms: 1e-3 per row, or 1/week."""
    count, slash, period = str(value).partition("/")
    try:
        rate = AlertRate(float(count), period.strip())
    except ValueError:
        rate = AlertRate(math.nan)
    if slash and rate.period in PERIODS and 0.0 < rate.alarms < math.inf:
        return rate
    if not slash and MIN_ALERT_RATE <= rate.alarms <= MAX_ALERT_RATE:
        return rate
    raise ValueError(
        f"is a rate per row from {MIN_ALERT_RATE:g} to {MAX_ALERT_RATE:g}, or one such as "
        f"1/{', 1/'.join(PERIODS)}; not '{value}'"
    )


def find_numeric_inputs(schema: Schema) -> dict[str, int]:
    """Return the positions in x of the inputs that are numbers, by name."""
    features = set(schema.features)
    return {
        place.column: at
        for at, place in enumerate(schema.layout)
        if place.category is None
        and place.column in features
        and schema.get_column(place.column).kind == "number"
    }


class WatchedColumns(NamedTuple):
    """The inputs that are watched, other numeric inputs, and whether targets are watched too."""

    columns: tuple[str, ...]
    others: tuple[str, ...]  # used to predict the watched ones
    has_targets: bool


def choose_watched(schema: Schema, watch: tuple[str, ...]) -> WatchedColumns:
    """Return the columns that `--watch` names.

    Parameters
    ----------
    schema
        The columns.
    watch
        `target`, `inputs`, `all`, or names of inputs and targets.

    Raises
    ------
    UsageError
        If a column is not numeric, is unknown, or there are too many.
    """
    shown = f"--watch {','.join(watch)}"
    numbers = [*find_numeric_inputs(schema)]
    if watch == ("target",):
        return WatchedColumns((), (), True)
    if schema.id is not None:
        raise UsageError(f"{shown}: cannot be combined with --id, whose labels come without inputs")
    if watch in (("inputs",), ("all",)):
        columns, has_targets = tuple(numbers), watch == ("all",)
        if not columns:
            raise UsageError(f"{shown}: no input is a number")
    else:
        wrong = [name for name in watch if name not in (*numbers, *schema.targets)]
        if wrong:
            known = wrong[0] in [column.name for column in schema.columns]
            reason = "is not a numeric input" if known else "is not a column"
            choice = ", ".join(numbers) or "no column"
            raise UsageError(f"{shown}: '{wrong[0]}' {reason}. Numeric inputs: {choice}.")
        columns = tuple(dict.fromkeys(name for name in watch if name in numbers))
        has_targets = any(name in schema.targets for name in watch)
    if len(columns) > MAX_WATCHED:
        raise UsageError(f"{shown}: {len(columns)} inputs are more than {MAX_WATCHED}")
    others = [name for name in numbers if name not in columns]
    return WatchedColumns(columns, tuple(others[: MAX_WATCHED - len(columns)]), has_targets)
