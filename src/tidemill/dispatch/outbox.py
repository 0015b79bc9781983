"""The outbox of hints for the broker."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from tidemill.dispatch.quarantine import to_storable_text
from tidemill.store.database import Connection
from tidemill.store.statements import make_sql_loader

sql = make_sql_loader("tidemill.dispatch")


BROKER_SILENCE_S = 3_600.0  # a broker that no worker registered for longer is removed
RESEND_MAX_JOBS = 10_000


@dataclass(frozen=True, slots=True)
class OutboxHint:
    """A claimed row of the outbox, with the fields of its job that the message needs."""

    id: int
    job_id: UUID
    hints: int
    batches: list[int]
    created_at: datetime
    attempts: int
    kind: str | None
    traceparent: str | None
    wanted: bool


@dataclass(frozen=True, slots=True)
class OutboxBacklog:
    depth: int
    oldest_s: float
    quarantined: int


async def register_broker_and_get_namespace(conn: Connection, scheme: str) -> str:
    """Record that this installation uses a broker; return the namespace of its queues."""
    cursor = await conn.execute(sql("broker/register"), {"scheme": scheme})
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101  INSERT … RETURNING
    return str(row[0])


async def forget_broker_and_clear_outbox_if_unused(conn: Connection) -> None:
    """Remove the broker if no worker uses one any more, and clear the outbox then."""
    await conn.execute(sql("broker/forget"), {"seconds": BROKER_SILENCE_S})
    await conn.execute(sql("outbox/clear"))


async def claim_hints(conn: Connection, worker: str, *, limit: int, seconds: float) -> list[OutboxHint]:
    """Claim up to ``limit`` hints for this relay, for ``seconds``."""
    async with conn.cursor(row_factory=class_row(OutboxHint)) as cursor:
        await cursor.execute(sql("outbox/claim"), {"worker": worker, "limit": limit, "seconds": seconds})
        return await cursor.fetchall()


async def remove_hints(conn: Connection, worker: str, ids: Sequence[int]) -> None:
    """Delete hints that were sent or are not needed any more."""
    await conn.execute(sql("outbox/remove"), {"worker": worker, "ids": sorted(ids)})


async def release_hint_claims(conn: Connection, worker: str, ids: Sequence[int], error: str) -> None:
    await conn.execute(
        sql("outbox/give_back"), {"worker": worker, "ids": sorted(ids), "error": to_storable_text(error)}
    )


async def postpone_hint(conn: Connection, worker: str, hint_id: int, error: str, delay: float) -> None:
    params = {"worker": worker, "id": hint_id, "error": to_storable_text(error), "delay": delay}
    await conn.execute(sql("outbox/postpone"), params)


async def quarantine_hint(conn: Connection, worker: str, hint_id: int, reason: str, message: bytes) -> None:
    """Move a hint to the quarantine, after the broker rejected it repeatedly."""
    params = {"worker": worker, "id": hint_id, "reason": to_storable_text(reason), "size": len(message)}
    await conn.execute(sql("outbox/park"), params | {"message": message.decode("utf-8", "replace")})


async def add_hints_for_stalled_jobs(conn: Connection, seconds: float, window: float = math.inf) -> list[UUID]:
    """Write new hints for jobs that had no worker for ``seconds``, twice as long, and so on; return the jobs.

    ``window`` is the time since the last call: jobs that reached one of these times since then get a hint.
    """
    params = {"seconds": seconds, "window": window, "limit": RESEND_MAX_JOBS}
    cursor = await conn.execute(sql("outbox/resend"), params)
    return [row[0] for row in await cursor.fetchall()]


async def read_outbox_backlog(conn: Connection) -> OutboxBacklog:
    async with conn.cursor(row_factory=class_row(OutboxBacklog)) as cursor:
        await cursor.execute(sql("outbox/sample"))
        row = await cursor.fetchone()
    assert row is not None  # noqa: S101  sums without GROUP BY
    return row


async def can_job_use_hint(conn: Connection, job_id: UUID) -> bool:
    """Return whether the job exists, is open and may run, so that a hint for it is useful."""
    cursor = await conn.execute(sql("job/is_to_run"), {"job_id": job_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])
