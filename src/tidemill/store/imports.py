"""What an import keeps beside its items: which rows share a key, and what was done to the target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row, dict_row

from tidemill.store.database import Connection, one_statement
from tidemill.store.json import decode_input
from tidemill.store.statements import sql


@dataclass(frozen=True, slots=True)
class Repeat:
    """Row ``seq`` loses to row ``other``, if their keys are really equal: ``place`` is which of the keys."""

    seq: int
    other: int
    place: int
    other_input: Any = None


async def repeats(conn: Connection, job_id: UUID, seqs: Sequence[int]) -> list[Repeat]:
    """Those of these rows that lose to others."""
    lo, hi = seqs[0], seqs[-1]
    is_range = hi - lo < 2 * len(seqs)
    params = {"job_id": job_id, "lo": lo, "hi": hi, "seqs": None if is_range else list(seqs)}
    cursor = await conn.execute(sql("repeat/list"), params, prepare=False)
    wanted = set(seqs)
    found = [row for row in await cursor.fetchall() if row[0] in wanted]
    return [Repeat(seq, other, place, decode_input(text, exact=True)) for seq, other, place, text in found]


async def rest(conn: Connection, job_id: UUID) -> tuple[bool, bool]:
    """Whether a job has rows that were never tried, and whether it has more than one batch that goes round again."""
    cursor = await conn.execute(sql("batch/rest_of_job"), {"job_id": job_id})
    return await cursor.fetchone() or (False, False)


async def note_effects(conn: Connection, job_id: UUID, effects: Mapping[str, int]) -> None:
    if any(effects.values()):
        await conn.execute(sql("effect/add"), {"job_id": job_id, **effects})


@one_statement
async def effects(conn: Connection, job_id: UUID) -> dict[str, int]:
    """How many rows of the target a job inserted, updated, and found as they should be."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("effect/sum"), {"job_id": job_id})
        return await cursor.fetchone() or {}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a job comes from: the file and its layout, the key it was asked for with; when its first row was read."""

    id: UUID
    source: dict[str, Any] | None
    idem_key: str | None
    started_at: datetime | None


@one_statement
async def origins(conn: Connection, job_ids: Sequence[UUID]) -> dict[UUID, Origin]:
    async with conn.cursor(row_factory=class_row(Origin)) as cursor:
        await cursor.execute(sql("job/origins"), {"ids": list(job_ids)})
        return {found.id: found for found in await cursor.fetchall()}


@one_statement
async def is_safe(conn: Connection, file_id: str) -> bool:
    """Whether an export has made this file so that a spreadsheet runs nothing of it."""
    cursor = await conn.execute(sql("job/made_safe"), {"file_id": file_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def has_file(conn: Connection, file_id: str, owner_id: int | None) -> bool:
    """Whether a stored file is one of somebody's jobs', or anybody's."""
    cursor = await conn.execute(sql("job/has_file"), {"file_id": file_id, "owner_id": owner_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])
