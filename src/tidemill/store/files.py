"""Stored files that no job needs any more."""

from collections.abc import Sequence

from tidemill.store.database import Connection
from tidemill.store.statements import sql


async def unneeded(conn: Connection) -> list[str]:
    cursor = await conn.execute(sql("file/list_unneeded"))
    return [row[0] for row in await cursor.fetchall()]


async def forget(conn: Connection, files: Sequence[str]) -> None:
    """They are removed."""
    await conn.execute(sql("file/forget"), {"files": list(files)})
