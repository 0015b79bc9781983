"""Commands for jobs."""

import asyncio
import json
import time
from collections.abc import Iterable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from tidemill.core.decide import HANDLER_FAILURE_CODES
from tidemill.core.errors import Conflict, InvalidInput
from tidemill.core.job import Job
from tidemill.core.status import CLOSED_JOB_STATUSES, ItemStatus, JobStatus, parse_item_status
from tidemill.jobs import administration, job_control, queries, reprocessing
from tidemill.jobs.reprocessing import BulkOperation, ReprocessSelection
from tidemill.jobs.submission import Submission, submit_local_file
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import (
    BUILTIN_MILL_REFERENCE,
    MILL_DEFAULT_HELP,
    find_configured_mill_and_source,
    make_command_host,
    resolve_mill,
    run_with_runtime,
)
from tidemill.terminal.command_options import PolicyOption, is_option_on_command_line, parse_policy_option
from tidemill.terminal.console import (
    JsonOption,
    console,
    create_job_progress_bar,
    format_job_counts,
    format_job_status,
    format_json,
    print_job_summary,
    print_json_lines,
    print_notice,
    print_table,
)

commands = typer.Typer()
PROGRESS_REFRESH_S = 0.2
WORKER_CHECK_INTERVAL_S = 2.0
KIND_COLUMN_WIDTH = 30  # the key, a kind of this length, the longest status and the failures fit 80 columns
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Key, id or id prefix of a job")]


@commands.command("submit")
def submit_command(
    ctx: typer.Context,
    kind: Annotated[str, typer.Argument(help="Kind of the job: the name of the handler that processes its items")],
    file: Annotated[
        Path,
        typer.Argument(
            exists=True,
            dir_okay=False,
            help="A .csv, .tsv, .ndjson, .json, .xlsx or .parquet file; each row becomes an item",
        ),
    ],
    app: Annotated[
        str | None,
        typer.Option(
            callback=resolve_mill,
            show_default=MILL_DEFAULT_HELP,
            help="MODULE:NAME of the mill that declares the kind",
        ),
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="Format of the file; by default, detected from its name")
    ] = None,
    priority: Annotated[
        int, typer.Option(help="From -100 to 100; each step doubles the job's share of its owner's capacity")
    ] = 0,
    policy: PolicyOption = "continue",
    params: Annotated[str, typer.Option(help="JSON object that is stored with the job")] = "{}",
    watch: Annotated[bool, typer.Option("--watch", help="Follow the job until it closes")] = False,
) -> None:
    """Create a job from the rows of a file. The file is stored first, then workers ingest it."""
    request = Submission(
        kind, params=_parse_params_option(params), policy=parse_policy_option(policy), priority=priority
    )

    async def action(runtime: Runtime) -> Job:
        host = make_command_host()
        # A mill of the environment may be another than that of the kind, which a worker then has registered.
        if app is not None and (is_option_on_command_line(ctx, "app") or kind in host.list_mill_kinds(app)):
            await host.register_mill_kind(runtime, app, kind)
        job = await submit_local_file(runtime, request, file, format_)
        if not watch:
            await warn_if_no_worker(runtime, [job.kind], app)
        return job

    job = run_with_runtime(action)
    if watch:
        follow_job(job.key, app=app)
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
    if jobs:
        print_jobs_table(jobs)
    else:
        console.print("No jobs yet. Create one with `tidemill submit KIND FILE`.")


@commands.command("watch")
def watch_command(job: JobArgument, as_json: JsonOption = False) -> None:
    """Follow a job until it closes. The exit code is 0 only if the job completed."""
    follow_job(job, as_json=as_json)


def follow_job(job_reference: str, *, as_json: bool = False, app: str | None = None) -> None:
    """Show the progress of a job until it closes, then a summary. Exit with code 1 unless it completed.

    With ``as_json``, print a JSON object at the start and after each change. ``app`` is the mill of the command.
    """

    async def action(runtime: Runtime) -> Job:
        job = await queries.get_job_by_reference(runtime.db, job_reference)
        show = _print_changes_until_closed if as_json else show_progress_until_closed
        return await show(runtime, job, WorkerCheck(runtime, job.kind, app))

    job = run_with_runtime(action)
    if not as_json:
        print_job_summary(job)
        if job.counts.failed:
            console.print(f"  To see the errors, run: tidemill items {job.key} --status failed", highlight=False)
    if job.status is not JobStatus.COMPLETED:
        raise typer.Exit(1)


class WorkerCheck:
    """Reports on standard error, once per outage, that no running worker serves the kind of a job."""

    def __init__(self, runtime: Runtime, kind: str, app: str | None = None) -> None:
        """``app``: the mill of the command, which the remedy names if it declares the kind."""
        self._runtime, self._kind, self._app = runtime, kind, app
        self._next_check = time.monotonic()
        self._is_reported = False

    async def report_if_no_worker(self, job: Job) -> None:
        """Query the running workers, every two seconds, and report that the job waits for one."""
        if job.is_closed or job.status is JobStatus.PAUSED or time.monotonic() < self._next_check:
            return
        self._next_check = time.monotonic() + WORKER_CHECK_INTERVAL_S
        if self._kind in await administration.list_live_kinds(self._runtime.db):
            self._is_reported = False
        elif not self._is_reported:
            self._is_reported = True
            print_notice(_format_no_worker(self._runtime, self._kind, self._app))


async def warn_if_no_worker(runtime: Runtime, kinds: Iterable[str], app: str | None = None) -> None:
    """Report each kind that no running worker serves."""
    live = await administration.list_live_kinds(runtime.db)
    for kind in sorted({*kinds} - live):
        print_notice(_format_no_worker(runtime, kind, app))


def _format_no_worker(runtime: Runtime, kind: str, app: str | None) -> str:
    command = f"tidemill worker {_choose_worker_argument(runtime, kind, app)}".rstrip()
    return f'No running worker serves the kind "{kind}". The job waits until you start one: {command}'


def _choose_worker_argument(runtime: Runtime, kind: str, app: str | None) -> str:
    """Return the APP argument of a worker that serves the kind: empty for a built-in kind, a placeholder if unknown."""
    if any(kind in feature.handlers for feature in runtime.features):
        return "" if app in (None, BUILTIN_MILL_REFERENCE) else str(app)
    configured = find_configured_mill_and_source()
    for reference in (app, configured[0] if configured else None):
        try:
            if reference is not None and kind in make_command_host().list_mill_kinds(reference):
                return reference
        except InvalidInput:  # the mill of the environment cannot be loaded, and this command does not need it
            continue
    return "MODULE:NAME, where MODULE:NAME is the mill that declares this kind"


async def _print_changes_until_closed(runtime: Runtime, job: Job, worker_check: WorkerCheck) -> Job:
    printed = None
    while True:
        summary = build_job_summary(job)
        if summary != printed:
            print_json_lines([summary])
            printed = summary
        if job.is_closed:
            return job
        await worker_check.report_if_no_worker(job)
        await asyncio.sleep(PROGRESS_REFRESH_S)
        job = await queries.get_job(runtime.db, job.id)


async def show_progress_until_closed(runtime: Runtime, job: Job, worker_check: WorkerCheck | None = None) -> Job:
    """Show a progress bar until the job closes, and return the closed job.

    Without ``worker_check``, the caller runs a worker for the job.
    """
    with create_job_progress_bar() as progress:
        task = progress.add_task("", key=job.key, detail="", time_left="", total=None)
        while not job.is_closed:
            total = job.counts.total if job.ingest_complete else None
            shown = format_job_counts(job.counts, progress.tasks[0].speed)
            shown += " · paused" if job.status is JobStatus.PAUSED else ""
            left = (await queries.get_job_rates(runtime.db, job)).eta_s  # None while the job is paused or has no worker
            time_left = "" if left is None else f"{timedelta(seconds=round(left))} left"
            progress.update(task, total=total, completed=job.counts.settled, detail=shown, time_left=time_left)
            if worker_check is not None:
                await worker_check.report_if_no_worker(job)
            await asyncio.sleep(PROGRESS_REFRESH_S)
            job = await queries.get_job(runtime.db, job.id)
        progress.live.transient = True  # removes the bar of a closed job: the summary follows, with the same counts
    return job


@commands.command()
def pause(job: JobArgument) -> None:
    """Pause a job. Running batches finish."""
    _apply_control_and_print(job, job_control.pause_job, "paused")


@commands.command()
def resume(job: JobArgument) -> None:
    """Resume a paused job."""
    _apply_control_and_print(job, job_control.resume_job, "resumed")


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
    _apply_control_and_print(job, job_control.delete_job, "deleted")


StatusesOption = Annotated[
    list[str], typer.Option("--status", metavar="STATUS", help="Items of this status; can be repeated")
]


@commands.command("reprocess")
def reprocess_command(
    job: JobArgument,
    status: StatusesOption = ["failed", "not_found"],  # noqa: B006
    code: Annotated[
        list[str] | None, typer.Option(metavar="CODE", help="Only failures with this error code; can be repeated")
    ] = None,
    seq: Annotated[
        list[int] | None, typer.Option(metavar="NUMBER", help="Only the item with this number; can be repeated")
    ] = None,
    keep_attempts: Annotated[
        bool, typer.Option("--keep-attempts", help="Keep the attempt counts, and do not run permanent failures again")
    ] = False,
) -> None:
    """Run settled items of one job again, including successful items. To retry failures, use retry."""
    statuses = [_parse_status_option(word) for word in status]
    choice = ReprocessSelection(
        statuses=statuses, codes=code or None, seqs=seq or None, reset_attempts=not keep_attempts
    )

    async def action(runtime: Runtime) -> BulkOperation:
        found = await queries.get_job_by_reference(runtime.db, job)
        operation = await reprocessing.reprocess_items(
            runtime.db, found.id, choice, find_kind_hooks=runtime.find_kind_hooks
        )
        if operation.items:
            await warn_if_no_worker(runtime, [found.kind])
            if ItemStatus.FAILED in statuses:
                _warn_about_invalid_rows(runtime, [found], code)
        await _report_reopened_jobs(runtime, [found])
        return operation

    _print_requeued_count(run_with_runtime(action))


@commands.command()
def retry(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Jobs whose failed items are retried")],
    code: Annotated[
        list[str] | None, typer.Option(metavar="CODE", help="Only failures with this error code; can be repeated")
    ] = None,
) -> None:
    """Retry the failed items of jobs, and items that were cancelled because their job failed."""

    async def action(runtime: Runtime) -> BulkOperation:
        found = [await queries.get_job_by_reference(runtime.db, text) for text in jobs]
        operation = await reprocessing.run_dead_letter_operation(
            runtime.db, owner_id=None, filters={"jobs": [str(job.id) for job in found], "codes": code or None}
        )
        if operation.items:
            await warn_if_no_worker(runtime, [job.kind for job in found])
            _warn_about_invalid_rows(runtime, found, code)
        await _report_reopened_jobs(runtime, found)
        return operation

    _print_requeued_count(run_with_runtime(action))


async def _report_reopened_jobs(runtime: Runtime, before: Iterable[Job]) -> None:
    """Report jobs that ended before their file was read: they are open again, although no item was requeued."""
    for job in before:
        if job.is_closed and not job.ingest_complete and not (await queries.get_job(runtime.db, job.id)).is_closed:
            console.print(f"Reopened {job.key}: workers will resume reading its file", highlight=False)


def _warn_about_invalid_rows(runtime: Runtime, jobs: Iterable[Job], codes: Iterable[str] | None) -> None:
    """Report the jobs whose failures were invalid rows before the requeue."""
    for job in jobs:
        failures = set(job.codes) & set(codes) if codes else set(job.codes)
        invalid = failures - HANDLER_FAILURE_CODES
        hooks = runtime.find_kind_hooks(job.kind)
        if invalid and hooks is not None and hooks.describe_invalid_rows is not None:
            subject = "These are" if invalid == failures else "Some of these are"
            print_notice(f"{subject} {hooks.describe_invalid_rows(job)}")


def _print_requeued_count(operation: BulkOperation) -> None:
    if operation.state == "failed":
        raise Conflict(str(operation.error))
    console.print(f"Requeued {operation.items:,} {'item' if operation.items == 1 else 'items'}")


@commands.command()
def items(
    job: JobArgument,
    status: Annotated[str | None, typer.Option(help="Only items with this status")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of items")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Add the attempts and the traceback of each item")] = False,
) -> None:
    """Print the items of a job, one JSON object per line."""
    selected = None if status is None else _parse_status_option(status)

    async def action(runtime: Runtime) -> None:
        found = await queries.get_job_by_reference(runtime.db, job)
        async for item in queries.iterate_items(runtime.db, found.id, selected, limit=limit, with_details=as_json):
            typer.echo(format_item_json(item))

    run_with_runtime(action)


def _apply_control_and_print(text: str, control: Any, result_text: str) -> None:
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


def print_jobs_table(jobs: list[Job]) -> None:
    rows = []
    for job in jobs:
        created = "" if job.created_at is None else job.created_at.strftime("%Y-%m-%d %H:%M:%S")
        total = f"{job.counts.total:,}" + ("" if job.ingest_complete else "+")
        numbers = [f"{n:,}" for n in (job.counts.done, job.counts.failed, job.counts.open)]
        rows.append((job.key, escape(job.kind), format_job_status(job.status), total, *numbers, created))
    numbers_columns = ("total", "done", "failed", "open")
    print_table(
        ("job", "kind", "status", *numbers_columns, "created"),
        rows,
        numbers=numbers_columns,
        foldable=("kind",),
        hide_first=("created", "open", "done", "total", "kind", "failed"),
        fold_from=KIND_COLUMN_WIDTH,
    )


def format_item_json(item: dict[str, Any]) -> str:
    shown = {
        name: item[name]
        for name in ("seq", "status", "attempts", "error", "attempt_history", "result", "input")
        if item.get(name) is not None
    }
    return format_json(shown)
