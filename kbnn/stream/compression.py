"""Decompression as the bytes arrive: what the compressor has flushed comes out at once.

Each decoder is a pair of calls, `decode(data)` for the pieces that `data` makes available, none
larger than PIECE, and `finish()` at the end of the input, which raises when the stream was cut.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Iterator
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from kbnn.errors import DataError

PIECE_BYTES: Final = 1 << 20


class Decoder(Protocol):
    """What every decompressor does."""

    def decode(self, data: bytes) -> Iterator[bytes]: ...

    def finish(self) -> None: ...


class GzipDecoder:
    """Gzip, several members one after another included; zero padding at the end is allowed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._inner = zlib.decompressobj(31)

    def decode(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._inner.eof:
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._inner = zlib.decompressobj(31)
            try:
                piece = self._inner.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                raise DataError(f"{self.name}: the gzip data are damaged ({error})") from error
            data = self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail
            if piece:
                yield piece
            # A full piece may leave output behind although all input is consumed.
            while len(piece) == PIECE_BYTES and not data and not self._inner.eof:
                piece = self._inner.decompress(b"", PIECE_BYTES)
                if piece:
                    yield piece
                data = self._inner.unused_data if self._inner.eof else b""

    def finish(self) -> None:
        if not self._inner.eof:
            raise DataError(f"{self.name}: the gzip data end too early (a truncated file?)")


class Bzip2Decoder:
    """Bzip2, several streams one after another included."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._inner = bz2.BZ2Decompressor()

    def decode(self, data: bytes) -> Iterator[bytes]:
        while data or not (self._inner.needs_input or self._inner.eof):
            if self._inner.eof:
                self._inner = bz2.BZ2Decompressor()
            try:
                piece = self._inner.decompress(data, PIECE_BYTES)
            except (OSError, EOFError) as error:
                raise DataError(f"{self.name}: the bzip2 data are damaged") from error
            data = self._inner.unused_data if self._inner.eof else b""
            if piece:
                yield piece

    def finish(self) -> None:
        if not self._inner.eof:
            raise DataError(f"{self.name}: the bzip2 data end too early (a truncated file?)")


class _FeedBuffer:
    """A file that holds what has arrived so far and then pretends to end."""

    closed = False

    def __init__(self) -> None:
        self.data = b""

    def read(self, size: int) -> bytes:
        head, self.data = self.data[:size], self.data[size:]
        return head

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.data = b""


class ZstdDecoder:
    """Zstandard by Arrow's decompressor, which reports no count when its input runs dry.

    Two decompressors therefore read the same input into buffers filled with different bytes: the
    output is as long as the buffers agree. Exact, and cheap beside the parsing that follows.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._feeds = (_FeedBuffer(), _FeedBuffer())
        self._streams = [
            pa.CompressedInputStream(pa.PythonFile(feed, mode="r"), "zstd") for feed in self._feeds
        ]
        self._buffers = [np.empty(PIECE_BYTES, np.uint8) for _ in self._feeds]
        self._open = False

    def _fill_buffer(self, which: int, filler: int) -> int | None:
        """Decompress into a buffer: the length, or None when the input ran dry half-way."""
        buffer = self._buffers[which]
        buffer[:] = filler
        try:
            return int(self._streams[which].readinto(buffer))
        except (OSError, pa.ArrowException) as error:
            if "Truncated" in str(error):
                return None
            raise DataError(f"{self.name}: the zstd data are damaged") from error

    def decode(self, data: bytes) -> Iterator[bytes]:
        for feed in self._feeds:
            feed.data = data
        full = True
        while full:
            length = self._fill_buffer(0, 0x00)
            self._fill_buffer(1, 0xFF)
            self._open = length is None
            if length is None:
                first, second = self._buffers
                unequal = first != second
                length = int(unequal.argmax()) if unequal.any() else PIECE_BYTES
            full = length == PIECE_BYTES
            if length:
                yield self._buffers[0][:length].tobytes()

    def finish(self) -> None:
        if self._open:
            raise DataError(f"{self.name}: the zstd data end too early (a truncated file?)")


DECODERS: Final[dict[str, type[GzipDecoder] | type[Bzip2Decoder] | type[ZstdDecoder]]] = {
    "gzip": GzipDecoder,
    "bzip2": Bzip2Decoder,
    "zstd": ZstdDecoder,
}
