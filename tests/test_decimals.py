"""Plain decimals are read to the bit as Python reads them; everything else is left to others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbnn.core import engine
from kbnn.stream.chunk import Pins
from kbnn.stream.csv_reader import CsvReader
from kbnn.stream.decimals import decimals, lines

built = pytest.mark.skipif("not built" in engine.description(), reason="the kernel was not built")

PLAIN = st.from_regex(r"-?[0-9]{1,9}(\.[0-9]{1,9})?", fullmatch=True)


@built
@given(st.lists(st.tuples(PLAIN, PLAIN), min_size=1), st.sampled_from(["\n", "\r\n"]))
def test_numbers_are_those_of_python(rows: list[tuple[str, str]], end: str) -> None:
    text = "".join(f"{a};{b}{end}" for a, b in rows).encode()
    expected = np.array([[float(cell) for cell in row] for row in rows]).T
    if max(int(cell.replace(".", "").lstrip("-")) for row in rows for cell in row) > 2**53:
        return
    found = decimals(text, ";", 2)
    assert found is not None
    assert found.tobytes() == np.ascontiguousarray(expected).tobytes()  # -0 too


@built
@pytest.mark.parametrize(
    "cell", ["9007199254740992", "0.9007199254740992", "-0", "000000000000000001"]
)
def test_the_longest_decimals_that_are_plain(cell: str) -> None:
    found = decimals(f"{cell}\n".encode(), ",", 1)
    assert found is not None
    assert found.tobytes() == np.array([float(cell)]).tobytes()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1,2",  # no newline
        "1,2\n\n",
        "\n1,2\n",
        "1\n",
        "1,2,3\n",
        "1,2\n3\n",
        "1,\n",
        ",1\n",
        "1,NA\n",
        "1,nan\n",
        "1, 2\n",
        "1,+2\n",
        "1,--2\n",
        "1,-\n",
        "1,.5\n",
        "1,5.\n",
        "1,1.2.3\n",
        "1,1e3\n",
        '1,"2"\n',
        "1;2\n",
        "1,2\r",
        "1\r,2\n",
        "1,9007199254740993\n",
        "1,0000000000000000001\n",
        "1,2\x00\n",
    ],
)
def test_anything_else_is_left_to_others(text: str) -> None:
    assert decimals(text.encode(), ",", 2) is None


def test_a_delimiter_that_numbers_may_hold_is_left_to_others() -> None:
    assert decimals(b"1.2\n", ".", 2) is None
    assert decimals(b"1-2\n", "-", 2) is None


def test_lines_are_newlines() -> None:
    assert [lines(text) for text in (b"", b"a", b"a\n", b"\n\na\n")] == [0, 0, 1, 3]


@pytest.mark.parametrize("wanted", [None, frozenset("ab"), frozenset("b")])
def test_both_readings_make_the_same_table(wanted: frozenset[str] | None) -> None:
    pins = Pins(numbers=frozenset("ab"), wanted=wanted)
    plain, other = (
        [chunk.batch for chunk in CsvReader("-", iter([text]), pins).chunks()]
        for text in (b"a,b\n1,-2.5\n0.1,7\n", b'a,b\n1,"-2.5"\n0.1,7\n')
    )
    assert plain == other


def test_a_column_that_is_no_number_stays_text() -> None:
    reader = CsvReader("-", iter([b"a,b\n1,2\n"]), Pins(numbers=frozenset("a")))
    assert [chunk.batch.to_pylist() for chunk in reader.chunks()] == [[{"a": 1.0, "b": "2"}]]
