"""Tests of the blob cleanup: files are kept while a job needs them."""

from uuid import UUID

import pytest

from support import add_rows
from tidemill.config import Settings
from tidemill.core.errors import UnknownFile
from tidemill.core.input_source import SourceReference
from tidemill.engine.maintenance_loop import BlobCleanupLoop
from tidemill.files.blobs import open_blob_store
from tidemill.files.blobs.blob_store import BlobStore
from tidemill.jobs import job_control
from tidemill.store.database import Database


async def add_file_job(db: Database, blobs: BlobStore) -> tuple[UUID, str]:
    blob = blobs.put([b"{}\n"])
    source = SourceReference(blob=blob.id, format="ndjson")
    return await add_rows(db, [], source=source, file_id=blob.id), blob.id


async def test_blob_cleanup_removes_only_files_of_deleted_jobs(db: Database, settings: Settings) -> None:
    blobs = open_blob_store(settings.blobs)
    _, needed = await add_file_job(db, blobs)
    job_id, file_id = await add_file_job(db, blobs)
    foreign = blobs.put([b"of a job in another database"])
    assert await BlobCleanupLoop(db, blobs).remove_unneeded_blobs() == []
    await job_control.delete_job(db, job_id)
    assert await BlobCleanupLoop(db, blobs).remove_unneeded_blobs() == [file_id]
    assert await BlobCleanupLoop(db, blobs).remove_unneeded_blobs() == []
    for kept in (needed, foreign.id):
        blobs.open(kept).close()
    with pytest.raises(UnknownFile):
        blobs.open(file_id)
