"""Stored files: kept while a job needs them, removed when none does."""

from uuid import UUID

from support import add_rows
from tidemill.config import Settings
from tidemill.connectors.blobs import Blobs
from tidemill.engine.janitor import Janitor
from tidemill.operations import control
from tidemill.store.database import Database


async def add_file_job(db: Database, blobs: Blobs) -> tuple[UUID, str]:
    blob = blobs.put([b"{}\n"])
    source = {"blob": blob.id, "format": "ndjson"}
    return await add_rows(db, [], source=source, file_id=blob.id), blob.id


async def test_a_file_that_a_job_needs_is_kept(db: Database, settings: Settings) -> None:
    blobs = Blobs(settings.blobs)
    _, needed = await add_file_job(db, blobs)
    forgotten = blobs.put([b"nobody came"])
    assert await Janitor(db, blobs).clean(age=-1) == [forgotten.id]
    blobs.open(needed).close()


async def test_the_file_of_a_deleted_job_goes(db: Database, settings: Settings) -> None:
    blobs = Blobs(settings.blobs)
    job_id, file_id = await add_file_job(db, blobs)
    await control.delete(db, job_id)
    assert await Janitor(db, blobs).clean(age=-1) == [file_id]


async def test_a_young_file_is_left_alone(db: Database, settings: Settings) -> None:
    blobs = Blobs(settings.blobs)
    blobs.put([b"its job is about to be made"])
    assert await Janitor(db, blobs).clean(age=60) == []
