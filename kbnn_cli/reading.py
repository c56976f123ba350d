"""What `predict` and `evaluate` say about the rows they read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbnn_cli import exits

if TYPE_CHECKING:
    from kbnn.stream.badrows import BadRowWriter


def make_notifier(quiet: bool) -> Callable[[str], None]:
    """Who hears of what was noticed."""
    return (lambda text: None) if quiet else exits.print_message


def report_bad_rows(bad: BadRowWriter, fate: str, quiet: bool) -> None:
    """Say how many rows could not be read and what became of them."""
    if bad.count and not quiet:
        from kbnn.wording import format_rows

        where = f"see {bad.path}" if bad.path else "--bad-rows FILE lists them"
        exits.print_message(f"{format_rows(bad.count)} could not be read: {fate} ({where})")
