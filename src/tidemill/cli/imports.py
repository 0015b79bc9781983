"""Importing files from a terminal."""

import asyncio
import os
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast
from uuid import UUID

import msgspec
import typer
from rich.markup import escape

from tidemill.app import make_importing, make_resources, run_in
from tidemill.cli import stdin
from tidemill.cli.import_views import show_effects, show_errors, show_layout, show_preview
from tidemill.cli.jobs import parse_policy, show_progress
from tidemill.cli.load import PLAIN, load_mill
from tidemill.cli.outputs import expect_to_write, written
from tidemill.cli.run import make_worker
from tidemill.cli.views import console, detail, status_text
from tidemill.config import Settings, load_settings
from tidemill.connectors.blobs import Blob, open_blobs
from tidemill.domain.errors import InvalidInput
from tidemill.domain.importing import KIND, Duplicates, ImportRequest, Mode
from tidemill.domain.job import Job
from tidemill.domain.resource import Resource
from tidemill.domain.status import ItemStatus, JobStatus
from tidemill.operations import import_errors, inspect
from tidemill.operations.import_preview import PREVIEW_MAX
from tidemill.operations.import_preview import preview as look_through
from tidemill.operations.incoming import Incoming
from tidemill.store import imports as store
from tidemill.store import jobs, workers
from tidemill.store.database import Database
from tidemill.store.migrate import migrate
from tidemill.store.submit import Submission

commands = typer.Typer()
REMOTE = ("http://", "https://")
SHOWN_ROWS = 10
SHOWN_CODES = 20


@dataclass(frozen=True, slots=True)
class Asked:
    """A command line, read."""

    file: str
    into: str
    request: ImportRequest
    layout: dict[str, Any]
    policy: dict[str, Any]
    app: str = PLAIN

    @property
    def is_remote(self) -> bool:
        return self.file.startswith(REMOTE)

    @property
    def words(self) -> dict[str, Any]:
        """As they are kept with the job."""
        request: dict[str, Any] = msgspec.to_builtins(self.request)
        return {"resource": self.into, "layout": self.layout} | request


@commands.command("import")
def import_command(
    file: Annotated[
        str, typer.Argument(help="CSV, TSV, NDJSON, JSON, XLSX or Parquet, packed or not; its URL; - for stdin")
    ],
    into: Annotated[str, typer.Option(help="A table, as in public.users, or a resource of tidemill.toml")],
    key: Annotated[
        str, typer.Option(help="Fields that identify a row, between commas; the table's own key if not said")
    ] = "",
    mode: Annotated[str, typer.Option(help="insert, or upsert: rows whose key is there are updated")] = "insert",
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Check every row and write none")] = False,
    duplicates: Annotated[str, typer.Option(help="Of rows with one key, import the first or last; or error")] = "error",
    map_: Annotated[
        list[str] | None, typer.Option("--map", help="COLUMN=FIELD, or COLUMN= to leave one out; may be repeated")
    ] = None,
    format_: Annotated[str | None, typer.Option("--format", help="csv, tsv, ndjson, json, xlsx, parquet")] = None,
    encoding: Annotated[str | None, typer.Option(help="utf-8, cp1252, …; found out if not said")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Of a CSV file; found out if not said")] = None,
    quote: Annotated[str | None, typer.Option(help="Its quotation mark")] = None,
    line_end: Annotated[str | None, typer.Option(help="lf, crlf or cr; found out if not said")] = None,
    no_header: Annotated[bool, typer.Option("--no-header", help="It has none: columns are column_1, …")] = False,
    compression: Annotated[str | None, typer.Option(help="gzip, zstd, zip or none; found out if not said")] = None,
    sheet: Annotated[str | None, typer.Option(help="Of a workbook: its name or number")] = None,
    spreadsheet_safe: Annotated[
        bool, typer.Option("--spreadsheet-safe", help="It was exported so: take the apostrophes off")
    ] = False,
    keep_empty: Annotated[
        bool, typer.Option("--keep-empty", help='Empty text ("" in a CSV) is a value, and not the same as nothing')
    ] = False,
    policy: Annotated[str, typer.Option(help="continue, fail_fast, or tolerate:10 or tolerate:5%")] = "continue",
    preview: Annotated[
        bool, typer.Option("--preview", help="Show the first rows and what they mean; import none")
    ] = False,
    preview_rows: Annotated[
        int | None, typer.Option(min=1, max=PREVIEW_MAX, help=f"Preview so many rows, {SHOWN_ROWS} if not said")
    ] = None,
    errors_to: Annotated[
        Path | None, typer.Option("--errors", help="Write the rows that failed to this CSV, to mend and send again")
    ] = None,
    allow_errors: Annotated[bool, typer.Option("--allow-errors", help="Exit with 0 even if some rows failed")] = False,
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, max=64, help="If no worker runs")] = 2,
    app: Annotated[str, typer.Option(help="MODULE:NAME of a mill that declares resources and normalizers")] = PLAIN,
) -> None:
    """Load a file into a table of your database: every row is stored first, and each bad one is told."""
    layout: dict[str, Any] = {
        "format": format_,
        "encoding": encoding,
        "delimiter": delimiter,
        "quote": quote,
        "line_end": line_end,
        "sheet": sheet,
    }
    layout |= {"compression": compression, "header": False if no_header else None, "keep_empty": keep_empty or None}
    request = ImportRequest(
        mode=cast("Mode", _one_of("--mode", mode, ("insert", "upsert"))),
        validate_only=validate_only,
        duplicates=cast("Duplicates", _one_of("--duplicates", duplicates, ("first", "last", "error"))),
        mapping=dict(_pair(text) for text in map_ or []),
        key=tuple(name.strip() for name in key.split(",") if name.strip()),
        spreadsheet_safe=spreadsheet_safe,
        keep_empty=keep_empty,
    )
    given = {name: value for name, value in layout.items() if value is not None}
    asked = Asked(file, into, request, given, parse_policy(policy), app)
    os.environ.setdefault("TIDEMILL_LOG_LEVEL", "error")
    settings = load_settings()
    if preview or preview_rows is not None:
        run_in(settings, lambda db: _preview(db, settings, asked, preview_rows or SHOWN_ROWS), check=False)
        return
    job = run_import(settings, asked, errors_to=errors_to, processes=processes)
    _leave(job, allow_errors=allow_errors)


def run_import(settings: Settings, asked: Asked, *, errors_to: Path | None, processes: int) -> Job:
    """Import, show how far it is and what became of it."""
    expect_to_write(errors_to)

    async def action(db: Database) -> Job:
        await migrate(db)
        job_id = await _submit(db, settings, asked)
        return await _follow(db, job_id, errors_to, processes, asked.app)

    return run_in(settings, action, check=False)


def finish(settings: Settings, job: Job, *, errors_to: Path | None, processes: int, app: str) -> None:
    """Follow a job that was made before to its end."""
    expect_to_write(errors_to)
    os.environ.setdefault("TIDEMILL_LOG_LEVEL", "error")
    _leave(run_in(settings, lambda db: _follow(db, job.id, errors_to, processes, app)), allow_errors=False)


def _leave(job: Job, *, allow_errors: bool) -> None:
    """The exit code is 0 only if every row got in, or if that was not asked for."""
    if job.status is not JobStatus.COMPLETED:
        is_fine = allow_errors and job.status is JobStatus.COMPLETED_WITH_ERRORS
        raise typer.Exit(0 if is_fine else 1)


async def _follow(db: Database, job_id: UUID, errors_to: Path | None, processes: int, app: str) -> Job:
    """To its end; by workers that are there, or else by our own."""
    job = await db.run(jobs.get, job_id)
    try:
        async with working(db, KIND, app, processes):
            job = await show_progress(db, job)
    except asyncio.CancelledError:
        reference = "" if app == PLAIN else f" {app}"
        console.print(
            f"{job.key} is kept and goes on with the next worker: tidemill worker{reference}", highlight=False
        )
        raise
    await _report(db, job, errors_to)
    return job


async def _submit(db: Database, settings: Settings, asked: Asked) -> UUID:
    importing, resource = make_importing(db, settings), await _resource(db, settings, asked)
    spec = Submission(KIND, policy=asked.policy)
    if asked.is_remote:
        return (await importing.submit_remote(spec, asked.file, resource, asked.request, asked.words))[0]
    incoming = Incoming(db, open_blobs(settings.blobs))
    blob, name = await _stored(incoming, asked.file)
    try:
        look = await importing.look(blob.id, name=name, given=asked.layout)
        plan = await importing.plan(look, resource, asked.request)
    except BaseException:
        await incoming.drop(blob.id)
        raise
    show_layout(look.layout)
    return (await importing.submit(spec, blob, look, plan, asked.words, name))[0]


async def _resource(db: Database, settings: Settings, asked: Asked) -> Resource:
    return await make_resources(settings, load_mill(asked.app).registry).find(db, asked.into, any_table=True)


async def _preview(db: Database, settings: Settings, asked: Asked, rows: int) -> None:
    if asked.is_remote:
        raise InvalidInput("a preview is of a file that is here")
    await migrate(db)
    importing, resource = make_importing(db, settings), await _resource(db, settings, asked)
    incoming = Incoming(db, open_blobs(settings.blobs))
    blob, name = await _stored(incoming, asked.file)
    try:
        look = await importing.look(blob.id, name=name, given=asked.layout, rows=rows)
    finally:
        await incoming.drop(blob.id)
    normalizers = load_mill(asked.app).registry.normalizers
    show_preview(await look_through(importing, look, resource, asked.request, normalizers))


@asynccontextmanager
async def working(db: Database, kind: str, app: str, processes: int) -> AsyncIterator[None]:
    """Somebody to do the work: those who are there, or else ourselves."""
    if kind in await db.run(workers.live_kinds):
        yield
        return
    worker = make_worker(db, load_mill(app), app, processes)
    await worker.start()
    try:
        yield
    finally:
        await worker.stop()


async def _report(db: Database, job: Job, errors_to: Path | None) -> None:
    if "layout" in job.params:  # of a file that nobody had seen before
        show_layout(job.params["layout"])
    console.print(f"{job.key}  {status_text(job.status)}  {detail(job.counts)} of {job.counts.total:,}")
    if job.failure_reason:
        console.print(f"  [red]{escape(job.failure_reason)}[/]", highlight=False, soft_wrap=True)
    show_effects(job, await db.run(store.effects, job.id))
    if job.counts.failed:
        show_errors([(count, await _sample(db, job, code)) for code, count in _commonest(job)])
    if errors_to is not None:  # also without one: what was there is of another import
        with written(errors_to) as file:
            async for piece in import_errors.csv_file(db, job):
                file.write(piece)
    if errors_to is not None and job.counts.failed:
        console.print(
            f"  mend these rows in [bold]{escape(str(errors_to))}[/] and send them: "
            f"tidemill fix {job.key} {escape(shlex.quote(str(errors_to)))}",
            highlight=False,
            soft_wrap=True,
        )


def _commonest(job: Job) -> list[tuple[str, int]]:
    return sorted(job.codes.items(), key=lambda pair: -pair[1])[:SHOWN_CODES]


async def _sample(db: Database, job: Job, code: str) -> dict[str, Any]:
    page = await inspect.list_items(db, job.id, [ItemStatus.FAILED], limit=1, codes=[code])
    return cast("dict[str, Any]", page.items[0]["error"]) if page.items else {"code": code}


async def _stored(incoming: Incoming, text: str) -> tuple[Blob, str]:
    """A copy of a file, and what that is called."""
    if text in stdin.NAMES:
        with stdin.standard_input() as pieces:
            return await incoming.put(pieces), "stdin"
    path = _existing(text)
    return await incoming.put_file(path), path.name


def _existing(text: str) -> Path:
    """Whatever can be read: a pipe is no file, and has rows all the same."""
    path = Path(text)
    try:
        if path.is_dir():
            raise InvalidInput(f"{text} is a folder")
        if path.exists():
            return path
    except OSError as error:
        raise InvalidInput(f"{text} cannot be read: {error.strerror}") from error
    raise InvalidInput(f"there is no file {text}")


def _one_of(option: str, word: str, known: tuple[str, ...]) -> str:
    if word not in known:
        raise InvalidInput(f"{option} {word!r}: it is {', '.join(known[:-1])} or {known[-1]}")
    return word


def _pair(text: str) -> tuple[str, str]:
    column, found, name = text.rpartition("=")
    if not found:
        raise InvalidInput(f"--map {text!r}: it is COLUMN=FIELD")
    return column, name
