"""Tests that a retried item has one outcome, one batch and one status at a time."""

from store.scenes import batches, retry_some, status_of
from support import DONE, FAILED, RETRY, add_job, assert_sound, job_of, rows, settle, take, verdict
from tidemill.core.batch import RETRY_BUCKETS_MAX, SEQ_LIST_MAX
from tidemill.store import batch_leases
from tidemill.store.database import Database
from tidemill.store.item_records import read_unsettled_items
from tidemill.store.outcome_flush import FlushResult
from tidemill.testing.drain import make_batches_due


async def test_retried_item_outcome_replaces_previous_outcome(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, [5])
    again = await take(db, job_id)
    assert again.seqs == (5,)
    assert await settle(db, again, [verdict(5, attempts=2)]) is FlushResult.APPLIED
    found = await rows(db, "SELECT status, attempts, error FROM tidemill.outcome WHERE job_id = %s AND seq = 5", job_id)
    assert found == [("done", 2, None)]
    assert (await job_of(db, job_id)).counts.done == 10
    await assert_sound(db)


async def test_item_waiting_for_retry_is_counted_once(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, [5], delay=60)
    counts = (await job_of(db, job_id)).counts
    assert (counts.done, counts.retry_wait, counts.total) == (9, 1, 10)
    await assert_sound(db)


async def test_retried_item_status_follows_its_retry_list(db: Database) -> None:
    job_id = await add_job(db, 10)
    assert await status_of(db, job_id, 5) == "pending"
    await retry_some(db, job_id, [5], delay=60)
    assert await status_of(db, job_id, 5) == "retry_wait"
    await db.run(make_batches_due)
    lease = await take(db, job_id)
    assert await status_of(db, job_id, 5) == "processing"
    assert await status_of(db, job_id, 4) == "done"
    await settle(db, lease, [verdict(5, FAILED, attempts=2)])
    assert await status_of(db, job_id, 5) == "failed"
    await assert_sound(db)


async def test_item_status_names_worker_of_leased_retry_list(db: Database) -> None:
    job_id = await add_job(db, 3)
    await retry_some(db, job_id, [1])
    await take(db, job_id, worker="w2")
    held = "SELECT seq, locked_by FROM tidemill.item_status WHERE job_id = %s AND locked_by IS NOT NULL"
    assert await rows(db, held, job_id) == [(1, "w2")]


async def test_merged_retry_list_keeps_attempts_of_each_item(db: Database) -> None:
    job_id = await add_job(db, 4)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(0, RETRY, attempts=1, delay=0), verdict(1), verdict(2)])
    await settle(db, lease.with_flushed(3), [verdict(3, RETRY, attempts=2, delay=0)])
    merged = await take(db, job_id)
    assert [(item.seq, item.attempt) for item in await db.run_async_commit(read_unsettled_items, merged)] == [
        (0, 2),
        (3, 3),
    ]
    await assert_sound(db)


async def test_release_of_retry_list_charges_no_attempt(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, [5])
    await db.run(batch_leases.release_rest_of_batch, await take(db, job_id))
    again = await take(db, job_id)
    assert [item.attempt for item in await db.run(read_unsettled_items, again)] == [2]


async def test_partly_flushed_retry_list_keeps_only_open_items(db: Database) -> None:
    job_id = await add_job(db, 6)
    await retry_some(db, job_id, range(6))
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(1, attempts=2), verdict(4, FAILED, attempts=2)])
    assert await rows(db, "SELECT seqs, open FROM tidemill.batch WHERE id = %s", lease.batch_id) == [([0, 2, 3, 5], 4)]
    assert await status_of(db, job_id, 0) == "processing"
    await settle(db, lease.with_flushed(2), [verdict(seq, attempts=2) for seq in (0, 2, 3, 5)])
    assert (await job_of(db, job_id)).counts.done == 5
    await assert_sound(db)


async def test_flush_with_many_delays_creates_bounded_number_of_retry_lists(db: Database) -> None:
    job_id = await add_job(db, 200)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(seq, RETRY, delay=1.3**seq % 10_000) for seq in range(200)])
    lists = await batches(db, job_id, "seqs")
    assert 1 < len([seqs for (seqs,) in lists if seqs]) <= RETRY_BUCKETS_MAX
    await assert_sound(db)


async def test_retry_list_is_not_due_before_any_item_delay(db: Database) -> None:
    job_id = await add_job(db, 60)
    lease = await take(db, job_id)
    delays = {seq: float(10 * seq) for seq in range(60)}
    await settle(db, lease, [verdict(seq, RETRY, delay=delay) for seq, delay in delays.items()])
    waits = await batches(db, job_id, "extract(epoch FROM not_before - since)::float8, seqs")
    assert all(wait >= delays[seq] - 1 for wait, seqs in waits for seq in seqs or ())
    await assert_sound(db)


async def test_flush_cuts_retries_into_lists_of_bounded_length(db: Database) -> None:
    job_id = await add_job(db, 2_500, batch_size=5_000)
    lease = await take(db, job_id, 5_000)
    await settle(db, lease, [verdict(seq, RETRY, delay=0) for seq in range(2_500)])
    lengths = sorted(len(seqs) for (seqs,) in await batches(db, job_id, "seqs") if seqs)
    assert lengths == [500, SEQ_LIST_MAX, SEQ_LIST_MAX]
    await assert_sound(db)


async def test_claim_merges_due_retry_lists(db: Database) -> None:
    job_id = await add_job(db, 300, batch_size=10)
    for _ in range(30):
        lease = await take(db, job_id, 10)
        await settle(db, lease, [verdict(lease.lo, RETRY, delay=0), *map(verdict, range(lease.lo + 1, lease.hi))])
    merged = await take(db, job_id)
    assert merged.seqs == tuple(range(0, 300, 10))
    await settle(db, merged, [verdict(seq, DONE, attempts=2) for seq in merged.seqs])
    assert (await job_of(db, job_id)).counts.done == 300
    await assert_sound(db)


async def test_claim_merges_retry_lists_only_up_to_maximum_length(db: Database) -> None:
    job_id = await add_job(db, 2_400, batch_size=400)
    for _ in range(6):
        lease = await take(db, job_id, 400)
        await settle(db, lease, [verdict(seq, RETRY, delay=0) for seq in range(lease.lo, lease.hi)])
    taken = [await take(db, job_id, 5_000) for _ in range(3)]
    assert [lease.open for lease in taken] == [800, 800, 800]
    await assert_sound(db)


async def test_partial_claim_of_retry_list_leaves_remaining_items_ready(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, range(10))
    [*_, (before,)] = await batches(db, job_id, "since")
    piece = await take(db, job_id, 3)
    assert piece.seqs == (0, 1, 2)
    ready = await rows(db, "SELECT seqs, since FROM tidemill.batch WHERE job_id = %s AND state = 'ready'", job_id)
    assert ready == [([3, 4, 5, 6, 7, 8, 9], before)]
    await assert_sound(db)


async def test_claim_does_not_merge_retry_lists_not_yet_due(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=10)
    await retry_some(db, job_id, [1], delay=0)
    first = await take(db, job_id, 10)
    await settle(db, first, [verdict(seq, RETRY, delay=60) for seq in range(first.lo, first.hi)])
    assert (await take(db, job_id)).seqs == (1,)
    await assert_sound(db)
