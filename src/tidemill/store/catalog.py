"""What the server's catalog says of a user's table."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Literal

from psycopg.rows import dict_row

from tidemill.domain.catalog.column import Column
from tidemill.domain.catalog.names import parts_of, unknown
from tidemill.domain.catalog.resource import Check, Facts, UniqueSet, resource_of
from tidemill.domain.errors import InvalidInput
from tidemill.domain.resource import FORBIDDEN, Reference, Resource, Table
from tidemill.store.database import Connection
from tidemill.store.statements import sql

Mode = Literal["insert", "upsert", "read"]
_OTHERS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence"}
_READABLE = ("v", "m", "f")
_PRIVILEGES = {"insert": ("INSERT",), "upsert": ("INSERT", "SELECT", "UPDATE"), "read": ("SELECT",)}


async def find_table(conn: Connection, text: str, *, reads: bool = False) -> Table:
    """The table that somebody means; InvalidInput with the nearest names if there is none, or why it cannot be.

    Who only ``reads`` may mean a view or a foreign table as well.
    """
    *schema, name = parts_of(text)
    for named in schema:
        _refuse_forbidden(Table(named[0], name[0]), reads=reads)
    found = await _rows(conn, "find", {"schemas": schema[0] if schema else None, "names": name})
    if not found:
        raise unknown(text, await _known(conn))
    table = Table(found[0]["schema"], found[0]["name"])
    _refuse_forbidden(table, reads=reads)
    kind = found[0]["kind"]
    if kind in _OTHERS and not (reads and kind in _READABLE):
        raise InvalidInput(f"{table} is {_OTHERS[kind]}: rows are {'read from' if reads else 'written into'} tables")
    return table


async def introspect(conn: Connection, table: Table, *, reads: bool = False) -> Resource:
    """The resource that a table is by itself. To be run in a transaction."""
    _refuse_forbidden(table, reads=reads)
    names = {"schema": table.schema, "name": table.name}
    async with _full_names(conn):
        facts = Facts(
            columns=[Column(**row | {"labels": tuple(row["labels"])}) for row in await _rows(conn, "columns", names)],
            checks=[Check(**row) for row in await _rows(conn, "checks", names)],
            unique=[UniqueSet(**row) for row in await _rows(conn, "unique", names)],
            references=[_reference(row) for row in await _rows(conn, "references", names)],
            is_rewritten=(await _rows(conn, "is_rewritten", names))[0]["exists"],
        )
    if not facts.columns:
        raise InvalidInput(f"there is no table {table}, or it has no columns")
    return resource_of(table, facts, reads=reads)


async def denied(conn: Connection, table: Table, columns: Iterable[str], mode: Mode) -> list[str]:
    """What stands between the current role and doing this to columns of a table, in sentences; nothing if it may.

    To look up keys and references is to ``read`` those columns.
    """
    params = {"schema": table.schema, "name": table.name, "columns": list(columns)}
    writes = mode != "read"
    ask = params | {"privileges": list(_PRIVILEGES[mode]), "writes": writes, "inserts": writes}
    (row,) = await _rows(conn, "denied", ask)
    role, problems = row["role"], []
    if row["may_look"] is None:
        return [f"there is no table {table}"]
    if not row["may_look"]:
        problems.append(f"role {role} may not use schema {table.schema}")
    problems += [f"role {role} lacks {privilege} on {table}" for privilege in row["privileges"]]
    problems += [f"role {role} lacks USAGE on sequence {name}, which fills a column" for name in row["sequences"]]
    if row["row_security"] and writes:
        problems.append(f"row-level security is in force on {table} for role {role}: rows cannot be copied into it")
    elif row["row_security"]:
        problems.append(f"row-level security is in force on {table} for role {role}: it may not see every row")
    if row["read_only"]:
        problems.append(f"role {role} can only read in this database: its transactions are read-only")
    return problems


@asynccontextmanager
async def _full_names(conn: Connection) -> AsyncIterator[None]:
    """Names of types and functions come with their schema, so none is taken for the server's own of that name."""
    (before,) = await _rows(conn, "hide_names", {})
    yield
    await conn.execute(sql("catalog/show_names"), {"path": before["path"], "style": before["style"]})


async def _known(conn: Connection) -> list[Table]:
    return [Table(**row) for row in await _rows(conn, "names", {"forbidden": list(FORBIDDEN)})]


def _refuse_forbidden(table: Table, *, reads: bool = False) -> None:
    if table.is_forbidden:
        what = "exports" if reads else "imports"
        raise InvalidInput(f"schema {table.schema} is not for {what}: its tables are Tidemill's own or the server's")


def _reference(row: dict[str, Any]) -> Reference:
    return Reference(tuple(row["fields"]), Table(row["schema"], row["name"]), tuple(row["columns"]))


async def _rows(conn: Connection, query: str, params: dict[str, Any]) -> list[dict[str, Any]]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql(f"catalog/{query}"), params)
        return await cursor.fetchall()
