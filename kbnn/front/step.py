"""`kbnn.step`: one step of a stream that somebody else keeps, as bytes in and bytes out.

A keyed stream engine (Spark, Flink, Bytewax) sends rows to their key, keeps what it is told to keep
there, and brings it back with the next rows. A step is all that it needs: nothing is left lying
between two of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from kbnn.errors import UsageError
from kbnn.front.forecasts import Forecasts
from kbnn.front.notices import log_notice
from kbnn.model import file as modelfile
from kbnn.model.model import OnlineModel
from kbnn.model.stored import to_state
from kbnn.run.choices import check_network_size
from kbnn.run.trainoptions import ModelKeywords, ReadKeywords, build_train_options
from kbnn.stream.opening import open_stream
from kbnn.task.base import make_empty_forecast
from kbnn.task.forecast import join_forecasts


class StepKeywords(ModelKeywords, ReadKeywords, total=False):
    """What can be said about a step: what a model is, and how rows are read."""


def step(
    state: bytes | None,
    rows: Any,
    target: str | Sequence[str] | None = None,
    **options: Unpack[StepKeywords],
) -> tuple[bytes, Forecasts]:
    """Learn rows: what a model file would hold afterwards, and what was said of each row before.

    state      what the last step gave; None before the first
    rows       a table, a dict of arrays, or a list of dicts, one a row
    target, options    as for `kbnn.train`; of a new model (later steps need only say how to read)

    It is pure: the same state and rows give the same bytes, and a step that fails leaves nothing.

    >>> import kbnn
    >>> state, said = kbnn.step(None, [{"x": 1.0, "y": 2.5}, {"x": 2.0, "y": 3.5}], "y")
    >>> state, said = kbnn.step(state, [{"x": 3.0, "y": 4.5}])
    >>> len(said), kbnn.Model.from_bytes(state).rows
    (1, 3)
    """
    model = None if state is None else modelfile.load_bytes(state, "the state")
    for word in options:
        if word not in StepKeywords.__annotations__:
            raise UsageError(f"a step has no option {word}")
    chosen = build_train_options(rows, target, **options)
    chosen.check()
    with open_stream(
        chosen.sources,
        options=chosen.read,
        schema=None if model is None else model.schema,
        on_notice=log_notice,
    ) as stream:
        if model is None:
            settings = chosen.choices.make_settings()
            check_network_size(settings, stream.schema)
            model = OnlineModel.create(settings, stream.schema.copy())
        said = [make_empty_forecast(0, model.task.numbers)]
        for block in stream:
            number = model.met + 1 + np.arange(block.count)
            said.append(model.learn(block._replace(number=number)))
    return modelfile.to_bytes(*to_state(model)), Forecasts(model.task, join_forecasts(said))
