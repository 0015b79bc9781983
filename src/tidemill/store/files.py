"""Stored files that no job needs: any more, or yet."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from tidemill.store.database import Connection
from tidemill.store.statements import sql

ABANDONED_H = 168  # a file of which nobody could make a job is kept for a week


async def unneeded(conn: Connection, after: str, limit: int) -> list[str]:
    """A page of them, in order of their names."""
    cursor = await conn.execute(sql("file/list_unneeded"), {"after": after, "limit": limit})
    return [row[0] for row in await cursor.fetchall()]


async def forget(conn: Connection, files: Sequence[str]) -> None:
    """They are removed."""
    await conn.execute(sql("file/forget"), {"files": list(files)})


async def reserve(conn: Connection, file_id: str) -> None:
    """A file is about to be stored, and goes by itself if nothing comes of it."""
    await expire(conn, file_id, None, ABANDONED_H)


async def keep(conn: Connection, file_id: str) -> None:
    """It does not go by itself any more."""
    await conn.execute(sql("file/keep"), {"file_id": file_id})


async def expire(conn: Connection, file_id: str, made_by: UUID | None, hours: int) -> datetime:
    """A file is not needed any more after so long; when that is. It goes sooner with the job that made it."""
    cursor = await conn.execute(sql("file/expire"), {"file_id": file_id, "made_by": made_by, "hours": hours})
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101  it returns what it wrote
    return row[0]  # type: ignore[no-any-return]
