"""Loads SQL statements, one per file in a package's ``queries/`` folder, and fetches rows."""

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from psycopg.rows import class_row, dict_row

from tidemill.core.decide import add_unstored_error_fields
from tidemill.store.database import Connection


def make_sql_loader(package: str) -> Callable[[str], bytes]:
    """Return a function that loads and caches the statement ``queries/<name>.sql`` of a package."""
    folder = files(package).joinpath("queries")

    @cache
    def sql(name: str) -> bytes:
        return folder.joinpath(f"{name}.sql").read_bytes()

    return sql


sql = make_sql_loader("tidemill.store")
RowDict = dict[str, Any]
SqlParams = Mapping[str, object]  # the values of a statement's placeholders, by name
Record = TypeVar("Record")


async def fetch_records(
    conn: Connection, record_type: type[Record], statement: bytes, params: SqlParams
) -> list[Record]:
    """Return the rows as objects of a class whose fields are the statement's columns."""
    async with conn.cursor(row_factory=class_row(record_type)) as cursor:
        await cursor.execute(statement, params)
        return await cursor.fetchall()


async def fetch_rows(conn: Connection, statement: bytes, params: SqlParams) -> list[RowDict]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement, params)
        return await cursor.fetchall()


async def fetch_item_rows(conn: Connection, statement: bytes, params: SqlParams) -> list[RowDict]:
    """Return rows of items, with their stored errors completed."""
    rows = await fetch_rows(conn, statement, params)
    for row in rows:
        if row["error"] is not None:
            row["error"] = add_unstored_error_fields(row["error"], row["seq"], row["attempts"])
    return rows
