"""Tests of the database clock: it can be shifted, and index conditions can use it."""

from datetime import timedelta

import pytest

from store.scenes import plan, retry_some, rows_looked_at
from support import add_job, assert_sound, rows, shift_clock, take, try_take
from tidemill.engine.maintenance_loop import MaintenanceLoop
from tidemill.limits.limiter import Limiter
from tidemill.limits.limiter_records import declare_limiters
from tidemill.store import batch_leases, duties
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


async def tick_maintenance(db: Database) -> None:
    """Do one round of maintenance, as one of several workers."""
    await MaintenanceLoop(db, "maintainer").tick()


async def test_open_work_continues_after_clock_is_set_back(db: Database) -> None:
    await shift_clock(db, "1 hour")
    ready, retried, leased = await add_job(db, 10), await add_job(db, 10), await add_job(db, 10)
    await retry_some(db, retried, [1], delay=20)
    await take(db, leased, worker="dead", lease=600)
    await tick_maintenance(db)
    await shift_clock(db, "0")
    assert await try_take(db, ready) is None
    await tick_maintenance(db)
    assert (await take(db, ready)).open == 10
    assert await try_take(db, retried) is None, "its delay of 20 s is not over"
    await shift_clock(db, "25 seconds")
    assert (await take(db, retried)).seqs == (1,)
    await shift_clock(db, "11 minutes")
    await tick_maintenance(db)
    assert (await take(db, leased)).open == 10, "the lease of 600 s has expired"
    await assert_sound(db)


async def test_small_clock_corrections_change_no_times(db: Database) -> None:
    await shift_clock(db, "3 seconds")
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, [1], delay=3_000)
    await tick_maintenance(db)
    query = "SELECT id, not_before, since, lease_until FROM tidemill.batch ORDER BY id"
    before = await rows(db, query)
    await shift_clock(db, "0")
    await tick_maintenance(db)
    assert await rows(db, query) == before


async def test_limiter_gives_permits_after_clock_is_set_back(db: Database) -> None:
    await db.run(declare_limiters, [Limiter("api", rate=10)])
    await shift_clock(db, "1 hour")
    await take_permit(db)
    await tick_maintenance(db)
    await shift_clock(db, "0")
    await tick_maintenance(db)
    assert await take_permit(db) < 5


async def take_permit(db: Database) -> float:
    """Take a permit of the limiter. Return the seconds until it may be used."""
    query = "SELECT clock, starts, wait FROM tidemill.take_permits('api', '', 1, 0, 1, 'w', 1, 'm', 0, 0, 0, 30)"
    [(clock, starts, wait)] = await rows(db, query)
    return float(max(starts[0] - clock if starts else 0.0, wait))


async def test_duty_of_dead_worker_is_taken_after_clock_is_set_back(db: Database) -> None:
    await shift_clock(db, "1 hour")
    assert await db.run(duties.take_or_renew_duty, "maintenance", "dead", 10) is not None
    await shift_clock(db, "0")
    taken = await db.run(duties.take_or_renew_duty, "maintenance", "alive", 10)
    assert taken is not None
    assert taken.behind_s == pytest.approx(3_600, abs=60)
