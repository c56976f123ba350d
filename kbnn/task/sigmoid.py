"""Two classes the paper's way: one output, a sigmoid on it, and a Gaussian label 0 or 1."""

from __future__ import annotations

import numpy as np

from kbnn.core.normal import FloatArray
from kbnn.errors import DataError
from kbnn.task.classes import Classes


class SigmoidClasses(Classes):
    """The second of two classes has probability E sigmoid(a); there cannot be a third."""

    observation = "sigmoid"
    paper_deviations = ()

    @property
    def supports_given_noise(self) -> bool:
        """That of the label; it is 0 where none is given."""
        return True

    def count_outputs(self, y: FloatArray, known: int = 0) -> int:
        """One."""
        return 1

    @property
    def max_outputs(self) -> int:
        """One."""
        return 1

    def first_row_without_output(self, y: FloatArray, outputs: int) -> int:
        """The first label of a third class; DataError when it has come."""
        third = np.flatnonzero(y[:, 0] >= 2)
        if len(third) and third[0] == 0:
            raise DataError(
                f"target '{self.targets[0]}' has a third class, '{self.class_name(int(y[0, 0]))}': "
                "--link sigmoid tells two apart (use --link probit)"
            )
        return int(third[0]) if len(third) else len(y)

    def is_valid_output_count(self, outputs: int) -> bool:
        """One."""
        return outputs == 1
