"""Prints imports, their errors and previews on a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from tidemill.core.job import Job
from tidemill.imports.failed_rows import RowWithErrors, join_error_reasons
from tidemill.imports.import_plan import ImportParams
from tidemill.imports.use_cases import ImportPreview
from tidemill.terminal.console import console, error_console, escape_text

PREVIEW_CELL_CHARS_MAX = 30


def show_effects(job: Job, effects: Mapping[str, int]) -> None:
    would = "would be " if ImportParams.from_json(job.params).plan_or_request.validate_only else ""
    counts = [f"{count:,} {would}{effect}" for effect, count in effects.items() if count]
    if counts:
        console.print("  " + " · ".join(counts), highlight=False)


def show_error_samples(samples: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
    """Print one line for each error code: the number of rows, and one of the errors."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("error", no_wrap=True)
    table.add_column("rows", justify="right")
    table.add_column("row", justify="right")
    table.add_column("example", no_wrap=True, max_width=20)
    table.add_column("reason", overflow="fold")
    for count, error in samples:
        shown = [error.get(name, "") for name in ("row", "value", "reason")]
        table.add_row(escape_text(str(error["code"])), f"{count:,}", *[escape_text(str(cell)) for cell in shown])
    console.print(table)


def show_layout(layout: Mapping[str, Any]) -> None:
    """Print the detected layout to standard error, so that a user can override it with options."""
    error_console.print(f"[dim]{escape_text(_format_layout(layout))}[/]", highlight=False, soft_wrap=True)


def _format_layout(layout: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_format_layout_value(value)}" for name, value in layout.items())


def show_preview(preview: ImportPreview) -> None:
    console.print(f"[bold]{escape_text(_format_layout(preview['layout']))}[/]", highlight=False, soft_wrap=True)
    for column in preview["columns"]:
        target = preview["mapping"].get(column)
        shown = f"[green]{escape_text(target)}[/]" if target else "[yellow]ignored[/]"
        console.print(f"  {escape_text(column)} → {shown}", highlight=False)
    for problem in preview["problems"]:
        console.print(f"  [red]{escape_text(problem)}[/]", highlight=False, soft_wrap=True)
    console.print(_build_preview_table(preview["columns"], preview["rows"]))
    _show_row_errors(preview["rows"])


def _build_preview_table(columns: Sequence[str], rows: Sequence[RowWithErrors]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("row", justify="right")
    for column in columns:
        table.add_column(escape_text(column), no_wrap=True, max_width=PREVIEW_CELL_CHARS_MAX)
    for row in rows:
        record = row["input"]
        if isinstance(record, dict):
            table.add_row(
                str(row["row"]), *[escape_text(_format_preview_cell(record.get(column))) for column in columns]
            )
        else:
            table.add_row(str(row["row"]), escape_text(_format_preview_cell(record)))
    return table


def _show_row_errors(rows: Sequence[RowWithErrors]) -> None:
    for row in rows:
        for error in row["errors"]:
            console.print(f"  [red]Row {row['row']}[/]  {escape_text(join_error_reasons([error]))}", highlight=False)
    if not any(row["errors"] for row in rows):
        console.print("  No errors in these rows", highlight=False)


def _format_layout_value(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else repr(value)


def _format_preview_cell(value: Any) -> str:
    return "" if value is None else escape_text(str(value))
