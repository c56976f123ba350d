"""Small data sets and models for the tests of training."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from kbnn.data.read_options import ReadOptions
from kbnn.model.file import load
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import to_state
from kbnn.workflows.options import SettingOverrides
from kbnn.workflows.training import Listener, Training, TrainOptions

SMALL = SettingOverrides(hidden=(6,))


def rows_of_numbers(count: int, seed: int = 0) -> list[str]:
    """A noisy curve with a category and a missing value now and then."""
    random = np.random.default_rng(seed)
    lines = []
    for a, b, e in random.normal(size=(count, 3)).tolist():
        kind = "uvw"[int(abs(a) * 3) % 3]
        shown = "" if abs(e) > 2.2 else repr(b)
        lines.append(f"{a!r},{shown},{kind},{math.sin(a) + 0.5 * b + 0.1 * e!r}")
    return lines


def rows_of_classes(count: int, seed: int = 0) -> list[str]:
    """Three classes, the last of them rare and late."""
    random = np.random.default_rng(seed)
    lines = []
    for at, (a, b) in enumerate(random.normal(size=(count, 2)).tolist()):
        label = "blue" if at > 50 and a > 1.2 else "red" if a + b > 0 else "green"
        lines.append(f"{a!r},{b!r},{label}")
    return lines


def write_csv(path: Path, lines: list[str], header: str = "a,b,kind,y") -> str:
    """A CSV file; its path as text."""
    path.write_text("\n".join([header, *lines]) + "\n")
    return str(path)


def train(
    sources: list[str], model: Path, listener: Listener | None = None, **options: Any
) -> Training:
    """Run a training with a small network; `read` holds further fields of ReadOptions."""
    read = ReadOptions(**options.pop("read", {}))
    options.setdefault("choices", SMALL)
    chosen = TrainOptions(tuple(sources), str(model), read, **options)
    chosen.check()
    training = Training(chosen, listener)
    training.run()
    return training


def state_of(model: OnlineModel | Path) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Everything in a model but where it is in its sources, for exact comparison."""
    header, arrays = to_state(load(str(model)) if isinstance(model, Path) else model)
    header = {name: value for name, value in header.items() if name != "position"}
    return header, {name: [array.shape, array.tobytes()] for name, array in arrays.items()}
