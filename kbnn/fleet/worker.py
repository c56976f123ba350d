"""What a worker of a cluster does: parts of fleets live there, and obey; a single model answers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from kbnn.fleet.crew import Gone
from kbnn.fleet.forms import Forms
from kbnn.fleet.part import Part, Resting
from kbnn.fleet.store import compressed
from kbnn.fleet.work import Taught
from kbnn.model import file as modelfile
from kbnn.model.model import Model
from kbnn.model.rows import Rows
from kbnn.task.forecast import Forecast

_PARTS: dict[str, tuple[Part, int]] = {}
"""In a worker: the parts that live there, and how many orders each has had."""


def obey(name: str, number: int, order: str, args: tuple[Any, ...], after: Any = None) -> Any:
    """In a worker: do what a part is told, once, in turn."""
    if order == "make":
        settings, schema, plain, wanted = args
        part = Part(settings, schema, Forms(plain))
        part.wanted = wanted
        _PARTS[name] = part, number
        return None
    if name not in _PARTS or _PARTS[name][1] != number - 1:
        raise Gone(name)
    part, _ = _PARTS[name]
    try:
        return _DO[order](part, *args)
    finally:
        _PARTS[name] = part, number


def _own(rows: Rows) -> Rows:
    """Rows in memory of their own: that of a message need not be aligned."""
    return Rows._make(part.copy() if isinstance(part, np.ndarray) else part for part in rows)


def _learn(
    part: Part,
    plain: Mapping[str, Any],
    keys: list[str],
    rows: Rows,
    found: Mapping[str, bytes],
    again: bool,
    start: bytes | None,
) -> Taught:
    part.forms.learn(plain)
    if start is not None:
        part.first = lambda: start
    return part.learn(keys, _own(rows), found, again)


def _changed(part: Part) -> tuple[bytes, dict[str, Any]]:
    """In one piece: a cluster takes a list apart, and would send models one by one."""
    resting = [one._replace(content=compressed(one.content)) for one in part.changed()]
    return pickle.dumps(resting), part.forms.plain()


def all_of(resting: bytes) -> list[Resting]:
    """What a worker has written down."""
    found: list[Resting] = pickle.loads(resting)
    return found


def _ask(
    part: Part, plain: Mapping[str, Any], keys: list[str], rows: Rows, found: Mapping[str, bytes]
) -> Forecast:
    part.forms.learn(plain)
    return part.ask(keys, _own(rows), found, Model.predict)


_DO: Final[dict[str, Callable[..., Any]]] = {
    "learn": _learn,
    "changed": _changed,
    "ask": _ask,
    "file": lambda part, key: part.file(key),
    "take": lambda part, key: part.taken(key),
    "shut": lambda part, most: part.shut(most),
}


_MODELS: dict[str, Model] = {}
"""In a worker: the model that answered last, by the hash of its bytes."""


def answer(name: str, content: bytes, wanted: str | None, rows: Rows) -> Forecast:
    """In a worker: what a model says of rows."""
    if name not in _MODELS:
        _MODELS.clear()
        _MODELS[name] = modelfile.load_bytes(content, "the model")
        _MODELS[name].with_intervals(wanted)
    return _MODELS[name].predict(rows)
