"""Runs the SQL statements of this package."""

from tidemill.store.database import Connection
from tidemill.store.statements import RowDict, SqlParams, fetch_rows, make_sql_loader

_sql = make_sql_loader("tidemill.torture")


async def fetch(conn: Connection, name: str, params: SqlParams | None = None) -> list[RowDict]:
    """Return the rows of the statement ``queries/torture/<name>.sql``."""
    return await fetch_rows(conn, _sql(f"torture/{name}"), params or {})


async def execute(conn: Connection, name: str, params: SqlParams | None = None) -> int:
    """Run a statement, or several if there are no parameters. Return the number of affected rows."""
    return (await conn.execute(_sql(f"torture/{name}"), params, prepare=False)).rowcount
