"""Checks the invariants of the engine, each with a query for violations, and the server's settings."""

from dataclasses import dataclass, field
from uuid import UUID

from tidemill.store.database import Connection, Database
from tidemill.store.statements import RowDict, SqlParams, fetch_rows, sql

INVARIANTS = {
    "live ranges of a job do not overlap": "disjoint_ranges",
    "no item is in two open lists": "disjoint_lists",
    "no item is open in both a range and a list": "settled_once",
    "every item is counted exactly once": "sum_holds",
    "items are numbered without gaps": "dense_seq",
    "open items of a range have no outcome": "range_open",
    "items of a list have an open outcome": "list_open",
    "every open outcome is in a list": "open_outcomes_listed",
    "counters equal rows": "tallies",
    "error code counters equal rows": "codes",
    "closed jobs have no open work": "closed_is_closed",
    "every batch has a job": "orphan_batches",
}
OLDEST_SERVER_VERSION, FIRST_UNSUPPORTED_SERVER_VERSION = 150000, 190000


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    ok: bool
    details: list[str] = field(default_factory=list)
    is_warning: bool = False


async def check_server_and_invariants(db: Database) -> list[Finding]:
    """Check the server and all invariants in one snapshot."""
    async with db.transaction(bounded=False) as conn:
        await conn.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", prepare=False)
        return [*await _check_server(conn), *await check_invariants(conn)]


async def check_invariants(conn: Connection, job_id: UUID | None = None) -> list[Finding]:
    """Check all invariants, for one job or for all jobs."""
    findings = []
    for name, query in INVARIANTS.items():
        broken = await _fetch_doctor_rows(conn, query, {"job_id": job_id})
        findings.append(Finding(name, not broken, [_format_row_as_text(row) for row in broken]))
    return findings


async def _check_server(conn: Connection) -> list[Finding]:
    settings = {row["name"]: row["setting"] for row in await _fetch_doctor_rows(conn, "server", {})}
    version = int(settings.pop("server_version_num"))
    off = [f"{name} = {value}" for name, value in sorted(settings.items()) if value == "off"]
    old = [_format_row_as_text(row) for row in await _fetch_doctor_rows(conn, "old_snapshots", {})]
    known = OLDEST_SERVER_VERSION <= version < FIRST_UNSUPPORTED_SERVER_VERSION
    return [
        Finding("server is PostgreSQL 15 to 18", known, [] if known else [f"server_version_num = {version}"]),
        Finding("committed data survives a crash", not off, off),
        Finding("no long transaction prevents cleanup of dead rows", not old, old, is_warning=True),
    ]


async def _fetch_doctor_rows(conn: Connection, name: str, params: SqlParams) -> list[RowDict]:
    return await fetch_rows(conn, sql(f"doctor/{name}"), params)


def _format_row_as_text(row: RowDict) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.items())
