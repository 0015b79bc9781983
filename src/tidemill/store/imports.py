"""What an import keeps beside its items: which rows share a key, and what was done to the target."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from tidemill.store.database import Connection, one_statement
from tidemill.store.statements import sql


@dataclass(frozen=True, slots=True)
class Repeat:
    """Row ``seq`` loses to row ``other``, if their keys are really equal: ``place`` is which of the keys."""

    seq: int
    other: int
    place: int
    other_input: Any = None


async def repeats(conn: Connection, job_id: UUID, lo: int, hi: int) -> list[Repeat]:
    """Rows from ``lo`` to ``hi`` that lose to others."""
    cursor = await conn.execute(sql("repeat/list"), {"job_id": job_id, "lo": lo, "hi": hi})
    return [Repeat(*row) for row in await cursor.fetchall()]


async def note_effects(conn: Connection, job_id: UUID, effects: Mapping[str, int]) -> None:
    if any(effects.values()):
        await conn.execute(sql("effect/add"), {"job_id": job_id, **effects})


@one_statement
async def effects(conn: Connection, job_id: UUID) -> dict[str, int]:
    """How many rows of the target a job inserted, updated, and found as they should be."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("effect/sum"), {"job_id": job_id})
        return await cursor.fetchone() or {}
