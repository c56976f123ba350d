"""What a user chooses about a model, how each choice is said, and the network that follows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, NamedTuple, get_args

from kbnn.core import activations
from kbnn.core.config import Config, Covariance
from kbnn.errors import ModelError, UsageError
from kbnn.model.plain import read
from kbnn.model.rehearsal import OFTEN
from kbnn.task.base import Task

MOST_UNITS: Final = 100_000
MOST_REHEARSED: Final = 100


REPEATS: Final = {"paper": 0.3, "neuron": 0.65, "group": 0.85, "full": 1.0}
"""By covariance (see kbnn.core.config), chosen on validation parts of training parts."""

SHAPES: Final[tuple[tuple[tuple[int, ...], str], ...]] = (
    ((50,), ""),
    ((50, 50), "neuron"),
    ((50, 50), "group"),
    ((), ""),
)
"""The networks that race where --layers is auto: hidden layers, and the covariance they need."""


@dataclass(frozen=True)
class Settings:
    """The options of a model; `noise` is "auto", "constant" or a standard deviation."""

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

    def __post_init__(self) -> None:
        if self.hidden != "auto":
            object.__setattr__(self, "hidden", tuple(self.hidden))
        if isinstance(self.noise, str) and self.noise not in ("auto", "constant"):
            raise ValueError(f"noise must be auto, constant or a number, got {self.noise!r}")
        if not isinstance(self.noise, str) and not self.noise >= 0.0:
            raise ValueError(f"noise must be a standard deviation >= 0, got {self.noise}")
        if self.rehearse != "auto" and not (
            isinstance(self.rehearse, int) and 0 <= self.rehearse <= MOST_REHEARSED
        ):
            raise ValueError(
                f"rehearse must be auto or between 0 and {MOST_REHEARSED}, got {self.rehearse!r}"
            )
        if not 1 <= self.ensemble <= 64:
            raise ValueError(f"ensemble must be between 1 and 64, got {self.ensemble}")
        if self.hidden == "auto":
            self.candidates()  # each checks itself
        else:
            self._config(1, 1, "gaussian", "group", None)

    def config(self, task: Task, inputs: int, outputs: int, target_scale: float) -> Config:
        """The network for so many inputs and outputs."""
        noise = None
        if task.noisy and not isinstance(self.noise, str):
            noise = (float(self.noise) / target_scale) ** 2
        suited = task.covariance(outputs)
        return self._config(inputs, outputs, task.observation, suited, noise)

    def _config(
        self, inputs: int, outputs: int, observation: str, suited: str, noise: float | None
    ) -> Config:
        covariance = suited if self.covariance == "auto" else self.covariance
        return Config(
            inputs=inputs,
            outputs=outputs,
            hidden=self.hidden,  # type: ignore[arg-type]  # a candidate's is made up
            activation=self.activation,
            covariance=covariance,  # type: ignore[arg-type]  # Config checks the word
            group_size=self.group_size,
            observation=observation,
            noise=noise,
            noise_head=self.noise == "auto",
            hidden_noise=self.hidden_noise,
            robust=self.robust,
            drift=self.drift,
            repeats=REPEATS[covariance],
        )

    @property
    def often(self) -> int:
        """How often a row is rehearsed while the stream is young."""
        return OFTEN if isinstance(self.rehearse, str) else self.rehearse

    def told(self, other: Settings) -> str:
        """What sets a candidate apart from another, in the words of the options."""
        parts = []
        if self.hidden != other.hidden or self.covariance != other.covariance:
            kind = "" if self.covariance == "auto" or not self.hidden else f" {self.covariance}"
            parts.append(f"--layers {_shown(self.hidden)}{kind}")
        if self.rehearse != other.rehearse or not parts:
            parts.append(f"--rehearse {self.often or 'off'}")
        return ", ".join(parts)

    def candidates(self) -> list[Settings]:
        """The settings that race, every choice made; the first speaks before anything is known."""
        if self.hidden == "auto":
            shapes = [(h, c) for h, c in SHAPES if self.covariance in ("auto", c) or not c]
        else:
            shapes = [(self.hidden, self.covariance)]
        found = [(h, c or self.covariance, self.rehearse) for h, c in shapes]
        if self.rehearse == "auto":
            found.insert(1, (*found[0][:2], 0))
        return [replace(self, hidden=h, covariance=c, rehearse=k) for h, c, k in found]

    def to_json(self) -> dict[str, Any]:
        """Plain data for the model file."""
        return {**asdict(self), "hidden": self.hidden if self.hidden == "auto" else [*self.hidden]}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Settings:
        """The inverse of `to_json`."""
        try:
            settings = read(cls, plain)
            if not 0 <= settings.seed < 2**63:
                raise ValueError(f"seed cannot be {settings.seed}")
            return settings
        except (TypeError, ValueError) as error:
            raise ModelError(f"the model's settings are damaged ({error})") from error


class Option(NamedTuple):
    """How a setting is said: `read` makes its value of a text; ValueError says what it takes."""

    name: str  # of the setting
    flag: str
    metavar: str
    help: str
    read: Callable[[str], Any]

    def value(self, text: str) -> Any:
        """The value that a text stands for; UsageError when it stands for none."""
        try:
            return self.read(text)
        except ValueError as error:
            raise UsageError(f"{self.flag} {error}") from None


def _layers(text: str) -> tuple[int, ...] | str:
    if text.strip() in ("none", "0"):
        return ()
    if text.strip() == "auto":
        return "auto"
    sizes = [part.strip() for part in text.split(",")]
    if not all(size.isdecimal() and 0 < int(size) <= MOST_UNITS for size in sizes):
        raise ValueError(f"takes sizes such as 50 or 50,50, none or auto; not '{text}'")
    return tuple(int(size) for size in sizes)


def _noise(text: str) -> str | float:
    if text in ("auto", "constant"):
        return text
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.0 <= number < math.inf:
        words = "auto, constant, or a standard deviation in the target's units"
        raise ValueError(f"is {words}; not '{text}'")
    return number


def _whole(least: int, most: int | None, shown: str = "") -> Callable[[str], int]:
    shown = shown or str(most)

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError(f"takes a whole number, not '{text}'") from None
        if not least <= number <= (math.inf if most is None else most):
            limits = "be at least 1" if most is None else f"lie between {least} and {shown}"
            raise ValueError(f"must {limits}, not {number}")
        return number

    return read


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"is {', '.join(words[:-1])} or {words[-1]}, not '{text}'")
        return text

    return read


def _guard(text: str) -> bool:
    return _one_of("auto", "off")(text) == "auto"


def _rehearse(text: str) -> str | int:
    if text == "auto":
        return text
    if text == "off":
        return 0
    if not (text.isdecimal() and int(text) <= MOST_REHEARSED):
        raise ValueError(f"is auto, off, or a number up to {MOST_REHEARSED}; not '{text}'")
    return int(text)


def _activation(text: str) -> str:
    try:
        activations.find(text)
    except ValueError:
        raise ValueError(f"is {_ACTIVATIONS}; not '{text}'") from None
    return text


_ACTIVATIONS = f"{', '.join(activations.ACTIVATIONS)} or max(alpha,beta)"
_COVARIANCES = ("auto", *get_args(Covariance))

OPTIONS: Final = (
    Option(
        "hidden",
        "--layers",
        "SIZES",
        "Hidden layers: 50, or 50,50, or none (linear), or auto: shapes race; 50 if not said.",
        _layers,
    ),
    Option(
        "activation",
        "--activation",
        "NAME",
        f"Of the hidden units: {_ACTIVATIONS}; relu if not said.",
        _activation,
    ),
    Option(
        "covariance",
        "--covariance",
        "KIND",
        f"Which weights are correlated: {', '.join(_COVARIANCES[:-1])} or {_COVARIANCES[-1]}.",
        _one_of(*_COVARIANCES),
    ),
    Option(
        "group_size",
        "--group-size",
        "N",
        "Hidden units of one group; 10 if not said.",
        _whole(1, None),
    ),
    Option(
        "noise",
        "--noise",
        "NOISE",
        "auto (may depend on the input), constant, or a standard deviation in the target's units.",
        _noise,
    ),
    Option("robust", "--robust", "auto|off", "Whether outliers count less.", _guard),
    Option(
        "drift", "--drift", "auto|off", "Whether the model forgets when the stream changes.", _guard
    ),
    Option(
        "ensemble",
        "--ensemble",
        "K",
        "Networks that predict together; 1 if not said.",
        _whole(1, 64),
    ),
    Option(
        "rehearse",
        "--rehearse",
        "auto|off|K",
        "How often each of the first rows is learned once more; auto tries 8 beside off.",
        _rehearse,
    ),
    Option(
        "seed",
        "--seed",
        "N",
        "Of the first weights and of --shuffle; 0 if not said.",
        _whole(0, 2**63 - 1, "2^63 - 1"),
    ),
)
"""The settings that `kbnn train` offers, listed once."""


class Choices:
    """The stated ones among a model's settings; a new model takes defaults for the others."""

    def __init__(self, **stated: Any) -> None:
        unknown = set(stated) - {option.name for option in OPTIONS}
        if unknown:
            raise UsageError(f"a model has no setting '{min(unknown)}'")
        self.stated = stated

    @classmethod
    def read(cls, texts: Mapping[str, str | None]) -> Choices:
        """The choices that texts stand for, by the name of the setting; None was not said."""
        said = {option: texts.get(option.name) for option in OPTIONS}
        return cls(**{o.name: o.value(text) for o, text in said.items() if text is not None})

    def settings(self) -> Settings:
        """The settings of a new model."""
        try:
            return Settings(**self.stated)
        except ValueError as error:
            raise UsageError(f"--layers: {error}") from error

    def check_against(self, path: str, settings: Settings) -> None:
        """Refuse a choice that contradicts a model, naming both."""
        for option in OPTIONS:
            there = getattr(settings, option.name)
            wanted = self.stated.get(option.name, there)
            if wanted != there:
                shown = [
                    "off" if option.name == "rehearse" and value == 0 else _shown(value)
                    for value in (there, wanted)
                ]
                raise contradiction(path, option.flag, *shown)


def contradiction(path: str, flag: str, there: str, wanted: str) -> UsageError:
    """What was said is not what a model is."""
    return UsageError(
        f"{flag} {wanted} contradicts {path}, which has {there} "
        f"(leave out {flag}, or start over with --fresh)"
    )


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "auto" if value else "off"
    return "auto" if value is None else str(value)
