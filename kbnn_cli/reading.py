"""Opening sources for a model that stands still: how `predict` and `evaluate` read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kbnn_cli import exits, options

if TYPE_CHECKING:
    from kbnn.model.model import Model
    from kbnn.stream.badrows import BadRowList
    from kbnn.stream.opening import Stream


@contextmanager
def opened(
    model: Model,
    sources: Sequence[str],
    *,
    quiet: bool,
    bad_rows: str | None,
    na: Sequence[str] | None,
    delimiter: str | None,
    **how: Any,
) -> Iterator[tuple[Stream, BadRowList]]:
    """A stream of the sources with the model's frozen schema, and the list of its bad rows.

    `how` are further fields of `ReadOptions`.
    """
    from kbnn.stream.badrows import BadRowList
    from kbnn.stream.opening import ReadOptions, open_stream

    schema = model.schema.copy()
    schema.missing.extend(token for token in na or () if token not in schema.missing)
    chosen = ReadOptions(admit=False, delimiter=options.delimiter(delimiter), **how)
    chosen.check()
    notice = (lambda text: None) if quiet else exits.say
    with (
        BadRowList(bad_rows) as bad,
        open_stream(
            sources, options=chosen, schema=schema, on_notice=notice, on_bad_row=bad
        ) as stream,
    ):
        yield stream, bad


def check_on_error(value: str, allowed: Sequence[str]) -> None:
    """Refuse an unknown way to treat bad rows."""
    if value not in allowed:
        from kbnn.errors import UsageError

        raise UsageError(f"--on-error is {' or '.join(allowed)}, not '{value}'")


def say_bad_rows(bad: BadRowList, fate: str, quiet: bool) -> None:
    """Say how many rows could not be read and what became of them."""
    if bad.count and not quiet:
        from kbnn.wording import rows_of

        where = f"see {bad.path}" if bad.path else "--bad-rows FILE lists them"
        exits.say(f"{rows_of(bad.count)} could not be read: {fate} ({where})")
