"""Files that watches have found. Every step from one state to the next is one statement, and made by one of many."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from tidemill.domain.page import MAX_NUMBER, Page, Walk, mark_of, moment, number
from tidemill.domain.watching.decide import JobFacts, Known, news_of, orphans_of
from tidemill.domain.watching.file import Entry, FileState, WatchFile
from tidemill.store import files
from tidemill.store.database import Connection, one_statement
from tidemill.store.lists.fetch import Row, rows
from tidemill.store.statements import sql

WALK = Walk("watch_files", (moment, number))
KEPT_DAYS, FORGOTTEN_AT_ONCE = 90, 10_000
_FILE = tuple(WatchFile.__slots__)


@dataclass(frozen=True, slots=True)
class Whose:
    """Which files: those of a watch, at its source."""

    watch: str
    source: str
    declared: frozenset[str] = (
        frozenset()
    )  # the watches that there are: what is another's, and not of these, is nobody's


async def note(conn: Connection, whose: Whose, entries: Sequence[Entry], why: Callable[[Entry], str]) -> None:
    """A part of a listing: what is new waits, what has changed waits anew. Of what is known, nothing is written."""
    columns = _columns(whose, entries)
    known = [Known(**row) for row in await rows(conn, "watch_file/known", columns)]
    orphans = orphans_of(known, {whose.watch} | whose.declared)
    if orphans:
        await conn.execute(sql("watch_file/adopt"), {"watch": whose.watch, "ids": orphans})
    news = news_of(entries, known)
    if news.changed:
        ids, changed = [one.id for one, _ in news.changed], [entry for _, entry in news.changed]
        notes = [why(entry) for entry in changed]
        await conn.execute(sql("watch_file/change"), _columns(whose, changed) | {"ids": ids, "notes": notes})
    if news.added:
        refusals = [one.refused for one in news.added]
        notes = [why(entry) for entry in news.added]
        await conn.execute(sql("watch_file/add"), _columns(whose, news.added) | {"refusals": refusals, "notes": notes})


async def lose(conn: Connection, whose: Whose, listed: Sequence[Entry]) -> int:
    """Those that wait and are in no listing any more."""
    return (await conn.execute(sql("watch_file/lose"), _columns(whose, listed))).rowcount


async def again(conn: Connection, whose: Whose, listed: Sequence[Entry], why: str) -> int:
    """Those that failed, and are there: once more."""
    return (await conn.execute(sql("watch_file/again"), _columns(whose, listed) | {"note": why})).rowcount


async def ready(
    conn: Connection, whose: Whose, began: datetime, *, stable_for: float, marked: Sequence[str] | None, limit: int
) -> list[WatchFile]:
    given = {"watch": whose.watch, "source": whose.source, "began": began, "stable_for": stable_for}
    return await _files(conn, "watch_file/ready", given | {"marked": marked, "limit": limit})


async def take(conn: Connection, file: WatchFile, owner_id: int, file_id: str) -> bool:
    """It is being fetched, into this stored file, which goes by itself if nothing comes of it."""
    taken = await _step(conn, "watch_file/take", {"id": file.id, "owner_id": owner_id, "file_id": file_id})
    if taken:
        await files.reserve(conn, file_id)
    return taken


async def submit(conn: Connection, file: WatchFile, job_id: UUID) -> bool:
    """It has a job."""
    return await _step(conn, "watch_file/submit", {"id": file.id, "job_id": job_id})


async def set_state(
    conn: Connection, file: WatchFile, state: FileState, note: str | None, *, before: Sequence[FileState]
) -> bool:
    params = {"id": file.id, "state": state, "note": note, "from": list(before)}
    return await _step(conn, "watch_file/set_state", params)


async def set_note(conn: Connection, file: WatchFile, note: str) -> None:
    await conn.execute(sql("watch_file/set_note"), {"id": file.id, "note": note})


async def wait_again(conn: Connection, file: WatchFile, entry: Entry, note: str) -> None:
    """In the version it has now; one that is known already has a row of its own, and this one is gone."""
    params = {"id": file.id, "size": entry.size, "version": entry.version, "note": note}
    if not await _step(conn, "watch_file/wait_again", params):
        await set_state(conn, file, FileState.GONE, note, before=(FileState.SEEN, FileState.TAKEN))


async def reserve(conn: Connection, file: WatchFile, moved_to: str) -> str:
    cursor = await conn.execute(sql("watch_file/reserve"), {"id": file.id, "moved_to": moved_to})
    row = await cursor.fetchone()
    return moved_to if row is None else str(row[0])


async def reserve_anew(conn: Connection, file: WatchFile, moved_to: str | None) -> None:
    await conn.execute(sql("watch_file/reserve_anew"), {"id": file.id, "moved_to": moved_to})


async def unsettled(conn: Connection, watch: str, *, after: int, limit: int) -> list[tuple[WatchFile, JobFacts]]:
    found = await rows(conn, "watch_file/unsettled", {"watch": watch, "after": after, "limit": limit})
    return [(WatchFile(**{name: row[name] for name in _FILE}), _facts(row)) for row in found]


async def forget(conn: Connection) -> int:
    """Files that are over, for so long that nobody asks any more."""
    return (await conn.execute(sql("watch_file/forget"), {"days": KEPT_DAYS, "limit": FORGOTTEN_AT_ONCE})).rowcount


@one_statement
async def of_scan(conn: Connection, watch: str, began: datetime, limit: int) -> list[WatchFile]:
    return await _files(conn, "watch_file/of_scan", {"watch": watch, "began": began, "limit": limit})


@one_statement
async def page(
    conn: Connection, watch: str, *, state: FileState | None = None, limit: int, after: object = None
) -> Page[Row]:
    """The newest change first."""
    mark = mark_of(watch, state)
    at, last = (datetime.max.replace(tzinfo=UTC), MAX_NUMBER) if after is None else WALK.read(after, mark)
    params = {"watch": watch, "state": state, "at": at, "id": last, "limit": limit + 1}
    found = await rows(conn, "watch_file/list" if state is None else "watch_file/list_state", params)
    more = len(found) > limit
    place = WALK.place(mark, found[limit - 1]["at"], found[limit - 1]["id"]) if more else None
    return Page(found[:limit], place)


def _columns(whose: Whose, entries: Sequence[Entry]) -> dict[str, Any]:
    columns = {"paths": "path", "sizes": "size", "versions": "version"}
    arrays = {name: [getattr(one, field) for one in entries] for name, field in columns.items()}
    return {"watch": whose.watch, "source": whose.source} | arrays


def _facts(row: Row) -> JobFacts:
    return JobFacts(row["has_job"], row["ingest_done"], row["closed_as"], row["failure_reason"])


async def _step(conn: Connection, query: str, params: dict[str, Any]) -> bool:
    return await (await conn.execute(sql(query), params)).fetchone() is not None


async def _files(conn: Connection, query: str, params: dict[str, Any]) -> list[WatchFile]:
    async with conn.cursor(row_factory=class_row(WatchFile)) as cursor:
        await cursor.execute(sql(query), params)
        return await cursor.fetchall()
