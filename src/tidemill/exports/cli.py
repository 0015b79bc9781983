"""The command `tidemill export`."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, aclosing
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import TransferSpeedColumn as SpeedColumn

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import FileFormat
from tidemill.core.principal import Role
from tidemill.exports.table_export_request import TableExportRequest, parse_file_extension, parse_filter_condition
from tidemill.exports.table_exporter import stream_table_export
from tidemill.exports.use_cases import plan_table_export
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import (
    BUILTIN_MILL_REFERENCE,
    MILL_DEFAULT_HELP,
    resolve_mill,
    run_with_runtime,
    silence_logs_unless_configured,
)
from tidemill.terminal.console import error_console
from tidemill.terminal.streams import open_atomic_output, open_standard_output

commands = typer.Typer()
STDOUT_PATH = "-"


@commands.command("export")
def export_command(
    table: Annotated[str, typer.Argument(help="Table, such as public.users, or a resource declared in tidemill.toml")],
    output: Annotated[str, typer.Option("--output", "-o", help="File to write; - for standard output")],
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Export only rows that match FIELD=VALUE or FIELD[OPERATOR]=VALUE, such as 'role[in]=admin,editor'; "
            "can be repeated",
        ),
    ] = None,
    fields: Annotated[str, typer.Option(help="Comma-separated fields to export, in this order; all by default")] = "",
    order: Annotated[str, typer.Option(help="Comma-separated fields to sort by; use -FIELD to sort descending")] = "",
    format_: Annotated[
        str | None,
        typer.Option("--format", help="csv, ndjson, json, xlsx or parquet; by default, detected from the file name"),
    ] = None,
    compression: Annotated[
        str | None, typer.Option(help="none, gzip or zstd; by default, detected from the file name")
    ] = None,
    spreadsheet_safe: Annotated[
        bool, typer.Option("--spreadsheet-safe", help="Put an apostrophe before text that a spreadsheet could execute")
    ] = False,
    app: Annotated[
        str,
        typer.Option(
            callback=resolve_mill,
            show_default=MILL_DEFAULT_HELP,
            help="MODULE:NAME of a mill that declares resources",
        ),
    ] = BUILTIN_MILL_REFERENCE,
) -> None:
    """Export the rows of a table to a file. All rows come from one database snapshot."""
    format_of_name, compression_of_name = parse_file_extension("" if output == STDOUT_PATH else output)
    if format_ is None and format_of_name is None and output != STDOUT_PATH:
        raise InvalidInput(f'Cannot detect the format of "{output}" from its file extension. Use --format.')
    request = TableExportRequest(
        resource=table,
        fields=_split_names(fields),
        filters=tuple(parse_filter_condition(text) for text in where or []),
        order=_split_names(order),
        format=format_ or format_of_name or FileFormat.CSV,
        compression=compression or compression_of_name,
        spreadsheet_safe=spreadsheet_safe,
    )
    silence_logs_unless_configured()
    run_export(request, output, app=app)


def run_export(request: TableExportRequest, output: str, *, app: str = BUILTIN_MILL_REFERENCE) -> int:
    """Write the file, print its size, and return the number of rows."""
    rows = 0

    def record_row_count(count: int) -> None:
        nonlocal rows
        rows = count

    async def action(runtime: Runtime) -> int:
        plan = await plan_table_export(runtime, request, Role.ADMIN)
        with _open_output(output) as file:
            async with aclosing(stream_table_export(runtime.db, plan, record_row_count)) as chunks:
                return await _write_chunks_with_progress(chunks, file, request.resource)

    size = run_with_runtime(action, app=app, check=False)
    where = "standard output" if output == STDOUT_PATH else output
    error_console.print(
        f"Wrote {rows:,} rows ({size:,} bytes) to {where}", highlight=False, markup=False, soft_wrap=True
    )
    return rows


async def _write_chunks_with_progress(chunks: AsyncIterator[bytes], file: BinaryIO, name: str) -> int:
    """Write the chunks, show progress, and return the number of bytes."""
    size = 0
    with _create_byte_progress() as progress:
        task = progress.add_task("", name=name, total=None)
        async for chunk in chunks:
            await asyncio.to_thread(file.write, chunk)
            size += len(chunk)
            progress.update(task, completed=size)
        await asyncio.to_thread(file.flush)
        progress.update(task, total=size)
    return size


def _open_output(output: str) -> AbstractContextManager[BinaryIO]:
    if output != STDOUT_PATH:
        return open_atomic_output(Path(output))
    if sys.stdout.isatty():
        error_console.print("[dim]Writing to the terminal. Use -o FILE to write a file.[/]")
    return open_standard_output()


def _create_byte_progress() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.fields[name]}", markup=False),
        BarColumn(bar_width=30),
        DownloadColumn(),
        SpeedColumn(),
        TimeElapsedColumn(),
        console=error_console,
        transient=True,
    )


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
