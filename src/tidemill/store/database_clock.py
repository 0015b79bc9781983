"""Reads the clock of the database, and recovers when it was set back."""

from datetime import datetime

from tidemill.store.database import Connection
from tidemill.store.statements import sql

CLOCK_TOLERANCE_S = 5.0  # a smaller jump only delays work by as much
RENEWED_LEASE_S = 30.0  # workers renew their leases every few seconds


async def recover_from_clock_set_back(conn: Connection, behind_s: float) -> float | None:
    """If the clock of the database was set back, move planned times back; return the seconds, None if it was not.

    Without it, ready batches, expired leases and schedules would wait until the clock is where it was before.
    ``behind_s`` is what the caller knows already.
    """
    cursor = await conn.execute(sql("clock/measure_set_back"))
    row = await cursor.fetchone()
    seconds = max(behind_s, row[0] if row and row[0] is not None else 0.0)
    if seconds < CLOCK_TOLERANCE_S:
        return None
    await conn.execute(sql("clock/move_back"), {"seconds": seconds, "lease": RENEWED_LEASE_S})
    return seconds


async def read_database_clock(conn: Connection) -> datetime:
    """Return the current time of the database."""
    cursor = await conn.execute(sql("job/clock"))
    row = await cursor.fetchone()
    return row[0]  # type: ignore[index, no-any-return]
