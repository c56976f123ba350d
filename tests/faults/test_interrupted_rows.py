"""Whatever is raised while a row is learned, and wherever: the row is learned whole or not at all.

An exception is raised at every line of the package that runs while the row is learned. Afterwards
the model must be, bit for bit, as before or as after the row, and must learn the next row as if
nothing had happened.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

import kbnn

PACKAGE = os.path.dirname(kbnn.__file__)
Row = tuple[dict[str, Any], Any]


class Injected(BaseException):
    """Raised at some line."""


def run(work: Callable[[], object], line: int) -> int:
    """Run until so many lines of the package were reached; how many were."""
    reached = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal reached
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            reached += 1
            if reached == line:
                raise Injected
        return trace

    sys.settrace(trace)
    try:
        work()
    except Injected:
        pass
    finally:
        sys.settrace(None)
    return reached


def content(model: kbnn.Model) -> bytes:
    return b"" if model._model is None else model.to_bytes()


def rows(count: int, label: Callable[[float], Any] = float, seed: int = 0) -> list[Row]:
    x = np.random.default_rng(seed).standard_normal((count, 2))
    return [
        ({"a": float(a), "b": float(b), "c": "uv"[k % 2]}, label(float(a + 2 * b)))
        for k, (a, b) in enumerate(x)
    ]


def classes(value: float) -> str:
    return "low" if value < 0 else "high"


def ids(count: int) -> list[Row]:
    """Every row comes without its target, and three rows later the target comes."""
    made: list[Row] = []
    for k, (x, y) in enumerate(rows(count)):
        made.append(({**x, "id": f"r{k}"}, None))
        if k >= 3:
            made.append(({"id": f"r{k - 3}"}, y))
    return made


SITUATIONS: dict[str, tuple[dict[str, Any], list[Row], int]] = {
    "first row": ({}, rows(3), 0),
    "first row, no warm-up": ({"units": "off"}, rows(3), 0),
    "warm-up": ({}, rows(12), 9),
    "warm-up, a row with a weight": ({}, rows(12), 10),
    "end of the warm-up": ({"layers": 3, "rehearse": 0}, rows(40), 31),
    "ordinary": ({}, rows(42), 40),
    "change of scale": ({"layers": 3, "rehearse": 0}, rows(70), 63),
    "replay": ({}, rows(98), 95),
    "new category": ({}, [*rows(50), ({"a": 1.0, "b": 0.0, "c": "new"}, 1.0), *rows(2)], 50),
    "new column": ({}, [*rows(50), ({"a": 1.0, "b": 0.0, "d": 3.0}, 1.0), *rows(2)], 50),
    "record is counted": ({"rehearse": 0}, rows(292), 288),
    "kinds of target race": ({}, rows(66, lambda v: abs(v) + 1), 63),
    "lags": ({"lags": "1,2"}, rows(52), 50),
    "classes": ({}, rows(52, classes), 50),
    "new class": ({}, [*rows(50, classes), (rows(1)[0][0], "new"), *rows(2, classes)], 50),
    "positive turns negative": ({}, [*rows(60, lambda v: abs(v) + 1), *rows(2)], 60),
    "ensemble": ({"ensemble": 2}, rows(42), 40),
    "late label": ({"id": "id"}, ids(50), 91),
    "row that waits": ({"id": "id"}, ids(50), 92),
}


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
def test_an_exception_at_any_line_leaves_whole_rows(situation: str) -> None:
    check(situation, most=1 << 30)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_an_exception_at_one_of_sixty_lines_leaves_whole_rows(situation: str) -> None:
    check(situation, most=60)


def check(situation: str, most: int) -> None:
    """Raise at every line, or at so many of them."""
    words, stream, at = SITUATIONS[situation]
    options = {"layers": 4, "rehearse": 1, **words}
    weight = 3.0 if "weight" in situation else 1.0
    begun = kbnn.Model(target="y", **options)
    for x, y in stream[:at]:
        begun.learn_one(x, y)
    before = content(begun)

    def fresh() -> kbnn.Model:
        return kbnn.Model.from_bytes(before) if before else kbnn.Model(target="y", **options)

    model = fresh()
    lines = run(lambda: model.learn_one(*stream[at], weight), 0)
    after = content(model)
    assert after != before
    model.learn_one(*stream[at + 1])
    next_after = content(model)
    model = fresh()
    model.learn_one(*stream[at + 1])
    next_before = content(model)
    outcomes = set()
    for line in range(1, lines + 1, -(-lines // most)):
        model = fresh()
        run(lambda: model.learn_one(*stream[at], weight), line)  # noqa: B023  # runs at once
        found = content(model)
        assert found in (before, after), f"half learned at line {line} of {lines}"
        outcomes.add(found)
        if line % 5 == 0:
            model.learn_one(*stream[at + 1])
            assert content(model) == (next_before if found == before else next_after)
    assert before in outcomes


def test_the_reference_in_numpy_learns_whole_rows_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBNN_ENGINE", "numpy")
    begun = kbnn.Model(target="y", layers=2, rehearse=0)
    for x, y in rows(34):
        begun.learn_one(x, y)
    before, row = begun.to_bytes(), rows(1, seed=3)[0]
    lines = run(lambda: begun.learn_one(*row), 0)
    after = begun.to_bytes()
    for line in range(1, lines + 1, 11):
        model = kbnn.Model.from_bytes(before)
        run(lambda: model.learn_one(*row), line)  # noqa: B023  # runs at once
        assert model.to_bytes() in (before, after)


def test_an_exception_in_the_middle_of_a_table_leaves_whole_blocks() -> None:
    stream = rows(120)
    table = {name: [x[name] for x, _ in stream] for name in "abc"} | {"y": [y for _, y in stream]}
    whole = [content_of(stream[:count]) for count in range(len(stream) + 1)]
    probe = kbnn.Model(target="y", layers=4, rehearse=1)
    lines = run(lambda: probe.learn(table), 0)
    for line in range(1, lines + 1, lines // 60):
        model = kbnn.Model(target="y", layers=4, rehearse=1)
        run(lambda: model.learn(table), line)  # noqa: B023  # runs at once
        count = model.rows
        again = kbnn.Model.from_bytes(model.to_bytes()) if model._model is not None else model
        assert again.rows == count
        if count:
            asked = stream[0][0]
            assert repr(model.predict_one(asked)) == repr(whole[count])


def content_of(stream: list[Row]) -> Any:
    model = kbnn.Model(target="y", layers=4, rehearse=1)
    for x, y in stream:
        model.learn_one(x, y)
    return model.predict_one(rows(120)[0][0]) if stream else None


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer")
def test_signals_at_any_time_leave_whole_rows() -> None:
    stream = rows(300)
    alone = kbnn.Model(target="y", layers=4, rehearse=1)
    model = kbnn.Model(target="y", layers=4, rehearse=1)

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Injected

    before = signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    try:
        for k, (x, y) in enumerate(stream):
            alone.learn_one(x, y)
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 * (1 + k % 23))
                model.learn_one(x, y)
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            except Injected:
                interrupted += 1
            assert model.rows in (k, k + 1)
            if model.rows == k:
                model.learn_one(x, y)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted
    assert model.to_bytes() == alone.to_bytes()
