"""Tests of partial flushes: written outcomes stay, the other items run again, and none is counted twice."""

import pytest

from store.scenes import at_once, expire, retry_some, unsettled
from support import FAILED, RETRY, add_job, assert_sound, job_of, rows, settle, take, verdict
from tidemill.core.batch import Lease
from tidemill.store import batch_leases
from tidemill.store import outcome_flush as store
from tidemill.store.database import Database
from tidemill.store.outcome_flush import FlushResult


async def test_reclaimed_range_contains_only_unsettled_items(db: Database) -> None:
    job_id = await add_job(db, 1_000)
    lease = await take(db, job_id)
    finished = [seq for seq in range(1_000) if seq % 5 < 3]  # out of order, as with concurrent items
    await settle(db, lease, [verdict(seq) for seq in finished])
    await expire(db, lease)
    assert [batch for batch, _, _ in await db.run(batch_leases.reclaim_expired_leases)] == [lease.batch_id]
    again = await take(db, job_id, worker="w2")
    assert await unsettled(db, again) == sorted(set(range(1_000)) - set(finished))
    assert again.open == 400
    await settle(db, again, [verdict(seq) for seq in await unsettled(db, again)])
    assert (await job_of(db, job_id)).counts.done == 1_000
    await assert_sound(db)


async def test_reclaimed_retry_list_contains_only_unsettled_items(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, range(10))
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(seq, attempts=2) for seq in (2, 7)])
    await expire(db, lease)
    await db.run(batch_leases.reclaim_expired_leases)
    assert await unsettled(db, await take(db, job_id)) == [0, 1, 3, 4, 5, 6, 8, 9]
    await assert_sound(db)


async def test_partial_flush_repeated_is_counted_once(db: Database) -> None:
    job_id = await add_job(db, 100)
    lease = await take(db, job_id)
    part = [verdict(seq) for seq in range(50)]
    assert await settle(db, lease, part) is FlushResult.APPLIED
    assert await settle(db, lease, part) is FlushResult.ALREADY
    counts = (await job_of(db, job_id)).counts
    assert (counts.done, counts.processing) == (50, 50)
    await assert_sound(db)


async def test_partial_flush_with_retries_repeated_creates_one_retry_list(db: Database) -> None:
    job_id = await add_job(db, 10)
    lease = await take(db, job_id)
    part = [verdict(0, RETRY, delay=60), verdict(1, FAILED)]
    assert [await settle(db, lease, part), await settle(db, lease, part)] == [FlushResult.APPLIED, FlushResult.ALREADY]
    counts = (await job_of(db, job_id)).counts
    assert (counts.retry_wait, counts.failed, counts.processing) == (1, 1, 8)
    await assert_sound(db)


@pytest.mark.parametrize("is_list", [False, True])
async def test_final_flush_repeated_is_already_applied_not_stale(db: Database, is_list: bool) -> None:
    job_id = await add_job(db, 20)
    if is_list:
        await retry_some(db, job_id, range(20))
    lease = await take(db, job_id)
    assert await settle(db, lease) is FlushResult.APPLIED
    assert await settle(db, lease) is FlushResult.ALREADY
    assert (await job_of(db, job_id)).counts.done == 20
    await assert_sound(db)


async def test_partial_flush_replayed_after_newer_one_is_stale(db: Database) -> None:
    job_id = await add_job(db, 30)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(seq) for seq in range(10)])
    await settle(db, lease.with_flushed(10), [verdict(seq) for seq in range(10, 20)])
    assert await settle(db, lease, [verdict(seq) for seq in range(10)]) is FlushResult.STALE
    assert (await job_of(db, job_id)).counts.done == 20
    await assert_sound(db)


async def lost_to_another(db: Database) -> tuple[Lease, Lease]:
    """Return a batch whose first worker lost its lease to a second one halfway."""
    job_id = await add_job(db, 100)
    zombie = await take(db, job_id)
    await expire(db, zombie)
    await db.run(batch_leases.reclaim_expired_leases)
    return zombie, await take(db, job_id, worker="w2")


async def test_flush_with_lost_lease_is_stale_and_writes_nothing(db: Database) -> None:
    zombie, heir = await lost_to_another(db)
    said = [verdict(0, RETRY, delay=0), *(verdict(seq, FAILED) for seq in range(1, 50))]
    assert await settle(db, zombie, said) is FlushResult.STALE
    assert await rows(db, "SELECT count(*) FROM tidemill.outcome") == [(0,)]
    assert await rows(db, "SELECT count(*) FROM tidemill.batch") == [(1,)]
    assert await settle(db, heir) is FlushResult.APPLIED
    assert (await job_of(db, zombie.job_id)).counts.done == 100
    await assert_sound(db)


async def test_flush_with_lost_lease_does_not_wait_for_new_holder(db: Database) -> None:
    zombie, heir = await lost_to_another(db)
    async with db.transaction() as conn:
        assert (
            await store.flush_outcomes(conn, heir, [verdict(seq) for seq in range(100)], lease_s=30)
            is FlushResult.APPLIED
        )
        assert await at_once(settle(db, zombie)) is FlushResult.STALE
    assert (await job_of(db, zombie.job_id)).counts.done == 100
    await assert_sound(db)


async def test_release_split_and_hold_with_lost_lease_are_rejected(db: Database) -> None:
    zombie, heir = await lost_to_another(db)
    assert await db.run(batch_leases.release_rest_of_batch, zombie) is None
    assert await db.run(batch_leases.release_rest_of_batch, zombie, after_crash=True) is None
    assert await db.run(batch_leases.split_batch, zombie, []) is False
    assert await db.run(store.lock_leased_batch, zombie) is None
    assert await db.run(store.lock_leased_batch, heir) is not None
    await assert_sound(db)


async def test_flush_with_expired_lease_applies_if_not_reclaimed(db: Database) -> None:
    lease = await take(db, await add_job(db, 10))
    await expire(db, lease)
    assert await settle(db, lease) is FlushResult.APPLIED
    assert await db.run(batch_leases.reclaim_expired_leases) == []
    await assert_sound(db)


async def test_flush_of_items_outside_lease_fails_and_writes_nothing(db: Database) -> None:
    job_id = await add_job(db, 4)
    await retry_some(db, job_id, [0, 1])
    lease = await take(db, job_id)
    with pytest.raises(Exception, match="check constraint"):
        await settle(db, lease, [verdict(seq) for seq in range(4)])  # more items than the batch has
    assert (await job_of(db, job_id)).counts.processing == 2
    await assert_sound(db)
