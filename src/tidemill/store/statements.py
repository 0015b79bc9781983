"""SQL statements, one per file: each package keeps its own in ``queries/``."""

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

from psycopg.rows import dict_row

from tidemill.core.decide import complete_stored_error
from tidemill.store.database import Connection


def load_sql(package: str) -> Callable[[str], bytes]:
    """A function that returns the statement in ``queries/<name>.sql`` of a package, read once."""
    folder = files(package).joinpath("queries")

    @cache
    def sql(name: str) -> bytes:
        return folder.joinpath(f"{name}.sql").read_bytes()

    return sql


sql = load_sql("tidemill.store")
RowDict = dict[str, Any]


async def fetch_rows(conn: Connection, statement: bytes, params: dict[str, Any]) -> list[RowDict]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement, params)
        return await cursor.fetchall()


async def fetch_item_rows(conn: Connection, statement: bytes, params: dict[str, Any]) -> list[RowDict]:
    """Rows of items, with their errors whole."""
    found = await fetch_rows(conn, statement, params)
    for row in found:
        if row["error"] is not None:
            row["error"] = complete_stored_error(row["error"], row["seq"], row["attempts"])
    return found
