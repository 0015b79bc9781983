"""Helpers for introspection tests."""

from typing import Any

from support import rows
from tidemill.store.database import Connection, Database
from tidemill.tables.introspection.table_introspection import find_table, introspect_table
from tidemill.tables.resource import Field, Resource


async def look_at(db: Database, name: str, *definitions: str) -> Resource:
    """Run the statements and introspect the table."""
    for definition in definitions:
        await rows(db, definition)
    return await db.run(_look, name)


async def _look(conn: Connection, name: str) -> Resource:
    return await introspect_table(conn, await find_table(conn, name))


def rules(field: Field, *besides: str) -> dict[str, Any]:
    """Return the attributes of a field other than name and type that are not defaults."""
    plain = Field(name=field.name, column=field.column, type=field.type, sql_type=field.sql_type)
    names = [name for name in Field.__slots__ if getattr(field, name) != getattr(plain, name)]
    return {name: getattr(field, name) for name in names if name not in besides}
