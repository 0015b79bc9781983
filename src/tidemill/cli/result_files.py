"""The results of a job as a file here."""

import asyncio
import shutil
from pathlib import Path

from tidemill.cli.outputs import written
from tidemill.config import Settings
from tidemill.connectors.blobs import open_blobs
from tidemill.domain.errors import InvalidInput
from tidemill.domain.export import Format
from tidemill.domain.job import Job
from tidemill.operations.export import ExportFile, export_file, export_results
from tidemill.store import jobs
from tidemill.store.database import Database

LOOK_S = 0.1


def format_of(output: Path) -> str:
    """By the ending of its name."""
    ending = output.suffix.lower().removeprefix(".")
    if ending not in Format.__members__.values():
        raise InvalidInput(f"{output.name}: results are written as {', '.join(f'.{word}' for word in Format)}")
    return ending


async def write_results(db: Database, settings: Settings, job: Job, output: Path) -> None:
    """Made by a worker, from what is stored; there must be one."""
    export_id, _ = await export_results(db, settings, job, format=format_of(output), owner_id=job.owner_id)
    export = await db.run(jobs.get, export_id)
    while not export.is_closed:
        await asyncio.sleep(LOOK_S)
        export = await db.run(jobs.get, export_id)
    made = await export_file(db, open_blobs(settings.blobs), export)
    await asyncio.to_thread(_copy, made, output)


def _copy(made: ExportFile, output: Path) -> None:
    with made.file, written(output) as file:
        shutil.copyfileobj(made.file, file)
