"""Queries for duplicate keys, effects on the target table, failed rows and files of imports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.rows import dict_row, kwargs_row
from psycopg.types.json import Jsonb

from tidemill.core.input_source import SourceReference, resolve_line_number
from tidemill.core.list_pages import PAGE_ITEM_BUDGET, ListOrder, Page, fingerprint_filters, parse_number
from tidemill.core.outcome import ErrorDetails
from tidemill.store.database import Connection
from tidemill.store.jsonb import decode_input_or_text
from tidemill.store.statements import RowDict, make_sql_loader

sql = make_sql_loader("tidemill.imports")


@dataclass(frozen=True, slots=True)
class DuplicateCandidate:
    """Row ``seq`` is a duplicate of row ``other`` if their keys are equal. ``key_index`` is the index of that key."""

    seq: int
    other: int
    key_index: int
    other_input: Any = None


async def find_duplicate_candidates(conn: Connection, job_id: UUID, seqs: Sequence[int]) -> list[DuplicateCandidate]:
    """Return those of these rows that may be duplicates of other rows."""
    lo, hi = seqs[0], seqs[-1]
    is_range = hi - lo < 2 * len(seqs)
    params = {"job_id": job_id, "lo": lo, "hi": hi, "seqs": None if is_range else list(seqs)}
    cursor = await conn.execute(sql("repeat/list"), params, prepare=False)
    wanted = set(seqs)
    rows = [row for row in await cursor.fetchall() if row[0] in wanted]
    return [
        DuplicateCandidate(seq, other, key, decode_input_or_text(text, exact=True)) for seq, other, key, text in rows
    ]


async def read_remaining_work_flags(conn: Connection, job_id: UUID, recent_s: float) -> tuple[bool, bool, bool]:
    """Return whether a job has rows without an attempt, has several retrying batches, and wrote rows recently."""
    cursor = await conn.execute(sql("batch/rest_of_job"), {"job_id": job_id, "recent_s": recent_s})
    return await cursor.fetchone() or (False, False, False)


async def add_import_effects(
    conn: Connection, job_id: UUID, effects: Mapping[str, int], created: Mapping[str, int | list[str]]
) -> None:
    """Add the effects of a batch. ``created`` has the created rows by table; in a dry run, hashes of these rows."""
    if any(effects.values()) or created:
        counts = {"inserted": 0, "updated": 0, "unchanged": 0, **effects}
        await conn.execute(
            sql("effect/add"), {"job_id": job_id, "created": Jsonb(created) if created else None, **counts}
        )


async def count_created_references(conn: Connection, job_id: UUID) -> dict[str, int]:
    """Return the number of rows that a job created in other tables, by table; for a dry run, would create."""
    cursor = await conn.execute(sql("effect/created"), {"job_id": job_id})
    return dict(await cursor.fetchall())


async def sum_import_effects(conn: Connection, job_id: UUID) -> dict[str, int]:
    """Return the numbers of rows that a job inserted, updated and left unchanged."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("effect/sum"), {"job_id": job_id})
        return await cursor.fetchone() or {}


@dataclass(frozen=True, slots=True)
class ImportOrigin:
    """The file of a job and its layout, and its idempotency key."""

    id: UUID
    source: SourceReference | None
    idem_key: str | None


def _make_import_origin(source: Mapping[str, Any] | None, **columns: Any) -> ImportOrigin:
    return ImportOrigin(source=None if source is None else SourceReference.from_json(source), **columns)


async def find_import_origins(conn: Connection, job_ids: Sequence[UUID]) -> dict[UUID, ImportOrigin]:
    async with conn.cursor(row_factory=kwargs_row(_make_import_origin)) as cursor:
        await cursor.execute(sql("job/origins"), {"ids": list(job_ids)})
        return {origin.id: origin for origin in await cursor.fetchall()}


async def is_spreadsheet_safe_file(conn: Connection, file_id: str) -> bool:
    """Whether an export created this file with ``spreadsheet_safe``."""
    cursor = await conn.execute(sql("job/made_safe"), {"file_id": file_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


FAILED_ROWS_ORDER = ListOrder("failures", (parse_number,))
FAILED_ROWS_PAGE_BYTES = 4 << 20  # inputs of one page; a page with more ends early
MAX_FAILED_ROW_FIELDS = 1_000


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A failed row: its number from 1, its line in the file, its current input, and its stored error."""

    row: int
    line: int
    input: Any
    error: ErrorDetails


async def list_failed_rows(
    conn: Connection,
    job_id: UUID,
    *,
    limit: int,
    after: object = None,
    codes: Sequence[str] | None = None,
    with_dismissed: bool = True,
) -> Page[FailedRow]:
    """Return a page of failed rows. A page can be short, or even empty, and still not be the last.

    ``codes``: only rows that have an error with one of these codes.
    """
    mark = fingerprint_filters(job_id, *([] if codes is None else [sorted(codes)]), *([] if with_dismissed else [0]))
    (after_seq,) = (-1,) if after is None else FAILED_ROWS_ORDER.parse_position(after, mark)
    chunk = await read_failed_rows_chunk(
        conn, job_id, after_seq=after_seq, limit=limit, codes=codes, with_dismissed=with_dismissed
    )
    last = chunk.last_seq
    return Page(chunk.rows, None if last is None else FAILED_ROWS_ORDER.build_position(mark, last))


class FailedRowsChunk(NamedTuple):
    """Failed rows in file order, and the seq after which the next chunk begins; None after the last row."""

    rows: list[FailedRow]
    last_seq: int | None


async def read_failed_rows_chunk(
    conn: Connection,
    job_id: UUID,
    *,
    after_seq: int,
    limit: int,
    codes: Sequence[str] | None = None,
    with_dismissed: bool = True,
    exact: bool = False,
) -> FailedRowsChunk:
    """Return failed rows after an item. It reads a bounded number of outcomes and bytes, so a chunk can be short.

    With ``exact``, the inputs have all digits of their numbers.
    """
    params = {"job_id": job_id, "after_seq": after_seq, "limit": limit + 1, "with_dismissed": with_dismissed}
    params |= {"codes": None if codes is None else list(codes)}
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            sql("outcome/list_failures"), params | {"budget": PAGE_ITEM_BUDGET, "bytes": FAILED_ROWS_PAGE_BYTES}
        )
        rows = await cursor.fetchall()
    failed = [_parse_failed_row(row, exact=exact) for row in rows[:limit] if not row["is_end"]]
    if not rows or (len(rows) <= limit and rows[-1]["total"] == len(rows) and not rows[-1]["is_end"]):
        return FailedRowsChunk(failed, None)
    last = rows[:limit][-1]
    return FailedRowsChunk(failed, last["seq"] - 1 if last["is_end"] else last["seq"])


async def count_rows_by_error(conn: Connection, job_id: UUID) -> dict[str, int]:
    """Return the number of failed rows that have each error. A row with several errors counts once for each code."""
    cursor = await conn.execute(sql("outcome/count_by_error"), {"job_id": job_id})
    return dict(await cursor.fetchall())


async def count_dismissed_rows_by_error(conn: Connection, job_id: UUID) -> dict[str, int]:
    """Return the number of dismissed rows that have each error. A row with several errors counts for each code."""
    cursor = await conn.execute(sql("outcome/count_dismissed_by_error"), {"job_id": job_id})
    return dict(await cursor.fetchall())


async def list_failed_row_fields(conn: Connection, job_id: UUID) -> list[str]:
    """Return the field names of the failed rows, sorted."""
    cursor = await conn.execute(sql("outcome/failure_names"), {"job_id": job_id, "most": MAX_FAILED_ROW_FIELDS})
    return [row[0] for row in await cursor.fetchall()]


def _parse_failed_row(row: RowDict, *, exact: bool) -> FailedRow:
    line = resolve_line_number(row["seq"] + 1, row["line"], row["first_line"])
    return FailedRow(row["seq"] + 1, line, decode_input_or_text(row["input"], exact=exact), row["error"] or {})
