"""What an import stores beside its items: duplicate keys, effects on the target table, and queries for failed rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row, kwargs_row

from tidemill.core.input_source import SourceReference, resolve_line_number
from tidemill.core.list_pages import PAGE_ITEM_BUDGET, ListOrder, Page, fingerprint_filters, parse_number
from tidemill.core.outcome import ErrorDetails
from tidemill.store.database import Connection
from tidemill.store.jsonb import decode_input_or_text
from tidemill.store.statements import RowDict, make_sql_loader

sql = make_sql_loader("tidemill.imports")


@dataclass(frozen=True, slots=True)
class DuplicateCandidate:
    """Row ``seq`` is a duplicate of row ``other`` if their keys are equal. ``key_index`` is the key that they share."""

    seq: int
    other: int
    key_index: int
    other_input: Any = None


async def find_duplicate_candidates(conn: Connection, job_id: UUID, seqs: Sequence[int]) -> list[DuplicateCandidate]:
    """Those of these rows that lose to others."""
    lo, hi = seqs[0], seqs[-1]
    is_range = hi - lo < 2 * len(seqs)
    params = {"job_id": job_id, "lo": lo, "hi": hi, "seqs": None if is_range else list(seqs)}
    cursor = await conn.execute(sql("repeat/list"), params, prepare=False)
    wanted = set(seqs)
    found = [row for row in await cursor.fetchall() if row[0] in wanted]
    return [
        DuplicateCandidate(seq, other, key, decode_input_or_text(text, exact=True)) for seq, other, key, text in found
    ]


async def read_remaining_batch_flags(conn: Connection, job_id: UUID) -> tuple[bool, bool]:
    """Whether a job has rows that were never tried, and whether it has more than one batch that goes round again."""
    cursor = await conn.execute(sql("batch/rest_of_job"), {"job_id": job_id})
    return await cursor.fetchone() or (False, False)


async def add_import_effects(conn: Connection, job_id: UUID, effects: Mapping[str, int]) -> None:
    if any(effects.values()):
        await conn.execute(sql("effect/add"), {"job_id": job_id, **effects})


async def sum_import_effects(conn: Connection, job_id: UUID) -> dict[str, int]:
    """How many rows of the target a job inserted, updated, and found as they should be."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("effect/sum"), {"job_id": job_id})
        return await cursor.fetchone() or {}


@dataclass(frozen=True, slots=True)
class ImportOrigin:
    """The file of a job and its layout, its idempotency key, and the time when its first row was read."""

    id: UUID
    source: SourceReference | None
    idem_key: str | None
    started_at: datetime | None


def _make_import_origin(source: Mapping[str, Any] | None, **columns: Any) -> ImportOrigin:
    return ImportOrigin(source=None if source is None else SourceReference.from_json(source), **columns)


async def find_import_origins(conn: Connection, job_ids: Sequence[UUID]) -> dict[UUID, ImportOrigin]:
    async with conn.cursor(row_factory=kwargs_row(_make_import_origin)) as cursor:
        await cursor.execute(sql("job/origins"), {"ids": list(job_ids)})
        return {found.id: found for found in await cursor.fetchall()}


async def is_spreadsheet_safe_file(conn: Connection, file_id: str) -> bool:
    """Whether an export has made this file so that a spreadsheet runs nothing of it."""
    cursor = await conn.execute(sql("job/made_safe"), {"file_id": file_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def is_file_of_owner(conn: Connection, file_id: str, owner_id: int | None) -> bool:
    """Whether a stored file belongs to a job of this owner; None: to any job."""
    cursor = await conn.execute(sql("job/has_file"), {"file_id": file_id, "owner_id": owner_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


FAILED_ROWS_ORDER = ListOrder("failures", (parse_number,))
FAILED_ROWS_PAGE_BYTES = 4 << 20  # of inputs; a page ends early rather than hold more
MAX_FAILED_ROW_FIELDS = 1_000


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A failed row: its number from 1, its line in the file, what it holds now, and its stored error."""

    row: int
    line: int
    input: Any
    error: ErrorDetails


async def list_failed_rows(
    conn: Connection, job_id: UUID, *, limit: int, after: object = None, codes: Sequence[str] | None = None
) -> Page[FailedRow]:
    """So many rows and about so many bytes at most. A page may be short, or even empty, and still not be the last.

    With ``codes``, those whose first error is one of these.
    """
    mark = fingerprint_filters(job_id, *([] if codes is None else [sorted(codes)]))
    (after_seq,) = (-1,) if after is None else FAILED_ROWS_ORDER.parse_position(after, mark)
    params = {"job_id": job_id, "after_seq": after_seq, "limit": limit + 1}
    params |= {"codes": None if codes is None else list(codes)}
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            sql("outcome/list_failures"), params | {"budget": PAGE_ITEM_BUDGET, "bytes": FAILED_ROWS_PAGE_BYTES}
        )
        rows = await cursor.fetchall()
    found = [_parse_failed_row(row) for row in rows[:limit] if not row["is_end"]]
    is_last = not rows or (len(rows) <= limit and rows[-1]["total"] == len(rows) and not rows[-1]["is_end"])
    if is_last:
        return Page(found, None)
    last = rows[:limit][-1]
    return Page(found, FAILED_ROWS_ORDER.build_position(mark, last["seq"] - 1 if last["is_end"] else last["seq"]))


async def list_failed_row_fields(conn: Connection, job_id: UUID) -> list[str]:
    """What the failed rows call their fields."""
    cursor = await conn.execute(sql("outcome/failure_names"), {"job_id": job_id, "most": MAX_FAILED_ROW_FIELDS})
    return [row[0] for row in await cursor.fetchall()]


def _parse_failed_row(row: RowDict) -> FailedRow:
    line = resolve_line_number(row["seq"] + 1, row["line"], row["first_line"])
    return FailedRow(row["seq"] + 1, line, decode_input_or_text(row["input"]), row["error"] or {})
