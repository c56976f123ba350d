"""What columns are: as the first rows suggest, as the user says, and what is hinted at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kbnn
from kbnn.data.column_types import ColumnSample, infer_kind, suggest_classification
from kbnn.data.decoder import hash_label
from kbnn.data.read_options import parse_hash_options
from kbnn.data.schema import Column
from kbnn.errors import UsageError
from tests.commands import kbnn as command
from tests.streams import assert_same, every_format, look


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def table(rows: int = 120) -> pa.Table:
    return pa.table(
        {
            "zip": [f"0{2100 + at % 5}" for at in range(rows)],
            "device": [f"dev-{(at * 37) % 90}" for at in range(rows)],
            "code": [str(at % 7) for at in range(rows - 10)] + ["A0"] * 10,
            "y": [float(at % 11) + 0.5 for at in range(rows)],
        }
    )


KINDS: Any = {"categorical": ("zip", "code"), "hashed": (("device", 16),)}


@pytest.mark.slow
def test_kinds_as_stated_are_the_same_in_every_format_and_chunk(tmp_path: Path) -> None:
    seen = []
    for name, data in every_format(table()).items():
        (tmp_path / name).write_bytes(data)
        seen.append(look([tmp_path / name], **KINDS))
        assert seen[-1].error == ""
        for size in (1, 97) if name == "csv" else (97,):
            assert_same(look([tmp_path / name], read_size=size, block_rows=13, **KINDS), seen[-1])
    for one in seen:
        assert one.schema == seen[0].schema
        assert np.array_equal(one.x, seen[0].x)
    assert seen[0].schema is not None
    columns = {column["name"]: column for column in seen[0].schema["columns"]}
    assert columns["zip"]["categories"] == ["02100", "02101", "02102", "02103", "02104"]
    assert columns["code"]["categories"][-1] == "A0"
    assert len(columns["device"]["categories"]) <= 16


def test_a_label_has_its_bucket_wherever_it_is_met() -> None:
    Path("t").write_text("device,y\n" + "".join(f"d{at % 70},{at}.5\n" for at in range(200)))
    seen = look(["t"], hashed=(("device", 8),))
    assert seen.schema is not None
    names = [f"#{at}" for at in range(8)]
    places = [place[1] for place in seen.schema["layout"]]
    assert sorted(places) == names
    assert np.all(seen.x.sum(axis=1) == 1.0)
    for row in (0, 3, 73, 143):
        assert places[int(np.argmax(seen.x[row]))] == hash_label(f"d{row % 70}", 8)


def test_one_row_at_a_time_hashes_alike() -> None:
    rows = [({"device": f"d{at % 30}", "a": float(at % 5)}, float(at % 30)) for at in range(90)]
    model = kbnn.Model(target="y", hash="device:8", layers=5, rehearse=0)
    for x, y in rows:
        model.learn_one(x, y)
    whole = kbnn.Model(target="y", hash="device:8", layers=5, rehearse=0)
    whole.learn({"device": [x["device"] for x, _ in rows], "a": [x["a"] for x, _ in rows],
                 "y": [y for _, y in rows]})  # fmt: skip
    asked = {"device": "d7", "a": 2.0}
    assert model.predict_one(asked).mean == whole.predict_one(asked).mean


@pytest.mark.parametrize("text", ["device", "device:", ":32", "device:1", "device:x", "d:99999"])
def test_buckets_are_stated_as_a_number(text: str) -> None:
    with pytest.raises(UsageError, match="--hash takes COLUMN:BUCKETS"):
        parse_hash_options([text])


def test_a_column_has_one_kind() -> None:
    Path("t").write_text("a,y\n1,2\n3,4\n")
    both = "column 'a' cannot be both --categorical and --numeric"
    assert look(["t"], categorical=("a",), numeric=("a",)).error == f"UsageError: {both}"
    assert "no column 'b'" in look(["t"], categorical=("b",)).error
    assert (
        "that column is the target (--task classification" in look(["t"], hashed=(("y", 4),)).error
    )
    assert look(["t"], numeric=("y",)).error == ""


def test_numeric_takes_any_sign_that_is_always_the_same() -> None:
    Path("t").write_text("a,y\n" + "".join(f"{at}xyz,{at}.5\n" for at in range(40)))
    assert look(["t"], numeric=("a",)).x[7, 0] == 7.0


def test_a_code_that_turns_alphanumeric_names_its_remedy(tmp_path: Path) -> None:
    rows = [f"{at % 7},{at}.5\n" for at in range(100)] + ["A0,1.5\n"] * 20
    (tmp_path / "t.csv").write_text("code,y\n" + "".join(rows))
    model = tmp_path / "m.npz"
    stopped = command("train", tmp_path / "t.csv", "-m", model)
    assert stopped.code == 1
    assert "cannot read 'A0' as a number (use --categorical code if these are labels" in stopped.err
    mended = command("train", tmp_path / "t.csv", "-m", model, "--categorical", "code", "--fresh")
    assert mended.code == 0


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["Yes", "yes", "no", "N"], "boolean"),
        (["TRUE", "False"], "boolean"),
        (["true", "0", "1", "false"], "boolean"),
        (["yes", "no"], "category"),
        (["0", "1", "0", "1"], "number"),
        (["0", "1.0", "1", "0.0"], "number"),
        (["ja", "Nein", "nein", "Ja"], "boolean"),
    ],
)
def test_truth_in_any_spelling(values: list[str], kind: str) -> None:
    rows = "".join(f"{values[at % len(values)]},{at}.5\n" for at in range(40))
    Path("t").write_text("a,y\n" + rows)
    seen = look(["t"])
    assert seen.schema is not None
    assert seen.schema["columns"][0]["kind"] == kind
    if kind == "boolean":
        truth = {"yes": 1, "true": 1, "ja": 1, "1": 1}
        assert seen.x[:, 0].tolist() == [
            float(truth.get(values[at % len(values)].lower(), 0)) for at in range(40)
        ]
        odd = not {v.lower() for v in values} <= {"true", "false"}
        assert any("are read as true and false" in n for n in seen.notices) == odd


@pytest.mark.parametrize(
    ("rows", "hint"),
    [
        ([f"{at % 3 + 1}" for at in range(40)], True),
        ([f"{at % 3 + 1}" for at in range(20)], True),
        ([f"{at % 3 + 1}" for at in range(19)], False),
        ([f"{at % 3 + 1}.5" for at in range(40)], False),
        ([f"{at}" for at in range(40)], False),
    ],
)
def test_few_whole_numbers_may_be_classes(rows: list[str], hint: bool) -> None:
    Path("t").write_text("a,y\n" + "".join(f"{at},{y}\n" for at, y in enumerate(rows)))
    told = "3 different whole numbers: they are learned as numbers (--task classification"
    assert any(told in notice for notice in look(["t"]).notices) == hint
    assert not any(told in notice for notice in look(["t"], task="regression").notices)


def test_numbers_that_rise_by_more_than_one_count_no_rows() -> None:
    Path("t").write_text("id,y\n" + "".join(f"{3 * at},{at}.5\n" for at in range(40)))
    assert not any("counts the rows" in notice for notice in look(["t"]).notices)


@pytest.mark.parametrize(
    ("rows", "different", "kind"),
    [(20, 18, "category"), (20, 19, "ignored"), (19, 19, "category"), (40, 36, "category")],
)
def test_texts_that_nearly_all_differ_are_no_categories(
    rows: int, different: int, kind: str
) -> None:
    values: list[str | None] = [f"n{at % different}" for at in range(rows)]
    assert infer_kind(ColumnSample(values, None))[0] == kind


@pytest.mark.parametrize(
    ("name", "first", "told"),
    [
        ("date", 45_000, True),
        ("date", 19_000, False),
        ("date", 61_000, False),
        ("sum", 45_000, False),
    ],
)
def test_days_as_excel_counts_them_are_hinted_at(name: str, first: int, told: bool) -> None:
    rows = "".join(f"{first + 3 * at},{at % 5}.5\n" for at in range(40))
    Path("t").write_text(f"{name},y\n{rows}")
    assert any("an Excel day number" in notice for notice in look(["t"]).notices) == told


@pytest.mark.parametrize(("value", "hint"), [("0", True), ("1", True), ("5", False)])
def test_a_rare_event_that_has_not_come_yet_may_be_a_class(value: str, hint: bool) -> None:
    Path("t").write_text("a,y\n" + "".join(f"{at},{value}\n" for at in range(40)))
    told = (
        f"target 'y' is {value} in all of the first rows: it is learned as a number (--task class"
    )
    assert any(told in notice for notice in look(["t"]).notices) == hint
    assert not any(told in notice for notice in look(["t"], task="regression").notices)


def test_none_is_a_label_among_labels_and_missing_among_numbers() -> None:
    cells = ["none", "GOOD", "NONE", "3"]
    rows = [{"a": cells[at % 3], "b": cells[3 * (at % 2)], "y": cells[(at // 2) % 3]}
            for at in range(60)]  # fmt: skip
    Path("t").write_text("a,b,y\n" + "".join(f"{r['a']},{r['b']},{r['y']}\n" for r in rows))
    seen = look(["t"])
    assert seen.schema is not None
    assert seen.schema["classes"] == ["none", "GOOD", "NONE"]
    places = [place[1] for place in seen.schema["layout"]]
    assert set(places) == {"none", "GOOD", "NONE", None}
    gaps = np.isnan(seen.x)
    assert gaps[:, places.index(None)].tolist() == [row["b"] == "none" for row in rows]
    assert np.sum(gaps) == 30
    said = look(["t"], na=["none"])
    assert said.schema is not None
    assert said.schema["classes"] == ["GOOD", "NONE"]
    assert np.isnan(said.y).any()
    whole, single = (
        kbnn.train("t", "y", layers=5, rehearse=0),
        kbnn.Model("y", layers=5, rehearse=0),
    )
    for row in rows:
        single.learn_one({"a": row["a"], "b": None if row["b"] == "none" else 3.0}, row["y"])
    assert single.classes == whole.classes
    assert single.rows == whole.rows == 60


def test_codes_and_counters_are_hinted_at() -> None:
    Path("t").write_text("id,zip,y\n" + "".join(f"{at},0{at % 9}1,{at}.5\n" for at in range(40)))
    notices = look(["t"]).notices
    assert (
        "column 'id' counts the rows and is learned as a number (--ignore id leaves it out)"
        in notices
    )
    assert (
        "column 'zip': '001' is read as 1 (--categorical zip or --hash zip:32 if it is a code)"
        in notices
    )


def test_more_values_than_are_told_apart_are_announced() -> None:
    rows = "".join(f"d{at % 20 if at < 40 else at},{at}.5\n" for at in range(200))
    Path("t").write_text("d,y\n" + rows)
    seen = look(["t"])
    told = [notice for notice in seen.notices if "more than 64 values" in notice]
    assert told == [
        "column 'd' has more than 64 values: those after the first 64 are treated alike "
        "(--hash d:32 assigns every value to one of 32 inputs)"
    ]
    assert_same(look(["t"], read_size=5), seen)


def test_a_number_that_stands_for_a_gap_is_one_in_every_format_and_chunk(tmp_path: Path) -> None:
    rows = 90
    values = [-999.0 if at % 7 == 3 else at + 0.5 for at in range(rows)]
    gaps = pa.table(
        {
            "a": values,
            "whole": [-999 if at % 5 == 2 else at for at in range(rows)],
            "town": ["a" if at % 2 else "b" for at in range(rows)],
            "y": [-999.0 if at % 9 == 8 else float(at) for at in range(rows)],
        }
    )
    seen = []
    for name, data in every_format(gaps).items():
        (tmp_path / name).write_bytes(data)
        seen.append(look([tmp_path / name], na=("-999",)))
        assert_same(look([tmp_path / name], na=("-999",), read_size=61, block_rows=7), seen[-1])
    for one in seen:
        np.testing.assert_array_equal(one.x, seen[0].x)
        np.testing.assert_array_equal(one.y, seen[0].y)
    np.testing.assert_array_equal(np.isnan(seen[0].x[:, 0]), np.array(values) == -999.0)
    assert np.isnan(seen[0].y[8, 0])
    assert not any("-999" in note for note in seen[0].notices)


@pytest.mark.parametrize(
    ("role", "value", "reason"),
    [
        ({"weight": "a_sd"}, "0", "a weight must be positive, not 0"),
        ({"input_sd": True}, "-1", "a standard deviation cannot be -1"),
    ],
)
def test_plain_decimals_are_what_their_column_can_be_in_every_chunk(
    role: dict[str, Any], value: str, reason: str, tmp_path: Path
) -> None:
    lines = [f"{at}.5,1,{at}" for at in range(300)]
    lines[270] = f"270.5,{value},270"
    path = tmp_path / "t.csv"
    path.write_text("a,a_sd,y\n" + "\n".join(lines) + "\n")
    for size in (64, 1 << 20):
        seen = look([path], on_error="skip", read_size=size, **role)
        assert len(seen.y) == 299
        assert seen.bad == [f"{path}:272: column 'a_sd': {reason}"]


def test_a_number_that_stands_for_a_gap_is_one_in_single_rows() -> None:
    spelt = [-999.0 if at % 4 == 1 else float(at % 9) for at in range(60)]
    empty = [None if value == -999.0 else value for value in spelt]
    y = [float(at % 9) for at in range(60)]
    one = kbnn.train({"a": spelt, "y": y}, layers=5, rehearse=0, na=["-999"])
    other = kbnn.train({"a": empty, "y": y}, layers=5, rehearse=0)
    for model, gap in ((one, -999), (one, "-999"), (other, None), (other, None)):
        model.learn_one({"a": gap}, 4.0)
    assert one.predict_one({"a": 3.0}).mean == other.predict_one({"a": 3.0}).mean
    assert one.predict_one({"a": -999.0}).mean == other.predict_one({"a": None}).mean


@pytest.mark.parametrize(
    ("values", "row"),
    [
        ([5, 3, -999, 2] * 20, 3),
        ([5] * 60 + [-999.0], 61),
        ([5, -1, -999, 2] * 20, None),  # below 0 before: numbers like others
        ([5, -998, 2] * 20, None),
    ],
)
def test_a_first_negative_number_that_may_be_a_gap_is_told(
    values: list[float], row: int | None
) -> None:
    Path("t").write_text("a,y\n" + "".join(f"{a},{at}.5\n" for at, a in enumerate(values)))
    for size in (1 << 16, 7):
        notes = "\n".join(look(["t"], read_size=size, block_rows=5).notices)
        if row is None:
            assert "--na -99" not in notes
        else:
            assert f"column 'a': -999 in row {row} is its first negative number" in notes


def test_a_negative_number_in_a_row_that_is_left_out_is_none() -> None:
    rows = ["5,1.5\n"] * 40 + ["-1,what\n", "-999,2.5\n"]
    Path("t").write_text("a,y\n" + "".join(rows))
    seen = look(["t"], on_error="skip")
    assert len(seen.bad) == 1
    assert any("column 'a': -999 in row 42" in notice for notice in seen.notices)


def test_truth_in_two_spellings_of_one_word() -> None:
    """The other word comes late."""
    cells = ["Yes" if at % 2 else "yes" for at in range(50)] + ["no", "N"] * 5
    Path("t").write_text("a,y\n" + "".join(f"{a},{at}.5\n" for at, a in enumerate(cells)))
    seen = look(["t"])
    assert seen.x[:, 0].tolist() == [1.0] * 50 + [0.0] * 10


def test_a_run_cut_short_resumes_with_hashes_and_kinds_to_the_byte() -> None:
    lines = [
        f"0{2100 + at % 5},dev-{(at * 37) % 90},{at % 7 if at < 100 else 'A0'},{at % 11}.5\n"
        for at in range(160)
    ]
    said = ["--categorical", "zip,code", "--hash", "device:16", "--layers", "8"]
    whole = Path("t.csv")
    whole.write_text("".join(["zip,device,code,y\n", *lines]))
    assert command("train", whole, "-m", "a.npz", *said).code == 0
    whole.write_text("".join(["zip,device,code,y\n", *lines[:90], "oops\n", *lines[90:]]))
    assert command("train", whole, "-m", "b.npz", *said).code == 1
    whole.write_text("".join(["zip,device,code,y\n", *lines]))
    assert command("train", whole, "-m", "b.npz", *said, "--resume").code == 0
    assert Path("a.npz").read_bytes() == Path("b.npz").read_bytes()


@pytest.mark.parametrize(("values", "told"), [(1, True), (2, True), (10, True), (11, False)])
def test_classification_is_suggested_for_few_whole_numbers(values: int, told: bool) -> None:
    said: list[str] = []
    seen = ColumnSample([str(k % values) for k in range(40)], None)
    suggest_classification(Column("y", "number", "target"), seen, said.append)
    assert bool(said) == told
