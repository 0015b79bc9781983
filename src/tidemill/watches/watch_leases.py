"""Leases of watches: one process at a time scans a watch."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tidemill.store.database import Connection
from tidemill.store.statements import RowDict, SqlParams, fetch_rows, make_sql_loader
from tidemill.watches.watch import ARCHIVE_CHECK_MAX_S, ARCHIVE_CHECK_MIN_S

sql = make_sql_loader("tidemill.watches")


@dataclass(frozen=True, slots=True)
class WatchLease:
    """The right to scan a watch. If ``is_due`` is False, the scan only archives files and does not list the source."""

    name: str
    is_due: bool
    began: datetime
    failures: int
    lease_id: UUID


@dataclass(frozen=True, slots=True)
class WatchScanResult:
    """The result of one scan."""

    looked: bool
    problem: str | None = None
    found: int = 0
    submitted: int = 0
    delay: float | None = None  # seconds until the next listing of the source; None: unchanged
    is_cut: bool = False  # the scan was interrupted


async def register_missing_watches(conn: Connection, names: Collection[str]) -> None:
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
    """Lease one watch that is due, or return None. A retry after a lost COMMIT returns the same lease."""
    params = {"names": names, "scheduled": scheduled, "lease_id": lease_id, "seconds": seconds, "worker": worker}
    return await _run_lease_statement(conn, "watch/lease_due", params, lease_id)


async def lease_watch(conn: Connection, name: str, *, lease_id: UUID, seconds: float, worker: str) -> WatchLease | None:
    """Lease a watch independently of its schedule. Return None if another process holds the lease."""
    params = {"name": name, "lease_id": lease_id, "seconds": seconds, "worker": worker}
    return await _run_lease_statement(conn, "watch/lease_named", params, lease_id)


async def _run_lease_statement(conn: Connection, query: str, params: SqlParams, lease_id: UUID) -> WatchLease | None:
    cursor = await conn.execute(sql(query), params)
    row = await cursor.fetchone()
    return None if row is None else WatchLease(row[0], row[1], row[2], row[3], lease_id)


async def extend_watch_lease(conn: Connection, lease: WatchLease, seconds: float) -> bool:
    params = {"name": lease.name, "lease_id": lease.lease_id, "seconds": seconds}
    return await (await conn.execute(sql("watch/extend"), params)).fetchone() is not None


async def finish_watch_scan(conn: Connection, lease: WatchLease, result: WatchScanResult) -> None:
    """Store the result and release the lease. Do nothing if the lease was lost."""
    params = {name: getattr(result, name) for name in WatchScanResult.__slots__}
    bounds = {"least": ARCHIVE_CHECK_MIN_S, "most": ARCHIVE_CHECK_MAX_S}
    await conn.execute(sql("watch/finish"), params | bounds | {"name": lease.name, "lease_id": lease.lease_id})


async def read_seconds_to_next_due(conn: Connection, names: Sequence[str], scheduled: Sequence[str]) -> float | None:
    cursor = await conn.execute(sql("watch/next_due"), {"names": names, "scheduled": scheduled})
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def read_watch_states(conn: Connection, names: Sequence[str]) -> dict[str, RowDict]:
    """Return schedule, last scan and file counts by name, for watches that a worker has registered."""
    return {row["name"]: row for row in await fetch_rows(conn, sql("watch/list"), {"names": list(names)})}
