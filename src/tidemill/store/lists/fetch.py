"""Rows of a list."""

from typing import Any

from psycopg.rows import dict_row

from tidemill.domain.decide import completed
from tidemill.store.database import Connection
from tidemill.store.statements import sql

Row = dict[str, Any]


async def rows(conn: Connection, name: str, params: dict[str, Any]) -> list[Row]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql(name), params)
        return await cursor.fetchall()


async def item_rows(conn: Connection, name: str, params: dict[str, Any]) -> list[Row]:
    """Rows of items, with their errors whole."""
    found = await rows(conn, name, params)
    for row in found:
        if row["error"] is not None:
            row["error"] = completed(row["error"], row["seq"], row["attempts"])
    return found
