"""Reads user tables from the catalog of PostgreSQL."""

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal

from tidemill.config import get_database_variable_name
from tidemill.core.errors import InvalidInput
from tidemill.store.database import Connection
from tidemill.store.statements import RowDict, SqlParams, fetch_rows, make_sql_loader
from tidemill.tables.introspection.catalog_columns import CatalogColumn, build_field
from tidemill.tables.introspection.check_constraints import is_fully_translated, parse_check_rules
from tidemill.tables.resource import (
    PROTECTED_SCHEMAS,
    Field,
    Reference,
    Resource,
    TableName,
    narrow_field,
    quote_identifier,
)


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    columns: Sequence[str]
    is_primary: bool
    is_immediate: bool  # not deferrable; ON CONFLICT cannot use a deferrable constraint
    nulls_equal: bool


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    expression: str
    value_of: str | None = None  # for a domain: the column of VALUE


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """The catalog entries of a table."""

    columns: Sequence[CatalogColumn]
    checks: Sequence[CheckConstraint] = ()
    unique: Sequence[UniqueIndex] = ()
    references: Sequence[Reference] = ()
    has_before_triggers: bool = False  # a trigger can change rows before NOT NULL and CHECK apply


def build_resource(table: TableName, facts: CatalogTable, *, for_reading: bool = False) -> Resource:
    """Return the resource of a table.

    It omits columns that cannot be written and the constraints that use them, which PostgreSQL checks. With
    ``for_reading``, it includes these columns.
    """
    fields = {
        column.name: build_field(column, has_before_triggers=facts.has_before_triggers)
        for column in facts.columns
        if column.is_writable
    }
    if for_reading:
        fields = {one.name: fields.get(one.name) or replace(build_field(one), required=False) for one in facts.columns}
    for name, rule in _list_check_rules(facts):
        if name in fields:
            fields[name] = _narrow_field_by_check_rule(fields[name], rule)
    unique = [index for index in facts.unique if fields.keys() >= set(index.columns)]
    return Resource(
        name=str(table),
        table=table,
        fields=tuple(fields.values()),
        key=choose_natural_key(unique, fields),
        unique=_list_unique_column_sets(unique),
        indexed=_list_unique_column_sets(unique),
        nulls_equal=_list_unique_column_sets(
            one for one in unique if one.nulls_equal and _has_nullable_column(one, fields)
        ),
        references=tuple(one for one in facts.references if fields.keys() >= set(one.fields)),
    )


def choose_natural_key(unique: Sequence[UniqueIndex], fields: dict[str, Field]) -> tuple[str, ...]:
    """Return the primary key. If the table generates it, return the only other unique set, if there is exactly one."""
    primary = [tuple(one.columns) for one in unique if one.is_primary and one.is_immediate]
    others = [tuple(one.columns) for one in unique if not one.is_primary and one.is_immediate]
    is_generated = not primary or any(fields[name].filled for name in primary[0])
    distinct = list(dict.fromkeys(others))
    if is_generated and len(distinct) == 1:
        return distinct[0]
    return primary[0] if primary else ()


def _list_check_rules(facts: CatalogTable) -> list[tuple[str, dict[str, Any]]]:
    columns = {column.name: column for column in facts.columns}
    rules = []
    for check in facts.checks:
        if check.value_of is not None:
            value = {"VALUE": columns[check.value_of]}
            rules += parse_check_rules(check.expression, value)
            if not is_fully_translated(check.expression, value):
                rules.append((check.value_of, {"judged": True}))
        elif not facts.has_before_triggers:
            rules += parse_check_rules(check.expression, columns)
    return rules


def _narrow_field_by_check_rule(field: Field, rule: dict[str, Any]) -> Field:
    tight = narrow_field(field, rule)
    if "nullable" in rule:
        return replace(tight, required=tight.default is None and not tight.filled)
    return tight


def _has_nullable_column(one: UniqueIndex, fields: dict[str, Field]) -> bool:
    return any(fields[name].nullable for name in one.columns)


def _list_unique_column_sets(unique: Iterable[UniqueIndex]) -> tuple[tuple[str, ...], ...]:
    return tuple(dict.fromkeys(tuple(one.columns) for one in unique))


_NAME_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_TABLE_NAME_PARTS_MAX = 2


def parse_table_name_variants(text: str, max_parts: int = _TABLE_NAME_PARTS_MAX) -> list[list[str]]:
    """Return the parts of a table name: the optional schema and the name, each with its variants.

    PostgreSQL folds unquoted names, so the variants of ``Users`` are ``users`` and then "Users".
    """
    invalid = InvalidInput(f'Invalid table name "{text}". Use a name such as users, public.users or "Order Lines".')
    if "\0" in text or not _is_encodable(text):
        raise invalid
    text, parts, at = text.strip(), [], 0
    while found := _NAME_PART.match(text, at):
        quoted, plain = found.groups()
        parts.append([quoted.replace('""', '"')] if quoted else _list_case_variants(plain.strip()))
        at = found.end() + 1
        if found.end() == len(text):
            break
        if text[found.end()] != ".":
            raise invalid
    if at != len(text) + 1 or not all(all(part) for part in parts):
        raise invalid
    if len(parts) > max_parts:
        remedy = f"Use schema.table; the database is set in {get_database_variable_name()}."
        raise InvalidInput(f'Table name "{text}" includes a database. {remedy}')
    return parts


def make_unknown_table_error(text: str, tables: Iterable[TableName]) -> InvalidInput:
    """Return the error for an unknown table, with similar names."""
    names = {str(table): table for table in tables}
    bare = {table.name.lower(): shown for shown, table in names.items()}
    wanted = text.strip().replace('"', "").lower()
    near = get_close_matches(wanted, [name.replace('"', "").lower() for name in names], n=3, cutoff=0.7)
    similar = [shown for shown in names if shown.replace('"', "").lower() in near]
    similar += [bare[name] for name in get_close_matches(wanted.rpartition(".")[2], bare, n=3, cutoff=0.7)]
    nearest = list(dict.fromkeys(similar))[:3]
    hint = f"Did you mean {' or '.join(nearest)}?" if nearest else "Create the table, or use schema.table."
    shown = text.strip().replace('"', "")
    return InvalidInput(f'Unknown table "{shown}". {hint}')


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
    """Return the table with this name; InvalidInput if it does not exist or cannot be used.

    With ``for_reading``, views and foreign tables are allowed.
    """
    *schema, name = parse_table_name_variants(text)
    for named in schema:
        _reject_forbidden_schema(TableName(named[0], name[0]), reads=for_reading)
    rows = await _fetch_catalog_rows(conn, "find", {"schemas": schema[0] if schema else None, "names": name})
    if not rows:
        raise make_unknown_table_error(text, await _list_table_names(conn))
    table = TableName(rows[0]["schema"], rows[0]["name"])
    _reject_forbidden_schema(table, reads=for_reading)
    kind = rows[0]["kind"]
    if kind in _NON_TABLE_RELATIONS and not (for_reading and kind in _READABLE_RELATION_KINDS):
        action = "export from" if for_reading else "import into"
        raise InvalidInput(f"Cannot {action} {table}: it is {_NON_TABLE_RELATIONS[kind]}")
    return table


async def introspect_table(conn: Connection, table: TableName, *, for_reading: bool = False) -> Resource:
    """Return the resource of a table without a declaration. Call it in a transaction."""
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
        raise InvalidInput(f"Table {table} does not exist or has no columns")
    return build_resource(table, facts, for_reading=for_reading)


async def list_immediate_unique_sets(conn: Connection, table: TableName) -> list[tuple[str, ...]]:
    """Return the columns of each unique index that ON CONFLICT can use."""
    rows = await _fetch_catalog_rows(conn, "unique", {"schema": table.schema, "name": table.name})
    return [tuple(row["columns"]) for row in rows if row["is_immediate"]]


@dataclass(frozen=True, slots=True)
class AccessProblem:
    """A reason why a database role cannot access a table, and the statement that grants the access."""

    reason: str
    grant: str | None = None
    is_row_security: bool = False


def describe_access_problems(problems: Iterable[AccessProblem]) -> str:
    """Return all reasons, and the statements that remove them."""
    distinct = list(dict.fromkeys(problems))
    grants = " ".join(f"{problem.grant};" for problem in distinct if problem.grant is not None)
    reasons = "; ".join(problem.reason for problem in distinct)
    return f"{reasons}. As the owner of the table, run: {grants}" if grants else reasons


async def find_access_problems(
    conn: Connection, table: TableName, columns: Iterable[str], mode: TableAccess
) -> list[AccessProblem]:
    """Return the reasons why the current database role cannot access these columns; an empty list if it can.

    Lookups of keys and references need ``read`` access to their columns.
    """
    params = {"schema": table.schema, "name": table.name, "columns": list(columns)}
    writes = mode != "read"
    query = params | {"privileges": list(_REQUIRED_PRIVILEGES[mode]), "writes": writes, "inserts": writes}
    (row,) = await _fetch_catalog_rows(conn, "denied", query)
    role = row["role"]
    if row["may_look"] is None:
        return [AccessProblem(f"table {table} does not exist")]
    lacking = [] if row["may_look"] else [("USAGE", f"schema {quote_identifier(table.schema)}", "")]
    lacking += [(privilege, str(table), "") for privilege in row["privileges"]]
    lacking += [("USAGE", f"sequence {name}", ", which is the default of a column") for name in row["sequences"]]
    problems = [
        AccessProblem(f"role {role} lacks {privilege} on {target}{why}", f"GRANT {privilege} ON {target} TO {role}")
        for privilege, target, why in lacking
    ]
    if row["row_security"]:
        effect = "so COPY cannot write to the table" if writes else "which cannot see every row"
        reason = f"row-level security on {table} applies to role {role}, {effect}"
        problems.append(AccessProblem(reason, is_row_security=True))
    if row["read_only"]:
        problems.append(AccessProblem(f"transactions of role {role} are read-only in this database"))
    return problems


@asynccontextmanager
async def _qualify_type_names(conn: Connection) -> AsyncIterator[None]:
    """Make PostgreSQL print types and functions with their schema, to distinguish them from built-in ones."""
    (before,) = await _fetch_catalog_rows(conn, "hide_names", {})
    yield
    await conn.execute(sql("catalog/show_names"), {"path": before["path"], "style": before["style"]})


async def _list_table_names(conn: Connection) -> list[TableName]:
    return [
        TableName(**row) for row in await _fetch_catalog_rows(conn, "names", {"forbidden": list(PROTECTED_SCHEMAS)})
    ]


def _reject_forbidden_schema(table: TableName, *, reads: bool = False) -> None:
    if table.is_in_protected_schema:
        action = "export from" if reads else "import into"
        raise InvalidInput(f"Cannot {action} schema {table.schema}: it is reserved for Tidemill or PostgreSQL")


def _parse_reference(row: RowDict) -> Reference:
    return Reference(tuple(row["fields"]), TableName(row["schema"], row["name"]), tuple(row["columns"]))


async def _fetch_catalog_rows(conn: Connection, query: str, params: SqlParams) -> list[RowDict]:
    return await fetch_rows(conn, sql(f"catalog/{query}"), params)
