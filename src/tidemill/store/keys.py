"""Items by a key. Nothing is in order of keys: items are looked through, a window at a time."""

from uuid import UUID

from tidemill.store.database import Connection
from tidemill.store.statements import sql

WINDOW = 20_000


async def keyed(conn: Connection, job_id: UUID, key: str, lo: int, hi: int) -> list[int]:
    """The items from ``lo`` to before ``hi`` that have it, in order."""
    cursor = await conn.execute(sql("item/keyed"), {"job_id": job_id, "key": key, "lo": lo, "hi": hi})
    return [row[0] for row in await cursor.fetchall()]
