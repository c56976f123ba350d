"""From the bytes of a text source to decompressed pieces of text without a byte-order mark."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from kbnn.errors import DataError
from kbnn.stream.compression import DECODERS
from kbnn.stream.formats import COMPRESSIONS, ContentType, detect_format, has_enough_bytes
from kbnn.stream.records import MAX_RECORD_BYTES
from kbnn.stream.sources import ByteReader

_BOM = b"\xef\xbb\xbf"


class DecompressedText:
    """Pieces of text as they arrive; `kind` says what is inside."""

    def __init__(self, reader: ByteReader) -> None:
        name = reader.source.name
        self._reader = reader
        self._compression = detect_format(reader.peek_head(), name)
        self._pieces = self._read_decompressed() if self._is_compressed else self._read_raw()
        head = b""
        while not has_enough_bytes(head):
            piece = next(self._pieces, b"")
            if not piece:
                break
            head += piece
        self.content_type: ContentType = detect_format(head, name)
        if self._is_compressed and self.content_type not in ("text", "json"):
            inner = "compressed data" if self.content_type in COMPRESSIONS else "Parquet or Arrow"
            raise DataError(
                f"{name}: holds {inner} inside {self._compression}: decompress it first"
            )
        self._head = head.removeprefix(_BOM)

    @property
    def _is_compressed(self) -> bool:
        return self._compression in COMPRESSIONS

    def _read_raw(self) -> Iterator[bytes]:
        while piece := self._reader.read():
            yield piece

    def _read_decompressed(self) -> Iterator[bytes]:
        decoder = DECODERS[str(self._compression)](self._reader.source.name)
        for data in self._read_raw():
            yield from decoder.decode(data)
        decoder.finish()

    def __iter__(self) -> Iterator[bytes]:
        return _normalize_newlines(chain([self._head], self._pieces))


def _normalize_newlines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Turn lone carriage returns to newlines when the first line ends in one (old Mac files)."""
    head, classic = b"", False
    for piece in pieces:
        looked = max(0, len(head) - 1)  # what follows a carriage return tells what it is
        head += piece
        newline, lone = head.find(b"\n", looked), head.find(b"\r", looked, len(head) - 1)
        if newline >= 0 or lone >= 0 or len(head) > MAX_RECORD_BYTES:
            classic = lone >= 0 and not 0 <= newline <= lone + 1
            break
    if head:
        yield head.replace(b"\r", b"\n") if classic else head
    for piece in pieces:
        yield piece.replace(b"\r", b"\n") if classic else piece
