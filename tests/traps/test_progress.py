"""Progress: folded or not, in one snapshot, the sum is the same."""

import asyncio

import pytest

from support import RETRY, add_job, assert_sound, job_of, rows, settle, take, verdict
from tidemill.domain.errors import UnknownJob
from tidemill.domain.job import Counts
from tidemill.operations import control
from tidemill.store import flush as store
from tidemill.store import maintain
from tidemill.store.database import Database
from tidemill.store.reprocess import Choice, reprocess
from traps.scenes import at_once, fail_some, held_up, retry_some, send_round


async def test_a_fold_changes_no_count(db: Database) -> None:
    job_id = await add_job(db, 100, batch_size=10)
    for _ in range(5):
        await fail_some(db, job_id, range(0, 100, 3), wanted=10)
    await retry_some(db, job_id, [55, 56], delay=60)
    before = await job_of(db, job_id)
    assert await db.run(maintain.fold, job_id) == 6
    after = await job_of(db, job_id)
    assert (after.counts, after.codes) == (before.counts, before.codes)
    assert await rows(db, "SELECT failed, codes FROM tidemill.job_tally") == [(17, {"test": 17})]
    assert await db.run(maintain.fold, job_id) == 0
    await assert_sound(db)


async def test_a_flush_under_way_is_not_folded_and_not_lost(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=10)
    await settle(db, await take(db, job_id))
    lease = await take(db, job_id)
    async with db.transaction() as conn:
        await store.flush(conn, lease, [verdict(seq) for seq in range(10, 20)], seconds=30)
        assert await at_once(db.run(maintain.fold, job_id)) == 1
        assert (await job_of(db, job_id)).counts == Counts(total=20, processing=10, done=10)
    assert await db.run(maintain.fold, job_id) == 1
    assert (await job_of(db, job_id)).counts == Counts(total=20, done=20)
    await assert_sound(db)


async def test_a_flush_does_not_wait_for_a_fold(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=10)
    await settle(db, await take(db, job_id))
    lease = await take(db, job_id)
    async with db.transaction() as conn:
        assert await maintain.fold(conn, job_id) == 1
        await at_once(settle(db, lease, [verdict(seq, RETRY, delay=60) for seq in range(10, 20)]))
        assert (await job_of(db, job_id)).counts == Counts(total=20, retry_wait=10, done=10)
    await assert_sound(db)


async def test_a_fold_that_waited_for_a_reprocess_counts_each_batch_once(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [1, 2])
    async with db.transaction() as conn:
        await reprocess(conn, job_id, Choice())
        folding = await held_up(db, db.run(maintain.fold, job_id))
    assert await at_once(folding) == 0
    assert (await job_of(db, job_id)).counts == Counts(total=10, pending=2, done=8)
    await assert_sound(db)


async def test_the_sum_holds_at_every_look_while_everything_moves(db: Database) -> None:
    job_id = await add_job(db, 600, batch_size=10)
    finished = asyncio.Event()

    async def look() -> int:
        n = 0
        while not finished.is_set():
            counts = (await job_of(db, job_id)).counts
            assert counts.add_up, counts
            n += 1
        return n

    async def fold() -> None:
        while not finished.is_set():
            await db.run(maintain.fold, job_id)

    async def work() -> None:
        for i in range(30):
            await fail_some(db, job_id, range(0, 600, 7), wanted=10)
            await retry_some(db, job_id, range(0, 600, 11))
            if i % 5 == 0:
                await send_round(db, job_id)
        finished.set()

    looks, _, _ = await asyncio.gather(look(), fold(), work())
    assert looks > 5
    await assert_sound(db)


async def test_only_jobs_with_enough_closed_batches_are_folded(db: Database) -> None:
    many, few = await add_job(db, 30, batch_size=10), await add_job(db, 10)
    for _ in range(3):
        await settle(db, await take(db, many))
    await settle(db, await take(db, few))
    assert await db.run(maintain.to_fold, 3) == [many]


async def test_a_fold_of_a_job_that_is_gone_says_so(db: Database) -> None:
    job_id = await add_job(db, 10)
    await settle(db, await take(db, job_id))
    await control.delete(db, job_id)
    with pytest.raises(UnknownJob):
        await db.run(maintain.fold, job_id)
    assert await db.run(maintain.to_fold, 1) == []
