"""Engines: rows are learned and predicted in this process or by Dask workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from kbnn.data.batch import Rows, TargetTypeChange
from kbnn.data.row_blocks import concat_rows
from kbnn.fleet.dask_backend import DaskCluster, RemotePredictor
from kbnn.fleet.fleet import Fleet
from kbnn.fleet.key_index import read_keys
from kbnn.model.interface import StreamModel
from kbnn.model.model import OnlineModel
from kbnn.option_table import LOCAL_ENGINE
from kbnn.targets.prediction import Forecast, select_rows

SENT_ROWS: Final = 4096
"""Rows sent to workers in one block, unless the stream is live."""
MAX_BLOCKS_AHEAD: Final = 1
"""Blocks that workers may be learning while the next one is read."""


@contextmanager
def use_engine(model: StreamModel, engine: str, cluster: str) -> Iterator[None]:
    """Run the model's work on an engine within the block; results are identical bit for bit."""
    if engine == LOCAL_ENGINE:
        yield
        return
    dask = DaskCluster(cluster)
    try:
        if isinstance(model, Fleet):
            model.models.use_cluster(dask)
        elif isinstance(model, OnlineModel) and not model.schema.lags:  # lags need single rows
            model.predict_backend = RemotePredictor(dask, model).predict
        yield
    finally:
        if isinstance(model, Fleet):
            model.models.use_cluster(None)
        elif isinstance(model, OnlineModel):
            model.predict_backend = None
        dask.close()


class LearnedRows(NamedTuple):
    """Rows that were learned, with the forecasts made before and changes of the target type."""

    rows: Rows
    forecast: Forecast
    first_invalid_rows: tuple[TargetTypeChange, ...] = ()


class LearningPipeline:
    """Sends rows to a model; rows learned by workers are returned later.

    Reading and the pooled model continue while workers learn, and rows are sent in large blocks.
    On a live stream each block is answered before the next one is read.
    """

    def __init__(self, model: StreamModel, live: bool) -> None:
        self._model = model
        remote = isinstance(model, Fleet) and model.models.uses_workers and not live
        self._fleet = model if remote and isinstance(model, Fleet) else None
        self._unsent: list[tuple[Rows, list[str]]] = []
        self._sent: list[list[Rows]] = []
        self._again = False

    @property
    def is_delayed(self) -> bool:
        """Whether rows may be returned later than they were sent."""
        return self._fleet is not None

    def learn(self, rows: Rows, again: bool) -> Iterator[LearnedRows]:
        """Predict and learn rows; yield these or earlier rows with their forecasts, in order."""
        if self._fleet is None:
            yield LearnedRows(rows, *self._model.learn_batch(rows, again))
            return
        self._unsent.append((rows, read_keys(rows, self._fleet.key)))
        self._again = again
        if sum(len(keys) for _, keys in self._unsent) >= SENT_ROWS:
            self._send_block(self._fleet)
            yield from self._receive_blocks(self._fleet, MAX_BLOCKS_AHEAD)

    def finish(self) -> Iterator[LearnedRows]:
        """Yield the remaining rows."""
        if self._fleet is not None:
            if self._unsent:
                self._send_block(self._fleet)
            yield from self._receive_blocks(self._fleet, 0)

    def _send_block(self, fleet: Fleet) -> None:
        unsent, self._unsent = self._unsent, []
        self._sent.append([rows for rows, _ in unsent])
        whole = concat_rows([rows._replace(original=None) for rows, _ in unsent])
        fleet.send_block([key for _, keys in unsent for key in keys], whole, self._again)

    def _receive_blocks(self, fleet: Fleet, most: int) -> Iterator[LearnedRows]:
        """Yield finished blocks until at most `most` are in flight."""
        while fleet.blocks_in_flight > most:
            forecast, at = fleet.receive_block(), 0
            for rows in self._sent.pop(0):
                yield LearnedRows(rows, select_rows(forecast, slice(at, at + len(rows.y))))
                at += len(rows.y)
