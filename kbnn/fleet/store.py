"""Storage of a fleet: a folder with a description and one SQLite file that holds the models.

    fleet.json      format, version and the key columns
    models.sqlite   the model and the metrics of each key; the fleet's state; with alerts, the
                    anomaly detectors of each key

A model is packed (kbnn.fleet.packing) or, where that is impossible, a compressed model file. All
writes are part of one transaction, which is committed when the fleet is saved: models and the
position in the stream change together or not at all, even if the process is killed. Other processes
see the fleet as last saved.
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

from kbnn.errors import ModelError
from kbnn.sink import Closeable, write_atomically
from kbnn.wording import describe_os_error

DESCRIPTION_FILE: Final = "fleet.json"
MODELS_FILE: Final = "models.sqlite"
FLEET_FORMAT: Final = "kbnn fleet"
FLEET_VERSION: Final = 2
MODEL_FILE_MAGIC: Final = b"PK"
"""First bytes of a model file."""
PACKED_MAGIC: Final = b"kbnn1"
"""First bytes of a packed model, see kbnn.fleet.packing."""
LOG_SUFFIXES: Final = ("-wal", "-shm")
"""Suffixes of the files that SQLite creates next to a database."""
PAGE_BYTES: Final = 16_384
"""Page size of the database: two or three models."""
KEYS_PER_QUERY: Final = 500
"""Keys per query."""
COMPRESSION_LEVEL: Final = 1
"""zlib level of model files: to a third, in a small part of the time of writing."""
MAX_MODEL_BYTES: Final = 256 << 20
"""Limit of the model file of one key."""
MAX_DESCRIPTION_BYTES: Final = 1 << 20
"""Limit of fleet.json."""
MAX_STATE_BYTES: Final = 1 << 30
"""Limit of the fleet's own state."""
STATE_NAMES: Final = ("fleet", "counts", "start", "common")
_TABLES: Final = {
    "models": "CREATE TABLE models (key BLOB PRIMARY KEY, rows INTEGER, loss REAL, "
    "coverage REAL, alarms INTEGER, model BLOB)",
    "state": "CREATE TABLE state (name TEXT PRIMARY KEY, value BLOB)",
}
_MONITOR_TABLE: Final = "CREATE TABLE monitors (key BLOB PRIMARY KEY, detectors BLOB)"
"""Only in a fleet that was trained with alerts."""


def _list_objects(tables: Mapping[str, str]) -> set[tuple[str, str, str, str | None]]:
    """List the objects of some tables: type, name, table, SQL without spaces."""
    return {
        *(("table", name, name, sql.replace(" ", "")) for name, sql in tables.items()),
        *(("index", f"sqlite_autoindex_{name}_1", name, None) for name in tables),
    }


_SCHEMA: Final = _list_objects(_TABLES)
_MONITOR_SCHEMA: Final = _list_objects({**_TABLES, "monitors": _MONITOR_TABLE})
"""The only objects in a fleet's database, without and with monitors."""
_SCAN_INSTRUCTIONS: Final = 10_000
"""Instructions of SQLite's virtual machine between two checks of a scan's progress."""


class KeyMetrics(NamedTuple):
    """Prequential metrics of the model of a key."""

    rows: int
    loss: float | None  # RMSE or error rate of its first target, prequential
    coverage: float | None  # of its 90 % intervals
    alarms: int


class FleetStore(Closeable):
    """The models of a fleet by key.

    Without a `path` they are in memory, or in a temporary file if `name` is empty.
    """

    def __init__(self, path: str | None, *, writes: bool, name: str = ":memory:") -> None:
        self.path = path
        self._display_path = path or "the fleet"
        self._in_transaction = False
        if path is not None:
            name = os.path.join(path, MODELS_FILE)
        with self._raise_model_errors():
            where = name if writes else _read_only_uri(name)
            self._database = _open_database(where, uri=not writes)
            self._database.execute("PRAGMA trusted_schema=OFF")
            self._database.execute("PRAGMA cell_size_check=ON")
            if writes:
                self._database.execute(f"PRAGMA page_size={PAGE_BYTES}")
            new = self._check_schema(new=writes)
            if writes and path is not None:
                self._database.execute("PRAGMA journal_mode=WAL")
            if new:
                self._database.executescript(f"BEGIN; {';'.join(_TABLES.values())}; COMMIT")
            self._database.execute("PRAGMA synchronous=FULL")
        self._opened_inodes = (
            {end: _file_inode(name + end) for end in ("", *LOG_SUFFIXES)} if writes else {}
        )

    @contextmanager
    def _raise_model_errors(self) -> Iterator[None]:
        """Translate errors of the database to ModelError."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise ModelError(f"{self._display_path}: {_explain_refusal(error)}") from error
        except (sqlite3.Error, zlib.error, TypeError, UnicodeDecodeError) as error:
            raise ModelError(f"{self._display_path}: is damaged ({error})") from error

    def _check_schema(self, *, new: bool) -> bool:
        """Refuse a database that is not a fleet's; return whether it is still empty.

        A view, a trigger or another column definition could run code when a table is used.
        """
        asked = (
            f"SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT {len(_MONITOR_SCHEMA) + 1}"
        )
        found = {
            (kind, name, table, None if sql is None else "".join(str(sql).split()))
            for kind, name, table, sql in self._database.execute(asked)
        }
        if new and not found:
            return True
        if found not in (_SCHEMA, _MONITOR_SCHEMA):
            self._database.close()
            raise ModelError(
                f"{self._display_path}: {MODELS_FILE} does not hold the tables of a fleet"
            )
        return False

    @contextmanager
    def _limit_scan(self) -> Iterator[None]:
        """Limit the work of reading a whole table by the size of the file.

        The pages of a forged database may form a cycle.
        """
        pages = self._database.execute("PRAGMA page_count").fetchone()[0]
        size = pages * self._database.execute("PRAGMA page_size").fetchone()[0]
        left = 1000 + int(size) // _SCAN_INSTRUCTIONS

        def count_down() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        self._database.set_progress_handler(count_down, _SCAN_INSTRUCTIONS)
        try:
            yield
        except sqlite3.OperationalError as error:
            if left < 0:
                raise sqlite3.DatabaseError("the pages of a table form a cycle") from error
            raise
        finally:
            self._database.set_progress_handler(None, 0)

    def read(self, key: str) -> bytes | None:
        """Return the bytes of a key's model; None if it has none."""
        with self._raise_model_errors():
            found = self._database.execute(
                "SELECT model FROM models WHERE key = ?", (_encode_key(key),)
            )
            row = found.fetchone()
            return None if row is None else self._expand_model(row[0])

    def read_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Return the bytes of the keys that have a model."""
        found: dict[str, bytes] = {}
        with self._raise_model_errors():
            for start in range(0, len(keys), KEYS_PER_QUERY):
                some = {_encode_key(key): key for key in keys[start : start + KEYS_PER_QUERY]}
                asked = f"SELECT key, model FROM models WHERE key IN (?{',?' * (len(some) - 1)})"
                for name, model in self._database.execute(asked, list(some)):
                    found[some[name]] = self._expand_model(model)
        return found

    def write(self, models: Iterable[tuple[str, bytes, KeyMetrics]]) -> None:
        """Write the models of keys as part of the transaction."""
        with self._raise_model_errors():
            self._begin_transaction()
            self._database.executemany(
                "INSERT INTO models (key, rows, loss, coverage, alarms, model) "
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET rows = excluded.rows, "
                "loss = excluded.loss, coverage = excluded.coverage, alarms = excluded.alarms, "
                "model = excluded.model",
                (
                    (_encode_key(key), *metrics, compress_model(model))
                    for key, model, metrics in models
                ),
            )

    def _has_monitors(self) -> bool:
        asked = "SELECT count(*) FROM sqlite_master WHERE name = 'monitors'"
        return bool(self._database.execute(asked).fetchone()[0])

    def _create_monitors(self) -> None:
        if not self._has_monitors():
            self._database.execute(_MONITOR_TABLE)

    def read_monitor(self, key: str) -> bytes | None:
        """Return the bytes of a key's anomaly detectors; None if it has none."""
        with self._raise_model_errors():
            if not self._has_monitors():
                return None
            asked = "SELECT detectors FROM monitors WHERE key = ?"
            row = self._database.execute(asked, (_encode_key(key),)).fetchone()
        if row is not None and not isinstance(row[0], bytes):
            raise ModelError(f"{self._display_path}: is damaged (the detectors of a key)")
        return None if row is None else row[0]

    def write_monitors(self, monitors: Iterable[tuple[str, bytes]]) -> None:
        """Write the anomaly detectors of keys as part of the transaction."""
        with self._raise_model_errors():
            self._begin_transaction()
            self._create_monitors()
            self._database.executemany(
                "INSERT OR REPLACE INTO monitors VALUES (?, ?)",
                ((_encode_key(key), content) for key, content in monitors),
            )

    def copy_to(self, other: FleetStore) -> None:
        """Write all models and the state to another store, as part of its transaction."""
        with self._raise_model_errors():
            checked = self._database.execute("PRAGMA quick_check(1)").fetchone()
            if checked != ("ok",):  # the file was overwritten while it was open
                raise sqlite3.DatabaseError(checked[0] if checked else "it is empty")
            self._copy_tables(other)

    def _copy_tables(self, other: FleetStore) -> None:
        """Copy row by row: `backup` would wait forever for a transaction of this connection."""
        other._begin_transaction()
        tables = {"models": "?, ?, ?, ?, ?, ?", "state": "?, ?"}
        if self._has_monitors():
            tables["monitors"] = "?, ?"
            other._create_monitors()
        for table, marks in tables.items():
            rows = self._database.execute(f"SELECT * FROM {table}")
            other._database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)

    def _expand_model(self, content: object) -> bytes:
        """Decompress the bytes of a model; the cell is not trusted."""
        if not isinstance(content, bytes):
            raise ModelError(f"{self._display_path}: is damaged (a model is not stored as bytes)")
        if content.startswith(PACKED_MAGIC):
            return content
        machine = zlib.decompressobj()
        whole = machine.decompress(content, MAX_MODEL_BYTES + 1)
        if len(whole) > MAX_MODEL_BYTES:
            raise ModelError(
                f"{self._display_path}: is damaged (a model is larger than "
                f"{MAX_MODEL_BYTES >> 20} MiB)"
            )
        if not machine.eof or machine.unused_data:
            raise ModelError(f"{self._display_path}: is damaged (a model is truncated or too long)")
        return whole

    def _begin_transaction(self) -> None:
        if not self._in_transaction:
            self._database.execute("BEGIN IMMEDIATE")
            self._in_transaction = True

    def delete_all(self) -> None:
        """Delete everything as part of the transaction."""
        with self._raise_model_errors():
            self._begin_transaction()
            self._database.execute("DELETE FROM models")
            self._database.execute("DELETE FROM state")
            self._database.execute("DROP TABLE IF EXISTS monitors")

    def read_state(self) -> dict[str, bytes]:
        """Return the fleet's own state by name; empty if it was never saved."""
        with self._raise_model_errors(), self._limit_scan():
            found: dict[str, bytes] = {}
            sizes = self._database.execute("SELECT typeof(value), length(value) FROM state LIMIT 9")
            cells = sizes.fetchall()
            blobs = all(kind == "blob" for kind, _ in cells)
            if not blobs or sum(size for _, size in cells) > MAX_STATE_BYTES:
                raise ModelError(f"{self._display_path}: is damaged (its state)")
            for name, value in self._database.execute("SELECT name, value FROM state LIMIT 9"):
                if name not in STATE_NAMES or name in found:
                    raise ModelError(f"{self._display_path}: is damaged (its state)")
                found[name] = value
            return found

    def commit(self, state: Mapping[str, bytes]) -> None:
        """Write the state and commit the transaction."""
        with self._raise_model_errors():
            self._begin_transaction()
            self._database.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", state.items())
            self._database.execute("COMMIT")
            self._in_transaction = False

    def copy(self) -> FleetStore:
        """Copy the models to a temporary file, which is removed when the store is closed."""
        made = FleetStore(None, writes=True, name="")
        with self._raise_model_errors():
            self._copy_tables(made)
        return made

    def __len__(self) -> int:
        with self._raise_model_errors(), self._limit_scan():  # count(*) would not be interrupted
            return int(self._database.execute("SELECT count(key) FROM models").fetchone()[0])

    def iter_key_metrics(self) -> Iterator[tuple[str, KeyMetrics]]:
        """Yield every key and its metrics, those with most rows first."""
        with self._raise_model_errors(), self._limit_scan():
            for key, *metrics in self._database.execute(
                "SELECT key, rows, loss, coverage, alarms FROM models ORDER BY rows DESC, key"
            ):
                if not isinstance(key, bytes) or not _is_valid_metrics(*metrics):
                    raise ModelError(f"{self._display_path}: is damaged (the metrics of a key)")
                yield key.decode(errors="surrogateescape"), KeyMetrics(*metrics)

    def abandon(self) -> None:
        """Close without writing to a database that another process has replaced or changed.

        The last connection to a database copies the log into it; a second connection prevents this.
        Whoever opens another database at the same path would apply this log to it; removing the log
        prevents that.
        """
        name = os.path.join(self.path or "", MODELS_FILE)
        guard = None
        if _file_inode(name) == self._opened_inodes.get("", None):
            with suppress(sqlite3.Error):
                guard = sqlite3.connect(_read_only_uri(name), uri=True)
                guard.execute("SELECT count(*) FROM sqlite_master").fetchone()
        self.close()
        if guard is not None:
            guard.close()
        for end in LOG_SUFFIXES:
            if _file_inode(name + end) == self._opened_inodes.get(end, None):
                with suppress(OSError):
                    os.remove(name + end)

    def close(self) -> None:
        """Close the database; what was not committed is lost."""
        with suppress(sqlite3.Error):
            self._database.close()


def _file_inode(path: str) -> tuple[int, int] | None:
    """Return device and inode of a file; None if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def compress_model(model: bytes) -> bytes:
    """Compress a model file; packed models and compressed bytes are returned unchanged."""
    if len(model) > MAX_MODEL_BYTES:
        raise ModelError(
            f"the model of a key takes {len(model) >> 20} MiB, but a fleet stores at most "
            f"{MAX_MODEL_BYTES >> 20} MiB per key. Choose smaller --layers"
        )
    return zlib.compress(model, COMPRESSION_LEVEL) if model.startswith(MODEL_FILE_MAGIC) else model


def _is_valid_metrics(rows: object, loss: object, coverage: object, alarms: object) -> bool:
    """Whether the cells of a row are valid metrics of a key."""
    counts = all(type(value) is int and 0 <= value < 2**53 for value in (rows, alarms))
    shares = all(
        value is None or (isinstance(value, float) and math.isfinite(value))
        for value in (loss, coverage)
    )
    return counts and shares


def _encode_key(key: str) -> bytes:
    return key.encode(errors="surrogateescape")


def _read_only_uri(name: str) -> str:
    """Return the URI that opens a file for reading; immutable if its folder is not writable."""
    quoted = "".join(c if c.isalnum() or c in "/._-~" else _percent_encode(c) for c in name)
    alone = not os.access(os.path.dirname(name) or ".", os.W_OK)
    return f"file:{quoted}?mode=ro{'&immutable=1' if alone else ''}"


def _percent_encode(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in os.fsencode(character))


def _explain_refusal(error: sqlite3.OperationalError) -> str:
    why = str(error)
    if "full" in why or "readonly" in why or "I/O" in why:
        return f"cannot be saved ({why})"
    return f"cannot be read ({why})"


def is_fleet(path: str) -> bool:
    """Whether a folder holds a fleet, even an unfinished one."""
    return os.path.isfile(os.path.join(path, DESCRIPTION_FILE))


def write_description(path: str, key: tuple[str, ...]) -> None:
    """Write the description of a fleet atomically."""
    from kbnn import __version__

    whole = {
        "format": FLEET_FORMAT,
        "version": FLEET_VERSION,
        "kbnn": __version__,
        "key": list(key),
    }
    text = f"{json.dumps(whole, indent=1)}\n"
    write_atomically(os.path.join(path, DESCRIPTION_FILE), text.encode())


def read_description(path: str) -> tuple[str, ...]:
    """Read the key columns of a fleet."""
    try:
        with open(os.path.join(path, DESCRIPTION_FILE), "rb") as file:
            found: Any = json.loads(file.read(MAX_DESCRIPTION_BYTES))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({describe_os_error(error)})") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is damaged ({DESCRIPTION_FILE})") from error
    if not isinstance(found, dict) or found.get("format") != FLEET_FORMAT:
        raise ModelError(f"{path}: is not a kbnn fleet")
    if isinstance(found.get("version"), int) and found["version"] > FLEET_VERSION:
        raise ModelError(f"{path}: was written by a newer kbnn, {found.get('kbnn')}")
    key = found.get("key")
    if not isinstance(key, list) or not key or not all(isinstance(name, str) for name in key):
        raise ModelError(f"{path}: is damaged ({DESCRIPTION_FILE})")
    return tuple(key)


def _open_database(address: str, *, uri: bool = False) -> sqlite3.Connection:
    """Open a database for several threads; the fleet's lock admits one at a time."""
    return sqlite3.connect(address, isolation_level=None, uri=uri, check_same_thread=False)
