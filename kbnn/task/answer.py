"""What is said of a single row, as whoever asked for one takes it."""

from __future__ import annotations

from typing import NamedTuple


class Number(NamedTuple):
    """The forecast of one number: `sd` is made of `function_sd` (what the model does not know yet)
    and `noise_sd` (what no model could know); 90 % of the values lie between `lower` and `upper`.
    """

    mean: float
    sd: float
    lower: float
    upper: float
    function_sd: float
    noise_sd: float


class Label(NamedTuple):
    """The forecast of one label: the most probable class, and the probability of each."""

    label: str | None
    probability: dict[str, float]
