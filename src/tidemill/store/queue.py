"""How much waits, for all jobs together."""

from dataclasses import dataclass

from psycopg.rows import class_row

from tidemill.store.database import Connection
from tidemill.store.statements import sql


@dataclass(frozen=True, slots=True)
class Depth:
    """Open items by status; ``oldest_s`` is how long what was due first has waited."""

    pending: int
    processing: int
    retry_wait: int
    oldest_s: float


async def depth(conn: Connection) -> Depth:
    async with conn.cursor(row_factory=class_row(Depth)) as cursor:
        await cursor.execute(sql("queue/depth"))
        row = await cursor.fetchone()
    assert row is not None  # noqa: S101  sums without GROUP BY
    return row
