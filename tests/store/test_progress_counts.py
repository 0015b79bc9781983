"""Tests that progress counts are the same before and after a fold, within one snapshot."""

import asyncio

import pytest

from store.scenes import at_once, fail_some, held_up, retry_some, send_round
from support import RETRY, add_job, assert_sound, job_of, rows, settle, take, verdict
from tidemill.core.errors import UnknownJob
from tidemill.core.job import Counts
from tidemill.jobs import job_control
from tidemill.store import job_lifecycle
from tidemill.store import outcome_flush as store
from tidemill.store.database import Database
from tidemill.store.reprocess_items import ReprocessSelection, reprocess_items


async def test_fold_preserves_job_counts_and_codes(db: Database) -> None:
    job_id = await add_job(db, 100, batch_size=10)
    for _ in range(5):
        await fail_some(db, job_id, range(0, 100, 3), wanted=10)
    await retry_some(db, job_id, [55, 56], delay=60)
    before = await job_of(db, job_id)
    assert await db.run(job_lifecycle.fold_tally, job_id) == 6
    after = await job_of(db, job_id)
    assert (after.counts, after.codes) == (before.counts, before.codes)
    assert await rows(db, "SELECT failed, codes FROM tidemill.job_tally") == [(17, {"test": 17})]
    assert await db.run(job_lifecycle.fold_tally, job_id) == 0
    await assert_sound(db)


async def test_fold_during_flush_skips_batch_and_loses_no_counts(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=10)
    await settle(db, await take(db, job_id))
    lease = await take(db, job_id)
    async with db.transaction() as conn:
        await store.flush_outcomes(conn, lease, [verdict(seq) for seq in range(10, 20)], lease_s=30)
        assert await at_once(db.run(job_lifecycle.fold_tally, job_id)) == 1
        assert (await job_of(db, job_id)).counts == Counts(total=20, processing=10, done=10)
    assert await db.run(job_lifecycle.fold_tally, job_id) == 1
    assert (await job_of(db, job_id)).counts == Counts(total=20, done=20)
    await assert_sound(db)


async def test_flush_does_not_wait_for_fold(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=10)
    await settle(db, await take(db, job_id))
    lease = await take(db, job_id)
    async with db.transaction() as conn:
        assert await job_lifecycle.fold_tally(conn, job_id) == 1
        await at_once(settle(db, lease, [verdict(seq, RETRY, delay=60) for seq in range(10, 20)]))
        assert (await job_of(db, job_id)).counts == Counts(total=20, retry_wait=10, done=10)
    await assert_sound(db)


async def test_fold_blocked_by_reprocess_counts_each_batch_once(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [1, 2])
    async with db.transaction() as conn:
        await reprocess_items(conn, job_id, ReprocessSelection())
        folding = await held_up(db, db.run(job_lifecycle.fold_tally, job_id))
    assert await at_once(folding) == 0
    assert (await job_of(db, job_id)).counts == Counts(total=10, pending=2, done=8)
    await assert_sound(db)


async def test_job_counts_add_up_in_every_snapshot_during_work(db: Database) -> None:
    job_id = await add_job(db, 600, batch_size=10)
    finished = asyncio.Event()

    async def look() -> int:
        n = 0
        while not finished.is_set():
            counts = (await job_of(db, job_id)).counts
            assert counts.is_consistent, counts
            n += 1
        return n

    async def fold() -> None:
        while not finished.is_set():
            await db.run(job_lifecycle.fold_tally, job_id)

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


async def test_fold_selects_only_jobs_with_enough_closed_batches(db: Database) -> None:
    many, few = await add_job(db, 30, batch_size=10), await add_job(db, 10)
    for _ in range(3):
        await settle(db, await take(db, many))
    await settle(db, await take(db, few))
    assert await db.run(job_lifecycle.list_jobs_to_fold, 3) == [many]


async def test_fold_of_deleted_job_raises_unknown_job(db: Database) -> None:
    job_id = await add_job(db, 10)
    await settle(db, await take(db, job_id))
    await job_control.delete_job(db, job_id)
    with pytest.raises(UnknownJob):
        await db.run(job_lifecycle.fold_tally, job_id)
    assert await db.run(job_lifecycle.list_jobs_to_fold, 1) == []
