"""Things that a `with` statement closes."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closeable:
    """Closed at the end of its `with` statement, however that ends."""

    def close(self) -> None:
        """Give back what is held; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
