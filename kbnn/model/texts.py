"""What the texts of a model's options stand for; ValueError says what an option takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from kbnn.core import activations
from kbnn.core.state import PRIORS

ACTIVATION_NAMES: Final = f"{', '.join(activations.ACTIVATIONS)} or max(alpha,beta)"
LAYER_WORDS: Final = ("none", "auto")
NOISE_WORDS: Final = ("auto", "constant")
GUARD_WORDS: Final = ("auto", "off")
MAX_LAYER_UNITS: Final = 100_000
MAX_REPLAY_RATIO: Final = 100
MAX_PRIOR_VARIANCE: Final = 1e20
MOST_NOISE: Final = 1e100
"""A standard deviation in the target's units: its square is a number yet."""


def parse_layers(text: str) -> tuple[int, ...] | str:
    """Sizes of the hidden layers."""
    if text.strip() in ("none", "0"):
        return ()
    if text.strip() == "auto":
        return "auto"
    sizes = [part.strip() for part in text.split(",")]
    if not all(size.isdecimal() and 0 < int(size) <= MAX_LAYER_UNITS for size in sizes):
        raise ValueError(f"takes sizes such as 50 or 50,50, none or auto; not '{text}'")
    return tuple(int(size) for size in sizes)


def parse_noise(text: str) -> str | float:
    """A way to learn it, or a standard deviation."""
    if text in NOISE_WORDS:
        return text
    number = _parse_float(text)
    if not 0.0 <= number <= MOST_NOISE:
        words = "auto, constant, or a standard deviation in the target's units"
        raise ValueError(f"is {words}, at most {MOST_NOISE:g}; not '{text}'")
    return number


def make_integer_parser(least: int, most: int | None, shown: str = "") -> Callable[[str], int]:
    """A whole number within limits."""
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
    """One of several words."""

    def parse_choice(text: str) -> str:
        if text not in words:
            raise ValueError(f"is {', '.join(words[:-1])} or {words[-1]}, not '{text}'")
        return text

    return parse_choice


def parse_switch(text: str) -> bool:
    """Whether it is on."""
    return make_choice_parser(*GUARD_WORDS)(text) == "auto"


def parse_replay_ratio(text: str) -> str | int:
    """How often."""
    if text == "auto":
        return text
    if text == "off":
        return 0
    if not (text.isdecimal() and int(text) <= MAX_REPLAY_RATIO):
        raise ValueError(f"is auto, off, or a number up to {MAX_REPLAY_RATIO}; not '{text}'")
    return int(text)


def parse_activation(text: str) -> str:
    """A name, or one for each hidden layer."""
    names = activations.split_names(text)
    try:
        for name in names:
            activations.find_activation(name)
    except ValueError:
        raise ValueError(f"is {ACTIVATION_NAMES}; not '{text}'") from None
    return ",".join(names)


def parse_variance(text: str) -> float:
    """A variance."""
    number = _parse_float(text)
    if not 0.0 <= number < MAX_PRIOR_VARIANCE:
        raise ValueError(
            f"is a variance, 0 or more and less than {MAX_PRIOR_VARIANCE:g}; not '{text}'"
        )
    return number


def parse_prior_variance(text: str) -> str | float:
    """A rule, or a variance for all weights."""
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
