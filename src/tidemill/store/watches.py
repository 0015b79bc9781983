"""Turns of watches: one worker has one at a time."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.domain.watching.times import SETTLE_LEAST_S, SETTLE_MOST_S
from tidemill.store.database import Connection, one_statement
from tidemill.store.lists.fetch import rows
from tidemill.store.statements import sql


@dataclass(frozen=True, slots=True)
class Turn:
    """The right to a watch. ``is_due``: its source is to be looked at, and not only the jobs of its files."""

    name: str
    is_due: bool
    began: datetime
    failures: int
    lease_id: UUID


@dataclass(frozen=True, slots=True)
class Came:
    """What a turn came to."""

    looked: bool
    problem: str | None = None
    found: int = 0
    submitted: int = 0
    delay: float | None = None  # seconds to the next look at the source; None: as it was
    is_cut: bool = False  # nobody waited until all of it was done


async def ensure(conn: Connection, names: Collection[str]) -> None:
    await conn.execute(sql("watch/ensure"), {"names": sorted(names)})


async def take_due(
    conn: Connection,
    names: Sequence[str],
    scheduled: Sequence[str],
    *,
    lease_id: UUID,
    seconds: float,
    worker: str,
) -> Turn | None:
    """A turn that is due, of any of these; the same one again if its COMMIT was not heard of."""
    params = {"names": names, "scheduled": scheduled, "lease_id": lease_id, "seconds": seconds, "worker": worker}
    return await _turn(conn, "watch/lease_due", params, lease_id)


async def take_named(conn: Connection, name: str, *, lease_id: UUID, seconds: float, worker: str) -> Turn | None:
    """A turn out of turn; None if somebody has it."""
    params = {"name": name, "lease_id": lease_id, "seconds": seconds, "worker": worker}
    return await _turn(conn, "watch/lease_named", params, lease_id)


async def _turn(conn: Connection, query: str, params: dict[str, Any], lease_id: UUID) -> Turn | None:
    cursor = await conn.execute(sql(query), params)
    row = await cursor.fetchone()
    return None if row is None else Turn(row[0], row[1], row[2], row[3], lease_id)


async def extend(conn: Connection, turn: Turn, seconds: float) -> bool:
    params = {"name": turn.name, "lease_id": turn.lease_id, "seconds": seconds}
    return await (await conn.execute(sql("watch/extend"), params)).fetchone() is not None


async def finish(conn: Connection, turn: Turn, came: Came) -> None:
    """Nothing happens if somebody else has it by now."""
    params = {name: getattr(came, name) for name in Came.__slots__}
    bounds = {"least": SETTLE_LEAST_S, "most": SETTLE_MOST_S}
    await conn.execute(sql("watch/finish"), params | bounds | {"name": turn.name, "lease_id": turn.lease_id})


@one_statement
async def next_due(conn: Connection, names: Sequence[str], scheduled: Sequence[str]) -> float | None:
    cursor = await conn.execute(sql("watch/next_due"), {"names": names, "scheduled": scheduled})
    row = await cursor.fetchone()
    return None if row is None else row[0]


@one_statement
async def standings(conn: Connection, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """How each of these is, as far as anybody has looked."""
    return {row["name"]: row for row in await rows(conn, "watch/list", {"names": list(names)})}
