"""Commands about jobs.

The results of a job as a file here.
"""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tidemill.app.bootstrap import load_mill
from tidemill.app.child_main import make_worker
from tidemill.config import Settings, load_settings
from tidemill.core.errors import Conflict, InvalidInput
from tidemill.core.file_format import ResultFileFormat
from tidemill.core.job import Job
from tidemill.core.status import CLOSED_JOB_STATUSES, JobStatus, parse_item_status
from tidemill.enrichment import use_cases
from tidemill.exports.use_cases import OpenExportFile, open_export_file, submit_result_export
from tidemill.files.blobs import open_blob_store
from tidemill.files.detect import COMPRESSED_SUFFIXES, detect_layout
from tidemill.files.layout import FORMATS_BY_SUFFIX, KNOWN_FORMATS
from tidemill.jobs import job_control, queries, reprocessing, submission
from tidemill.jobs.staged_files import StagedFiles
from tidemill.store import job_records, workers
from tidemill.store import job_records as store
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission
from tidemill.store.open_database import run_with_database
from tidemill.store.operation_records import BulkOperation
from tidemill.store.reprocess_items import ReprocessSelection
from tidemill.terminal.console import (
    console,
    create_job_progress_bar,
    format_job_counts,
    format_job_status,
    print_job_summary,
)
from tidemill.terminal.options import parse_policy_option
from tidemill.terminal.streams import open_atomic_output

commands = typer.Typer()
PROGRESS_REFRESH_S = 0.2
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A job's key, its id, or the beginning of its id")]


@commands.command("submit")
def submit_command(
    kind: Annotated[str, typer.Argument(help="Whose handler runs the rows")],
    file: Annotated[
        Path,
        typer.Argument(
            exists=True, dir_okay=False, help="A .csv, .tsv, .ndjson, .json, .xlsx or .parquet file, a row an item"
        ),
    ],
    app: Annotated[str | None, typer.Option(help="MODULE:NAME of the mill that declares the kind")] = None,
    format_: Annotated[str | None, typer.Option("--format", help="If the name does not say")] = None,
    priority: Annotated[int, typer.Option(help="-100 to 100; each step doubles the share of turns")] = 0,
    policy: Annotated[
        str, typer.Option(help="continue, fail_fast, or tolerate:10 (failures) or tolerate:5% ")
    ] = "continue",
    params: Annotated[str, typer.Option(help="JSON, kept with the job")] = "{}",
    watch: Annotated[bool, typer.Option("--watch", help="Follow it to its end")] = False,
) -> None:
    """Make a job of a file's rows. The file is stored first; workers then read it."""
    settings = load_settings()
    reference = _build_source_reference(file, format_)

    async def action(db: Database) -> Job:
        if app is not None:
            await db.run(workers.register_kinds, [load_mill(app).registry.get(kind)])
        asked = Submission(
            kind, params=_parse_params_option(params), policy=parse_policy_option(policy), priority=priority
        )
        if await use_cases.is_service_submission(db, asked):
            from tidemill.enrichment.cli import submit_service_file  # noqa: PLC0415

            return await db.read(
                store.get_job, await submit_service_file(db, settings, file, asked, _build_layout_override(format_))
            )
        spec = await submission.apply_kind_options(db, asked)
        submission.check_submission(spec)
        blob = await StagedFiles(db, open_blob_store(settings.blobs)).stage_file(file)
        source = reference | {"blob": blob.id, "name": file.name}
        job_id, _ = await submission.submit_job(db, replace(spec, source=source, file_id=blob.id))
        return await db.read(store.get_job, job_id)

    job = run_with_database(settings, action)
    if watch:
        follow_job(job.key)
    else:
        console.print(job.key)


@commands.command("jobs")
def jobs_command(
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 20,
    open_only: Annotated[bool, typer.Option("--open", help="Only jobs that are not closed")] = False,
) -> None:
    """List the newest jobs."""
    statuses = [status for status in JobStatus if status not in CLOSED_JOB_STATUSES] if open_only else []

    async def action(db: Database) -> list[Job]:
        return await queries.list_newest_jobs(db, limit, statuses=statuses)

    found = run_with_database(load_settings(), action)
    console.print(build_jobs_table(found) if found else "No jobs yet. Make one with `tidemill submit KIND FILE`.")


@commands.command("watch")
def watch_command(job: JobArgument) -> None:
    """Follow a job to its end; the exit code is 0 only if it completed."""
    follow_job(job)


def follow_job(job_reference: str) -> None:
    """Show a progress bar until the job is closed, then what became of it."""

    async def action(db: Database) -> Job:
        return await show_progress_until_closed(db, await queries.find_job(db, job_reference))

    job = run_with_database(load_settings(), action)
    print_job_summary(job)
    if job.status is not JobStatus.COMPLETED:
        raise typer.Exit(1)


async def show_progress_until_closed(db: Database, job: Job) -> Job:
    with create_job_progress_bar() as progress:
        task = progress.add_task("", key=job.key, detail="", total=None)
        while not job.is_closed:
            total = job.counts.total if job.ingest_complete else None
            shown = format_job_counts(job.counts, progress.tasks[0].speed)
            shown += " · paused" if job.status is JobStatus.PAUSED else ""
            progress.update(task, total=total, completed=job.counts.settled, detail=shown)
            await asyncio.sleep(PROGRESS_REFRESH_S)
            job = await db.read(store.get_job, job.id)
        progress.update(
            task, total=job.counts.total, completed=job.counts.settled, detail=format_job_counts(job.counts)
        )
    return job


@commands.command()
def pause(job: JobArgument) -> None:
    """Stop taking batches of a job; what is being worked on finishes."""
    _control_job(job, job_control.pause_job, "paused")


@commands.command()
def resume(job: JobArgument) -> None:
    """Go on with a paused job."""
    _control_job(job, job_control.resume_job, "resumed")


@commands.command()
def cancel(job: JobArgument) -> None:
    """Cancel what waits; what is being worked on finishes and keeps its results."""
    _control_job(job, job_control.cancel_job, "cancelling")


@commands.command()
def delete(job: JobArgument, yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False) -> None:
    """Remove a job with all its rows and results."""
    if not yes:
        typer.confirm(f"Remove {job} with all its rows and results?", abort=True)
    _control_job(job, job_control.delete_job, "deleted")


@commands.command("reprocess")
def reprocess_command(
    job: JobArgument,
    status: Annotated[list[str], typer.Option(help="Items of this status; may be repeated")] = ["failed", "not_found"],  # noqa: B006
    code: Annotated[list[str] | None, typer.Option(help="Only failures with this error code; may be repeated")] = None,
    seq: Annotated[list[int] | None, typer.Option(help="Only this item; may be repeated")] = None,
    keep_attempts: Annotated[bool, typer.Option("--keep-attempts", help="Count on from the attempts they had")] = False,
) -> None:
    """Send settled items of a job round again, opening it if it is closed."""
    statuses = [_parse_status_option(word) for word in status]
    choice = ReprocessSelection(
        statuses=statuses, codes=code or None, seqs=seq or None, reset_attempts=not keep_attempts
    )

    async def action(db: Database) -> BulkOperation:
        found = await queries.find_job(db, job)
        return await reprocessing.reprocess_items(db, found.id, choice)

    _print_requeued_count(run_with_database(load_settings(), action))


@commands.command()
def redrive(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Jobs whose dead letters go round again")],
    code: Annotated[list[str] | None, typer.Option(help="Only failures with this error code; may be repeated")] = None,
) -> None:
    """Send failed items of jobs, and what a failed job had cancelled, round again."""

    async def action(db: Database) -> BulkOperation:
        ids = [str((await queries.find_job(db, text)).id) for text in jobs]
        return await reprocessing.redrive_dead_letters(db, owner_id=None, filters={"jobs": ids, "codes": code or None})

    _print_requeued_count(run_with_database(load_settings(), action))


def _print_requeued_count(operation: BulkOperation) -> None:
    if operation.state == "failed":
        raise Conflict(str(operation.error))
    console.print(f"{operation.items:,} items go round again")


@commands.command()
def items(
    job: JobArgument,
    status: Annotated[str | None, typer.Option(help="Only items of this status")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many")] = 50,
) -> None:
    """Print a job's items, one JSON object a line."""
    wanted = None if status is None else _parse_status_option(status)

    async def action(db: Database) -> None:
        found = await queries.find_job(db, job)
        async for item in queries.iterate_items(db, found.id, wanted, limit=limit):
            typer.echo(format_item_json(item))

    run_with_database(load_settings(), action)


def _control_job(text: str, control: Any, result_text: str) -> None:
    async def action(db: Database) -> str:
        job = await queries.find_job(db, text)
        await control(db, job.id)
        return job.key

    console.print(f"{run_with_database(load_settings(), action)} {result_text}")


def _build_source_reference(file: Path, format_name: str | None) -> dict[str, Any]:
    """The format by its name; what a name cannot tell of a text, by a look at it."""
    suffix = file.suffix.lower()
    if format_name is None and (
        suffix in COMPRESSED_SUFFIXES or FORMATS_BY_SUFFIX.get(suffix) in ("csv", "tsv", "json")
    ):
        layout = detect_layout(file)
        return {"format": layout["format"], "layout": layout}
    found = format_name or FORMATS_BY_SUFFIX.get(suffix, "")
    if found not in KNOWN_FORMATS:
        what = f"unknown format {format_name!r}" if format_name else f"cannot tell the format of {file.name}"
        raise InvalidInput(f"{what}: say --format, one of {', '.join(KNOWN_FORMATS)}")
    return {"format": found}


def _build_layout_override(format_: str | None) -> dict[str, Any]:
    return {} if format_ is None else {"format": format_}


def _parse_params_option(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_reject_json_constant)
    except ValueError as error:
        raise InvalidInput(f"--params is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput("--params is a JSON object")
    return value


def _reject_json_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _parse_status_option(word: str) -> Any:
    try:
        return parse_item_status(word)
    except ValueError as error:
        raise InvalidInput(str(error)) from None


def build_jobs_table(jobs: list[Job]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("job", "kind", "status"):
        table.add_column(name, no_wrap=True, overflow="fold")
    for name in ("total", "done", "failed", "open"):
        table.add_column(name, justify="right")
    table.add_column("created")
    for job in jobs:
        created = "" if job.created_at is None else job.created_at.strftime("%Y-%m-%d %H:%M:%S")
        total = f"{job.counts.total:,}" + ("" if job.ingest_complete else "+")
        numbers = [f"{n:,}" for n in (job.counts.done, job.counts.failed, job.counts.open)]
        table.add_row(job.key, escape(job.kind), format_job_status(job.status), total, *numbers, created)
    return table


def format_item_json(item: dict[str, Any]) -> str:
    shown = {
        name: item[name]
        for name in ("seq", "status", "attempts", "error", "result", "input")
        if item.get(name) is not None
    }
    return json.dumps(shown, ensure_ascii=False, default=str)


@asynccontextmanager
async def ensure_worker_runs(db: Database, kind: str, app: str, processes: int) -> AsyncIterator[None]:
    """Somebody to do the work: those who are there, or else ourselves."""
    if kind in await db.read(workers.list_live_kinds):
        yield
        return
    worker = make_worker(db, load_mill(app), app, processes)
    await worker.start()
    try:
        yield
    finally:
        await worker.stop()


RESULT_EXPORT_POLL_S = 0.1


def detect_results_format(output: Path) -> str:
    """By the ending of its name."""
    ending = output.suffix.lower().removeprefix(".")
    if ending not in ResultFileFormat.__members__.values():
        raise InvalidInput(
            f"{output.name}: results are written as {', '.join(f'.{word}' for word in ResultFileFormat)}"
        )
    return ending


async def export_results_to_file(db: Database, settings: Settings, job: Job, output: Path) -> None:
    """Made by a worker, from what is stored; there must be one."""
    export_id, _ = await submit_result_export(
        db, settings, job, format=detect_results_format(output), owner_id=job.owner_id
    )
    export = await db.read(job_records.get_job, export_id)
    while not export.is_closed:
        await asyncio.sleep(RESULT_EXPORT_POLL_S)
        export = await db.read(job_records.get_job, export_id)
    made = await open_export_file(db, open_blob_store(settings.blobs), export)
    await asyncio.to_thread(_copy_export_file, made, output)


def _copy_export_file(made: OpenExportFile, output: Path) -> None:
    with made.file, open_atomic_output(output) as file:
        shutil.copyfileobj(made.file, file)
