"""Fleets in the place of a model: loading, creating, saving, and reading rows with their keys."""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kbnn.data.chunk import shorten
from kbnn.data.read_options import ReadOptions
from kbnn.data.schema import Schema
from kbnn.errors import ModelError, UsageError
from kbnn.fleet.fleet import DEFAULT_OPEN_MODELS, Fleet
from kbnn.fleet.key_index import join_key_cells
from kbnn.fleet.store import (
    DESCRIPTION_FILE,
    MODELS_FILE,
    FleetStore,
    is_fleet,
    read_description,
    write_description,
)
from kbnn.model import file as modelfile
from kbnn.model.interface import StreamModel
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import to_state
from kbnn.model.settings import Settings
from kbnn.sink import write_atomically
from kbnn.wording import describe_os_error
from kbnn.workflows.checkpoint import Checkpoint, FileIdentity, identify_file
from kbnn.workflows.options import TrainOptions, make_contradiction_error
from kbnn.workflows.run_results import list_prequential_figures

__all__ = [
    "FleetCheckpoint",
    "add_key_columns",
    "check_single_model",
    "copy_model",
    "create_fleet",
    "export_model",
    "get_overall_model",
    "is_fleet",
    "load",
    "load_existing",
    "require_fleet",
    "select_model",
    "summarize_fleet",
]


class FleetCheckpoint(Checkpoint):
    """The folder of a fleet in training: holds its lock (a context manager) and saves the fleet."""

    def __init__(self, path: str) -> None:
        if os.path.exists(path) and not os.path.isdir(path):
            raise ModelError(f"{path}: is a file, but a fleet needs a folder. Name one with -m.")
        known = {DESCRIPTION_FILE, MODELS_FILE}
        if os.path.isdir(path) and not is_fleet(path) and not known.issuperset(_list_files(path)):
            raise ModelError(
                f"{path}: is a folder with other files, so no fleet can be saved there"
            )
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise ModelError(f"{path}: cannot be created ({describe_os_error(error)})") from error
        self.folder = path
        self._store: FleetStore | None = None
        self._saved_models: FileIdentity | None = None
        super().__init__(os.path.join(path, DESCRIPTION_FILE))

    def open_store(self) -> FleetStore:
        """Open the store of models for writing."""
        if self._store is None:
            self._store = FleetStore(self.folder, writes=True)
            self._saved_models = identify_file(os.path.join(self.folder, MODELS_FILE))
        return self._store

    def save_model(self, model: StreamModel) -> None:
        """Save the fleet; ModelError if another process changed its files."""
        assert isinstance(model, Fleet)

        def recover(name: str) -> None:
            _save_copy(model, name)

        self._stop_if_changed(recover)
        if not is_fleet(self.folder):
            self._describe(model.key)
            self._stop_if_changed(recover)
        model.save()
        found = identify_file(os.path.join(self.folder, MODELS_FILE))
        before = self._saved_models
        if found is not None and before is not None and found[:2] == before[:2]:
            self._saved_models = found
        self._stop_if_changed(recover)  # the file written to may have been replaced meanwhile
        if read_description(self.folder) != model.key:  # the stored models know their key too
            self._describe(model.key)

    def _describe(self, key: tuple[str, ...]) -> None:
        write_description(self.folder, key)
        self._saved_identity = identify_file(self.path)

    def _find_change(self) -> str | None:
        change = super()._find_change()
        if change is None and self._store is not None:
            found = identify_file(os.path.join(self.folder, MODELS_FILE))
            if found != self._saved_models:
                how = "removed or moved" if found is None else "changed by another process"
                change = f"its file {MODELS_FILE} was {how} during training"
        return change

    @property
    def _named_path(self) -> str:
        return self.folder

    def close(self) -> None:
        """Release the lock; remove the folder if nothing was saved in it."""
        changed = self._find_change() is not None
        if self._store is not None:
            if changed:
                self._store.abandon()
            self._store.close()
            self._store = None
        super().close()
        if not changed and not is_fleet(self.folder):
            with suppress(OSError):
                os.remove(os.path.join(self.folder, MODELS_FILE))
            with suppress(OSError):
                os.rmdir(self.folder)


def _save_copy(fleet: Fleet, folder: str) -> None:
    """Save a fleet in a new folder, together with the stored models."""
    os.mkdir(folder)
    try:
        with FleetStore(folder, writes=True) as copy:
            fleet.models.store.copy_to(copy)
            fleet.models.store = copy
            fleet.save()
        write_description(folder, fleet.key)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _list_files(path: str) -> set[str]:
    """List the files of a folder without the suffixes that a killed trainer leaves behind."""
    left = (".lock", ".tmp", "-wal", "-shm", "-journal")
    return {
        next((name.removesuffix(end) for end in left if name.endswith(end)), name)
        for name in os.listdir(path)
    }


def load_existing(path: str, home: Checkpoint | None, options: TrainOptions) -> Fleet | None:
    """Load the fleet to continue, None if there is none; raise if its key differs."""
    if not is_fleet(path):
        if home is None and os.path.exists(path) and not os.path.isdir(path):
            raise ModelError(f"{path}: is a file, but a fleet needs a folder. Name one with -m.")
        return None
    key = read_description(path)
    fleet = None
    if not options.fresh:
        store = (
            home.open_store()
            if isinstance(home, FleetCheckpoint)
            else FleetStore(path, writes=False)
        )
        fleet = Fleet.load(store)
    if fleet is None:
        if not options.key:
            raise UsageError(f"{path}: a new fleet needs its key: add --key {','.join(key)}")
        return None
    if options.key and options.key != fleet.key:
        raise make_contradiction_error(path, "--key", ",".join(fleet.key), ",".join(options.key))
    return _apply_options(fleet, options)


def create_fleet(
    home: Checkpoint | None, options: TrainOptions, settings: Settings, schema: Schema
) -> Fleet:
    """Create a fleet; an existing one is deleted with the first save."""
    store = (
        home.open_store() if isinstance(home, FleetCheckpoint) else FleetStore(None, writes=True)
    )
    store.delete_all()
    return _apply_options(
        Fleet.create_empty(settings, schema, options.key, store, options.common), options
    )


def _apply_options(fleet: Fleet, options: TrainOptions) -> Fleet:
    if fleet.schema.lags and options.read.epochs > 1:
        raise UsageError("a fleet with --lags learns in one pass: leave out --epochs")
    fleet.models.most_open = options.open or DEFAULT_OPEN_MODELS
    return fleet


def add_key_columns(read: ReadOptions, key: tuple[str, ...]) -> ReadOptions:
    """Return read options that keep the key columns and exclude them from the features."""
    if not key:
        return read
    if any(name == read.weight for name in key):
        raise UsageError(f"column '{read.weight}' cannot be both the weight and the key")
    return replace(read, original=True, ignore=(*read.ignore, *key), key=key)


def load(path: str) -> StreamModel:
    """Load the model of a file, or the fleet of a folder."""
    if not is_fleet(path):
        return modelfile.load(path)
    read_description(path)
    fleet = Fleet.load(FleetStore(path, writes=False))
    if fleet is None:
        raise ModelError(f"{path}: the fleet has learned nothing yet")
    return fleet


def copy_model(model: StreamModel) -> StreamModel:
    """Return an independent copy of a model or fleet."""
    if isinstance(model, Fleet):
        return model.copy()
    return modelfile.load_bytes(modelfile.to_bytes(*to_state(get_overall_model(model))))


def get_overall_model(model: StreamModel) -> OnlineModel:
    """Return a single model as it is, and of a fleet the model that holds its record."""
    if isinstance(model, Fleet):
        return model.overall
    assert isinstance(model, OnlineModel)
    return model


def require_fleet(model: StreamModel) -> Fleet:
    """Return a model that is known to be a fleet."""
    assert isinstance(model, Fleet)
    return model


def check_single_model(model: StreamModel, path: str, asked: Mapping[str, bool]) -> None:
    """Raise if an option for single models is used with a fleet."""
    for option, used in asked.items():
        if used and model.key:
            raise UsageError(
                f"{option} is for one model, and {path} is a fleet "
                f"(kbnn inspect {path} --key KEY --export FILE.npz gives the model of a key)"
            )


def select_model(model: StreamModel, path: str, key: str) -> OnlineModel:
    """Return the model of one key of a fleet; UsageError if there is none."""
    if not isinstance(model, Fleet):
        raise UsageError(f"--key is for a fleet, and {path} is one model")
    cells = next(csv.reader([key], strict=True), [""]) if len(model.key) > 1 else [key]
    if len(cells) != len(model.key):
        raise UsageError(
            f"--key takes {len(model.key)} values, one of each of {_join_key_names(model)}"
        )
    found = model.models.find_model(join_key_cells(cells))
    if found is None:
        raise UsageError(
            f"{path}: no model for the key '{shorten(key)}' of {_join_key_names(model)}"
        )
    return found


def export_model(model: OnlineModel, path: str) -> None:
    """Write a model file."""
    write_atomically(path, modelfile.to_bytes(*to_state(model)))


def measure_file_size(model: OnlineModel) -> int:
    """Return the size of the model file in bytes."""
    return len(modelfile.to_bytes(*to_state(model)))


def summarize_fleet(model: StreamModel, path: str) -> dict[str, Any]:
    """Return the object of `inspect --json` for a fleet."""
    assert isinstance(model, Fleet)
    return {
        "fleet": path,
        "key": list(model.key),
        "task": model.task.name,
        "targets": model.schema.targets,
        "rows": model.rows,
        "common": model.models.pooling.pooled_model is not None,
        "prequential": list_prequential_figures(model),
        "keys": [
            {
                "key": key,
                "rows": metrics.rows,
                "loss": metrics.loss,
                "coverage_90": metrics.coverage,
                "alarms": metrics.alarms,
            }
            for key, metrics in model.models.store.iter_key_metrics()
        ],
    }


def _join_key_names(model: Fleet) -> str:
    return ",".join(map(shorten, model.key))
