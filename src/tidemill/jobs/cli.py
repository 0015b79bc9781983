"""Commands for jobs."""

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tidemill.core.errors import Conflict, InvalidInput
from tidemill.core.job import Job
from tidemill.core.status import CLOSED_JOB_STATUSES, JobStatus, parse_item_status
from tidemill.jobs import job_control, queries, reprocessing
from tidemill.jobs.reprocessing import BulkOperation, ReprocessSelection
from tidemill.jobs.submission import Submission, submit_local_file
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import make_command_host, run_with_runtime
from tidemill.terminal.console import (
    JsonOption,
    console,
    create_job_progress_bar,
    format_job_counts,
    format_job_status,
    parse_policy_option,
    print_job_summary,
    print_json_lines,
)

commands = typer.Typer()
PROGRESS_REFRESH_S = 0.2
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Key, id or id prefix of a job")]


@commands.command("submit")
def submit_command(
    kind: Annotated[str, typer.Argument(help="Kind of the job")],
    file: Annotated[
        Path,
        typer.Argument(
            exists=True,
            dir_okay=False,
            help="A .csv, .tsv, .ndjson, .json, .xlsx or .parquet file; each row becomes an item",
        ),
    ],
    app: Annotated[str | None, typer.Option(help="MODULE:NAME of the mill that declares the kind")] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="Format of the file, if its name does not show it")
    ] = None,
    priority: Annotated[int, typer.Option(help="From -100 to 100; each step doubles the job's share")] = 0,
    policy: Annotated[
        str, typer.Option(help="continue, fail_fast, tolerate:10 (failures) or tolerate:5%")
    ] = "continue",
    params: Annotated[str, typer.Option(help="JSON object that is stored with the job")] = "{}",
    watch: Annotated[bool, typer.Option("--watch", help="Follow the job until it closes")] = False,
) -> None:
    """Create a job from the rows of a file. The file is stored first, then workers ingest it."""
    request = Submission(
        kind, params=_parse_params_option(params), policy=parse_policy_option(policy), priority=priority
    )

    async def action(runtime: Runtime) -> Job:
        if app is not None:
            await make_command_host().save_kind_options(runtime, app, kind)
        return await submit_local_file(runtime, request, file, format_)

    job = run_with_runtime(action)
    if watch:
        follow_job(job.key)
    else:
        console.print(job.key)


@commands.command("jobs")
def jobs_command(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of jobs")] = 20,
    open_only: Annotated[bool, typer.Option("--open", help="Only jobs that are not closed")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the newest jobs."""
    statuses = [status for status in JobStatus if status not in CLOSED_JOB_STATUSES] if open_only else []

    async def action(runtime: Runtime) -> list[Job]:
        return await queries.list_newest_jobs(runtime.db, limit, statuses=statuses)

    jobs = run_with_runtime(action)
    if as_json:
        print_json_lines(build_job_summary(job) for job in jobs)
        return
    console.print(build_jobs_table(jobs) if jobs else "No jobs yet. Create one with `tidemill submit KIND FILE`.")


@commands.command("watch")
def watch_command(job: JobArgument, as_json: JsonOption = False) -> None:
    """Follow a job until it closes. The exit code is 0 only if the job completed."""
    follow_job(job, as_json=as_json)


def follow_job(job_reference: str, *, as_json: bool = False) -> None:
    """Show the progress of a job until it closes, then a summary. Exit with code 1 unless it completed.

    With ``as_json``, print a JSON object at the start and after each change.
    """

    async def action(runtime: Runtime) -> Job:
        job = await queries.get_job_by_reference(runtime.db, job_reference)
        return await (_print_changes_until_closed if as_json else show_progress_until_closed)(runtime, job)

    job = run_with_runtime(action)
    if not as_json:
        print_job_summary(job)
    if job.status is not JobStatus.COMPLETED:
        raise typer.Exit(1)


async def _print_changes_until_closed(runtime: Runtime, job: Job) -> Job:
    printed = None
    while True:
        summary = build_job_summary(job)
        if summary != printed:
            print_json_lines([summary])
            printed = summary
        if job.is_closed:
            return job
        await asyncio.sleep(PROGRESS_REFRESH_S)
        job = await queries.get_job(runtime.db, job.id)


async def show_progress_until_closed(runtime: Runtime, job: Job) -> Job:
    """Show a progress bar until the job closes, and return the closed job."""
    with create_job_progress_bar() as progress:
        task = progress.add_task("", key=job.key, detail="", total=None)
        while not job.is_closed:
            total = job.counts.total if job.ingest_complete else None
            shown = format_job_counts(job.counts, progress.tasks[0].speed)
            shown += " · paused" if job.status is JobStatus.PAUSED else ""
            progress.update(task, total=total, completed=job.counts.settled, detail=shown)
            await asyncio.sleep(PROGRESS_REFRESH_S)
            job = await queries.get_job(runtime.db, job.id)
        progress.update(
            task, total=job.counts.total, completed=job.counts.settled, detail=format_job_counts(job.counts)
        )
    return job


@commands.command()
def pause(job: JobArgument) -> None:
    """Pause a job. Running batches finish."""
    _control_job(job, job_control.pause_job, "paused")


@commands.command()
def resume(job: JobArgument) -> None:
    """Resume a paused job."""
    _control_job(job, job_control.resume_job, "resumed")


@commands.command()
def cancel(job: JobArgument) -> None:
    """Cancel the waiting items of a job. Running items finish and keep their results."""

    async def action(runtime: Runtime) -> str:
        found = await queries.get_job_by_reference(runtime.db, job)
        await job_control.cancel_job(runtime.db, found.id, find_kind_hooks=runtime.find_kind_hooks)
        return found.key

    console.print(f"{run_with_runtime(action)} cancelling")


@commands.command()
def delete(job: JobArgument, yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation")] = False) -> None:
    """Delete a job with all its rows and results."""
    if not yes:
        typer.confirm(f"Delete {job} with all its rows and results?", abort=True)
    _control_job(job, job_control.delete_job, "deleted")


@commands.command("reprocess")
def reprocess_command(
    job: JobArgument,
    status: Annotated[list[str], typer.Option(help="Items of this status; may be repeated")] = ["failed", "not_found"],  # noqa: B006
    code: Annotated[list[str] | None, typer.Option(help="Only failures with this error code; may be repeated")] = None,
    seq: Annotated[list[int] | None, typer.Option(help="Only this item; may be repeated")] = None,
    keep_attempts: Annotated[bool, typer.Option("--keep-attempts", help="Keep the existing attempt counts")] = False,
) -> None:
    """Run settled items of a job again. A closed job is reopened."""
    statuses = [_parse_status_option(word) for word in status]
    choice = ReprocessSelection(
        statuses=statuses, codes=code or None, seqs=seq or None, reset_attempts=not keep_attempts
    )

    async def action(runtime: Runtime) -> BulkOperation:
        found = await queries.get_job_by_reference(runtime.db, job)
        return await reprocessing.reprocess_items(runtime.db, found.id, choice, find_kind_hooks=runtime.find_kind_hooks)

    _print_requeued_count(run_with_runtime(action))


@commands.command()
def redrive(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Jobs whose dead letters are retried")],
    code: Annotated[list[str] | None, typer.Option(help="Only failures with this error code; may be repeated")] = None,
) -> None:
    """Retry the failed items of jobs, and items that were cancelled because their job failed."""

    async def action(runtime: Runtime) -> BulkOperation:
        ids = [str((await queries.get_job_by_reference(runtime.db, text)).id) for text in jobs]
        return await reprocessing.redrive_dead_letters(
            runtime.db, owner_id=None, filters={"jobs": ids, "codes": code or None}
        )

    _print_requeued_count(run_with_runtime(action))


def _print_requeued_count(operation: BulkOperation) -> None:
    if operation.state == "failed":
        raise Conflict(str(operation.error))
    console.print(f"Requeued {operation.items:,} items")


@commands.command()
def items(
    job: JobArgument,
    status: Annotated[str | None, typer.Option(help="Only items with this status")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of items")] = 50,
) -> None:
    """Print the items of a job, one JSON object per line."""
    selected = None if status is None else _parse_status_option(status)

    async def action(runtime: Runtime) -> None:
        found = await queries.get_job_by_reference(runtime.db, job)
        async for item in queries.iterate_items(runtime.db, found.id, selected, limit=limit):
            typer.echo(format_item_json(item))

    run_with_runtime(action)


def _control_job(text: str, control: Any, result_text: str) -> None:
    async def action(runtime: Runtime) -> str:
        job = await queries.get_job_by_reference(runtime.db, text)
        await control(runtime.db, job.id)
        return job.key

    console.print(f"{run_with_runtime(action)} {result_text}")


def _parse_params_option(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_reject_json_constant)
    except ValueError as error:
        raise InvalidInput(f"--params is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput("--params must be a JSON object")
    return value


def _reject_json_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _parse_status_option(word: str) -> Any:
    try:
        return parse_item_status(word)
    except ValueError as error:
        raise InvalidInput(f"--status: {error}") from None


def build_job_summary(job: Job) -> dict[str, Any]:
    """Return a job as the commands print it in JSON."""
    return {
        "id": job.id,
        "key": job.key,
        "kind": job.kind,
        "status": job.status,
        "counts": asdict(job.counts),
        "ingest_complete": job.ingest_complete,
        "created_at": job.created_at,
        "closed_at": job.closed_at,
        "failure_reason": job.failure_reason,
    }


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
