"""Runs bulk operations: stored first, then run step by step, each step in the transaction that records it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from tidemill.core.errors import Conflict, TidemillError, UnknownEntity, UnknownJob
from tidemill.core.quotas import Quota
from tidemill.core.row_ranges import merge_ranges
from tidemill.core.status import ItemStatus
from tidemill.failpoints import failpoint
from tidemill.store import job_records
from tidemill.store.database import Connection, is_transient
from tidemill.store.job_lifecycle import CancelSelection, cancel_waiting_items_step
from tidemill.store.quota_records import check_requeue_quota
from tidemill.store.reprocess_items import ReprocessSelection, reprocess_items, set_dismissed_for_chunk
from tidemill.store.statements import SqlParams, fetch_records, sql

LOWEST_JOB_ID = UUID(int=0)
QUOTA_KEY = "quota"  # of a predicate: the default limits of users, which the requeued items must not exceed


@dataclass(frozen=True, slots=True)
class BulkOperation:
    """A bulk operation: its user, its selection and its progress."""

    id: UUID
    user_id: int
    verb: str
    job_id: UUID | None
    predicate: Mapping[str, Any]  # the selection, as JSON
    place: Mapping[str, Any]  # where the next step continues
    state: str
    items: int
    error: str | None
    request_id: str | None
    created_at: datetime
    updated_at: datetime

    @property
    def unchanged(self) -> int:
        """The number of items that the operation has visited and not changed."""
        return int(self.place.get("unchanged", 0))


async def make_operation_id(conn: Connection) -> UUID:
    cursor = await conn.execute(sql("operation/make_id"))
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101  SELECT without FROM
    return UUID(str(row[0]))


async def add_operation(
    conn: Connection,
    verb: str,
    predicate: Mapping[str, Any],
    *,
    user_id: int,
    job_id: UUID | None = None,
    request_id: str | None = None,
    operation_id: UUID | None = None,
) -> UUID:
    """Add an operation. A repeated call with the same ``operation_id`` adds nothing."""
    added = operation_id or await make_operation_id(conn)
    params = {"verb": verb, "predicate": Jsonb(dict(predicate)), "user_id": user_id, "job_id": job_id}
    await conn.execute(sql("operation/add"), params | {"id": added, "request_id": request_id})
    failpoint("operation.added")
    return added


async def add_finished_operation(
    conn: Connection, verb: str, predicate: Mapping[str, Any], *, items: int, **who: Any
) -> UUID:
    """Add an operation that the same transaction has already completed, so that it is never seen running."""
    operation_id = await add_operation(conn, verb, predicate, **who)
    await conn.execute(sql("operation/move"), {"id": operation_id, "items": items, "place": Jsonb({}), "state": "done"})
    return operation_id


async def get_operation(conn: Connection, operation_id: UUID) -> BulkOperation:
    operations = await _fetch_operations(conn, "operation/get", {"id": operation_id})
    if not operations:
        raise UnknownEntity(f'Unknown operation "{operation_id}"')
    return operations[0]


async def list_operations(
    conn: Connection, *, user_id: int | None, before: UUID | None = None, limit: int = 50
) -> list[BulkOperation]:
    return await _fetch_operations(conn, "operation/list", {"user_id": user_id, "before": before, "limit": limit})


@dataclass(frozen=True, slots=True)
class OperationStep:
    """The result of one step: the number of items of a job that were changed, or an error.

    ``job_id`` is None if the operation has no work left.
    """

    operation_id: UUID
    items: int = 0
    job_id: UUID | None = None
    request_id: str | None = None
    verb: str = "reprocess"
    error: Exception | None = None


async def run_operation_step(
    conn: Connection, operation_id: UUID | None = None, feature_steps: "Mapping[str, RunStep] | None" = None
) -> OperationStep | None:
    """Run one step of an operation. Return None if no operation is unfinished or another worker has locked it.

    ``feature_steps``: verb -> the function that runs a step of an operation of a feature. Operations with other verbs
    are left to processes that know them.
    """
    steps = {**_STEPS, **(feature_steps or {})}
    operations = await _fetch_operations(conn, "operation/take", {"id": operation_id, "verbs": list(steps)})
    if not operations:
        return None
    operation = operations[0]
    failpoint("operation.locked")
    try:
        async with conn.transaction():
            items, place, job_id = await steps[operation.verb](conn, operation)
            if items and QUOTA_KEY in operation.predicate:
                await check_requeue_quota(conn, operation.user_id, Quota(**operation.predicate[QUOTA_KEY]))
    except Exception as error:
        if is_transient(error):
            raise
        # A retry would fail in the same way and block other operations.
        reason = str(error) if isinstance(error, TidemillError) else f"Internal error: {type(error).__name__}"
        await conn.execute(sql("operation/fail"), {"id": operation.id, "error": reason})
        return OperationStep(operation.id, error=error)
    state = "done" if place is None else "running"
    params = {"id": operation.id, "items": items, "place": Jsonb(place or operation.place), "state": state}
    await conn.execute(sql("operation/move"), params)
    failpoint("operation.step_recorded")
    return OperationStep(operation.id, items, job_id, operation.request_id, operation.verb)


class StepProgress(NamedTuple):
    """What a step did: the number of items, where the next step continues (None: nothing is left), and their job.

    The job is None if the step requeued nothing that others follow.
    """

    items: int
    place: Mapping[str, object] | None
    job_id: UUID | None


RunStep = Callable[[Connection, BulkOperation], Awaitable[StepProgress]]


async def cancel_operation(conn: Connection, operation_id: UUID) -> bool:
    """Cancel an operation after its current step. Return False if it is not running."""
    return (await conn.execute(sql("operation/cancel"), {"id": operation_id})).rowcount == 1


async def _run_reprocess_step(conn: Connection, operation: BulkOperation) -> StepProgress:
    job_id = operation.job_id or LOWEST_JOB_ID
    choice = _build_reprocess_selection(operation.predicate)
    after_seq, goes_on = operation.place.get("after_seq", -1), operation.items > 0
    taken, after = await reprocess_items(conn, job_id, choice, after_seq=after_seq, is_continuation=goes_on)
    await record_operation_activity(conn, operation, job_id, taken)
    return StepProgress(taken, None if after is None else {"after_seq": after}, job_id)


async def _run_cancel_step(conn: Connection, operation: BulkOperation) -> StepProgress:
    job_id, predicate = operation.job_id or LOWEST_JOB_ID, operation.predicate
    waiting = CancelSelection(
        statuses=[ItemStatus(status) for status in predicate["statuses"]],
        seqs=predicate.get("seqs"),
        excluded_seqs=frozenset(predicate.get("but", ())),
        key=predicate.get("key"),
        ranges=merge_ranges(predicate.get("ranges", ())),
    )
    taken, place = await cancel_waiting_items_step(conn, job_id, waiting, operation.place)
    await record_operation_activity(conn, operation, job_id, taken)
    return StepProgress(taken, place, job_id)


async def _run_redrive_step(conn: Connection, operation: BulkOperation) -> StepProgress:
    """Requeue a chunk of the current job, or of the next job with dead letters."""
    predicate, place = operation.predicate, operation.place
    if "after_seq" in place:  # the job was reopened, so its row no longer shows that it failed
        job_id, was_whole, after_seq = UUID(place["job"]), place.get("whole", False), place["after_seq"]
    else:
        job = await _find_next_job_with_dead_letters(conn, predicate, UUID(place.get("job", str(LOWEST_JOB_ID))))
        if job is None:
            return StepProgress(0, None, None)
        (job_id, was_whole), after_seq = job, -1
        failpoint("redrive.job_found")
    only = predicate.get("items")
    choice = _build_reprocess_selection({**predicate, "seqs": only[str(job_id)] if only is not None else None})
    excluded = predicate.get("except", {}).get(str(job_id), ())
    # A filter matches the listed items, like the list itself.
    choice = replace(choice, excluded_seqs=excluded, with_dismissed=only is not None)
    if (
        was_whole and not choice.has_filters_besides_status
    ):  # also requeue the items that were cancelled when the job failed
        choice = replace(choice, statuses=(ItemStatus.FAILED, ItemStatus.CANCELLED))
    try:
        taken, after = await reprocess_items(conn, job_id, choice, after_seq=after_seq, is_continuation=after_seq >= 0)
        await record_operation_activity(conn, operation, job_id, taken)
    except (UnknownJob, Conflict):  # deleted, purged or ended meanwhile: continue with the next job
        taken, after = 0, None
    if after is None:
        return StepProgress(taken, {"job": str(UUID(int=job_id.int + 1))}, job_id)
    return StepProgress(taken, {"job": str(job_id), "after_seq": after, "whole": was_whole}, job_id)


async def _run_dismiss_step(conn: Connection, operation: BulkOperation) -> StepProgress:
    """Dismiss or restore a chunk of the current job, or of the next job with dead letters."""
    predicate, place = operation.predicate, operation.place
    job_id, after_seq = UUID(place.get("job", str(LOWEST_JOB_ID))), place.get("after_seq", -1)
    if after_seq < 0:
        job = await _find_next_job_with_dead_letters(conn, predicate, job_id)
        if job is None:
            return StepProgress(0, None, None)
        job_id = job[0]
    only = predicate.get("items")
    choice = replace(
        _build_reprocess_selection({**predicate, "seqs": only[str(job_id)] if only is not None else None}),
        excluded_seqs=predicate.get("except", {}).get(str(job_id), ()),
    )
    changed, after = await set_dismissed_for_chunk(
        conn, job_id, choice, dismiss=operation.verb == "dismiss", user_id=operation.user_id, after_seq=after_seq
    )
    await record_operation_activity(conn, operation, job_id, changed)
    if after is None:
        return StepProgress(changed, {"job": str(UUID(int=job_id.int + 1))}, job_id)
    return StepProgress(changed, {"job": str(job_id), "after_seq": after}, job_id)


_STEPS: dict[str, RunStep] = {
    "reprocess": _run_reprocess_step,
    "redrive": _run_redrive_step,
    "cancel": _run_cancel_step,
    "dismiss": _run_dismiss_step,
    "restore": _run_dismiss_step,
}


async def _find_next_job_with_dead_letters(
    conn: Connection, asked: Mapping[str, Any], from_job: UUID
) -> tuple[UUID, bool] | None:
    """Return the next matching job, and whether it failed as a whole; None after the last job."""
    only = asked.get("items")
    jobs = asked.get("jobs") if only is None else only
    filters = {
        "owner_id": asked.get("owner_id"),
        "kind": asked.get("kind"),
        "from_job": from_job,
        "denied": asked.get("denied"),
        "named": only is None and asked.get("jobs") is not None,
        "job_ids": None if jobs is None else [UUID(job) for job in sorted(jobs)],
    }
    cursor = await conn.execute(sql("job/next_dead"), filters)
    return await cursor.fetchone()


async def record_operation_activity(
    conn: Connection, operation: BulkOperation, job_id: UUID, items: int, **details: Any
) -> None:
    if items:
        await job_records.add_activity(
            conn, job_id, operation.user_id, operation.verb, items=items, operation=str(operation.id), **details
        )


def _build_reprocess_selection(asked: Mapping[str, Any]) -> ReprocessSelection:
    return ReprocessSelection(
        statuses=[ItemStatus(status) for status in asked.get("statuses", ["failed"])],
        seqs=asked.get("seqs"),
        codes=asked.get("codes"),
        key=asked.get("key"),
        excluded_seqs=asked.get("but", ()),
        ranges=merge_ranges(asked.get("ranges", ())),
        since=_parse_time(asked.get("since")),
        until=_parse_time(asked.get("until")),
        category=asked.get("category"),
        group=asked.get("group"),
        reset_attempts=asked.get("reset_attempts", True),
    )


def _parse_time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


async def _fetch_operations(conn: Connection, name: str, params: SqlParams) -> list[BulkOperation]:
    return await fetch_records(conn, BulkOperation, sql(name), params)
