"""Tests that cancelled and failed jobs stay so: only items requested afterwards are requeued."""

from uuid import UUID

import pytest

from store.scenes import fail_some, rows_looked_at, send_round
from store.test_ingestion import append, chunk, lease_it, source_job
from support import FAILED, add_job, assert_sound, close_job_as, job_of, rows, settle, take, verdict
from tidemill import Item, Mill
from tidemill.config import Settings
from tidemill.core.errors import Conflict
from tidemill.core.job import Counts
from tidemill.core.status import ItemStatus, JobStatus
from tidemill.jobs import job_control
from tidemill.jobs.reprocessing import run_dead_letter_operation
from tidemill.store import job_lifecycle, operation_records
from tidemill.store.database import Database
from tidemill.store.reprocess_items import ReprocessSelection, reprocess_items
from tidemill.testing import drain

CANCELLED = ReprocessSelection([ItemStatus.CANCELLED])


async def cancelled_while_it_was_read(db: Database) -> UUID:
    """A job cancelled during ingest: five settled items (one failed), five waiting ones, and unread rows."""
    job_id = await source_job(db)
    lease_id, _ = await lease_it(db)
    await append(db, job_id, lease_id, chunk(0))
    await settle(db, await take(db, job_id, 5), [verdict(0, FAILED), *map(verdict, range(1, 5))])
    await job_control.cancel_job(db, job_id)
    assert (await job_of(db, job_id)).status is JobStatus.CANCELLED
    return job_id


async def test_reprocess_failed_item_does_not_resume_cancelled_ingest(db: Database) -> None:
    job_id = await cancelled_while_it_was_read(db)
    assert await send_round(db, job_id) == 1
    assert (await lease_it(db))[1] is None
    await settle(db, await take(db, job_id))
    assert await db.run(close_job_as, job_id) is not None
    assert (await job_of(db, job_id)).counts == Counts(total=10, done=5, cancelled=5)
    await assert_sound(db)


async def test_reprocess_cancelled_items_resumes_ingest_of_source(db: Database) -> None:
    job_id = await cancelled_while_it_was_read(db)
    await send_round(db, job_id)  # requeues one item meanwhile
    assert await send_round(db, job_id, CANCELLED) == 5
    lease_id, taken = await lease_it(db)
    assert taken is not None
    assert taken.next_seq == 10
    await append(db, job_id, lease_id, chunk(10))
    assert (await job_of(db, job_id)).counts == Counts(total=20, pending=16, done=4)
    await assert_sound(db)


async def test_reprocess_cancelled_items_starts_ingest_of_unread_source(db: Database) -> None:
    job_id = await source_job(db)
    await job_control.cancel_job(db, job_id)
    assert await send_round(db, job_id) == 0
    assert (await job_of(db, job_id)).status is JobStatus.CANCELLED
    assert await send_round(db, job_id, CANCELLED) == 0
    assert (await lease_it(db))[1] is not None


async def test_reprocess_during_ingest_does_not_stop_ingest(db: Database) -> None:
    job_id = await source_job(db)
    lease_id, _ = await lease_it(db)
    await append(db, job_id, lease_id, chunk(0))
    await fail_some(db, job_id, [0], wanted=5)
    assert await send_round(db, job_id) == 1
    await append(db, job_id, lease_id, chunk(10))
    assert (await job_of(db, job_id)).counts.total == 20


@pytest.mark.parametrize("end", ["cancel", "fail"])
async def test_reprocess_in_steps_stops_when_job_is_cancelled_or_failed(db: Database, end: str) -> None:
    job_id = await add_job(db, 2_500, batch_size=2_500)
    await fail_some(db, job_id, range(2_500), wanted=2_500)
    async with db.transaction() as conn:
        taken, after = await reprocess_items(conn, job_id, ReprocessSelection(), max_items=1_000)
    assert (taken, after) == (1_000, 999)
    await (job_control.cancel_job(db, job_id) if end == "cancel" else db.run(job_lifecycle.fail_job, job_id, "enough"))
    with pytest.raises(Conflict, match="while the operation ran"):
        await db.run(reprocess_items, job_id, ReprocessSelection(), after_seq=999, is_continuation=True)
    assert (await job_of(db, job_id)).counts.failed == 1_500
    await assert_sound(db)


@pytest.mark.parametrize("verb", ["reprocess", "redrive"])
async def test_reprocess_requeues_nothing_while_job_is_cancelling(db: Database, verb: str) -> None:
    job_id = await add_job(db, 30, batch_size=10)
    await settle(db, await take(db, job_id, 10), [verdict(0, FAILED), *map(verdict, range(1, 10))])
    lease = await take(db, job_id, 10)
    await job_control.cancel_job(db, job_id)
    cancelling = await job_of(db, job_id)
    assert cancelling.status is JobStatus.CANCELLING
    if verb == "reprocess":
        with pytest.raises(Conflict, match=f"Job {cancelling.key} is cancelling. Wait until it is closed"):
            await db.run(reprocess_items, job_id, ReprocessSelection())
    else:
        assert (await run_dead_letter_operation(db, owner_id=None)).items == 0, "other jobs could be redriven"
    assert await job_of(db, job_id) == cancelling
    await settle(db, lease)
    assert await db.run(close_job_as, job_id) is not None
    assert (await job_of(db, job_id)).status is JobStatus.CANCELLED
    assert await send_round(db, job_id) == 1
    await assert_sound(db)


async def test_reprocess_operation_fails_with_reason_when_job_is_cancelled(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tidemill.store.reprocess_items.reprocess_items.__kwdefaults__",
        {"after_seq": -1, "max_items": 1_000, "is_continuation": False},
    )
    job_id = await add_job(db, 2_500, batch_size=2_500)
    await fail_some(db, job_id, range(2_500), wanted=2_500)
    operation_id = await db.run(
        operation_records.add_operation, "reprocess", {"statuses": ["failed"]}, user_id=0, job_id=job_id
    )
    await db.run(operation_records.run_operation_step, operation_id)
    await job_control.cancel_job(db, job_id)
    await db.run(operation_records.run_operation_step, operation_id)
    operation = await db.run(operation_records.get_operation, operation_id)
    assert (operation.state, operation.items) == ("failed", 1_000)
    assert "while the operation ran" in (operation.error or "")
    assert (await job_of(db, job_id)).status is JobStatus.CANCELLED


async def test_cancel_step_reads_only_batches_it_cancels(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_lifecycle, "CANCEL_RANGES_PER_STEP", 50)
    job_id = await add_job(db, 3_000, batch_size=1)
    await db.run(job_lifecycle.cancel_job, job_id)
    await rows(db, "ANALYZE tidemill.batch")
    assert await db.run(job_lifecycle.cancel_some_ready_batches, job_id) == 50
    seen = await rows_looked_at(db, "batch/cancel_ready", {"job_id": job_id, "lists": False, "limit": 50}, "seqscan")
    assert seen["batch"] <= 200  # of 3,000


async def test_cancel_returns_early_and_maintenance_cancels_remaining_batches(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_lifecycle, "CANCEL_RANGES_PER_STEP", 10)
    monkeypatch.setattr(job_control, "CANCEL_TIMEOUT_S", 0.0)
    job_id = await add_job(db, 30, batch_size=1)
    await job_control.cancel_job(db, job_id)
    job = await job_of(db, job_id)
    assert (job.status, job.counts.cancelled) == (JobStatus.CANCELLING, 10)
    while await db.run(job_lifecycle.cancel_some_ready_batches):
        pass
    assert await db.run(close_job_as, job_id) is JobStatus.CANCELLED


async def test_redrive_in_steps_requeues_all_items_of_job_failed_by_policy(
    db: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reprocess_items, "__kwdefaults__", {**(reprocess_items.__kwdefaults__ or {}), "max_items": 100})
    mill, is_mended = Mill(settings), False

    @mill.handler("shop", max_attempts=1)
    async def shop(_: Item) -> str:
        if not is_mended:
            raise ValueError("closed")
        return "open"

    job_id = await mill.submit_async("shop", range(3_000), policy={"mode": "tolerate", "max_failed": 250})
    await drain(mill, db=db)
    failed = await job_of(db, job_id)
    assert failed.status is JobStatus.FAILED
    assert failed.counts.failed > 250
    assert failed.counts.cancelled > 250
    is_mended = True
    operation = await run_dead_letter_operation(db, owner_id=None, filters={"jobs": [str(job_id)]})
    assert operation.items == 3_000
    await drain(mill, db=db)
    assert (await job_of(db, job_id)).counts == Counts(total=3_000, done=3_000)
    await assert_sound(db)
