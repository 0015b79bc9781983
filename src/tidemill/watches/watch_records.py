"""The stored watches, their leases and their files. Each change is one statement, so that only one process makes it."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from tidemill.core.list_pages import (
    BIGINT_SAFE_MAX,
    ListOrder,
    Page,
    fingerprint_filters,
    parse_cursor_timestamp,
    parse_number,
)
from tidemill.store import retention
from tidemill.store.database import Connection
from tidemill.store.statements import RowDict, SqlParams, fetch_records, fetch_rows, make_sql_loader
from tidemill.watches.file_state import (
    FileJobState,
    FileState,
    ListedFile,
    RecordedFile,
    WatchFile,
    find_new_and_changed_files,
    find_orphaned_file_ids,
)
from tidemill.watches.watch import ARCHIVE_CHECK_MAX_S, ARCHIVE_CHECK_MIN_S

sql = make_sql_loader("tidemill.watches")

WATCH_FILES_ORDER = ListOrder("watch_files", (parse_cursor_timestamp, parse_number))
WATCH_FILE_KEPT_DAYS, FORGET_MAX_WATCH_FILES = 90, 10_000
WATCH_COLUMNS_MAX = 2_000  # columns that a watch remembers
_WATCH_FILE_COLUMNS = tuple(WatchFile.__slots__)


@dataclass(frozen=True, slots=True)
class WatchScope:
    """The files of a watch at its source."""

    watch: str
    source: str
    declared: frozenset[str] = frozenset()  # all declared watches; files of other watches are orphaned


async def record_new_and_changed_files(
    conn: Connection, scope: WatchScope, entries: Sequence[ListedFile], explain_wait: Callable[[ListedFile], str]
) -> None:
    """Store the new and the changed files of a part of a listing. Unchanged files are not written."""
    columns = _build_listing_params(scope, entries)
    known = [RecordedFile(**row) for row in await fetch_rows(conn, sql("watch_file/known"), columns)]
    orphans = find_orphaned_file_ids(known, {scope.watch} | scope.declared)
    if orphans:
        await conn.execute(sql("watch_file/adopt"), {"watch": scope.watch, "ids": orphans})
    changes = find_new_and_changed_files(entries, known)
    if changes.changed:
        ids, changed = [stored.id for stored, _ in changes.changed], [entry for _, entry in changes.changed]
        notes = [explain_wait(entry) for entry in changed]
        await conn.execute(
            sql("watch_file/change"), _build_listing_params(scope, changed) | {"ids": ids, "notes": notes}
        )
    if changes.added:
        refusals = [entry.refusal_reason for entry in changes.added]
        notes = [explain_wait(entry) for entry in changes.added]
        await conn.execute(
            sql("watch_file/add"), _build_listing_params(scope, changes.added) | {"refusals": refusals, "notes": notes}
        )


async def mark_missing_files(conn: Connection, scope: WatchScope, listed: Sequence[ListedFile]) -> int:
    """Mark waiting files that the listing does not contain as gone. Return their number."""
    return (await conn.execute(sql("watch_file/lose"), _build_listing_params(scope, listed))).rowcount


async def requeue_failed_files(conn: Connection, scope: WatchScope, listed: Sequence[ListedFile], reason: str) -> int:
    """Requeue failed files that still exist. Return their number."""
    return (
        await conn.execute(sql("watch_file/again"), _build_listing_params(scope, listed) | {"note": reason})
    ).rowcount


async def list_ready_files(
    conn: Connection, scope: WatchScope, began: datetime, *, stable_for: float, marked: Sequence[str] | None, limit: int
) -> list[WatchFile]:
    given = {"watch": scope.watch, "source": scope.source, "began": began, "stable_for": stable_for}
    return await _fetch_watch_files(conn, "watch_file/ready", given | {"marked": marked, "limit": limit})


async def claim_file(conn: Connection, file: WatchFile, owner_id: int, file_id: str) -> bool:
    """Claim a file before it is fetched. Maintenance deletes the stored copy if no job uses it."""
    claim = {"id": file.id, "owner_id": owner_id, "file_id": file_id}
    is_claimed = await _run_conditional_update(conn, "watch_file/take", claim)
    if is_claimed:
        await retention.register_unclaimed_file(conn, file_id)
    return is_claimed


async def mark_file_submitted(conn: Connection, file: WatchFile, job_id: UUID) -> bool:
    return await _run_conditional_update(conn, "watch_file/submit", {"id": file.id, "job_id": job_id})


async def change_file_state_if_in_states(
    conn: Connection, file: WatchFile, state: FileState, note: str | None, *, before: Sequence[FileState]
) -> bool:
    params = {"id": file.id, "state": state, "note": note, "from": list(before)}
    return await _run_conditional_update(conn, "watch_file/set_state", params)


async def set_file_note(conn: Connection, file: WatchFile, note: str) -> None:
    await conn.execute(sql("watch_file/set_note"), {"id": file.id, "note": note})


async def requeue_changed_file(conn: Connection, file: WatchFile, entry: ListedFile, note: str) -> None:
    """Requeue a file with its current version. If that version is stored already, mark this file as gone."""
    params = {"id": file.id, "size": entry.size, "version": entry.version, "note": note}
    if not await _run_conditional_update(conn, "watch_file/wait_again", params):
        await change_file_state_if_in_states(conn, file, FileState.GONE, note, before=(FileState.SEEN, FileState.TAKEN))


async def read_watch_columns(conn: Connection, name: str) -> list[str] | None:
    """Return the columns of the last file that a watch imported, or None if they are not known."""
    row = await (await conn.execute(sql("watch/read_columns"), {"name": name})).fetchone()
    return None if row is None else row[0]


async def store_watch_columns(conn: Connection, name: str, columns: Sequence[str]) -> None:
    """Remember the columns of an imported file. More than ``WATCH_COLUMNS_MAX`` are not remembered."""
    is_kept = len(columns) <= WATCH_COLUMNS_MAX
    stored = msgspec.json.encode(list(columns)).decode() if is_kept else None
    await conn.execute(sql("watch/set_columns"), {"name": name, "columns": stored})


async def decide_held_file(
    conn: Connection, watch: str, *, file_id: int | None, path: str | None, accepted: bool, note: str
) -> WatchFile | None:
    """Accept or reject a held file, and return it; None if no such file is held, or a newer version waits."""
    params = {"watch": watch, "id": file_id, "path": path, "accepted": accepted, "note": note}
    found = await _fetch_watch_files(conn, "watch_file/decide", params)
    return found[0] if found else None


async def reserve_archive_path(conn: Connection, file: WatchFile, moved_to: str) -> str:
    cursor = await conn.execute(sql("watch_file/reserve"), {"id": file.id, "moved_to": moved_to})
    row = await cursor.fetchone()
    return moved_to if row is None else str(row[0])


async def replace_archive_path(conn: Connection, file: WatchFile, moved_to: str | None) -> None:
    await conn.execute(sql("watch_file/reserve_anew"), {"id": file.id, "moved_to": moved_to})


async def list_unsettled_files(
    conn: Connection, watch: str, *, after: int, limit: int
) -> list[tuple[WatchFile, FileJobState]]:
    rows = await fetch_rows(conn, sql("watch_file/unsettled"), {"watch": watch, "after": after, "limit": limit})
    return [(WatchFile(**{name: row[name] for name in _WATCH_FILE_COLUMNS}), _parse_job_state(row)) for row in rows]


async def forget_old_watch_files(conn: Connection) -> int:
    """Delete the records of files that were archived or removed more than ``WATCH_FILE_KEPT_DAYS`` ago."""
    return (
        await conn.execute(sql("watch_file/forget"), {"days": WATCH_FILE_KEPT_DAYS, "limit": FORGET_MAX_WATCH_FILES})
    ).rowcount


async def list_files_of_scan(conn: Connection, watch: str, began: datetime, limit: int) -> list[WatchFile]:
    return await _fetch_watch_files(conn, "watch_file/of_scan", {"watch": watch, "began": began, "limit": limit})


async def list_watch_files(
    conn: Connection, watch: str, *, state: FileState | None = None, limit: int, after: object = None
) -> Page[RowDict]:
    """Return a page of files, most recently changed first."""
    filters = fingerprint_filters(watch, state)
    at, last = (
        (datetime.max.replace(tzinfo=UTC), BIGINT_SAFE_MAX)
        if after is None
        else WATCH_FILES_ORDER.parse_position(after, filters)
    )
    params = {"watch": watch, "state": state, "at": at, "id": last, "limit": limit + 1}
    rows = await fetch_rows(conn, sql("watch_file/list" if state is None else "watch_file/list_state"), params)
    if len(rows) <= limit:
        return Page(rows, None)
    last_shown = rows[limit - 1]
    return Page(rows[:limit], WATCH_FILES_ORDER.build_position(filters, last_shown["at"], last_shown["id"]))


def _build_listing_params(scope: WatchScope, entries: Sequence[ListedFile]) -> dict[str, object]:
    columns = {"paths": "path", "sizes": "size", "versions": "version"}
    arrays = {name: [getattr(one, field) for one in entries] for name, field in columns.items()}
    return {"watch": scope.watch, "source": scope.source, **arrays}


def _parse_job_state(row: RowDict) -> FileJobState:
    return FileJobState(row["has_job"], row["ingest_done"], row["closed_as"], row["failure_reason"])


async def _run_conditional_update(conn: Connection, query: str, params: SqlParams) -> bool:
    return await (await conn.execute(sql(query), params)).fetchone() is not None


async def _fetch_watch_files(conn: Connection, query: str, params: SqlParams) -> list[WatchFile]:
    return await fetch_records(conn, WatchFile, sql(query), params)


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
