"""Jobs as a whole: looking at them, and what is wanted of them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from tidemill.domain.errors import Conflict, UnknownJob
from tidemill.domain.export import KIND as EXPORT
from tidemill.domain.identity import LOCAL_USER
from tidemill.domain.job import Counts, Job
from tidemill.domain.policy import FailurePolicy
from tidemill.domain.search import FIRST_ID, LAST_ID, id_range, named
from tidemill.domain.status import Intent, JobStatus, closing_status, job_status
from tidemill.store import activity
from tidemill.store.database import Connection, one_statement
from tidemill.store.statements import sql

SHORTEST_ID = 4  # digits of an id that may stand for the whole
_COUNTS = (
    "total",
    "pending",
    "processing",
    "retry_wait",
    "done",
    "not_found",
    "skipped",
    "failed",
    "cancelled",
)
_COLUMNS = (
    "id",
    "key",
    "kind",
    "owner_id",
    "priority",
    "failure_reason",
    "created_at",
    "updated_at",
    "closed_at",
    "purged_at",
    "params",
    "policy",
    "retried",
    "file_id",
    "request_id",
    "traceparent",
)


@one_statement
async def get(conn: Connection, job_id: UUID) -> Job:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("job/get"), {"job_id": job_id})
        row = await cursor.fetchone()
    if row is None:
        raise UnknownJob(f"there is no job {job_id}")
    return _job(row)


@one_statement
async def get_named(conn: Connection, name: str, owner_id: int | None = None) -> Job:
    """By id or key; of one owner's, if that is said. A job of somebody else is as unknown as one that never was."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("job/get_named"), named(name))
        row = await cursor.fetchone()
    if row is None or owner_id not in (None, row["owner_id"]):
        raise UnknownJob(f"there is no job {name!r}")
    return _job(row)


@one_statement
async def facts(conn: Connection, job_id: UUID) -> dict[str, Any]:
    """What every event about a job says; nothing of one that is gone."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("job/facts"), {"job_id": job_id})
        return await cursor.fetchone() or {}


@one_statement
async def get_many(conn: Connection, job_ids: Sequence[UUID]) -> list[Job]:
    """Those of them that exist, the newest first."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("job/get_many"), {"ids": list(job_ids)})
        return [_job(row) for row in await cursor.fetchall()]


@one_statement
async def watched(
    conn: Connection,
    job_ids: Sequence[UUID],
    owner_ids: Sequence[int],
    *,
    everybody: bool,
    since: datetime,
    limit: int = 100,
) -> list[Job]:
    """Named jobs, and those of some owners, or of everybody, that are open or changed since a moment."""
    params = {"job_ids": list(job_ids), "owner_ids": list(owner_ids), "all": everybody}
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("job/watched"), params | {"since": since, "limit": limit})
        return [_job(row) for row in await cursor.fetchall()]


async def clock(conn: Connection) -> datetime:
    """What time it is: the database says."""
    cursor = await conn.execute(sql("job/clock"))
    row = await cursor.fetchone()
    return row[0]  # type: ignore[index, no-any-return]


@one_statement
async def find(conn: Connection, text: str, owner_id: int | None = None) -> UUID:
    """A job by its id, its key, or a beginning of its id that only it has; of one owner's, if that is said.

    A job of somebody else is as unknown as one that never was.
    """
    unknown = UnknownJob(f"there is no job {text!r}")
    if not text.isprintable():  # no key or id either, and a database may choke on it
        raise unknown
    ids = id_range(text) if len(text.replace("-", "")) >= SHORTEST_ID else None
    lo, hi = ids or (LAST_ID, FIRST_ID)
    name = "job/find" if owner_id is None else "job/find_of_owner"
    cursor = await conn.execute(sql(name), {"text": text.upper(), "lo": lo, "hi": hi, "owner_id": owner_id})
    found = {row[0] for row in await cursor.fetchall()}
    if len(found) > 1:
        raise UnknownJob(f"more than one job begins with {text!r}")
    if not found:
        raise unknown
    return found.pop()  # type: ignore[no-any-return]


async def lock(conn: Connection, job_id: UUID) -> dict[str, Any]:
    """The lock of a job: first of every change to it as a whole."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("job/lock"), {"job_id": job_id})
        row = await cursor.fetchone()
    if row is None:
        raise UnknownJob(f"there is no job {job_id}")
    return row


async def pause(conn: Connection, job_id: UUID, *, by: int = LOCAL_USER) -> None:
    """Run -> pause: one write; no batch is touched, leased ones finish."""
    await _want(conn, job_id, Intent.PAUSE, by, allowed=(Intent.RUN, Intent.PAUSE))


async def resume(conn: Connection, job_id: UUID, *, by: int = LOCAL_USER) -> None:
    """Pause -> run."""
    await _want(conn, job_id, Intent.RUN, by, allowed=(Intent.PAUSE,))
    await conn.execute(sql("outbox/announce"), {"job_id": job_id})


async def cancel(conn: Connection, job_id: UUID, *, by: int = LOCAL_USER) -> None:
    """-> cancel: leased batches finish and keep their results, the rest is cancelled by the sweeper."""
    await _want(conn, job_id, Intent.CANCEL, by, allowed=(Intent.RUN, Intent.PAUSE, Intent.CANCEL))


async def fail(conn: Connection, job_id: UUID, reason: str) -> bool:
    """-> fail: by policy or for a reason of the whole job; False when it is past that."""
    job = await lock(conn, job_id)
    if job["closed_as"] is not None or job["intent"] in (Intent.CANCEL, Intent.FAIL):
        return False
    await conn.execute(sql("job/set_intent"), {"job_id": job_id, "intent": Intent.FAIL, "reason": reason})
    return True


async def police(conn: Connection, job_id: UUID) -> str | None:
    """Fail the job if its failure policy has tripped; the reason."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("job/police"), {"job_id": job_id})
        row = await cursor.fetchone()
    if row is None or row["intent"] in (Intent.CANCEL, Intent.FAIL):
        return None
    reason = FailurePolicy.parse(row["policy"]).tripped(failed=row["failed"], settled=row["settled"])
    if reason is None or not await fail(conn, job_id, reason):
        return None
    return reason


async def to_police(conn: Connection) -> list[UUID]:
    cursor = await conn.execute(sql("job/to_police"))
    return [row[0] for row in await cursor.fetchall()]


async def finalize(conn: Connection, job_id: UUID) -> JobStatus | None:
    """Close a job of which nothing is open; what it is closed as, or None."""
    job = await close(conn, job_id)
    return None if job is None else job.status


async def close(conn: Connection, job_id: UUID) -> Job | None:
    """Close a job of which nothing is open; the closed job, or None.

    The check is a statement of its own, after the lock: in one statement it would use a snapshot from before
    a reprocess that the lock had waited for, and close a job with open work.
    """
    try:
        job = await lock(conn, job_id)
    except UnknownJob:
        return None
    intent = Intent(job["intent"])
    may_close = job["closed_as"] is None and (job["ingest_done"] or intent in (Intent.CANCEL, Intent.FAIL))
    if not may_close or not await looks_drained(conn, job_id):
        return None
    await police(conn, job_id)  # whoever closes it: a policy that tripped with the last item must not be passed over
    intent = Intent((await lock(conn, job_id))["intent"])
    await conn.execute(sql("tally/fold"), {"job_id": job_id})
    await conn.execute(sql("ingest/clear"), {"job_id": job_id})
    drained = await get(conn, job_id)
    closed_as = closing_status(intent=intent, failed=drained.counts.failed)
    cursor = await conn.execute(sql("job/close"), {"job_id": job_id, "closed_as": closed_as})
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101  we hold its lock
    counts = drained.counts
    await conn.execute(sql("sample/add_last"), {"job_id": job_id, "settled": counts.processed, "failed": counts.failed})
    if closed_as is JobStatus.CANCELLED and drained.kind == EXPORT:  # its file may have been complete a moment before
        await conn.execute(sql("file/condemn_one"), {"job_id": job_id})
    return replace(drained, status=closed_as, closed_at=row[0])


async def drained_candidates(conn: Connection) -> list[UUID]:
    cursor = await conn.execute(sql("job/drained_candidates"))
    return [row[0] for row in await cursor.fetchall()]


async def looks_drained(conn: Connection, job_id: UUID) -> bool:
    """Whether nothing of the job is open; without the job's lock only a guess."""
    cursor = await conn.execute(sql("job/is_drained"), {"job_id": job_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def _want(conn: Connection, job_id: UUID, intent: Intent, by: int, *, allowed: tuple[Intent, ...]) -> None:
    row = await lock(conn, job_id)
    if row["closed_as"] is not None or row["intent"] not in allowed:
        job = await get(conn, job_id)
        raise Conflict(f"job {job.key} is {job.status}: it cannot be {_PAST[intent]}")
    await conn.execute(sql("job/set_intent"), {"job_id": job_id, "intent": intent, "reason": None})
    if row["intent"] != intent:
        await activity.add(conn, job_id, by, _VERBS[intent])


_VERBS = {Intent.RUN: "resume", Intent.PAUSE: "pause", Intent.CANCEL: "cancel"}
_PAST = {Intent.RUN: "resumed", Intent.PAUSE: "paused", Intent.CANCEL: "cancelled", Intent.FAIL: "failed"}


def _job(row: dict[str, Any]) -> Job:
    counts = Counts(**{name: int(row[name]) for name in _COUNTS})
    status = job_status(
        intent=Intent(row["intent"]),
        ingest_done=row["ingest_done"],
        closed_as=JobStatus(row["closed_as"]) if row["closed_as"] else None,
        total=counts.total,
        started=counts.pending != counts.total,
    )
    return Job(
        status=status,
        counts=counts,
        ingest_complete=row["ingest_done"],
        codes={code: int(n) for code, n in row["codes"].items()},
        intent=Intent(row["intent"]),
        source=None if row["source"] is None else row["source"].get("format"),
        result_columns=tuple(row["result_columns"]),
        ip_address=None if row["ip_address"] is None else str(row["ip_address"]),
        **{name: row[name] for name in _COLUMNS},
    )


async def params(conn: Connection, job_id: UUID) -> dict[str, Any]:
    """What it was asked to do."""
    cursor = await conn.execute(sql("job/params"), {"job_id": job_id})
    row = await cursor.fetchone()
    if row is None:
        raise UnknownJob(f"there is no job {job_id}")
    return row[0]  # type: ignore[no-any-return]


@one_statement
async def going_on(conn: Connection, job_ids: Sequence[UUID]) -> set[UUID]:
    """Those that are there, and that nobody wants to end."""
    cursor = await conn.execute(sql("job/going_on"), {"ids": list(job_ids)})
    return {row[0] for row in await cursor.fetchall()}


async def set_params(conn: Connection, job_id: UUID, params: dict[str, Any]) -> None:
    """With what its source has told."""
    await conn.execute(sql("job/set_params"), {"job_id": job_id, "params": Jsonb(params)})


async def targets(conn: Connection, owner_id: int, kinds: Sequence[str]) -> list[tuple[str, str]]:
    """Of an owner's jobs of these kinds, what they read or write: kind and name."""
    cursor = await conn.execute(sql("job/targets"), {"owner_id": owner_id, "kinds": list(kinds)})
    return await cursor.fetchall()
