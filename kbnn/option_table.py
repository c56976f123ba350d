"""The options of every command, each declared once.

`OPTIONS` feeds the command line (help, completion, environment variables), the keywords of
`kbnn.train`, `kbnn.Model` and the other Python calls, the parameters of the estimators, the
reference of commands, and the check of options against an existing model.

A parser turns what users give, a text of the command line or a value in Python, into the value that
is stored, or raises ValueError (TypeError for what is not a number) with the values that the option
takes. The type of its argument is the type of the keyword. What concerns several options is checked
where they are stored.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from kbnn.core import activations
from kbnn.core.config import Covariance
from kbnn.core.state import PRIORS
from kbnn.data.formats import FORMATS
from kbnn.errors import ArgumentError, UsageError
from kbnn.model.settings import (
    ENCODINGS,
    INTERVAL_MODES,
    MAX_CLASS_WEIGHT,
    MAX_ENSEMBLE,
    MAX_LAYER_UNITS,
    MAX_NOISE_SD,
    MAX_PRIOR_VARIANCE,
    MAX_REPLAY_RATIO,
    NOISE_WORDS,
    PORTFOLIOS,
    PRESETS,
    Settings,
    format_setting,
    is_class_weight,
    is_noise,
    is_prior_variance,
    is_replay_ratio,
    is_variance,
)
from kbnn.targets.registry import TARGET_TYPES

if TYPE_CHECKING:
    from kbnn.model.settings import AlertRate

ColumnNames = str | int | Sequence[str | int]
"""One or several names of columns; in pandas they may be numbers."""

MAX_SAMPLES: Final = 10_000
MAX_DIGITS: Final = 17
LOCAL_ENGINE: Final = "local"
FORMER_LOCAL_ENGINE: Final = "here"
SWITCH_WORDS: Final = ("auto", "off")

ARGUMENTS: Final = "Arguments"
GENERAL: Final = "Options"
MODEL: Final = "Model file"
COLUMNS: Final = "Columns"
LEARNING: Final = "Learning"
NETWORK: Final = "Network"
FLEET: Final = "Fleet"
READING: Final = "Reading"
OUTPUT: Final = "Output"
ALERTS: Final = "Alerts"
CLUSTER: Final = "Cluster"
HELP: Final = "Help"
GROUPS: Final = (
    *(ARGUMENTS, GENERAL, MODEL, COLUMNS, LEARNING, NETWORK),
    *(FLEET, READING, OUTPUT, ALERTS, CLUSTER, HELP),
)
"""The groups of options in the order in which help and documentation show them."""

LONG_COMMANDS: Final = frozenset({"train"})
"""Commands whose `--help` shows only the common options."""

ALL: Final = "train predict evaluate inspect join"
ON_ROWS: Final = "train predict evaluate"


def parse_text(value: str) -> str:
    """Return a text as it is."""
    return value


def parse_integer(value: int | str) -> int:
    """Parse a whole number."""
    try:
        number = int(value)
        if isinstance(value, str) or number == value:
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise TypeError(f"takes a whole number, not '{value}'")


def limit_integer(least: int, most: int, shown: str = "") -> Callable[[int | str], int]:
    """Make the parser of a whole number within limits."""

    def parse_limited(value: int | str) -> int:
        number = parse_integer(value)
        if not least <= number <= most:
            raise ValueError(f"must lie between {least} and {shown or most}, not {number}")
        return number

    return parse_limited


def parse_positive_integer(value: int | str) -> int:
    """Parse a whole number of at least 1."""
    number = parse_integer(value)
    if number < 1:
        raise ValueError(f"must be at least 1, not {number}")
    return number


def parse_seconds(value: float | str) -> float:
    """Parse a number of seconds."""
    return _to_float(value, "takes a number of seconds")


def parse_share(value: float | str) -> float:
    """Parse a share: 0.9 or 90%."""
    takes = "takes a share such as 0.9 or 90%"
    if isinstance(value, str) and value.strip().endswith("%"):
        return _to_float(value.strip()[:-1], takes, value) / 100.0
    return _to_float(value, takes)


def parse_level(value: float | str) -> float:
    """Parse the level of an interval or a quantile, a share between 0 and 1."""
    level = parse_share(value)
    if not 0.0 < level < 1.0:
        raise ValueError(f"must lie between 0 and 1, not {level:g}")
    return level


def parse_class_weight(value: str | Mapping[Any, float]) -> str:
    """Parse weights of classes: none, balanced, a mapping, or a CSV file of class and weight."""
    import json

    if value in ("none", "balanced"):
        return str(value)
    pairs = (
        _read_class_weights(value)
        if isinstance(value, str) and not is_class_weight(value)
        else (json.loads(value) if isinstance(value, str) else value).items()
    )
    weights = {}
    for name, weight in pairs:
        number = _to_float(weight, f"needs a number as the weight of class '{name}'")
        if not 1.0 / MAX_CLASS_WEIGHT <= number <= MAX_CLASS_WEIGHT:
            raise ValueError(
                f"has {number:g} as the weight of class '{name}'. "
                f"Weights lie between {1 / MAX_CLASS_WEIGHT:g} and {MAX_CLASS_WEIGHT:g}"
            )
        weights[str(name)] = number
    return json.dumps(dict(sorted(weights.items())))


def _read_class_weights(path: str) -> list[list[str]]:
    """Read the lines of a CSV file of class and weight; a first line class,weight is its header."""
    import csv

    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file) if line]
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"takes none, balanced or a CSV file of class,weight. The file '{path}' cannot be read "
            f"({getattr(error, 'strerror', None) or 'not UTF-8 text'})"
        ) from None
    if lines and lines[0] == ["class", "weight"]:
        lines = lines[1:]
    if not lines:
        raise ValueError(f"has no weights in '{path}'; needed are lines of class,weight")
    for number, line in enumerate(lines, 1):
        if len(line) != 2:
            raise ValueError(f"{path}:{number}: has {len(line)} fields; needed are class,weight")
    return lines


def parse_cost(value: float | str) -> float:
    """Parse a cost, a number from 0."""
    cost = _to_float(value, "takes a number")
    if not 0.0 <= cost < 1e100:
        raise ValueError(f"must be 0 or more, not {cost:g}")
    return cost


def parse_levels(value: str | Sequence[float]) -> tuple[float, ...]:
    """Parse several levels: 0.05,0.5,0.95 or 5%,50%,95%."""
    try:
        return tuple(map(parse_level, value.split(",") if isinstance(value, str) else value))
    except TypeError:
        raise TypeError(f"takes shares such as 0.05,0.5,0.95, not '{value}'") from None


def _to_float(value: Any, takes: str, shown: object = None) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{takes}, not '{value if shown is None else shown}'") from None


def parse_names(value: ColumnNames) -> tuple[str, ...]:
    """Return one or several names as texts."""
    return (str(value),) if isinstance(value, str | int) else tuple(map(str, value))


def parse_lags(value: str | int | Sequence[int]) -> str:
    """Return lags as one text, which the schema parses once the columns are known."""
    return value if isinstance(value, str) else ",".join(parse_names(value))


def parse_delimiter(value: str) -> str:
    r"""Return a delimiter; `\t` and `tab` are the tab."""
    return "\t" if value in ("\\t", "tab") else value


def parse_hash(value: str | Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Parse columns with their number of buckets: device:32."""
    from kbnn.data.read_options import parse_hash_options

    return parse_hash_options(parse_names(value))


def parse_rate(value: float | str) -> AlertRate:
    """Parse a rate of false alarms: 1e-3 per row, or 1/week."""
    from kbnn.model.settings import parse_alert_rate

    return parse_alert_rate(value)


def choose_word(words: Sequence[str], **stored: str) -> Callable[[str], str]:
    """Make the parser of one of several words; `stored` maps words to what is stored."""

    def parse_word(value: str) -> str:
        if value not in words and value not in stored:
            raise ValueError(f"is {', '.join(words[:-1])} or {words[-1]}, not '{value}'")
        return stored.get(value, value)

    return parse_word


def parse_switch(value: bool | str) -> bool:
    """Parse auto (True) or off (False)."""
    return value if isinstance(value, bool) else choose_word(SWITCH_WORDS)(value) == "auto"


def parse_layers(value: int | Sequence[int] | str) -> tuple[int, ...] | str:
    """Parse the sizes of the hidden layers."""
    if isinstance(value, str) and value.strip() in (*PORTFOLIOS, "none"):
        return value.strip() if value.strip() in PORTFOLIOS else ()
    listed = value.split(",") if isinstance(value, str) else value
    try:
        sizes = tuple(map(parse_integer, listed if isinstance(listed, Iterable) else [listed]))
    except TypeError:
        sizes = (-1,)
    if sizes == (0,):
        return ()
    if not all(0 < size <= MAX_LAYER_UNITS for size in sizes):
        raise ValueError(f"takes sizes such as 50 or 50,50, none, auto or best; not '{value}'")
    return sizes


def parse_activation(value: str | Sequence[str]) -> str:
    """Parse the name of an activation, or one for each hidden layer."""
    names = activations.split_names(value if isinstance(value, str) else ",".join(value))
    try:
        for name in names:
            activations.find_activation(name)
    except ValueError:
        known = ", ".join(activations.ACTIVATIONS)
        raise ValueError(f"is {known} or max(alpha,beta); not '{value}'") from None
    return ",".join(names)


def parse_noise(value: float | str) -> str | float:
    """Parse how the noise is learned, or its standard deviation."""
    number: str | float = _to_number(value)
    if not is_noise(number):
        words = "auto, constant, or a standard deviation in the target's units"
        raise ValueError(f"is {words}, at most {MAX_NOISE_SD:g}; not '{value}'")
    return number


def parse_variance(value: float | str) -> float:
    """Parse a variance."""
    number: float = _to_number(value)
    if not is_variance(number):
        limit = f"0 or more and less than {MAX_PRIOR_VARIANCE:g}"
        raise ValueError(f"is a variance, {limit}; not '{value}'")
    return number


def parse_prior_variance(value: float | str) -> str | float:
    """Parse a rule for prior variances, or one variance for all weights."""
    number: str | float = _to_number(value)
    if not is_prior_variance(number):
        raise ValueError(f"is {', '.join(PRIORS)} or a variance greater than 0; not '{value}'")
    return number


def _to_number(value: Any) -> Any:
    """Return the number that a text spells; any other value as it is."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def parse_replay_ratio(value: int | bool | str) -> str | int:
    """Parse auto, off, or how often each early row is replayed."""
    if isinstance(value, bool):
        value = "auto" if value else "off"
    ratio = 0 if value == "off" else value
    if isinstance(ratio, str) and ratio.isdecimal():
        ratio = int(ratio)
    if ratio == "later" or not is_replay_ratio(ratio):
        raise ValueError(f"is auto, off, or a number up to {MAX_REPLAY_RATIO}; not '{value}'")
    return ratio


parse_interval_mode = choose_word(
    tuple(INTERVAL_MODES), **INTERVAL_MODES, **{value: value for value in INTERVAL_MODES.values()}
)
"""Parse an interval mode to its stored value; stored values are accepted too."""


def list_decimal_marks() -> Iterable[str]:
    """Return the decimal marks, for completion."""
    from kbnn.data.number_format import DECIMAL_MARKS

    return DECIMAL_MARKS


def list_thousands_marks() -> Iterable[str]:
    """Return the thousands marks, for completion; shells would read an apostrophe as a quote."""
    from kbnn.data.number_format import THOUSANDS_MARKS, format_mark

    return [format_mark(mark) for mark in THOUSANDS_MARKS if mark != "'"]


def list_time_units() -> Iterable[str]:
    """Return the units of times, for completion."""
    from kbnn.data.timestamps import TIME_UNITS

    return TIME_UNITS


Home = Literal["settings", "read", "run", "call"]
"""Where a value is stored: a field of `Settings`, `ReadOptions` or `TrainOptions`, or nowhere."""


class Option(NamedTuple):
    """An option, or an argument (in the group `ARGUMENTS`).

    Values that several arguments or `repeats` give are lists; `splits` also splits them at commas
    on the command line. Without a `metavar` it is a switch; `negated` adds `--no-NAME`.
    """

    name: str  # in Python; on the command line with dashes
    metavar: str
    help: str
    parse: Callable[[Any], Any] = parse_text
    default: Any = None  # as users give it; settings have theirs in `Settings`
    shown_default: str = ""  # in place of the value
    words: Iterable[str] | Callable[[], Iterable[str]] = ()  # fixed values, which shells complete
    field: str = ""  # the name under which it is stored, if that differs
    former: str = ""  # the former name, which stays valid
    letter: str = ""  # as in -m
    repeats: bool = False
    splits: bool = False
    negated: bool = False
    required: bool = False
    common: bool = False  # shown in the short help of `LONG_COMMANDS`
    estimator: bool = False  # a parameter of the estimators
    group: str = GENERAL
    home: Home = "call"
    commands: str = "train"
    python_only: bool = False

    @property
    def flag(self) -> str:
        """The option as typed."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def stored_name(self) -> str:
        """The name of the field that stores the value."""
        return self.field or self.name

    @property
    def python_type(self) -> str:
        """The type of the keyword, as Python source."""
        if not self.metavar:
            return "bool"
        return "ColumnNames" if self.splits else str(self.parse.__annotations__["value"])

    @property
    def python_default(self) -> Any:
        """The default as a value in Python."""
        stored = self.default
        if self.home == "settings":
            stored = getattr(_SETTINGS, self.stored_name)
        return stored[0] if isinstance(stored, tuple) and len(stored) == 1 else stored

    def list_words(self) -> Iterable[str]:
        """Return the fixed values of the option."""
        return self.words() if callable(self.words) else self.words

    def describe_default(self) -> str:
        """Return the default as users type it, "" if there is none."""
        if self.shown_default or self.home != "settings":
            return self.shown_default or ("" if self.default in (None, ()) else str(self.default))
        return self.format_value(getattr(_SETTINGS, self.stored_name))

    def format_value(self, stored: Any) -> str:
        """Format a stored value as users type it."""
        return format_setting(self.stored_name, stored)

    def parse_value(self, value: Any) -> Any:
        """Parse a value; raise UsageError if the option does not take it."""
        try:
            return self.parse(value)
        except ValueError as error:
            raise UsageError(f"{self.flag} {error}") from None
        except TypeError as error:
            raise ArgumentError(f"{self.flag} {error}") from None


def _declare(group: str, home: Home, *options: Option) -> Iterator[Option]:
    """Yield the options of a group that are stored in the same place."""
    for option in options:
        if not option.metavar:
            default = False if option.default is None and not option.negated else option.default
            option = option._replace(parse=bool, default=default)
        elif option.repeats or option.splits:
            option = option._replace(default=())
        yield option._replace(group=group, home=home)


def _choice(name: str, words: Sequence[str], help: str, metavar: str = "", **rest: Any) -> Option:
    """Declare a setting that is one of several words."""
    shown = metavar or "|".join(words)
    return Option(name, shown, help, choose_word(words), words=words, **rest)


def _guard(name: str, help: str, **rest: Any) -> Option:
    """Declare a setting that is on unless it is switched off."""
    return Option(name, "|".join(SWITCH_WORDS), help, parse_switch, words=SWITCH_WORDS, **rest)


_SETTINGS: Final = Settings()
_COVARIANCES: Final = ("auto", *get_args(Covariance))
_TASKS: Final = ("auto", *TARGET_TYPES)
_FORECAST: Final = "Forecast this many steps ahead of the last row (models with lags)."

# fmt: off
OPTIONS: Final = (
    *_declare(ARGUMENTS, "call",
        Option("model", "MODEL", "Read this model file or fleet folder; -m MODEL works too.",
            commands="predict evaluate inspect", required=True),
        Option("sources", "SOURCES",
            "Read CSV, TSV, Parquet, Arrow or JSON lines; folders, globs, or - for stdin.",
            commands="train evaluate", repeats=True, required=True),
        Option("sources", "SOURCES", "Read these sources, as for train; optional with --horizon.",
            commands="predict", repeats=True),
        Option("models", "MODELS...", "Read two or more model files.", commands="join",
            repeats=True, required=True),
    ),
    *_declare(GENERAL, "call",
        Option("learn", "", "Predict each row, then learn it, as train does; save nothing.",
            commands="evaluate"),
        Option("horizon", "STEPS", _FORECAST, parse_integer, commands="predict evaluate"),
    ),
    *_declare(MODEL, "call",
        Option("model", "FILE", "Create this model file, or continue training it.",
            default="model.npz", shown_default="model.npz; with --key: fleet", letter="m",
            common=True),
    ),
    *_declare(MODEL, "run",
        Option("fresh", "", "Start a new model, even if the file holds one.", common=True),
        Option("resume", "", "Continue an interrupted run on the same sources, or explain why not.",
            common=True),
        Option("relearn", "",
            "Learn all rows from the first, even if a run on them was interrupted.", field="again",
            former="again"),
        Option("checkpoint_every", "SECONDS", "Save the model this often during training.",
            parse_seconds, 30.0),
    ),
    *_declare(COLUMNS, "read",
        Option("target", "COLUMNS", "Predict these columns: price, or several: a,b.", parse_names,
            shown_default="the last column", splits=True, common=True),
        Option("features", "COLUMNS", "Learn from these columns only.", parse_names,
            shown_default="all other columns", splits=True, common=True),
        Option("ignore", "COLUMNS", "Leave these columns out.", parse_names, splits=True,
            common=True),
        Option("weight", "COLUMN", "Weight each row by this column."),
        Option("input_sd", "", "Use column x_sd as the standard deviation of column x."),
        Option("categorical", "COLUMNS",
            "Treat these columns as categories, even if they look numeric: zip,month.", parse_names,
            splits=True),
        Option("numeric", "COLUMNS",
            "Treat these columns as numbers, even if some values look like text.", parse_names,
            splits=True),
        Option("hash", "COLUMN:N", "Hash a column with many categories into N inputs: device:32.",
            parse_hash, field="hashed", splits=True),
        _choice("task", _TASKS, f"Set the target type: {', '.join(TARGET_TYPES)}.", "TASK",
            default="auto", common=True),
        Option("time", "COLUMN", "Use this column as the time, and learn from its calendar.",
            shown_default="the first column of timestamps", common=True),
        Option("time_unit", "UNIT",
            "Set the unit of numeric times since 1970: s, ms, us, ns; or year.", default="auto",
            words=list_time_units),
        Option("lags", "LAGS",
            "Learn from past values: 1,2,24 rows; 1h,7d; temp:1,2;load:24; or off.", parse_lags,
            shown_default="detected", common=True),
        Option("known_ahead", "COLUMNS",
            "Name inputs that are known when forecasts are made, or none.", parse_names,
            splits=True),
        Option("holidays", "COUNTRY",
            "Add public holidays as an input: DE, US-CA (needs kbnn[holidays]).", default=""),
        Option("id", "COLUMN",
            "Match late labels by this column: rows without a target wait for it."),
        Option("max_pending", "ROWS",
            "Keep at most this many rows waiting for a label (--id); evict the oldest.",
            parse_integer, shown_default="10000", field="wait", former="wait"),
    ),
    *_declare(LEARNING, "read",
        Option("epochs", "N", "Make N passes over the sources.", parse_integer, 1, common=True),
        Option("shuffle", "", "Shuffle the rows in bounded memory, for sorted files.", common=True),
        Option("test_split", "SHARE",
            "Hold out this share of the rows, 0.1 or 10%, for a final test.", parse_share, 0.0,
            common=True),
    ),
    *_declare(NETWORK, "settings",
        _choice("preset", tuple(PRESETS),
            "Start from a bundle of defaults: fast, best, or the published paper.", common=True),
        Option("layers", "SIZES",
            "Use one network of these hidden layers: 50, or 50,50; none is linear.",
            parse_layers, words=("none", *PORTFOLIOS), field="hidden", common=True, estimator=True),
        Option("activation", "NAME", f"Use {', '.join(activations.ACTIVATIONS)} hidden units.",
            parse_activation, words=tuple(activations.ACTIVATIONS), estimator=True),
        _choice("encoding", ENCODINGS,
            "Encode numeric inputs by bins: none, piecewise, or where it pays."),
        _choice("covariance", _COVARIANCES,
            f"Set which weights correlate: {', '.join(_COVARIANCES)}.", "KIND", estimator=True),
        Option("group_size", "N", "Set the hidden units per group (--covariance group).",
            parse_positive_integer, shown_default="10 or fewer", estimator=True),
        Option("noise", "NOISE",
            "Learn the noise (auto, constant), or give its sd in the target's units.", parse_noise,
            words=NOISE_WORDS, estimator=True),
        Option("hidden_noise", "VARIANCE",
            "Add this variance to hidden units (--covariance paper).", parse_variance),
        Option("prior_variance", "RULE",
            f"Set the prior variance of weights: {', '.join(PRIORS)} or a number.",
            parse_prior_variance, words=tuple(PRIORS)),
        _choice("link", ("probit", "sigmoid"),
            "Set the link of classes; sigmoid is the paper's, for two classes."),
        _choice("sigmoid_variance", ("exact", "printed"),
            "Compute the variance of sigmoid and tanh exactly, or as printed."),
        _guard("standardize", "Standardize columns; off uses their own units from the first row.",
            field="units", former="units"),
        _guard("clip", "Clip standardized inputs to the range -8 to 8."),
        _guard("inflate", "Inflate the variance for rows that are learned more than once.",
            field="widen", former="widen"),
        Option("intervals", "|".join(INTERVAL_MODES),
            "Calibrate intervals online, or leave them to the model.", parse_interval_mode,
            words=tuple(INTERVAL_MODES)),
        Option("class_weight", "none|balanced|FILE",
            "Weigh rows by class: all classes equally, or as in a CSV file of class,weight.",
            parse_class_weight, words=("none", "balanced")),
        _guard("robust", "Reduce the weight of outliers, and learn the temperature of classes.",
            estimator=True),
        _guard("drift", "Forget old rows after a drift alarm.", estimator=True),
        Option("ensemble", "K", "Average the predictions of K networks.",
            limit_integer(1, MAX_ENSEMBLE), estimator=True),
        Option("replay", "auto|off|K", "Replay each early row K times; auto is 8.",
            parse_replay_ratio, words=SWITCH_WORDS, field="rehearse", former="rehearse",
            estimator=True),
        Option("seed", "N", "Set the random seed of the first weights and of --shuffle.",
            limit_integer(0, 2**63 - 1, "2^63 - 1"), common=True, estimator=True),
    ),
    *_declare(FLEET, "run",
        Option("key", "COLUMNS",
            "Train one model per value of these columns: a fleet, in a folder.", parse_names,
            splits=True, common=True),
        Option("pooling", "", "Start models of new keys from a model of all rows, or from scratch.",
            default=True, field="common", former="common", negated=True),
        Option("max_open_models", "N",
            "Keep at most N models of a fleet in memory; the rest stay on disk.", parse_integer,
            shown_default="10000", field="open", former="open"),
    ),
    *_declare(READING, "read",
        Option("limit", "N", "Read at most N rows per pass.", parse_integer, shown_default="all",
            commands=ON_ROWS, common=True),
        _choice("on_error", ("stop", "skip"), "Stop at a row that cannot be read, or skip it.",
            default="stop", commands="train evaluate", common=True),
        Option("on_error", "skip|stop",
            "Write a row that cannot be read without prediction, or stop there.",
            choose_word(("skip", "stop"), skip="keep"), "skip", words=("stop", "skip"),
            commands="predict"),
        Option("columns", "NAMES", "Name the columns of a numpy array.", parse_names,
            commands=ON_ROWS, python_only=True),
    ),
    *_declare(READING, "run",
        Option("bad_rows", "FILE",
            "Write rows that cannot be read to a CSV file, with place and reason.",
            commands=ON_ROWS),
    ),
    *_declare(READING, "read",
        Option("na", "TEXT", "Treat this text as a missing value too (repeatable).", parse_names,
            commands=ON_ROWS, repeats=True),
        Option("format", "FORMAT", f"Set the format: {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.",
            default="auto", words=FORMATS, commands=ON_ROWS),
        Option("delimiter", "CHAR", r"Separate fields by this character; \t is a tab.",
            parse_delimiter, shown_default="detected", commands=ON_ROWS),
        Option("decimal", "MARK", "Set the decimal mark of numbers: . or a comma.",
            shown_default="detected", words=list_decimal_marks),
        Option("thousands", "MARK", "Set the thousands mark of numbers: , . ' or space.",
            shown_default="detected", words=list_thousands_marks),
        Option("header", "", "Read column names from the first line, or treat it as data.",
            shown_default="detected", commands=ON_ROWS, negated=True),
    ),
    *_declare(OUTPUT, "call",
        Option("output", "FILE",
            "Write to .csv, .tsv, .jsonl, .parquet or .arrow; - is CSV on stdout.", default="-",
            letter="o", commands="predict"),
        Option("output", "FILE.npz", "Write the joined model to this file.", letter="o",
            required=True, commands="join"),
        Option("key", "KEY", "Show the model of this key of a fleet; several columns: north,d7.",
            commands="inspect"),
        Option("export", "FILE.npz", "Write the model shown to a file of its own.",
            commands="inspect"),
        Option("force", "", "Replace the output file if it exists.", commands="inspect join"),
        Option("weights", "",
            "Print every weight as CSV: mean, sd and prior; or add them to --json.",
            commands="inspect"),
        Option("weights_file", "FILE.npz",
            "Write means and covariances of all weights as NumPy arrays.", commands="inspect"),
        Option("diff", "OTHER", "Compare with another model, which is listed first.",
            commands="inspect"),
        Option("fail_if", "CONDITION",
            "Exit with code 3 if this holds: 'rmse>3', 'coverage_90<85%' (repeatable).",
            parse_names, repeats=True, commands="evaluate"),
        Option("fail_if", "CONDITION", "Exit with code 3 if this holds: 'alerts>0' (repeatable).",
            parse_names, repeats=True),
    ),
    *_declare(OUTPUT, "call",
        Option("metric", "NAME", "Show this metric first, such as auc, f1_macro, mape or rmse.",
            commands="evaluate"),
        Option("threshold", "P",
            "Predict the positive class from this probability on: 0.3 or 30%.", parse_level,
            commands="evaluate"),
        Option("positive", "CLASS",
            "Set the positive of two classes, of which AUC, threshold and costs are.",
            shown_default="the last in order", commands="evaluate"),
        Option("cost_fn", "COST",
            "Set the cost of missing the positive class; finds the best threshold.", parse_cost,
            commands="evaluate"),
        Option("cost_fp", "COST",
            "Set the cost of a false alarm; finds the best threshold.", parse_cost,
            commands="evaluate"),
    ),
    *_declare(OUTPUT, "run",
        Option("predictions", "FILE",
            "Write each prediction made before learning the row; - is stdout.", common=True),
        Option("interval", "SHARE", "Set the probability that lower and upper enclose: 0.9 or 90%.",
            parse_level, 0.9, commands="train predict"),
        Option("quantiles", "SHARES", "Add quantile columns: 0.05,0.5,0.95 adds q05, q50 and q95.",
            parse_levels, (), commands=ON_ROWS),
        Option("decompose", "",
            "Add the parts of sd: function_sd (epistemic) and noise_sd (aleatoric).",
            commands="predict"),
        Option("surprise", "",
            "Add surprise, -log10 of the row's tail probability, and its pit.",
            commands="train predict"),
        Option("digits", "N", "Round predicted numbers to N significant digits; 17 keeps all.",
            limit_integer(1, MAX_DIGITS), shown_default="8 digits of sd", commands="train predict"),
    ),
    *_declare(ALERTS, "run",
        Option("alerts", "FILE", "Write each anomaly as it is detected; - is stdout.", common=True,
            commands="train evaluate"),
        Option("alert_rate", "RATE",
            "Set the rate of false alarms: 1e-3 per row, or 1/week with a time column.",
            parse_rate, shown_default="0.001", commands="train evaluate"),
        Option("watch", "target|inputs|all|COLUMNS",
            "Raise alerts for the target, the numeric inputs, both, or these columns.",
            parse_names, shown_default="target", splits=True, commands="train evaluate"),
        Option("alert_exec", "COMMAND",
            "Run this command for each alert, with the alert as JSON on its stdin."),
    ),
    *_declare(ALERTS, "call",
        Option("events", "FILE.csv",
            "Score alerts against known events: columns start and end, rows or times.",
            commands="evaluate"),
    ),
    *_declare(OUTPUT, "call",
        Option("intervals", "|".join(INTERVAL_MODES),
            "Use intervals calibrated on the stream, or those of the model alone.",
            parse_interval_mode, shown_default="as trained", words=tuple(INTERVAL_MODES),
            commands="predict evaluate"),
        Option("explain", "",
            "Add base and why_COLUMN: what each column contributes to the prediction.",
            commands="predict"),
        Option("explain_text", "K",
            "Add the K largest contributions as one text: age +3.1, bmi -1.2.",
            parse_positive_integer, commands="predict"),
        Option("samples", "N",
            "Add N draws of the function, the same N for all rows: sample_1, sample_2.",
            limit_integer(1, MAX_SAMPLES), commands="predict"),
        Option("seed", "N", "Set the random seed of --samples.",
            limit_integer(0, 2**63 - 1, "2^63 - 1"), 0, commands="predict"),
        Option("ask", "K",
            "Add the column ask: number the K rows whose labels would help most.",
            parse_positive_integer, commands="predict"),
        Option("only_predictions", "", "Write the predictions without the input columns.",
            commands="predict"),
        Option("report", "FILE.html",
            "Write an HTML report with all metrics and figures, in a single file.",
            commands="evaluate inspect"),
        Option("plot", "FILE.png|svg|pdf", "Write the main figure as an image.",
            commands="evaluate inspect"),
        Option("plot", "FILE.png|svg|pdf",
            "Draw the rows of this run with their alerts (--alerts)."),
        Option("plot", "FILE.png|svg|pdf",
            "Draw the forecast (--horizon), or why the first row has its value (--explain).",
            commands="predict"),
        Option("no_plots", "", "Print no charts; charts are printed on terminals only.",
            commands="evaluate inspect"),
        Option("log", "FILE.jsonl", "Append the history of the run, one JSON object per line."),
        Option("dry_run", "", "Show the detected columns and exit.", common=True),
        Option("json", "", "Print one JSON object to standard output.", commands=ALL, common=True),
        Option("quiet", "", "Print nothing but errors.", letter="q",
            commands="train predict join", common=True),
        Option("quiet", "", "Print the results without notices and progress.", letter="q",
            commands="evaluate", common=True),
    ),
    *_declare(CLUSTER, "run",
        Option("engine", "local|dask", "Run in this process, or on the workers of a Dask cluster.",
            choose_word((LOCAL_ENGINE, "dask"), **{FORMER_LOCAL_ENGINE: LOCAL_ENGINE}),
            LOCAL_ENGINE, words=(LOCAL_ENGINE, "dask"), commands=ON_ROWS),
        Option("cluster", "local:N|ADDRESS",
            "Start N local workers, or connect to a Dask scheduler (--engine dask).",
            default="local:2", commands=ON_ROWS),
    ),
)
# fmt: on
"""Every option and argument, by group in the order of the help."""


@cache
def list_options(command: str) -> tuple[Option, ...]:
    """Return the options and arguments of a command, in the order of the help."""
    return tuple(option for option in OPTIONS if command in option.commands.split())


@cache
def list_keywords(command: str = "train") -> Mapping[str, Option]:
    """Return the options of a command that Python takes, by name."""
    found = [option for option in list_options(command) if option.home != "call"]
    return {option.name: option for option in found}


FORMER_KEYWORDS: Final = {o.former: o.name for o in list_keywords().values() if o.former}
"""Former names of options, with the present ones."""

FORMER_FLAGS: Final = {
    f"--{prefix}{option.former}": f"--{prefix}{option.flag[2:]}"
    for option in list_keywords().values()
    if option.former
    for prefix in ("", "no-")[: 1 + option.negated]
}
"""Former spellings of options, which stay valid, with the present ones."""


def parse_options(command: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the values of a command's options.

    Parameters
    ----------
    command
        The command, or the Python call of the same name.
    given
        Values by the names of their options; None was not given.

    Returns
    -------
    dict
        The value to store of each option that was given or has a default, by its name.

    Raises
    ------
    UsageError
        If an option does not take its value.
    """
    values = {}
    for option in list_options(command):
        value = given.get(option.name)
        value = option.default if value is None else value
        if value is not None:
            values[option.name] = option.parse_value(value)
    return values


def parse_keywords(command: str, given: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Parse the keywords of a Python call, as `parse_options` does.

    Raise UsageError also for a keyword that is not `known`, with the nearest that is, and for one
    that is given by its former name too.
    """
    known = [*known]
    present: dict[str, Any] = {}
    for word, value in given.items():
        name = FORMER_KEYWORDS.get(word, word)
        if name not in known:
            close = difflib.get_close_matches(word, known, 1, 0.5)
            hint = f": did you mean {close[0]}?" if close else ""
            raise UsageError(f"no such option: {word}{hint}")
        if word != name and name in given:
            raise UsageError(f"{word} is the former name of {name}: give only {name}")
        present[name] = value
    return {name: value for name, value in parse_options(command, present).items() if name in known}
