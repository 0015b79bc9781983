"""Distributing files from a terminal."""

import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.markup import escape

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import Compression, FileFormat
from tidemill.core.job import Job
from tidemill.core.kinds import DISTRIBUTION_KIND
from tidemill.core.principal import Role
from tidemill.core.status import JobStatus
from tidemill.distributions import artifact_records
from tidemill.distributions.artifact_records import DistributionFileCounts
from tidemill.distributions.use_cases import DistributionSpec, list_distribution_inputs, make_distribution_use_cases
from tidemill.jobs.cli import show_progress_until_closed
from tidemill.runtime import Runtime
from tidemill.store import job_records
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission
from tidemill.terminal.command_host import BUILTIN_MILL_REFERENCE, get_command_host, run_command, silence_logs
from tidemill.terminal.console import console, print_job_summary
from tidemill.terminal.options import parse_policy_option
from tidemill.terminal.streams import check_output_path, open_atomic_output

commands = typer.Typer()
REPORTED_INPUTS_MAX = 5


@commands.command("distribute")
def distribute_command(
    dataset: Annotated[str, typer.Argument(help="A dataset of tidemill.toml, or of the mill")],
    inputs: Annotated[str, typer.Argument(help="A .csv with a header, .ndjson or a JSON array; - for stdin")],
    reuse: Annotated[
        bool | None, typer.Option("--reuse/--no-reuse", help="Use files again that were made; TIDEMILL_REUSE_ENABLED")
    ] = None,
    reuse_days: Annotated[
        int | None, typer.Option(min=0, max=36_500, help="Inputs younger than that are made anew; TIDEMILL_REUSE_DAYS")
    ] = None,
    format_: Annotated[FileFormat | None, typer.Option("--format", help="Instead of the dataset's")] = None,
    compression: Annotated[Compression | None, typer.Option(help="Instead of the dataset's")] = None,
    policy: Annotated[str, typer.Option(help="fail_fast, continue, or tolerate:10 or tolerate:5%")] = "fail_fast",
    paths_to: Annotated[
        Path | None, typer.Option("--paths", help="Write each input and where its file is to this file, as NDJSON")
    ] = None,
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, max=64, help="If no worker runs")] = 2,
    app: Annotated[str, typer.Option(help="MODULE:NAME of a mill that declares datasets")] = BUILTIN_MILL_REFERENCE,
) -> None:
    """Make a file for each input, or use the one that was made before; the exit code is 0 only if all are there."""
    silence_logs()
    wanted = DistributionSpec(dataset, read_distribution_inputs(inputs), reuse, reuse_days, format_, compression)
    job = run_distribution(wanted, parse_policy_option(policy), processes=processes, app=app, paths_to=paths_to)
    if job.status is not JobStatus.COMPLETED:
        raise typer.Exit(1)


def run_distribution(
    request: DistributionSpec,
    policy: dict[str, Any],
    *,
    processes: int,
    app: str,
    paths_to: Path | None,
) -> Job:
    """Distribute, show how far it is and where the files are."""
    check_output_path(paths_to)

    async def action(runtime: Runtime) -> Job:
        db = runtime.db
        job_id = await _submit_distribution(runtime, request, policy)
        async with get_command_host().ensure_worker(runtime, DISTRIBUTION_KIND, app, processes):
            job = await show_progress_until_closed(db, await db.read(job_records.get_job, job_id))
        await _print_distribution_report(db, job)
        if paths_to is not None:
            with open_atomic_output(paths_to) as file:
                await _write_paths(db, job_id, file)
        return job

    return run_command(action, app=app, migrate=True)


def read_distribution_inputs(path: str) -> list[Any]:
    """All of them: they are checked together. A text that begins like JSON is JSON, anything else is CSV."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8-sig")
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8: {error}") from error
    begins = text.lstrip()[:1]
    try:
        if begins == "[":
            return list(json.loads(text))
        return list(_parse_ndjson(text) if begins == "{" else _parse_csv(text))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from error


def _parse_ndjson(text: str) -> Iterator[Any]:
    for number, line in enumerate(text.split("\n"), 1):
        try:
            if line.strip():
                yield json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"line {number} column {error.colno}: {error.msg}") from error


def _parse_csv(text: str) -> Iterator[dict[str, Any]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for number, row in enumerate(reader, 1):
            if None in row:
                raise ValueError(f"row {number} on line {reader.line_num} has more values than its header")
            yield row
    except csv.Error as error:
        raise ValueError(f"line {reader.reader.line_num}: {error}") from error


async def _submit_distribution(runtime: Runtime, request: DistributionSpec, policy: dict[str, Any]) -> UUID:
    spec = Submission(DISTRIBUTION_KIND, policy=policy, batch_size=runtime.settings.claim_max)
    return (await runtime.get(make_distribution_use_cases).submit(runtime.db, spec, request, Role.ADMIN))[0]


async def _print_distribution_report(db: Database, job: Job) -> None:
    print_job_summary(job)
    files = (await db.read(artifact_records.count_distribution_files, [job.id])).get(job.id, DistributionFileCounts())
    console.print(f"  {files.generated:,} files generated · {files.reused:,} reused", highlight=False)
    for number, one in enumerate((await list_distribution_inputs(db, job.id, limit=REPORTED_INPUTS_MAX)).items, 1):
        if one["path"] is not None:
            console.print(f"  {escape(one['path'])}", highlight=False, soft_wrap=True)
        elif one["error"] is not None:
            given = json.dumps(one["input"], ensure_ascii=False, default=str)
            _print_failure(f"input {number}, {given}: {one['error']['reason']}")
    if files.failure_message is not None and (files.failed_seq or 0) >= REPORTED_INPUTS_MAX:
        _print_failure(files.failure_message)
    if job.counts.total > REPORTED_INPUTS_MAX:
        console.print(f"  and {job.counts.total - REPORTED_INPUTS_MAX:,} more: --paths FILE lists all", highlight=False)


def _print_failure(text: str) -> None:
    console.print(f"  [red]{escape(text)}[/]", highlight=False, soft_wrap=True)


async def _write_paths(db: Database, job_id: UUID, file: Any) -> None:
    after: object = None
    while True:
        page = await list_distribution_inputs(db, job_id, limit=1_000, after=after)
        for one in page.items:
            file.write((json.dumps(one, ensure_ascii=False, default=str) + "\n").encode())
        after = page.after
        if after is None:
            return
