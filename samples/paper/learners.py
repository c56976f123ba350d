"""Learners by mode: the paper's algorithm, or kbnn as `kbnn train` runs it."""

import numpy as np

from kbnn.core.kernel import predict_parallel
from kbnn.data.batch import Rows
from kbnn.data.schema import Column, Place, Schema
from kbnn.model import scaler
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import copy_model
from kbnn.model.settings import Settings
from kbnn.model.warmup import finish_warmup
from samples.paper.common import Answer, FloatArray, Learner, Mode, printed


class Tool:
    """A model in the user's units, in its defaults but for the layers."""

    def __init__(self, hidden: tuple[int, ...], inputs: int, seed: int, classes: bool) -> None:
        names = [f"x{i}" for i in range(inputs)]
        columns = [Column(name, "number", "feature") for name in names]
        columns.append(Column("y", "category" if classes else "number", "target"))
        self.classes = classes
        self.model = OnlineModel(
            Settings(hidden=hidden, seed=seed),
            Schema(
                columns,
                "classification" if classes else "regression",
                classes=["0", "1"] if classes else [],
                layout=[Place(name, None) for name in names],
            ),
        )

    def learn(self, x: FloatArray, y: FloatArray, again: bool = False) -> None:
        """Learn the rows in order; `again`: they were learned before, in an earlier pass."""
        self.model.learn(self._rows(x, y), again)

    def ask(self, x: FloatArray) -> Answer:
        """What the model says about rows, without learning from them."""
        said = self.model.predict(self._rows(x, np.full((len(x), 1), np.nan)))
        if not self.classes:
            function_var = said.function_sd**2
            return Answer(said.mean, function_var, said.sd**2 - function_var)
        model = self.model
        if model.is_warming_up:
            model = copy_model(model)
            finish_warmup(model)
        columns = model.learner_state.columns[model.task.scaled :]
        z = scaler.standardize_rows(columns, x, np.zeros(x.shape[1]))
        before = predict_parallel(model.learner_state.members[0], z, None)
        parts = (before.mean, before.function_var, before.noise_var, said.probability)
        return Answer(*(part[:, 1:] for part in parts))  # the output of class 1

    def _rows(self, x: FloatArray, y: FloatArray) -> Rows:
        first = self.model.rows_seen + 1
        x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
        return Rows(x, y, np.arange(first, first + len(x)))


def begin(
    mode: Mode,
    hidden: tuple[int, ...],
    x: FloatArray,
    y: FloatArray,
    seed: int,
    classes: bool = False,
) -> Learner:
    """A learner that has learned nothing yet; of the rows, only paper mode takes their scale."""
    if mode == "paper":
        return printed(hidden, x, y, seed, classes)
    return Tool(hidden, x.shape[1], seed, classes)
