"""Stored files: kept while a job needs them, removed when none does."""

from uuid import UUID

import pytest

from support import add_rows
from tidemill.config import Settings
from tidemill.connectors.blobs import Blobs, open_blobs
from tidemill.domain.errors import UnknownFile
from tidemill.engine.janitor import Janitor
from tidemill.operations import control
from tidemill.store.database import Database


async def add_file_job(db: Database, blobs: Blobs) -> tuple[UUID, str]:
    blob = blobs.put([b"{}\n"])
    source = {"blob": blob.id, "format": "ndjson"}
    return await add_rows(db, [], source=source, file_id=blob.id), blob.id


async def test_the_file_of_a_deleted_job_goes_and_no_other(db: Database, settings: Settings) -> None:
    blobs = open_blobs(settings.blobs)
    _, needed = await add_file_job(db, blobs)
    job_id, file_id = await add_file_job(db, blobs)
    foreign = blobs.put([b"of a job in another database"])
    assert await Janitor(db, blobs).clean() == []
    await control.delete(db, job_id)
    assert await Janitor(db, blobs).clean() == [file_id]
    assert await Janitor(db, blobs).clean() == []
    for kept in (needed, foreign.id):
        blobs.open(kept).close()
    with pytest.raises(UnknownFile):
        blobs.open(file_id)
