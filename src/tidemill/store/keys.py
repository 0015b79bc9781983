"""Items by a key, or by their numbers. Nothing is in order of keys: items are looked through, a window at a time."""

from collections.abc import Collection, Sequence
from uuid import UUID

from tidemill.domain.numbers import Range, within
from tidemill.store.database import Connection
from tidemill.store.statements import sql

WINDOW = 20_000


async def keyed(conn: Connection, job_id: UUID, key: str, lo: int, hi: int) -> list[int]:
    """The items from ``lo`` to before ``hi`` that have it, in order."""
    cursor = await conn.execute(sql("item/keyed"), {"job_id": job_id, "key": key, "lo": lo, "hi": hi})
    return [row[0] for row in await cursor.fetchall()]


async def chosen(
    conn: Connection,
    job_id: UUID,
    lo: int,
    hi: int,
    *,
    key: str | None,
    seqs: Collection[int] | None,
    ranges: Sequence[Range],
) -> list[int]:
    """From ``lo`` to before ``hi``, those that are named, if some are, and have the key, if one is said."""
    named = None if seqs is None else within(lo, hi, seqs, ranges)
    if named is not None and (key is None or not named):
        return named
    among = None if named is None else set(named)
    return [seq for seq in await keyed(conn, job_id, key or "", lo, hi) if among is None or seq in among]
