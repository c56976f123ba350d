"""Records are cut where the bulk parser would cut them, however the bytes arrive."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbnn.data.csv_records import (
    RecordSplitter,
    _field_starts,
    _find_record_end,
    _scan_last_end,
    find_first_record,
    find_last_end,
    find_record_starts,
    is_closed,
    make_line_finder,
    max_field_count,
    missing_column_error,
)
from kbnn.data.formats import split_fields

TEXTS = st.text('ab",;\n\r ', max_size=60).map(str.encode)


def naive_ends(data: bytes, delimiter: str) -> list[int]:
    """The position after each newline that ends a record, by a plain state machine."""
    ends = []
    quoted, at_start, at = False, True, 0
    while at < len(data):
        char = data[at : at + 1]
        if quoted:
            if char == b'"':
                if at + 1 == len(data):
                    break
                if data[at + 1 : at + 2] == b'"':
                    at += 2
                    continue
                quoted = False
        elif char == b'"' and at_start:
            quoted, at_start = True, False
        else:
            if char == b"\n":
                ends.append(at + 1)
            at_start = char in (b"\n", b"\r", delimiter.encode())
        at += 1
    return ends


@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_the_cut_agrees_with_a_plain_state_machine(data: bytes) -> None:
    expected = max(naive_ends(data, ","), default=0)
    assert find_last_end(data, ",") == expected
    assert _scan_last_end(data, ",") == expected


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.lists(st.integers(0, 60), max_size=6))
def test_records_do_not_depend_on_the_pieces(data: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    splitter = RecordSplitter(",")
    handed = [splitter.feed(data[a:b]) for a, b in pairwise(places)]
    rest = splitter.take_rest()
    assert b"".join(handed) + rest == data
    assert len(data) - len(rest) == max(naive_ends(data, ","), default=0)
    at = 0
    for part in handed:
        at += len(part)
        assert not part or at in naive_ends(data, ",")


def test_a_quoted_newline_is_minded_at_every_split() -> None:
    data = b'a,"x\r\ny ""z"" ",b\r\n1,2,3\n"",""""\n'
    for cut in range(len(data) + 1):
        splitter = RecordSplitter(",")
        parts = splitter.feed(data[:cut]), splitter.feed(data[cut:]), splitter.take_rest()
        assert b"".join(parts) == data
        assert parts[2] == b""
        assert b'y ""z""' not in parts[1] or parts[1].startswith(b"a,")


def test_a_stray_quote_does_not_swallow_rows() -> None:
    splitter = RecordSplitter(",")
    assert splitter.feed(b'5" pipe,3\n6" pipe,4\nne') == b'5" pipe,3\n6" pipe,4\n'
    assert splitter.pending_bytes == 2


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_record_starts_are_starts_of_lines_outside_quotes(data: bytes) -> None:
    starts = find_record_starts(data, ",")
    assert starts == sorted(set(starts))
    for start in starts:
        assert data[start] not in b"\r\n"
        assert start == 0 or data[start - 1] in b"\r\n"


def test_lines_are_physical_lines() -> None:
    data = b'a,b\n\n"x\ny",1\nc,d\n'
    line_of = make_line_finder(data, 10, ",")
    assert [line_of(at) for at in range(3)] == [10, 12, 14]


def test_the_first_record_waits_for_its_end() -> None:
    assert find_first_record(b"\n\na,b", ",") is None
    assert find_first_record(b'\n"a\n', ",") is None
    assert find_first_record(b'\n"a\nb",c\nrest', ",") == (1, 9)


@settings(max_examples=500, deadline=None)
@given(TEXTS, st.sampled_from([",", ",;"]))
def test_the_first_record_is_that_of_the_exact_scan(data: bytes, delimiters: str) -> None:
    start = len(data) - len(data.lstrip(b"\r\n"))
    newline = data.find(b"\n", _find_record_end(data, start, _field_starts(delimiters)))
    assert find_first_record(data, delimiters) == (None if newline < 0 else (start, newline + 1))


@settings(max_examples=500, deadline=None)
@given(TEXTS)
def test_fields_are_counted_outside_quotes(data: bytes) -> None:
    assert max_field_count(data, ",") == re.sub(rb'"(?:[^"]|"")*"', b"", data).count(b",") + 1


@pytest.mark.parametrize(
    ("data", "closed"), [(b'a,"b"', True), (b'a,"b', False), (b'a"b', True), (b"", True)]
)
def test_open_quotes_are_noticed(data: bytes, closed: bool) -> None:
    assert is_closed(data, ",") is closed


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (b"a,b\r\n", [b"a", b"b"]),
        (b'"a,b",c', [b"a,b", b"c"]),
        (b'"a""b","",', [b'a"b', b"", b""]),
        (b'"ab"c"d,6', [b'abc"d', b"6"]),
        (b'5" pipe', [b'5" pipe']),
        (b'"open', [b"open"]),
    ],
)
def test_fields_of_one_record(record: bytes, fields: list[bytes]) -> None:
    assert split_fields(record, ",") == fields


def test_few_existing_columns_are_named() -> None:
    assert str(missing_column_error("x", list("abcd"))) == "no column 'x' (available: a, b, c, d)"
    assert (
        str(missing_column_error("x", list("abcde")))
        == "no column 'x' (available: a, b, c, d, ...)"
    )
    assert (
        str(missing_column_error("hat", ["heat", "y"])) == "no column 'hat' (did you mean 'heat'?)"
    )
