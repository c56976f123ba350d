"""Where a fleet rests: a folder with a description and one SQLite file that holds the models.

    fleet.json      format, version and the columns of the key
    models.sqlite   of each key its model and how it stands; the fleet's state

A model is packed (kbnn.fleet.packed) or, where it cannot be, a model file compressed.
What is written goes into one transaction, which ends when the fleet is saved: models and the
position in the stream change together or not at all, whatever ends the process. A reader beside the
trainer sees the fleet as it was last saved.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

from kbnn.closing import Closing
from kbnn.errors import ModelError
from kbnn.sink import write_whole
from kbnn.wording import reason_of

DESCRIPTION: Final = "fleet.json"
MODELS: Final = "models.sqlite"
FORMAT: Final = "kbnn fleet"
VERSION: Final = 2
FILE: Final = b"PK"
"""How a model file begins."""
PACKED: Final = b"kbnn1"
"""How a packed model begins, see kbnn.fleet.packed."""
LOGS: Final = ("-wal", "-shm")
"""Endings of the files that SQLite keeps beside a database."""
PAGE: Final = 16_384
"""Bytes that are written at a time: two or three models."""
ASKED: Final = 500
"""Keys that are asked for at a time."""
FAST: Final = 1
"""How much a model is compressed: to a third, in a small part of the time it takes to write."""
LARGEST_MODEL: Final = 256 << 20
"""Bytes of a model file that is kept for a key."""
LARGEST_DESCRIPTION: Final = 1 << 20
"""Bytes of fleet.json."""
LARGEST_STATE: Final = 1 << 30
"""Bytes of all parts of the fleet's own state."""
STATE_NAMES: Final = ("fleet", "counts", "start", "common")
_TABLES: Final = {
    "models": "CREATE TABLE models (key BLOB PRIMARY KEY, rows INTEGER, loss REAL, "
    "coverage REAL, alarms INTEGER, model BLOB)",
    "state": "CREATE TABLE state (name TEXT PRIMARY KEY, value BLOB)",
}
_SCHEMA: Final = {
    *(("table", name, name, sql.replace(" ", "")) for name, sql in _TABLES.items()),
    *(("index", f"sqlite_autoindex_{name}_1", name, None) for name in _TABLES),
}
"""What the database of a fleet holds, and nothing else: type, name, table, SQL without spaces."""
_STEPS: Final = 10_000
"""Instructions of SQLite's machine between two looks at how many a scan has taken."""


class Standing(NamedTuple):
    """How the model of a key stands."""

    rows: int
    loss: float | None  # RMSE or error rate of its first target, each row before it was learned
    coverage: float | None  # of its 90 % intervals
    alarms: int


class Store(Closing):
    """The models of a fleet by key; without a `path` they are in memory, or in a temporary file
    where the `name` of the database is empty.
    """

    def __init__(self, path: str | None, *, writes: bool, name: str = ":memory:") -> None:
        self.path = path
        self._shown = path or "the fleet"
        self._begun = False
        if path is not None:
            name = os.path.join(path, MODELS)
        with self._told():
            where = name if writes else _read_only(name)
            self._base = _connect(where, uri=not writes)
            self._base.execute("PRAGMA trusted_schema=OFF")
            self._base.execute("PRAGMA cell_size_check=ON")
            if writes:
                self._base.execute(f"PRAGMA page_size={PAGE}")
            new = self._check_schema(new=writes)
            if writes and path is not None:
                self._base.execute("PRAGMA journal_mode=WAL")
            if new:
                self._base.executescript(f"BEGIN; {';'.join(_TABLES.values())}; COMMIT")
            self._base.execute("PRAGMA synchronous=FULL")
        self._opened = {end: _inode(name + end) for end in ("", *LOGS)} if writes else {}

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Whatever the database refuses, as one sentence."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise ModelError(f"{self._shown}: {_refusal(error)}") from error
        except (sqlite3.Error, zlib.error, TypeError, UnicodeDecodeError) as error:
            raise ModelError(f"{self._shown}: is damaged ({error})") from error

    def _check_schema(self, *, new: bool) -> bool:
        """Refuse a database of anything but the tables of a fleet; whether it is empty as yet.

        A view, a trigger or another definition of a column would run when a table is used.
        """
        asked = f"SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT {len(_SCHEMA) + 1}"
        found = {
            (kind, name, table, None if sql is None else "".join(str(sql).split()))
            for kind, name, table, sql in self._base.execute(asked)
        }
        if new and not found:
            return True
        if found != _SCHEMA:
            self._base.close()
            raise ModelError(f"{self._shown}: {MODELS} does not hold the tables of a fleet")
        return False

    @contextmanager
    def _scan(self) -> Iterator[None]:
        """Bound the work of reading a whole table by the size of the file.

        The pages of a forged database may lead to each other in circles.
        """
        pages = self._base.execute("PRAGMA page_count").fetchone()[0]
        size = pages * self._base.execute("PRAGMA page_size").fetchone()[0]
        left = 1000 + int(size) // _STEPS

        def count_down() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        self._base.set_progress_handler(count_down, _STEPS)
        try:
            yield
        except sqlite3.OperationalError as error:
            if left < 0:
                raise sqlite3.DatabaseError("its tables have no end") from error
            raise
        finally:
            self._base.set_progress_handler(None, 0)

    def read(self, key: str) -> bytes | None:
        """The bytes of a key's model, None where it has none."""
        with self._told():
            found = self._base.execute("SELECT model FROM models WHERE key = ?", (_name(key),))
            row = found.fetchone()
            return None if row is None else self._expanded(row[0])

    def read_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The bytes of those keys that have a model."""
        found: dict[str, bytes] = {}
        with self._told():
            for start in range(0, len(keys), ASKED):
                some = {_name(key): key for key in keys[start : start + ASKED]}
                asked = f"SELECT key, model FROM models WHERE key IN (?{',?' * (len(some) - 1)})"
                for name, model in self._base.execute(asked, list(some)):
                    found[some[name]] = self._expanded(model)
        return found

    def write(self, resting: Iterable[tuple[str, bytes, Standing]]) -> None:
        """Keep the models of keys, once the transaction ends."""
        with self._told():
            self._begin()
            self._base.executemany(
                "INSERT INTO models (key, rows, loss, coverage, alarms, model) "
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET rows = excluded.rows, "
                "loss = excluded.loss, coverage = excluded.coverage, alarms = excluded.alarms, "
                "model = excluded.model",
                ((_name(key), *standing, compressed(model)) for key, model, standing in resting),
            )

    def copy_to(self, other: Store) -> None:
        """Write all models and the state to another store, which holds them once it is saved."""
        with self._told():
            checked = self._base.execute("PRAGMA quick_check(1)").fetchone()
            if checked != ("ok",):  # the file was overwritten while it was open
                raise sqlite3.DatabaseError(checked[0] if checked else "it is empty")
            other._begin()
            for table, marks in (("models", "?, ?, ?, ?, ?, ?"), ("state", "?, ?")):
                rows = self._base.execute(f"SELECT * FROM {table}")
                other._base.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)

    def _expanded(self, content: object) -> bytes:
        """The bytes of a model, from a cell that a stranger may have written."""
        if not isinstance(content, bytes):
            raise ModelError(f"{self._shown}: is damaged (a model is not made of bytes)")
        if content.startswith(PACKED):
            return content
        machine = zlib.decompressobj()
        whole = machine.decompress(content, LARGEST_MODEL + 1)
        if len(whole) > LARGEST_MODEL:
            raise ModelError(
                f"{self._shown}: is damaged (a model of more than {LARGEST_MODEL >> 20} MiB)"
            )
        if not machine.eof or machine.unused_data:
            raise ModelError(f"{self._shown}: is damaged (the bytes of a model do not fit)")
        return whole

    def _begin(self) -> None:
        if not self._begun:
            self._base.execute("BEGIN IMMEDIATE")
            self._begun = True

    def clear(self) -> None:
        """Forget everything, once the transaction ends."""
        with self._told():
            self._begin()
            self._base.execute("DELETE FROM models")
            self._base.execute("DELETE FROM state")

    def state(self) -> dict[str, bytes]:
        """The fleet's own state by name, empty before it was first saved."""
        with self._told(), self._scan():
            found: dict[str, bytes] = {}
            sizes = self._base.execute("SELECT typeof(value), length(value) FROM state LIMIT 9")
            cells = sizes.fetchall()
            blobs = all(kind == "blob" for kind, _ in cells)
            if not blobs or sum(size for _, size in cells) > LARGEST_STATE:
                raise ModelError(f"{self._shown}: is damaged (its state)")
            for name, value in self._base.execute("SELECT name, value FROM state LIMIT 9"):
                if name not in STATE_NAMES or name in found:
                    raise ModelError(f"{self._shown}: is damaged (its state)")
                found[name] = value
            return found

    def commit(self, state: Mapping[str, bytes]) -> None:
        """End the transaction: all that was written since the last one holds from now on."""
        with self._told():
            self._begin()
            self._base.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", state.items())
            self._base.execute("COMMIT")
            self._begun = False

    def copy(self) -> Store:
        """The models as they are, in a temporary file that goes when the store is closed."""
        made = Store(None, writes=True, name="")
        with self._told():
            made._begin()
            # Row by row: `backup` would wait forever for a transaction of this connection.
            for table, fields in (("models", 6), ("state", 2)):
                made._base.executemany(
                    f"INSERT INTO {table} VALUES (?{',?' * (fields - 1)})",
                    self._base.execute(f"SELECT * FROM {table}"),
                )
        return made

    def __len__(self) -> int:
        with self._told(), self._scan():  # count(*) would not be interrupted
            return int(self._base.execute("SELECT count(key) FROM models").fetchone()[0])

    def standings(self) -> Iterator[tuple[str, Standing]]:
        """Every key and how it stands, those with most rows first."""
        with self._told(), self._scan():
            for key, *standing in self._base.execute(
                "SELECT key, rows, loss, coverage, alarms FROM models ORDER BY rows DESC, key"
            ):
                if not isinstance(key, bytes) or not _sound(*standing):
                    raise ModelError(f"{self._shown}: is damaged (how a key stands)")
                yield key.decode(errors="surrogateescape"), Standing(*standing)

    def abandon(self) -> None:
        """Close without a write to the database, which somebody else has replaced or changed.

        The last connection to a database copies the log into it, and whoever opens another
        database at the same place would apply our log to that one: a second connection prevents
        the first, removing the log the second.
        """
        name = os.path.join(self.path or "", MODELS)
        guard = None
        if _inode(name) == self._opened.get("", None):
            with suppress(sqlite3.Error):
                guard = sqlite3.connect(_read_only(name), uri=True)
                guard.execute("SELECT count(*) FROM sqlite_master").fetchone()
        self.close()
        if guard is not None:
            guard.close()
        for end in LOGS:
            if _inode(name + end) == self._opened.get(end, None):
                with suppress(OSError):
                    os.remove(name + end)

    def close(self) -> None:
        """Give up what was not saved."""
        with suppress(sqlite3.Error):
            self._base.close()


def _inode(path: str) -> tuple[int, int] | None:
    """Device and inode of a file, None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def compressed(model: bytes) -> bytes:
    """A model file compressed; a packed model is small as it is, or it was compressed before."""
    if len(model) > LARGEST_MODEL:
        raise ModelError(
            f"the model of a key takes {len(model) >> 20} MiB, and a fleet keeps at most "
            f"{LARGEST_MODEL >> 20}: choose fewer --layers"
        )
    return zlib.compress(model, FAST) if model.startswith(FILE) else model


def _sound(rows: object, loss: object, coverage: object, alarms: object) -> bool:
    """Whether the cells of a row can be how a key stands."""
    counts = all(type(value) is int and 0 <= value < 2**53 for value in (rows, alarms))
    shares = all(
        value is None or (isinstance(value, float) and math.isfinite(value))
        for value in (loss, coverage)
    )
    return counts and shares


def _name(key: str) -> bytes:
    return key.encode(errors="surrogateescape")


def _read_only(name: str) -> str:
    """How to open a file for reading; where nothing can be written beside it, it stays as it is."""
    quoted = "".join(c if c.isalnum() or c in "/._-~" else _percent(c) for c in name)
    alone = not os.access(os.path.dirname(name) or ".", os.W_OK)
    return f"file:{quoted}?mode=ro{'&immutable=1' if alone else ''}"


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in os.fsencode(character))


def _refusal(error: sqlite3.OperationalError) -> str:
    why = str(error)
    if "full" in why or "readonly" in why or "I/O" in why:
        return f"cannot be saved ({why})"
    return f"cannot be read ({why})"


def is_fleet(path: str) -> bool:
    """Whether there is a fleet, or the beginning of one."""
    return os.path.isfile(os.path.join(path, DESCRIPTION))


def describe(path: str, key: tuple[str, ...]) -> None:
    """Write the description of a fleet; a name that is there holds the whole of it."""
    from kbnn import __version__

    whole = {"format": FORMAT, "version": VERSION, "kbnn": __version__, "key": list(key)}
    text = f"{json.dumps(whole, indent=1)}\n"
    write_whole(os.path.join(path, DESCRIPTION), text.encode())


def description(path: str) -> tuple[str, ...]:
    """The columns of a fleet's key."""
    try:
        with open(os.path.join(path, DESCRIPTION), "rb") as file:
            found: Any = json.loads(file.read(LARGEST_DESCRIPTION))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({reason_of(error)})") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is damaged ({DESCRIPTION})") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ModelError(f"{path}: is not a kbnn fleet")
    if isinstance(found.get("version"), int) and found["version"] > VERSION:
        raise ModelError(f"{path}: was written by a newer kbnn, {found.get('kbnn')}")
    key = found.get("key")
    if not isinstance(key, list) or not key or not all(isinstance(name, str) for name in key):
        raise ModelError(f"{path}: is damaged ({DESCRIPTION})")
    return tuple(key)


def _connect(address: str, *, uri: bool = False) -> sqlite3.Connection:
    """Open a database; a fleet's lock lets one thread in at a time, whichever opened it."""
    return sqlite3.connect(address, isolation_level=None, uri=uri, check_same_thread=False)
