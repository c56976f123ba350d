"""One model that answers in all workers of a cluster."""

from __future__ import annotations

import hashlib
import itertools

from kbnn.fleet.crew import DaskCluster
from kbnn.fleet.worker import predict_in_worker
from kbnn.model import file as modelfile
from kbnn.model.model import OnlineModel
from kbnn.model.rows import Rows, slice_rows
from kbnn.model.stored import to_state
from kbnn.task.base import make_empty_forecast
from kbnn.task.forecast import Forecast, join_forecasts


class RemotePredictor:
    """One model that answers in all workers; it learns nothing meanwhile."""

    def __init__(self, cluster: DaskCluster, model: OnlineModel) -> None:
        self._cluster, self._numbers = cluster, model.task.numbers
        self._content = modelfile.to_bytes(*to_state(model))
        self._interval_mode = "stated" if model.interval_mode == "stated" else None
        self._name = hashlib.blake2b(self._content).hexdigest() + str(self._interval_mode)

    def predict(self, rows: Rows) -> Forecast:
        """Predict rows, a run of them in each worker."""
        rows = rows._replace(original=None, id=None)
        cuts = [len(rows.y) * k // self._cluster.count for k in range(self._cluster.count + 1)]
        runs = [(a, b) for a, b in itertools.pairwise(cuts) if b > a]
        parts = self._cluster.run_anywhere(
            predict_in_worker,
            [
                (self._name, self._content, self._interval_mode, slice_rows(rows, *run))
                for run in runs
            ],
        )
        return join_forecasts(parts) if parts else make_empty_forecast(0, self._numbers)
