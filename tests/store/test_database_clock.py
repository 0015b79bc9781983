"""Tests of the database clock: it can be shifted, and index conditions can use it."""

from datetime import timedelta

from store.scenes import plan, retry_some, rows_looked_at
from support import add_job, assert_sound, rows, shift_clock, take, try_take
from tidemill.store import batch_leases
from tidemill.store.batch_leases import list_claimable_jobs
from tidemill.store.database import Database


async def test_database_clock_shift_applies_to_all_connections(db: Database) -> None:
    [(before,)] = await rows(db, "SELECT tidemill.now()")
    await shift_clock(db, "3 days")
    [(after,)] = await rows(db, "SELECT tidemill.now()")
    assert timedelta(days=3) <= after - before < timedelta(days=3, minutes=1)


async def test_retry_becomes_due_by_database_clock(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, [1], delay=3_000)
    assert await try_take(db, job_id) is None
    await shift_clock(db, "1 hour")
    assert (await take(db, job_id)).seqs == (1,)
    await assert_sound(db)


async def test_lease_expires_by_database_clock(db: Database) -> None:
    lease = await take(db, await add_job(db, 10), lease=600)
    assert await db.run(batch_leases.reclaim_expired_leases) == []
    await shift_clock(db, "1 hour")
    assert [batch for batch, _, _ in await db.run(batch_leases.reclaim_expired_leases)] == [lease.batch_id]
    await assert_sound(db)


async def test_database_clock_advances_within_transaction(db: Database) -> None:
    async with db.transaction() as conn:
        times = [await (await conn.execute(b"SELECT tidemill.now()")).fetchone() for _ in range(2)]
    assert times[0] != times[1]


async def test_claim_reads_no_rows_of_batches_not_yet_due(db: Database) -> None:
    job_id = await add_job(db, 1)
    await take(db, job_id)
    waiting = (
        "INSERT INTO tidemill.batch (job_id, owner_id, kind, lo, hi, open, not_before)"
        " SELECT %s, 0, 'test', n, n + 1, 1, tidemill.now() + interval '1 hour' FROM generate_series(1, 50000) n"
    )
    await rows(db, waiting, job_id)
    await rows(db, "ANALYZE tidemill.batch")
    shown = await plan(db, "batch/peek", {"job_id": job_id})
    condition = next(line for line in shown.splitlines() if "Index Cond" in line and "not_before" in line)
    assert "not_before <= tidemill.now()" in condition
    assert "Index Scan using batch_claim" in shown
    assert await db.run_async_commit(list_claimable_jobs, ["test"]) == []
    assert (await rows_looked_at(db, "batch/peek", {"job_id": job_id}))["batch"] == 0


async def test_timestamp_column_defaults_use_database_clock(db: Database) -> None:
    defaults = (
        "SELECT table_name, column_name, column_default FROM information_schema.columns WHERE table_schema = 'tidemill'"
        " AND data_type = 'timestamp with time zone' AND column_default IS NOT NULL AND table_name <> 'migration'"
        " AND column_default NOT LIKE 'tidemill.now()' AND column_default NOT LIKE '%%infinity%%'"
    )
    assert await rows(db, defaults) == []
