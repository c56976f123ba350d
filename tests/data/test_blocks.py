"""What goes out with a block: its own schema, and nothing of the rows that could not be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kbnn.data.batch import Rows, concat_rows
from kbnn.data.dataset import open_stream
from kbnn.data.read_options import ReadOptions

nan = float("nan")


def blocks_of(folder: Path, lines: list[str], **options: Any) -> list[Rows]:
    path = folder / "t.csv"
    path.write_text("\n".join(lines) + "\n")
    with open_stream([str(path)], options=ReadOptions(**options)) as stream:
        return list(stream)


def test_the_schema_of_a_block_is_that_after_its_rows(tmp_path: Path) -> None:
    """Later blocks know more categories; that is no news to the earlier ones."""
    label = ["a"] * 40 + ["b"] * 300 + ["c"] * 60 + ["d"]
    blocks = blocks_of(tmp_path, ["k,y", *(f"{name},{n}.5" for n, name in enumerate(label))])
    assert len(blocks) > 1
    end = 0
    for block in blocks:
        end += block.count
        assert block.schema is not None
        known = list(dict.fromkeys(label[:end]))
        assert block.schema.get_column("k").categories == known
        assert block.x.shape == (block.count, len(known))


def test_nothing_is_known_of_an_unreadable_row(tmp_path: Path) -> None:
    """But that a category which came later was not there yet; and it counts once."""
    rows = ["a,k,w,y", "1,u,2,5", "2,u,-3,6", "bad,u,4,7", "3,v,5,8", "4,u,0,9"]
    (block,) = blocks_of(tmp_path, rows, on_error="keep", weight="w")
    assert block.unreadable is not None
    assert block.unreadable.tolist() == [False, True, True, False, True]
    wanted = [[1, 1, 0], [nan, nan, 0], [nan, nan, 0], [3, 0, 1], [nan, nan, nan]]
    np.testing.assert_array_equal(block.x, wanted)
    np.testing.assert_array_equal(block.y[:, 0], [5, nan, nan, 8, nan])
    assert block.weight is not None
    assert block.weight.tolist() == [2, 1, 1, 5, 1]


def test_blocks_put_together_know_which_rows_were_unreadable() -> None:
    whole = Rows(np.zeros((2, 1)), np.zeros((2, 1)), np.array([1, 2]))
    spoilt = Rows(np.ones((1, 2)), np.zeros((1, 1)), np.array([3]), unreadable=np.array([True]))
    both = concat_rows([whole, spoilt])
    assert both.unreadable is not None
    assert both.unreadable.tolist() == [False, False, True]
    assert both.x.tolist() == [[0, 0], [0, 0], [1, 1]]
    assert concat_rows([whole, whole]).unreadable is None
