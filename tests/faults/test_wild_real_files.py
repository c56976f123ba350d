"""Real tables in the spellings of exports: the values of the plain table, or words about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wild_real import File, missing_packages, verdict
from tests.wild_spelt import files

FILES = files()
ABSENT = missing_packages()


def test_there_are_sixty() -> None:
    assert len(FILES) >= 60
    assert len({file.name for file in FILES}) == len(FILES)


@pytest.mark.thinned(2)
@pytest.mark.skipif(bool(ABSENT), reason=f"tables come with packages: {', '.join(ABSENT)}")
@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_nothing_is_read_otherwise_in_silence(file: File, tmp_path: Path) -> None:
    found = verdict(file, tmp_path)
    assert found.silent == []
    assert found.became == file.becomes
    assert file.said in "\n".join(found.said)
