"""Distributing files from a terminal."""

import csv
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.markup import escape

from tidemill.app import make_datasets, make_distributions, run_in
from tidemill.cli.imports import working
from tidemill.cli.jobs import parse_policy, show_progress
from tidemill.cli.load import PLAIN, load_mill
from tidemill.cli.outputs import expect_to_write, written
from tidemill.cli.views import console, summary
from tidemill.config import Settings, load_settings
from tidemill.domain.distribution import KIND
from tidemill.domain.errors import InvalidInput
from tidemill.domain.form import Compression, FileFormat
from tidemill.domain.identity import Role
from tidemill.domain.job import Job
from tidemill.domain.status import JobStatus
from tidemill.operations.distributions import Wanted, content
from tidemill.store import artifacts, jobs
from tidemill.store.artifacts import Files
from tidemill.store.database import Database
from tidemill.store.migrate import migrate
from tidemill.store.submit import Submission

commands = typer.Typer()
SHOWN = 5


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
    app: Annotated[str, typer.Option(help="MODULE:NAME of a mill that declares datasets")] = PLAIN,
) -> None:
    """Make a file for each input, or use the one that was made before; the exit code is 0 only if all are there."""
    os.environ.setdefault("TIDEMILL_LOG_LEVEL", "error")
    settings = load_settings()
    wanted = Wanted(dataset, read_inputs(inputs), reuse, reuse_days, format_, compression)
    job = run_distribution(settings, wanted, parse_policy(policy), processes=processes, app=app, paths_to=paths_to)
    if job.status is not JobStatus.COMPLETED:
        raise typer.Exit(1)


def run_distribution(
    settings: Settings, wanted: Wanted, policy: dict[str, Any], *, processes: int, app: str, paths_to: Path | None
) -> Job:
    """Distribute, show how far it is and where the files are."""
    expect_to_write(paths_to)

    async def action(db: Database) -> Job:
        await migrate(db)
        job_id = await _submit(db, settings, wanted, policy, app)
        async with working(db, KIND, app, processes):
            job = await show_progress(db, await db.run(jobs.get, job_id))
        await _report(db, job)
        if paths_to is not None:
            with written(paths_to) as file:
                await _write_paths(db, job_id, file)
        return job

    return run_in(settings, action, check=False)


def read_inputs(place: str) -> list[Any]:
    """All of them: they are checked together. A text that begins like JSON is JSON, anything else is CSV."""
    try:
        text = sys.stdin.read() if place == "-" else Path(place).read_text("utf-8-sig")
    except OSError as error:
        raise InvalidInput(f"cannot read {place}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{place} is not UTF-8: {error}") from error
    begins = text.lstrip()[:1]
    try:
        if begins == "[":
            return list(json.loads(text))
        return list(_lines_of(text) if begins == "{" else _rows_of(text))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{place} cannot be read: {error}") from error


def _lines_of(text: str) -> Iterator[Any]:
    for number, line in enumerate(text.split("\n"), 1):
        try:
            if line.strip():
                yield json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"line {number} column {error.colno}: {error.msg}") from error


def _rows_of(text: str) -> Iterator[dict[str, Any]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for number, row in enumerate(reader, 1):
            if None in row:
                raise ValueError(f"row {number} on line {reader.line_num} has more values than its header")
            yield row
    except csv.Error as error:
        raise ValueError(f"line {reader.reader.line_num}: {error}") from error


async def _submit(db: Database, settings: Settings, wanted: Wanted, policy: dict[str, Any], app: str) -> UUID:
    door = make_distributions(settings, make_datasets(settings, load_mill(app).registry))
    spec = Submission(KIND, policy=policy, batch_size=settings.claim_max)
    return (await door.submit(db, spec, wanted, Role.ADMIN))[0]


async def _report(db: Database, job: Job) -> None:
    summary(job)
    files = (await db.run(artifacts.files_of, [job.id])).get(job.id, Files())
    console.print(f"  {files.generated:,} files generated · {files.reused:,} reused", highlight=False)
    for number, one in enumerate((await content(db, job.id, limit=SHOWN)).items, 1):
        if one["path"] is not None:
            console.print(f"  {escape(one['path'])}", highlight=False, soft_wrap=True)
        elif one["error"] is not None:
            given = json.dumps(one["input"], ensure_ascii=False, default=str)
            _show_failure(f"input {number}, {given}: {one['error']['reason']}")
    if files.failure is not None and (files.failed_seq or 0) >= SHOWN:
        _show_failure(files.failure)
    if job.counts.total > SHOWN:
        console.print(f"  and {job.counts.total - SHOWN:,} more: --paths FILE lists all", highlight=False)


def _show_failure(text: str) -> None:
    console.print(f"  [red]{escape(text)}[/]", highlight=False, soft_wrap=True)


async def _write_paths(db: Database, job_id: UUID, file: Any) -> None:
    after: object = None
    while True:
        page = await content(db, job_id, limit=1_000, after=after)
        for one in page.items:
            file.write((json.dumps(one, ensure_ascii=False, default=str) + "\n").encode())
        after = page.after
        if after is None:
            return
