"""Changes the intent of jobs, cancels their batches, folds their counters and closes them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from tidemill.core.errors import Conflict, UnknownJob
from tidemill.core.job import Job
from tidemill.core.policies import FailurePolicy
from tidemill.core.principal import LOCAL_USER_ID
from tidemill.core.status import Intent, JobStatus, derive_closing_status
from tidemill.failpoints import failpoint
from tidemill.store import job_records
from tidemill.store.database import Connection
from tidemill.store.job_records import compute_duration_s, get_job, lock_job
from tidemill.store.statements import sql

CANCEL_RANGES_PER_STEP = 5_000
CANCEL_LISTS_PER_STEP = 100  # full lists need 100,000 outcomes


async def cancel_some_ready_batches(conn: Connection, job_id: UUID | None = None) -> int:
    """Cancel some ready batches of jobs with intent cancel or fail. Return their number; 0 means none is left."""
    ranges = await _cancel_next_ready_batches(conn, job_id, lists=False, limit=CANCEL_RANGES_PER_STEP)
    emptied = await _cancel_next_ready_batches(conn, job_id, lists=True, limit=CANCEL_LISTS_PER_STEP)
    lists: dict[UUID, list[int]] = defaultdict(list)
    for _, job, seqs in emptied:
        lists[job] += seqs
    for job in sorted(lists):
        await conn.execute(sql("outcome/cancel_list"), {"job_id": job, "seqs": sorted(lists[job])})
    if ranges or emptied:
        failpoint("cancel.batches_cancelled")
    return len(ranges) + len(emptied)


async def _cancel_next_ready_batches(conn: Connection, job_id: UUID | None, *, lists: bool, limit: int) -> list[Any]:
    cursor = await conn.execute(sql("batch/cancel_ready"), {"job_id": job_id, "lists": lists, "limit": limit})
    return await cursor.fetchall()


async def list_jobs_to_fold(conn: Connection, least: int) -> list[UUID]:
    cursor = await conn.execute(sql("tally/to_fold"), {"least": least})
    return [row[0] for row in await cursor.fetchall()]


async def fold_tally(conn: Connection, job_id: UUID) -> int:
    await lock_job(conn, job_id)
    cursor = await conn.execute(sql("tally/fold"), {"job_id": job_id})
    failpoint("fold.folded")
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def pause_job(conn: Connection, job_id: UUID, *, by: int = LOCAL_USER_ID) -> None:
    """Run -> pause. Batches are not changed; workers finish items that have started and release the others."""
    await _change_intent_and_record_activity(conn, job_id, Intent.PAUSE, by, allowed=(Intent.RUN, Intent.PAUSE))


async def resume_job(conn: Connection, job_id: UUID, *, by: int = LOCAL_USER_ID, may_be_resumed: bool = False) -> None:
    """Pause -> run. ``may_be_resumed``: an earlier attempt may have committed although its answer was lost."""
    allowed = (Intent.PAUSE, Intent.RUN) if may_be_resumed else (Intent.PAUSE,)
    await _change_intent_and_record_activity(conn, job_id, Intent.RUN, by, allowed=allowed)
    await conn.execute(sql("outbox/announce"), {"job_id": job_id})


async def cancel_job(conn: Connection, job_id: UUID, *, by: int = LOCAL_USER_ID) -> None:
    """-> cancel. Items that have started finish and keep their results; maintenance cancels the rest."""
    await _change_intent_and_record_activity(
        conn, job_id, Intent.CANCEL, by, allowed=(Intent.RUN, Intent.PAUSE, Intent.CANCEL)
    )


async def stop_job_for_deletion(conn: Connection, job_id: UUID) -> None:
    """-> cancel, so that workers end the transactions whose locks a deletion would wait for."""
    job = await lock_job(conn, job_id)
    if job.closed_as is None and job.intent in (Intent.RUN, Intent.PAUSE):
        await conn.execute(sql("job/set_intent"), {"job_id": job_id, "intent": Intent.CANCEL, "reason": None})


async def fail_job(conn: Connection, job_id: UUID, reason: str) -> bool:
    """-> fail, with a reason. Return False if the job is already closed, cancelled or failed."""
    job = await lock_job(conn, job_id)
    if job.closed_as is not None or job.intent in (Intent.CANCEL, Intent.FAIL):
        return False
    await conn.execute(sql("job/set_intent"), {"job_id": job_id, "intent": Intent.FAIL, "reason": reason})
    return True


async def enforce_failure_policy(conn: Connection, job_id: UUID) -> str | None:
    """Fail the job if its failures exceed its failure policy. Return the reason, or None."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("job/police"), {"job_id": job_id})
        row = await cursor.fetchone()
    if row is None or row["intent"] in (Intent.CANCEL, Intent.FAIL):
        return None
    reason = FailurePolicy.from_json(row["policy"]).find_failure_reason(failed=row["failed"], settled=row["settled"])
    if reason is None or not await fail_job(conn, job_id, reason):
        return None
    return reason


async def list_jobs_with_failure_policy(conn: Connection) -> list[UUID]:
    cursor = await conn.execute(sql("job/to_police"))
    return [row[0] for row in await cursor.fetchall()]


async def close_job_if_drained(conn: Connection, job_id: UUID) -> Job | None:
    """Close a job that has no open work. Return the closed job, or None if it stays open.

    The check is a separate statement after the lock. In one statement it would use a snapshot older than a reprocess
    that the lock waited for, and could close a job with open work.
    """
    try:
        job = await lock_job(conn, job_id)
    except UnknownJob:
        return None
    intent = Intent(job.intent)
    may_close = job.closed_as is None and (job.ingest_done or intent in (Intent.CANCEL, Intent.FAIL))
    if not may_close or not await has_no_open_batch(conn, job_id):
        return None
    await conn.execute(sql("tally/fold"), {"job_id": job_id})
    drained = await get_job(conn, job_id)
    counts = drained.counts
    if counts.failed and await enforce_failure_policy(conn, job_id):  # the last items may have exceeded the policy
        intent, drained = Intent.FAIL, await get_job(conn, job_id)
    closed_as = derive_closing_status(intent=intent, failed=counts.failed)
    processed = counts.total - counts.cancelled  # no item is open
    params = {"job_id": job_id, "closed_as": closed_as, "settled": processed, "failed": counts.failed}
    cursor = await conn.execute(sql("job/close"), params)
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101  this transaction holds the lock of the job
    if closed_as is JobStatus.CANCELLED:  # the job may have completed a file just before
        await conn.execute(sql("file/condemn_made"), {"job_id": job_id})
    failpoint("close.before_commit")
    duration_s = compute_duration_s(drained.started_at, row[0], drained.idle_s)
    return replace(drained, status=closed_as, closed_at=row[0], duration_s=duration_s)


async def list_stopped_jobs(conn: Connection, job_ids: Sequence[UUID]) -> list[UUID]:
    """Return those of these jobs that may not run now: paused, cancelled, failed or deleted."""
    cursor = await conn.execute(sql("job/stopped"), {"job_ids": list(job_ids)})
    return [row[0] for row in await cursor.fetchall()]


async def list_jobs_that_may_be_drained(conn: Connection) -> list[UUID]:
    cursor = await conn.execute(sql("job/drained_candidates"))
    return [row[0] for row in await cursor.fetchall()]


async def has_no_open_batch(conn: Connection, job_id: UUID) -> bool:
    """Whether the job has no open work. Without the job's lock, the answer may be outdated."""
    cursor = await conn.execute(sql("job/is_drained"), {"job_id": job_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def _change_intent_and_record_activity(
    conn: Connection, job_id: UUID, intent: Intent, by: int, *, allowed: tuple[Intent, ...]
) -> None:
    row = await lock_job(conn, job_id)
    if row.closed_as is not None or row.intent not in allowed:
        job = await get_job(conn, job_id)
        raise Conflict(f"Job {job.key} is {job.status} and cannot be {_INTENT_PARTICIPLES[intent]}")
    await conn.execute(sql("job/set_intent"), {"job_id": job_id, "intent": intent, "reason": None})
    failpoint("intent.changed")
    if row.intent != intent:
        await job_records.add_activity(conn, job_id, by, _INTENT_ACTIVITY_VERBS[intent])


_INTENT_ACTIVITY_VERBS = {Intent.RUN: "resume", Intent.PAUSE: "pause", Intent.CANCEL: "cancel"}


_INTENT_PARTICIPLES = {Intent.RUN: "resumed", Intent.PAUSE: "paused", Intent.CANCEL: "cancelled", Intent.FAIL: "failed"}
