"""What a worker of a cluster does: parts of fleets live there, and obey; a single model answers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from kbnn.fleet.crew import PartitionLost
from kbnn.fleet.forms import PackedLayouts
from kbnn.fleet.part import Partition, StoredModel
from kbnn.fleet.store import compress_model
from kbnn.fleet.work import PartitionUpdate
from kbnn.model import file as modelfile
from kbnn.model.model import OnlineModel
from kbnn.model.rows import Rows
from kbnn.task.forecast import Forecast

_PARTITIONS: dict[str, tuple[Partition, int]] = {}
"""In a worker: the parts that live there, and how many orders each has had."""


def run_request(
    name: str, number: int, order: str, args: tuple[Any, ...], after: Any = None
) -> Any:
    """In a worker: do what a part is told, once, in turn."""
    if order == "make":
        settings, schema, plain, wanted = args
        part = Partition(settings, schema, PackedLayouts(plain))
        part.interval_mode = wanted
        _PARTITIONS[name] = part, number
        return None
    if name not in _PARTITIONS or _PARTITIONS[name][1] != number - 1:
        raise PartitionLost(name)
    part, _ = _PARTITIONS[name]
    try:
        return _HANDLERS[order](part, *args)
    finally:
        _PARTITIONS[name] = part, number


def _copy_rows(rows: Rows) -> Rows:
    """Rows in memory of their own: that of a message need not be aligned."""
    return Rows._make(part.copy() if isinstance(part, np.ndarray) else part for part in rows)


def _learn_rows(
    part: Partition,
    plain: Mapping[str, Any],
    keys: list[str],
    rows: Rows,
    found: Mapping[str, bytes],
    again: bool,
    start: bytes | None,
) -> PartitionUpdate:
    part.layouts.add_layouts(plain)
    if start is not None:
        part.make_initial_bytes = lambda: start
    return part.learn(keys, _copy_rows(rows), found, again)


def _serialize_changed(part: Partition) -> tuple[bytes, dict[str, Any]]:
    """In one piece: a cluster takes a list apart, and would send models one by one."""
    resting = [one._replace(content=compress_model(one.content)) for one in part.iter_changed()]
    return pickle.dumps(resting), part.layouts.to_json()


def unpickle_changed(resting: bytes) -> list[StoredModel]:
    """What a worker has written down."""
    found: list[StoredModel] = pickle.loads(resting)
    return found


def _apply_models(
    part: Partition,
    plain: Mapping[str, Any],
    keys: list[str],
    rows: Rows,
    found: Mapping[str, bytes],
) -> Forecast:
    part.layouts.add_layouts(plain)
    return part.apply_models(keys, _copy_rows(rows), found, OnlineModel.predict)


_HANDLERS: Final[dict[str, Callable[..., Any]]] = {
    "learn": _learn_rows,
    "changed": _serialize_changed,
    "ask": _apply_models,
    "file": lambda part, key: part.file(key),
    "take": lambda part, key: part.taken(key),
    "shut": lambda part, most: part.shut(most),
}


_LAST_MODEL: dict[str, OnlineModel] = {}
"""In a worker: the model that answered last, by the hash of its bytes."""


def predict_in_worker(name: str, content: bytes, wanted: str | None, rows: Rows) -> Forecast:
    """In a worker: what a model says of rows."""
    if name not in _LAST_MODEL:
        _LAST_MODEL.clear()
        _LAST_MODEL[name] = modelfile.load_bytes(content, "the model")
        _LAST_MODEL[name].set_interval_mode(wanted)
    return _LAST_MODEL[name].predict(rows)
