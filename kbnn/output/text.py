"""Predictions as CSV or TSV; a number is the shortest text that reads back as the same float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kbnn.output.base import LineWriter, open_output
from kbnn.stream.values import cast_to_text, is_numeric
from kbnn.task.base import OutputField


class TextWriter(LineWriter):
    """CSV (or TSV) to a file or to standard output."""

    def __init__(
        self, path: str, fields: Sequence[OutputField], *, keep: int | None = None
    ) -> None:
        super().__init__(path, fields)
        self._header = keep is None  # whether the header is still to be written
        self._delimiter = "\t" if path.lower().endswith(".tsv") else ","
        self._file = open_output(path, keep)

    def _write_columns(
        self, leading: list[tuple[pa.Field, pa.Array | None]], predicted: list[Any]
    ) -> None:
        size = len(predicted[0])
        columns = [self._format_cells(array, size) for _, array in leading]
        columns += [
            self._format_cells(pa.array(values, from_pandas=True), size) for values in predicted
        ]
        if self._header:
            names = [field.name for field, _ in leading] + [field.name for field in self._fields]
            columns = [
                [*self._quote_cells([name]), *cells]
                for name, cells in zip(names, columns, strict=True)
            ]
            self._header = False
        lines = map(self._delimiter.join, zip(*columns, strict=True))
        self._file.write("\n".join([*lines, ""]).encode())

    def _format_cells(self, array: pa.Array | None, size: int) -> list[str]:
        """A column as cells; texts as they were."""
        if array is None:
            return [""] * size
        cells: list[str] = cast_to_text(array).fill_null("").to_pylist()
        return cells if is_numeric(array.type) else self._quote_cells(cells)

    def _quote_cells(self, cells: list[str]) -> list[str]:
        """Cells that hold a delimiter, a quote or the end of a line, in quotes."""
        special = (self._delimiter, '"', "\n", "\r")
        together = "".join(cells)
        if not any(mark in together for mark in special):
            return cells
        doubled = '""'
        return [
            f'"{cell.replace(chr(34), doubled)}"' if any(mark in cell for mark in special) else cell
            for cell in cells
        ]
