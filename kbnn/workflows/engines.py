"""Where rows are learned and answered: in this process, or in the workers of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from kbnn.data.batch import Rows, TargetTypeChange
from kbnn.data.row_blocks import concat_rows
from kbnn.fleet.dask_backend import DaskCluster, RemotePredictor
from kbnn.fleet.fleet import Fleet
from kbnn.model.model import OnlineModel
from kbnn.targets.prediction import Forecast, select_rows
from kbnn.workflows.options import ENGINES, LOCAL_ENGINE, check_choice

SENT_ROWS: Final = 4096
"""Rows that go to workers together, unless a stream is live."""
MAX_BLOCKS_AHEAD: Final = 1
"""Blocks that may be learned in workers while the next one is read."""


@contextmanager
def use_engine(model: OnlineModel, engine: str, cluster: str) -> Iterator[None]:
    """Have a model's work done there meanwhile; the results are the same to the bit."""
    if check_choice("--engine", engine, ENGINES) == LOCAL_ENGINE:
        yield
        return
    crew = DaskCluster(cluster)
    try:
        if isinstance(model, Fleet):
            model.use_cluster(crew)
        elif not model.schema.lags:  # rows that follow one another are answered one by one
            model.predict_backend = RemotePredictor(crew, model).predict
        yield
    finally:
        if isinstance(model, Fleet):
            model.use_cluster(None)
        model.predict_backend = None
        crew.close()


class LearnedRows(NamedTuple):
    """Rows that were learned, what was said of them before, and what happened."""

    rows: Rows
    forecast: Forecast
    first_invalid_rows: tuple[TargetTypeChange, ...] = ()


class LearningPipeline:
    """Rows on their way through a model: those that workers learn come back a little later.

    So reading and the common model go on while workers learn, and what they are told is told in
    large pieces. Of a live stream each block is answered before the next one is read.
    """

    def __init__(self, model: OnlineModel, live: bool) -> None:
        self._model = model
        self._fleet = (
            model if isinstance(model, Fleet) and model.uses_workers and not live else None
        )
        self._unsent: list[tuple[Rows, list[str]]] = []
        self._sent: list[list[Rows]] = []
        self._again = False

    @property
    def is_delayed(self) -> bool:
        """Whether rows may come back later than they went in."""
        return self._fleet is not None

    def learn(self, rows: Rows, again: bool) -> Iterator[LearnedRows]:
        """Predict and learn rows; what was said of them, or of earlier ones, in their order."""
        if self._fleet is None:
            yield LearnedRows(rows, *self._model.learn_batch(rows, again))
            return
        self._unsent.append((rows, self._fleet.read_row_keys(rows)))
        self._again = again
        if sum(len(keys) for _, keys in self._unsent) >= SENT_ROWS:
            self._send_block(self._fleet)
            yield from self._receive_blocks(self._fleet, MAX_BLOCKS_AHEAD)

    def finish(self) -> Iterator[LearnedRows]:
        """The rest of what went in."""
        if self._fleet is not None:
            if self._unsent:
                self._send_block(self._fleet)
            yield from self._receive_blocks(self._fleet, 0)

    def _send_block(self, fleet: Fleet) -> None:
        waiting, self._unsent = self._unsent, []
        self._sent.append([rows for rows, _ in waiting])
        whole = concat_rows([rows._replace(original=None) for rows, _ in waiting])
        fleet.send_block([key for _, keys in waiting for key in keys], whole, self._again)

    def _receive_blocks(self, fleet: Fleet, most: int) -> Iterator[LearnedRows]:
        """Block by block what came in, until no more than so many sendings are under way."""
        while fleet.blocks_in_flight > most:
            said, at = fleet.receive_block(), 0
            for rows in self._sent.pop(0):
                yield LearnedRows(rows, select_rows(said, slice(at, at + len(rows.y))))
                at += len(rows.y)
