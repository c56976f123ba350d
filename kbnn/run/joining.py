"""`kbnn join`: models of shares of the rows as one."""

from __future__ import annotations

import os
from collections.abc import Sequence

from kbnn.errors import UsageError
from kbnn.model import file as modelfile
from kbnn.model.ensemble import mixture_weights
from kbnn.model.join import merge_models
from kbnn.model.model import OnlineModel
from kbnn.model.stored import to_state
from kbnn.run.choices import check_outputs
from kbnn.run.fleets import is_fleet
from kbnn.sink import write_atomically


def join_model_files(paths: Sequence[str], output: str, *, force: bool = False) -> OnlineModel:
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
    model = merge_models([modelfile.load(path) for path in paths], paths)
    write_atomically(output, modelfile.to_bytes(*to_state(model)))
    return model


def list_ensemble_weights(model: OnlineModel) -> list[float]:
    """What each network of a model weighs now."""
    return [float(weight) for weight in mixture_weights(model.learner_state.log_weight)]
