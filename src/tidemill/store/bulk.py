"""Operations on many items: persisted first, then done step by step, each step in the transaction that records it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from tidemill.domain.errors import Conflict, TidemillError, Unknown, UnknownJob
from tidemill.domain.numbers import merged
from tidemill.domain.status import ItemStatus
from tidemill.store import activity
from tidemill.store.cancel_rows import Waiting, cancel_rows
from tidemill.store.database import Connection, is_transient
from tidemill.store.jobs import get
from tidemill.store.reprocess import Choice, reprocess
from tidemill.store.statements import sql
from tidemill.store.workers import max_attempts

LEAST_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Operation:
    """A bulk action: who wanted what, and how far it is."""

    id: UUID
    user_id: int
    verb: str
    job_id: UUID | None
    predicate: dict[str, Any]
    place: dict[str, Any]
    state: str
    items: int
    error: str | None
    request_id: str | None
    created_at: datetime
    updated_at: datetime


async def add(
    conn: Connection,
    verb: str,
    predicate: Mapping[str, Any],
    *,
    user_id: int,
    job_id: UUID | None = None,
    request_id: str | None = None,
) -> UUID:
    params = {"verb": verb, "predicate": Jsonb(dict(predicate)), "user_id": user_id, "job_id": job_id}
    cursor = await conn.execute(sql("operation/add"), params | {"request_id": request_id})
    row = await cursor.fetchone()
    return UUID(str(row and row[0]))


async def add_done(conn: Connection, verb: str, predicate: Mapping[str, Any], *, items: int, **who: Any) -> UUID:
    """An operation that is carried out in the same transaction: nobody ever sees it run."""
    operation_id = await add(conn, verb, predicate, **who)
    await conn.execute(sql("operation/move"), {"id": operation_id, "items": items, "place": Jsonb({}), "state": "done"})
    return operation_id


async def find(conn: Connection, operation_id: UUID) -> Operation:
    found = await _rows(conn, "operation/get", {"id": operation_id})
    if not found:
        raise Unknown(f"there is no operation {operation_id}")
    return found[0]


async def list_operations(
    conn: Connection, *, user_id: int | None, before: UUID | None = None, limit: int = 50
) -> list[Operation]:
    return await _rows(conn, "operation/list", {"user_id": user_id, "before": before, "limit": limit})


@dataclass(frozen=True, slots=True)
class Step:
    """A part of an operation: so many items of a job go round again, or were cancelled. Of no job: nothing was left.

    Or why it has failed.
    """

    operation_id: UUID
    items: int = 0
    job_id: UUID | None = None
    request_id: str | None = None
    verb: str = "reprocess"
    error: Exception | None = None


async def step(conn: Connection, operation_id: UUID | None = None) -> Step | None:
    """Carry one operation a step further; what it came to. None when there is none, or somebody is at it."""
    found = await _rows(conn, "operation/take", {"id": operation_id})
    if not found:
        return None
    operation = found[0]
    take = {"reprocess": _reprocess, "redrive": _redrive, "cancel": _cancel}[operation.verb]
    try:
        async with conn.transaction():
            items, place, job_id = await take(conn, operation)
    except Exception as error:
        if is_transient(error):
            raise
        # Whatever it is, it would be the same the next time, and keep others from being carried on with.
        reason = str(error) if isinstance(error, TidemillError) else f"something went wrong: {type(error).__name__}"
        await conn.execute(sql("operation/fail"), {"id": operation.id, "error": reason})
        return Step(operation.id, error=error)
    state = "done" if place is None else "running"
    params = {"id": operation.id, "items": items, "place": Jsonb(place or operation.place), "state": state}
    await conn.execute(sql("operation/move"), params)
    return Step(operation.id, items, job_id, operation.request_id, operation.verb)


Taken = tuple[
    int, dict[str, Any] | None, UUID | None
]  # how many items, where to go on if there may be more, of which job


async def _reprocess(conn: Connection, operation: Operation) -> Taken:
    job_id = operation.job_id or LEAST_ID
    choice = await _with_attempts(conn, job_id, _choice(operation.predicate))
    after_seq, goes_on = operation.place.get("after_seq", -1), operation.items > 0
    taken, after = await reprocess(conn, job_id, choice, after_seq=after_seq, goes_on=goes_on)
    await _tell(conn, operation, job_id, taken)
    return taken, None if after is None else {"after_seq": after}, job_id


async def _cancel(conn: Connection, operation: Operation) -> Taken:
    job_id, asked = operation.job_id or LEAST_ID, operation.predicate
    waiting = Waiting(
        [ItemStatus(word) for word in asked["statuses"]],
        asked.get("seqs"),
        frozenset(asked.get("but", ())),
        asked.get("key"),
        merged(asked.get("ranges", ())),
    )
    taken, place = await cancel_rows(conn, job_id, waiting, operation.place)
    await _tell(conn, operation, job_id, taken)
    return taken, place, job_id


async def _redrive(conn: Connection, operation: Operation) -> Taken:
    """A chunk of the job that was begun, or of the next one that has dead letters."""
    asked, place = operation.predicate, operation.place
    if "after_seq" in place:  # it is open again, and tells no more how it was
        job_id, was_whole, after_seq = UUID(place["job"]), place.get("whole", False), place["after_seq"]
    else:
        found = await _next_dead(conn, asked, UUID(place.get("job", str(LEAST_ID))))
        if found is None:
            return 0, None, None
        (job_id, was_whole), after_seq = found, -1
    only = asked.get("items")
    choice = _choice(asked | {"seqs": only[str(job_id)] if only is not None else None})
    choice = await _with_attempts(conn, job_id, replace(choice, but=asked.get("except", {}).get(str(job_id), ())))
    if was_whole and not choice.is_narrow:  # a redrive brings back what its failing had cancelled
        choice = replace(choice, statuses=(ItemStatus.FAILED, ItemStatus.CANCELLED))
    try:
        taken, after = await reprocess(conn, job_id, choice, after_seq=after_seq, goes_on=after_seq >= 0)
        await _tell(conn, operation, job_id, taken)
    except (UnknownJob, Conflict):  # deleted, purged or ended meanwhile: the others go on
        taken, after = 0, None
    if after is None:
        return taken, {"job": str(UUID(int=job_id.int + 1))}, job_id
    return taken, {"job": str(job_id), "after_seq": after, "whole": was_whole}, job_id


async def _next_dead(conn: Connection, asked: Mapping[str, Any], from_job: UUID) -> tuple[UUID, bool] | None:
    """And whether it had failed as a whole."""
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


async def _tell(conn: Connection, operation: Operation, job_id: UUID, items: int) -> None:
    if items:
        await activity.add(conn, job_id, operation.user_id, operation.verb, items=items, operation=str(operation.id))


def _choice(asked: Mapping[str, Any]) -> Choice:
    return Choice(
        statuses=[ItemStatus(word) for word in asked.get("statuses", ["failed"])],
        seqs=asked.get("seqs"),
        codes=asked.get("codes"),
        key=asked.get("key"),
        but=asked.get("but", ()),
        ranges=merged(asked.get("ranges", ())),
        since=_time(asked.get("since")),
        until=_time(asked.get("until")),
        reset_attempts=asked.get("reset_attempts", True),
    )


async def _with_attempts(conn: Connection, job_id: UUID, choice: Choice) -> Choice:
    """Without a reset only items with attempts left are taken; how many those may be is the kind's to say."""
    if choice.reset_attempts:
        return choice
    kind = (await get(conn, job_id)).kind
    allowed = await max_attempts(conn, kind)
    if not allowed:
        raise Conflict(f"no worker has ever had a handler for {kind!r}: nobody knows how often it may be tried")
    return replace(choice, max_attempts=allowed)


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


async def _rows(conn: Connection, name: str, params: dict[str, Any]) -> list[Operation]:
    async with conn.cursor(row_factory=class_row(Operation)) as cursor:
        await cursor.execute(sql(name), params)
        return await cursor.fetchall()
