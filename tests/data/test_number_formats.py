"""Numbers as people write them: read where there is no doubt, and announced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kbnn
from kbnn.data.number_format import Form, NumberMarks, detect_number_format, report_number_formats
from kbnn.data.values import MissingSpellings, parse_numbers
from kbnn.errors import UsageError
from tests.commands import kbnn as command
from tests.streams import assert_same, every_format, look

MISSING = MissingSpellings()


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        (Form(",", "."), "1.234,56", 1234.56),
        (Form(",", "."), "-12,5", -12.5),
        (Form(",", "."), "1234", 1234.0),
        (Form(",", "."), "12.5", None),  # a point stands before three digits
        (Form(",", "."), "1.2345,6", None),
        (Form(".", ","), "1,234,567.8", 1234567.8),
        (Form(".", ","), "12,34", None),
        (Form(".", ",", "$"), "$14,612.87", 14612.87),
        (Form(".", ",", "$"), "-$5", -5.0),
        (Form(".", ",", "$"), "$-5", -5.0),
        (Form(".", ",", "$"), "($1,250.00)", -1250.0),
        (Form(".", ",", "$"), "-($5)", None),
        (Form(".", ",", "$"), "$5$", None),
        (Form(".", ",", "$"), "5", 5.0),
        (Form(".", "", "%"), "14.5 %", 14.5),
        (Form(".", "", "%"), "14.5", None),  # per cent or not: another number
        (Form(",", " ", "€"), "1\u202f234,50\u00a0€", 1234.5),
        (Form(".", "'"), "1\u2019234.5", 1234.5),
        (Form(".", "", "km"), "20 km", 20.0),
        (Form(".", "", "km"), "20 m", None),
        (Form(), "1,5", None),
        (Form(), "(5)", None),
        (Form(), "-1.5e3", -1500.0),
        (Form(".", ","), "\u22125", -5.0),
    ],
)
def test_a_form_reads_what_keeps_to_it(form: Form, text: str, value: float | None) -> None:
    assert form.parse_number(text) == value
    read = parse_numbers(pa.array([text, None, text]), MISSING, form)
    assert read.unparsed == ({0: text, 2: text} if value is None else {})
    expected = np.nan if value is None else value
    assert np.array_equal(read.values, [expected, np.nan, expected], equal_nan=True)


@given(st.lists(st.floats(-1e9, 1e9).map(lambda v: round(v, 3)), min_size=1, max_size=9))
def test_tables_and_single_values_are_read_alike(values: list[float]) -> None:
    spelled = {
        Form(",", "."): [f"{v:,}".translate(str.maketrans(",.", ".,")) for v in values],
        Form(".", ",", "€"): [f"{v:,} €" for v in values],
        Form(".", " "): [f"{v:,}".replace(",", " ") for v in values],
    }
    for form, texts in spelled.items():
        texts = [text for text in texts if "e" not in text]
        one_by_one = [form.parse_number(text) for text in texts]
        assert one_by_one == [v for v in values if "e" not in f"{v:,}"]
        assert (
            parse_numbers(pa.array(texts, pa.string()), MISSING, form).values.tolist() == one_by_one
        )


@pytest.mark.parametrize(
    ("texts", "first", "form"),
    [
        (["1.234,56", "7,5"], "", Form(",", ".")),
        (["12,5", "3"], "", Form(",", ".")),
        (["2,984", "984"], "", Form(".", ",")),
        (["2,984", "1,250"], ",", Form(",", ".")),  # the other columns have a decimal comma
        (["2,984", "1,250", "984"], ",", Form(".", ",")),  # which small numbers contradict
        (["1.234", "5.678"], "", Form()),
        (["1.234", "5.678"], ",", Form(",", ".")),
        (["$5", "$1,250.50"], "", Form(".", ",", "$")),
        (["$5", "€7"], "", Form()),
        (["$5", "$7", "$8", "$9 kg"], "", Form()),  # which of the two is it?
        (["5 km", "7 km"], "", Form(".", "", "km")),
        (["5A", "7A"], "", Form()),
        (["5 A", "7 A"], "", Form(".", "", "A")),
        (["5K", "7K"], "", Form()),
        (["250.00", "(30.00)"], "", Form(".", ",")),
        (["1 250", "30"], "", Form(".", " ")),
        (["192.168.1.1", "10.0.0.1"], "", Form()),
        (["12.05.2024", "13.05.2024"], "", Form()),
        (["a", "b"], "", Form()),
    ],
)
def test_the_form_of_first_values(texts: list[str], first: str, form: Form) -> None:
    assert detect_number_format(texts, NumberMarks(), first) == form


def european(rows: int = 90) -> pa.Table:
    rng = np.random.default_rng(1)
    price = rng.uniform(500, 90_000, rows).round(2)
    return pa.table(
        {
            "price": [f"{v:,.2f}".translate(str.maketrans(",.", ".,")) for v in price],
            "rate": [None if at % 9 == 4 else f"{at % 13},5 %" for at in range(rows)],
            "size": [f"{at % 40}" for at in range(rows)],
            "y": [f"{v / 1000:.3f}".replace(".", ",") for v in price],
        }
    )


@pytest.mark.slow
def test_a_european_table_is_read_in_every_format(tmp_path: Path) -> None:
    table = european()
    seen = []
    for name, data in every_format(table).items():
        (tmp_path / name).write_bytes(data)
        seen.append(look([tmp_path / name]))
        for size in (1, 61) if name == "csv" else (61,):
            assert_same(look([tmp_path / name], read_size=size, block_rows=7), seen[-1])
    for one in seen:
        assert one.error == ""
        assert one.schema == seen[0].schema
        assert np.array_equal(one.x, seen[0].x, equal_nan=True)
        assert np.array_equal(one.y, seen[0].y)
    assert seen[0].schema is not None
    forms = {column["name"]: column["form"] for column in seen[0].schema["columns"]}
    assert forms["price"]["decimal"] == forms["y"]["decimal"] == ","
    assert forms["rate"]["sign"] == "%"
    text = table["price"][0].as_py()
    assert seen[0].x[0, 0] == float(text.replace(".", "").replace(",", "."))
    assert any("column 'price': '" in n and "is read as" in n for n in seen[0].notices)
    assert any("column 'y': '" in n and "(--decimal . if it is" in n for n in seen[0].notices)
    assert any("column 'rate': '10,5 %' is read as 10.5" in n for n in seen[0].notices)


def test_predicting_reads_as_the_model_learned(tmp_path: Path) -> None:
    rows = [f"{at % 17},{at % 10};{3 * (at % 17)},5\n" for at in range(200)]
    (tmp_path / "t.csv").write_text("a;y\n" + "".join(rows))
    model = tmp_path / "m.npz"
    assert command("train", tmp_path / "t.csv", "-m", model, "-q").code == 0
    (tmp_path / "q.csv").write_text("a;y\n5,5;16,5\n")
    evaluated = command("evaluate", model, tmp_path / "q.csv", "--json")
    assert evaluated.code == 0
    loaded = kbnn.load(model)
    as_number = loaded.predict({"a": [5.5]}).mean
    assert loaded.predict({"a": ["5,5"]}).mean == as_number
    assert loaded.predict_one({"a": "5,5"}).mean == loaded.predict_one({"a": 5.5}).mean
    stopped = command("predict", model, tmp_path / "q.csv", "--decimal", ",")
    assert stopped.code == 2  # the model knows


@pytest.mark.parametrize(
    ("rows", "option", "told"),
    [
        (["1.5"] * 40 + ["4,5"], "--decimal ','", "cannot read '4,5' as a number"),
        (["150"] * 40 + ["1,150"], "--thousands ',' or --decimal ','", "cannot read '1,150'"),
        (["3"] * 100 + ["A0"], "--categorical a if these are labels", "cannot read 'A0'"),
    ],
)
def test_what_comes_late_has_a_remedy(rows: list[str], option: str, told: str) -> None:
    Path("t").write_text("a;y\n" + "".join(f"{cell};{at}\n" for at, cell in enumerate(rows)))
    error = look(["t"]).error
    assert told in error
    assert f"(use {option}" in error


def test_stated_marks_win() -> None:
    Path("t").write_text("a;y\n" + "".join(f"{1 + at % 8}.250;{at}\n" for at in range(40)))
    assert look(["t"]).x[0, 0] == 1.25
    stated = look(["t"], decimal=",")
    assert stated.x[0, 0] == 1250.0
    assert stated.schema is not None
    assert stated.schema["decimal"] == ","
    assert any("is read as" in notice for notice in stated.notices)
    Path("u").write_text("a;y\n" + "".join(f"{1 + at % 8},250;{at}\n" for at in range(40)))
    assert look(["u"]).x[0, 0] == 1250.0
    assert any("(--decimal , if it is 1.25)" in notice for notice in look(["u"]).notices)
    assert look(["u"], decimal=",").x[0, 0] == 1.25
    assert look(["u"], thousands=",").x[0, 0] == 1250.0


@pytest.mark.parametrize(
    "words", [{"decimal": ";"}, {"thousands": "x"}, {"decimal": ",", "thousands": ","}]
)
def test_marks_that_make_no_sense(words: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"--(decimal|thousands)"):
        NumberMarks(**words)


def test_what_could_be_read_otherwise_names_the_option() -> None:
    rows = [
        f"{at},5;{1 + at % 8},250;{at % 900 if at % 2 else f'{at}.000'};{at}" for at in range(1, 60)
    ]
    Path("t").write_text("\n".join(["c;d;p;y", *rows, ""]))
    seen = look(["t"])
    assert seen.x[0].tolist() == [1.5, 2.25, 1.0]
    assert any("(--decimal . if it is 2250)" in notice for notice in seen.notices)
    Path("u").write_text(
        "a,y\n" + "".join(f"{at if at % 2 else f'{at}.250'},{at}\n" for at in range(1, 60))
    )
    assert (
        "column 'a': '10.250' is read as 10.25 (--thousands . if it is 10250)"
        in look(["u"]).notices
    )


def test_a_gap_of_its_own_is_announced() -> None:
    Path("t").write_text("a,y\n" + "".join(f"{'-' if at % 3 else at},{at}\n" for at in range(60)))
    seen = look(["t"])
    assert "column 'a': '-' is read as missing, as with --na '-'" in seen.notices
    assert np.isnan(seen.x[1, 0])
    assert seen.x[3, 0] == 3.0
    for size in (1, 17):
        assert_same(look(["t"], read_size=size), seen)


def test_a_headerless_european_file_has_no_header() -> None:
    Path("t").write_text("".join(f"{at},5;{at % 7},25\n" for at in range(40)))
    assert len(look(["t"]).rows) == 40


def test_contradictions_with_a_model_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{at % 9},{at}\n" for at in range(60)))
    model = str(tmp_path / "m.npz")
    assert command("train", tmp_path / "t.csv", "-m", model, "-q").code == 0
    for option, value in (("--decimal", ","), ("--categorical", "a"), ("--hash", "a:8")):
        refused = command("train", tmp_path / "t.csv", "-m", model, option, value)
        assert refused.code == 2
        assert f"{option} {value} contradicts" in refused.err


@pytest.mark.parametrize(
    ("columns", "where"), [(4, "'c0', 'c1', 'c2', 'c3'"), (6, "'c3' and 2 more")]
)
def test_columns_of_one_form_are_told_together(columns: int, where: str) -> None:
    said: list[str] = []
    forms = {f"c{at}": Form(",", ".") for at in range(columns)}
    report_number_formats(
        forms, {name: ["12,5", "3"] for name in forms}, NumberMarks(), said.append
    )
    assert len(said) == 1
    assert f"{where}: '12,5' is read as 12.5" in said[0]
