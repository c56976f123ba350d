"""What to learn from, into which model, and how: the options of a training run.

The command line and Python say them by the same names (`Words`), and both become `TrainOptions`
here: one set of options, defaults and errors.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict, Unpack

from kbnn.errors import UsageError
from kbnn.fleet.fleet import SMALL
from kbnn.model.settings import OPTIONS, Choices, Settings
from kbnn.output.fields import check_interval, check_quantile
from kbnn.output.writers import check_name
from kbnn.run.choices import ON_ERROR, check_one_of, check_outputs
from kbnn.stream.hashing import read_buckets
from kbnn.stream.inputs import paths
from kbnn.stream.readoptions import ReadOptions
from kbnn.task.table import TASKS, stated_kind

MODEL: Final = "model.npz"
FLEET: Final = "fleet"
CHECKPOINT_EVERY: Final = 30.0
HERE: Final = "here"
ENGINES: Final = (HERE, "dask")
LOCAL: Final = "local:2"


@dataclass(frozen=True)
class TrainOptions:
    """The options of a run; every default is the usual case."""

    sources: Any  # see kbnn.stream.inputs
    model: str | None = MODEL  # None: kept in memory
    read: ReadOptions = field(default_factory=ReadOptions)
    choices: Choices = field(default_factory=Choices)
    fresh: bool = False  # start over, whatever model is there
    resume: bool = False  # go on where a run on the same sources was cut short, or refuse
    again: bool = False  # learn sources from their first row, though a run was cut short
    predictions: str | None = None
    interval: float = 0.9  # that lower and upper of the predictions enclose
    quantiles: Sequence[float] = ()  # of the predictions
    bad_rows: str | None = None
    checkpoint_every: float = CHECKPOINT_EVERY  # seconds
    key: tuple[str, ...] = ()  # columns by which rows find their model, of a fleet
    common: bool = True  # whether a new key begins from what all have in common
    open: int | None = None  # models of a fleet in memory at a time
    engine: str = HERE  # where a fleet learns: here, or in the workers of a cluster
    cluster: str = LOCAL

    @property
    def settings(self) -> Settings:
        """The settings of a new model, or of a new fleet."""
        return self.choices.settings(SMALL if self.key else None)

    def check(self) -> None:
        """Refuse what makes no sense, before anything is opened."""
        for other in ("fresh", "again"):
            if getattr(self, other) and self.resume:
                raise UsageError(f"--{other} and --resume contradict each other")
        self.read.check()
        self._check_key()
        check_one_of("--engine", self.engine, ENGINES)
        if self.engine != HERE and (self.model is None or not self.key):
            raise UsageError(
                f"--engine {self.engine} is for a fleet that is kept: say --key and --model"
            )
        _ = self.settings
        check_interval(self.interval)
        for share in self.quantiles:
            check_quantile(share)
        if self.model == "-":
            raise UsageError("a model is kept in a file: --model cannot be -")
        if not self.checkpoint_every > 0.0:
            raise UsageError(f"--checkpoint-every must be positive, not {self.checkpoint_every:g}")
        check_outputs(
            paths(self.sources),
            {
                "--model": self.model,
                "--predictions": self.predictions,
                "--bad-rows": self.bad_rows,
            },
        )
        if self.predictions is not None:
            check_name(self.predictions)

    def _check_key(self) -> None:
        """Refuse what a fleet cannot be."""
        if self.open is not None and self.open < 1:
            raise UsageError(f"--open must be at least 1, not {self.open}")
        used = {"the target": self.read.target, "a feature": self.read.features}
        for name in self.key:
            for what, names in used.items():
                if name in names:
                    raise UsageError(f"column '{name}' cannot be both {what} and the key")
        if self.key and self.read.id is not None:
            raise UsageError("--key and --id cannot be combined: rows of a fleet do not wait")


Names = str | int | Sequence[str | int]
"""A column or several by name; those of pandas may be numbers."""


class ReadWords(TypedDict, total=False):
    """How data are read: options of every command that reads."""

    columns: Sequence[str] | None  # names for the columns of a numpy array
    limit: int | None
    on_error: str  # stop or skip
    bad_rows: str | None
    na: Names
    format: str
    delimiter: str | None
    header: bool | None


class RunWords(ReadWords, total=False):
    """How rows are learned."""

    epochs: int
    shuffle: bool
    test_split: float
    predictions: str | None
    interval: float
    intervals: str
    quantiles: Sequence[float]


class ModelWords(TypedDict, total=False):
    """What a model is: its columns and its network."""

    features: Names | None
    ignore: Names | None
    weight: str | None
    input_sd: bool
    categorical: Names | None
    numeric: Names | None
    hash: str | Sequence[str] | None  # device:32
    decimal: str | None
    thousands: str | None
    task: str
    time: str | None
    time_unit: str
    lags: str | int | Sequence[int] | None
    id: str | None
    wait: int | None
    layers: int | Sequence[int] | str
    activation: str
    covariance: str
    group_size: int
    noise: str | float
    preset: str
    hidden_noise: float
    prior_variance: str | float
    link: str
    sigmoid_variance: str
    units: bool | str
    clip: bool | str
    widen: bool | str
    robust: bool | str
    drift: bool | str
    ensemble: int
    rehearse: str | int | bool
    seed: int


class Words(RunWords, ModelWords, total=False):
    """Everything that can be said about a run."""

    fresh: bool
    resume: bool
    again: bool
    checkpoint_every: float
    key: Names | None
    common: bool
    open: int | None
    engine: str
    cluster: str


_READ: Final = (
    "weight",
    "input_sd",
    "format",
    "header",
    "limit",
    "shuffle",
    "test_split",
    "epochs",
    "time",
    "time_unit",
    "id",
    "wait",
)
_RUN: Final = (
    "fresh",
    "resume",
    "again",
    "predictions",
    "interval",
    "quantiles",
    "bad_rows",
    "checkpoint_every",
    "common",
    "open",
    "engine",
    "cluster",
)
_SETTINGS: Final = {option.flag.removeprefix("--").replace("-", "_"): option for option in OPTIONS}


def stated(
    sources: Any,
    target: Names | None = None,
    model: str | None = None,
    **words: Unpack[Words],
) -> TrainOptions:
    """The options that words stand for; what is not said has its default."""
    said: dict[str, Any] = dict(words)
    _check_known(said)
    task = check_one_of("--task", said.get("task", "auto"), ("auto", *TASKS))
    on_error = check_one_of("--on-error", said.get("on_error", "stop"), ON_ERROR)
    columns = said.get("columns")
    read = ReadOptions(
        target=listed(target),
        features=listed(said.get("features")),
        ignore=listed(said.get("ignore")),
        categorical=listed(said.get("categorical")),
        numeric=listed(said.get("numeric")),
        hashed=read_buckets(listed(said.get("hash"))),
        decimal=said.get("decimal") or "",
        thousands=said.get("thousands") or "",
        na=listed(said.get("na")),
        delimiter=separator(said.get("delimiter")),
        columns=None if columns is None else tuple(map(str, columns)),
        task=task,
        on_error=on_error,  # type: ignore[arg-type]  # checked above
        lags=None if said.get("lags") is None else _text(said["lags"]),
        **{name: said[name] for name in _READ if name in said},
    )
    texts = {
        option.name: None if said.get(word) is None else _text(said[word])
        for word, option in _SETTINGS.items()
    }
    return TrainOptions(
        key=listed(said.get("key")),
        sources=sources,
        model=model,
        read=read,
        choices=Choices.read(texts, kind=stated_kind(task)),
        **{name: said[name] for name in _RUN if name in said},
    )


def _check_known(said: dict[str, Any]) -> None:
    """Refuse a word that is no option, with the nearest that is one."""
    known = [*Words.__annotations__, *_SETTINGS, "target", "model"]
    for word in said:
        if word not in known:
            close = difflib.get_close_matches(word, known, 1, 0.5)
            hint = f": did you mean {close[0]}?" if close else ""
            raise UsageError(f"no such option: {word}{hint}")


def listed(names: Names | None) -> tuple[str, ...]:
    """One name or several, as texts."""
    if names is None:
        return ()
    return (str(names),) if isinstance(names, str | int) else tuple(map(str, names))


def separator(value: str | None) -> str | None:
    r"""A delimiter as it may be typed: `\t` and `tab` are the tab."""
    return "\t" if value in ("\\t", "tab") else value


def _text(value: Any) -> str:
    """A setting's value as the command line would say it."""
    if isinstance(value, bool):
        return "auto" if value else "off"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "none"
    return str(value)
