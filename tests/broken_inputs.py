"""Broken inputs and the exact sentence each one gets: {f} stands for the file."""

from __future__ import annotations

import bz2
import gzip
from typing import Any, Final, NamedTuple

import pyarrow as pa

from tests.streams import arrow_bytes, mixed_table, parquet_bytes, zstd_bytes


class Broken(NamedTuple):
    """A name, the bytes, the sentence, and the options of the reading."""

    name: str
    data: bytes
    error: str
    options: dict[str, Any]


def _case(name: str, data: bytes | str, error: str, **options: Any) -> Broken:
    return Broken(name, data.encode() if isinstance(data, str) else data, error, options)


_ROWS: Final = "".join(f"{at},{at % 3},{at * 2}\n" for at in range(40))
_BITS: Final = "a,y\n" + "".join(f"{at},{at % 2}\n" for at in range(40))
_FLAGS: Final = "a,y\n" + "".join(f"{at},{'true' if at % 2 else 'false'}\n" for at in range(40))
_PARQUET: Final = parquet_bytes(pa.table({"a": [1, 2], "y": [3, 4]}))
_ARROW: Final = mixed_table(50)
_LATIN: Final = "(convert it with iconv -f WINDOWS-1252 -t UTF-8)"
_SKIP: Final = "(use --on-error skip)"
_UTF16: Final = "UTF-16 text: convert it first (iconv -f UTF-16 -t UTF-8)"

TEXT: Final = [
    _case("empty", "", "{f}: is empty"),
    _case("blank lines", "\n\r\n\n", "{f}: is empty"),
    _case("spaces", "   \n", "{f}: is empty"),
    _case("header only", "a,y\n", "{f}: holds a header but no rows"),
    _case("header without newline", "a,y", "{f}: holds a header but no rows"),
    _case(
        "two columns of a name",
        "a,b,a\n1,2,3\n",
        "{f}: two columns are named 'a' (rename one of them)",
    ),
    _case("short row", "a,b,y\n1,2,3\n4,5\n", f"{{f}}:3: has 2 fields, the header has 3 {_SKIP}"),
    _case(
        "long row", "a,b,y\n1,2,3\n\n4,5,6,7\n", f"{{f}}:4: has 4 fields, the header has 3 {_SKIP}"
    ),
    _case("one field", "a,b,y\n1,2,3\nend\n", f"{{f}}:3: has 1 field, the header has 3 {_SKIP}"),
    _case("ragged, no header", "1,2\n3\n", f"{{f}}:2: has 1 field, the first line has 2 {_SKIP}"),
    _case(
        "line after a quoted newline",
        'a,b\n"1\n2",3\n4\n',
        f"{{f}}:4: has 1 field, the header has 2 {_SKIP}",
    ),
    _case(
        "open quote",
        'a,b,y\n1,2,3\n4,"5,6\n7,8,9\n',
        f"{{f}}:3: a quote is opened and never closed {_SKIP}",
    ),
    _case("open quote in header", '"a,y\n1,2\n', "{f}:1: a quote is opened and never closed"),
    _case(
        "Latin-1", b"a,b,y\n1,caf\xe9,3\n", f"{{f}}:2: column 'b': byte 0xE9 is not UTF-8 {_LATIN}"
    ),
    _case("Latin-1 header", b"a,\xe9,y\n1,2,3\n", f"{{f}}:1: byte 0xE9 is not UTF-8 {_LATIN}"),
    _case("UTF-16", "a,y\n1,2\n".encode("utf-16"), f"{{f}}: is {_UTF16}"),
    _case("binary", b"a\0,y\n1,2\n", "{f}: is not a table (the first line holds binary data)"),
    _case("junk", bytes(range(128, 256)) + b"\n", f"{{f}}:1: byte 0x80 is not UTF-8 {_LATIN}"),
    _case(
        "endless record",
        b'a,y\n1,"' + b"2\n" * (9 << 20),
        "{f}:2: a record is longer than 16 MiB (an unbalanced quote?)",
    ),
    _case(
        "every row bad",
        "a,y\n1\n2\n",
        "no row can be used: every row has an error",
        on_error="skip",
    ),
]

VALUES: Final = [
    _case(
        "text in a number column",
        f"a,b,y\n{_ROWS}x,1,2\n",
        "{f}:42: column 'a': cannot read 'x' as a number (use --na 'x' or --on-error skip)",
    ),
    _case(
        "text in a number target",
        f"a,b,y\n{_ROWS}1,1,n/k\n",
        "{f}:42: column 'y': cannot read 'n/k' as a number (use --na 'n/k' or --on-error skip)",
    ),
    _case(
        "odd text among the first rows",
        "a,y\n1,2\n3,4\n!?,6\n7,8\n",
        "{f}:4: column 'a': cannot read '!?' as a number (use --na '!?' or --on-error skip)",
    ),
    _case(
        "decimal comma",
        "a;y\n1.5;2\n3.5;4\n4,5;6\n1.5;8\n",
        "{f}:4: column 'a': cannot read '4,5' as a number (use --decimal ',', or --on-error skip)",
    ),
    _case(
        "infinite feature",
        "a,y\n1,2\ninf,3\n",
        f"{{f}}:3: column 'a': inf is not a finite number {_SKIP}",
    ),
    _case(
        "infinite target",
        "a,y\n1,2\n2,-inf\n",
        f"{{f}}:3: column 'y': -inf is not a finite number {_SKIP}",
    ),
    _case(
        "beyond float",
        "a,y\n1,2\n1e999,4\n",
        f"{{f}}:3: column 'a': inf is not a finite number {_SKIP}",
    ),
    _case(
        "squares beyond float",
        "a,y\n1,2\n1e300,4\n",
        f"{{f}}:3: column 'a': 1e+300 is too large (limit 1e+140) {_SKIP}",
    ),
    _case(
        "first of two flaws",
        "a,b,y\n1,2,3\n1,2,3\n1,2,3\n1,2,3\nx,inf,z\n",
        "{f}:6: column 'a': cannot read 'x' as a number (use --na 'x' or --on-error skip)",
    ),
    _case(
        "neither true nor false",
        f"{_FLAGS}1,maybe\n",
        "{f}:42: column 'y': cannot read 'maybe' as true or false "
        "(use --na 'maybe' or --on-error skip)",
    ),
    _case(
        "third class",
        f"{_BITS}1,2\n",
        "{f}:42: column 'y': 2 is neither 0 nor 1 (use --task count if it counts things, --task "
        "regression for any number, or --on-error skip)",
    ),
    _case(
        "an amount between two classes",
        f"{_BITS}1,0.25\n",
        "{f}:42: column 'y': 0.25 is neither 0 nor 1 (use --task amount if 0 means nothing, "
        "--task regression for any number, or --on-error skip)",
    ),
    _case(
        "below two classes",
        f"{_BITS}1,-1\n",
        "{f}:42: column 'y': -1 is neither 0 nor 1 (use --task regression or --on-error skip)",
    ),
    _case(
        "class 65",
        "a,y\n"
        + "".join(f"{at},c{at % 8}\n" for at in range(32))
        + "".join(f"{at},c{at}\n" for at in range(70)),
        f"{{f}}:98: column 'y': 'c64' would be class 65, the limit is 64 {_SKIP}",
    ),
    _case(
        "weight zero",
        "a,w,y\n1,1,2\n1,0,2\n",
        f"{{f}}:3: column 'w': a weight must be positive, not 0 {_SKIP}",
        weight="w",
    ),
    _case(
        "weight missing",
        "a,w,y\n1,,2\n",
        f"{{f}}:2: column 'w': a weight must be positive, not missing {_SKIP}",
        weight="w",
    ),
    _case(
        "weight text",
        "a,w,y\n1,q,2\n",
        "{f}:2: column 'w': cannot read 'q' as a number (use --na 'q' or --on-error skip)",
        weight="w",
    ),
    _case(
        "negative sd",
        "a,a_sd,y\n1,-1,2\n",
        f"{{f}}:2: column 'a_sd': a standard deviation cannot be -1 {_SKIP}",
        input_sd=True,
    ),
]

COLUMNS: Final = [
    _case(
        "no such target", "temp,y\n1,2\n", "no column 'tmp' (did you mean 'temp'?)", target=("tmp",)
    ),
    _case("no such feature", "a,y\n1,2\n", "no column 'zz' (available: a, y)", features=("zz",)),
    _case(
        "no such ignored column", "a,y\n1,2\n", "no column 'zz' (available: a, y)", ignore=("zz",)
    ),
    _case("no such weight", "a,y\n1,2\n", "no column 'w' (available: a, y)", weight="w"),
    _case(
        "target and feature",
        "a,y\n1,2\n",
        "column 'y' cannot be both the target and a feature",
        target=("y",),
        features=("y",),
    ),
    _case(
        "target and ignored",
        "a,y\n1,2\n",
        "column 'y' cannot be both the target and ignored",
        ignore=("y",),
    ),
    _case(
        "target and weight",
        "a,y\n1,2\n",
        "column 'y' cannot be both the target and the weight",
        weight="y",
    ),
    _case(
        "one column",
        "y\n1\n2\n",
        "no column is left to learn from: every column is the target or ignored. To forecast a "
        "series from its own past, add --lags 1,2.",
    ),
    _case(
        "timestamp target",
        "a,when\n1,2020-01-01\n2,2020-01-02\n",
        "target 'when' holds dates or times such as '2020-01-01', which cannot be predicted "
        "(choose another with --target; to predict a time, use the days or hours until then as "
        "the target)",
        target=("when",),
    ),
    _case(
        "target of many texts",
        "a,name\n" + "".join(f"{at},n{at}\n" for at in range(40)),
        "target 'name' holds values that nearly all differ (32 different values), which cannot be "
        "predicted (choose with --target)",
    ),
    _case(
        "target without a value",
        "a,y\n1,\n2,NA\n",
        "target 'y' has no value in the first 2 rows (choose with --target)",
    ),
    _case(
        "time of day as a feature",
        "when,y\n10:30,1\n",
        "column 'when' holds timestamps, which cannot be a feature",
        features=("when",),
    ),
    _case(
        "several targets with text",
        "a,b,y\n1,x,2\n",
        "several targets must be numeric, but 'b' holds classes",
        target=("b", "y"),
    ),
    _case(
        "regression of text",
        "a,y\n1,x\n2,z\n",
        "target 'y' holds text such as 'x': --task regression needs numbers "
        "(use --task classification)",
        task="regression",
    ),
    _case(
        "no sd column",
        "a,b,y\n1,1,2\n",
        "--input-sd: no column is named like another column with _sd appended",
        input_sd=True,
    ),
]

FORMATS: Final = [
    _case(
        "JSON array",
        '[{"a": 1}]',
        "{f}: is a JSON array: one object per line is needed (convert it with jq -c '.[]')",
    ),
    _case(
        "broken JSON",
        '{"a":1,"y":2}\n{"a":1 "y":2}\n',
        f"{{f}}:2: is not valid JSON: expecting ',' delimiter, at character 8 {_SKIP}",
    ),
    _case("JSON, no object", '{"a":1,"y":2}\n7\n', f"{{f}}:2: is not a JSON object {_SKIP}"),
    _case(
        "JSON, text for a number",
        '{"a":1,"y":2}\n' * 40 + '{"a":"x","y":2}\n',
        "{f}:41: column 'a': cannot read 'x' as a number (use --na 'x' or --on-error skip)",
    ),
    _case(
        "JSON, half a character",
        '{"a":"\\ud800","y":2}\n',
        f"{{f}}:1: holds text that is not Unicode {_SKIP}",
    ),
    _case(
        "JSON, Latin-1",
        b'{"a":1,"y":2}\n{"a":"\xe9","y":2}\n',
        f"{{f}}:2: byte 0xE9 is not UTF-8 {_LATIN}",
    ),
    _case(
        "JSON, too deep",
        '{"a":1,"y":2}\n' + '{"a":' * 10_000 + "1" + "}" * 10_000,
        f"{{f}}:2: is not usable JSON {_SKIP}",
    ),
    _case("PNG", b"\x89PNG\r\n\x1a\n" + bytes(50), "{f}: is a PNG image"),
    _case(
        "ZIP",
        b"PK\x03\x04" + bytes(50),
        "{f}: is a ZIP archive or an Excel workbook: export it as CSV",
    ),
    _case("SQLite", b"SQLite format 3\0", "{f}: is an SQLite database: export a table as CSV"),
    _case("xz", b"\xfd7zXZ\0\0", "{f}: is an xz archive: decompress it first (xz -d)"),
    _case(
        "cut gzip",
        gzip.compress(b"a,b,y\n" + _ROWS.encode(), mtime=0)[:-20],
        "{f}: the gzip data end too early (a truncated file?)",
    ),
    _case(
        "wrong gzip sum",
        gzip.compress(b"a,y\n1,2\n", mtime=0)[:-8] + bytes(8),
        "{f}: the gzip data are damaged (Error -3 while decompressing data: incorrect data check)",
    ),
    _case(
        "cut bzip2",
        bz2.compress(b"a,y\n1,2\n")[:-5],
        "{f}: the bzip2 data end too early (a truncated file?)",
    ),
    _case("damaged bzip2", b"BZh9" + b"garbage" * 9, "{f}: the bzip2 data are damaged"),
    _case(
        "cut zstd",
        zstd_bytes(b"a,y\n1,2\n" * 50)[:-6],
        "{f}: the zstd data end too early (a truncated file?)",
    ),
    _case("damaged zstd", b"\x28\xb5\x2f\xfd" + b"garbage" * 9, "{f}: the zstd data are damaged"),
    _case(
        "gzip in gzip",
        gzip.compress(gzip.compress(b"a", mtime=0), mtime=0),
        "{f}: holds compressed data inside gzip: decompress it first",
    ),
    _case(
        "Parquet in gzip",
        gzip.compress(_PARQUET, mtime=0),
        "{f}: holds Parquet or Arrow inside gzip: decompress it first",
    ),
    _case(
        "cut Parquet",
        _PARQUET[:-10],
        "{f}: the Parquet data are damaged (Parquet magic bytes not found in footer. "
        "Either the file is corrupted or this is not a parquet file)",
    ),
    _case("CSV as Parquet", "a,y\n1,2\n", "{f}: is not a Parquet file", format="parquet"),
    _case("Parquet as CSV", _PARQUET, "{f}: is Parquet, not CSV", format="csv"),
    _case("empty as Parquet", "", "{f}: is empty", format="parquet"),
    _case(
        "Parquet without rows",
        parquet_bytes(pa.table({"a": [1], "y": [2]}).slice(1)),
        "{f}: holds no rows",
    ),
    _case(
        "Parquet, names twice",
        parquet_bytes(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])),
        "{f}: two columns are named 'a' (rename one of them)",
    ),
    _case(
        "Parquet, infinite",
        parquet_bytes(pa.table({"a": [1.0, float("inf")], "y": [1.0, 2.0]})),
        f"{{f}}: row 2: column 'a': inf is not a finite number {_SKIP}",
    ),
    _case(
        "Parquet, text for a number",
        parquet_bytes(pa.table({"a": ["1"] * 40 + ["x"], "y": [1.0] * 41})),
        "{f}: row 41: column 'a': cannot read 'x' as a number (use --na 'x' or --on-error skip)",
    ),
    _case(
        "cut Arrow file",
        arrow_bytes(_ARROW, file=True)[:700],
        "{f}: the Arrow data are damaged (Not an Arrow file)",
    ),
    _case("text as Arrow", "a,y\n1,2\n", "{f}: is not Arrow", format="arrow"),
]

OPTIONS: Final = [
    _case(
        "unknown format",
        "a,y\n1,2\n",
        "--format is auto, csv, tsv, json, parquet or arrow, not 'xml'",
        format="xml",
    ),
    _case("long delimiter", "a,y\n1,2\n", "--delimiter is one character, not '::'", delimiter="::"),
    _case("limit zero", "a,y\n1,2\n", "--limit must be at least 1, not 0", limit=0),
    _case("negative skip", "a,y\n1,2\n", "skip cannot be negative", skip=-1),
]

ALL: Final = [*TEXT, *VALUES, *COLUMNS, *FORMATS, *OPTIONS]
