"""The schema: kinds by what values read as, roles by the options, and growth in row order."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kbnn.data.column_types import ColumnSample, infer_kind
from kbnn.data.dataset import open_stream
from kbnn.data.read_options import ReadOptions
from kbnn.data.schema import Column, Place, Schema
from kbnn.data.values import MissingSpellings
from kbnn.errors import ModelError
from kbnn.plain_values import read_value
from tests.streams import csv_bytes, jsonl_bytes, look, parquet_bytes


def kinds(data: bytes | str, folder: Path, **options: Any) -> dict[str, tuple[str, str]]:
    """Kind and role of every column."""
    (folder / "t").write_bytes(data.encode() if isinstance(data, str) else data)
    with open_stream([str(folder / "t")], options=ReadOptions(**options)) as stream:
        return {column.name: (column.kind, column.role) for column in stream.schema.columns}


@pytest.mark.parametrize("value", ["xy", ["x"], ["x", None, None], 3, None, [1, None]])
def test_a_place_is_a_pair_of_names(value: object) -> None:
    assert read_value(Place, ["x", None], "layout") == Place("x", None)
    with pytest.raises(ValueError, match="layout cannot be"):
        read_value(Place, value, "layout")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2.5", None, "-3e4", "+4", ".5"], "number"),
        (["1", "2", "3", "?"], "number"),
        (["1", "2", "?"], "category"),
        (["true", "FALSE", None], "boolean"),
        (["0", "1"], "number"),
        (["x", "y", "x"], "category"),
        ([None, None], "undecided"),
        (["2020-01-01", "2020-02-01T10:00:00Z"], "ignored"),
        (["12:30", "01:15:59.5"], "ignored"),
        (["31.12.2020", "01/02/2021 10:00"], "ignored"),
        (['{"a": 1}', "[1]"], "ignored"),
        (["1,5", "2,25", "3,0", "4"], "category"),
        ([f"name {at}" for at in range(19)], "category"),
        ([f"name {at}" for at in range(20)], "ignored"),
        ([f"name {at % 17}" for at in range(20)], "category"),
    ],
)
def test_kinds_by_what_values_read_as(values: list[str | None], kind: str) -> None:
    assert infer_kind(ColumnSample(values, None))[0] == kind


def test_missing_tokens_in_every_usual_case() -> None:
    tokens = MissingSpellings(("?", " -999 ")).texts
    for token in (
        "",
        "NA",
        "na",
        "N/A",
        "n/a",
        "null",
        "NULL",
        "None",
        "nan",
        "NaN",
        ".",
        "?",
        "-999",
    ):
        assert token in tokens
    assert "x" not in tokens


def test_unusable_columns_are_ignored_with_a_notice(tmp_path: Path) -> None:
    days = [datetime.time(1, at) for at in range(25)]
    table = pa.table(
        {
            "day": days,
            "name": [f"n{at}" for at in range(25)],
            "x": list(range(25)),
            "y": [at * 0.5 for at in range(25)],
        }
    )
    words = []
    for data in (csv_bytes(table), parquet_bytes(table)):
        (tmp_path / "t").write_bytes(data)
        seen = look([tmp_path / "t"])
        words.append(seen.notices)
        assert seen.x.tolist() == [[at] for at in range(25)]
    assert words[0] == words[1]
    assert words[0] == [
        "target: last column 'y' (choose with --target)",
        "column 'day' is ignored: it holds timestamps",
        "column 'name' is ignored: it holds values that nearly all differ such as 'n0' "
        "(--hash name:32 learns from values that recur)",
        "task: regression, since 'y' holds numbers",
    ]
    nested = table.append_column("z", pa.array([[at] for at in range(25)]))
    for data in (parquet_bytes(nested), jsonl_bytes(nested.drop_columns(["day"]))):
        (tmp_path / "t").write_bytes(data)
        assert (
            "column 'z' is ignored: it holds nested values"
            in look([tmp_path / "t"], target=("y",)).notices
        )


def test_free_text_named_as_a_feature_is_a_category(tmp_path: Path) -> None:
    data = "name,y\n" + "".join(f"n{at},{at}\n" for at in range(40))
    assert kinds(data, tmp_path, features=("name",))["name"] == ("category", "feature")


def test_roles(tmp_path: Path) -> None:
    data = "a,a_sd,b,w,c,y\n1,0.1,2,1,3,4\n2,0.1,3,1,4,5\n"
    assert kinds(data, tmp_path, ignore=("c",), weight="w", input_sd=True) == {
        "a": ("number", "feature"),
        "a_sd": ("number", "input_sd"),
        "b": ("number", "feature"),
        "w": ("number", "weight"),
        "c": ("ignored", "none"),
        "y": ("number", "target"),
    }
    found = kinds(data, tmp_path, target=("b", "y"), features=("a", "a_sd"))
    assert [name for name, (_, role) in found.items() if role == "target"] == ["b", "y"]
    assert [name for name, (_, role) in found.items() if role == "feature"] == ["a", "a_sd"]


BINARY = "task: classification, since 'y' is 0 or 1 (otherwise use --task regression)"


@pytest.mark.parametrize(
    ("values", "task", "said", "found", "classes"),
    [
        ("1 2 3", "auto", "task: regression, since 'y' holds numbers", "regression", []),
        ("0 1 1", "auto", BINARY, "classification", ["0", "1"]),
        ("1.0 0.0", "auto", BINARY, "classification", ["0", "1"]),
        ("1 1 1", "auto", "task: regression, since 'y' holds numbers", "regression", []),
        (
            "true False",
            "auto",
            "task: classification, since 'y' is true or false",
            "classification",
            ["false", "true"],
        ),
        (
            "b a b",
            "auto",
            "task: classification, since 'y' holds text",
            "classification",
            ["b", "a"],
        ),
        ("0 1 1", "regression", "", "regression", []),
        ("3 1 3.0 2", "classification", "", "classification", ["3", "1", "2"]),
    ],
)
def test_the_task(
    values: str, task: str, said: str, found: str, classes: list[str], tmp_path: Path
) -> None:
    rows = "".join(f"{at},{value}\n" for at, value in enumerate(values.split()))
    (tmp_path / "t").write_text("a,y\n" + rows)
    seen = look([tmp_path / "t"], task=task)
    assert seen.schema is not None
    assert (seen.schema["task"], seen.schema["classes"]) == (found, classes)
    assert not said or said in seen.notices
    if found == "classification":
        index = [classes.index(_label(value)) for value in values.split()]
        assert seen.y[:, 0].tolist() == index


def _label(text: str) -> str:
    return text.removesuffix(".0").lower()


def test_a_target_without_early_values_is_told_by_its_first(tmp_path: Path) -> None:
    rows = [f"{at}," for at in range(50)] + ["50,red", "51,blue"]
    (tmp_path / "t").write_text("a,y\n" + "\n".join(rows) + "\n")
    for read_size in (5, 1 << 20):
        seen = look([tmp_path / "t"], read_size=read_size)
        assert not seen.error
        assert seen.schema is not None
        assert seen.schema["task"] == "classification"
        assert seen.schema["classes"] == ["red", "blue"]


def small() -> Schema:
    return Schema(
        [Column("a", "number", "feature"), Column("c", "category", "feature"),
         Column("u", "undecided", "feature"), Column("y", "number", "target")],
        "regression",
        layout=[Place("a", None), Place("c", None), Place("u", None)],
        max_categories=3,
    )  # fmt: skip


def test_indices_once_given_stay() -> None:
    schema = small()
    column = schema.get_column("c")
    assert schema.encoded_names() == ["a", "c", "u"]
    assert [schema.add_category(column, label) for label in "xyzw"] == [1, 3, 4, None]
    assert schema.encoded_names() == ["a", "c=x", "u", "c=y", "c=z"]
    assert schema.width == 5
    late = schema.get_column("u")
    late.kind = "category"
    assert schema.add_category(late, "q") == 2


def test_json_and_back() -> None:
    schema = small()
    schema.add_category(schema.get_column("c"), 'odd "label"\n')
    plain = json.loads(json.dumps(schema.to_json()))
    again = Schema.from_json(plain)
    assert again == schema
    copy = schema.copy()
    copy.add_category(copy.get_column("c"), "more")
    assert schema == again


@pytest.mark.parametrize(
    "change",
    [
        {"columns": None},
        {"columns": [{"name": "a"}]},
        {"task": "guessing"},
        {"layout": [["nowhere", None]]},
        {"layout": [["a"]]},
        {"layout": 3},
        {"columns": [{"name": "a", "kind": "number", "role": "feature"}]},
        {"classes": [1]},
    ],
)
def test_a_damaged_schema_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="the model's schema is damaged"):
        Schema.from_json({**small().to_json(), **change})


def test_a_category_has_one_place() -> None:
    schema = small()
    schema.add_category(schema.get_column("c"), "more")
    plain = schema.copy().to_json()
    plain["layout"] = [*plain["layout"], ["c", "more"]]
    with pytest.raises(ModelError, match="its parts do not fit together"):
        Schema.from_json(plain)


def test_a_header_may_have_numbers_for_names(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("0,1,2\n5,6,7\n8,9,1\n")
    with open_stream([str(tmp_path / "t")], options=ReadOptions(header=True)) as stream:
        assert [column.name for column in stream.schema.columns] == ["0", "1", "2"]
        schema = stream.schema
    (tmp_path / "t").write_text("0,5,2\n5,6,7\n")
    assert look([tmp_path / "t"], schema).rows == [1, 2]
    (tmp_path / "t").write_text("2,1,0\n5,6,7\n")
    assert look([tmp_path / "t"], schema).x.tolist() == [[7, 6]]
    assert look([tmp_path / "t"], schema, header=False).x.tolist() == [[2, 1], [5, 6]]


def test_names_are_trimmed_and_made_up_where_empty(tmp_path: Path) -> None:
    assert list(kinds(' a ,, "b" \n1,2,3\n', tmp_path)) == ["a", "column2", '"b"']


def test_json_columns_are_the_keys_of_the_first_rows(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"b": 1, "y": 2.5}, {"a": 2, "y": 3.5}]
    rows += [{"b": 3, "y": 4.5}] * 30 + [{"late": 1, "y": 5.5}]
    (tmp_path / "t").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for read_size in (10, 1 << 20):
        seen = look([tmp_path / "t"], target=("y",), read_size=read_size)
        assert seen.schema is not None
        columns = seen.schema["columns"]
        assert [column["name"] for column in columns] == ["b", "y", "a", "late"]
        assert [column["late"] for column in columns] == [False, False, False, True]
        assert len(seen.rows) == 33
