"""A fleet from a stranger: every attack ends in one message, no memory or time is lost."""

from __future__ import annotations

import io
import json
import math
import random
import shutil
import sqlite3
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbnn.errors import ModelError
from kbnn.fleet import packing
from kbnn.fleet.fleet import Fleet
from kbnn.fleet.packing import unpack_model
from kbnn.fleet.store import MODELS_FILE, FleetStore
from kbnn.model import file as modelfile
from kbnn.model import migrations
from kbnn.model.serialize import from_state, to_state
from tests.commands import Ran, kbnn, program
from tests.faults.test_mutated_models import changed, leaves
from tests.fleets import made, write

FIXTURE = Path(__file__).parent.parent / "fixtures" / "fleet2"
ENDLESS = """
    ALTER TABLE models RENAME TO old; CREATE VIEW models AS WITH RECURSIVE n(i) AS
    (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT x'6431' AS key, 1 AS rows, 0.1 AS loss,
    0.9 AS coverage, 0 AS alarms, x'00' AS model FROM n"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    rows = write(folder / "rows.csv", *made(4, 60))
    fleet = folder / "fleet"
    assert kbnn("train", rows, "--key", "device", "-m", fleet, "-q", "--layers", "3").code == 0
    with sqlite3.connect(fleet / MODELS_FILE) as base:
        base.execute("PRAGMA journal_mode=DELETE")
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sql(text: str, *cells: Any) -> None:
    with sqlite3.connect(Path("fleet") / MODELS_FILE) as base:
        base.create_function("harm", 0, lambda: Path("harm").touch())
        if cells:
            base.execute(text, cells)
        else:
            base.executescript(text)


def state() -> dict[str, Any]:
    with sqlite3.connect(Path("fleet") / MODELS_FILE) as base:
        return dict(base.execute("SELECT name, value FROM state"))


def set_state(name: str, value: Any) -> None:
    sql("UPDATE state SET value = ? WHERE name = ?", value, name)


def commands() -> list[Ran]:
    """All that opens a fleet."""
    return [
        kbnn("predict", "fleet", "rows.csv", "--only-predictions", "-q"),
        kbnn("inspect", "fleet", "--json"),
        kbnn("inspect", "fleet", "--key", "d1", "--json"),
        kbnn("evaluate", "fleet", "rows.csv", "--json", "-q"),
        kbnn("train", "rows.csv", "-m", "fleet", "-q", "--again"),
    ]


def check_sound(ran: Ran) -> None:
    """Everything was done and all numbers are finite, or there is one message."""
    assert ran.code in (0, 1, 2), ran
    assert "unexpected" not in ran.err
    assert "Traceback" not in ran.err
    if ran.code:
        assert (ran.out, ran.err.count("\n")) == ("", 1), ran
        assert ran.err.startswith("kbnn: ")
    else:
        assert not any(word in ran.out.lower() for word in ("nan", "inf,", "infinity")), ran.out


def check_refused(*runs: Ran) -> None:
    for ran in runs:
        check_sound(ran)
        assert ran.code == 1, ran
        assert ran.err.startswith("kbnn: fleet: "), ran.err


SCHEMAS = {
    "endless view": ENDLESS,
    "trigger": "CREATE TRIGGER t AFTER UPDATE ON models BEGIN SELECT harm(); END",
    "other table": "CREATE TABLE more (x)",
    "other index": "CREATE INDEX more ON models (rows)",
    "view beside": "CREATE VIEW more AS SELECT * FROM models",
    "no table": "DROP TABLE state",
    "other column": "ALTER TABLE models ADD COLUMN more GENERATED ALWAYS AS (rows + 1)",
    "other type": """ALTER TABLE state RENAME TO old; CREATE TABLE state (name, value);
        INSERT INTO state SELECT * FROM old; DROP TABLE old""",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_only_the_tables_of_a_fleet_are_opened(here: Path, name: str) -> None:
    sql(SCHEMAS[name])
    before = (here / "fleet" / MODELS_FILE).read_bytes()
    runs = commands()
    check_refused(*runs)
    assert all("does not hold the tables of a fleet" in ran.err for ran in runs)
    assert not Path("harm").exists()
    assert (here / "fleet" / MODELS_FILE).read_bytes() == before


@pytest.mark.parametrize(
    "line",
    [
        "UPDATE models SET model = NULL",
        "UPDATE models SET model = 17",
        "UPDATE models SET model = 'text'",
        "UPDATE models SET model = x''",
        "UPDATE models SET model = zeroblob(100)",
        "UPDATE models SET model = substr(model, 1, 30)",
        "UPDATE state SET value = NULL WHERE name = 'fleet'",
        "UPDATE state SET value = 4000000000 WHERE name = 'counts'",
        "UPDATE state SET value = 'text' WHERE name = 'common'",
        "UPDATE state SET value = x'00' WHERE name = 'start'",
        "UPDATE state SET name = NULL WHERE name = 'fleet'",
        "UPDATE state SET name = 'other' WHERE name = 'start'",
        "DELETE FROM state WHERE name = 'fleet'",
        "DELETE FROM state WHERE name = 'counts'",
    ],
)
def test_cells_of_other_types_are_refused(here: Path, line: str) -> None:
    sql(line)
    runs = commands()
    for ran in runs:
        check_sound(ran)
    assert any(ran.code == 1 for ran in runs)


@pytest.mark.parametrize(
    "line",
    [
        "UPDATE models SET key = 9000000000 WHERE key = CAST('d1' AS BLOB)",
        "UPDATE models SET key = 'd1' WHERE key = CAST('d1' AS BLOB)",
        "UPDATE models SET key = NULL WHERE key = CAST('d1' AS BLOB)",
        "UPDATE models SET rows = NULL",
        "UPDATE models SET rows = -1",
        "UPDATE models SET rows = 'many'",
        "UPDATE models SET loss = 9e999",
        "UPDATE models SET loss = 'text'",
        "UPDATE models SET coverage = x'00'",
        "UPDATE models SET alarms = 1.5",
    ],
)
def test_standings_of_other_types_are_refused(here: Path, line: str) -> None:
    sql(line)
    ran = kbnn("inspect", "fleet")
    check_refused(ran)
    assert "(the metrics of a key)" in ran.err
    for other in commands():
        check_sound(other)


@pytest.mark.parametrize("line", ["DELETE FROM models", "DELETE FROM state WHERE name = 'common'"])
def test_deleted_rows_break_nothing(here: Path, line: str) -> None:
    sql(line)
    for ran in commands():
        check_sound(ran)


def test_no_state_is_a_fleet_that_has_learned_nothing(here: Path) -> None:
    sql("DELETE FROM state")
    *others, train = commands()
    check_refused(*others)
    assert (train.code, train.out) == (2, "")
    assert train.err == "kbnn: fleet: a new fleet needs its key: add --key device\n"
    words = ("train", "rows.csv", "-m", "fleet", "-q", "--fresh")
    assert kbnn(*words) == train
    assert kbnn(*words, "--key", "device").code == 0


def test_json_that_is_nested_deep_is_refused(here: Path) -> None:
    deep = b"[" * 200_000 + b"]" * 200_000
    set_state("counts", deep)
    check_refused(*commands())
    (here / "fleet" / "fleet.json").write_bytes(deep)
    check_refused(*commands())


def with_packed(change: Callable[[Any, Any], None]) -> None:
    """Change the numbers of the packed model of d1, its checksum too."""
    with FleetStore("fleet", writes=False) as store:
        fleet = Fleet.load(store)
        content = store.read("d1")
    assert fleet is not None
    assert content is not None
    assert packing.is_packed(content)
    form = fleet.models.layouts.find_by_name(packing.read_layout_name(content))
    whole = packing.packed_from_bytes(form, content)
    whole = whole._replace(row=whole.row.copy())
    change(form, whole.row)
    forged = packing.packed_to_bytes(form, whole)
    sql("UPDATE models SET model = ? WHERE key = CAST('d1' AS BLOB)", forged)


FLOATS = ("belief", "columns", "tails", "sums", "recent", "constant", "kept")


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e300])
@pytest.mark.parametrize("part", FLOATS)
def test_numbers_of_packed_models_are_checked(here: Path, part: str, value: float) -> None:
    def change(form: Any, row: Any) -> None:
        form.view_part(row, part).reshape(-1)[:4] = value

    with_packed(change)
    runs = commands()
    check_refused(runs[0], *runs[2:])
    assert all("is damaged" in ran.err for ran in (runs[0], *runs[2:]))


@pytest.mark.parametrize("part", ["pit", "counts"])
@pytest.mark.parametrize("value", [-1, 2**60])
def test_counts_of_packed_models_are_checked(here: Path, part: str, value: int) -> None:
    def change(form: Any, row: Any) -> None:
        form.view_part(row, part)[0] = value

    with_packed(change)
    check_refused(commands()[0])


def test_a_number_that_is_accepted_is_accepted_in_a_model_file_too(here: Path) -> None:
    """Packed models have the limits of model files: one number after another is replaced."""
    with FleetStore("fleet", writes=False) as store:
        fleet, content = Fleet.load(store), store.read("d1")
    assert fleet is not None
    assert content is not None
    form = fleet.models.layouts.find_by_name(packing.read_layout_name(content))
    whole = packing.packed_from_bytes(form, content)
    draw, refused = random.Random(5), 0
    for _ in range(150):
        row = whole.row.copy()
        row[draw.randrange(form.used_length(form.view_part(row, "counts")))] = draw.choice(
            (math.nan, math.inf, -1.0, 0.0, 1e70, -1e300, 2.0**53)
        )
        try:
            packed = packing.packed_from_bytes(
                form, packing.packed_to_bytes(form, whole._replace(row=row))
            )
        except ModelError:
            refused += 1
            continue
        model = unpack_model(form, packed, fleet.settings, fleet.schema)
        from_state(*to_state(model)).card.metric_values()
    assert refused > 50


def bomb(size: int) -> bytes:
    """A few megabytes that expand to so many bytes: one piece again and again."""
    machine = zlib.compressobj(9)
    first = machine.compress(bytes(1 << 24)) + machine.flush(zlib.Z_FULL_FLUSH)
    again = machine.compress(bytes(1 << 24)) + machine.flush(zlib.Z_FULL_FLUSH)
    return first + again * ((size >> 24) - 1)


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_a_bomb_takes_no_memory(here: Path) -> None:
    sql("UPDATE models SET model = ?", bomb(8 << 30))
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n"
        "from kbnn_cli.app import run_command_line as run\n"
        "sys.exit(run(['predict', 'fleet', 'rows.csv']))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", limited], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "kbnn: fleet: is damaged (a model is larger than 256 MiB)\n"


def test_integer_keys_take_no_memory(here: Path) -> None:
    sql("UPDATE models SET key = 8000000000 WHERE key = CAST('d1' AS BLOB)")
    ran = program("inspect", "fleet")
    assert (ran.code, ran.err) == (1, "kbnn: fleet: is damaged (the metrics of a key)\n")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("config", "hidden"), [100_000, 20_000]),
        (("config", "inputs"), 10**6),
        (("config", "inputs"), 1),
        (("config", "outputs"), 3),
        (("config", "observation"), "categorical"),
        (("config", "noise"), math.nan),
        (("settings", "noise"), 1e308),
        (("seed",), -1),
        (("figures",), ["rmse"] * 9),
    ],
)
def test_forms_that_no_model_has_are_refused(here: Path, path: Any, value: Any) -> None:
    plain = json.loads(state()["counts"])
    for form in plain["forms"].values():
        holder = form
        for name in path[:-1]:
            holder = holder[name]
        holder[path[-1]] = value
    set_state("counts", json.dumps(plain).encode())
    check_refused(commands()[0])


def test_a_model_of_another_table_is_refused(here: Path) -> None:
    Path("other.csv").write_text("p,q\n" + "".join(f"{at},{at % 5}\n" for at in range(60)))
    assert kbnn("train", "other.csv", "-m", "other.npz", "-q", "--layers", "3").code == 0
    content = Path("other.npz").read_bytes()
    sql("UPDATE models SET model = ?", zlib.compress(content))
    check_refused(commands()[0], commands()[2])
    set_state("common", content)
    check_refused(*commands())


def mutate_counts(times: int, seed: int) -> int:
    """Change the counts of a fleet at any place; how many were refused."""
    draw, plain, refused = random.Random(seed), json.loads(state()["counts"]), 0
    for _ in range(times):
        forged = json.loads(json.dumps(plain))
        changed(forged, draw.choice(leaves(forged)), draw)
        set_state("counts", json.dumps(forged).encode())
        ran = kbnn("predict", "fleet", "rows.csv", "--only-predictions", "-q")
        check_sound(ran)
        refused += ran.code == 1
    return refused


def test_changed_counts_work_or_are_refused(here: Path) -> None:
    assert mutate_counts(25, 1) > 5


@pytest.mark.parametrize("name", ["numbers", "classes"])
def test_settings_in_a_fleet_pass_the_migrations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A later format that calls a setting otherwise opens a fleet of today, its forms too."""

    def renamed(settings: dict[str, Any]) -> dict[str, Any]:
        assert "wide" in settings
        return {("widen" if key == "wide" else key): value for key, value in settings.items()}

    def step(header: dict[str, Any], arrays: Any) -> Any:
        candidates = [{**one, "settings": renamed(one["settings"])} for one in header["racers"]]
        return {**header, "settings": renamed(header["settings"]), "racers": candidates}, arrays

    monkeypatch.chdir(tmp_path)
    shutil.copytree(FIXTURE / name, "fleet")
    wanted = kbnn("predict", "fleet", FIXTURE / "readings.csv").out
    with sqlite3.connect(Path("fleet") / MODELS_FILE) as base:
        found = dict(base.execute("SELECT name, value FROM state"))
        models = base.execute("SELECT key, model FROM models").fetchall()
        for part in {"fleet", "common"} & found.keys():
            older = (with_old_name(found[part]), part)
            base.execute("UPDATE state SET value = ? WHERE name = ?", older)
        plain = json.loads(found["counts"])
        for form in plain["forms"].values():
            form["settings"]["wide"] = form["settings"].pop("widen")
        counts = json.dumps(plain).encode()
        base.execute("UPDATE state SET value = ? WHERE name = 'counts'", (counts,))
        for key, model in models:
            if not packing.is_packed(model):
                content = zlib.compress(with_old_name(zlib.decompress(model)))
                base.execute("UPDATE models SET model = ? WHERE key = ?", (content, key))
    monkeypatch.setattr(modelfile, "VERSION", modelfile.VERSION + 1)
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, step))
    ran = kbnn("predict", "fleet", FIXTURE / "readings.csv")
    assert (ran.code, ran.err, ran.out) == (0, "", wanted)


def with_old_name(content: bytes) -> bytes:
    """The bytes of a model file in which the setting `widen` is called `wide`."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename == "header.json":
                header = json.loads(data)
                model = header["model"]
                lost = [one[part] for one in model["lost"] for part in ("settings", "leader")]
                for settings in (
                    model["settings"],
                    *(candidate["settings"] for candidate in model["racers"]),
                    *lost,
                ):
                    settings["wide"] = settings.pop("widen")
                data = json.dumps(header).encode()
            new.writestr(info.filename, data)
    return out.getvalue()


@pytest.mark.parametrize("name", ["numbers", "classes"])
def test_a_fleet_of_an_earlier_format_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(FIXTURE / name, "fleet")
    wanted = kbnn("predict", "fleet", FIXTURE / "readings.csv").out
    with sqlite3.connect(Path("fleet") / MODELS_FILE) as base:
        for part, value in base.execute("SELECT name, value FROM state").fetchall():
            if part in ("fleet", "common"):
                archive = zipfile.ZipFile(io.BytesIO(value))
                base.execute(
                    "UPDATE state SET value = ? WHERE name = ?", (rewritten(archive), part)
                )
    assert kbnn("predict", "fleet", FIXTURE / "readings.csv").out == wanted


def rewritten(archive: zipfile.ZipFile) -> bytes:
    """The same model file, said to be of format 5."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as new:
        for info in archive.infolist():
            data = archive.read(info)
            if info.filename == "header.json":
                data = data.replace(b'"version": 6', b'"version": 5')
            new.writestr(info.filename, data)
    return out.getvalue()
