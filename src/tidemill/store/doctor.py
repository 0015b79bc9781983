"""The invariants of the engine, each a query for what breaks it; and the server's settings that matter."""

from dataclasses import dataclass, field
from uuid import UUID

from tidemill.store.database import Connection, Database
from tidemill.store.statements import RowDict, SqlParams, fetch_rows, sql

INVARIANTS = {
    "live ranges of a job are disjoint": "disjoint_ranges",
    "no item is in two open lists": "disjoint_lists",
    "no item is open in a range and a list": "settled_once",
    "every item is counted exactly once": "sum_holds",
    "items are numbered without gaps": "dense_seq",
    "a range's open items have no outcome": "range_open",
    "a list's items have an open outcome": "list_open",
    "an open outcome is in a list": "open_outcomes_listed",
    "counters equal rows": "tallies",
    "error codes are counted": "codes",
    "closed jobs have nothing open": "closed_is_closed",
    "every batch has a job": "orphan_batches",
}
OLDEST_SERVER_VERSION, FIRST_UNSUPPORTED_SERVER_VERSION = 150000, 190000


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    ok: bool
    details: list[str] = field(default_factory=list)
    is_warning: bool = False


async def check_database(db: Database) -> list[Finding]:
    """Everything worth checking, in one snapshot."""
    async with db.transaction(bounded=False) as conn:
        await conn.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", prepare=False)
        return [*await _check_server(conn), *await check_invariants(conn)]


async def check_invariants(conn: Connection, job_id: UUID | None = None) -> list[Finding]:
    """Every invariant, of all jobs or one."""
    findings = []
    for name, query in INVARIANTS.items():
        broken = await _fetch_doctor_rows(conn, query, {"job_id": job_id})
        findings.append(Finding(name, not broken, [_format_row(row) for row in broken]))
    return findings


async def _check_server(conn: Connection) -> list[Finding]:
    settings = {row["name"]: row["setting"] for row in await _fetch_doctor_rows(conn, "server", {})}
    version = int(settings.pop("server_version_num"))
    off = [f"{name} = {value}" for name, value in sorted(settings.items()) if value == "off"]
    old = [_format_row(row) for row in await _fetch_doctor_rows(conn, "old_snapshots", {})]
    known = OLDEST_SERVER_VERSION <= version < FIRST_UNSUPPORTED_SERVER_VERSION
    return [
        Finding("the server is PostgreSQL 15 to 18", known, [] if known else [f"it is {version}"]),
        Finding("what is committed survives a crash", not off, off),
        Finding("no old transaction holds dead rows", not old, old, is_warning=True),
    ]


async def _fetch_doctor_rows(conn: Connection, name: str, params: SqlParams) -> list[RowDict]:
    return await fetch_rows(conn, sql(f"doctor/{name}"), params)


def _format_row(row: RowDict) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.items())
