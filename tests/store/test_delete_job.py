"""Tests of deleting a job under load: late writes are rejected and no rows remain."""

from uuid import UUID, uuid4

import pytest

from store.scenes import at_once, fail_some, held_up
from support import RETRY, add_job, add_rows, assert_sound, rows, settle, take, try_take, verdict
from tidemill.core.errors import UnknownJob
from tidemill.core.input_source import InputBlock, SourceReference
from tidemill.engine.maintenance_loop import MaintenanceLoop
from tidemill.jobs import job_control
from tidemill.store import batch_leases, ingestion, job_lifecycle, retention
from tidemill.store import outcome_flush as store
from tidemill.store.batch_leases import BatchClaim, claim_batch
from tidemill.store.database import Database
from tidemill.store.ingestion import IngestChunk
from tidemill.store.outcome_flush import FlushResult


async def left_of(db: Database, job_id: UUID) -> dict[str, int]:
    """Return the remaining rows of a job per table."""
    tables = ("job_tally", "ingest", "batch", "item", "outcome", "item_fix", "deleted_job")
    found = {}
    for table in tables:
        [(found[table],)] = await rows(db, f"SELECT count(*) FROM tidemill.{table} WHERE job_id = %s", job_id)
    return {table: n for table, n in found.items() if n}


async def remove_all(db: Database) -> None:
    while await MaintenanceLoop(db, "w1").remove_row_chunk_of_deleted_jobs():
        pass


async def test_delete_removes_all_rows_of_job_and_of_no_other(db: Database) -> None:
    job_id, other = await add_job(db, 100), await add_job(db, 10)
    await fail_some(db, job_id, [1])
    await fail_some(db, other, [1])
    await job_control.delete_job(db, job_id)
    assert await left_of(db, job_id) == {"item": 100, "outcome": 100, "deleted_job": 1}
    await remove_all(db)
    assert await left_of(db, job_id) == {}
    assert (await left_of(db, other))["outcome"] == 10
    await assert_sound(db)


async def test_deleted_job_rows_are_removed_in_chunks(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "DELETE_CHUNK_ROWS", 40)
    job_id = await add_job(db, 100)
    await job_control.delete_job(db, job_id)
    assert [await db.run(retention.delete_row_chunk_of_deleted_job, job_id) for _ in range(4)] == [40, 40, 20, 0]
    assert await left_of(db, job_id) == {}


async def test_flush_and_release_after_delete_are_stale(db: Database) -> None:
    job_id = await add_job(db, 100)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(0)])
    await job_control.delete_job(db, job_id)
    late = lease.with_flushed(1)
    assert await settle(db, late, [verdict(1, RETRY, delay=0)]) is FlushResult.STALE
    assert await db.run(batch_leases.release_rest_of_batch, late) is None
    await remove_all(db)
    assert await left_of(db, job_id) == {}
    await assert_sound(db)


async def test_delete_during_flush_leaves_no_orphan_rows(db: Database) -> None:
    job_id = await add_job(db, 100)
    lease = await take(db, job_id)
    async with db.transaction() as conn:
        await store.flush_outcomes(conn, lease, [verdict(seq, RETRY, delay=0) for seq in range(100)], lease_s=30)
        deleting = await held_up(db, job_control.delete_job(db, job_id))
    await at_once(deleting)
    await remove_all(db)
    assert await left_of(db, job_id) == {}
    await assert_sound(db)


async def test_flush_blocked_by_delete_is_stale(db: Database) -> None:
    job_id = await add_job(db, 100)
    lease = await take(db, job_id)
    async with db.transaction() as conn:
        await retention.delete_job(conn, job_id)
        late = await held_up(db, settle(db, lease))
    assert await at_once(late) is FlushResult.STALE
    await remove_all(db)
    assert await left_of(db, job_id) == {}


async def test_delete_during_claim_leaves_no_orphan_batch(db: Database) -> None:
    job_id = await add_job(db, 100)
    async with db.transaction() as conn:
        await claim_batch(conn, BatchClaim(job_id, uuid4(), "w1", item_count=10, lease_seconds=30))
        deleting = await held_up(db, job_control.delete_job(db, job_id))
    await at_once(deleting)
    assert await try_take(db, job_id) is None
    assert "batch" not in await left_of(db, job_id)
    await assert_sound(db)


async def test_delete_during_ingest_leaves_no_orphan_rows(db: Database) -> None:
    job_id, lease_id = await add_rows(db, [], source=SourceReference(blob="x")), uuid4()
    await db.run(ingestion.take_ingest_lease, ["test"], lease_id=lease_id, lease=30, worker="w1")
    chunk = IngestChunk(0, InputBlock([b"{}"] * 10, {}))
    async with db.transaction() as conn:
        await ingestion.append_chunk(conn, job_id, lease_id, chunk, lease=30, batch_size=5)
        deleting = await held_up(db, job_control.delete_job(db, job_id))
    await at_once(deleting)
    late = IngestChunk(10, chunk.block)
    assert await db.run(ingestion.append_chunk, job_id, lease_id, late, lease=30, batch_size=5) is FlushResult.STALE
    await db.run(ingestion.finish_ingest, job_id, lease_id)
    await remove_all(db)
    assert await left_of(db, job_id) == {}


async def test_delete_or_cancel_of_deleted_job_raises_unknown_job(db: Database) -> None:
    job_id = await add_job(db, 1)
    await job_control.delete_job(db, job_id)
    with pytest.raises(UnknownJob):
        await job_control.delete_job(db, job_id)
    with pytest.raises(UnknownJob):
        await db.run(job_lifecycle.cancel_job, job_id)
