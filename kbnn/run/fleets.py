"""A fleet where a model could be: found, begun, saved, and its rows read with their keys."""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kbnn.errors import ModelError, UsageError
from kbnn.fleet.fleet import OPEN, Fleet
from kbnn.fleet.keys import spelt
from kbnn.fleet.store import DESCRIPTION, MODELS, Store, describe, description, is_fleet
from kbnn.model import file as modelfile
from kbnn.model.model import Model
from kbnn.model.schema import Schema
from kbnn.model.settings import Settings, contradiction
from kbnn.model.stored import to_state
from kbnn.run.checkpoint import Checkpoint, FileIdentity, identify_file
from kbnn.run.choices import check_columns
from kbnn.run.outcome import prequential
from kbnn.run.trainoptions import TrainOptions
from kbnn.sink import write_whole
from kbnn.stream.chunk import shorten
from kbnn.stream.readoptions import ReadOptions
from kbnn.wording import reason_of

__all__ = [
    "FleetHome",
    "begun",
    "check_alone",
    "existing",
    "export",
    "is_fleet",
    "load",
    "one",
    "overview",
    "reading",
]


class FleetHome(Checkpoint):
    """The folder where one trainer keeps its fleet; a context manager that holds the lock."""

    def __init__(self, path: str) -> None:
        if os.path.exists(path) and not os.path.isdir(path):
            raise ModelError(f"{path}: is a file, and a fleet is kept in a folder (name one: -m)")
        known = {DESCRIPTION, MODELS}
        if os.path.isdir(path) and not is_fleet(path) and not known.issuperset(_left(path)):
            raise ModelError(f"{path}: is a folder of other things, so no fleet can be kept there")
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise ModelError(f"{path}: cannot be made ({reason_of(error)})") from error
        self.folder = path
        self._store: Store | None = None
        self._saved_models: FileIdentity | None = None
        super().__init__(os.path.join(path, DESCRIPTION))

    def store(self) -> Store:
        """The models, to be changed."""
        if self._store is None:
            self._store = Store(self.folder, writes=True)
            self._saved_models = identify_file(os.path.join(self.folder, MODELS))
        return self._store

    def keep(self, model: Model) -> None:
        """Save the fleet; ModelError where its files are no longer the ones that were opened."""
        assert isinstance(model, Fleet)

        def recover(name: str) -> None:
            _save_copy(model, name)

        self._stop_if_changed(recover)
        if not is_fleet(self.folder):
            self._describe(model.key)
            self._stop_if_changed(recover)
        model.save()
        found = identify_file(os.path.join(self.folder, MODELS))
        before = self._saved_models
        if found is not None and before is not None and found[:2] == before[:2]:
            self._saved_models = found
        self._stop_if_changed(recover)  # what was saved may have gone to a file that was replaced
        if description(self.folder) != model.key:  # the models say it too
            self._describe(model.key)

    def _describe(self, key: tuple[str, ...]) -> None:
        describe(self.folder, key)
        self._saved = identify_file(self.path)

    def _find_change(self) -> str | None:
        change = super()._find_change()
        if change is None and self._store is not None:
            found = identify_file(os.path.join(self.folder, MODELS))
            if found != self._saved_models:
                how = "removed or moved" if found is None else "changed by another process"
                change = f"its file {MODELS} was {how} during training"
        return change

    @property
    def _subject(self) -> str:
        return self.folder

    def close(self) -> None:
        """Give the lock back; a folder in which nothing was saved goes."""
        changed = self._find_change() is not None
        if self._store is not None:
            if changed:
                self._store.abandon()
            self._store.close()
            self._store = None
        super().close()
        if not changed and not is_fleet(self.folder):
            with suppress(OSError):
                os.remove(os.path.join(self.folder, MODELS))
            with suppress(OSError):
                os.rmdir(self.folder)


def _save_copy(fleet: Fleet, folder: str) -> None:
    """Save a fleet in a new folder, with what rests in its store so far."""
    os.mkdir(folder)
    try:
        with Store(folder, writes=True) as copy:
            fleet.store.copy_to(copy)
            fleet.store = copy
            fleet.save()
        describe(folder, fleet.key)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _left(path: str) -> set[str]:
    """The files of a folder, but for what a trainer that was killed leaves behind."""
    left = (".lock", ".tmp", "-wal", "-shm", "-journal")
    return {
        next((name.removesuffix(end) for end in left if name.endswith(end)), name)
        for name in os.listdir(path)
    }


def existing(path: str, home: Checkpoint | None, options: TrainOptions) -> Fleet | None:
    """The fleet that is continued, if there is one, and nothing said contradicts it."""
    if not is_fleet(path):
        if home is None and os.path.exists(path) and not os.path.isdir(path):
            raise ModelError(f"{path}: is a file, and a fleet is kept in a folder (name one: -m)")
        return None
    key = description(path)
    fleet = None
    if not options.fresh:
        store = home.store() if isinstance(home, FleetHome) else Store(path, writes=False)
        fleet = Fleet.load(store)
    if fleet is None:
        if not options.key:
            raise UsageError(f"{path}: a new fleet needs its key: add --key {','.join(key)}")
        return None
    if options.key and options.key != fleet.key:
        raise contradiction(path, "--key", ",".join(fleet.key), ",".join(options.key))
    options.choices.check_against(path, fleet.settings)
    check_columns(path, options.read, fleet.schema)
    return _opened(fleet, options)


def begun(
    home: Checkpoint | None, options: TrainOptions, settings: Settings, schema: Schema
) -> Fleet:
    """A new fleet; what was there is gone once it is saved."""
    store = home.store() if isinstance(home, FleetHome) else Store(None, writes=True)
    store.clear()
    return _opened(Fleet.begin(settings, schema, options.key, store, options.common), options)


def _opened(fleet: Fleet, options: TrainOptions) -> Fleet:
    if fleet.schema.lags and options.read.epochs > 1:
        raise UsageError("a fleet with --lags learns one pass: leave out --epochs")
    fleet.most_open = options.open or OPEN
    return fleet


def reading(read: ReadOptions, key: tuple[str, ...]) -> ReadOptions:
    """How rows are read that have a key: with the columns it stands in, which are no inputs."""
    if not key:
        return read
    if any(name == read.weight for name in key):
        raise UsageError(f"column '{read.weight}' cannot be both the weight and the key")
    return replace(read, original=True, ignore=(*read.ignore, *key), key=key)


def load(path: str) -> Model:
    """The model of a file, or the fleet of a folder."""
    if not is_fleet(path):
        return modelfile.load(path)
    description(path)
    fleet = Fleet.load(Store(path, writes=False))
    if fleet is None:
        raise ModelError(f"{path}: the fleet has learned nothing yet")
    return fleet


def check_alone(model: Model, path: str, asked: Mapping[str, bool]) -> None:
    """Refuse what only the model of one key can be asked."""
    for option, said in asked.items():
        if said and model.key:
            raise UsageError(
                f"{option} is for one model, and {path} is a fleet "
                f"(kbnn inspect {path} --key KEY --export FILE.npz gives the model of a key)"
            )


def one(model: Model, path: str, key: str) -> Model:
    """The model of a key of a fleet; UsageError where there is none."""
    if not isinstance(model, Fleet):
        raise UsageError(f"--key is for a fleet, and {path} is one model")
    cells = next(csv.reader([key], strict=True), [""]) if len(model.key) > 1 else [key]
    if len(cells) != len(model.key):
        raise UsageError(f"--key takes {len(model.key)} values, one of each of {_named(model)}")
    found = model.model_of(spelt(cells))
    if found is None:
        raise UsageError(f"{path}: no model for the key '{shorten(key)}' of {_named(model)}")
    return found


def export(model: Model, path: str) -> None:
    """Write a model file."""
    write_whole(path, modelfile.to_bytes(*to_state(model)))


def size(model: Model) -> int:
    """The bytes of a model file."""
    return len(modelfile.to_bytes(*to_state(model)))


def overview(model: Model, path: str) -> dict[str, Any]:
    """The object of `inspect --json` for a fleet."""
    assert isinstance(model, Fleet)
    return {
        "fleet": path,
        "key": list(model.key),
        "task": model.task.name,
        "targets": model.schema.targets,
        "rows": model.rows,
        "common": model.common is not None,
        "prequential": prequential(model),
        "keys": [
            {
                "key": key,
                "rows": told.rows,
                "loss": told.loss,
                "coverage_90": told.coverage,
                "alarms": told.alarms,
            }
            for key, told in model.store.standings()
        ],
    }


def _named(model: Model) -> str:
    return ",".join(map(shorten, model.key))
