"""Tests that partitions are created in advance and dropped only if all their jobs are old."""

import asyncio
from uuid import UUID

import pytest

from store.scenes import at_once, fail_some, held_up, send_round
from support import add_job, assert_sound, close_job_as, job_of, rows, settle, shift_clock, take
from tidemill.core.errors import Conflict
from tidemill.core.job import Counts
from tidemill.jobs import job_control
from tidemill.store import retention
from tidemill.store.database import Connection, Database
from tidemill.store.retention import PartitionWeek
from tidemill.store.statements import sql

WEEK_S = 7 * 24 * 3600.0
FAR = {"days": 700}


async def ensure(conn: Connection) -> bool:
    row = await (await conn.execute(sql("partition/ensure"), FAR)).fetchone()
    assert row is not None
    return bool(row[0])


async def close_with_a_failure(db: Database) -> UUID:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [1])
    await db.run(close_job_as, job_id)
    return job_id


async def week_of(db: Database, job_id: UUID) -> PartitionWeek:
    """Return the week of a job. It need not be the first, because the database may have been created a week earlier."""
    (week,) = [week for week in await db.run(retention.list_partition_weeks) if week.lo <= job_id < week.hi]
    return week


async def week_names(db: Database) -> list[str]:
    return [week.name for week in await db.run(retention.list_partition_weeks)]


async def test_ensure_partition_creates_partition_once(db: Database) -> None:
    assert [await db.run(ensure), await db.run(ensure)] == [True, False]
    assert await db.run(retention.create_missing_partitions) == 0


async def test_concurrent_ensure_partition_creates_one_partition(db: Database) -> None:
    async with db.transaction() as conn:
        assert await ensure(conn) is True
        second = await held_up(db, db.run(ensure))
    assert await at_once(second) is False


async def test_concurrent_submissions_in_new_week_all_succeed(db: Database) -> None:
    await shift_clock(db, "400 days")
    submitted = await asyncio.gather(*(add_job(db, 10) for _ in range(8)))
    assert await rows(db, "SELECT count(*), count(DISTINCT job_id) FROM tidemill.item") == [(80, len(submitted))]
    await assert_sound(db)


async def test_ensure_partition_does_not_wait_for_readers_or_writers(db: Database) -> None:
    job_id = await add_job(db, 10)
    async with db.transaction() as conn:
        await conn.execute(b"SELECT count(*) FROM tidemill.item, tidemill.outcome")
        await conn.execute(b"DELETE FROM tidemill.item WHERE job_id = %s AND seq = 11", [job_id])
        assert await at_once(db.run(ensure)) is True


async def test_partitioned_tables_have_no_default_partition(db: Database) -> None:
    defaults = "SELECT count(*) FROM pg_partitioned_table WHERE partdefid <> 0"
    assert await rows(db, defaults) == [(0,)]


async def test_new_partition_has_all_indexes_of_other_partitions(db: Database) -> None:
    await db.run(ensure)
    indexes = (
        "SELECT p.relname, count(*), count(DISTINCT n) FROM (SELECT i.inhparent, (SELECT count(*) FROM pg_index x"
        " WHERE x.indrelid = i.inhrelid) AS n FROM pg_inherits i) s JOIN pg_class p ON p.oid = s.inhparent"
        " WHERE p.relname IN ('item', 'outcome') GROUP BY 1 ORDER BY 1"
    )
    assert [(name, kinds) for name, _, kinds in await rows(db, indexes)] == [("item", 1), ("outcome", 1)]


async def test_job_ids_are_ordered_by_database_clock(db: Database) -> None:
    first = await add_job(db, 1)
    await shift_clock(db, "1 hour")
    second = await add_job(db, 1)
    assert first < second
    assert (first.version, second.version) == (7, 7)
    ahead = "SELECT id >= tidemill.id_at(tidemill.now() - interval '1 min', false) FROM tidemill.job ORDER BY id"
    assert await rows(db, ahead) == [(False,), (True,)]


async def test_purge_drops_week_partition_when_all_jobs_are_old(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [1])
    await db.run(close_job_as, job_id)
    await shift_clock(db, "30 days")
    week = (await week_of(db, job_id)).name
    assert await retention.purge_old_weeks(db, 2 * WEEK_S) != []
    assert week not in await week_names(db)
    assert await rows(db, "SELECT count(*) FROM tidemill.item WHERE job_id = %s", job_id) == [(0,)]
    job = await job_of(db, job_id)
    assert (job.counts, job.codes) == (Counts(total=10, done=9, failed=1), {"test": 1})
    await assert_sound(db)


async def test_reprocess_of_purged_job_raises_conflict(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [1])
    await db.run(close_job_as, job_id)
    await shift_clock(db, "30 days")
    await retention.purge_old_weeks(db, WEEK_S)
    with pytest.raises(Conflict, match="purged"):
        await send_round(db, job_id)
    assert (await job_of(db, job_id)).is_closed


async def test_purge_keeps_week_with_open_job(db: Database) -> None:
    await close_with_a_failure(db)
    paused = await add_job(db, 10)
    await job_control.pause_job(db, paused)
    await shift_clock(db, "60 days")
    week = (await week_of(db, paused)).name
    assert week not in await retention.purge_old_weeks(db, WEEK_S)
    assert week in await week_names(db)
    await job_control.resume_job(db, paused)
    await settle(db, await take(db, paused))
    await assert_sound(db)


async def test_purge_keeps_week_with_recently_closed_job(db: Database) -> None:
    job_id = await add_job(db, 10)
    await shift_clock(db, "60 days")
    await settle(db, await take(db, job_id))
    await db.run(close_job_as, job_id)
    week = (await week_of(db, job_id)).name
    assert week not in await retention.purge_old_weeks(db, WEEK_S)


async def test_purge_never_drops_current_week(db: Database) -> None:
    await close_with_a_failure(db)
    assert await retention.purge_old_weeks(db, 0) == []


async def test_purge_keeps_rows_of_job_reopened_meanwhile(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [1])
    await db.run(close_job_as, job_id)
    await shift_clock(db, "30 days")
    week = await week_of(db, job_id)
    async with db.transaction() as conn:
        await conn.execute(sql("job/lock"), {"job_id": job_id})
        condemning = await held_up(db, db.run(retention._mark_week_purged_if_old, week, WEEK_S))
        await conn.execute(sql("job/reopen"), {"job_id": job_id, "forgiven": 0, "rest": False})
    assert await at_once(condemning) is False
    assert (await job_of(db, job_id)).counts.total == 10


async def test_interrupted_purge_is_completed_by_next_purge(db: Database) -> None:
    job_id = await close_with_a_failure(db)
    await shift_clock(db, "30 days")
    week = await week_of(db, job_id)
    assert await db.run(retention._mark_week_purged_if_old, week, WEEK_S) is True
    async with db.connection() as conn:
        await conn.execute(f"ALTER TABLE tidemill.item DETACH PARTITION tidemill.item_{week.name}".encode())
    await retention.purge_old_weeks(db, WEEK_S)
    left = "SELECT count(*) FROM pg_class WHERE relname IN (%s, %s)"
    assert await rows(db, left, f"item_{week.name}", f"outcome_{week.name}") == [(0,)]
