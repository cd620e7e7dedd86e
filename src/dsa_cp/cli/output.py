"""How commands print: tables for people on stdout, one JSON object a line on request, progress and errors on stderr."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

NARROW, WIDE = 8, 16
"""Columns keep so many characters together on a narrow terminal: the first column names the row and may be wide."""


def print_error(text: str) -> None:
    """Print an error to stderr, on one line unless it is a contract's."""
    sys.stderr.write(f"dsa-cp: {text}\n")


def print_json(record: dict[str, object]) -> None:
    """Print one object on a line of its own; NaN and infinities are refused, since they are no JSON."""
    sys.stdout.write(json.dumps(record, allow_nan=False) + "\n")
    sys.stdout.flush()


def print_table(title: str, headers: list[str], rows: list[list[str]], *, numeric: frozenset[str] = frozenset()) -> None:
    """Print a table; columns named in `numeric` stand to the right."""
    table = Table(title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for at, header in enumerate(headers):
        is_number = header in numeric
        least = min(max((len(row[at]) for row in rows), default=0), NARROW if at else WIDE)
        table.add_column(
            header, justify="right" if is_number else "left", overflow="fold", no_wrap=is_number, min_width=least
        )
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def print_line(text: str) -> None:
    """Print a line of plain text, folded by the terminal and by nothing else."""
    sys.stdout.write(text + "\n")


@contextmanager
def progress_bar(*, enabled: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Give a function (label, done, in all) that moves a bar on stderr; on no terminal each label gets a line."""
    console = Console(stderr=True)
    if not enabled:
        yield lambda label, done, total: None
        return
    if not console.is_terminal:
        seen: set[str] = set()

        def line(label: str, done: int, total: int) -> None:
            if label not in seen:
                seen.add(label)
                sys.stderr.write(f"{label} ...\n")

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks: dict[str, int] = {}

        def step(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = bar.add_task(label, total=total)
            bar.update(tasks[label], completed=done)  # type: ignore[arg-type]

        yield step
