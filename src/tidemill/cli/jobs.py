"""Commands about jobs."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill.app import run_in
from tidemill.cli.load import load_mill
from tidemill.cli.service_files import submit_file
from tidemill.cli.views import console, detail, item_line, jobs_table, progress_bar, summary
from tidemill.config import load_settings
from tidemill.connectors.blobs import open_blobs
from tidemill.connectors.detect import PACKED, describe
from tidemill.connectors.layout import FORMATS, KNOWN_FORMATS
from tidemill.domain.errors import Conflict, InvalidInput
from tidemill.domain.job import Job
from tidemill.domain.status import CLOSED, JobStatus, parse_item_status
from tidemill.operations import control, inspect, reprocess, submit
from tidemill.operations.incoming import Incoming
from tidemill.store import jobs as store
from tidemill.store import workers
from tidemill.store.bulk import Operation
from tidemill.store.database import Database
from tidemill.store.reprocess import Choice
from tidemill.store.submit import Submission

commands = typer.Typer()
REFRESH_S = 0.2
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
    reference = _reference(file, format_)

    async def action(db: Database) -> Job:
        if app is not None:
            await db.run(workers.register_kinds, [load_mill(app).registry.get(kind)])
        asked = Submission(kind, params=_json(params), policy=parse_policy(policy), priority=priority)
        if await submit.calls_service(db, asked):
            return await db.run(store.get, await submit_file(db, settings, file, asked, _told(format_)))
        spec = await submit.as_declared(db, asked)
        submit.check(spec)
        blob = await Incoming(db, open_blobs(settings.blobs)).put_file(file)
        source = reference | {"blob": blob.id, "name": file.name}
        job_id, _ = await submit.submit(db, replace(spec, source=source, file_id=blob.id))
        return await db.run(store.get, job_id)

    job = run_in(settings, action)
    if watch:
        follow(job.key)
    else:
        console.print(job.key)


@commands.command("jobs")
def jobs_command(
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 20,
    open_only: Annotated[bool, typer.Option("--open", help="Only jobs that are not closed")] = False,
) -> None:
    """List the newest jobs."""
    statuses = [status for status in JobStatus if status not in CLOSED] if open_only else []

    async def action(db: Database) -> list[Job]:
        return await inspect.newest_jobs(db, limit, statuses=statuses)

    found = run_in(load_settings(), action)
    console.print(jobs_table(found) if found else "No jobs yet. Make one with `tidemill submit KIND FILE`.")


@commands.command("watch")
def watch_command(job: JobArgument) -> None:
    """Follow a job to its end; the exit code is 0 only if it completed."""
    follow(job)


def follow(text: str) -> None:
    """Show a progress bar until the job is closed, then what became of it."""

    async def action(db: Database) -> Job:
        return await show_progress(db, await inspect.find_job(db, text))

    job = run_in(load_settings(), action)
    summary(job)
    if job.status is not JobStatus.COMPLETED:
        raise typer.Exit(1)


async def show_progress(db: Database, job: Job) -> Job:
    with progress_bar() as progress:
        task = progress.add_task("", key=job.key, detail="", total=None)
        while not job.is_closed:
            total = job.counts.total if job.ingest_complete else None
            shown = detail(job.counts, progress.tasks[0].speed)
            shown += " · paused" if job.status is JobStatus.PAUSED else ""
            progress.update(task, total=total, completed=job.counts.settled, detail=shown)
            await asyncio.sleep(REFRESH_S)
            job = await db.run(store.get, job.id)
        progress.update(task, total=job.counts.total, completed=job.counts.settled, detail=detail(job.counts))
    return job


@commands.command()
def pause(job: JobArgument) -> None:
    """Stop taking batches of a job; what is being worked on finishes."""
    _act(job, control.pause, "paused")


@commands.command()
def resume(job: JobArgument) -> None:
    """Go on with a paused job."""
    _act(job, control.resume, "resumed")


@commands.command()
def cancel(job: JobArgument) -> None:
    """Cancel what waits; what is being worked on finishes and keeps its results."""
    _act(job, control.cancel, "cancelling")


@commands.command()
def delete(job: JobArgument, yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False) -> None:
    """Remove a job with all its rows and results."""
    if not yes:
        typer.confirm(f"Remove {job} with all its rows and results?", abort=True)
    _act(job, control.delete, "deleted")


@commands.command("reprocess")
def reprocess_command(
    job: JobArgument,
    status: Annotated[list[str], typer.Option(help="Items of this status; may be repeated")] = ["failed", "not_found"],  # noqa: B006
    code: Annotated[list[str] | None, typer.Option(help="Only failures with this error code; may be repeated")] = None,
    seq: Annotated[list[int] | None, typer.Option(help="Only this item; may be repeated")] = None,
    keep_attempts: Annotated[bool, typer.Option("--keep-attempts", help="Count on from the attempts they had")] = False,
) -> None:
    """Send settled items of a job round again, opening it if it is closed."""
    statuses = [_status(word) for word in status]
    choice = Choice(statuses=statuses, codes=code or None, seqs=seq or None, reset_attempts=not keep_attempts)

    async def action(db: Database) -> Operation:
        found = await inspect.find_job(db, job)
        return await reprocess.reprocess(db, found.id, choice)

    _tell(run_in(load_settings(), action))


@commands.command()
def redrive(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Jobs whose dead letters go round again")],
    code: Annotated[list[str] | None, typer.Option(help="Only failures with this error code; may be repeated")] = None,
) -> None:
    """Send failed items of jobs, and what a failed job had cancelled, round again."""

    async def action(db: Database) -> Operation:
        ids = [str((await inspect.find_job(db, text)).id) for text in jobs]
        return await reprocess.redrive(db, owner_id=None, filters={"jobs": ids, "codes": code or None})

    _tell(run_in(load_settings(), action))


def _tell(operation: Operation) -> None:
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
    wanted = None if status is None else _status(status)

    async def action(db: Database) -> None:
        found = await inspect.find_job(db, job)
        async for item in inspect.walk_items(db, found.id, wanted, most=limit):
            typer.echo(item_line(item))

    run_in(load_settings(), action)


def _act(text: str, act: Any, word: str) -> None:
    async def action(db: Database) -> str:
        job = await inspect.find_job(db, text)
        await act(db, job.id)
        return job.key

    console.print(f"{run_in(load_settings(), action)} {word}")


def _reference(file: Path, said: str | None) -> dict[str, Any]:
    """The format by its name; what a name cannot tell of a text, by a look at it."""
    suffix = file.suffix.lower()
    if said is None and (suffix in PACKED or FORMATS.get(suffix) in ("csv", "tsv", "json")):
        layout = describe(file)
        return {"format": layout["format"], "layout": layout}
    found = said or FORMATS.get(suffix, "")
    if found not in KNOWN_FORMATS:
        what = f"unknown format {said!r}" if said else f"cannot tell the format of {file.name}"
        raise InvalidInput(f"{what}: say --format, one of {', '.join(KNOWN_FORMATS)}")
    return {"format": found}


def _told(format_: str | None) -> dict[str, Any]:
    return {} if format_ is None else {"format": format_}


def _json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise InvalidInput(f"--params is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput("--params is a JSON object")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def parse_policy(text: str) -> dict[str, Any]:
    mode, _, bound = text.partition(":")
    try:
        if bound.endswith("%"):
            return {"mode": mode, "max_percent": float(bound[:-1])}
        return {"mode": mode} | ({"max_failed": int(bound)} if bound else {})
    except ValueError:
        raise InvalidInput(f"--policy {text!r}: the bound is a number or a percentage") from None


def _status(word: str) -> Any:
    try:
        return parse_item_status(word)
    except ValueError as error:
        raise InvalidInput(str(error)) from None
