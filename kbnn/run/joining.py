"""`kbnn join`: models of shares of the rows as one."""

from __future__ import annotations

import os
from collections.abc import Sequence

from kbnn.errors import UsageError
from kbnn.model import file as modelfile
from kbnn.model.ensemble import mixture_weights
from kbnn.model.join import joined
from kbnn.model.model import Model
from kbnn.model.stored import to_state
from kbnn.run.choices import check_outputs
from kbnn.run.fleets import is_fleet
from kbnn.sink import write_whole


def join(paths: Sequence[str], output: str, *, force: bool = False) -> Model:
    """Join model files into one, which is written whole or not at all."""
    if len(paths) < 2:
        raise UsageError("join takes two models or more")
    for path in (*paths, output):
        if is_fleet(path):
            raise UsageError(f"{path}: is a fleet, and models of one key each are joined")
    real = [os.path.realpath(path) for path in paths]
    for at, path in enumerate(real):
        if path in real[:at]:
            raise UsageError(f"{paths[at]}: is named twice")
    check_outputs((), {}, models=paths, new_models={"-o": output}, force=force)
    model = joined([modelfile.load(path) for path in paths], paths)
    write_whole(output, modelfile.to_bytes(*to_state(model)))
    return model


def weights_of(model: Model) -> list[float]:
    """What each network of a model weighs now."""
    return [float(weight) for weight in mixture_weights(model.learned.log_weight)]
