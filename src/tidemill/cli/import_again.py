"""Commands about an import that was made before: sending mended rows, and doing what was only tried."""

from pathlib import Path
from typing import Annotated

import typer

from tidemill.app import make_importing, run_in
from tidemill.cli.imports import finish
from tidemill.cli.jobs import JobArgument
from tidemill.cli.load import PLAIN
from tidemill.cli.views import console
from tidemill.config import load_settings
from tidemill.connectors.blobs import open_blobs
from tidemill.domain.identity import LOCAL_USER
from tidemill.domain.importing import KIND
from tidemill.domain.job import Job
from tidemill.operations import inspect
from tidemill.operations.import_fixes import Mended, fix_rows
from tidemill.operations.import_promote import promote
from tidemill.operations.incoming import Incoming
from tidemill.store import jobs
from tidemill.store.database import Database
from tidemill.store.submit import Submission

commands = typer.Typer()
Processes = Annotated[int, typer.Option("--processes", "-p", min=1, max=64, help="If no worker runs")]
App = Annotated[str, typer.Option(help="MODULE:NAME of a mill that declares normalizers")]
ErrorsTo = Annotated[Path | None, typer.Option("--errors", help="Write the rows that still fail to this CSV")]


@commands.command("fix")
def fix_command(
    job: JobArgument,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="What --errors wrote, mended")],
    errors_to: ErrorsTo = None,
    processes: Processes = 2,
    app: App = PLAIN,
) -> None:
    """Send mended rows of an import back: they are stored as corrections, and only they run again."""
    settings = load_settings()

    async def action(db: Database) -> Job:
        found = await inspect.find_job(db, job)
        incoming = Incoming(db, open_blobs(settings.blobs))
        blob = await incoming.put_file(file)
        sent = Mended(
            blob.id,
            file.name,
            content_type="",
            layout={},
            by=LOCAL_USER,
            request_id=None,
            max_row_bytes=settings.max_row_bytes,
        )
        try:
            operation = await fix_rows(db, make_importing(db, settings), found, sent)
        finally:
            await incoming.drop(blob.id)
        console.print(f"{operation.items:,} rows run again", highlight=False)
        return found

    finish(settings, run_in(settings, action), errors_to=errors_to, processes=processes, app=app)


@commands.command("promote")
def promote_command(job: JobArgument, errors_to: ErrorsTo = None, processes: Processes = 2, app: App = PLAIN) -> None:
    """Do what an import with --validate-only has only tried: the same file, with the corrections made since."""
    settings = load_settings()

    async def action(db: Database) -> Job:
        found = await inspect.find_job(db, job)
        job_id, _ = await promote(db, Incoming(db, open_blobs(settings.blobs)), found, Submission(KIND), by=LOCAL_USER)
        return await db.run(jobs.get, job_id)

    finish(settings, run_in(settings, action), errors_to=errors_to, processes=processes, app=app)
