"""From the bytes of a text source to decompressed pieces of text without a byte-order mark."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from kbnn.errors import DataError
from kbnn.stream.compression import DECODERS
from kbnn.stream.formats import COMPRESSIONS, Kind, is_enough, recognise
from kbnn.stream.records import MAX_RECORD
from kbnn.stream.sources import ByteReader

_BOM = b"\xef\xbb\xbf"


class TextBytes:
    """Pieces of text as they arrive; `kind` says what is inside."""

    def __init__(self, reader: ByteReader) -> None:
        name = reader.source.name
        self._reader = reader
        self._compression = recognise(reader.head(), name)
        self._pieces = self._decompressed() if self._compressed else self._raw()
        head = b""
        while not is_enough(head):
            piece = next(self._pieces, b"")
            if not piece:
                break
            head += piece
        self.kind: Kind = recognise(head, name)
        if self._compressed and self.kind not in ("text", "json"):
            inner = "compressed data" if self.kind in COMPRESSIONS else "Parquet or Arrow"
            raise DataError(
                f"{name}: holds {inner} inside {self._compression}: decompress it first"
            )
        self._head = head.removeprefix(_BOM)

    @property
    def _compressed(self) -> bool:
        return self._compression in COMPRESSIONS

    def _raw(self) -> Iterator[bytes]:
        while piece := self._reader.read():
            yield piece

    def _decompressed(self) -> Iterator[bytes]:
        decoder = DECODERS[str(self._compression)](self._reader.source.name)
        for data in self._raw():
            yield from decoder.decode(data)
        decoder.finish()

    def __iter__(self) -> Iterator[bytes]:
        return _with_newlines(chain([self._head], self._pieces))


def _with_newlines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Turn lone carriage returns to newlines when the first line ends in one (old Mac files)."""
    head, classic = b"", False
    for piece in pieces:
        looked = max(0, len(head) - 1)  # what follows a carriage return tells what it is
        head += piece
        newline, lone = head.find(b"\n", looked), head.find(b"\r", looked, len(head) - 1)
        if newline >= 0 or lone >= 0 or len(head) > MAX_RECORD:
            classic = lone >= 0 and not 0 <= newline <= lone + 1
            break
    if head:
        yield head.replace(b"\r", b"\n") if classic else head
    for piece in pieces:
        yield piece.replace(b"\r", b"\n") if classic else piece
