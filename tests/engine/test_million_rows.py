"""End-to-end test with a file of a million rows."""

import pytest

from support import Workers, add_rows, assert_sound, closed, fates
from tidemill.config import Settings
from tidemill.core.input_source import SourceReference
from tidemill.files.blobs import open_blob_store
from tidemill.store.database import Database


@pytest.mark.parametrize("n", [20_000, pytest.param(1_000_000, marks=pytest.mark.full)])
async def test_large_file_rows_are_each_done_once(n: int, workers: Workers, db: Database, settings: Settings) -> None:
    blob = open_blob_store(settings.blobs).put(b'{"n": %d}\n' % i for i in range(n))
    workers.app("""
        @mill.handler("test")
        async def run(item):
            return item.input["n"]
    """)
    workers.start(processes=2)
    job_id = await add_rows(db, [], source=SourceReference(blob=blob.id, format="ndjson"), file_id=blob.id)
    job = await closed(db, job_id, 300.0)
    assert (job.counts.total, job.counts.done) == (n, n)
    assert await fates(db, job_id) == {("done", None, 1): n}
    await assert_sound(db, job_id)
