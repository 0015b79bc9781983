"""Pauses, resumes, cancels and deletes jobs; cancels waiting items; makes items that wait for a retry due now."""

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from tidemill.core.errors import InvalidInput, UnknownJob
from tidemill.core.list_pages import check_storable_text
from tidemill.core.principal import LOCAL_USER_ID
from tidemill.failpoints import failpoint
from tidemill.jobs.reprocessing import add_operation_once, run_operation_until_end_or_timeout
from tidemill.runtime import FindKindHooks, return_no_kind_hooks
from tidemill.store import job_lifecycle, job_records
from tidemill.store import job_lifecycle as store
from tidemill.store import retention as store_delete
from tidemill.store.database import Connection, Database
from tidemill.store.job_events import bind_job_fields, report_job_closed
from tidemill.store.job_lifecycle import CANCELLABLE_STATUSES, CancelSelection, RunNowCounts, lock_job_for_cancel
from tidemill.store.operation_records import BulkOperation
from tidemill.telemetry.events import emit

__all__ = ["CANCELLABLE_STATUSES", "CancelSelection"]  # used in signatures of this module
CANCEL_TIMEOUT_S = 2.0


async def pause_job(db: Database, job_id: UUID, *, by: int = LOCAL_USER_ID) -> None:
    await db.run(job_lifecycle.pause_job, job_id, by=by)
    async with bind_job_fields(db, job_id):
        emit("job.paused", job=job_id)


async def resume_job(db: Database, job_id: UUID, *, by: int = LOCAL_USER_ID) -> None:
    attempts = 0

    async def resume(conn: Connection) -> None:
        nonlocal attempts
        attempts += 1
        await job_lifecycle.resume_job(conn, job_id, by=by, may_be_resumed=attempts > 1)

    await db.run(resume)
    async with bind_job_fields(db, job_id):
        emit("job.resumed", job=job_id)


async def cancel_job(
    db: Database, job_id: UUID, *, by: int = LOCAL_USER_ID, find_kind_hooks: FindKindHooks = return_no_kind_hooks
) -> None:
    """Cancel waiting items. Items that have started finish and keep their results.

    After ``CANCEL_TIMEOUT_S`` a maintenance loop cancels the remaining batches.
    """
    await db.run(job_lifecycle.cancel_job, job_id, by=by)
    failpoint("cancel.intent_committed")
    async with bind_job_fields(db, job_id):
        emit("job.cancelled", job=job_id)
    deadline = time.monotonic() + CANCEL_TIMEOUT_S
    while await db.run(job_lifecycle.cancel_some_ready_batches, job_id) and time.monotonic() < deadline:
        pass
    await _close_and_report_job_if_drained(db, job_id, find_kind_hooks)


async def _close_and_report_job_if_drained(db: Database, job_id: UUID, find_kind_hooks: FindKindHooks) -> None:
    closed = await db.run(job_lifecycle.close_job_if_drained, job_id)
    if closed is not None:
        hooks = find_kind_hooks(closed.kind)
        report_job_closed(closed, None if hooks is None else hooks.after_close)


async def delete_job(db: Database, job_id: UUID, *, by: int = LOCAL_USER_ID) -> None:
    """Delete a job. Late flushes are rejected; maintenance removes its rows and its file later.

    Raises:
        Conflict: A worker did not end its transaction on the job in time.
    """
    async with bind_job_fields(db, job_id):
        await db.run(job_lifecycle.stop_job_for_deletion, job_id)
        failpoint("delete.job_stopped")
        with suppress(UnknownJob):  # an earlier attempt committed although its answer was lost
            await db.run(store_delete.delete_job, job_id)
        emit("job.deleted", job=job_id, by=by)


async def cancel_waiting_items(
    db: Database,
    job_id: UUID,
    waiting: CancelSelection,
    *,
    user_id: int = LOCAL_USER_ID,
    request_id: str | None = None,
    timeout_s: float | None = None,
    find_kind_hooks: FindKindHooks = return_no_kind_hooks,
) -> BulkOperation:
    """Cancel waiting items, but not leased ones, and close the job if no item is open."""
    invalid = [status.value for status in waiting.statuses if status not in CANCELLABLE_STATUSES]
    if invalid:
        raise InvalidInput(f"Items with status {', '.join(invalid)} are not waiting and cannot be cancelled")
    check_storable_text("The key", waiting.key)
    await db.run(lock_job_for_cancel, job_id)
    predicate: dict[str, object] = {"statuses": sorted(set(waiting.statuses))}
    predicate |= {"seqs": None if waiting.seqs is None else sorted(set(waiting.seqs))}
    predicate |= {"ranges": waiting.ranges} if waiting.ranges else {}
    predicate |= {"but": sorted(waiting.excluded_seqs)} if waiting.excluded_seqs else {}
    predicate |= {"key": waiting.key} if waiting.key else {}
    added = await add_operation_once(db, "cancel", predicate, user_id=user_id, job_id=job_id, request_id=request_id)
    operation = await run_operation_until_end_or_timeout(db, added, timeout_s)
    await _close_and_report_job_if_drained(db, job_id, find_kind_hooks)
    return operation


async def make_items_due_now(
    db: Database, items: Sequence[tuple[UUID, int]], owner_id: int | None, *, by: int
) -> RunNowCounts:
    """Make items due now, in one transaction per job.

    Raises:
        UnknownJob: The owner has no such job. No item is changed.
    """
    grouped: dict[UUID, list[int]] = defaultdict(list)
    for job_id, seq in items:
        grouped[job_id].append(seq)
    for job_id in grouped:
        await db.read(job_records.find_job_id, str(job_id), owner_id)
    done = [await db.run(store.make_items_due, job_id, grouped[job_id], by=by) for job_id in sorted(grouped)]
    return sum(done, RunNowCounts())
