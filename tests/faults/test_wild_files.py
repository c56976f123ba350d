"""Files in the wild: understood, or refused in words; none wrong in silence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.streams import assert_same, look
from tests.wild import Wild, cases

CASES = cases()


def test_there_are_sixty() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_file_is_read_or_refused_in_words(case: Wild, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(case.data)
    seen = look([path], **case.options)
    if case.error:
        assert case.error in seen.error
    else:
        assert seen.error == ""
        assert seen.schema is not None
        assert len(seen.rows) == 60
    words = "\n".join(seen.notices)
    for said in case.said:
        assert said in words
    if case.kind:
        assert seen.schema is not None
        assert seen.schema["columns"][0]["kind"] == case.kind
    for row, value in (case.values or {}).items():
        expected = np.nan if value is None else value
        np.testing.assert_equal(seen.x[row, 0], expected)
    assert_same(look([path], read_size=7, block_rows=5, **case.options), seen)
