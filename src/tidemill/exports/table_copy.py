"""From a plan to the query that COPY runs. COPY takes no parameters: values are literals, made by the driver alone.

COPY … TO STDOUT in chunks, on a connection of its own. psycopg hands COPY out row by row; asyncpg in chunks as they
come from the socket, and reads on only when the sink has taken one: a slow reader slows the server down, and no
memory grows. See docs/decisions/0015.
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
from tidemill.store.copy_expressions import build_csv_expression, build_json_expression
from tidemill.store.database import Connection, Database
from tidemill.store.statements import load_sql
from tidemill.tables.resource import Field

sql = load_sql("tidemill.exports")

_COMPARISON_OPERATORS = {"eq": "=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


def compile_export_query(plan: TableExportPlan) -> str:
    """The query whose rows are the file's. Of NDJSON, a row is one column: its object; ``t`` alone may be a column."""
    named = [
        SQL("{} AS {}").format(_build_column_expression(field, plan), Identifier(field.name)) for field in plan.fields
    ]
    query = SQL("SELECT {} FROM {} AS t").format(SQL(", ").join(named), Identifier(plan.table.schema, plan.table.name))
    if plan.filters:
        query += SQL(" WHERE ") + SQL(" AND ").join(map(_compile_filter, plan.filters))
    if plan.order:
        query += SQL(" ORDER BY ") + SQL(", ").join(map(_compile_order, plan.order))
    if plan.form.copy_format == "ndjson":
        query = SQL("SELECT row_to_json(t.*) FROM ({}) AS t").format(query)
    return query.as_string()


def _quote_column(name: str) -> Composable:
    return Identifier("t", name)


def _build_column_expression(field: Field, plan: TableExportPlan) -> Composable:
    column = _quote_column(field.column)
    if plan.form.copy_format == "csv":
        return build_csv_expression(column, field.type, field.sql_type, spreadsheet_safe=plan.spreadsheet_safe)
    return build_json_expression(column, field.type, field.sql_type, field.element)


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
    """A literal without a type is of the column's, and is not cut to its length as a cast would.

    Composite types alone do not look around: theirs is said, in the catalog's own spelling.
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
EXPORT_LOCK_TIMEOUT_MS = 10_000  # that a table may be locked by somebody who alters it
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
    """Options of COPY as asyncpg names them."""

    format: str
    header: bool
    delimiter: str
    quote: str


# JSON text has no control characters: with these, nothing in it is ever quoted or escaped.
_COPY_OPTIONS: dict[CopyFormat, _CopyOptions] = {
    "csv": {"format": "csv", "header": True},
    "ndjson": {"format": "csv", "delimiter": "\x02", "quote": "\x01"},
}
_MISSING_TABLE_STATES = ("42P01", "42703", "3F000", "42704")
_ALTERED_TABLE_STATES = ("42804", "42883", "42846", "42809", "55000", "0A000")
_CONNECTION_LOST_CLASSES = ("08", "53", "57", "25", "40", "58", "XX")


async def copy_query_to_sink(db: Database, query: str, feed: CopyFormat, sink: ChunkSink) -> int:
    """All rows of the query, as they are at one moment, into the sink; how many.

    Who is cancelled closes the connection at once, and the server ends the query.

    Raises:
        Conflict: The table, or a column of it, is gone or is another one than it was.
        InvalidInput: The role may not read it, or a value of a filter is none of its type.
        Unavailable: The connection was lost, or the server cannot serve us now.
    """
    try:
        async with _open_copy_connection(db) as conn:
            gathered = _ChunkBuffer(sink)
            status = await conn.copy_from_query(query, output=gathered.add, **_COPY_OPTIONS[feed])
            await gathered.flush()
            await conn.execute("COMMIT")
    except (asyncpg.PostgresError, asyncpg.InterfaceError, psycopg.OperationalError, OSError) as error:
        raise translate_copy_error(error) from error
    return int(status.rpartition(" ")[2])


class _ChunkBuffer:
    """Chunks of some size: a socket gives 20 kB at a time, and what is done with each costs as much as for 200.

    The first one goes on at once: somebody may wait for it.
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
    said = str(getattr(error, "message", None) or error).strip() or type(error).__name__
    if state in _MISSING_TABLE_STATES:
        return Conflict(f"the table is not what it was: {said}")
    if state in _ALTERED_TABLE_STATES:
        return Conflict(f"the table cannot be read as it was asked for: {said}")
    if state == "42501":
        return InvalidInput(f"it may not be read: {said}")
    if state.startswith("22"):
        return InvalidInput(f"a value cannot be read: {said}")
    if state == "55P03":
        return Unavailable(f"somebody else has the table: {said}")
    if not state or state.startswith(_CONNECTION_LOST_CLASSES):
        return Unavailable(f"the connection to the database was lost: {said}")
    return Conflict(f"the table cannot be read: {said}")


@asynccontextmanager
async def _open_copy_connection(db: Database) -> AsyncIterator[Any]:
    """In a transaction that sees one moment. Left with an error, it is cut off: nobody waits for the rest."""
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


def _read_connection_parameters(known: Connection) -> dict[str, object]:
    """Where psycopg got to, by whatever way: an address, a service file, the environment, a file of passwords."""
    info = known.info
    said = info.get_parameters()
    tls = {name: said[name] for name in _TLS_PARAMETERS if said.get(name)}
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
    """A server that is gone without a word is noticed within half a minute."""
    found = conn._transport.get_extra_info("socket")  # noqa: SLF001  there is no other way to it
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with suppress(OSError):
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE_OPTIONS.items():
            if hasattr(socket, name):
                found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
