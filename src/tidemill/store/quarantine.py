"""Messages that are no hints, and hints that the broker would not take."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from tidemill.store.database import Connection, one_statement
from tidemill.store.statements import sql

KEEP = 10_000
SHOWN_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class Quarantined:
    """``source``: it was received so, or it was ours and the broker refused it."""

    id: int
    at: datetime
    source: str
    reason: str
    message: str
    size: int
    job_id: UUID | None
    worker: str | None


async def add(conn: Connection, worker: str, message: bytes, reason: str) -> None:
    """Its beginning is kept, in characters that PostgreSQL can hold."""
    text = message[:SHOWN_BYTES].decode("utf-8", "backslashreplace").replace("\0", "\\x00")
    kept = {"worker": worker, "message": text, "size": len(message), "reason": storable(reason)}
    await conn.execute(sql("quarantine/add"), kept)


def storable(words: str) -> str:
    """Words that may repeat what a stranger sent, so that PostgreSQL can hold them."""
    return words[:SHOWN_BYTES].encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


@one_statement
async def list_quarantine(conn: Connection, limit: int, before: int | None = None) -> list[Quarantined]:
    """The newest first, older than ``before``."""
    async with conn.cursor(row_factory=class_row(Quarantined)) as cursor:
        await cursor.execute(sql("quarantine/list"), {"limit": limit, "before": before})
        return await cursor.fetchall()


async def clear(conn: Connection, upto: int | None = None) -> int:
    """Forget those up to this one, or all; how many."""
    return (await conn.execute(sql("quarantine/clear"), {"upto": upto})).rowcount


async def thin(conn: Connection) -> None:
    await conn.execute(sql("quarantine/thin"), {"keep": KEEP})
