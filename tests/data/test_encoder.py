"""Blocks: values, gaps, indicators, weights, and the same result at any chunking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbnn.data.batch import Rows
from kbnn.data.dataset import open_stream
from kbnn.data.read_options import ReadOptions
from kbnn.data.schema import Schema
from tests.streams import assert_same, csv_bytes, look, mixed_table, put_together

nan = float("nan")


def blocks_of(path: Path, schema: Schema | None = None, **options: Any) -> list[Rows]:
    with open_stream([str(path)], options=ReadOptions(**options), schema=schema) as stream:
        return list(stream)


def write(folder: Path, text: str) -> Path:
    (folder / "t.csv").write_text(text)
    return folder / "t.csv"


def test_indicators_and_gaps(tmp_path: Path) -> None:
    path = write(tmp_path, "a,c,y\n1,x,1\n,,2\nNA,y,3\n4,,5\n5,x,6\n")
    seen = look([path])
    np.testing.assert_array_equal(
        seen.x,
        [[1, 1, 0], [nan, nan, 0], [nan, 0, 1], [4, nan, nan], [5, 1, 0]],
    )
    for block_rows in (1, 2, 3):
        assert_same(look([path], block_rows=block_rows), seen)


def test_categories_beyond_the_cap_are_other(tmp_path: Path) -> None:
    path = write(tmp_path, "c,y\na,1\nb,2\nc,3\na,4\n")
    seen = look([path], max_categories=2)
    assert seen.x.tolist() == [[1, 0], [0, 1], [0, 0], [1, 0]]


def test_new_categories_come_in_row_order_whatever_the_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "p,q,y\nx,u,1\nx,v,2\nz,u,3\nx,w,4\n")
    for block_rows in (1, 2, 4096):
        with open_stream([str(path)], options=ReadOptions(block_rows=block_rows)) as stream:
            list(stream)
            assert stream.schema.encoded_names() == ["p=x", "q=u", "q=v", "p=z", "q=w"]


def test_a_number_in_a_category_column_is_a_category(tmp_path: Path) -> None:
    path = write(tmp_path, "c,y\na,1\nb,2\n7,3\n")
    with open_stream([str(path)]) as stream:
        list(stream)
        assert stream.schema.get_column("c").categories == ["a", "b", "7"]


def test_weights_and_stated_accuracies(tmp_path: Path) -> None:
    path = write(tmp_path, "a,a_sd,c,w,y\n1,0.5,x,2,1\n2,,y,1,2\n,0.25,x,3,4\n")
    (block,) = blocks_of(path, weight="w", input_sd=True)
    assert block.weight is not None
    assert block.x_sd is not None
    assert block.weight.tolist() == [2, 1, 3]
    np.testing.assert_array_equal(block.x, [[1, 1, 0], [2, 0, 1], [nan, 1, 0]])
    assert block.x_sd.tolist() == [[0.5, 0, 0], [0, 0, 0], [0.25, 0, 0]]


def test_several_targets(tmp_path: Path) -> None:
    path = write(tmp_path, "a,y,z\n1,2,3\n4,,6\n")
    (block,) = blocks_of(path, target=("z", "y"))
    np.testing.assert_array_equal(block.y, [[2, 3], [nan, 6]])


def test_truth_values(tmp_path: Path) -> None:
    rows = "".join(f"{'TRUE' if at % 2 else 'false'},{at}\n" for at in range(32))
    path = write(tmp_path, f"b,y\n{rows}1,2\n0,3\n,4\n")
    np.testing.assert_array_equal(look([path]).x[-4:, 0], [1, 1, 0, nan])


@pytest.mark.parametrize("read_size", [3, 1 << 20])
def test_an_undecided_column_is_decided_by_its_first_value(read_size: int, tmp_path: Path) -> None:
    rows = [f",,,,{at}" for at in range(40)]
    rows += ["7,red,true,2020-01-01,1", "oops,blue,false,x,1", "8,3,,,1"]
    path = write(tmp_path, "n,c,b,t,y\n" + "\n".join(rows) + "\n")
    seen = look([path], on_error="skip", read_size=read_size)
    assert seen.schema is not None
    assert [column["kind"] for column in seen.schema["columns"]] == [
        "number",
        "category",
        "boolean",
        "ignored",
        "number",
    ]
    assert seen.bad == [f"{path}:43: column 'n': cannot read 'oops' as a number"]
    np.testing.assert_array_equal(
        seen.x[-3:], [[nan] * 4 + [0], [7, 1, 1, nan, 0], [8, 0, nan, nan, 1]]
    )
    assert "column 't' is ignored: it holds timestamps" in seen.notices


def test_prediction_needs_no_target_and_keeps_every_row(tmp_path: Path) -> None:
    with open_stream([str(write(tmp_path, "a,c,w,y\n1,x,1,2\n2,y,1,3\n"))],
                     options=ReadOptions(weight="w")) as stream:  # fmt: skip
        list(stream)
        schema = stream.schema
    before = schema.to_json()
    told = {"admit": False, "use_target": False, "on_error": "keep", "original": True}
    path = write(tmp_path, "c,extra,a\nx,007,1\nnew,q,bad\ny\n")
    (block,) = blocks_of(path, schema, **told)
    np.testing.assert_array_equal(block.x, [[1, 1, 0], [nan, nan, nan], [nan, nan, nan]])
    assert np.isnan(block.y).all()
    assert block.weight is None
    assert block.original is not None
    assert block.original.to_pydict() == {
        "c": ["x", "new", ""],
        "extra": ["007", "q", ""],
        "a": ["1", "bad", ""],
    }
    (block,) = blocks_of(write(tmp_path, "5,y,9,junk\n"), schema, **told)
    np.testing.assert_array_equal(block.x, [[5, 0, 1]])
    (block,) = blocks_of(write(tmp_path, "6,x\n"), schema, **told)
    np.testing.assert_array_equal(block.x, [[6, 1, 0]])
    assert schema.to_json() == before


def test_the_original_columns_are_verbatim(tmp_path: Path) -> None:
    path = write(tmp_path, 'a,b,y\n1.50," x",NA\n+2,N/A,3e0\n')
    (block,) = blocks_of(path, original=True)
    assert block.original is not None
    assert block.original.to_pydict() == {
        "a": ["1.50", "+2"],
        "b": [" x", "N/A"],
        "y": ["NA", "3e0"],
    }
    assert blocks_of(path)[0].original is None


def test_one_file_after_another_is_one_file(tmp_path: Path) -> None:
    lines = csv_bytes(mixed_table(90)).splitlines(keepends=True)
    (tmp_path / "all").write_bytes(b"".join(lines))
    whole = look([tmp_path / "all"])
    for cut in (33, 50, 77):
        (tmp_path / "a").write_bytes(b"".join(lines[: cut + 1]))
        (tmp_path / "b").write_bytes(b"".join([lines[0], *lines[cut + 1 :]]))
        (tmp_path / "c").write_bytes(b"".join(lines[cut + 1 :]))
        for second in ("b", "c"):
            with open_stream([str(tmp_path / "a")]) as stream:
                blocks = list(stream)
                schema = stream.schema
            with open_stream([str(tmp_path / second)], schema=schema) as stream:
                both = put_together([*blocks, *stream])
                np.testing.assert_array_equal(both.x, whole.x)
                np.testing.assert_array_equal(both.y, whole.y)
                assert stream.schema.to_json() == whole.schema


def test_limit_counts_rows_good_or_bad(tmp_path: Path) -> None:
    path = write(tmp_path, "a,y\n1,2\n3\n4,5\n6,7\n")
    for read_size in (1, 100):
        seen = look([path], limit=3, on_error="skip", read_size=read_size, block_rows=2)
        assert seen.rows == [1, 3]
    assert look([path, path], limit=6, on_error="skip").rows == [1, 3, 4, 1]


def test_resuming_delivers_the_rest_and_reports_it_once(tmp_path: Path) -> None:
    rows = [f"{at},{at % 3}" if at % 5 else f"{at}" for at in range(1, 60)]
    path = write(tmp_path, "a,y\n" + "\n".join(rows) + "\n")
    whole = look([path], on_error="skip")
    for skip in (1, 4, 17, 40):
        rest = look([path], on_error="skip", skip=skip, block_rows=7)
        assert rest.rows == whole.rows[skip:]
        # Row n is on line n + 1; a bad row is old when it stands before the last row skipped.
        last = whole.rows[skip - 1]
        assert rest.bad == [bad for bad in whole.bad if int(bad.split(":")[1]) - 1 > last]


@pytest.mark.slow
def test_shuffling_is_a_seeded_permutation_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(csv_bytes(mixed_table(300)))
    plain = look([path])
    options: dict[str, Any] = {"shuffle": True, "seed": 3, "shuffle_rows": 50}
    one = look([path], **options)
    assert sorted(one.rows) == plain.rows
    assert one.rows != plain.rows
    order = np.array(one.rows) - 1
    np.testing.assert_array_equal(one.x, plain.x[order])
    np.testing.assert_array_equal(one.y, plain.y[order])
    assert max(at - row for at, row in enumerate(one.rows)) <= 300
    assert min(at - row for at, row in enumerate(one.rows)) >= -51
    for read_size, block_rows in ((1, 4096), (100, 7), (5000, 1)):
        assert_same(look([path], read_size=read_size, block_rows=block_rows, **options), one)
    assert look([path], shuffle=True, seed=4, shuffle_rows=50).rows != one.rows
    assert look([path], skip=120, **options).rows == one.rows[120:]


def test_every_epoch_has_its_own_order_and_can_be_entered_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(csv_bytes(mixed_table(60)))
    orders = []
    with open_stream(
        [str(path)], options=ReadOptions(shuffle=True, shuffle_rows=20, epochs=3)
    ) as stream:
        schema = stream.schema
        for epoch in range(3):
            if epoch:
                stream.start_next_pass()
            orders.append([row for block in stream for row in block.number.tolist()])
            assert stream.epoch == epoch
            assert stream.rows == 60
    assert orders[0] != orders[1] != orders[2]
    again = look([path], schema, shuffle=True, shuffle_rows=20, epochs=3, epoch=1, skip=10)
    assert again.rows == orders[1][10:]


CELLS = st.sampled_from(["1", "-2.5", " 3", "", "NA", "x", "y y", "inf", "true", '"q\n"', "+4"])


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(st.lists(CELLS, min_size=2, max_size=4), min_size=1, max_size=45),
    on_error=st.sampled_from(["stop", "skip", "keep"]),
    read_size=st.integers(1, 60),
    block_rows=st.integers(1, 9),
)
def test_nothing_depends_on_the_chunks(
    rows: list[list[str]], on_error: str, read_size: int, block_rows: int, tmp_path: Path
) -> None:
    path = write(tmp_path, "a,b,c\n" + "\n".join(",".join(row) for row in rows))
    whole = look([path], on_error=on_error, read_ahead=False)
    parts = look([path], on_error=on_error, read_size=read_size, block_rows=block_rows)
    assert_same(parts, whole)
