"""Stores which worker has which maintenance duty."""

from dataclasses import dataclass

from tidemill.store.database import Connection
from tidemill.store.statements import sql


@dataclass(frozen=True, slots=True)
class TakenDuty:
    """A duty of this worker. The clock is ``behind_s`` behind the time at which the duty was last renewed."""

    behind_s: float


async def take_or_renew_duty(conn: Connection, name: str, worker: str, seconds: float) -> TakenDuty | None:
    """Take or keep a duty; return None if another worker has it."""
    cursor = await conn.execute(sql("duty/take"), {"name": name, "worker": worker, "seconds": seconds})
    row = await cursor.fetchone()
    return None if row is None else TakenDuty(row[0])


async def release_duties(conn: Connection, worker: str) -> None:
    await conn.execute(sql("duty/resign"), {"worker": worker})
