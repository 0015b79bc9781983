"""Exporting tables from a terminal."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, aclosing
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import TransferSpeedColumn as SpeedColumn

from tidemill.app import make_resources, run_in
from tidemill.cli.load import PLAIN, load_mill
from tidemill.cli.outputs import standard_output, written
from tidemill.cli.views import errors
from tidemill.config import Settings, load_settings
from tidemill.domain.errors import InvalidInput
from tidemill.domain.exporting import TableExport, parse_condition
from tidemill.domain.exporting.plan import by_ending
from tidemill.domain.form import FileFormat
from tidemill.operations.exports import plan_export, stream_export
from tidemill.store.database import Database

commands = typer.Typer()
STDOUT = "-"


@commands.command("export")
def export_command(
    table: Annotated[str, typer.Argument(help="A table, as in public.users, or a resource of tidemill.toml")],
    output: Annotated[str, typer.Option("--output", "-o", help="The file to write; - for standard output")],
    where: Annotated[
        list[str] | None,
        typer.Option(help="FIELD=VALUE or FIELD[OPERATOR]=VALUE, as in 'role\\[in]=admin,editor'; all must hold"),
    ] = None,
    fields: Annotated[str, typer.Option(help="Between commas, in the order of the file; all if not said")] = "",
    order: Annotated[str, typer.Option(help="Fields between commas; -FIELD is the other way round")] = "",
    format_: Annotated[
        str | None, typer.Option("--format", help="csv, ndjson, json, xlsx, parquet; by the name's ending if not said")
    ] = None,
    compression: Annotated[str | None, typer.Option(help="none, gzip, zstd; by the name's ending if not said")] = None,
    spreadsheet_safe: Annotated[
        bool, typer.Option("--spreadsheet-safe", help="Text that a spreadsheet might run gets an apostrophe in front")
    ] = False,
    app: Annotated[str, typer.Option(help="MODULE:NAME of a mill that declares resources")] = PLAIN,
) -> None:
    """Write rows of a table of your database into a file, at the speed of COPY: all as they are at one moment."""
    found, packed = by_ending("" if output == STDOUT else output)
    if format_ is None and found is None and output != STDOUT:
        raise InvalidInput(f"{output} does not say by its ending what it is: give a --format")
    request = TableExport(
        resource=table,
        fields=_names(fields),
        filters=tuple(parse_condition(text) for text in where or []),
        order=_names(order),
        format=format_ or found or FileFormat.CSV,
        compression=compression or packed,
        spreadsheet_safe=spreadsheet_safe,
    )
    os.environ.setdefault("TIDEMILL_LOG_LEVEL", "error")
    run_export(load_settings(), request, output, app=app)


def run_export(settings: Settings, request: TableExport, output: str, *, app: str = PLAIN) -> int:
    """Write the file and say what is in it; how many rows."""
    rows = 0

    def note(count: int) -> None:
        nonlocal rows
        rows = count

    async def action(db: Database) -> int:
        resource = await make_resources(settings, load_mill(app).registry).find(
            db, request.resource, any_table=True, reads=True
        )
        plan = await plan_export(db, resource, request)
        with _opened(output) as file:
            async with aclosing(stream_export(db, plan, note)) as pieces:
                return await _write(pieces, file, request.resource)

    size = run_in(settings, action, check=False)
    where = "standard output" if output == STDOUT else output
    errors.print(f"{rows:,} rows, {size:,} bytes in {where}", highlight=False, markup=False, soft_wrap=True)
    return rows


async def _write(pieces: AsyncIterator[bytes], file: BinaryIO, name: str) -> int:
    size = 0
    with _progress() as progress:
        task = progress.add_task("", name=name, total=None)
        async for piece in pieces:
            await asyncio.to_thread(file.write, piece)
            size += len(piece)
            progress.update(task, completed=size)
        await asyncio.to_thread(file.flush)
        progress.update(task, total=size)
    return size


def _opened(output: str) -> AbstractContextManager[BinaryIO]:
    if output != STDOUT:
        return written(Path(output))
    if sys.stdout.isatty():
        errors.print("[dim]to the terminal; -o FILE writes a file[/]")
    return standard_output()


def _progress() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.fields[name]}", markup=False),
        BarColumn(bar_width=30),
        DownloadColumn(),
        SpeedColumn(),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
