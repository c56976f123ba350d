"""Where a run is in its sources; kept in the model, so that a run cut short can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from kbnn.errors import ModelError, UsageError
from kbnn.model.plain import read_dataclass
from kbnn.stream.readoptions import ReadOptions
from kbnn.stream.sources import STDIN


@dataclass(frozen=True)
class Position:
    """The run: what decides which rows come in which order, and how far it has come."""

    sources: tuple[str, ...]
    shuffle: bool = False
    seed: int = 0
    limit: int | None = None
    on_error: str = "stop"
    test_split: float = 0.0
    epochs: int = 1
    epoch: int = 0  # the pass under way, counted from 0
    rows: int = 0  # rows of that pass already learned
    complete: bool = False
    predictions: str | None = None
    predictions_bytes: int | None = None  # length of the predictions of these rows

    @classmethod
    def at_start(cls, sources: Sequence[str], read: ReadOptions, seed: int) -> Position:
        """The start of a run."""
        shuffle, limit = read.shuffle, read.limit
        return cls(
            tuple(sources), shuffle, seed, limit, read.on_error, read.test_split, read.epochs
        )

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Position | None:
        """What a model remembers of its last run; None if there was none."""
        if not plain:
            return None
        try:
            position = read_dataclass(cls, plain)
            sound = position.rows >= 0 and position.epochs > position.epoch >= 0
        except (TypeError, ValueError) as error:
            raise ModelError("the model's position in its sources is damaged") from error
        if not sound:
            raise ModelError("the model's position in its sources is damaged")
        return position

    def to_json(self) -> dict[str, Any]:
        """Plain data for the model file."""
        return {**asdict(self), "sources": list(self.sources)}

    def resume_from(self, last: Position) -> Position:
        """This run, going on where the last one ended; UsageError if they are not the same."""
        for name, said in _MATCHED_FIELDS.items():
            before, now = getattr(last, name), getattr(self, name)
            mended = name == "on_error" and (before, now) == ("stop", "skip")
            if before != now and not mended:  # up to where it stopped, every row was good
                raise UsageError(f"--resume: the run began with {said(before)}, not {said(now)}")
        if last.complete:
            last = replace(last, epoch=last.epochs, rows=0)
        return replace(last, epochs=self.epochs, on_error=self.on_error)

    def reads_same_rows(self, begin: Position) -> bool:
        """Whether another run would read the very rows of this one; a pipe never does."""
        same = all(getattr(self, name) == getattr(begin, name) for name in _MATCHED_FIELDS)
        return same and STDIN not in begin.sources and begin.epochs >= self.epochs

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to learn."""
        return self.epoch >= self.epochs

    def to_read_options(self, read: ReadOptions) -> ReadOptions:
        """How to read from here on."""
        return replace(read, seed=self.seed, epoch=self.epoch, skip=self.rows)


def format_sources(sources: Sequence[str]) -> str:
    """The sources by name, as far as they are few."""
    return " ".join(sources) if len(sources) < 4 else f"{sources[0]} and {len(sources) - 1} others"


_MATCHED_FIELDS: dict[str, Callable[[Any], str]] = {
    "sources": lambda value: " ".join(value),
    "shuffle": lambda value: "--shuffle" if value else "no --shuffle",
    "seed": lambda value: f"--seed {value}",
    "limit": lambda value: "no --limit" if value is None else f"--limit {value}",
    "test_split": lambda value: f"--test-split {value:g}" if value else "no --test-split",
    "on_error": lambda value: f"--on-error {value}",
}
