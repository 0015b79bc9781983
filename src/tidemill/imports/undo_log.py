"""Records of undoable imports: which rows can still be reversed, and the rows that an undo did not reverse."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tidemill.core.list_pages import ListOrder, Page, fingerprint_filters, parse_number
from tidemill.imports.import_records import sql
from tidemill.store.database import Connection
from tidemill.store.statements import fetch_records

EXCEPTIONS_ORDER = ListOrder("undo", (parse_number,))


@dataclass(frozen=True, slots=True)
class UndoTotals:
    """The numbers of rows of an import that an undo and a redo can reverse. ``has_log``: the import wrote records."""

    undoable: int
    redoable: int
    max_id: int
    has_log: bool


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """A record without its rows. ``live``: the rows that are not reversed, from 1; None for all."""

    id: int
    action: str
    layout: Mapping[str, Any]
    row_count: int
    live: Sequence[int] | None
    operation_id: UUID | None

    def list_live_rows(self) -> list[int]:
        return list(range(1, self.row_count + 1)) if self.live is None else list(self.live)


@dataclass(frozen=True, slots=True)
class UndoException:
    """A row that an undo or redo did not reverse: ``kept`` because it has changed, or ``blocked`` by the database."""

    id: int
    status: str
    code: str
    reason: str
    key: Sequence[str]


async def read_undo_totals(conn: Connection, job_id: UUID) -> UndoTotals:
    (totals,) = await fetch_records(conn, UndoTotals, sql("undo/totals"), {"job_id": job_id})
    return totals


async def read_next_record(conn: Connection, job_id: UUID, *, is_undo: bool, max_id: int) -> UndoRecord | None:
    """Return the newest record up to ``max_id`` with rows to reverse; None if there is none."""
    params = {"job_id": job_id, "is_undo": is_undo, "max_id": max_id}
    found = await fetch_records(conn, UndoRecord, sql("undo/next_record"), params)
    return found[0] if found else None


async def set_live_rows(conn: Connection, record_id: int, live: Sequence[int]) -> None:
    params = {"id": record_id, "live": list(live), "live_count": len(live)}
    await conn.execute(sql("undo/set_live"), params)


async def find_running_undo(conn: Connection, job_id: UUID) -> UUID | None:
    row = await (await conn.execute(sql("operation/running_undo"), {"job_id": job_id})).fetchone()
    return None if row is None else row[0]


async def find_last_undo(conn: Connection, job_id: UUID) -> UUID | None:
    row = await (await conn.execute(sql("undo/last_operation"), {"job_id": job_id})).fetchone()
    return None if row is None else row[0]


async def delete_exceptions(conn: Connection, job_id: UUID) -> None:
    await conn.execute(sql("undo/delete_exceptions"), {"job_id": job_id})


async def list_exceptions(
    conn: Connection, job_id: UUID, *, status: str | None, limit: int, after: object = None
) -> Page[UndoException]:
    """Return a page of the rows that the last undo or redo did not reverse."""
    mark = fingerprint_filters(job_id, status or "")
    (after_id,) = (0,) if after is None else EXCEPTIONS_ORDER.parse_position(after, mark)
    params = {"job_id": job_id, "status": status, "after": after_id, "limit": limit + 1}
    rows = await fetch_records(conn, UndoException, sql("undo/list_exceptions"), params)
    shown = rows[:limit]
    return Page(shown, EXCEPTIONS_ORDER.build_position(mark, shown[-1].id) if len(rows) > limit else None)
