"""Stored files that no job needs any more."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from tidemill.store.database import Connection
from tidemill.store.statements import sql


async def unneeded(conn: Connection, after: str, limit: int) -> list[str]:
    """A page of them, in order of their names."""
    cursor = await conn.execute(sql("file/list_unneeded"), {"after": after, "limit": limit})
    return [row[0] for row in await cursor.fetchall()]


async def forget(conn: Connection, files: Sequence[str]) -> None:
    """They are removed."""
    await conn.execute(sql("file/forget"), {"files": list(files)})


async def expire(conn: Connection, file_id: str, made_by: UUID | None, hours: int) -> datetime:
    """A file is not needed any more after so long; when that is. It goes sooner with the job that made it."""
    cursor = await conn.execute(sql("file/expire"), {"file_id": file_id, "made_by": made_by, "hours": hours})
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101  it returns what it wrote
    return row[0]  # type: ignore[no-any-return]
