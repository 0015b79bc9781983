"""Deleting a job under load: what comes late is refused, nothing of it stays."""

from uuid import UUID, uuid4

import pytest

from support import RETRY, add_job, add_rows, assert_sound, rows, settle, take, try_take, verdict
from tidemill.domain.block import Block
from tidemill.domain.errors import UnknownJob
from tidemill.engine.sweep import Maintenance
from tidemill.operations import control
from tidemill.store import delete, ingest, jobs, leases
from tidemill.store import flush as store
from tidemill.store.claim import claim
from tidemill.store.database import Database
from tidemill.store.flush import Flushed
from tidemill.store.ingest import Chunk
from traps.scenes import at_once, fail_some, held_up


async def left_of(db: Database, job_id: UUID) -> dict[str, int]:
    """Rows of a job that are still somewhere."""
    tables = ("job_tally", "ingest", "batch", "item", "outcome", "item_fix", "deleted_job")
    found = {}
    for table in tables:
        [(found[table],)] = await rows(db, f"SELECT count(*) FROM tidemill.{table} WHERE job_id = %s", job_id)
    return {table: n for table, n in found.items() if n}


async def remove_all(db: Database) -> None:
    while await Maintenance(db, "w1").remove_deleted():
        pass


async def test_everything_of_a_deleted_job_goes(db: Database) -> None:
    job_id, other = await add_job(db, 100), await add_job(db, 10)
    await fail_some(db, job_id, [1])
    await fail_some(db, other, [1])
    await control.delete(db, job_id)
    assert await left_of(db, job_id) == {"item": 100, "outcome": 100, "deleted_job": 1}
    await remove_all(db)
    assert await left_of(db, job_id) == {}
    assert (await left_of(db, other))["outcome"] == 10
    await assert_sound(db)


async def test_rows_go_in_chunks(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete, "CHUNK", 40)
    job_id = await add_job(db, 100)
    await control.delete(db, job_id)
    assert [await db.run(delete.remove_rows, job_id) for _ in range(4)] == [40, 40, 20, 0]
    assert await left_of(db, job_id) == {}


async def test_a_late_flush_is_stale(db: Database) -> None:
    job_id = await add_job(db, 100)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(0)])
    await control.delete(db, job_id)
    late = lease.flushed(1)
    assert await settle(db, late, [verdict(1, RETRY, delay=0)]) is Flushed.STALE
    assert await db.run(leases.release, late) is None
    await remove_all(db)
    assert await left_of(db, job_id) == {}
    await assert_sound(db)


async def test_a_flush_that_is_under_way_leaves_no_orphan(db: Database) -> None:
    job_id = await add_job(db, 100)
    lease = await take(db, job_id)
    async with db.transaction() as conn:
        await store.flush(conn, lease, [verdict(seq, RETRY, delay=0) for seq in range(100)], seconds=30)
        deleting = await held_up(db, control.delete(db, job_id))
    await at_once(deleting)
    await remove_all(db)
    assert await left_of(db, job_id) == {}
    await assert_sound(db)


async def test_a_flush_that_waited_for_the_delete_is_stale(db: Database) -> None:
    job_id = await add_job(db, 100)
    lease = await take(db, job_id)
    async with db.transaction() as conn:
        await delete.delete(conn, job_id)
        late = await held_up(db, settle(db, lease))
    assert await at_once(late) is Flushed.STALE
    await remove_all(db)
    assert await left_of(db, job_id) == {}


async def test_a_claim_that_is_under_way_leaves_no_orphan(db: Database) -> None:
    job_id = await add_job(db, 100)
    async with db.transaction() as conn:
        await claim(conn, job_id, wanted=10, lease_id=uuid4(), lease=30, worker="w1")
        deleting = await held_up(db, control.delete(db, job_id))
    await at_once(deleting)
    assert await try_take(db, job_id) is None
    assert "batch" not in await left_of(db, job_id)
    await assert_sound(db)


async def test_a_chunk_that_is_under_way_leaves_no_orphan(db: Database) -> None:
    job_id, lease_id = await add_rows(db, [], source={"path": "x"}), uuid4()
    await db.run(ingest.take, ["test"], lease_id=lease_id, lease=30, worker="w1")
    chunk = Chunk(0, Block([b"{}"] * 10, {}))
    async with db.transaction() as conn:
        await ingest.append(conn, job_id, lease_id, chunk, lease=30, batch_size=5)
        deleting = await held_up(db, control.delete(db, job_id))
    await at_once(deleting)
    late = Chunk(10, chunk.block)
    assert await db.run(ingest.append, job_id, lease_id, late, lease=30, batch_size=5) is Flushed.STALE
    await db.run(ingest.finish, job_id, lease_id)
    await remove_all(db)
    assert await left_of(db, job_id) == {}


async def test_a_job_is_deleted_once(db: Database) -> None:
    job_id = await add_job(db, 1)
    await control.delete(db, job_id)
    with pytest.raises(UnknownJob):
        await control.delete(db, job_id)
    with pytest.raises(UnknownJob):
        await db.run(jobs.cancel, job_id)
