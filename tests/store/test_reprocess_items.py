"""Tests that reprocessing requeues each item once and adjusts the counters."""

from typing import Any
from uuid import UUID

import pytest

from store.scenes import at_once, batches, fail_some, held_up, retry_some, send_round, status_of, unsettled
from support import FAILED, add_job, assert_sound, close_job_as, job_of, rows, settle, take, try_take, verdict
from tidemill.core.decide import list_codes_of_further_errors
from tidemill.core.errors import UnknownJob
from tidemill.core.job import Counts
from tidemill.core.status import ItemStatus, JobStatus
from tidemill.jobs import job_control
from tidemill.jobs.reprocessing import run_dead_letter_operation
from tidemill.store import batch_leases, job_lifecycle, retention
from tidemill.store.database import Database
from tidemill.store.item_records import read_item_details, read_unsettled_items
from tidemill.store.jsonb import decode_json, encode_json
from tidemill.store.reprocess_items import ReprocessSelection, reprocess_items

CANCELLED = ReprocessSelection(statuses=[ItemStatus.CANCELLED])


async def test_concurrent_reprocess_requeues_each_item_once(db: Database) -> None:
    job_id = await add_job(db, 100)
    await fail_some(db, job_id, range(40))
    async with db.transaction() as conn:
        assert (await reprocess_items(conn, job_id, ReprocessSelection()))[0] == 40
        second = await held_up(db, send_round(db, job_id))
    assert await at_once(second) == 0
    assert (await job_of(db, job_id)).counts == Counts(total=100, pending=40, done=60)
    await assert_sound(db)


async def test_concurrent_reprocess_requeues_overlapping_seqs_once(db: Database) -> None:
    job_id = await add_job(db, 100)
    await fail_some(db, job_id, range(40))
    async with db.transaction() as conn:
        assert (await reprocess_items(conn, job_id, ReprocessSelection(seqs=range(30))))[0] == 30
        second = await held_up(db, send_round(db, job_id, ReprocessSelection(seqs=range(20, 50))))
    assert await at_once(second) == 10
    await assert_sound(db)


async def test_reprocess_cuts_items_into_lists_of_bounded_length(db: Database) -> None:
    job_id = await add_job(db, 2_500, batch_size=2_500)
    await fail_some(db, job_id, range(2_500), wanted=2_500)
    assert await send_round(db, job_id) == 2_500
    assert [len(seqs) for (seqs,) in await batches(db, job_id, "seqs") if seqs] == [1_000, 1_000, 500]
    await assert_sound(db)


async def test_reprocess_reopens_closed_job_which_completes_again(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [1, 2])
    assert await db.run(close_job_as, job_id) is JobStatus.COMPLETED_WITH_ERRORS
    assert await send_round(db, job_id) == 2
    assert (await job_of(db, job_id)).status is JobStatus.RUNNING
    lease = await take(db, job_id)
    assert [item.attempt for item in await db.run_async_commit(read_unsettled_items, lease)] == [1, 1]
    assert await status_of(db, job_id, 1) == "processing"
    await settle(db, lease)
    assert await db.run(close_job_as, job_id) is JobStatus.COMPLETED
    assert (await job_of(db, job_id)).codes == {}
    await assert_sound(db)


async def test_reprocess_without_reset_continues_attempts_and_leaves_permanent_failures(db: Database) -> None:
    job_id = await add_job(db, 3)
    permanent = verdict(1, FAILED)._replace(error=b'{"code": "test", "reason": "because", "retryable": false}')
    await settle(db, await take(db, job_id), [verdict(0, FAILED), permanent, verdict(2, FAILED, attempts=3)])
    assert await send_round(db, job_id, ReprocessSelection(reset_attempts=False)) == 2
    assert [
        (item.seq, item.attempt) for item in await db.run_async_commit(read_unsettled_items, await take(db, job_id))
    ] == [(0, 2), (2, 4)]
    await assert_sound(db)


async def further_codes(db: Database, job_id: UUID) -> list[dict[str, int]]:
    """The counters of further errors: those of the job, then those of its batches that are not folded."""
    found = await rows(
        db,
        "SELECT further_codes FROM tidemill.job_tally WHERE job_id = %s UNION ALL "
        "SELECT further_codes FROM tidemill.batch WHERE job_id = %s AND NOT folded AND further_codes IS NOT NULL",
        job_id,
        job_id,
    )
    return [codes for (codes,) in found]


async def test_further_errors_are_counted_until_their_items_are_requeued(db: Database) -> None:
    job_id = await add_job(db, 3)
    listed = [{"code": code, "reason": "because"} for code in ("test", "age", "name", "name")]
    failures = [verdict(seq, FAILED)._replace(error=encode_json(listed[0] | {"errors": listed})) for seq in range(3)]
    failures = [
        one._replace(further_codes=list_codes_of_further_errors(decode_json(one.error or b""))) for one in failures
    ]
    assert failures[0].further_codes == ("age", "name")
    await settle(db, await take(db, job_id), failures)
    assert await further_codes(db, job_id) == [{}, {"age": 3, "name": 3}]
    assert (await job_of(db, job_id)).codes == {"test": 3}
    await assert_sound(db)
    assert await send_round(db, job_id, ReprocessSelection(seqs=[0, 2])) == 2
    assert await further_codes(db, job_id) == [{"age": 1, "name": 1}]
    await assert_sound(db)
    await settle(db, await take(db, job_id))
    await db.run(close_job_as, job_id)
    assert await further_codes(db, job_id) == [{"age": 1, "name": 1}]
    await assert_sound(db)


@pytest.mark.parametrize("errors", [[], {}, "text", [7, None, [], {"code": 5}, {"code": "test"}, {}], None])
async def test_errors_without_further_codes_are_not_counted(db: Database, errors: Any) -> None:
    job_id = await add_job(db, 1)
    error = {"code": "test", "reason": "because", "errors": errors}
    assert list_codes_of_further_errors(error) == ()
    await settle(db, await take(db, job_id), [verdict(0, FAILED)._replace(error=encode_json(error))])
    assert await further_codes(db, job_id) == [{}]
    await assert_sound(db)
    assert await send_round(db, job_id) == 1
    await assert_sound(db)


async def test_reprocess_with_reset_keeps_attempt_number_in_error(db: Database) -> None:
    job_id = await add_job(db, 1)
    await settle(db, await take(db, job_id), [verdict(0, FAILED, attempts=3)])
    assert await send_round(db, job_id, ReprocessSelection()) == 1
    item = await db.read_snapshot(read_item_details, job_id, 0)
    assert (item["status"], item["attempts"], item["error"]["attempt"]) == ("pending", 0, 3)


async def test_reprocess_without_matching_items_leaves_job_closed(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [1])
    await db.run(close_job_as, job_id)
    assert await send_round(db, job_id, ReprocessSelection(codes=["other"])) == 0
    assert (await job_of(db, job_id)).status is JobStatus.COMPLETED_WITH_ERRORS
    await assert_sound(db)


async def test_reprocess_cancelled_requeues_only_open_items_of_ranges(db: Database) -> None:
    job_id = await add_job(db, 30, batch_size=10)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(0), verdict(1, FAILED)])
    await db.run(batch_leases.release_rest_of_batch, lease.with_flushed(2))
    await db.run(job_lifecycle.cancel_job, job_id)
    await db.run(job_lifecycle.cancel_some_ready_batches, job_id)
    assert await db.run(close_job_as, job_id) is JobStatus.CANCELLED
    assert await send_round(db, job_id, CANCELLED) == 28
    job = await job_of(db, job_id)
    assert (job.counts, job.codes) == (Counts(total=30, pending=28, done=1, failed=1), {"test": 1})
    await assert_sound(db)
    while (back := await try_take(db, job_id)) is not None:
        await settle(db, back, [verdict(seq) for seq in await unsettled(db, back)])
    assert await db.run(close_job_as, job_id) is JobStatus.COMPLETED_WITH_ERRORS
    assert (await job_of(db, job_id)).counts == Counts(total=30, done=29, failed=1)
    await assert_sound(db)


async def test_reprocess_cancelled_requeues_retry_lists_and_ranges(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=10)
    await retry_some(db, job_id, [3, 4], delay=60)
    await job_control.cancel_job(db, job_id)
    assert await send_round(db, job_id, CANCELLED) == 12
    assert (await job_of(db, job_id)).counts == Counts(total=20, pending=12, done=8)
    await assert_sound(db)


async def test_job_can_be_cancelled_and_reprocessed_repeatedly(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=10)
    await retry_some(db, job_id, [3], delay=60)
    for _ in range(3):
        await job_control.cancel_job(db, job_id)
        assert (await job_of(db, job_id)).counts == Counts(total=20, done=9, cancelled=11)
        await assert_sound(db)
        assert await send_round(db, job_id, CANCELLED) == 11
        await assert_sound(db)


async def test_redrive_requeues_failed_and_policy_cancelled_items(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=10, policy={"mode": "fail_fast"})
    await fail_some(db, job_id, [0])
    reason = await db.run(job_lifecycle.enforce_failure_policy, job_id)
    assert reason == 'An item failed; the failure policy is "fail_fast"'
    await db.run(job_lifecycle.cancel_some_ready_batches)
    assert await db.run(close_job_as, job_id) is JobStatus.FAILED
    operation = await run_dead_letter_operation(db, owner_id=None, filters={"jobs": [str(job_id)]})
    assert (operation.state, operation.items) == ("done", 11)
    assert await db.run(job_lifecycle.enforce_failure_policy, job_id) is None
    assert (await job_of(db, job_id)).failure_reason is None
    await assert_sound(db)


async def test_reprocess_reads_latest_fixed_input(db: Database) -> None:
    job_id = await add_job(db, 2)
    await fail_some(db, job_id, [0, 1])
    fix = "INSERT INTO tidemill.item_fix (job_id, seq, rev, input, by) VALUES (%s, 1, %s, %s, 0)"
    await rows(db, fix, job_id, 1, '{"n": "first"}')
    await rows(db, fix, job_id, 2, '{"n": "second"}')
    await send_round(db, job_id)
    assert [item.input["n"] for item in await db.run_async_commit(read_unsettled_items, await take(db, job_id))] == [
        0,
        "second",
    ]


async def test_reprocess_blocked_by_delete_raises_unknown_job(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [1])
    async with db.transaction() as conn:
        await retention.delete_job(conn, job_id)
        waiting = await held_up(db, send_round(db, job_id))
    with pytest.raises(UnknownJob):
        await at_once(waiting)
    await assert_sound(db)


async def test_failure_policy_ignores_failures_from_before_reprocess(db: Database) -> None:
    job_id = await add_job(db, 3, policy={"mode": "fail_fast"})
    await settle(db, await take(db, job_id), [verdict(0, FAILED), verdict(1, FAILED), verdict(2)])
    assert await db.run(close_job_as, job_id) is JobStatus.FAILED
    assert await db.run(reprocess_items, job_id, ReprocessSelection(seqs=[0])) == (1, None)
    assert await db.run(job_lifecycle.enforce_failure_policy, job_id) is None, "the other failure is older"
    await settle(db, await take(db, job_id), [verdict(0, FAILED)])
    assert await db.run(job_lifecycle.enforce_failure_policy, job_id) is not None, "this failure is new"
    await assert_sound(db)


async def test_reprocess_keeps_paused_job_paused(db: Database) -> None:
    job_id = await add_job(db, 2, batch_size=1)
    await settle(db, await take(db, job_id), [verdict(0, FAILED)])
    await db.run(job_lifecycle.pause_job, job_id)
    assert await db.run(reprocess_items, job_id, ReprocessSelection()) == (1, None)
    assert (await job_of(db, job_id)).status is JobStatus.PAUSED
    assert await try_take(db, job_id) is None
