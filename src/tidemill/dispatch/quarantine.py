"""The quarantine of broker messages that are not valid hints."""

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
    """A quarantined message. ``source`` is ``received``, or ``refused`` for a hint that the broker rejected."""

    id: int
    at: datetime
    source: str
    reason: str
    message: str
    size: int
    job_id: UUID | None
    worker: str | None


async def quarantine_message(conn: Connection, worker: str, message: bytes, reason: str) -> None:
    """Store the beginning of an invalid message, as text that PostgreSQL can store."""
    text = message[:QUARANTINE_SHOWN_BYTES].decode("utf-8", "backslashreplace").replace("\0", "\\x00")
    kept = {"worker": worker, "message": text, "size": len(message), "reason": to_storable_text(reason)}
    await conn.execute(sql("quarantine/add"), kept)


def to_storable_text(text: str) -> str:
    """Return text that may contain parts of an untrusted message in a form that PostgreSQL can store."""
    return text[:QUARANTINE_SHOWN_BYTES].encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


async def list_quarantined_messages(
    conn: Connection, limit: int, before: int | None = None
) -> list[QuarantinedMessage]:
    """Return quarantined messages older than ``before``, newest first."""
    async with conn.cursor(row_factory=class_row(QuarantinedMessage)) as cursor:
        await cursor.execute(sql("quarantine/list"), {"limit": limit, "before": before})
        return await cursor.fetchall()


async def delete_quarantined_messages(conn: Connection, upto: int | None = None) -> int:
    """Delete the messages up to this ID, or all; return their number."""
    return (await conn.execute(sql("quarantine/clear"), {"upto": upto})).rowcount


async def delete_surplus_quarantined(conn: Connection) -> None:
    await conn.execute(sql("quarantine/thin"), {"keep": QUARANTINE_MAX_MESSAGES})
