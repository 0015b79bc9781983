"""Cancelling items that wait: a tracked operation, done at once when it is small."""

from typing import Any
from uuid import UUID

from tidemill.domain.errors import InvalidInput
from tidemill.domain.identity import LOCAL_USER
from tidemill.domain.page import check_text
from tidemill.operations.reprocess import carry_out
from tidemill.store import bulk, jobs
from tidemill.store.bulk import Operation
from tidemill.store.cancel_rows import WAITING, Waiting, begin
from tidemill.store.database import Database
from tidemill.telemetry.summary import job_closed


async def cancel_rows(
    db: Database,
    job_id: UUID,
    waiting: Waiting,
    *,
    user_id: int = LOCAL_USER,
    request_id: str | None = None,
    within: float | None = None,
) -> Operation:
    """What a worker has in hand is left to it; a job of which nothing is open afterwards is closed."""
    wrong = [status.value for status in waiting.statuses if status not in WAITING]
    if wrong:
        raise InvalidInput(f"items that are {', '.join(wrong)} do not wait: they cannot be cancelled")
    check_text("a key", waiting.key)
    await db.run(begin, job_id)
    predicate: dict[str, Any] = {"statuses": sorted(set(waiting.statuses))}
    predicate |= {"seqs": None if waiting.seqs is None else sorted(set(waiting.seqs))}
    predicate |= {"ranges": waiting.ranges} if waiting.ranges else {}
    predicate |= {"but": sorted(waiting.but)} if waiting.but else {}
    predicate |= {"key": waiting.key} if waiting.key else {}
    added = await db.run(bulk.add, "cancel", predicate, user_id=user_id, job_id=job_id, request_id=request_id)
    operation = await carry_out(db, added, within)
    closed = await db.run(jobs.close, job_id)
    if closed is not None:
        job_closed(closed)
    return operation
