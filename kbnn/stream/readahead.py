"""Read ahead in a thread, a bounded distance, so that reading overlaps with learning."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

T = TypeVar("T")
READ_AHEAD_ITEMS: Final = 2


class _EndOfItems:
    """The end of the items, with the error that caused it, if any."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class ReadAhead(Generic[T]):
    """The same items as the iterator it is given, in order, and the same error at the same place.

    At most DEPTH items wait and one is being made. `close` ends the thread; an
    iterator that it never began is left to whoever made it.
    """

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._queue: queue.Queue[T | _EndOfItems] = queue.Queue(READ_AHEAD_ITEMS)
        self._stop = threading.Event()
        self._done = False
        self._thread: threading.Thread | None = None  # begins with the first item asked for

    def _read_items(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._items:
                self._queue.put(item)
                if self._stop.is_set():
                    break
        except BaseException as caught:  # handed to the consumer, whatever it is
            error = caught
        finally:
            close = getattr(self._items, "close", None)
            if close is not None:
                close()
        self._queue.put(_EndOfItems(error))

    def __iter__(self) -> ReadAhead[T]:
        return self

    def __next__(self) -> T:
        if self._done:
            raise StopIteration
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._read_items, name="kbnn-read-ahead", daemon=True
            )
            self._thread.start()
        item = self._queue.get()
        if not isinstance(item, _EndOfItems):
            return item
        self._done = True
        self._thread.join()
        if item.error is not None:
            raise item.error
        raise StopIteration

    def close(self) -> None:
        """Stop reading: what was read ahead is dropped."""
        self._stop.set()
        if self._thread is None:
            self._done = True
            return
        while not self._done:
            self._done = isinstance(self._queue.get(), _EndOfItems)
        self._thread.join()
