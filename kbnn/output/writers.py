"""Which table of predictions a name asks for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from kbnn.errors import UsageError
from kbnn.model.schema import Schema
from kbnn.output.base import STDOUT, Writer
from kbnn.output.text import TextWriter
from kbnn.output.typed import ArrowFileWriter, JsonLinesWriter, ParquetFileWriter
from kbnn.task.base import OutputField

__all__ = ["STDOUT", "Writer", "check_name", "open_writer"]

_TEXT: Final = ("", ".csv", ".tsv", ".txt")
_JSON: Final = (".jsonl", ".ndjson")
_BINARY: Final = {
    ".parquet": ParquetFileWriter,
    ".pq": ParquetFileWriter,
    ".arrow": ArrowFileWriter,
    ".feather": ArrowFileWriter,
}


def open_writer(
    path: str,
    fields: Sequence[OutputField],
    schema: Schema,
    *,
    keep: int | None = None,
) -> Writer:
    """Open the table that the name's ending asks for, CSV if none; `-` is standard output.

    keep     go on with a text file after its first `keep` bytes, to resume
    """
    check_name(path)
    ending = _file_suffix(path)
    if ending in _JSON:
        return JsonLinesWriter(path, fields, schema, keep=keep)
    if ending in _BINARY:
        if keep is not None:
            form = _BINARY[ending].format_name
            raise UsageError(f"{path}: {form} cannot be continued (use .csv to resume)")
        return _BINARY[ending](path, fields, schema)
    return TextWriter(path, fields, keep=keep)


def check_name(path: str) -> None:
    """Refuse a name whose ending says a format that no table is written in."""
    if _file_suffix(path) not in (*_TEXT, *_JSON, *_BINARY):
        kinds = "tables are written as .csv, .tsv, .txt, .jsonl, .parquet or .arrow"
        raise UsageError(f"{path}: {kinds}, not {_file_suffix(path)}")


def _file_suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()
