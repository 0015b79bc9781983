"""The commands `tidemill export` and `tidemill results`."""

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
from tidemill.exports.result_export import ResultExportRequest
from tidemill.exports.table_export_request import TableExportRequest, parse_file_extension, parse_filter_condition
from tidemill.exports.table_exporter import stream_table_export
from tidemill.exports.use_cases import plan_table_export, write_results_to_output
from tidemill.jobs import queries
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import (
    BUILTIN_MILL_REFERENCE,
    MILL_DEFAULT_HELP,
    resolve_mill,
    run_with_runtime,
    silence_logs_unless_configured,
)
from tidemill.terminal.console import error_console, format_count
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
    chosen_format, chosen_compression = _choose_format(output, format_, compression)
    request = TableExportRequest(
        resource=table,
        fields=_split_names(fields),
        filters=tuple(parse_filter_condition(text) for text in where or []),
        order=_split_names(order),
        format=chosen_format,
        compression=chosen_compression,
        spreadsheet_safe=spreadsheet_safe,
    )
    silence_logs_unless_configured()
    run_export(request, output, app=app)


@commands.command("results")
def results_command(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Key, id or id prefix of a job")],
    output: Annotated[str, typer.Option("--output", "-o", help="File to write; - for standard output")],
    columns: Annotated[
        str,
        typer.Option(
            help="Comma-separated columns, in this order, such as 'sku,result.price,_status'; input.* and result.* are "
            "all columns of the input and of the results; all by default"
        ),
    ] = "",
    status: Annotated[
        list[str] | None, typer.Option(metavar="STATUS", help="Only items of this status; can be repeated")
    ] = None,
    flatten: Annotated[
        bool, typer.Option("--flatten", help="Give each field of a nested object a column, such as price.amount")
    ] = False,
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
) -> None:
    """Write the results of a job to a file: the columns of its input, then those of the results.

    The last columns have the state of each item. The rows have the order of the input, and come from one database
    snapshot.
    """
    chosen_format, chosen_compression = _choose_format(output, format_, compression)

    async def action(runtime: Runtime) -> int:
        found = await queries.get_job_by_reference(runtime.db, job)
        request = ResultExportRequest.create(
            found.id,
            chosen_format,
            status or (),
            spreadsheet_safe=spreadsheet_safe,
            columns=_split_names(columns),
            flatten=flatten,
            compression=chosen_compression,
        )
        with _open_output(output) as file:
            rows = await write_results_to_output(runtime, found, request, file)
            await asyncio.to_thread(file.flush)
            return rows

    silence_logs_unless_configured()
    _print_row_count(run_with_runtime(action, check=False), "", output)


def _choose_format(output: str, format_: str | None, compression: str | None) -> tuple[str, str]:
    """Return the format and the compression of an output: those of the options, else those of its file extension."""
    format_of_name, compression_of_name = parse_file_extension("" if output == STDOUT_PATH else output)
    if format_ is None and format_of_name is None and output != STDOUT_PATH:
        raise InvalidInput(f'Cannot detect the format of "{output}" from its file extension. Use --format.')
    return format_ or format_of_name or FileFormat.CSV, compression or compression_of_name


def _print_row_count(rows: int, size_text: str, output: str) -> None:
    where = "standard output" if output == STDOUT_PATH else output
    text = f"Wrote {format_count(rows, 'row')}{size_text} to {where}"
    error_console.print(text, highlight=False, markup=False, soft_wrap=True)


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
    _print_row_count(rows, f" ({size:,} bytes)", output)
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
