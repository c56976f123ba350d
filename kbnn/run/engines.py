"""Where rows are learned and answered: in this process, or in the workers of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kbnn.fleet.fleet import Fleet
from kbnn.fleet.team import Crew, Spread
from kbnn.model.model import Model
from kbnn.run.choices import check_one_of
from kbnn.run.trainoptions import ENGINES, HERE


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
