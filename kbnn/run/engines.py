"""Where rows are learned and answered: in this process, or in the workers of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from kbnn.fleet.crew import Crew
from kbnn.fleet.fleet import Fleet
from kbnn.fleet.spread import Spread
from kbnn.model.model import Model
from kbnn.model.rows import Refuted, Rows
from kbnn.run.choices import check_one_of
from kbnn.run.trainoptions import ENGINES, HERE
from kbnn.stream.blocks import joined
from kbnn.task.forecast import Forecast, taken

SENT: Final = 4096
"""Rows that go to workers together, unless a stream is live."""
AHEAD: Final = 1
"""Blocks that may be learned in workers while the next one is read."""


@contextmanager
def engaged(model: Model, engine: str, cluster: str) -> Iterator[None]:
    """Have a model's work done there meanwhile; the results are the same to the bit."""
    if check_one_of("--engine", engine, ENGINES) == HERE:
        yield
        return
    crew = Crew(cluster)
    try:
        if isinstance(model, Fleet):
            model.on(crew)
        elif not model.schema.lags:  # rows that follow one another are answered one by one
            model.elsewhere = Spread(crew, model).predict
        yield
    finally:
        if isinstance(model, Fleet):
            model.on(None)
        model.elsewhere = None
        crew.close()


class Learned(NamedTuple):
    """Rows that were learned, what was said of them before, and what happened."""

    rows: Rows
    said: Forecast
    refuted: tuple[Refuted, ...] = ()


class Pipeline:
    """Rows on their way through a model: those that workers learn come back a little later.

    So reading and the common model go on while workers learn, and what they are told is told in
    large pieces. Of a live stream each block is answered before the next one is read.
    """

    def __init__(self, model: Model, live: bool) -> None:
        self._model = model
        self._fleet = model if isinstance(model, Fleet) and model.in_workers and not live else None
        self._waiting: list[tuple[Rows, list[str]]] = []
        self._sent: list[list[Rows]] = []
        self._again = False

    @property
    def patient(self) -> bool:
        """Whether rows may come back later than they went in."""
        return self._fleet is not None

    def learn(self, rows: Rows, again: bool) -> Iterator[Learned]:
        """Predict and learn rows; what was said of them, or of earlier ones, in their order."""
        if self._fleet is None:
            yield Learned(rows, *self._model.teach(rows, again))
            return
        self._waiting.append((rows, self._fleet.keys(rows)))
        self._again = again
        if sum(len(keys) for _, keys in self._waiting) >= SENT:
            self._send(self._fleet)
            yield from self._received(self._fleet, AHEAD)

    def finish(self) -> Iterator[Learned]:
        """The rest of what went in."""
        if self._fleet is not None:
            if self._waiting:
                self._send(self._fleet)
            yield from self._received(self._fleet, 0)

    def _send(self, fleet: Fleet) -> None:
        waiting, self._waiting = self._waiting, []
        self._sent.append([rows for rows, _ in waiting])
        whole = joined([rows._replace(original=None) for rows, _ in waiting])
        fleet.send([key for _, keys in waiting for key in keys], whole, self._again)

    def _received(self, fleet: Fleet, most: int) -> Iterator[Learned]:
        """Block by block what came in, until no more than so many sendings are under way."""
        while fleet.under_way > most:
            said, at = fleet.receive(), 0
            for rows in self._sent.pop(0):
                yield Learned(rows, taken(said, slice(at, at + len(rows.y))))
                at += len(rows.y)
