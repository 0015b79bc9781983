"""The command `tidemill distribute`."""

import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO
from uuid import UUID

import typer
from rich.markup import escape

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import Compression, FileFormat
from tidemill.core.job import Job
from tidemill.core.kinds import DISTRIBUTION_KIND
from tidemill.core.principal import Role
from tidemill.core.status import JobStatus
from tidemill.distributions.use_cases import (
    Distribution,
    DistributionSpec,
    iterate_distribution_inputs,
    list_distribution_inputs,
    make_distribution_use_cases,
    read_distribution,
)
from tidemill.jobs.cli import WorkerCheck, show_progress_until_closed
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import (
    BUILTIN_MILL_REFERENCE,
    MILL_DEFAULT_HELP,
    make_command_host,
    resolve_mill,
    run_with_runtime,
    silence_logs_unless_configured,
)
from tidemill.terminal.command_options import PolicyOption, parse_policy_option
from tidemill.terminal.console import console, format_json, print_job_summary
from tidemill.terminal.streams import check_output_path, open_atomic_output

commands = typer.Typer()
REPORTED_INPUTS_MAX = 5


@commands.command("distribute")
def distribute_command(
    dataset: Annotated[str, typer.Argument(help="Dataset declared in tidemill.toml or in the mill")],
    inputs: Annotated[
        str, typer.Argument(help="CSV file with a header, NDJSON file or JSON array; - for standard input")
    ],
    reuse: Annotated[
        bool | None, typer.Option("--reuse/--no-reuse", help="Reuse existing files; default: TIDEMILL_REUSE_ENABLED")
    ] = None,
    reuse_days: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=36_500,
            help="Regenerate files of inputs whose date is less than this many days ago; default: TIDEMILL_REUSE_DAYS",
        ),
    ] = None,
    format_: Annotated[
        FileFormat | None, typer.Option("--format", help="File format; default: the dataset's format")
    ] = None,
    compression: Annotated[
        Compression | None, typer.Option(help="File compression; default: the dataset's compression")
    ] = None,
    policy: PolicyOption = "fail_fast",
    paths_to: Annotated[
        Path | None, typer.Option("--paths", help="Write each input and the path of its file to this NDJSON file")
    ] = None,
    processes: Annotated[
        int,
        typer.Option("--processes", "-p", min=1, max=64, help="Number of worker processes to start if none is running"),
    ] = 2,
    app: Annotated[
        str,
        typer.Option(
            callback=resolve_mill,
            show_default=MILL_DEFAULT_HELP,
            help="MODULE:NAME of a mill that declares datasets",
        ),
    ] = BUILTIN_MILL_REFERENCE,
) -> None:
    """Generate or reuse one file for each input. The exit code is 0 only if all files exist."""
    silence_logs_unless_configured()
    wanted = DistributionSpec(
        dataset,
        load_inputs_from_file(inputs),
        reuse_enabled=reuse,
        reuse_days=reuse_days,
        format=format_,
        compression=compression,
        policy=parse_policy_option(policy),
    )
    job = run_distribution(wanted, processes=processes, app=app, paths_to=paths_to)
    if job.status is not JobStatus.COMPLETED:
        raise typer.Exit(1)


def run_distribution(wanted: DistributionSpec, *, processes: int, app: str, paths_to: Path | None) -> Job:
    """Submit a distribution, show progress until it is closed, and print the paths of its files."""
    check_output_path(paths_to)

    async def action(runtime: Runtime) -> Job:
        job_id, _ = await runtime.get(make_distribution_use_cases).submit(runtime.db, wanted, Role.ADMIN)
        distribution = await read_distribution(runtime.db, job_id)
        async with make_command_host().ensure_worker(runtime, DISTRIBUTION_KIND, app, processes) as is_own_worker:
            check = None if is_own_worker else WorkerCheck(runtime, DISTRIBUTION_KIND, app)
            await show_progress_until_closed(runtime, distribution.job, check)
        distribution = await read_distribution(runtime.db, job_id)
        await _print_distribution_report(runtime, distribution)
        if paths_to is not None:
            with open_atomic_output(paths_to) as file:
                await _write_inputs_with_files_as_ndjson(runtime, job_id, file)
        return distribution.job

    return run_with_runtime(action, app=app, migrate=True)


def load_inputs_from_file(path: str) -> list[Any]:
    """Read the inputs in a file: a JSON array if it begins with [, NDJSON if it begins with {, otherwise CSV.

    Raises InvalidInput if the file cannot be read or parsed.
    """
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8-sig")
    except OSError as error:
        raise InvalidInput(f'Cannot read "{path}": {error.strerror}') from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f'"{path}" is not valid UTF-8: {error}') from error
    first_char = text.lstrip()[:1]
    try:
        if first_char == "[":
            return list(json.loads(text))
        return list(_parse_ndjson(text) if first_char == "{" else _parse_csv(text))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f'Cannot parse "{path}": {error}') from error


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
                raise ValueError(f"row {number} on line {reader.line_num} has more values than the header")
            yield row
    except csv.Error as error:
        raise ValueError(f"line {reader.reader.line_num}: {error}") from error


async def _print_distribution_report(runtime: Runtime, distribution: Distribution) -> None:
    job, files = distribution.job, distribution.files
    print_job_summary(job)
    console.print(f"  {files.generated:,} files generated · {files.reused:,} reused", highlight=False)
    page = await list_distribution_inputs(runtime.db, job.id, limit=REPORTED_INPUTS_MAX)
    for number, entry in enumerate(page.items, 1):
        if entry["path"] is not None:
            console.print(f"  {escape(entry['path'])}", highlight=False, soft_wrap=True)
        elif entry["error"] is not None:
            input_text = format_json(entry["input"])
            _print_failure(f"input {number}, {input_text}: {entry['error']['reason']}")
    if files.first_failure_message is not None and (files.failed_seq or 0) >= REPORTED_INPUTS_MAX:
        _print_failure(files.first_failure_message)
    if job.counts.total > REPORTED_INPUTS_MAX:
        console.print(
            f"  and {job.counts.total - REPORTED_INPUTS_MAX:,} more. Use --paths FILE to list all.", highlight=False
        )


def _print_failure(text: str) -> None:
    console.print(f"  [red]{escape(text)}[/]", highlight=False, soft_wrap=True)


async def _write_inputs_with_files_as_ndjson(runtime: Runtime, job_id: UUID, file: BinaryIO) -> None:
    async for entry in iterate_distribution_inputs(runtime.db, job_id):
        file.write((format_json(entry) + "\n").encode())
