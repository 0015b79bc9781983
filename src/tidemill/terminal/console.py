"""Terminal output of jobs, items and progress."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from tidemill.core.errors import escape_unprintable
from tidemill.core.job import Counts, Job
from tidemill.core.status import JobStatus

PIPE_WIDTH = 10_000  # wide enough that a table in a pipe or file is never wrapped or cut
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object per line")]
console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
error_console = Console(stderr=True)

_JOB_STATUS_COLOURS = {
    JobStatus.COMPLETED: "green",
    JobStatus.COMPLETED_WITH_ERRORS: "yellow",
    JobStatus.FAILED: "red",
    JobStatus.CANCELLED: "red",
    JobStatus.CANCELLING: "magenta",
    JobStatus.PAUSED: "magenta",
}


def escape_text(text: str) -> str:
    """Escape a text that is not from Tidemill: markup of Rich, control characters and changes of direction."""
    return escape(escape_unprintable(text))


def format_count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def print_json_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    for row in rows:
        typer.echo(format_json(row))


def format_json(value: Any) -> str:
    """Return a value as one line of JSON, with times in the format of ISO 8601."""
    return json.dumps(value, ensure_ascii=False, default=_format_json_value)


def _format_json_value(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


TABLE_COLUMN_GAP = 2  # spaces with which rich separates the columns of a table without borders
TABLE_TEXT_MIN_WIDTH = 12  # a text column folds its cells to this width before columns are hidden


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[str] = (),
    foldable: Sequence[str] = (),
    hide_first: Sequence[str] = (),
    fold_from: int = TABLE_TEXT_MIN_WIDTH,
    hint: str = "Use --json or a wider terminal to see them.",
) -> None:
    """Print rows as a table that fits the terminal; in a pipe, print it with all columns and complete cells.

    Args:
        columns: The names of the columns.
        rows: The cells as markup of Rich.
        numbers: Columns to align to the right.
        foldable: Columns whose long cells may take several lines. Other cells are never wrapped or cut.
        hide_first: Columns to hide if the terminal is too narrow, in this order. A line below the table names them.
        fold_from: Width below which a foldable column is never folded; other columns are hidden instead.
        hint: How to see hidden columns.
    """
    widths = [max(Text.from_markup(cell).cell_len for cell in cells) for cells in zip(columns, *rows, strict=True)]
    least = [
        min(width, max(fold_from, Text.from_markup(name).cell_len)) if name in foldable else width
        for name, width in zip(columns, widths, strict=True)
    ]
    shown = list(range(len(columns)))
    for name in hide_first:
        if sum(least[index] + TABLE_COLUMN_GAP for index in shown) - TABLE_COLUMN_GAP <= console.width:
            break
        shown.remove(max(index for index in shown if columns[index] == name))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index in shown:
        table.add_column(
            columns[index],
            justify="right" if columns[index] in numbers else "left",
            no_wrap=columns[index] not in foldable,
            overflow="fold",
            min_width=least[index],
        )
    for row in rows:
        table.add_row(*(row[index] for index in shown))
    console.print(table)
    hidden = [name for index, name in enumerate(columns) if index not in shown]
    if hidden:
        error_console.print(f"[dim]Hidden columns: {', '.join(hidden)}. {hint}[/]", highlight=False)


def format_job_status(status: JobStatus) -> str:
    colour = _JOB_STATUS_COLOURS.get(status, "cyan")
    return f"[{colour}]{status}[/]"


def create_job_progress_bar() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.fields[key]}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}"),
        TextColumn("{task.fields[time_left]}"),
        console=error_console,
        disable=not error_console.is_terminal,
    )


def print_notice(text: str) -> None:
    """Print a sentence for the user to standard error, so that it is not part of the output."""
    error_console.print(f"[yellow]{escape(text)}[/]", highlight=False, soft_wrap=True)


def format_job_counts(counts: Counts, rate: float | None = None) -> str:
    parts = [f"[green]{counts.done:,} done[/]"]
    named = {"failed": "red", "retry_wait": "yellow", "not_found": "yellow", "skipped": "dim", "cancelled": "magenta"}
    words = {"retry_wait": "retrying", "not_found": "not found"}
    parts += [
        f"[{colour}]{getattr(counts, n):,} {words.get(n, n)}[/]" for n, colour in named.items() if getattr(counts, n)
    ]
    if rate is not None:
        parts.append(f"[dim]{rate:,.0f}/s[/]")
    return " · ".join(parts)


def print_job_summary(job: Job) -> None:
    console.print(
        f"{job.key}  {format_job_status(job.status)}  {format_job_counts(job.counts)} of {job.counts.total:,}"
    )
    if job.failure_reason:
        console.print(f"  [red]{escape(job.failure_reason)}[/]", highlight=False)
    for code, n in sorted(job.codes.items(), key=lambda pair: -pair[1]):
        console.print(f"  [red]{n:,}[/] × {escape(code)}")
