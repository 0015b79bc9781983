"""A batch that is written in parts: what was written stays, what was not is run again, nothing counts twice."""

import pytest

from support import FAILED, RETRY, add_job, assert_sound, job_of, rows, settle, take, verdict
from tidemill.domain.batch import Lease
from tidemill.store import flush as store
from tidemill.store import leases
from tidemill.store.database import Database
from tidemill.store.flush import Flushed
from traps.scenes import at_once, expire, retry_some, unsettled


async def test_after_a_crash_only_unsettled_items_are_run_again(db: Database) -> None:
    job_id = await add_job(db, 1_000)
    lease = await take(db, job_id)
    finished = [seq for seq in range(1_000) if seq % 5 < 3]  # out of order, as concurrent items finish
    await settle(db, lease, [verdict(seq) for seq in finished])
    await expire(db, lease)
    assert [batch for batch, _, _ in await db.run(leases.sweep)] == [lease.batch_id]
    again = await take(db, job_id, worker="w2")
    assert await unsettled(db, again) == sorted(set(range(1_000)) - set(finished))
    assert again.open == 400
    await settle(db, again, [verdict(seq) for seq in await unsettled(db, again)])
    assert (await job_of(db, job_id)).counts.done == 1_000
    await assert_sound(db)


async def test_a_list_that_was_lost_in_the_middle_gives_only_the_rest(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, range(10))
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(seq, attempts=2) for seq in (2, 7)])
    await expire(db, lease)
    await db.run(leases.sweep)
    assert await unsettled(db, await take(db, job_id)) == [0, 1, 3, 4, 5, 6, 8, 9]
    await assert_sound(db)


async def test_a_part_whose_answer_was_lost_counts_once(db: Database) -> None:
    job_id = await add_job(db, 100)
    lease = await take(db, job_id)
    part = [verdict(seq) for seq in range(50)]
    assert await settle(db, lease, part) is Flushed.APPLIED
    assert await settle(db, lease, part) is Flushed.ALREADY
    counts = (await job_of(db, job_id)).counts
    assert (counts.done, counts.processing) == (50, 50)
    await assert_sound(db)


async def test_a_part_with_retries_whose_answer_was_lost_makes_one_list(db: Database) -> None:
    job_id = await add_job(db, 10)
    lease = await take(db, job_id)
    part = [verdict(0, RETRY, delay=60), verdict(1, FAILED)]
    assert [await settle(db, lease, part), await settle(db, lease, part)] == [Flushed.APPLIED, Flushed.ALREADY]
    counts = (await job_of(db, job_id)).counts
    assert (counts.retry_wait, counts.failed, counts.processing) == (1, 1, 8)
    await assert_sound(db)


@pytest.mark.parametrize("is_list", [False, True])
async def test_the_last_part_whose_answer_was_lost_is_no_stale_one(db: Database, is_list: bool) -> None:
    job_id = await add_job(db, 20)
    if is_list:
        await retry_some(db, job_id, range(20))
    lease = await take(db, job_id)
    assert await settle(db, lease) is Flushed.APPLIED
    assert await settle(db, lease) is Flushed.ALREADY
    assert (await job_of(db, job_id)).counts.done == 20
    await assert_sound(db)


async def test_a_replay_of_an_older_part_is_refused(db: Database) -> None:
    job_id = await add_job(db, 30)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(seq) for seq in range(10)])
    await settle(db, lease.flushed(10), [verdict(seq) for seq in range(10, 20)])
    assert await settle(db, lease, [verdict(seq) for seq in range(10)]) is Flushed.STALE
    assert (await job_of(db, job_id)).counts.done == 20
    await assert_sound(db)


async def lost_to_another(db: Database) -> tuple[Lease, Lease]:
    """A batch whose first holder lost it, in the middle, to a second one."""
    job_id = await add_job(db, 100)
    zombie = await take(db, job_id)
    await expire(db, zombie)
    await db.run(leases.sweep)
    return zombie, await take(db, job_id, worker="w2")


async def test_a_zombie_is_refused_and_writes_nothing(db: Database) -> None:
    zombie, heir = await lost_to_another(db)
    said = [verdict(0, RETRY, delay=0), *(verdict(seq, FAILED) for seq in range(1, 50))]
    assert await settle(db, zombie, said) is Flushed.STALE
    assert await rows(db, "SELECT count(*) FROM tidemill.outcome") == [(0,)]
    assert await rows(db, "SELECT count(*) FROM tidemill.batch") == [(1,)]
    assert await settle(db, heir) is Flushed.APPLIED
    assert (await job_of(db, zombie.job_id)).counts.done == 100
    await assert_sound(db)


async def test_a_zombie_does_not_wait_for_its_heir(db: Database) -> None:
    zombie, heir = await lost_to_another(db)
    async with db.transaction() as conn:
        assert await store.flush(conn, heir, [verdict(seq) for seq in range(100)], seconds=30) is Flushed.APPLIED
        assert await at_once(settle(db, zombie)) is Flushed.STALE
    assert (await job_of(db, zombie.job_id)).counts.done == 100
    await assert_sound(db)


async def test_a_zombie_cannot_give_back_what_is_no_longer_its_own(db: Database) -> None:
    zombie, heir = await lost_to_another(db)
    assert await db.run(leases.release, zombie) is None
    assert await db.run(leases.release, zombie, speaking_for_the_dead=True) is None
    assert await db.run(leases.split, zombie, []) is False
    assert await db.run(store.hold, zombie) is False
    assert await db.run(store.hold, heir) is True
    await assert_sound(db)


async def test_a_late_lease_that_nobody_took_back_is_still_good(db: Database) -> None:
    lease = await take(db, await add_job(db, 10))
    await expire(db, lease)
    assert await settle(db, lease) is Flushed.APPLIED
    assert await db.run(leases.sweep) == []
    await assert_sound(db)


async def test_a_verdict_that_cannot_be_stored_leaves_no_trace(db: Database) -> None:
    job_id = await add_job(db, 4)
    await retry_some(db, job_id, [0, 1])
    lease = await take(db, job_id)
    with pytest.raises(Exception, match="check constraint"):
        await settle(db, lease, [verdict(seq) for seq in range(4)])  # more than it holds
    assert (await job_of(db, job_id)).counts.processing == 2
    await assert_sound(db)
