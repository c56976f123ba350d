"""Plain decimals are read to the bit as Python reads them; everything else is left to others."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbnn.core import kernel
from kbnn.data import csv_format
from kbnn.data.chunk import ReadHints
from kbnn.data.csv_format import CsvReader, count_lines, parse_decimals
from kbnn.data.number_format import report_ambiguous_points
from kbnn.data.read_options import ReadOptions
from kbnn.errors import DataError, UsageError
from kbnn.workflows.options import check_columns
from tests.bench.data import schema

built = pytest.mark.skipif(
    "not built" in kernel.describe_engine(), reason="the kernel was not built"
)

PLAIN = st.from_regex(r"-?[0-9]{1,9}(\.[0-9]{1,9})?", fullmatch=True)


@pytest.mark.slow
@built
@given(st.lists(st.tuples(PLAIN, PLAIN), min_size=1), st.sampled_from(["\n", "\r\n"]))
def test_numbers_are_those_of_python(rows: list[tuple[str, str]], end: str) -> None:
    text = "".join(f"{a};{b}{end}" for a, b in rows).encode()
    expected = np.array([[float(cell) for cell in row] for row in rows]).T
    if max(int(cell.replace(".", "").lstrip("-")) for row in rows for cell in row) > 2**53:
        return
    found = parse_decimals(text, ";", 2)
    assert found is not None
    assert found.tobytes() == np.ascontiguousarray(expected).tobytes()  # -0 too


@built
@pytest.mark.parametrize(
    "cell", ["9007199254740992", "0.9007199254740992", "-0", "000000000000000001"]
)
def test_the_longest_decimals_that_are_plain(cell: str) -> None:
    found = parse_decimals(f"{cell}\n".encode(), ",", 1)
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
    assert parse_decimals(text.encode(), ",", 2) is None


def test_a_delimiter_that_numbers_may_hold_is_left_to_others() -> None:
    assert parse_decimals(b"1.2\n", ".", 2) is None
    assert parse_decimals(b"1-2\n", "-", 2) is None


def test_lines_are_newlines() -> None:
    assert [count_lines(text) for text in (b"", b"a", b"a\n", b"\n\na\n")] == [0, 0, 1, 3]


@pytest.mark.parametrize("wanted", [None, frozenset("ab"), frozenset("b")])
def test_both_readings_make_the_same_table(wanted: frozenset[str] | None) -> None:
    pins = ReadHints(numbers=frozenset("ab"), wanted=wanted)
    plain, other = (
        [chunk.batch for chunk in CsvReader("-", iter([text]), pins).read_chunks()]
        for text in (b"a,b\n1,-2.5\n0.1,7\n", b'a,b\n1,"-2.5"\n0.1,7\n')
    )
    assert plain == other


def test_a_column_that_is_no_number_stays_text() -> None:
    reader = CsvReader("-", iter([b"a,b\n1,2\n"]), ReadHints(numbers=frozenset("a")))
    assert [chunk.batch.to_pylist() for chunk in reader.read_chunks()] == [[{"a": 1.0, "b": "2"}]]


ODD = (
    *("", "-", "+1", "+", ".", "-.", ".5", "5.", "-0", "-0.0", "0", "00", "007", "-007.50", "1e3"),
    *("1e999", "inf", "nan", "NA", " 1", "1 ", "1\t", "--1", "1-2", "1.2.3", "0x1", "1_0", '"1"'),
    *(
        "\x00",
        "1\x00",
        "\x001",
        "9007199254740992",
        "9007199254740993",
        "0.1",
        "0.30000000000000004",
    ),
    *("123456789012345678", "1234567890123456789", "0.123456789012345678", "4.35", "2.675"),
    *(
        "99999999999999999999999",
        "0.000000000000000001",
        "000000000000000000",
        "\u0661",
        "1,2",
        "1;",
    ),
)


def odd_text(dice: random.Random) -> bytes:
    """Lines of three cells, most of them plain, with an accident here and there."""
    odd = dice.choice((0.0, 0.0, 0.02, 0.3))

    def cell() -> str:
        if dice.random() < odd:
            return dice.choice(ODD)
        digits = "".join(dice.choices("0123456789", k=dice.randint(1, dice.choice((3, 9, 17, 22)))))
        cut = dice.randrange(len(digits))
        return dice.choice(("", "-")) + (digits if not cut else f"{digits[:cut]}.{digits[cut:]}")

    end = dice.choice(("\n", "\n", "\r\n"))
    lines = [",".join(cell() for _ in range(3)) + end for _ in range(dice.randint(1, 4))]
    text = "".join(lines).encode()
    if dice.random() < 0.2:
        text = text.rstrip(b"\r\n")
    if dice.random() < odd:
        at = dice.randrange(len(text) + 1)
        text = text[:at] + dice.choice((b"\n", b"\r", b",", b'"', b"\0", b"-", b".")) + text[at:]
    return text


def _bits(column: pa.Array) -> object:
    exact = column.type == pa.float64() and not column.null_count
    return column.to_numpy().tobytes() if exact else repr(column.to_pylist())


def table(text: bytes) -> object:
    """What is read, to the bit, or the sentence that refuses it."""
    pins = ReadHints(numbers=frozenset("abc"), missing=("", "NA"))
    try:
        read = list(CsvReader("-", iter([b"a,b,c\n" + text]), pins).read_chunks())
    except DataError as error:
        return str(error)
    return [
        (
            chunk.batch.schema,
            [_bits(column) for column in chunk.batch.columns],
            chunk.row_errors,
            chunk.batch.num_rows,
        )
        for chunk in read
    ]


def compared(count: int, seed: int, patch: pytest.MonkeyPatch) -> int:
    """So many texts read both ways; how many of them by the compiled module."""
    dice, plain = random.Random(seed), 0
    for _ in range(count):
        text = odd_text(dice)
        plain += parse_decimals(text, ",", 3) is not None
        with patch.context() as without:
            first = table(text)
            without.setattr(csv_format, "parse_decimals", lambda *_: None)
            assert table(text) == first, text
    return plain


@built
def test_both_readings_agree_on_any_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 100 < compared(500, 1, monkeypatch) < 400


@built
@pytest.mark.slow
def test_both_readings_agree_on_ten_thousand_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = compared(10_000, 2, monkeypatch)
    print(f"{plain} texts of plain decimals, {10_000 - plain} left to others")
    assert 2_000 < plain < 8_000


@pytest.mark.parametrize(
    ("known", "stated", "fits"),
    [("", ".", True), ("", ",", False), (",", ",", True), (",", ".", False), (",", "", True)],
)
def test_the_decimal_mark_of_a_model_may_be_given_again(
    known: str, stated: str, fits: bool
) -> None:
    schema_ = replace(schema(1), decimal=known)
    with nullcontext() if fits else pytest.raises(UsageError, match="--decimal"):
        check_columns("m.npz", ReadOptions(decimal=stated), schema_)


@pytest.mark.parametrize(("rows", "last", "told"), [(20, 0, True), (20, 1, False), (19, 0, False)])
def test_points_before_three_digits_are_ambiguous(rows: int, last: int, told: bool) -> None:
    """Where there are many of them, and zeros at the end, which decimals would not have."""
    values = [f"{1 + at}.25{last if at == 3 else 1 + at % 9}" for at in range(rows)]
    said: list[str] = []
    report_ambiguous_points("a", values, said.append)
    assert any("--thousands . if it is" in text for text in said) == told
