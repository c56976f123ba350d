"""Settings of a model, the options that set them, and the network that follows from them.

`OPTIONS` declares each setting's option once: flag, help, parser and fixed values. A parser raises
ValueError with the values that the option takes. `Settings` holds the values that are stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, get_args

from kbnn.core import activations
from kbnn.core.config import INPUT_LIMIT, NO_LIMIT, Config, Covariance
from kbnn.core.state import PRIORS
from kbnn.errors import ModelError, UsageError
from kbnn.metrics.samples import MAX_SAMPLED_ROWS
from kbnn.model.replay import DEFAULT_REPLAY_RATIO
from kbnn.plain_values import read_dataclass
from kbnn.targets.base import TargetType, choose_covariance, given_noise_var
from kbnn.targets.registry import DEFAULT_TYPE, NUMERIC_TYPES, choose_default_type

ACTIVATION_NAMES: Final = f"{', '.join(activations.ACTIVATIONS)} or max(alpha,beta)"
LAYER_WORDS: Final = ("none", "auto")
NOISE_WORDS: Final = ("auto", "constant")
GUARD_WORDS: Final = ("auto", "off")
MAX_LAYER_UNITS: Final = 100_000
MAX_REPLAY_RATIO: Final = 100
MAX_PRIOR_VARIANCE: Final = 1e20
MOST_NOISE: Final = 1e100
"""Largest standard deviation in the target's units whose square is finite with a margin."""


def parse_layers(text: str) -> tuple[int, ...] | str:
    """Parse the sizes of the hidden layers."""
    if text.strip() in ("none", "0"):
        return ()
    if text.strip() == "auto":
        return "auto"
    sizes = [part.strip() for part in text.split(",")]
    if not all(size.isdecimal() and 0 < int(size) <= MAX_LAYER_UNITS for size in sizes):
        raise ValueError(f"takes sizes such as 50 or 50,50, none or auto; not '{text}'")
    return tuple(int(size) for size in sizes)


def parse_noise(text: str) -> str | float:
    """Parse how the noise is learned, or its standard deviation."""
    if text in NOISE_WORDS:
        return text
    number = _parse_float(text)
    if not 0.0 <= number <= MOST_NOISE:
        words = "auto, constant, or a standard deviation in the target's units"
        raise ValueError(f"is {words}, at most {MOST_NOISE:g}; not '{text}'")
    return number


def make_integer_parser(least: int, most: int | None, shown: str = "") -> Callable[[str], int]:
    """Make the parser of a whole number within limits."""
    shown = shown or str(most)

    def parse_integer(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError(f"takes a whole number, not '{text}'") from None
        if not least <= number <= (math.inf if most is None else most):
            limits = "be at least 1" if most is None else f"lie between {least} and {shown}"
            raise ValueError(f"must {limits}, not {number}")
        return number

    return parse_integer


def make_choice_parser(*words: str) -> Callable[[str], str]:
    """Make the parser of one of several words."""

    def parse_choice(text: str) -> str:
        if text not in words:
            raise ValueError(f"is {', '.join(words[:-1])} or {words[-1]}, not '{text}'")
        return text

    return parse_choice


def parse_switch(text: str) -> bool:
    """Parse auto (True) or off (False)."""
    return make_choice_parser(*GUARD_WORDS)(text) == "auto"


def parse_replay_ratio(text: str) -> str | int:
    """Parse auto, off, or how often each early row is replayed."""
    if text == "auto":
        return text
    if text == "off":
        return 0
    if not (text.isdecimal() and int(text) <= MAX_REPLAY_RATIO):
        raise ValueError(f"is auto, off, or a number up to {MAX_REPLAY_RATIO}; not '{text}'")
    return int(text)


def parse_activation(text: str) -> str:
    """Parse the name of an activation, or one for each hidden layer."""
    names = activations.split_names(text)
    try:
        for name in names:
            activations.find_activation(name)
    except ValueError:
        raise ValueError(f"is {ACTIVATION_NAMES}; not '{text}'") from None
    return ",".join(names)


def parse_variance(text: str) -> float:
    """Parse a variance."""
    number = _parse_float(text)
    if not 0.0 <= number < MAX_PRIOR_VARIANCE:
        raise ValueError(
            f"is a variance, 0 or more and less than {MAX_PRIOR_VARIANCE:g}; not '{text}'"
        )
    return number


def parse_prior_variance(text: str) -> str | float:
    """Parse a rule for prior variances, or one variance for all weights."""
    number = _parse_float(text)
    if text in PRIORS:
        return text
    if not 0.0 < number < MAX_PRIOR_VARIANCE:
        raise ValueError(f"is {', '.join(PRIORS)} or a variance greater than 0; not '{text}'")
    return number


def _parse_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


MAX_BUFFER_ROWS: Final = 2048
"""Capacity of the buffer of the last rows, see kbnn.model.replay_buffer."""

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


class NetworkShape(NamedTuple):
    """A candidate network for --layers auto."""

    hidden: tuple[int, ...]
    covariance: str = ""  # required covariance; "" for any
    ensemble: int = 1


CANDIDATE_SHAPES: Final = (
    NetworkShape((50,)),
    NetworkShape((50, 50), "neuron"),
    NetworkShape((50, 50), "group"),
    NetworkShape(()),
    NetworkShape((50,), ensemble=5),
    NetworkShape((50, 50), "neuron", 5),
)
"""Depth helps on informative rows, ensembles help on noisy rows, and some data sets (Wine, Boston,
Kin8nm) gain most from both."""


PRESETS: Final[dict[str, dict[str, Any]]] = {
    "none": {},
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
"""Bundles of defaults. `paper` is Algorithms 1 and 2 as printed: labels are exact, only the weights
are learned, and no guards apply. What the paper leaves open (prior, scale) keeps the usual default;
deviations from the printed formulas are counted, see kbnn.core.paper_smoother."""


class IncompatibleOptionsError(ValueError):
    """Options that exclude each other, named as on the command line."""


@dataclass(frozen=True)
class Settings:
    """The settings of a model, by the names under which model files store them.

    noise             "auto", "constant" or a standard deviation
    hidden_noise      variance added to every hidden unit's output
    rehearse          replay: "auto", a ratio, or "later" (off at first, then as "auto" finds)
    prior_variance    a rule of kbnn.core.state.PRIORS, or the variance of every weight
    link              link of two classes: "probit", or "sigmoid" with a Gaussian label
    sigmoid_variance  "exact", or "printed" for the paper's formula
    units             whether columns are standardised; otherwise their own units are used
    clip, widen       see kbnn.core.config.Config: input_limit, repeats
    intervals         "tracked" (calibrated online) or "stated" (of the predictive distribution)
    kind              target type of numbers; "auto" compares the types that fit the first rows
    preset            the bundle that the defaults come from
    keep, sample      capacity of the buffer of the last rows and of the even sample of all rows
    """

    hidden: tuple[int, ...] | Literal["auto"] = (50,)
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
    preset: Literal["none", "paper"] = "none"
    intervals: Literal["tracked", "stated"] = "tracked"
    kind: str = "auto"
    keep: int = MAX_BUFFER_ROWS
    sample: int = MAX_SAMPLED_ROWS

    def __post_init__(self) -> None:
        if self.hidden != "auto":
            object.__setattr__(self, "hidden", tuple(self.hidden))
        self._check_together()
        if self.kind not in ("auto", *NUMERIC_TYPES):
            raise ValueError(f"kind cannot be {self.kind!r}")
        if isinstance(self.prior_variance, str) and self.prior_variance not in PRIORS:
            raise ValueError(f"prior_variance must be a rule, got {self.prior_variance!r}")
        if (
            not isinstance(self.prior_variance, str)
            and not 0 < self.prior_variance < MAX_PRIOR_VARIANCE
        ):
            raise ValueError(f"prior_variance must be positive, got {self.prior_variance}")
        if isinstance(self.noise, str) and self.noise not in ("auto", "constant"):
            raise ValueError(f"noise must be auto, constant or a number, got {self.noise!r}")
        if not isinstance(self.noise, str) and not 0.0 <= self.noise <= MOST_NOISE:
            raise ValueError(f"noise must be between 0 and {MOST_NOISE:g}, got {self.noise}")
        if not 0.0 <= self.hidden_noise < MAX_PRIOR_VARIANCE:
            raise ValueError(f"hidden_noise must be a variance >= 0, got {self.hidden_noise}")
        if self.rehearse not in ("auto", "later") and not (
            isinstance(self.rehearse, int) and 0 <= self.rehearse <= MAX_REPLAY_RATIO
        ):
            raise ValueError(
                f"rehearse must be auto or between 0 and {MAX_REPLAY_RATIO}, got {self.rehearse!r}"
            )
        if not (1 <= self.keep <= MAX_BUFFER_ROWS and 0 <= self.sample <= MAX_SAMPLED_ROWS):
            raise ValueError(f"keep and sample are out of range: {self.keep}, {self.sample}")
        if not 1 <= self.ensemble <= 64:
            raise ValueError(f"ensemble must be between 1 and 64, got {self.ensemble}")
        if self.hidden == "auto":
            self.list_candidates()  # each candidate checks itself
        else:
            _build_config(self, 1, 1, "gaussian", "group", None)

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
        if names > 1 and self.hidden == "auto":
            raise IncompatibleOptionsError(
                f"--activation {self.activation} is for {names} hidden layers: "
                "--layers must say their sizes"
            )
        if names > 1 and names != len(self.hidden):
            raise IncompatibleOptionsError(
                f"--activation {self.activation} is for {names} hidden layers, "
                f"but --layers {_format_setting(self.hidden)} has {len(self.hidden)}"
            )

    def make_config(
        self, task: TargetType, inputs: int, outputs: int, target_scale: float
    ) -> Config:
        """Return the network configuration for these numbers of inputs and outputs."""
        noise = given_noise_var(task, self.noise, target_scale)
        suited = choose_covariance(task, outputs)
        return _build_config(self, inputs, outputs, task.observation, suited, noise)

    @property
    def replay_ratio(self) -> int:
        """Number of times each early row is replayed."""
        if isinstance(self.rehearse, str):
            return DEFAULT_REPLAY_RATIO if self.rehearse == "auto" else 0
        return self.rehearse

    def describe_difference(self, other: Settings) -> str:
        """Describe how a candidate differs from another, as options."""
        parts = [] if self.kind == other.kind else [f"--task {self.kind}"]
        if self.hidden != other.hidden or self.covariance != other.covariance:
            kind = "" if self.covariance == "auto" or not self.hidden else f" {self.covariance}"
            parts.append(f"--layers {_format_setting(self.hidden)}{kind}")
        if self.ensemble != other.ensemble:
            parts.append(f"--ensemble {self.ensemble}")
        if self.rehearse != other.rehearse or not parts:
            parts.append(f"--replay {self.replay_ratio or 'off'}")
        return ", ".join(parts)

    def list_candidates(
        self, kinds: Sequence[str] = (DEFAULT_TYPE,), inputs: int = 0
    ) -> list[Settings]:
        """Return the candidates' settings, without "auto"; the first predicts at the start.

        `kinds` are the target types that the first rows allow. With many `inputs`, every shape
        uses the same covariance.
        """
        if self.kind != "auto" or not self.units or not isinstance(self.noise, str):
            kinds = [choose_default_type(kinds) if self.kind == "auto" else self.kind]
        shapes = self._list_shapes(inputs) if self.hidden == "auto" else [NetworkShape(self.hidden)]
        found = [
            self._with_choices(
                hidden=shape.hidden,
                covariance=shape.covariance or self.covariance,
                ensemble=max(shape.ensemble, self.ensemble),
            )
            for shape in shapes
        ]
        if self.rehearse == "auto":
            found.insert(1, found[0]._with_choices(rehearse="later"))
        return [one._with_choices(kind=kind) for kind in kinds for one in found]

    def _with_choices(self, **choices: Any) -> Settings:
        """Return the settings with these values; the same object if nothing changes."""
        open_ = {name: value for name, value in choices.items() if getattr(self, name) != value}
        return replace(self, **open_) if open_ else self

    def _list_shapes(self, inputs: int) -> list[NetworkShape]:
        """Return the candidate shapes that agree with the given settings."""
        several = self.ensemble > 1
        shapes = [shape for shape in CANDIDATE_SHAPES if not (several and shape.ensemble > 1)]
        if self.covariance == "auto" and inputs >= WIDE_COVARIANCE_INPUTS:
            return list(dict.fromkeys(shape._replace(covariance="") for shape in shapes))
        return [s for s in shapes if self.covariance in ("auto", s.covariance) or not s.covariance]

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the model file."""
        return {**asdict(self), "hidden": self.hidden if self.hidden == "auto" else [*self.hidden]}

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


@lru_cache(maxsize=256)  # repeated for every candidate and model
def _build_config(
    settings: Settings,
    inputs: int,
    outputs: int,
    observation: str,
    suited: str,
    noise: float | None,
) -> Config:
    covariance, group_size = settings.covariance, settings.group_size
    if covariance == "auto":
        covariance = "wide" if inputs >= WIDE_COVARIANCE_INPUTS else suited
    if covariance == "wide" and suited == "neuron":  # a joint update of all classes costs too much
        group_size = group_size or 1
    return Config(
        inputs=inputs,
        outputs=outputs,
        hidden=settings.hidden,  # type: ignore[arg-type]  # candidates have sizes
        activation=settings.activation,
        covariance=covariance,  # type: ignore[arg-type]  # Config checks the word
        group_size=group_size,
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


class Option(NamedTuple):
    """The option of a setting.

    `read` parses its text, or raises ValueError with the values that it takes. `words` are the
    fixed values, which shells complete.
    """

    name: str  # of the setting
    flag: str
    metavar: str
    help: str
    read: Callable[[str], Any]
    words: tuple[str, ...] = ()
    shown_default: str = ""  # in place of the value in `Settings`

    def describe_default(self) -> str:
        """Return the default of a new model as users type it."""
        return self.shown_default or _format_option_value(self, getattr(Settings(), self.name))

    def parse_value(self, text: str) -> Any:
        """Parse a text; raise UsageError if it is not a value of the option."""
        try:
            return self.read(text)
        except ValueError as error:
            raise UsageError(f"{self.flag} {error}") from None


def _choice(
    name: str, flag: str, words: tuple[str, ...], help: str, metavar: str | None = None
) -> Option:
    """Declare a setting that is one of several words."""
    return Option(name, flag, metavar or "|".join(words), help, make_choice_parser(*words), words)


def _guard(name: str, flag: str, help: str) -> Option:
    """Declare a setting that is on unless it is switched off."""
    words = GUARD_WORDS
    return Option(name, flag, "|".join(words), help, parse_switch, words)


_COVARIANCES = ("auto", *get_args(Covariance))
INTERVAL_MODES: Final = {"calibrated": "tracked", "model": "stated"}
"""The values of --intervals, each with the one that settings and JSON store."""

FORMER_FLAGS: Final = {
    "--again": "--relearn",
    "--common": "--pooling",
    "--no-common": "--no-pooling",
    "--open": "--max-open-models",
    "--rehearse": "--replay",
    "--units": "--standardize",
    "--wait": "--max-pending",
    "--widen": "--inflate",
}
"""Earlier spellings of options, which stay valid, each with the present one."""


def get_keyword(flag: str) -> str:
    """Return the Python name of an option."""
    return flag.removeprefix("--").replace("-", "_")


def parse_interval_mode(text: str) -> str:
    """Return the stored value of an interval mode; stored values are accepted too."""
    if text in INTERVAL_MODES.values():
        return text
    return INTERVAL_MODES[make_choice_parser(*INTERVAL_MODES)(text)]


def format_interval_mode(stored: str) -> str:
    """Return the spelling that users see of a stored interval mode."""
    return next(word for word, value in INTERVAL_MODES.items() if value == stored)


def check_interval_mode(text: str | None) -> str | None:
    """Return the stored value of `--intervals`, None if it was not given; or UsageError."""
    if text is None:
        return None
    try:
        return parse_interval_mode(text)
    except ValueError as error:
        raise UsageError(f"--intervals {error}") from None


OPTIONS: Final = (
    _choice(
        "preset",
        "--preset",
        tuple(PRESETS),
        "Start from a bundle of defaults; paper is the published algorithm alone.",
    ),
    Option(
        "hidden",
        "--layers",
        "SIZES",
        "Set the hidden layers: 50, or 50,50; none is linear; auto tries several.",
        parse_layers,
        LAYER_WORDS,
    ),
    Option(
        "activation",
        "--activation",
        "NAME",
        f"Use {', '.join(activations.ACTIVATIONS)} hidden units.",
        parse_activation,
        tuple(activations.ACTIVATIONS),
    ),
    _choice(
        "covariance",
        "--covariance",
        _COVARIANCES,
        f"Set which weights correlate: {', '.join(_COVARIANCES)}.",
        "KIND",
    ),
    Option(
        "group_size",
        "--group-size",
        "N",
        "Set the hidden units per group (--covariance group).",
        make_integer_parser(1, None),
        shown_default="10 or fewer",
    ),
    Option(
        "noise",
        "--noise",
        "NOISE",
        "Learn the noise (auto, constant), or give its sd in the target's units.",
        parse_noise,
        NOISE_WORDS,
    ),
    Option(
        "hidden_noise",
        "--hidden-noise",
        "VARIANCE",
        "Add this variance to hidden units (--covariance paper).",
        parse_variance,
    ),
    Option(
        "prior_variance",
        "--prior-variance",
        "RULE",
        f"Set the prior variance of weights: {', '.join(PRIORS)} or a number.",
        parse_prior_variance,
        tuple(PRIORS),
    ),
    _choice(
        "link",
        "--link",
        ("probit", "sigmoid"),
        "Set the link of classes; sigmoid is the paper's, for two classes.",
    ),
    _choice(
        "sigmoid_variance",
        "--sigmoid-variance",
        ("exact", "printed"),
        "Compute the variance of sigmoid and tanh exactly, or as printed.",
    ),
    _guard(
        "units",
        "--standardize",
        "Standardize columns; off uses their own units from the first row.",
    ),
    _guard(
        "clip",
        "--clip",
        "Clip standardized inputs to the range -8 to 8.",
    ),
    _guard(
        "widen",
        "--inflate",
        "Inflate the variance for rows that are learned more than once.",
    ),
    Option(
        "intervals",
        "--intervals",
        "|".join(INTERVAL_MODES),
        "Calibrate intervals online, or leave them to the model.",
        parse_interval_mode,
        tuple(INTERVAL_MODES),
    ),
    _guard(
        "robust",
        "--robust",
        "Reduce the weight of outliers, and learn the temperature of classes.",
    ),
    _guard(
        "drift",
        "--drift",
        "Forget old rows after a drift alarm.",
    ),
    Option(
        "ensemble",
        "--ensemble",
        "K",
        "Average the predictions of K networks.",
        make_integer_parser(1, 64),
    ),
    Option(
        "rehearse",
        "--replay",
        "auto|off|K",
        "Replay each early row K times; auto compares 8 with off.",
        parse_replay_ratio,
        GUARD_WORDS,
    ),
    Option(
        "seed",
        "--seed",
        "N",
        "Set the random seed of the first weights and of --shuffle.",
        make_integer_parser(0, 2**63 - 1, "2^63 - 1"),
    ),
)
"""The settings that `kbnn train` offers."""


class SettingOverrides:
    """The settings that the user gave; a new model uses defaults for the others."""

    def __init__(self, **stated: Any) -> None:
        unknown = set(stated) - {option.name for option in OPTIONS} - {"kind"}
        if unknown:
            raise UsageError(f"a model has no setting '{min(unknown)}'")
        self.stated = stated

    @classmethod
    def parse_texts(
        cls, texts: Mapping[str, str | None], kind: str | None = None
    ) -> SettingOverrides:
        """Parse texts by the name of their setting; None was not given.

        `kind` is the target type of numbers.
        """
        given = {option: texts.get(option.name) for option in OPTIONS}
        chosen = {o.name: o.parse_value(text) for o, text in given.items() if text is not None}
        return cls(**chosen, **({} if kind is None else {"kind": kind}))

    def make_settings(self, defaults: Mapping[str, Any] | None = None) -> Settings:
        """Return the settings of a new model; `defaults` replace the usual ones."""
        bundle = PRESETS[self.stated.get("preset", "none")]
        try:
            return Settings(**{**(defaults or {}), **bundle, **self.stated})
        except IncompatibleOptionsError as error:
            raise UsageError(str(error)) from error
        except ValueError as error:
            raise UsageError(f"--layers: {error}") from error

    def check_against(self, path: str, settings: Settings) -> None:
        """Raise UsageError for a setting that contradicts a model, naming both values."""
        for option in OPTIONS:
            there = getattr(settings, option.name)
            wanted = self.stated.get(option.name, there)
            if wanted != there:
                shown = [_format_option_value(option, value) for value in (there, wanted)]
                raise make_contradiction_error(path, option.flag, *shown)


def make_contradiction_error(path: str, flag: str, there: str, wanted: str) -> UsageError:
    """Make the error for an option that contradicts a model."""
    return UsageError(
        f"{flag} {wanted} contradicts {path}, which has {there} "
        f"(leave out {flag}, or start over with --fresh)"
    )


def _format_option_value(option: Option, value: Any) -> str:
    if option.name == "intervals":
        return format_interval_mode(value)
    return "off" if option.name == "rehearse" and value == 0 else _format_setting(value)


def _format_setting(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "auto" if value else "off"
    if isinstance(value, float):
        return f"{value:.15g}"
    return "auto" if value is None else str(value)
