"""A fleet: a model for every key, wherever a model could be."""

from __future__ import annotations

import csv
import json
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kbnn as library
from kbnn.core.config import Config
from kbnn.core.layout import layout_of
from kbnn.core.state import COUNT, init
from kbnn.data.batch import Rows
from kbnn.fleet.fleet import Fleet
from kbnn.fleet.key_index import KeyScores, read_keys
from kbnn.fleet.pooling import (
    BIASES_AND_WEIGHTS,
    KEY_DISCOUNT,
    KEY_NOISE_SHARE,
    MIN_LEVEL_SHARE,
    REFIT_ROWS,
    SHIFT_SHRINKAGE,
    BetweenKeyVariance,
    create_pooled_model,
    measure_shift,
)
from kbnn.fleet.store import (
    FLEET_VERSION,
    KEYS_PER_QUERY,
    MODELS_FILE,
    PACKED_MAGIC,
    FleetStore,
    KeyMetrics,
)
from kbnn.model import file as modelfile
from kbnn.model.file import load_bytes
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import to_state
from kbnn.model.settings import Settings
from tests.bench.data import block, schema
from tests.commands import Ran, kbnn, program
from tests.fleets import made, write
from tests.judging import number_task, numbers

LATER = """
from kbnn.metrics.figures import Metric
from kbnn.metrics import numeric_metrics as known
later = Metric("later", "later", "", lambda judged: judged.error ** 2, finish=abs)
known.NumericScore.figures_listed = known.NUMERIC_METRICS = (*known.NUMERIC_METRICS, later)
from kbnn_cli import startup
startup.main()
"""

KEYS = ["", 'a"b', "new\nline", "../../etc/passwd", "x" * 10_000, "a,b", " blank ", "NA", "\x01"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "rows.csv", *made(8, 60))
    return tmp_path


def trained(*words: str, sources: str = "rows.csv", fleet: str = "fleet") -> None:
    done = kbnn("train", sources, "--key", "device", "-m", fleet, "-q", *words)
    assert (done.code, done.err) == (0, "")


def models(fleet: str = "fleet") -> dict[str, bytes]:
    with FleetStore(fleet, writes=False) as store:
        found = Fleet.load(store)
        assert found is not None
        return {key: file_of(found, key) for key, _ in store.iter_key_metrics()}


def file_of(fleet: Fleet, key: str) -> bytes:
    """The model file of a key."""
    model = fleet.models.find_model(key)
    assert model is not None
    return modelfile.to_bytes(*to_state(model))


def widths(fleet: str = "fleet") -> Any:
    with FleetStore(fleet, writes=False) as store:
        return json.loads(store.read_state()["counts"])["widths"]


def told(*words: str) -> Any:
    return json.loads(kbnn(*words, "--json").out)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_without_a_common_start_a_key_is_a_model_of_its_own(here: Path) -> None:
    trained("--no-common")
    lines = (here / "rows.csv").read_text().splitlines()
    own = [line for line in lines if line.startswith(("device,", "d3,"))]
    (here / "d3.csv").write_text("\n".join(own) + "\n")
    words = {"layers": 10, "covariance": "neuron", "rehearse": "off", "task": "regression"}
    alone = library.train("d3.csv", "y", ignore="device", **words)  # type: ignore[arg-type]
    kbnn("inspect", "fleet", "--key", "d3", "--export", "d3.npz")
    fleet_one = library.load("d3.npz")
    assert fleet_one.rows == alone.rows == len(own) - 1
    asked = {"a": [0.5, 1.0], "b": [0.1, -1.0]}
    assert np.allclose(fleet_one.predict(asked).mean, alone.predict(asked).mean, rtol=1e-12)
    assert models()["d3"] == (here / "d3.npz").read_bytes()


@pytest.mark.parametrize(
    "common",
    [[], pytest.param(["--no-common"], marks=pytest.mark.slow)],
    ids=["common", "alone"],
)
def test_neither_open_models_nor_how_a_run_is_cut_change_a_bit(
    here: Path, common: list[str]
) -> None:
    device, x, y = made(8, 200)
    y[[50, 333, 640]] = np.nan  # rows without a target count as rows
    rows = write(here / "rows.csv", device, x, y).read_text()
    (here / "rows.csv").write_text(rows.replace(",nan\n", ",\n"))
    trained("--predictions", "all.csv", *common)
    trained("--predictions", "few.csv", "--open", "2", *common, fleet="few")
    assert models("few") == models()
    assert (here / "few.csv").read_bytes() == (here / "all.csv").read_bytes()
    lines = (here / "rows.csv").read_text().splitlines(keepends=True)
    for name, part in (("one", lines[:700]), ("two", lines[:1] + lines[700:])):
        (here / f"{name}.csv").write_text("".join(part))
        trained(*common, sources=f"{name}.csv", fleet="parts")
    assert widths() == widths("few") == widths("parts")
    assert [library.load(name)._require_model().skipped for name in ("fleet", "few", "parts")] == [
        3,
        3,
        3,
    ]
    assert (widths()["keys"] > 4.0) == (not common)
    for key, content in models("parts").items():
        assert load_bytes(content).rows == load_bytes(models()[key]).rows
        one, other = library.Model.from_bytes(content), library.Model.from_bytes(models()[key])
        assert one.predict_one({"a": 1.0, "b": 0.5}) == other.predict_one({"a": 1.0, "b": 0.5})


def test_a_flawed_row_stops_there_and_the_run_goes_on_when_it_is_mended(here: Path) -> None:
    trained("--predictions", "whole.csv", fleet="whole")
    good = (here / "rows.csv").read_text()
    lines = good.splitlines(keepends=True)
    lines[300] = "d1,much,1,1\n"
    (here / "rows.csv").write_text("".join(lines))
    done = kbnn(
        "train", "rows.csv", "--key", "device", "-m", "fleet", "--predictions", "p.csv", "-q"
    )
    assert done.code == 1
    assert done.err.startswith("kbnn: rows.csv:301: column 'a': cannot read 'much' as a number")
    assert told("inspect", "fleet")["rows"] == 299
    (here / "rows.csv").write_text(good)
    trained("--resume", "--predictions", "p.csv")
    assert models() == models("whole")
    assert (here / "p.csv").read_bytes() == (here / "whole.csv").read_bytes()


def test_predict_and_evaluate_send_rows_to_their_keys(here: Path) -> None:
    trained()
    said = rows_of(kbnn("predict", "fleet", "rows.csv", "--limit", "50", "--digits", "17").out)
    for name in {row["device"] for row in said}:
        model = library.Model.from_bytes(models()[name])
        mine = [row for row in said if row["device"] == name]
        asked = [{"a": float(row["a"]), "b": float(row["b"])} for row in mine]
        means = [model.predict_one(x).mean for x in asked]
        assert means == pytest.approx([float(row["mean"]) for row in mine], rel=1e-12)
    bare = kbnn("predict", "fleet", "rows.csv", "--limit", "5", "--only-predictions").out
    assert bare.splitlines()[0] == "mean,sd,lower,upper"
    judged = told("evaluate", "fleet", "rows.csv")
    whole = rows_of(kbnn("predict", "fleet", "rows.csv").out)
    squares: dict[str, list[float]] = {}
    for row in whole:
        squares.setdefault(row["device"], []).append((float(row["mean"]) - float(row["y"])) ** 2)
    losses = sorted((np.sqrt(np.mean(all_of)), key) for key, all_of in squares.items())
    assert judged["keys"]["count"] == 8
    for which, place in (("best", 0), ("median", 3), ("worst", 7)):
        assert judged["keys"][which]["key"] == losses[place][1]
        assert judged["keys"][which]["loss"] == pytest.approx(losses[place][0])
    assert judged["rmse"] == pytest.approx(np.sqrt(np.mean(np.concatenate([*squares.values()]))))
    shown = kbnn("evaluate", "fleet", "rows.csv").out
    assert all(f"\n{which} " in shown for which in ("best", "median", "worst"))


def test_a_new_key_is_like_the_others_or_nothing_is_said_of_it(here: Path) -> None:
    (here / "new.csv").write_text("device,a,b\nstranger,1,1\n")
    trained()
    said = rows_of(kbnn("predict", "fleet", "new.csv").out)[0]
    assert float(said["sd"]) > 0.5
    trained("--no-common", fleet="alone")
    assert rows_of(kbnn("predict", "alone", "new.csv").out)[0]["mean"] == ""
    assert "stranger" not in models()
    (here / "new.csv").write_text("device,a,b,y\nstranger,1,1,1\n")
    why = "nothing to evaluate: no row has a key that the fleet can predict"
    assert why in refused("evaluate", "alone", "new.csv")
    assert told("evaluate", "fleet", "new.csv")["rows"] == 1


@pytest.mark.slow
def test_passes_lags_and_full_options_are_a_fleets_too(here: Path) -> None:
    trained("--epochs", "2", "--shuffle", fleet="twice")
    assert told("inspect", "twice")["rows"] == 960
    words = ("--layers", "auto", "--rehearse", "auto", "--ensemble", "2", "--limit", "200")
    trained(*words, fleet="rich")
    trained(*words, "--open", "1", fleet="few")
    assert models("rich") == models("few")
    trained("--lags", "1", fleet="lagged")
    said = rows_of(kbnn("predict", "lagged", "rows.csv", "--limit", "20").out)
    assert all(row["mean"] for row in said)


@pytest.mark.parametrize("sorted_by", ["time", "key"])
def test_rows_of_several_keys_cause_no_notices_about_their_times(
    sorted_by: str, tmp_path: Path
) -> None:
    rows = [(f"2026-03-{1 + day:02}", f"k{k}", k + day % 3) for day in range(25) for k in range(40)]
    if sorted_by == "key":
        rows.sort(key=lambda row: row[1])
    text = "".join(f"{day},{key},{value}.5\n" for day, key, value in rows)
    (tmp_path / "s.csv").write_text("day,key,y\n" + text)
    files = tmp_path / "f", tmp_path / "s.csv"
    later = tmp_path / "later.csv"
    later.write_text("day,key,y\n" + text.replace("2026-03", "2026-04"))
    words = ("train", files[1], "--key", "key", "--layers", "2", "-m", files[0])
    for call in (words, ("predict", files[0], later), ("evaluate", files[0], later)):
        ran = kbnn(*call)
        assert ran.code == 0
        assert "same time" not in ran.err
        assert "backwards" not in ran.err


def test_inspect_lists_keys_and_shows_one(here: Path) -> None:
    trained()
    found = told("inspect", "fleet")
    counts = {row["key"]: row["rows"] for row in found["keys"]}
    device, _, _ = made(8, 60)
    assert counts == {f"d{k}": int(np.sum(device == k)) for k in range(8)}
    assert found["rows"] == 480
    assert list(counts.values()) == sorted(counts.values(), reverse=True)
    for row in found["keys"]:
        record = library.Model.from_bytes(models()[row["key"]]).record()
        assert row["loss"] == record["rmse"]
    assert "d5" in kbnn("inspect", "fleet").out
    assert told("inspect", "fleet", "--key", "d5")["rows"] == counts["d5"]


def test_a_key_is_spelt_alike_whatever_holds_it() -> None:
    def keys(**columns: pa.Array) -> list[str]:
        batch = pa.RecordBatch.from_pydict(columns)
        rows = Rows(np.zeros((len(batch), 0)), np.zeros((len(batch), 1)), np.arange(len(batch)))
        return read_keys(rows._replace(original=batch), list(columns))

    assert keys(k=pa.array([True, False, None])) == ["true", "false", ""]
    assert keys(k=pa.array([7.0, 0.5, None])) == ["7", "0.5", ""]
    assert keys(k=pa.array([7, -1, None])) == ["7", "-1", ""]
    assert keys(k=pa.array(["a", None, "a"]).dictionary_encode()) == ["a", "", "a"]
    both = keys(k=pa.array(["a,b", "c"]), n=pa.array([True, None]))
    assert both == ['"a,b",true', "c,"]


def test_rows_that_a_kind_cannot_have_are_counted_by_a_fleet_too(here: Path) -> None:
    cells = [f"d{at % 2},{at % 7},{-1 if at in (80, 91) else 1 + at % 5}.5" for at in range(120)]
    (here / "odd.csv").write_text("device,a,y\n" + "\n".join(cells) + "\n")
    words = ("train", "odd.csv", "--key", "device", "-m", "odd", "--task", "positive", "-q")
    done = told(*words)
    assert (done["rows"], done["rejected"]) == (118, 2)
    assert library.load("odd")._require_model().rows_seen == 120


def test_any_number_of_keys_is_read_at_once() -> None:
    keys = [f"k{at}" for at in range(2 * KEYS_PER_QUERY + 1)]
    with FleetStore(None, writes=True) as store:
        standing = KeyMetrics(1, None, None, 0)
        store.write((key, PACKED_MAGIC + key.encode(), standing) for key in keys)
        assert store.read_many([*keys, "none"]) == {
            key: PACKED_MAGIC + key.encode() for key in keys
        }
        assert len(store) == len(keys)


def test_a_key_may_hold_anything(here: Path) -> None:
    draw = np.random.default_rng(1)
    with (here / "odd.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["device", "site", "a", "y"])
        for k in range(300):
            key, a = KEYS[k % len(KEYS)], draw.random()
            out.writerow([key, "ns"[k % 2], a, 2.0 * a + k % len(KEYS)])
    trained(sources="odd.csv")
    assert set(models()) == set(KEYS)
    before = sorted(path.name for path in here.iterdir())
    assert before == ["fleet", "odd.csv", "rows.csv"]
    for key in KEYS:
        if "\x01" not in key and "\n" not in key:
            assert told("inspect", "fleet", "--key", key)["rows"] >= 33
    kbnn("train", "odd.csv", "--key", "site,device", "-m", "two", "-q")
    assert told("inspect", "two", "--key", 's,"a,b"')["rows"] >= 16
    for key in ("s", "s,a,b"):
        why = "--key takes 2 values, one of each of site,device"
        assert why in refused("inspect", "two", "--key", key)
    assert len(told("inspect", "two")["keys"]) == 2 * len(KEYS)
    assert "\n" not in kbnn("inspect", "fleet").out.replace("\n", "", 40).strip("\n")


def test_classes_and_categories_grow_in_a_fleet(here: Path) -> None:
    draw = np.random.default_rng(0)
    with (here / "c.csv").open("w") as file:
        file.write("device,kind,a,label\n")
        for k in range(360):
            a, kind = draw.normal(), "pqr"[min(k // 120, int(draw.integers(0, 3)))]
            label = "low" if a < 0 else "high" if k < 180 or a < 1 else "top"
            file.write(f"d{k % 5},{kind},{a:.4f},{label}\n")
    trained("--layers", "10", sources="c.csv")
    trained("--layers", "10", "--open", "1", sources="c.csv", fleet="few")
    judged = told("evaluate", "fleet", "c.csv")
    assert judged["accuracy"] > 0.75
    assert told("evaluate", "few", "c.csv")["accuracy"] == judged["accuracy"]
    assert judged["keys"]["worst"]["loss"] >= judged["keys"]["best"]["loss"]


def test_a_live_pipe_is_answered_and_saved(here: Path) -> None:
    words = ("train", "-", "--key", "device", "-m", "fleet", "--predictions", "-", "-q")
    done = program(*words, stdin=(here / "rows.csv").read_bytes())
    assert done.code == 0
    assert len(rows_of(done.out)) == 480
    trained(fleet="file")
    assert models() == models("file")


def refused(*words: str) -> str:
    done: Ran = kbnn(*words)
    assert done.code in (1, 2)
    assert "unexpected" not in done.err
    assert done.out == ""
    return done.err.splitlines()[-1]


def test_what_a_killed_trainer_leaves_behind_is_no_folder_of_other_things(here: Path) -> None:
    """Killed while the models were laid out: SQLite had begun its journal."""
    trained()
    whole = models()
    (here / "left").mkdir()
    for name in ("fleet.json.lock", "fleet.json.tmp", "models.sqlite", "models.sqlite-journal"):
        (here / "left" / name).write_bytes(b"")
    done = kbnn("train", "rows.csv", "--target", "y", "--key", "device", "-m", "left", "-q")
    assert (done.code, done.err) == (0, "")
    assert models("left") == whole


def test_what_is_refused_is_one_sentence(here: Path) -> None:
    trained()
    (here / "m.npz").write_bytes(models()["d1"])
    (here / "other").mkdir()
    (here / "other" / "thing").write_text("")
    train = ("train", "rows.csv", "-q")
    for words, why in (
        ((*train, "--key", "none", "-m", "x"), "no column 'none'"),
        ((*train, "--key", "a", "-m", "fleet"), "--key a contradicts fleet, which has device"),
        ((*train, "-m", "fleet", "--layers", "20"), "--layers 20 contradicts fleet"),
        ((*train, "--key", "device", "-m", "other"), "other: is a folder with other files"),
        (
            (*train, "--key", "device", "-m", "m.npz"),
            "m.npz: is a file, but a fleet needs a folder",
        ),
        ((*train, "--key", "y", "--target", "y", "-m", "x"), "cannot be both the target and the"),
        ((*train, "--key", "device", "--id", "a", "-m", "x"), "--key and --id cannot be combined"),
        (
            (*train, "--key", "device", "--open", "0", "-m", "x"),
            "--max-open-models must be at least 1, not 0",
        ),
        (
            (*train, "--key", "device", "-m", "x", "--lags", "1", "--epochs", "2"),
            "a fleet with --lags learns in one pass: leave out --epochs",
        ),
        (("inspect", "fleet", "--key", "d99"), "fleet: no model for the key 'd99' of device"),
        (("inspect", "m.npz", "--key", "d1"), "--key is for a fleet, and m.npz is one model"),
        (("inspect", "fleet", "--weights"), "--weights is for one model, and fleet is a fleet"),
        (("predict", "other", "rows.csv"), "other: is a folder, not a model file"),
    ):
        assert why in refused(*words), words
    assert not (here / "x").exists()
    (here / "bare.csv").write_text("a,b\n1,2\n")
    assert "the key column 'device' is missing" in refused("predict", "fleet", "bare.csv")


def test_a_damaged_fleet_is_one_sentence(here: Path) -> None:
    trained()
    with sqlite3.connect(here / "fleet" / MODELS_FILE) as base:
        base.execute("UPDATE models SET model = x'00ff' WHERE key = CAST('d1' AS BLOB)")
    assert "fleet: is damaged" in refused("predict", "fleet", "rows.csv")
    with sqlite3.connect(here / "fleet" / MODELS_FILE) as base:
        base.execute("UPDATE state SET value = x'00' WHERE name = 'counts'")
    assert "fleet: is damaged (its state)" in refused("inspect", "fleet")
    (here / "fleet" / MODELS_FILE).write_bytes(
        b"no database at all, but long enough to be one" * 99
    )
    assert "fleet: is damaged" in refused("inspect", "fleet")
    (here / "fleet" / "fleet.json").write_text("{")
    assert "fleet: is damaged (fleet.json)" in refused("inspect", "fleet")


def test_a_fleet_of_a_newer_kbnn_is_not_touched(here: Path) -> None:
    trained()
    described = json.loads((here / "fleet" / "fleet.json").read_text())
    assert described["version"] == FLEET_VERSION
    (here / "fleet" / "fleet.json").write_text(
        json.dumps({**described, "version": FLEET_VERSION + 1})
    )
    for words in (("inspect", "fleet"), ("train", "rows.csv", "--key", "device", "-m", "fleet")):
        assert "fleet: was written by a newer kbnn" in refused(*words)


def test_a_fleet_with_a_setting_of_a_newer_kbnn_is_not_called_damaged(here: Path) -> None:
    trained()
    with sqlite3.connect(here / "fleet" / MODELS_FILE) as base:
        (value,) = base.execute("SELECT value FROM state WHERE name = 'counts'").fetchone()
        plain = json.loads(value)
        for form in plain["forms"].values():
            form["settings"]["colour"] = 1
        changed = json.dumps(plain).encode()
        base.execute("UPDATE state SET value = ? WHERE name = 'counts'", (changed,))
    assert "fleet: was written by a newer kbnn ('colour' is unknown to this one)" in (
        refused("inspect", "fleet")
    )


def test_a_fleet_written_before_a_figure_was_thought_of_goes_on(tmp_path: Path) -> None:
    """The figure begins where it is first known; nothing else is another."""
    rows = write(tmp_path / "rows.csv", *made(6, 120))
    fleet = tmp_path / "fleet"
    assert kbnn("train", rows, "--key", "device", "-m", fleet, "-q", "--layers", "10").code == 0

    def later(*words: str | Path) -> str:
        command = [sys.executable, "-c", LATER, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    shown = kbnn("predict", fleet, rows, "--only-predictions").out
    assert later("predict", fleet, rows, "--only-predictions") == shown
    before = json.loads(later("inspect", fleet, "--key", "d1", "--json"))["prequential"]["y"]
    assert before["later"] is None
    more = write(tmp_path / "more.csv", *made(6, 120, seed=0))
    later("train", more, "--key", "device", "-m", fleet, "-q")
    after = json.loads(later("inspect", fleet, "--key", "d1", "--json"))["prequential"]["y"]
    total, earlier = (found["rows"] * found["rmse"] ** 2 for found in (after, before))
    assert after["later"] == pytest.approx((total - earlier) / (after["rows"] - before["rows"]))


def test_only_one_trainer_at_a_time(here: Path) -> None:
    from kbnn.workflows.keyed import FleetCheckpoint

    trained()
    with FleetCheckpoint("fleet"):
        assert "another process is training this model" in refused(
            "train", "rows.csv", "-m", "fleet"
        )
        assert told("evaluate", "fleet", "rows.csv")["keys"]["count"] == 8


def test_a_common_start_helps_keys_that_come_late(here: Path) -> None:
    device, x, y = made(80, 40, seed=3)
    write(here / "many.csv", device, x, y)
    errors = []
    for words in ([], ["--no-common"]):
        trained("--predictions", "p.csv", "--fresh", *words, sources="many.csv")
        met: dict[str, int] = {}
        late, squares = set[str](), []
        for at, row in enumerate(rows_of((here / "p.csv").read_text())):
            name = row["device"]
            met[name] = met.get(name, 0) + 1
            if met[name] == 1 and at >= len(y) // 2:
                late.add(name)
            if name in late and met[name] <= 20 and row["mean"]:
                squares.append((float(row["mean"]) - float(row["y"])) ** 2)
        assert len(late) > 30
        errors.append(float(np.sqrt(np.mean(squares))))
    assert errors[0] < 0.75 * errors[1]  # of 500 devices 0.6, see tests.bench.fleet


def test_a_key_that_comes_of_age_begins_once_more_from_what_is_known_by_then(here: Path) -> None:
    lines = (here / "rows.csv").read_text().splitlines()
    mine = [at for at, line in enumerate(lines) if line.startswith("d0,")]
    found = []
    for count in (REFIT_ROWS - 1, REFIT_ROWS, REFIT_ROWS + 1):
        (here / "some.csv").write_text("\n".join(lines[: mine[count - 1] + 1]) + "\n")
        trained("--fresh", sources="some.csv")
        found.append(load_bytes(models()["d0"], "d0"))
        assert found[-1].rows_seen == count
    before, then, after = (one.learner_state.members[0].state() for one in found)
    assert not np.array_equal(before.prior_mean, then.prior_mean)
    assert np.array_equal(then.prior_mean, after.prior_mean)
    assert then.counts[COUNT.distinct] == REFIT_ROWS
    scored = [one.card.curve.rows for one in found]  # each row once, as it was said when it came
    assert np.array_equal(np.diff(scored), [1, 1])


def test_a_new_key_is_as_wide_as_keys_have_moved() -> None:
    common = init(Config(inputs=2, hidden=(10,), covariance="neuron"), 3)
    layout = layout_of(common.config)
    common = common._replace(cov=1e-6 * common.cov)
    widths = BetweenKeyVariance()
    first = widths.make_initial_state(common)
    last, level = layout.layers - 1, common.noise[0, 1] / common.noise[0, 0]
    begun = common.prior_var.copy()
    layout.weight_matrix(begun, last)[:, 0] = (
        1.0 - KEY_NOISE_SHARE
    ) * level  # what the common one takes for noise
    assert np.allclose(first.prior_var, begun, rtol=1e-3)
    for sign in (1.0, -1.0) * 100:
        start = widths.make_initial_state(common)
        key = start.mean.copy()
        layout.weight_matrix(key, 0)[:, 0] += sign * 1.5
        told = start._replace(mean=key, cov=0.1 * start.cov, noise=np.array([[4.0, 4.0 * 0.2]]))
        widths.add_shift(measure_shift(told))
    wide = widths.make_initial_state(common)
    assert np.array_equal(wide.mean, common.mean)
    assert np.array_equal(wide.prior_var, wide.cov[layout.variance_positions])
    bias, others = (layout.weight_matrix(wide.prior_var, 0)[part] for part in BIASES_AND_WEIGHTS)
    assert np.allclose(bias, SHIFT_SHRINKAGE * 1.5**2 / 0.9, rtol=0.02)
    assert np.all(others < 0.01 * layout.weight_matrix(first.prior_var, 0)[BIASES_AND_WEIGHTS[1]])
    apart = max(level - 0.2, MIN_LEVEL_SHARE * level)
    assert np.allclose(layout.weight_matrix(wide.prior_var, last)[:, 0], apart, rtol=1e-3)


def test_a_fleet_is_trained_in_python_too(here: Path) -> None:
    fleet = library.train("rows.csv", "y", key="device", model="fleet")
    assert fleet.rows == 480
    said = fleet.predict("rows.csv")["mean"]
    assert np.array_equal(library.load("fleet").predict("rows.csv")["mean"], said)
    memory = library.train("rows.csv", "y", key="device")
    memory.learn("rows.csv")
    assert memory.rows == 960
    assert memory.evaluate("rows.csv")["keys"]["count"] == 8
    for ask in (
        memory.to_bytes,
        lambda: memory.predict_one({"a": 1.0}),
        lambda: memory.forecast(3),
    ):
        with pytest.raises(library.UsageError, match="a fleet has one model per key"):
            ask()


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_a_full_disk_is_one_sentence_and_the_fleet_stays_as_it_was(here: Path) -> None:
    trained()
    before = models()
    write(here / "more.csv", *made(60, 20, seed=1))
    command = f"ulimit -f 200; {sys.executable} -m kbnn_cli.app train more.csv -m fleet -q"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("kbnn: fleet: cannot be saved (")
    assert done.stderr.count("\n") == 1
    assert models() == before
    trained(sources="more.csv")
    assert told("inspect", "fleet")["rows"] == 480 + 1200


def test_a_new_key_starts_with_the_networks_of_the_pooled_model() -> None:
    settings = Settings(hidden=(4,), rehearse=0, kind="regression")
    common = OnlineModel(replace(settings, ensemble=3), schema(2))
    rng = np.random.default_rng(3)
    x = rng.standard_normal((80, 2))
    common.learn(block(x, x[:, :1]))
    key = create_pooled_model(settings, common, BetweenKeyVariance())
    assert len(key.learner_state.members) == len(key.learner_state.pool.weight) == 3
    key.learn(block(x[:5], x[:5, :1]))
    assert np.isfinite(key.predict(block(x[:2], x[:2, :1])).mean).all()


def test_earlier_keys_are_discounted_in_the_variance_between_keys() -> None:
    widths, one = BetweenKeyVariance(), np.array([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, np.nan])
    for _ in range(3):
        widths.add_shift(one)
    counted = 1.0 + KEY_DISCOUNT + KEY_DISCOUNT**2
    assert widths.squared_shifts[0, 0] == widths.information_gains[0, 0] == pytest.approx(counted)
    assert widths.keys == 0.0  # none of them had a noise of its own


def test_keys_are_ranked_by_the_weighted_loss_of_their_rows() -> None:
    y, said = np.array([[1.0], [3.0], [2.0], [9.0]]), np.zeros(4)
    weight = np.array([3.0, 1.0, 1.0, 0.5])
    scores = KeyScores(number_task())
    rows = Rows(np.zeros((4, 1)), y, np.arange(1, 5), weight=weight)
    scores.add(["b", "b", "a", "c"], rows, numbers(said, np.ones(4)))
    found = [(one["key"], one["rows"], one["loss"]) for one in scores.rank_keys()]
    assert found == [("b", 2, pytest.approx(np.sqrt(3.0))), ("a", 1, 2.0), ("c", 1, 9.0)]
    told = scores.to_json()
    assert told["count"] == 3
    assert [told[which]["key"] for which in ("best", "median", "worst")] == ["b", "a", "c"]
