"""Blocks are as large as they can be used in a fifth of a second, within bounds."""

from __future__ import annotations

import time
from pathlib import Path

from kbnn.data.chunk import BatchSizer
from kbnn.data.dataset import open_stream


def test_slow_rows_come_in_small_blocks(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + "1,2\n3,4\n" * 400)
    sizes = []
    with open_stream([str(path)]) as stream:
        for block in stream:
            sizes.append(len(block.number))
            time.sleep(0.001 * len(block.number))
    assert sizes[0] == 128
    assert sum(sizes) == 800
    assert max(sizes) <= 200  # a millisecond a row


def test_fast_rows_soon_come_in_large_blocks() -> None:
    pace, sizes = BatchSizer(4096), []
    for _ in range(5):
        sizes.append(pace.rows)
        pace.record_duration(pace.rows, 1e-6 * pace.rows)
    assert sizes == [128, 512, 2048, 4096, 4096]


def test_a_block_has_its_least_size_and_no_more_than_asked() -> None:
    pace = BatchSizer(4096)
    pace.record_duration(128, 100.0)
    assert pace.rows == 128
    small = BatchSizer(7)
    small.record_duration(7, 1e-6)
    assert small.rows == 7
