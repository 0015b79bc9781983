"""The command `tidemill match`."""

import asyncio
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import parse_result_format_from_suffix
from tidemill.core.job import Job
from tidemill.core.kinds import MATCH_KIND
from tidemill.core.status import JobStatus
from tidemill.enrichment.use_cases import make_match_submission
from tidemill.jobs.cli import WorkerCheck, show_progress_until_closed
from tidemill.jobs.submission import submit_local_file
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import (
    BUILTIN_MILL_REFERENCE,
    make_command_host,
    run_with_runtime,
    silence_logs_unless_configured,
)
from tidemill.terminal.command_options import PolicyOption, parse_policy_option
from tidemill.terminal.console import console, print_job_summary
from tidemill.terminal.streams import check_output_path, open_atomic_output

commands = typer.Typer()


@commands.command("match")
def match_command(
    file: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, help="CSV, TSV, NDJSON, JSON, XLSX or Parquet; may be compressed"),
    ],
    service: Annotated[str, typer.Option(help="A service in tidemill.toml, or the URL of a public service")],
    query: Annotated[str, typer.Option(help="Column with the names to search for")],
    type_: Annotated[str | None, typer.Option("--type", help="Entity type, such as Q5")] = None,
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="PROPERTY=COLUMN",
            help="Column with a property of the entity, such as P569=born; can be repeated",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=50, help="Maximum number of candidates per row")] = 5,
    threshold: Annotated[
        float | None,
        typer.Option(help="Minimum score of a match; by default, the service decides which candidate is a match"),
    ] = None,
    accept_match: Annotated[
        bool | None,
        typer.Option(
            "--accept-match/--no-accept-match",
            help="Accept a candidate that the service marks as a match, even below the threshold",
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STRATEGY",
            help="exact, normalized, without_type, column:NAME, or several of these joined by +. If the option is "
            "repeated, the strategies are used in this order until one finds a match",
        ),
    ] = None,
    not_found_delay: Annotated[
        float | None, typer.Option(min=0, help="Seconds to wait before the next strategy")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the results to this .csv, .xlsx or .ndjson file")
    ] = None,
    policy: PolicyOption = "continue",
    processes: Annotated[
        int,
        typer.Option("--processes", "-p", min=1, max=64, help="Number of worker processes to start if none is running"),
    ] = 1,
) -> None:
    """Match the rows of a file against a reconciliation service. The exit code is 0 only if no row failed."""
    silence_logs_unless_configured()
    options: dict[str, Any] = {
        "service": service,
        "query": query,
        "type": type_,
        "properties": dict(_parse_property_option(text) for text in property_ or []),
        "limit": limit,
        "threshold": threshold,
        "accept_match": accept_match,
        "strategies": strategy or None,
        "not_found_delay": not_found_delay,
    }
    if output is not None:
        parse_result_format_from_suffix(output)
    params = {name: value for name, value in options.items() if value is not None}
    job = run_match(file, params, parse_policy_option(policy), processes=processes, output=output)
    if job.status is not JobStatus.COMPLETED:
        raise typer.Exit(1)


def run_match(
    file: Path, params: dict[str, Any], policy: dict[str, Any], *, processes: int, output: Path | None = None
) -> Job:
    """Match the rows of a file, show the progress, print the counts, and write the results to ``output``."""
    check_output_path(output)

    async def action(runtime: Runtime) -> Job:
        job = await submit_local_file(runtime, make_match_submission(params, policy), file)
        try:
            host = make_command_host()
            async with host.ensure_worker(runtime, MATCH_KIND, BUILTIN_MILL_REFERENCE, processes) as is_own_worker:
                check = None if is_own_worker else WorkerCheck(runtime, MATCH_KIND)
                job = await show_progress_until_closed(runtime, job, check)
                if output is not None:
                    await _export_results_to_file(runtime, job, output)
        except asyncio.CancelledError:
            console.print(f"{job.key} is saved. To continue it, run: tidemill worker", highlight=False)
            raise
        print_job_summary(job)
        if output is not None:
            console.print(f"  {escape(str(output))}", highlight=False, soft_wrap=True)
        return job

    return run_with_runtime(action, migrate=True)


async def _export_results_to_file(runtime: Runtime, job: Job, output: Path) -> None:
    results = await runtime.open_results(job, parse_result_format_from_suffix(output))
    with results, open_atomic_output(output) as file:
        await asyncio.to_thread(shutil.copyfileobj, results, file)


def _parse_property_option(text: str) -> tuple[str, str]:
    name, separator, column = text.partition("=")
    if not separator or not name or not column:
        raise InvalidInput(f'Invalid --property "{text}": must be PROPERTY=COLUMN')
    return name, column
