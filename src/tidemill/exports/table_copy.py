"""Compiles the plan of an export into a query, and runs it with COPY … TO STDOUT on a dedicated connection.

COPY accepts no parameters, so the driver quotes values as literals. This module uses asyncpg, which returns chunks as
they arrive from the socket; psycopg returns single rows. asyncpg waits until the sink has accepted a chunk before it
reads the next one, so a slow reader slows down the server, and memory stays bounded.
"""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypedDict
from urllib.parse import urlencode

import asyncpg
import psycopg
from psycopg.sql import SQL, Composable, Identifier, Literal

from tidemill.core.errors import Conflict, InvalidInput, TidemillError, Unavailable
from tidemill.core.file_format import CopyFormat
from tidemill.exports.filters import TypedFilter
from tidemill.exports.table_export import SortColumn, TableExportPlan
from tidemill.store.copy_rows import build_csv_column_sql, build_json_column_sql
from tidemill.store.database import Connection, Database
from tidemill.store.statements import make_sql_loader
from tidemill.tables.resource import Field

sql = make_sql_loader("tidemill.exports")

_COMPARISON_OPERATORS = {"eq": "=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


def compile_export_query(plan: TableExportPlan) -> str:
    """Return the query for the rows of the file. For NDJSON it has one column: the row as a JSON object."""
    named = [
        SQL("{} AS {}").format(_build_column_expression(field, plan), Identifier(field.name)) for field in plan.fields
    ]
    query = SQL("SELECT {} FROM {} AS t").format(SQL(", ").join(named), Identifier(plan.table.schema, plan.table.name))
    if plan.filters:
        query += SQL(" WHERE ") + SQL(" AND ").join(map(_compile_filter, plan.filters))
    if plan.order:
        query += SQL(" ORDER BY ") + SQL(", ").join(map(_compile_order, plan.order))
    if plan.file_spec.postgres_copy_format == "ndjson":
        query = SQL("SELECT row_to_json(t.*) FROM ({}) AS t").format(query)
    return query.as_string()


def _quote_column(name: str) -> Composable:
    return Identifier("t", name)


def _build_column_expression(field: Field, plan: TableExportPlan) -> Composable:
    column = _quote_column(field.column)
    if plan.file_spec.postgres_copy_format == "csv":
        return build_csv_column_sql(column, field.type, field.sql_type, spreadsheet_safe=plan.spreadsheet_safe)
    return build_json_column_sql(column, field.type, field.sql_type, field.element)


def _compile_filter(one: TypedFilter) -> Composable:
    column = _quote_column(one.column)
    values = [_compile_filter_value(one, text) for text in one.values]
    match one.op:
        case "is_null":
            return SQL("{} IS NULL" if one.values == ("true",) else "{} IS NOT NULL").format(column)
        case "in":
            return SQL("{} IN ({})").format(column, SQL(", ").join(values))
        case "between":
            return SQL("{} BETWEEN {} AND {}").format(column, *values)
        case "ne":
            return SQL("{} IS DISTINCT FROM {}").format(column, values[0])
        case "like":
            return SQL("{}::text LIKE {}").format(column, Literal(one.values[0]))
    return SQL("{} " + _COMPARISON_OPERATORS[one.op] + " {}").format(column, values[0])


def _compile_filter_value(one: TypedFilter, text: str) -> Composable:
    """Build an untyped literal. It gets the type of the column, and PostgreSQL does not truncate it as a cast would.

    Only composite types need a cast, with the name of the type from the catalog.
    """
    if one.type == "other":
        return SQL("{}::{}").format(Literal(text), SQL(one.sql_type))
    return Literal(text)


def _compile_order(one: SortColumn) -> Composable:
    return SQL("{} DESC" if one.is_descending else "{}").format(_quote_column(one.column))


ChunkSink = Callable[[bytes], Awaitable[None]]
EXPORT_SESSION_NAME = "tidemill, export"
EXPORT_CONNECT_TIMEOUT_S = 15.0
EXPORT_CHUNK_BYTES = 256 << 10
EXPORT_LOCK_TIMEOUT_MS = 10_000  # wait for another session that alters the table
_TLS_PARAMETERS = (
    "sslmode",
    "sslcert",
    "sslkey",
    "sslrootcert",
    "sslcrl",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
)
_KEEPALIVE_OPTIONS = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


class _CopyOptions(TypedDict, total=False):
    """Options of COPY, with the names that asyncpg uses."""

    format: str
    header: bool
    delimiter: str
    quote: str


# JSON text has no control characters, so COPY with these options never quotes or escapes it.
_COPY_OPTIONS: dict[CopyFormat, _CopyOptions] = {
    "csv": {"format": "csv", "header": True},
    "ndjson": {"format": "csv", "delimiter": "\x02", "quote": "\x01"},
}
_MISSING_TABLE_STATES = ("42P01", "42703", "3F000", "42704")
_ALTERED_TABLE_STATES = ("42804", "42883", "42846", "42809", "55000", "0A000")
_CONNECTION_LOST_CLASSES = ("08", "53", "57", "25", "40", "58", "XX")


async def copy_query_to_sink(db: Database, query: str, feed: CopyFormat, sink: ChunkSink) -> int:
    """Pass all rows of the query, from one snapshot, to the sink, and return the number of rows.

    Cancelling closes the connection at once, and the server ends the query.

    Raises:
        Conflict: The table or one of its columns was removed or altered.
        InvalidInput: The database user cannot read the table, or the value of a filter is invalid for its type.
        Unavailable: The connection was lost, the table is locked, or the server is not available.
    """
    try:
        async with _open_copy_connection(db) as conn:
            buffer = _ChunkBuffer(sink)
            status = await conn.copy_from_query(query, output=buffer.add, **_COPY_OPTIONS[feed])
            await buffer.flush()
            await conn.execute("COMMIT")
    except (asyncpg.PostgresError, asyncpg.InterfaceError, psycopg.OperationalError, OSError) as error:
        raise translate_copy_error(error) from error
    return int(status.rpartition(" ")[2])


class _ChunkBuffer:
    """Joins the chunks of about 20 kB from the socket into larger ones, because each call of the sink has a fixed cost.

    The sink gets the first chunk at once, so that a client does not wait for it.
    """

    def __init__(self, sink: ChunkSink) -> None:
        self._sink = sink
        self._chunks: list[bytes] = []
        self._size = EXPORT_CHUNK_BYTES

    async def add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size >= EXPORT_CHUNK_BYTES:
            await self.flush()

    async def flush(self) -> None:
        chunks, self._chunks, self._size = self._chunks, [], 0
        if chunks:
            await self._sink(b"".join(chunks))


def translate_copy_error(error: Exception) -> TidemillError:
    state = str(getattr(error, "sqlstate", None) or "")
    message = str(getattr(error, "message", None) or error).strip() or type(error).__name__
    if state in _MISSING_TABLE_STATES:
        return Conflict(f"The table or one of its columns no longer exists: {message}")
    if state in _ALTERED_TABLE_STATES:
        return Conflict(f"The table was altered and no longer fits the export request: {message}")
    if state == "42501":
        return InvalidInput(f"The database user has no permission to read the table: {message}")
    if state.startswith("22"):
        return InvalidInput(f"PostgreSQL rejected a value: {message}")
    if state == "55P03":
        return Unavailable(f"Another session has locked the table: {message}")
    if not state or state.startswith(_CONNECTION_LOST_CLASSES):
        return Unavailable(f"The connection to the database was lost: {message}")
    return Conflict(f"Cannot read the table: {message}")


@asynccontextmanager
async def _open_copy_connection(db: Database) -> AsyncIterator[Any]:
    """Open a connection with a read-only transaction of one snapshot. An error closes it without reading the rest."""
    async with db.connection() as known:
        parameters = _read_connection_parameters(known)
    conn = await asyncpg.connect(**parameters, timeout=EXPORT_CONNECT_TIMEOUT_S, statement_cache_size=0)
    try:
        _enable_keepalive(conn)
        await conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        await conn.fetch(sql("extract/settings").decode(), str(EXPORT_LOCK_TIMEOUT_MS))
        yield conn
        await conn.close(timeout=EXPORT_CONNECT_TIMEOUT_S)
    finally:
        conn.terminate()


def _read_connection_parameters(known: Connection) -> dict[str, Any]:
    """Return the parameters of an open psycopg connection, including those from the environment and service files."""
    info = known.info
    given = info.get_parameters()
    tls = {name: given[name] for name in _TLS_PARAMETERS if given.get(name)}
    settings = {"application_name": EXPORT_SESSION_NAME} | ({"options": info.options} if info.options else {})
    host = info.host or info.hostaddr
    return {
        "dsn": f"postgresql://?{urlencode(tls)}",
        "host": host,
        "port": info.port,
        "user": info.user,
        "password": info.password or None,
        "database": info.dbname,
        "server_settings": settings,
    }


def _enable_keepalive(conn: Any) -> None:
    """Make the operating system detect a lost server within half a minute."""
    sock = conn._transport.get_extra_info("socket")  # noqa: SLF001  asyncpg has no public API for it
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE_OPTIONS.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
