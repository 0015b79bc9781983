"""The command ``tidemill inspect``: shows how files are read, or writes their tables as CSV. It needs no database."""

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill.core.errors import InvalidInput, TidemillError
from tidemill.core.file_format import LayoutFinding
from tidemill.jobs.table_inspection import TableInspection, convert_table, inspect_table
from tidemill.terminal.command_options import add_layout_options
from tidemill.terminal.console import format_count

commands = typer.Typer()
INSPECTED_ROWS_DEFAULT = 10
CELL_CHARS_MAX = 30
DEFECTS_SHOWN_MAX = 10
ALL_ROWS = "all"
_LINE_END_NAMES = {"\n": "lf", "\r\n": "crlf", "\r": "cr"}


@commands.command("inspect")
@add_layout_options
def inspect_command(
    files: Annotated[list[Path], typer.Argument(help="Files of rows, in any format that an import reads")],
    layout: dict[str, Any],
    rows: Annotated[str, typer.Option(help="Number of rows to show, or all")] = str(INSPECTED_ROWS_DEFAULT),
    output: Annotated[
        Path | None, typer.Option(help="Write the table of each file to this folder as CSV; needs --rows all")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each file")] = False,
) -> None:
    """Show the layout, columns, first rows and defects of files, or write their tables as CSV.

    Needs no database and no server. The exit code is 1 if a file cannot be read.
    """
    count = _parse_row_count(rows)
    if (output is None) != (count is not None):
        raise InvalidInput("--rows all and --output go together: all rows are written to files")
    targets = [None] * len(files) if output is None else _list_table_paths(files, output)
    has_failed = False
    for file, target in zip(files, targets, strict=True):
        try:
            found = convert_table(file, layout, target) if target else inspect_table(file, layout, count or 0)
        except TidemillError as error:
            has_failed = True
            typer.echo(f"{file}: {error}", err=True)
            continue
        if as_json:
            typer.echo(json.dumps({"file": str(file), **found.to_json()}, ensure_ascii=False))
        elif target:
            typer.echo(f"{file}: {_format_layout_summary(found)}")
        else:
            _print_inspection(file, found)
    if has_failed:
        raise typer.Exit(1)


def _parse_row_count(text: str) -> int | None:
    if text == ALL_ROWS:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):  # noqa: PLR2004
        raise InvalidInput(f'--rows: must be a number or "{ALL_ROWS}", not "{text}"')
    return int(text)


def _list_table_paths(files: list[Path], folder: Path) -> list[Path]:
    """Return the path for the table of each file: its name, with .csv if it has another suffix."""
    names = [file.name if file.suffix.lower() == ".csv" else f"{file.name}.csv" for file in files]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InvalidInput(f'Two files would be written to "{repeated[0]}". Inspect them in two calls.')
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f'Cannot write "{folder}": {error.strerror or error}') from error
    return [folder / name for name in names]


def _format_layout_summary(found: TableInspection) -> str:
    first = "" if found.is_complete else "the first "
    counts = [first + format_count(found.row_count, "row"), format_count(len(found.columns), "column")]
    if found.defect_count:
        counts.append(f"{format_count(found.defect_count, 'row')} with a defect")
    if not found.columns:
        return "the file is empty"
    doubts = [f"{each.option} is not certain" for each in found.detected.findings if not each.is_certain]
    return ", ".join([*counts, *doubts])


def _print_inspection(file: Path, found: TableInspection) -> None:
    typer.echo(f"{file}: {_format_layout_summary(found)}")
    findings = {each.option for each in found.detected.findings}
    for name, value in found.layout.to_json().items():
        if name not in findings:
            typer.echo(f"  {name} {_format_value(value)}")
    for each in found.detected.findings:
        typer.echo(f"  {_format_finding(each)}")
    if found.columns:
        _print_rows(found)
    for defect in found.defects[:DEFECTS_SHOWN_MAX]:
        typer.echo(f"  Line {defect['line']}: {defect['reason']}")
    if found.defect_count > DEFECTS_SHOWN_MAX:
        typer.echo(f"  and {found.defect_count - DEFECTS_SHOWN_MAX:,} more rows with a defect")


def _format_finding(each: LayoutFinding) -> str:
    doubt = "" if each.is_certain or each.option == "columns" else f". Set --{_format_option_name(each)} if it is wrong"
    return f"{each.option} {_format_value(each.value)} ({each.confidence:.0%}: {each.reason}{doubt})"


def _format_option_name(each: LayoutFinding) -> str:
    return "header-rows" if each.option == "header" else each.option.replace("_", "-")


def _print_rows(found: TableInspection) -> None:
    table = [found.columns, *(row.cells for row in found.rows)]
    width = len(found.columns)
    cells = [[_truncate_cell(cell) for cell in row[:width]] for row in table]
    widths = [max((len(row[at]) for row in cells if at < len(row)), default=0) for at in range(width)]
    for row in cells:
        typer.echo("  " + "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=False)).rstrip())


def _truncate_cell(cell: str) -> str:
    text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in cell[:CELL_CHARS_MAX])
    return text[:-1] + "…" if len(cell) > CELL_CHARS_MAX else text


def _format_value(value: object) -> str:
    if value in _LINE_END_NAMES:
        return _LINE_END_NAMES[str(value)]
    if isinstance(value, bool):
        return "yes" if value else "no"
    is_plain = isinstance(value, str) and value.isprintable() and value.strip()
    return str(value) if is_plain else json.dumps(value, ensure_ascii=False)
