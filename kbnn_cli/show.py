"""Putting results on standard output, and progress on standard error when somebody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbnn.stream.opening import Stream


def on_terminal() -> bool:
    """Whether a person looks at standard output."""
    return sys.stdout.isatty()


def print_parts(found: Iterable[RenderableType]) -> None:
    """Print renderables on standard output."""
    from kbnn_cli.console import CleanConsole

    console = CleanConsole()
    if console.is_terminal:
        for part in found:
            console.print(part)
        return
    for part in found:
        with console.capture() as capture:
            console.print(part)
        # Tables are padded to their width; in a file the blanks would only be in the way.
        lines = capture.get().split("\n")[:-1]
        console.file.write("".join(f"{line.rstrip()}\n" for line in lines))


def print_json(found: dict[str, Any]) -> None:
    """Print one JSON object on standard output."""
    from kbnn.sink import standard_output
    from kbnn.wording import format_json

    standard_output().write(f"{format_json(found, indent=2)}\n".encode())


def print_csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table as CSV on standard output."""
    import csv
    import io

    from kbnn.sink import standard_output

    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    standard_output().write(text.getvalue().encode())


@contextmanager
def show_progress(stream: Stream, doing: str, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar on standard error by bytes read, when it is a terminal; gives what to call with rows.

    A live stream has no bar: its end is not known, and its rows are the progress.
    """
    total = stream.total_bytes
    if quiet or not sys.stderr.isatty() or stream.is_live or total is None:
        yield lambda rows: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from kbnn_cli.console import CleanConsole

    done = 0
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeRemainingColumn(),
        console=CleanConsole(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(doing, total=total, rows=0)

        def on_rows(rows: int) -> None:
            nonlocal done
            done += rows
            bar.update(task, completed=stream.bytes_read, rows=done)

        yield on_rows
