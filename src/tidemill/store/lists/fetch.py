"""Rows of a list."""

from typing import Any

from psycopg.rows import dict_row

from tidemill.store.database import Connection
from tidemill.store.statements import sql

Row = dict[str, Any]


async def rows(conn: Connection, name: str, params: dict[str, Any]) -> list[Row]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql(name), params)
        return await cursor.fetchall()
