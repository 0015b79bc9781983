"""What exports ask the database: whether their file is still wanted, and what became of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from tidemill.store.database import Connection, one_statement
from tidemill.store.statements import sql


@one_statement
async def is_wanted(conn: Connection, export_id: UUID) -> bool:
    cursor = await conn.execute(sql("job/is_wanted"), {"export_id": export_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


@dataclass(frozen=True, slots=True)
class Made:
    """What an export was asked for, and what became of it as far as that is known."""

    id: UUID
    idem_key: str | None
    input: dict[str, Any] | None
    started_at: datetime | None
    result: dict[str, Any] | None
    error: dict[str, Any] | None


@one_statement
async def made(conn: Connection, export_ids: Sequence[UUID]) -> dict[UUID, Made]:
    async with conn.cursor(row_factory=class_row(Made)) as cursor:
        await cursor.execute(sql("job/exports"), {"ids": list(export_ids)})
        return {found.id: found for found in await cursor.fetchall()}
