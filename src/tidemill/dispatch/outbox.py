"""The outbox of hints for the broker, and the quarantine of messages that are not valid hints."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from tidemill.store.database import Connection
from tidemill.store.statements import make_sql_loader

sql = make_sql_loader("tidemill.dispatch")

QUARANTINE_MAX_MESSAGES = 10_000
QUARANTINE_SHOWN_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class QuarantinedMessage:
    """``source``: it was received so, or it was ours and the broker refused it."""

    id: int
    at: datetime
    source: str
    reason: str
    message: str
    size: int
    job_id: UUID | None
    worker: str | None


async def quarantine_message(conn: Connection, worker: str, message: bytes, reason: str) -> None:
    """Its beginning is kept, in characters that PostgreSQL can hold."""
    text = message[:QUARANTINE_SHOWN_BYTES].decode("utf-8", "backslashreplace").replace("\0", "\\x00")
    kept = {"worker": worker, "message": text, "size": len(message), "reason": to_storable_text(reason)}
    await conn.execute(sql("quarantine/add"), kept)


def to_storable_text(text: str) -> str:
    """Words that may repeat what a stranger sent, so that PostgreSQL can hold them."""
    return text[:QUARANTINE_SHOWN_BYTES].encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


async def list_quarantined_messages(
    conn: Connection, limit: int, before: int | None = None
) -> list[QuarantinedMessage]:
    """The newest first, older than ``before``."""
    async with conn.cursor(row_factory=class_row(QuarantinedMessage)) as cursor:
        await cursor.execute(sql("quarantine/list"), {"limit": limit, "before": before})
        return await cursor.fetchall()


async def delete_quarantined_messages(conn: Connection, upto: int | None = None) -> int:
    """Forget those up to this one, or all; how many."""
    return (await conn.execute(sql("quarantine/clear"), {"upto": upto})).rowcount


async def delete_oldest_quarantined(conn: Connection) -> None:
    await conn.execute(sql("quarantine/thin"), {"keep": QUARANTINE_MAX_MESSAGES})


BROKER_SILENCE_S = 3_600.0  # a broker that no worker has for so long is none
RESEND_MAX_JOBS = 10_000


@dataclass(frozen=True, slots=True)
class OutboxHint:
    """A row of the outbox that a relay has claimed, and what it needs of the job."""

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


async def register_broker(conn: Connection, scheme: str) -> str:
    """This installation has a broker; the name space of its queues."""
    cursor = await conn.execute(sql("broker/register"), {"scheme": scheme})
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101  INSERT … RETURNING
    return str(row[0])


async def forget_silent_broker(conn: Connection) -> None:
    """Without a worker that has a broker there is none, and nothing to send."""
    await conn.execute(sql("broker/forget"), {"seconds": BROKER_SILENCE_S})
    await conn.execute(sql("outbox/clear"))


async def claim_hints(conn: Connection, worker: str, *, limit: int, seconds: float) -> list[OutboxHint]:
    """Up to so many hints, for this relay alone and for so long."""
    async with conn.cursor(row_factory=class_row(OutboxHint)) as cursor:
        await cursor.execute(sql("outbox/claim"), {"worker": worker, "limit": limit, "seconds": seconds})
        return await cursor.fetchall()


async def remove_hints(conn: Connection, worker: str, ids: Sequence[int]) -> None:
    """They are sent, or wanted no more."""
    await conn.execute(sql("outbox/remove"), {"worker": worker, "ids": sorted(ids)})


async def release_hint_claims(conn: Connection, worker: str, ids: Sequence[int], error: str) -> None:
    await conn.execute(
        sql("outbox/give_back"), {"worker": worker, "ids": sorted(ids), "error": to_storable_text(error)}
    )


async def postpone_hint(conn: Connection, worker: str, hint_id: int, error: str, delay: float) -> None:
    words = {"worker": worker, "id": hint_id, "error": to_storable_text(error), "delay": delay}
    await conn.execute(sql("outbox/postpone"), words)


async def quarantine_hint(conn: Connection, worker: str, hint_id: int, reason: str, message: bytes) -> None:
    """Into the quarantine: the broker would not take it again and again."""
    params = {"worker": worker, "id": hint_id, "reason": to_storable_text(reason), "size": len(message)}
    await conn.execute(sql("outbox/park"), params | {"message": message.decode("utf-8", "replace")})


async def add_hints_for_stalled_jobs(conn: Connection, seconds: float, window: float = math.inf) -> list[UUID]:
    """Write hints anew for jobs that nobody has looked at for so long, or twice as long, and so on; which.

    ``window`` is how long ago this was done before: what came to its turn since then gets a hint now.
    """
    params = {"seconds": seconds, "window": window, "limit": RESEND_MAX_JOBS}
    cursor = await conn.execute(sql("outbox/resend"), params)
    return [row[0] for row in await cursor.fetchall()]


async def measure_backlog(conn: Connection) -> OutboxBacklog:
    async with conn.cursor(row_factory=class_row(OutboxBacklog)) as cursor:
        await cursor.execute(sql("outbox/sample"))
        row = await cursor.fetchone()
    assert row is not None  # noqa: S101  sums without GROUP BY
    return row


async def is_job_runnable(conn: Connection, job_id: UUID) -> bool:
    """Whether a hint for this job is worth anything: it is there, open, and to run."""
    cursor = await conn.execute(sql("job/is_to_run"), {"job_id": job_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])
