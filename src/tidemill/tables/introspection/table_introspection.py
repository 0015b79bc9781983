"""What the server's catalog says of a user's table."""

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from difflib import get_close_matches
from typing import Literal

from tidemill.core.errors import InvalidInput
from tidemill.store.database import Connection
from tidemill.store.statements import RowDict, SqlParams, fetch_rows, make_sql_loader
from tidemill.tables.introspection.catalog_columns import CatalogColumn
from tidemill.tables.introspection.catalog_resource import CatalogTable, CheckConstraint, UniqueIndex, build_resource
from tidemill.tables.resource import PROTECTED_SCHEMAS, Reference, Resource, TableName

_NAME_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_TABLE_NAME_PARTS_MAX = 2


def parse_table_name_variants(text: str, max_parts: int = _TABLE_NAME_PARTS_MAX) -> list[list[str]]:
    """Schema, if there is one, and name; each as PostgreSQL would fold it and, unless that is the same, as written.

    Unquoted names are folded, so ``Users`` is the table ``users`` first. Where there is none, it can only mean "Users".
    """
    wrong = InvalidInput(f'{text!r} is not the name of a table: write users, public.users or "Order Lines"')
    if "\0" in text or not _is_encodable(text):
        raise wrong
    text, parts, at = text.strip(), [], 0
    while found := _NAME_PART.match(text, at):
        quoted, plain = found.groups()
        parts.append([quoted.replace('""', '"')] if quoted else _list_case_variants(plain.strip()))
        at = found.end() + 1
        if found.end() == len(text):
            break
        if text[found.end()] != ".":
            raise wrong
    if at != len(text) + 1 or not all(all(part) for part in parts):
        raise wrong
    if len(parts) > max_parts:
        raise InvalidInput(f"{text!r} names a database too; tables are those of DATABASE_URL: schema.table")
    return parts


def make_unknown_table_error(text: str, tables: Iterable[TableName]) -> InvalidInput:
    """There is no such table; the nearest names."""
    names = {str(table): table for table in tables}
    bare = {table.name.lower(): shown for shown, table in names.items()}
    wanted = text.strip().replace('"', "").lower()
    near = get_close_matches(wanted, [name.replace('"', "").lower() for name in names], n=3, cutoff=0.7)
    found = [shown for shown in names if shown.replace('"', "").lower() in near]
    found += [bare[name] for name in get_close_matches(wanted.rpartition(".")[2], bare, n=3, cutoff=0.7)]
    nearest = list(dict.fromkeys(found))[:3]
    hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
    return InvalidInput(f"there is no table {text.strip()!r}{hint}")


def _list_case_variants(plain: str) -> list[str]:
    folded = "".join(char.lower() if char.isascii() else char for char in plain)
    return list(dict.fromkeys([folded, plain]))


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


sql = make_sql_loader("tidemill.tables")

TableAccess = Literal["insert", "upsert", "read"]
_NON_TABLE_RELATIONS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence"}
_READABLE_RELATION_KINDS = ("v", "m", "f")
_REQUIRED_PRIVILEGES = {"insert": ("INSERT",), "upsert": ("INSERT", "SELECT", "UPDATE"), "read": ("SELECT",)}


async def find_table(conn: Connection, text: str, *, for_reading: bool = False) -> TableName:
    """The table that somebody means; InvalidInput with the nearest names if there is none, or why it cannot be.

    Who only ``reads`` may mean a view or a foreign table as well.
    """
    *schema, name = parse_table_name_variants(text)
    for named in schema:
        _reject_forbidden_schema(TableName(named[0], name[0]), reads=for_reading)
    found = await _fetch_catalog_rows(conn, "find", {"schemas": schema[0] if schema else None, "names": name})
    if not found:
        raise make_unknown_table_error(text, await _list_table_names(conn))
    table = TableName(found[0]["schema"], found[0]["name"])
    _reject_forbidden_schema(table, reads=for_reading)
    kind = found[0]["kind"]
    if kind in _NON_TABLE_RELATIONS and not (for_reading and kind in _READABLE_RELATION_KINDS):
        raise InvalidInput(
            f"{table} is {_NON_TABLE_RELATIONS[kind]}: rows are {'read from' if for_reading else 'written into'} tables"
        )
    return table


async def introspect_table(conn: Connection, table: TableName, *, for_reading: bool = False) -> Resource:
    """The resource that a table is by itself. To be run in a transaction."""
    _reject_forbidden_schema(table, reads=for_reading)
    names = {"schema": table.schema, "name": table.name}
    async with _qualify_type_names(conn):
        facts = CatalogTable(
            columns=[
                CatalogColumn(**row | {"labels": tuple(row["labels"])})
                for row in await _fetch_catalog_rows(conn, "columns", names)
            ],
            checks=[CheckConstraint(**row) for row in await _fetch_catalog_rows(conn, "checks", names)],
            unique=[UniqueIndex(**row) for row in await _fetch_catalog_rows(conn, "unique", names)],
            references=[_parse_reference(row) for row in await _fetch_catalog_rows(conn, "references", names)],
            has_before_triggers=(await _fetch_catalog_rows(conn, "is_rewritten", names))[0]["exists"],
        )
    if not facts.columns:
        raise InvalidInput(f"there is no table {table}, or it has no columns")
    return build_resource(table, facts, for_reading=for_reading)


async def find_access_problems(
    conn: Connection, table: TableName, columns: Iterable[str], mode: TableAccess
) -> list[str]:
    """What stands between the current role and doing this to columns of a table, in sentences; nothing if it may.

    To look up keys and references is to ``read`` those columns.
    """
    params = {"schema": table.schema, "name": table.name, "columns": list(columns)}
    writes = mode != "read"
    ask = params | {"privileges": list(_REQUIRED_PRIVILEGES[mode]), "writes": writes, "inserts": writes}
    (row,) = await _fetch_catalog_rows(conn, "denied", ask)
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
async def _qualify_type_names(conn: Connection) -> AsyncIterator[None]:
    """Names of types and functions come with their schema, so none is taken for the server's own of that name."""
    (before,) = await _fetch_catalog_rows(conn, "hide_names", {})
    yield
    await conn.execute(sql("catalog/show_names"), {"path": before["path"], "style": before["style"]})


async def _list_table_names(conn: Connection) -> list[TableName]:
    return [
        TableName(**row) for row in await _fetch_catalog_rows(conn, "names", {"forbidden": list(PROTECTED_SCHEMAS)})
    ]


def _reject_forbidden_schema(table: TableName, *, reads: bool = False) -> None:
    if table.is_in_protected_schema:
        what = "exports" if reads else "imports"
        raise InvalidInput(f"schema {table.schema} is not for {what}: its tables are Tidemill's own or the server's")


def _parse_reference(row: RowDict) -> Reference:
    return Reference(tuple(row["fields"]), TableName(row["schema"], row["name"]), tuple(row["columns"]))


async def _fetch_catalog_rows(conn: Connection, query: str, params: SqlParams) -> list[RowDict]:
    return await fetch_rows(conn, sql(f"catalog/{query}"), params)
