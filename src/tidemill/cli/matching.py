"""Matching the rows of a file from a terminal."""

import asyncio
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from tidemill.app import run_in
from tidemill.cli.imports import working
from tidemill.cli.jobs import parse_policy, show_progress
from tidemill.cli.load import PLAIN
from tidemill.cli.outputs import expect_to_write
from tidemill.cli.result_files import format_of, write_results
from tidemill.cli.service_files import submit_file
from tidemill.cli.views import console, summary
from tidemill.config import Settings, load_settings
from tidemill.domain.errors import InvalidInput
from tidemill.domain.job import Job
from tidemill.domain.matching import KIND
from tidemill.domain.status import JobStatus
from tidemill.store import jobs
from tidemill.store.database import Database
from tidemill.store.migrate import migrate
from tidemill.store.submit import Submission

commands = typer.Typer()


@commands.command("match")
def match_command(
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="CSV, TSV, NDJSON, JSON, XLSX or Parquet, packed or not")
    ],
    service: Annotated[str, typer.Option(help="A service of tidemill.toml, or the address of a public one")],
    query: Annotated[str, typer.Option(help="The column with the names to look for")],
    type_: Annotated[str | None, typer.Option("--type", help="The type of what is looked for, as in Q5")] = None,
    property_: Annotated[
        list[str] | None, typer.Option("--property", help="PROPERTY=COLUMN, as in P569=born; may be repeated")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=50, help="Candidates for each row, at most")] = 5,
    threshold: Annotated[
        float | None, typer.Option(help="The score of a match; without it, what the service calls a match is one")
    ] = None,
    accept_match: Annotated[
        bool | None, typer.Option("--accept-match/--no-accept-match", help="What the service calls a match is one")
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(help="How to ask, in order: exact, normalized, without_type, column:NAME, a+b; may be repeated"),
    ] = None,
    not_found_delay: Annotated[
        float | None, typer.Option(min=0, help="Seconds before a row is asked for in the next way")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write what was found to this .csv, .xlsx or .ndjson")
    ] = None,
    policy: Annotated[str, typer.Option(help="continue, fail_fast, or tolerate:10 or tolerate:5%")] = "continue",
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, max=64, help="If no worker runs")] = 1,
) -> None:
    """Match the rows of a file against a reconciliation service; the exit code is 0 only if nothing failed."""
    os.environ.setdefault("TIDEMILL_LOG_LEVEL", "error")
    said: dict[str, Any] = {
        "service": service,
        "query": query,
        "type": type_,
        "properties": dict(_pair(text) for text in property_ or []),
        "limit": limit,
        "threshold": threshold,
        "accept_match": accept_match,
        "strategies": strategy or None,
        "not_found_delay": not_found_delay,
    }
    if output is not None:
        format_of(output)
    params = {name: value for name, value in said.items() if value is not None}
    asked = Submission(KIND, params=params, policy=parse_policy(policy))
    job = run_match(load_settings(), file, asked, processes=processes, output=output)
    if job.status is not JobStatus.COMPLETED:
        raise typer.Exit(1)


def run_match(settings: Settings, file: Path, asked: Submission, *, processes: int, output: Path | None = None) -> Job:
    """Match, show how far it is and what became of it."""
    expect_to_write(output)

    async def action(db: Database) -> Job:
        await migrate(db)
        job = await db.run(jobs.get, await submit_file(db, settings, file, asked, {}))
        try:
            async with working(db, KIND, PLAIN, processes):
                job = await show_progress(db, job)
                if output is not None:
                    await write_results(db, settings, job, output)
        except asyncio.CancelledError:
            console.print(f"{job.key} is kept and goes on with the next worker: tidemill worker", highlight=False)
            raise
        summary(job)
        if output is not None:
            console.print(f"  {escape(str(output))}", highlight=False, soft_wrap=True)
        return job

    return run_in(settings, action, check=False)


def _pair(text: str) -> tuple[str, str]:
    name, found, column = text.partition("=")
    if not found or not name or not column:
        raise InvalidInput(f"--property {text!r}: it is PROPERTY=COLUMN")
    return name, column
