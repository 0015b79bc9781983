"""Partitions: there before they are needed, dropped only when every job in them is old."""

import asyncio
from uuid import UUID

import pytest

from support import add_job, assert_sound, job_of, rows, settle, shift_clock, take
from tidemill.domain.errors import Conflict
from tidemill.domain.job import Counts
from tidemill.operations import control
from tidemill.store import jobs, partitions
from tidemill.store.database import Connection, Database
from tidemill.store.partitions import Week
from tidemill.store.statements import sql
from traps.scenes import at_once, fail_some, held_up, send_round

WEEK_S = 7 * 24 * 3600.0
FAR = {"days": 700}


async def ensure(conn: Connection) -> bool:
    row = await (await conn.execute(sql("partition/ensure"), FAR)).fetchone()
    assert row is not None
    return bool(row[0])


async def close_with_a_failure(db: Database) -> UUID:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [1])
    await db.run(jobs.finalize, job_id)
    return job_id


async def week_of(db: Database, job_id: UUID) -> Week:
    """Not the first of all: the database may have been made in the week before."""
    (week,) = [week for week in await db.run(partitions.weeks) if week.lo <= job_id < week.hi]
    return week


async def week_names(db: Database) -> list[str]:
    return [week.name for week in await db.run(partitions.weeks)]


async def test_a_partition_is_made_once(db: Database) -> None:
    assert [await db.run(ensure), await db.run(ensure)] == [True, False]
    assert await db.run(partitions.make_ahead) == 0


async def test_two_that_make_a_partition_at_once_make_one(db: Database) -> None:
    async with db.transaction() as conn:
        assert await ensure(conn) is True
        second = await held_up(db, db.run(ensure))
    assert await at_once(second) is False


async def test_many_that_submit_in_a_new_week_all_succeed(db: Database) -> None:
    await shift_clock(db, "400 days")
    submitted = await asyncio.gather(*(add_job(db, 10) for _ in range(8)))
    assert await rows(db, "SELECT count(*), count(DISTINCT job_id) FROM tidemill.item") == [(80, len(submitted))]
    await assert_sound(db)


async def test_making_a_partition_waits_for_no_reader_and_no_writer(db: Database) -> None:
    job_id = await add_job(db, 10)
    async with db.transaction() as conn:
        await conn.execute(b"SELECT count(*) FROM tidemill.item, tidemill.outcome")
        await conn.execute(b"DELETE FROM tidemill.item WHERE job_id = %s AND seq = 11", [job_id])
        assert await at_once(db.run(ensure)) is True


async def test_there_is_no_default_partition(db: Database) -> None:
    defaults = "SELECT count(*) FROM pg_partitioned_table WHERE partdefid <> 0"
    assert await rows(db, defaults) == [(0,)]


async def test_a_new_partition_has_every_index_of_its_parent(db: Database) -> None:
    await db.run(ensure)
    indexes = (
        "SELECT p.relname, count(*), count(DISTINCT n) FROM (SELECT i.inhparent, (SELECT count(*) FROM pg_index x"
        " WHERE x.indrelid = i.inhrelid) AS n FROM pg_inherits i) s JOIN pg_class p ON p.oid = s.inhparent"
        " WHERE p.relname IN ('item', 'outcome') GROUP BY 1 ORDER BY 1"
    )
    assert [(name, kinds) for name, _, kinds in await rows(db, indexes)] == [("item", 1), ("outcome", 1)]


async def test_ids_are_in_order_of_the_databases_time(db: Database) -> None:
    first = await add_job(db, 1)
    await shift_clock(db, "1 hour")
    second = await add_job(db, 1)
    assert first < second
    assert (first.version, second.version) == (7, 7)
    ahead = "SELECT id >= tidemill.id_at(tidemill.now() - interval '1 min', false) FROM tidemill.job ORDER BY id"
    assert await rows(db, ahead) == [(False,), (True,)]


async def test_a_week_is_dropped_when_all_its_jobs_are_old(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [1])
    await db.run(jobs.finalize, job_id)
    await shift_clock(db, "30 days")
    week = (await week_of(db, job_id)).name
    assert await partitions.purge(db, 2 * WEEK_S) != []
    assert week not in await week_names(db)
    assert await rows(db, "SELECT count(*) FROM tidemill.item WHERE job_id = %s", job_id) == [(0,)]
    job = await job_of(db, job_id)
    assert (job.counts, job.codes) == (Counts(total=10, done=9, failed=1), {"test": 1})
    await assert_sound(db)


async def test_a_purged_job_cannot_be_reprocessed(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [1])
    await db.run(jobs.finalize, job_id)
    await shift_clock(db, "30 days")
    await partitions.purge(db, WEEK_S)
    with pytest.raises(Conflict, match="purged"):
        await send_round(db, job_id)
    assert (await job_of(db, job_id)).is_closed


async def test_a_week_with_an_open_job_stays(db: Database) -> None:
    await close_with_a_failure(db)
    paused = await add_job(db, 10)
    await control.pause(db, paused)
    await shift_clock(db, "60 days")
    week = (await week_of(db, paused)).name
    assert week not in await partitions.purge(db, WEEK_S)
    assert week in await week_names(db)
    await control.resume(db, paused)
    await settle(db, await take(db, paused))
    await assert_sound(db)


async def test_a_week_whose_job_was_closed_lately_stays(db: Database) -> None:
    job_id = await add_job(db, 10)
    await shift_clock(db, "60 days")
    await settle(db, await take(db, job_id))
    await db.run(jobs.finalize, job_id)
    week = (await week_of(db, job_id)).name
    assert week not in await partitions.purge(db, WEEK_S)


async def test_this_week_is_never_dropped(db: Database) -> None:
    await close_with_a_failure(db)
    assert await partitions.purge(db, 0) == []


async def test_a_job_reopened_during_the_purge_keeps_its_rows(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [1])
    await db.run(jobs.finalize, job_id)
    await shift_clock(db, "30 days")
    week = await week_of(db, job_id)
    async with db.transaction() as conn:
        await conn.execute(sql("job/lock"), {"job_id": job_id})
        condemning = await held_up(db, db.run(partitions._condemn, week, WEEK_S))
        await conn.execute(sql("job/reopen"), {"job_id": job_id, "forgiven": 0, "rest": False})
    assert await at_once(condemning) is False
    assert (await job_of(db, job_id)).counts.total == 10


async def test_a_purge_that_was_interrupted_is_finished_by_the_next(db: Database) -> None:
    job_id = await close_with_a_failure(db)
    await shift_clock(db, "30 days")
    week = await week_of(db, job_id)
    assert await db.run(partitions._condemn, week, WEEK_S) is True
    async with db.connection() as conn:
        await conn.execute(f"ALTER TABLE tidemill.item DETACH PARTITION tidemill.item_{week.name}".encode())
    await partitions.purge(db, WEEK_S)
    left = "SELECT count(*) FROM pg_class WHERE relname IN (%s, %s)"
    assert await rows(db, left, f"item_{week.name}", f"outcome_{week.name}") == [(0,)]
