"""Matching the rows of a file from a terminal.

Files whose rows go to services.
"""

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.markup import escape

from tidemill.app.bootstrap import BUILTIN_MILL_REFERENCE
from tidemill.app.build import make_import_use_cases, make_service_use_cases
from tidemill.config import Settings, load_settings
from tidemill.core.errors import InvalidInput
from tidemill.core.job import Job
from tidemill.core.kinds import MATCH_KIND
from tidemill.core.principal import Role
from tidemill.core.status import JobStatus
from tidemill.enrichment.use_cases import check_required_columns
from tidemill.files.blobs import open_blob_store
from tidemill.jobs import submission as submit
from tidemill.jobs.cli import (
    detect_results_format,
    ensure_worker_runs,
    export_results_to_file,
    show_progress_until_closed,
)
from tidemill.jobs.staged_files import StagedFiles
from tidemill.store import job_records
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission
from tidemill.store.migrate import migrate_schema
from tidemill.store.open_database import run_with_database
from tidemill.terminal.console import console, print_job_summary
from tidemill.terminal.options import parse_policy_option
from tidemill.terminal.streams import check_output_path

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
        "properties": dict(_parse_property_option(text) for text in property_ or []),
        "limit": limit,
        "threshold": threshold,
        "accept_match": accept_match,
        "strategies": strategy or None,
        "not_found_delay": not_found_delay,
    }
    if output is not None:
        detect_results_format(output)
    params = {name: value for name, value in said.items() if value is not None}
    asked = Submission(MATCH_KIND, params=params, policy=parse_policy_option(policy))
    job = run_match(load_settings(), file, asked, processes=processes, output=output)
    if job.status is not JobStatus.COMPLETED:
        raise typer.Exit(1)


def run_match(
    settings: Settings, file: Path, submission: Submission, *, processes: int, output: Path | None = None
) -> Job:
    """Match, show how far it is and what became of it."""
    check_output_path(output)

    async def action(db: Database) -> Job:
        await migrate_schema(db)
        job = await db.read(job_records.get_job, await submit_service_file(db, settings, file, submission, {}))
        try:
            async with ensure_worker_runs(db, MATCH_KIND, BUILTIN_MILL_REFERENCE, processes):
                job = await show_progress_until_closed(db, job)
                if output is not None:
                    await export_results_to_file(db, settings, job, output)
        except asyncio.CancelledError:
            console.print(f"{job.key} is kept and goes on with the next worker: tidemill worker", highlight=False)
            raise
        print_job_summary(job)
        if output is not None:
            console.print(f"  {escape(str(output))}", highlight=False, soft_wrap=True)
        return job

    return run_with_database(settings, action, check=False)


def _parse_property_option(text: str) -> tuple[str, str]:
    name, found, column = text.partition("=")
    if not found or not name or not column:
        raise InvalidInput(f"--property {text!r}: it is PROPERTY=COLUMN")
    return name, column


async def submit_service_file(
    db: Database, settings: Settings, file: Path, submission: Submission, layout: dict[str, Any]
) -> UUID:
    """A job of a kind that calls services, of the rows of a file; what it asks for is checked first."""
    spec = make_service_use_cases(settings).prepare_submission(submission, Role.ADMIN)
    submit.check_submission(spec, built_in=True)
    incoming = StagedFiles(db, open_blob_store(settings.blobs))
    blob = await incoming.stage_file(file)
    try:
        look = await make_import_use_cases(db, settings).inspect_file(blob.id, name=file.name, layout_options=layout)
        check_required_columns(spec, () if look.is_named_by_rows else look.columns)
        source = {"blob": blob.id, "format": look.layout["format"], "layout": look.layout, "name": file.name}
        return (await submit.submit_job(db, replace(spec, source=source, file_id=blob.id), built_in=True))[0]
    except InvalidInput:
        await incoming.discard(blob.id)
        raise
