"""Tests of batch leases: heartbeats never wait, reclaiming is safe, and no lease is held forever."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import psycopg
import pytest

from store.scenes import at_once, batches, expire
from support import RETRY, add_job, assert_sound, eventually, job_of, rows, settle, take, verdict
from tidemill.core.batch import Lease, split_off_suspects
from tidemill.core.job import Counts
from tidemill.engine.maintenance_loop import MaintenanceLoop
from tidemill.store import batch_leases
from tidemill.store import outcome_flush as store
from tidemill.store.batch_leases import BatchClaim, claim_batch
from tidemill.store.database import Connection, Database
from tidemill.store.outcome_flush import FlushResult
from tidemill.store.statements import sql

LONG_S = 20.0  # the maximum wait for a lock that would otherwise never be released
UNTIL = "SELECT lease_until FROM tidemill.batch WHERE id = %s"


@pytest.fixture
async def hasty(tidemill_database: str) -> AsyncIterator[Database]:
    """A database with a statement timeout of one second."""
    async with Database(tidemill_database, size=3, timeout=1.0) as database:
        yield database


async def test_heartbeat_does_not_wait_for_flush(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=10)
    flushing, other = await take(db, job_id, lease=1), await take(db, job_id, lease=1)
    [(before,)] = await rows(db, UNTIL, other.batch_id)
    async with db.transaction() as conn:
        await store.flush_outcomes(conn, flushing, [verdict(0)], lease_s=30)
        both = [flushing.lease_id, other.lease_id]
        assert await at_once(db.run_async_commit(batch_leases.extend_leases, "w1", both, 60)) == 1
    [(after,)] = await rows(db, UNTIL, other.batch_id)
    assert after > before
    assert await db.run(batch_leases.reclaim_expired_leases) == []
    await assert_sound(db)


async def test_flush_extends_its_lease(db: Database) -> None:
    lease = await take(db, await add_job(db, 10), lease=1)
    await settle(db, lease, [verdict(0)])
    left = "SELECT lease_until > tidemill.now() + interval '20 s' FROM tidemill.batch WHERE id = %s"
    assert await rows(db, left, lease.batch_id) == [(True,)]


async def test_heartbeat_never_shortens_lease(db: Database) -> None:
    lease = await take(db, await add_job(db, 10), lease=600)
    before = await rows(db, UNTIL, lease.batch_id)
    await db.run_async_commit(batch_leases.extend_leases, "w1", [lease.lease_id], 1)
    assert await rows(db, UNTIL, lease.batch_id) == before


async def test_heartbeat_does_not_extend_leases_of_other_workers(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=10)
    mine, theirs = await take(db, job_id), await take(db, job_id, worker="w2")
    assert await db.run_async_commit(batch_leases.extend_leases, "w1", [mine.lease_id, theirs.lease_id], 60) == 1


async def test_sweep_postpones_isolated_item_at_random_and_flush_resets_its_expiries(db: Database) -> None:
    job_id = await add_job(db, 1)
    await rows(db, "UPDATE tidemill.batch SET isolated = true, expiries = 20")
    query = """SELECT expiries, extract(epoch FROM not_before - since)::float FROM tidemill.batch
        WHERE state = 'ready' AND expiries > 0"""
    pauses = set()
    for expiries in (21, 22, 23):
        await expire(db, await take(db, job_id))
        await db.run(batch_leases.reclaim_expired_leases)
        [(found, pause)] = await rows(db, query)
        assert found == expiries
        assert 0 <= pause <= batch_leases.POSTPONE_AFTER_EXPIRY_MAX_S + 1
        pauses.add(pause)
        await rows(db, "UPDATE tidemill.batch SET not_before = '2000-01-01' WHERE expiries > 0")
    assert len(pauses) == 3
    await settle(db, await take(db, job_id), [verdict(0, RETRY, delay=0.0)])
    assert await rows(db, query) == []
    await assert_sound(db)


async def test_sweep_skips_expired_lease_during_flush(db: Database) -> None:
    lease = await take(db, await add_job(db, 10))
    await expire(db, lease)
    async with db.transaction() as conn:
        await store.flush_outcomes(conn, lease, [verdict(0)], lease_s=30)
        assert await at_once(db.run(batch_leases.reclaim_expired_leases)) == []
    assert await db.run(batch_leases.reclaim_expired_leases) == []
    await assert_sound(db)


async def hot_updates(conn: Connection) -> int:
    counted = b"SELECT pg_stat_get_xact_tuples_hot_updated('tidemill.batch'::regclass)"
    row = await (await conn.execute(counted)).fetchone()
    assert row is not None
    return int(row[0])


async def test_heartbeat_and_carve_are_hot_updates(db: Database) -> None:
    job_id = await add_job(db, 1_000)
    carved = [await take(db, job_id, 10) for _ in range(10)]
    async with db.transaction() as conn:
        before = await hot_updates(conn)
        assert await batch_leases.extend_leases(conn, "w1", [lease.lease_id for lease in carved], 60) == 10
        assert await claim_batch(conn, BatchClaim(job_id, uuid4(), "w1", item_count=10, lease_seconds=30)) is not None
        assert await hot_updates(conn) - before == 11
    await assert_sound(db)


async def stuck_in_copy(conn: Connection, lease: Lease, said: asyncio.Event) -> None:
    """Suspend a flush during COPY, after its fence has locked the batch."""
    fence = store._build_fence_params(lease) | store._build_tally_params([verdict(0)], 0) | {"lease": 30, "seqs": None}
    await conn.execute(sql("batch/fence"), fence)
    async with conn.cursor() as cursor, cursor.copy(sql("outcome/copy")) as copy:
        await copy.write(f"{lease.job_id}\t0\t0\tdone".encode())
        said.set()
        await asyncio.Event().wait()


async def test_flush_hung_in_copy_loses_its_lock_after_timeout(db: Database, hasty: Database) -> None:
    lease = await take(db, await add_job(db, 10))
    await expire(db, lease)
    said = asyncio.Event()

    async def stop_in_the_middle() -> None:
        async with hasty.transaction() as conn:
            await stuck_in_copy(conn, lease, said)

    stopped = asyncio.ensure_future(stop_in_the_middle())
    await asyncio.wait_for(said.wait(), LONG_S)
    assert await eventually(MaintenanceLoop(hasty, "w2").reclaim_expired_leases, within=LONG_S) == 1
    stopped.cancel()
    await asyncio.gather(stopped, return_exceptions=True)
    assert (await job_of(db, lease.job_id)).counts == Counts(total=10, pending=10)
    await assert_sound(db)


async def test_flush_hung_between_statements_loses_its_lock_after_timeout(db: Database, hasty: Database) -> None:
    lease = await take(db, await add_job(db, 10))
    await expire(db, lease)
    tries = swept = 0

    async def stopped_the_first_time(conn: Connection) -> FlushResult:
        nonlocal tries, swept
        tries += 1
        result = await store.flush_outcomes(conn, lease, [verdict(0)], lease_s=30)
        if not swept:
            swept = await eventually(MaintenanceLoop(hasty, "w2").reclaim_expired_leases, within=LONG_S)
        return result

    assert await asyncio.wait_for(hasty.run(stopped_the_first_time), 2 * LONG_S) is FlushResult.STALE
    assert swept == 1
    assert tries >= 2
    assert (await job_of(db, lease.job_id)).counts == Counts(total=10, pending=10)
    await assert_sound(db)


async def test_statement_timeout_cancels_long_query(hasty: Database) -> None:
    async with hasty.connection() as conn:
        await conn.execute(b"SELECT 1")
    with pytest.raises(psycopg.errors.QueryCanceled):
        async with hasty.transaction() as conn:
            await conn.execute(b"SELECT pg_sleep(5)")


async def test_third_expired_lease_isolates_items_without_counting_crashes(db: Database) -> None:
    job_id = await add_job(db, 10)
    for losses in (1, 2, 3):
        lease = await take(db, job_id)
        assert not lease.isolated
        await expire(db, lease)
        assert await db.run(batch_leases.reclaim_expired_leases) == [(lease.batch_id, job_id, losses)]
    alone = await take(db, job_id)
    assert (alone.isolated, alone.open, alone.crashes) == (True, 1, 0)
    await assert_sound(db)


async def test_flush_resets_lost_lease_count(db: Database) -> None:
    job_id = await add_job(db, 10)
    for _ in range(5):
        lease = await take(db, job_id)
        await settle(db, lease, [verdict((await batches(db, job_id, "done"))[0][0])])
        await expire(db, lease)
        await db.run(batch_leases.reclaim_expired_leases)
    assert await batches(db, job_id, "isolated, losses, open") == [(False, 1, 5)]
    await assert_sound(db)


async def test_split_isolates_suspect_items_but_not_neighbours(db: Database) -> None:
    job_id = await add_job(db, 10)
    lease = await take(db, job_id)
    await db.run(batch_leases.split_batch, lease, split_off_suspects(lease, [4, 7]), crashes=1)
    taken = [await take(db, job_id) for _ in range(5)]
    assert [(t.lo, t.open, t.isolated, t.crashes) for t in taken] == [
        (0, 4, False, 0),
        (4, 1, True, 1),
        (5, 2, False, 0),
        (7, 1, True, 1),
        (8, 2, False, 0),
    ]
    await assert_sound(db)
