"""Behaviour that is meant to stay is pinned to the digit.

A change of formula must be stated by writing the numbers anew, and the diff of
tests/fixtures/pinned.json shows what moved:

    python -m tests.pinned
"""

from __future__ import annotations

import pytest

from kbnn.core import kernel
from tests.pinned.cases import CASES
from tests.pinned.record import differences, read

ENGINES = [name for name, case in CASES.items() if case.engines and not case.kernel_alone]


def differing(name: str) -> list[str]:
    return differences(CASES[name].make(), read()[name], CASES[name].close)


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_down_is_what_comes_out(name: str) -> None:
    if CASES[name].kernel_alone and not kernel.is_compiled():
        pytest.skip("numpy would take too long")
    assert differing(name) == []


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ENGINES)
def test_so_it_is_by_the_twin(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernel.is_compiled():
        pytest.skip("it served already")
    monkeypatch.setenv("KBNN_ENGINE", "numpy")
    assert differing(name) == []


def test_every_case_that_is_written_down_is_made() -> None:
    assert read().keys() == CASES.keys()
