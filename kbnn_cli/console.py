"""The console: colours and tables for people, with nothing in them that a stranger could hide."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from kbnn.wording import clean_page


class CleanConsole(Console):
    """Names, categories and messages come from strangers: no markup, no control characters."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Every segment of text cleaned; the console's own controls pass."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=clean_page(segment.text))
