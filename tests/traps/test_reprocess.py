"""Items that go round again: each once, with its count taken back."""

import pytest

from support import FAILED, add_job, assert_sound, job_of, rows, settle, take, try_take, verdict
from tidemill.domain.errors import UnknownJob
from tidemill.domain.job import Counts
from tidemill.domain.status import ItemStatus, JobStatus
from tidemill.operations import control
from tidemill.operations.reprocess import redrive
from tidemill.store import delete, jobs, leases, maintain
from tidemill.store.database import Database
from tidemill.store.inspect import get_item
from tidemill.store.items import read
from tidemill.store.reprocess import Choice, reprocess
from traps.scenes import at_once, batches, fail_some, held_up, retry_some, send_round, status_of, unsettled

CANCELLED = Choice(statuses=[ItemStatus.CANCELLED])


async def test_two_calls_at_once_take_each_item_once(db: Database) -> None:
    job_id = await add_job(db, 100)
    await fail_some(db, job_id, range(40))
    async with db.transaction() as conn:
        assert (await reprocess(conn, job_id, Choice()))[0] == 40
        second = await held_up(db, send_round(db, job_id))
    assert await at_once(second) == 0
    assert (await job_of(db, job_id)).counts == Counts(total=100, pending=40, done=60)
    await assert_sound(db)


async def test_two_calls_with_different_choices_share_the_items(db: Database) -> None:
    job_id = await add_job(db, 100)
    await fail_some(db, job_id, range(40))
    async with db.transaction() as conn:
        assert (await reprocess(conn, job_id, Choice(seqs=range(30))))[0] == 30
        second = await held_up(db, send_round(db, job_id, Choice(seqs=range(20, 50))))
    assert await at_once(second) == 10
    await assert_sound(db)


async def test_many_items_go_into_lists_of_bounded_length(db: Database) -> None:
    job_id = await add_job(db, 2_500, batch_size=2_500)
    await fail_some(db, job_id, range(2_500), wanted=2_500)
    assert await send_round(db, job_id) == 2_500
    assert [len(seqs) for (seqs,) in await batches(db, job_id, "seqs") if seqs] == [1_000, 1_000, 500]
    await assert_sound(db)


async def test_a_closed_job_is_open_again_and_ends_again(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [1, 2])
    assert await db.run(jobs.finalize, job_id) is JobStatus.COMPLETED_WITH_ERRORS
    assert await send_round(db, job_id) == 2
    assert (await job_of(db, job_id)).status is JobStatus.RUNNING
    lease = await take(db, job_id)
    assert [item.attempt for item in await db.run(read, lease)] == [1, 1]
    assert await status_of(db, job_id, 1) == "processing"
    await settle(db, lease)
    assert await db.run(jobs.finalize, job_id) is JobStatus.COMPLETED
    assert (await job_of(db, job_id)).codes == {}
    await assert_sound(db)


async def test_attempts_go_on_when_they_are_not_reset(db: Database) -> None:
    job_id = await add_job(db, 2)
    await settle(db, await take(db, job_id), [verdict(0, FAILED, attempts=1), verdict(1, FAILED, attempts=3)])
    assert await send_round(db, job_id, Choice(reset_attempts=False, max_attempts=3)) == 1
    assert [(item.seq, item.attempt) for item in await db.run(read, await take(db, job_id))] == [(0, 2)]
    await assert_sound(db)


async def test_an_error_still_says_which_attempt_it_was_when_attempts_begin_anew(db: Database) -> None:
    job_id = await add_job(db, 1)
    await settle(db, await take(db, job_id), [verdict(0, FAILED, attempts=3)])
    assert await send_round(db, job_id, Choice()) == 1
    item = await db.run(get_item, job_id, 0)
    assert (item["status"], item["attempts"], item["error"]["attempt"]) == ("pending", 0, 3)


async def test_a_choice_of_nothing_leaves_a_closed_job_closed(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [1])
    await db.run(jobs.finalize, job_id)
    assert await send_round(db, job_id, Choice(codes=["other"])) == 0
    assert (await job_of(db, job_id)).status is JobStatus.COMPLETED_WITH_ERRORS
    await assert_sound(db)


async def test_cancelled_ranges_come_back_with_what_was_open_in_them(db: Database) -> None:
    job_id = await add_job(db, 30, batch_size=10)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(0), verdict(1, FAILED)])
    await db.run(leases.release, lease.flushed(2))
    await db.run(jobs.cancel, job_id)
    await db.run(maintain.cancel_condemned, job_id)
    assert await db.run(jobs.finalize, job_id) is JobStatus.CANCELLED
    assert await send_round(db, job_id, CANCELLED) == 28
    job = await job_of(db, job_id)
    assert (job.counts, job.codes) == (Counts(total=30, pending=28, done=1, failed=1), {"test": 1})
    await assert_sound(db)
    while (back := await try_take(db, job_id)) is not None:
        await settle(db, back, [verdict(seq) for seq in await unsettled(db, back)])
    assert await db.run(jobs.finalize, job_id) is JobStatus.COMPLETED_WITH_ERRORS
    assert (await job_of(db, job_id)).counts == Counts(total=30, done=29, failed=1)
    await assert_sound(db)


async def test_cancelled_lists_and_ranges_come_back_together(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=10)
    await retry_some(db, job_id, [3, 4], delay=60)
    await control.cancel(db, job_id)
    assert await send_round(db, job_id, CANCELLED) == 12
    assert (await job_of(db, job_id)).counts == Counts(total=20, pending=12, done=8)
    await assert_sound(db)


async def test_a_job_can_be_cancelled_and_brought_back_again_and_again(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=10)
    await retry_some(db, job_id, [3], delay=60)
    for _ in range(3):
        await control.cancel(db, job_id)
        assert (await job_of(db, job_id)).counts == Counts(total=20, done=9, cancelled=11)
        await assert_sound(db)
        assert await send_round(db, job_id, CANCELLED) == 11
        await assert_sound(db)


async def test_a_redrive_brings_back_the_failed_and_what_their_failure_cancelled(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=10, policy={"mode": "fail_fast"})
    await fail_some(db, job_id, [0])
    assert await db.run(jobs.police, job_id) == "fail_fast: an item failed"
    await db.run(maintain.cancel_condemned)
    assert await db.run(jobs.finalize, job_id) is JobStatus.FAILED
    operation = await redrive(db, owner_id=None, filters={"jobs": [str(job_id)]})
    assert (operation.state, operation.items) == ("done", 11)
    assert await db.run(jobs.police, job_id) is None
    assert (await job_of(db, job_id)).failure_reason is None
    await assert_sound(db)


async def test_a_corrected_input_is_what_the_next_pass_reads(db: Database) -> None:
    job_id = await add_job(db, 2)
    await fail_some(db, job_id, [0, 1])
    fix = "INSERT INTO tidemill.item_fix (job_id, seq, rev, input, by) VALUES (%s, 1, %s, %s, 0)"
    await rows(db, fix, job_id, 1, '{"n": "first"}')
    await rows(db, fix, job_id, 2, '{"n": "second"}')
    await send_round(db, job_id)
    assert [item.input["n"] for item in await db.run(read, await take(db, job_id))] == [0, "second"]


async def test_a_reprocess_that_waited_for_a_delete_finds_no_job(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [1])
    async with db.transaction() as conn:
        await delete.delete(conn, job_id)
        waiting = await held_up(db, send_round(db, job_id))
    with pytest.raises(UnknownJob):
        await at_once(waiting)
    await assert_sound(db)


async def test_what_stays_failed_is_forgiven(db: Database) -> None:
    job_id = await add_job(db, 3, policy={"mode": "fail_fast"})
    await settle(db, await take(db, job_id), [verdict(0, FAILED), verdict(1, FAILED), verdict(2)])
    assert await db.run(jobs.finalize, job_id) is JobStatus.FAILED
    assert await db.run(reprocess, job_id, Choice(seqs=[0])) == (1, None)
    assert await db.run(jobs.police, job_id) is None, "the other failure is an old one"
    await settle(db, await take(db, job_id), [verdict(0, FAILED)])
    assert await db.run(jobs.police, job_id) is not None, "this one is new"
    await assert_sound(db)


async def test_a_paused_job_stays_paused(db: Database) -> None:
    job_id = await add_job(db, 2, batch_size=1)
    await settle(db, await take(db, job_id), [verdict(0, FAILED)])
    await db.run(jobs.pause, job_id)
    assert await db.run(reprocess, job_id, Choice()) == (1, None)
    assert (await job_of(db, job_id)).status is JobStatus.PAUSED
    assert await try_take(db, job_id) is None
