"""COPY … TO STDOUT in chunks, on a connection of its own.

psycopg hands COPY out row by row; asyncpg in chunks as they come from the socket, and reads on only when the sink has
taken one: a slow reader slows the server down, and no memory grows. See docs/decisions/0014.
"""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlencode

import asyncpg
import psycopg

from tidemill.domain.errors import Conflict, InvalidInput, TidemillError, Unavailable
from tidemill.domain.form import Feed
from tidemill.store.database import Connection, Database
from tidemill.store.statements import sql

Sink = Callable[[bytes], Awaitable[None]]
NAME = "tidemill, export"
CONNECT_S = 15.0
CHUNK_BYTES = 256 << 10
LOCK_MS = 10_000  # that a table may be locked by somebody who alters it
_TLS = ("sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "ssl_min_protocol_version", "ssl_max_protocol_version")
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
# JSON text has no control characters: with these, nothing in it is ever quoted or escaped.
_FORMATS: dict[Feed, dict[str, Any]] = {
    "csv": {"format": "csv", "header": True},
    "ndjson": {"format": "csv", "delimiter": "\x02", "quote": "\x01"},
}
_GONE = ("42P01", "42703", "3F000", "42704")
_ALTERED = ("42804", "42883", "42846", "42809", "55000", "0A000")
_LOST = ("08", "53", "57", "25", "40", "58", "XX")


async def copy_out(db: Database, query: str, feed: Feed, sink: Sink) -> int:
    """All rows of the query, as they are at one moment, into the sink; how many.

    Who is cancelled closes the connection at once, and the server ends the query.

    Raises:
        Conflict: The table, or a column of it, is gone or is another one than it was.
        InvalidInput: The role may not read it, or a value of a filter is none of its type.
        Unavailable: The connection was lost, or the server cannot serve us now.
    """
    try:
        async with _connection(db) as conn:
            gathered = _Gathered(sink)
            status = await conn.copy_from_query(query, output=gathered.add, **_FORMATS[feed])
            await gathered.pour()
            await conn.execute("COMMIT")
    except (asyncpg.PostgresError, asyncpg.InterfaceError, psycopg.OperationalError, OSError) as error:
        raise in_our_words(error) from error
    return int(status.rpartition(" ")[2])


class _Gathered:
    """Chunks of some size: a socket gives 20 kB at a time, and what is done with each costs as much as for 200.

    The first one goes on at once: somebody may wait for it.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._chunks: list[bytes] = []
        self._size = CHUNK_BYTES

    async def add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size >= CHUNK_BYTES:
            await self.pour()

    async def pour(self) -> None:
        chunks, self._chunks, self._size = self._chunks, [], 0
        if chunks:
            await self._sink(b"".join(chunks))


def in_our_words(error: Exception) -> TidemillError:
    state = str(getattr(error, "sqlstate", None) or "")
    said = str(getattr(error, "message", None) or error).strip() or type(error).__name__
    if state in _GONE:
        return Conflict(f"the table is not what it was: {said}")
    if state in _ALTERED:
        return Conflict(f"the table cannot be read as it was asked for: {said}")
    if state == "42501":
        return InvalidInput(f"it may not be read: {said}")
    if state.startswith("22"):
        return InvalidInput(f"a value cannot be read: {said}")
    if state == "55P03":
        return Unavailable(f"somebody else has the table: {said}")
    if not state or state.startswith(_LOST):
        return Unavailable(f"the connection to the database was lost: {said}")
    return Conflict(f"the table cannot be read: {said}")


@asynccontextmanager
async def _connection(db: Database) -> AsyncIterator[Any]:
    """In a transaction that sees one moment. Left with an error, it is cut off: nobody waits for the rest."""
    async with db.connection() as known:
        parameters = _parameters(known)
    conn = await asyncpg.connect(**parameters, timeout=CONNECT_S, statement_cache_size=0)
    try:
        _keep_alive(conn)
        await conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        await conn.fetch(sql("extract/settings").decode(), str(LOCK_MS))
        yield conn
        await conn.close(timeout=CONNECT_S)
    finally:
        conn.terminate()


def _parameters(known: Connection) -> dict[str, Any]:
    """Where psycopg got to, by whatever way: an address, a service file, the environment, a file of passwords."""
    info = known.info
    said = info.get_parameters()
    tls = {name: said[name] for name in _TLS if said.get(name)}
    settings = {"application_name": NAME} | ({"options": info.options} if info.options else {})
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


def _keep_alive(conn: Any) -> None:
    """A server that is gone without a word is noticed within half a minute."""
    found = conn._transport.get_extra_info("socket")  # noqa: SLF001  there is no other way to it
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with suppress(OSError):
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
