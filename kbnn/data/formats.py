"""Detect formats and compressions from the first bytes, and the delimiter from the first line."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, Final, Literal, NamedTuple

from kbnn.errors import DataError


class BinaryFormat(NamedTuple):
    """A binary table format: its first bytes, its name in `--format`, and the reader to call."""

    magic: bytes
    format: str
    noun: str
    reader: str  # module:function, called with a ByteReader and ReadHints; imported when needed


BINARIES: Final = (
    BinaryFormat(b"PAR1", "parquet", "a Parquet file", "kbnn.data.arrow_format:open_parquet"),
    BinaryFormat(b"ARROW1", "arrow", "Arrow", "kbnn.data.arrow_format:open_arrow_file"),
    BinaryFormat(b"\xff\xff\xff\xff", "arrow", "Arrow", "kbnn.data.arrow_format:open_arrow_stream"),
)
"""The supported binary formats."""


class KeyedFormat(NamedTuple):
    """A text format whose lines name their columns: `--format`, first byte, and the reader."""

    format: str
    first: bytes
    reader: str  # module:class, called like kbnn.data.jsonl_format.JsonReader


KEYED_FORMATS: Final = (KeyedFormat("json", b"{", "kbnn.data.jsonl_format:JsonReader"),)
"""The supported text formats besides delimited text, in which columns have a fixed order."""

FORMAT_NOUNS: Final = {binary.format: binary.noun for binary in BINARIES}
FORMATS: Final = ("auto", "csv", "tsv", *(keyed.format for keyed in KEYED_FORMATS), *FORMAT_NOUNS)
ContentType = Literal["text", "gzip", "zstd", "bzip2"] | BinaryFormat | KeyedFormat
DELIMITERS: Final = (",", ";", "\t", "|")
COMPRESSIONS: Final = frozenset({"gzip", "zstd", "bzip2"})
MAX_MAGIC_BYTES: Final = 8  # no magic number below is longer
MAX_BLANK_BYTES: Final = 1 << 20  # white space skipped at most before the first byte of text

_MAGIC: Final[tuple[tuple[bytes, ContentType], ...]] = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    *((binary.magic, binary) for binary in BINARIES),
)

_UNSUPPORTED_FORMATS: Final = (
    (b"PK\x03\x04", "a ZIP archive or an Excel workbook: export it as CSV"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook: export it as CSV"),
    (b"SQLite f", "an SQLite database: export a table as CSV"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"%PDF", "a PDF document"),
    (b"\x7fELF", "a program"),
    (b"\x89HDF", "an HDF5 file: export it as CSV or Parquet"),
    (b"\x93NUMPY", "a NumPy array: export it as CSV or Parquet"),
    (b"Obj\x01", "an Avro file: convert it to Parquet"),
    (b"ORC", "an ORC file: convert it to Parquet"),
    (b"FEA1", "an old Feather file: write it as Arrow or Parquet"),
    (b"\xfd7zXZ", "an xz archive: decompress it first (xz -d)"),
    (b"7z\xbc\xaf", "a 7-Zip archive: decompress it first"),
    (b"\xff\xfe", "UTF-16 text: convert it first (iconv -f UTF-16 -t UTF-8)"),
    (b"\xfe\xff", "UTF-16 text: convert it first (iconv -f UTF-16 -t UTF-8)"),
)

_SNIFF_BYTES: Final = 1 << 16
"""Bytes of the first line from which the delimiter is detected."""
_QUOTED: Final = re.compile(rb'"(?:[^"]|"")*"')
_DECIMAL_COMMA: Final = re.compile(rb"\s*[-+]?[\d.' ]*(,\d+)?\s*")


def has_enough_bytes(head: bytes) -> bool:
    """Return whether the first bytes suffice to detect a format: 8, or a line not blank."""
    start = head.lstrip()
    return len(start) >= MAX_MAGIC_BYTES or b"\n" in start or len(head) > MAX_BLANK_BYTES


def detect_format(head: bytes, name: str) -> ContentType:
    """Detect the format of a stream from its first bytes; unsupported formats raise DataError."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    for magic, what in _UNSUPPORTED_FORMATS:
        if head.startswith(magic):
            raise DataError(f"{name}: is {what}")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return next((kind for kind in KEYED_FORMATS if text.startswith(kind.first)), "text")


def load_reader(kind: BinaryFormat | KeyedFormat) -> Any:
    """Import the reader of a format."""
    module, name = kind.reader.split(":")
    return getattr(import_module(module), name)


def check_text(line: bytes, name: str) -> None:
    """Raise DataError if the first line is not text; later lines are checked when parsed."""
    if b"\0" in line:
        raise DataError(f"{name}: is not a table (the first line holds binary data)")
    if line.lstrip().startswith(b"["):
        raise DataError(
            f"{name}: is a JSON array: one object per line is needed (convert it with jq -c '.[]')"
        )


def check_comment(line: bytes, name: str) -> None:
    """Raise DataError if the first line is a comment; `#id,a,b` may be a header."""
    lone = not any(delimiter.encode() in line for delimiter in DELIMITERS)
    if line.startswith(b"#") and (lone or line[1:2].isspace()):
        raise DataError(
            f"{name}:1: the first line is a comment, not the names of the columns (remove it: "
            f"grep -v '^#' {name} | kbnn train -; or add --header if it names them)"
        )


def sniff_delimiter(line: bytes) -> str:
    """Return the most frequent of `, ; tab |` outside quotes; the comma if there is none.

    A line such as `1,5;2,25` has decimal commas: its delimiter is the semicolon.
    """
    bare = _QUOTED.sub(b"", line[:_SNIFF_BYTES]).rstrip(b"\r\n")
    cells = bare.split(b";")
    if len(cells) > 1 and all(_DECIMAL_COMMA.fullmatch(cell) for cell in cells):
        return ";"
    often = [bare.count(delimiter.encode()) for delimiter in DELIMITERS]
    return DELIMITERS[often.index(max(often))] if any(often) else ","


def split_fields(record: bytes, delimiter: str) -> list[bytes]:
    """Split one record into fields; a quote opens only at a field's start, `""` is a quote.

    The rules are those of Arrow's CSV parser; this is for the few records handled one by one.
    """
    data = record.rstrip(b"\r\n")
    separator = delimiter.encode()
    fields: list[bytes] = []
    at = 0
    while True:
        field = b""
        if data[at : at + 1] == b'"':
            at += 1
            while True:
                close = data.find(b'"', at)
                if close < 0:
                    field, at = field + data[at:], len(data)
                    break
                field, at = field + data[at:close], close + 1
                if data[at : at + 1] != b'"':
                    break
                field, at = field + b'"', at + 1
        end = data.find(separator, at)
        if end < 0:
            return [*fields, field + data[at:]]
        fields.append(field + data[at:end])
        at = end + 1
