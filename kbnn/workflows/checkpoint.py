"""Checkpoints: atomic saves, the lock of a trainer, the position in the sources, and signals.

Ctrl-C, SIGTERM and SIGHUP must not stop a run in the middle of a row. A signal is recorded, and
raises `Interrupted` only while the loop waits for input: a wait may last forever, and leaves
nothing half done. Otherwise the loop checks at its next wait. A second signal has its original
effect. A signal that was ignored before (nohup, a background job) stays ignored.

During training these files may exist beside `model.npz`:

    model.npz.lock   held by the trainer; released when its process ends, however it ends
    model.npz.tmp    the next checkpoint, incomplete

A checkpoint is written to the second, synced to disk and renamed, so the model file is always the
last complete one. The next trainer removes what a killed one left behind.

A file or folder that another process replaced, changed or moved since the last save is not
overwritten: training stops, and the model is saved to `model.npz.recovered`.

The model file itself is locked too, because a hard link is a second name with another lock file. A
save makes a new file; the other name keeps the older model.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from types import FrameType, TracebackType
from typing import Any, Final, NamedTuple, Self

from kbnn.data.read_options import ReadOptions
from kbnn.data.sources import STDIN
from kbnn.errors import KbnnError, ModelError, UsageError
from kbnn.model import file as modelfile
from kbnn.model.interface import StreamModel
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import to_state
from kbnn.plain_values import read_dataclass
from kbnn.sink import Closeable
from kbnn.wording import describe_os_error


class Interrupted(BaseException):
    """A signal asks the run to end; `number` is the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class InterruptGuard:
    """Records signals while entered; the loop uses `wait_for_input` around every wait."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._waiting = False
        self._idle: Callable[[], None] = lambda: None
        self._previous_handlers: dict[int, Any] = {}

    @contextmanager
    def wait_for_input(self) -> Iterator[None]:
        """Wait for input; a signal ends the wait, a recorded one at once."""
        self._waiting = True
        try:
            self._raise_noted()
            yield
        finally:
            self._waiting = False

    def call_when_idle(self, every: float, call: Callable[[], None]) -> None:
        """Call a function every `every` seconds, but only during a wait."""
        if self._previous_handlers and hasattr(signal, "setitimer"):
            self._idle = call
            self._previous_handlers[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._on_timer)
            signal.setitimer(signal.ITIMER_REAL, every, every)

    def _on_timer(self, number: int, frame: FrameType | None) -> None:
        if self._waiting:
            self._waiting = False  # during the call a signal is only recorded
            self._idle()
            self._waiting = True
            self._raise_noted()

    def _raise_noted(self) -> None:
        if self.number is not None:
            raise Interrupted(self.number)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Handlers stay installed until the end: a signal that arrives while its handler is removed
        # would raise in Python.
        if self.number is not None:
            self._run_previous_handler(number, frame)
        self.number = number
        self._stop_timer()
        if self._waiting:
            raise Interrupted(number)

    def _run_previous_handler(self, number: int, frame: FrameType | None) -> None:
        """Run the handler that was installed before."""
        before = self._previous_handlers.get(number, signal.SIG_DFL)
        if callable(before):
            before(number, frame)
        else:
            signal.signal(number, before)
            os.kill(os.getpid(), number)

    def _stop_timer(self) -> None:
        if hasattr(signal, "setitimer") and signal.SIGALRM in self._previous_handlers:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _restore_handlers(self) -> None:
        self._stop_timer()
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        self._previous_handlers = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # only it can set handlers
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
                number = getattr(signal, name, None)
                if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                    self._previous_handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore_handlers()


@dataclass(frozen=True)
class Position:
    """Position of a run: the options that determine its rows and their order, and its progress."""

    sources: tuple[str, ...]
    shuffle: bool = False
    seed: int = 0
    limit: int | None = None
    on_error: str = "stop"
    test_split: float = 0.0
    epochs: int = 1
    epoch: int = 0  # the current pass, counted from 0
    rows: int = 0  # rows of that pass already learned
    complete: bool = False
    predictions: str | None = None
    predictions_bytes: int | None = None  # length of the predictions of these rows
    alerts: str | None = None
    alerts_bytes: int | None = None  # length of the alerts of these rows

    @classmethod
    def at_start(cls, sources: Sequence[str], read: ReadOptions, seed: int) -> Position:
        """Return the position at the start of a run."""
        shuffle, limit = read.shuffle, read.limit
        return cls(
            tuple(sources), shuffle, seed, limit, read.on_error, read.test_split, read.epochs
        )

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Position | None:
        """Read the position stored in a model; None if the model has had no run."""
        if not plain:
            return None
        try:
            position = read_dataclass(cls, plain)
            sound = position.rows >= 0 and position.epochs > position.epoch >= 0
        except (TypeError, ValueError) as error:
            raise ModelError("the model's position in its sources is damaged") from error
        if not sound:
            raise ModelError("the model's position in its sources is damaged")
        return position

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the model file."""
        return {**asdict(self), "sources": list(self.sources)}

    def resume_from(self, last: Position) -> Position:
        """Continue the last run; UsageError if it read other rows or another order."""
        for name, describe in _MATCHED_FIELDS.items():
            before, now = getattr(last, name), getattr(self, name)
            relaxed = name == "on_error" and (before, now) == ("stop", "skip")
            if before != now and not relaxed:  # a run that stopped had no bad row before
                raise UsageError(
                    f"--resume: the run began with {describe(before)}, not {describe(now)}"
                )
        if last.complete:
            last = replace(last, epoch=last.epochs, rows=0)
        return replace(last, epochs=self.epochs, on_error=self.on_error)

    def reads_same_rows(self, begin: Position) -> bool:
        """Return whether another run would read the same rows; never true for a pipe."""
        same = all(getattr(self, name) == getattr(begin, name) for name in _MATCHED_FIELDS)
        return same and STDIN not in begin.sources and begin.epochs >= self.epochs

    @property
    def is_finished(self) -> bool:
        """Whether all passes are complete."""
        return self.epoch >= self.epochs

    def to_read_options(self, read: ReadOptions) -> ReadOptions:
        """Return the options for reading from this position on."""
        return replace(read, seed=self.seed, epoch=self.epoch, skip=self.rows)


def format_sources(sources: Sequence[str]) -> str:
    """Join the names of the sources, or name the first and count the others."""
    return " ".join(sources) if len(sources) < 4 else f"{sources[0]} and {len(sources) - 1} others"


_MATCHED_FIELDS: dict[str, Callable[[Any], str]] = {
    "sources": lambda value: " ".join(value),
    "shuffle": lambda value: "--shuffle" if value else "no --shuffle",
    "seed": lambda value: f"--seed {value}",
    "limit": lambda value: "no --limit" if value is None else f"--limit {value}",
    "test_split": lambda value: f"--test-split {value:g}" if value else "no --test-split",
    "on_error": lambda value: f"--on-error {value}",
}


LOCK_SUFFIX: Final = ".lock"
PARTIAL_SUFFIX: Final = ".tmp"
RECOVERED_SUFFIX: Final = ".recovered"
_LOCKS_MODELS: Final = (
    sys.platform != "win32"
)  # on Windows a locked file can be neither read nor replaced

if sys.platform == "win32":
    import msvcrt

    def _is_lock_refused(descriptor: int) -> bool:
        """Lock a file; return whether another process holds the lock."""
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return True
        return False
else:
    import fcntl

    def _is_lock_refused(descriptor: int) -> bool:
        """Lock a file; return whether another process holds the lock.

        On a file system without locks training proceeds unlocked.
        """
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
        return False


class Checkpoint(Closeable):
    """The model file of one trainer: holds its lock (a context manager) and saves the model."""

    def __init__(self, path: str) -> None:
        self.display_path = path
        self.path = os.path.realpath(path)  # a symbolic link keeps pointing at the model
        self.name_count = 1  # of the model file; more are hard links
        self._saved_identity: FileIdentity | None = (
            None  # of the model file when it was read or saved
        )
        self._descriptor = self._model_descriptor = -1
        folder = os.path.dirname(self.path)
        if not os.path.isdir(folder):
            raise ModelError(f"{path}: the folder {os.path.dirname(path) or folder} does not exist")
        if os.path.exists(self.path) and not os.path.isfile(self.path):
            raise ModelError(f"{path}: is not a file, so no model can be saved there")
        self._acquire_lock()
        self._saved_identity = identify_file(self.path)
        self._lock_model_file()
        try:
            os.remove(self.path + PARTIAL_SUFFIX)
        except FileNotFoundError:
            pass
        except OSError as error:
            self.close()
            raise ModelError(
                f"{path}: cannot be saved, since {path}{PARTIAL_SUFFIX} is in the way "
                f"({describe_os_error(error)}): remove it"
            ) from error

    def _acquire_lock(self) -> None:
        """Take the lock; ModelError if another process holds it.

        The holder removes the lock file when it is done. A lock on a file that was removed or
        replaced meanwhile protects nothing, so it is requested again.
        """
        name = self.path + LOCK_SUFFIX
        while True:
            try:
                self._descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                raise self._write_error(error) from error
            if _is_lock_refused(self._descriptor):
                self._release_lock()
                raise ModelError(f"{self.display_path}: another process is training this model")
            if _same_file(self._descriptor, name):
                return
            self._release_lock()

    def _lock_model_file(self) -> None:
        """Lock the model file itself, which covers all its names."""
        if not _LOCKS_MODELS:
            return
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError:  # no file yet, or unreadable: loading it reports why
            return
        self._hold_descriptor(descriptor)
        self.name_count = os.fstat(descriptor).st_nlink
        if _is_lock_refused(descriptor):
            self.close()
            raise ModelError(
                f"{self.display_path}: another process is training this model under another name "
                "(a hard link)"
            )

    def _hold_descriptor(self, descriptor: int) -> None:
        """Keep the descriptor of the model file, and with it the lock."""
        if self._model_descriptor >= 0:
            os.close(self._model_descriptor)
        self._model_descriptor = descriptor

    def _release_lock(self) -> None:
        self._hold_descriptor(-1)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def has_model(self) -> bool:
        """Whether the model file exists."""
        return os.path.exists(self.path)

    def save_model(self, model: StreamModel) -> None:
        """Replace the model file by this model."""
        assert isinstance(model, OnlineModel)
        self.save_state(*to_state(model))

    def save_state(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Replace the model file by this state, atomically.

        Raises
        ------
        ModelError
            If it cannot be written, or another process changed the file since it was read or saved.
        """

        def write_recovery(name: str) -> None:
            with open(name, "xb") as file:
                modelfile.write(file, header, arrays)

        part, lock = self.path + PARTIAL_SUFFIX, -1
        self._stop_if_changed(write_recovery)
        try:
            with open(part, "wb") as file:
                modelfile.write(file, header, arrays)
                file.flush()
                os.fsync(file.fileno())
                if _LOCKS_MODELS:
                    lock = os.dup(file.fileno())
                    _is_lock_refused(lock)
            self._check_readable(part)
            if self.has_model:
                os.chmod(part, os.stat(self.path).st_mode & 0o7777)
            self._stop_if_changed(write_recovery)  # writing may have taken long
            written = identify_file(part)  # which renaming does not change
            os.replace(part, self.path)
            self._saved_identity = written
            self._hold_descriptor(lock)
            lock = -1
            _sync_folder(os.path.dirname(self.path))
        except BaseException as error:
            with suppress(OSError):
                os.remove(part)
            if isinstance(error, ValueError):  # from a state that JSON cannot hold
                raise self._readback_error(error) from error
            if not isinstance(error, OSError):
                raise
            self._stop_if_changed(write_recovery)
            raise self._write_error(error) from error
        finally:
            if lock >= 0:
                os.close(lock)

    def _check_readable(self, part: str) -> None:
        """Read the written file back before it replaces the model."""
        try:
            modelfile.check_readable(part)
        except ModelError as error:
            raise self._readback_error(error) from error

    def _readback_error(self, error: Exception) -> ModelError:
        return ModelError(
            f"{self.display_path}: not saved, because the new model could not be read back "
            f"({error}). The model file is as it was at the last save. Please report this."
        )

    def _find_change(self) -> str | None:
        """Describe what others did to the model since it was read or saved; None if nothing."""
        try:
            leads_here = os.path.realpath(self.display_path) == self.path
        except OSError:  # a relative name, and the working folder was removed
            leads_here = False
        found = identify_file(self.path)
        if not os.path.isdir(os.path.dirname(self.path)):
            return "its folder was moved or deleted during training"
        if not leads_here:
            return "its name leads to another place than when training began"
        if found == self._saved_identity:
            own_folder = found is not None or _same_file(self._descriptor, self.path + LOCK_SUFFIX)
            return None if own_folder else "its folder was replaced during training"
        if found is None:
            return "was removed or moved during training"
        if self._saved_identity is None:
            return "was created by another process during training"
        return "was changed by another process during training"

    def _stop_if_changed(self, recover: Callable[[str], None]) -> None:
        """Raise if another process changed the model, after `recover` has saved it elsewhere."""
        change = self._find_change()
        if change is None:
            return
        problem, why = f"{self._named_path}: {change}, so kbnn did not write there", ""
        for name in _recovery_names(os.path.realpath(self._named_path)):
            try:
                recover(name)
            except (OSError, KbnnError) as error:
                why = (
                    why or f" ({describe_os_error(error) if isinstance(error, OSError) else error})"
                )
                continue
            raise ModelError(
                f"{problem}. What was learned is saved as {name}: rename it to continue with it."
            )
        raise ModelError(f"{problem}. What was learned since the last save is lost{why}.")

    @property
    def _named_path(self) -> str:
        """The path as the user gave it."""
        return self.display_path

    def _write_error(self, error: OSError) -> ModelError:
        why = error.strerror or str(error)
        return ModelError(f"{self.display_path}: cannot be saved ({why[:1].lower()}{why[1:]})")

    def close(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._descriptor >= 0:
            if _same_file(
                self._descriptor, self.path + LOCK_SUFFIX
            ):  # a folder may have been replaced
                with suppress(OSError):  # an open file cannot be removed everywhere
                    os.remove(self.path + LOCK_SUFFIX)
            self._release_lock()


class FileIdentity(NamedTuple):
    """Identifies a file and its version."""

    device: int
    inode: int
    size: int
    modified_ns: int


def identify_file(path: str) -> FileIdentity | None:
    """Identify the file at a path; None if there is none."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FileIdentity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _recovery_names(path: str) -> Iterator[str]:
    """Yield unused names for a copy: beside the model, in the working and the temporary folder."""
    folders = [os.path.dirname(path)]
    with suppress(OSError):
        folders.append(os.getcwd())
    folders.append(tempfile.gettempdir())
    for folder in dict.fromkeys(folders):
        if os.path.isdir(folder):
            first = os.path.join(folder, os.path.basename(path) + RECOVERED_SUFFIX)
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
    """Sync a folder after a rename; Windows cannot open folders and needs no sync."""
    if sys.platform != "win32":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
