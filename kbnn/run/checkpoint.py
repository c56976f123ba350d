"""Save a model so that no moment is a bad one to pull the plug, and let only one trainer do it.

Beside `model.npz` there may be, while it is trained,

    model.npz.lock   held by the trainer; the lock ends with its process, whatever ends it
    model.npz.tmp    the next checkpoint, not yet complete

A checkpoint is written to the second, brought to the disk, and renamed: the model file is always
the last complete one. Whatever a kill leaves behind, the next trainer removes.

A file or folder that somebody else has replaced, changed or moved since the last save is left as it
is: training stops, and what was learned goes to `model.npz.recovered`.

The model file itself is locked too: a hard link gives it a second name with a lock of its own.
A save makes a new file: the other name keeps the model as it was before.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from kbnn.closing import Closing
from kbnn.errors import KbnnError, ModelError
from kbnn.model import file as modelfile
from kbnn.model.model import Model
from kbnn.model.stored import to_state
from kbnn.wording import reason_of

LOCK: Final = ".lock"
PART: Final = ".tmp"
RECOVERED: Final = ".recovered"
_LOCKS_MODELS: Final = (
    sys.platform != "win32"
)  # there a locked file can be neither read nor replaced

if sys.platform == "win32":
    import msvcrt

    def _taken(descriptor: int) -> bool:
        """Lock a file; whether another process has done so already."""
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return True
        return False
else:
    import fcntl

    def _taken(descriptor: int) -> bool:
        """Lock a file; whether another process has done so already.

        A file system that knows no locks is no reason not to train.
        """
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
        return False


class Checkpoint(Closing):
    """The place where one trainer keeps its model; a context manager that holds the lock."""

    def __init__(self, path: str) -> None:
        self.shown = path
        self.path = os.path.realpath(path)  # a link goes on pointing at the model
        self.names = 1  # of the model file; more are hard links
        self._saved: FileIdentity | None = None  # of the model file when it was read or saved
        self._descriptor = self._model = -1
        folder = os.path.dirname(self.path)
        if not os.path.isdir(folder):
            raise ModelError(f"{path}: the folder {os.path.dirname(path) or folder} does not exist")
        if os.path.exists(self.path) and not os.path.isfile(self.path):
            raise ModelError(f"{path}: is not a file, so no model can be kept there")
        self._acquire()
        self._saved = identify_file(self.path)
        self._acquire_model()
        try:
            os.remove(self.path + PART)
        except FileNotFoundError:
            pass
        except OSError as error:
            self.close()
            raise ModelError(
                f"{path}: cannot be saved, since {path}{PART} is in the way "
                f"({reason_of(error)}): remove it"
            ) from error

    def _acquire(self) -> None:
        """Take the lock, unless another process holds it.

        The holder removes the file when it is done, so a lock on a file that is no longer there,
        or no longer the same one, is worth nothing and is asked for again.
        """
        name = self.path + LOCK
        while True:
            try:
                self._descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                raise self._failed(error) from error
            if _taken(self._descriptor):
                self._release()
                raise ModelError(f"{self.shown}: another process trains this model")
            if _same_file(self._descriptor, name):
                return
            self._release()

    def _acquire_model(self) -> None:
        """Take the lock of the file itself, by whatever name it is trained."""
        if not _LOCKS_MODELS:
            return
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError:  # there is none yet, or whoever reads it says why it cannot be read
            return
        self._hold(descriptor)
        self.names = os.fstat(descriptor).st_nlink
        if _taken(descriptor):
            self.close()
            raise ModelError(
                f"{self.shown}: another process trains this model, under another name (a hard link)"
            )

    def _hold(self, descriptor: int) -> None:
        """Keep the descriptor of the model file, and with it its lock."""
        if self._model >= 0:
            os.close(self._model)
        self._model = descriptor

    def _release(self) -> None:
        self._hold(-1)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def exists(self) -> bool:
        """Whether there is a model."""
        return os.path.exists(self.path)

    def keep(self, model: Model) -> None:
        """Replace the model file by this model."""
        self.save(*to_state(model))

    def save(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Replace the model file by this state, in one step.

        Raises
        ------
        ModelError
            Where it cannot be written, or the file is no longer the one that was read or saved.
        """

        def recover(name: str) -> None:
            with open(name, "xb") as file:
                modelfile.write(file, header, arrays)

        part, lock = self.path + PART, -1
        self._stop_if_changed(recover)
        try:
            with open(part, "wb") as file:
                modelfile.write(file, header, arrays)
                file.flush()
                os.fsync(file.fileno())
                if _LOCKS_MODELS:
                    lock = os.dup(file.fileno())
                    _taken(lock)
            if self.exists:
                os.chmod(part, os.stat(self.path).st_mode & 0o7777)
            self._stop_if_changed(recover)  # writing may have taken long
            written = identify_file(part)  # which renaming does not change
            os.replace(part, self.path)
            self._saved = written
            self._hold(lock)
            lock = -1
            _sync_folder(os.path.dirname(self.path))
        except BaseException as error:
            with suppress(OSError):
                os.remove(part)
            if not isinstance(error, OSError):
                raise
            self._stop_if_changed(recover)
            raise self._failed(error) from error
        finally:
            if lock >= 0:
                os.close(lock)

    def _find_change(self) -> str | None:
        """Find what others did to the model since it was read or saved; None if nothing."""
        try:
            leads_here = os.path.realpath(self.shown) == self.path
        except OSError:  # a relative name, and the working folder is gone
            leads_here = False
        found = identify_file(self.path)
        if not os.path.isdir(os.path.dirname(self.path)):
            return "its folder was moved or deleted during training"
        if not leads_here:
            return "its name leads to another place than when training began"
        if found == self._saved:
            own_folder = found is not None or _same_file(self._descriptor, self.path + LOCK)
            return None if own_folder else "its folder was replaced during training"
        if found is None:
            return "was removed or moved during training"
        if self._saved is None:
            return "was created by another process during training"
        return "was changed by another process during training"

    def _stop_if_changed(self, recover: Callable[[str], None]) -> None:
        """Stop where the model is no longer ours, once `recover` has saved it elsewhere."""
        change = self._find_change()
        if change is None:
            return
        said, why = f"{self._subject}: {change}, so kbnn did not write there", ""
        for name in _recovery_names(os.path.realpath(self._subject)):
            try:
                recover(name)
            except (OSError, KbnnError) as error:
                why = why or f" ({reason_of(error) if isinstance(error, OSError) else error})"
                continue
            raise ModelError(
                f"{said}. What was learned is saved as {name}: rename it to continue with it."
            )
        raise ModelError(f"{said}. What was learned since the last save is lost{why}.")

    @property
    def _subject(self) -> str:
        """The model as the user named it."""
        return self.shown

    def _failed(self, error: OSError) -> ModelError:
        why = error.strerror or str(error)
        return ModelError(f"{self.shown}: cannot be saved ({why[:1].lower()}{why[1:]})")

    def close(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._descriptor >= 0:
            if _same_file(self._descriptor, self.path + LOCK):  # a folder may have been replaced
                with suppress(OSError):  # an open file cannot be removed everywhere
                    os.remove(self.path + LOCK)
            self._release()


class FileIdentity(NamedTuple):
    """What tells a file from another one, and from itself after a change."""

    device: int
    inode: int
    size: int
    modified_ns: int


def identify_file(path: str) -> FileIdentity | None:
    """Identify the file at a path, None where there is none."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FileIdentity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _recovery_names(path: str) -> Iterator[str]:
    """Unused names for a copy of the model: beside it, in the working folder, among temporaries."""
    folders = [os.path.dirname(path)]
    with suppress(OSError):
        folders.append(os.getcwd())
    folders.append(tempfile.gettempdir())
    for folder in dict.fromkeys(folders):
        if os.path.isdir(folder):
            first = os.path.join(folder, os.path.basename(path) + RECOVERED)
            name, copies = first, 1
            while os.path.lexists(name):
                copies += 1
                name = f"{first}{copies}"
            yield name


def _same_file(descriptor: int, name: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name))
    except OSError:
        return False


def _sync_folder(folder: str) -> None:
    """Bring the new name to the disk; systems that cannot open a folder do it by themselves."""
    if sys.platform != "win32":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
