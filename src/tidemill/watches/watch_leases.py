"""Turns of watches: one worker has one at a time."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tidemill.store.database import Connection
from tidemill.store.statements import RowDict, SqlParams, fetch_rows, load_sql
from tidemill.watches.watch import ARCHIVE_CHECK_MAX_S, ARCHIVE_CHECK_MIN_S

sql = load_sql("tidemill.watches")


@dataclass(frozen=True, slots=True)
class WatchLease:
    """The right to a watch. ``is_due``: its source is to be looked at, and not only the jobs of its files."""

    name: str
    is_due: bool
    began: datetime
    failures: int
    lease_id: UUID


@dataclass(frozen=True, slots=True)
class WatchScanResult:
    """What a turn came to."""

    looked: bool
    problem: str | None = None
    found: int = 0
    submitted: int = 0
    delay: float | None = None  # seconds to the next look at the source; None: as it was
    is_cut: bool = False  # nobody waited until all of it was done


async def ensure_watches(conn: Connection, names: Collection[str]) -> None:
    await conn.execute(sql("watch/ensure"), {"names": sorted(names)})


async def lease_due_watch(
    conn: Connection,
    names: Sequence[str],
    scheduled: Sequence[str],
    *,
    lease_id: UUID,
    seconds: float,
    worker: str,
) -> WatchLease | None:
    """A turn that is due, of any of these; the same one again if its COMMIT was not heard of."""
    params = {"names": names, "scheduled": scheduled, "lease_id": lease_id, "seconds": seconds, "worker": worker}
    return await _fetch_watch_lease(conn, "watch/lease_due", params, lease_id)


async def lease_watch(conn: Connection, name: str, *, lease_id: UUID, seconds: float, worker: str) -> WatchLease | None:
    """A turn out of turn; None if somebody has it."""
    params = {"name": name, "lease_id": lease_id, "seconds": seconds, "worker": worker}
    return await _fetch_watch_lease(conn, "watch/lease_named", params, lease_id)


async def _fetch_watch_lease(conn: Connection, query: str, params: SqlParams, lease_id: UUID) -> WatchLease | None:
    cursor = await conn.execute(sql(query), params)
    row = await cursor.fetchone()
    return None if row is None else WatchLease(row[0], row[1], row[2], row[3], lease_id)


async def extend_watch_lease(conn: Connection, lease: WatchLease, seconds: float) -> bool:
    params = {"name": lease.name, "lease_id": lease.lease_id, "seconds": seconds}
    return await (await conn.execute(sql("watch/extend"), params)).fetchone() is not None


async def finish_watch_scan(conn: Connection, lease: WatchLease, result: WatchScanResult) -> None:
    """Nothing happens if somebody else has it by now."""
    params = {name: getattr(result, name) for name in WatchScanResult.__slots__}
    bounds = {"least": ARCHIVE_CHECK_MIN_S, "most": ARCHIVE_CHECK_MAX_S}
    await conn.execute(sql("watch/finish"), params | bounds | {"name": lease.name, "lease_id": lease.lease_id})


async def read_seconds_to_next_due(conn: Connection, names: Sequence[str], scheduled: Sequence[str]) -> float | None:
    cursor = await conn.execute(sql("watch/next_due"), {"names": names, "scheduled": scheduled})
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def read_watch_states(conn: Connection, names: Sequence[str]) -> dict[str, RowDict]:
    """How each of these is, as far as anybody has looked."""
    return {row["name"]: row for row in await fetch_rows(conn, sql("watch/list"), {"names": list(names)})}
