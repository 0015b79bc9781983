"""Hints on their way to the broker, and what became of those that never were one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from tidemill.store.database import Connection, one_statement, relaxed
from tidemill.store.quarantine import storable
from tidemill.store.statements import sql

FORGOTTEN_S = 3_600.0  # a broker that no worker has for so long is none
RESEND_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Hint:
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
class Backlog:
    depth: int
    oldest_s: float
    quarantined: int


async def register(conn: Connection, scheme: str) -> str:
    """This installation has a broker; the name space of its queues."""
    cursor = await conn.execute(sql("broker/register"), {"scheme": scheme})
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101  INSERT … RETURNING
    return str(row[0])


async def forget(conn: Connection) -> None:
    """Without a worker that has a broker there is none, and nothing to send."""
    await conn.execute(sql("broker/forget"), {"seconds": FORGOTTEN_S})
    await conn.execute(sql("outbox/clear"))


@relaxed
async def claim(conn: Connection, worker: str, *, limit: int, seconds: float) -> list[Hint]:
    """Up to so many hints, for this relay alone and for so long."""
    async with conn.cursor(row_factory=class_row(Hint)) as cursor:
        await cursor.execute(sql("outbox/claim"), {"worker": worker, "limit": limit, "seconds": seconds})
        return await cursor.fetchall()


@relaxed
async def remove(conn: Connection, worker: str, ids: Sequence[int]) -> None:
    """They are sent, or wanted no more."""
    await conn.execute(sql("outbox/remove"), {"worker": worker, "ids": sorted(ids)})


async def give_back(conn: Connection, worker: str, ids: Sequence[int], error: str) -> None:
    await conn.execute(sql("outbox/give_back"), {"worker": worker, "ids": sorted(ids), "error": storable(error)})


async def postpone(conn: Connection, worker: str, hint_id: int, error: str, delay: float) -> None:
    words = {"worker": worker, "id": hint_id, "error": storable(error), "delay": delay}
    await conn.execute(sql("outbox/postpone"), words)


async def park(conn: Connection, worker: str, hint_id: int, reason: str, message: bytes) -> None:
    """Into the quarantine: the broker would not take it again and again."""
    words: dict[str, Any] = {"worker": worker, "id": hint_id, "reason": storable(reason)}
    await conn.execute(
        sql("outbox/park"), words | {"message": message.decode("utf-8", "replace"), "size": len(message)}
    )


async def resend(conn: Connection, seconds: float, window: float = math.inf) -> list[UUID]:
    """Write hints anew for jobs that nobody has looked at for so long, or twice as long, and so on; which.

    ``window`` is how long ago this was done before: what came to its turn since then gets a hint now.
    """
    params = {"seconds": seconds, "window": window, "limit": RESEND_AT_ONCE}
    cursor = await conn.execute(sql("outbox/resend"), params)
    return [row[0] for row in await cursor.fetchall()]


@one_statement
async def sample(conn: Connection) -> Backlog:
    async with conn.cursor(row_factory=class_row(Backlog)) as cursor:
        await cursor.execute(sql("outbox/sample"))
        row = await cursor.fetchone()
    assert row is not None  # noqa: S101  sums without GROUP BY
    return row


@one_statement
async def is_to_run(conn: Connection, job_id: UUID) -> bool:
    """Whether a hint for this job is worth anything: it is there, open, and to run."""
    cursor = await conn.execute(sql("job/is_to_run"), {"job_id": job_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])
