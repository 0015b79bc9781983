"""Runs the queries of datasets in read-only transactions. Short queries share a transaction to save round trips.

The driver binds the values; the text of a query comes from its declaration.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from tidemill.core.file_format import CopyFormat, OutputColumn, OutputFileSpec
from tidemill.core.outcome import Fail, Retry
from tidemill.core.resource_gate import ResourceGate
from tidemill.store.copy_rows import build_csv_column_sql, build_json_column_sql
from tidemill.store.database import Connection, Database, is_timeout_error, is_transient
from tidemill.store.statements import make_sql_loader
from tidemill.tables.introspection.catalog_columns import get_type_by_pg_name

sql = make_sql_loader("tidemill.distributions")

READ_TRANSACTION_MAX_S = 2.0  # age after which a transaction is not reused; a query in it may take longer
READ_TRANSACTION_IDLE_S = 0.05  # after which an idle transaction ends


@dataclass(eq=False)
class _ReadTransaction:
    conn: Connection
    stack: AsyncExitStack
    began: float
    end: asyncio.TimerHandle | None = None


class ReadTransactionPool:
    """A pool of at most ``max_open`` read-only transactions. Idle transactions end after a moment."""

    def __init__(self, db: Database, *, max_open: int, statement_timeout_s: float) -> None:
        self.statement_timeout_s = statement_timeout_s
        self._db = db
        self.gate = ResourceGate(max_open)
        self._free: list[_ReadTransaction] = []
        self._ending: set[asyncio.Task[None]] = set()
        db.add_close_callback(self.close)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Connection]:
        """Yield a connection in a read-only transaction. Each statement sees the data committed when it starts."""
        async with self.gate.hold_resource():
            reader = self._pop_idle() or await self._begin_transaction()
            try:
                yield reader.conn
            except BaseException as error:
                await reader.stack.__aexit__(type(error), error, error.__traceback__)
                raise
            if time.monotonic() - reader.began < READ_TRANSACTION_MAX_S:
                self._keep_for_reuse(reader)
            else:
                await reader.stack.aclose()

    async def close(self) -> None:
        while reader := self._pop_idle():
            await reader.stack.aclose()
        await asyncio.gather(*self._ending)

    def _pop_idle(self) -> _ReadTransaction | None:
        if not self._free:
            return None
        reader = self._free.pop()
        if reader.end is not None:
            reader.end.cancel()
        return reader

    def _keep_for_reuse(self, reader: _ReadTransaction) -> None:
        reader.end = asyncio.get_running_loop().call_later(READ_TRANSACTION_IDLE_S, self._end_idle_transaction, reader)
        self._free.append(reader)

    def _end_idle_transaction(self, reader: _ReadTransaction) -> None:
        self._free.remove(reader)
        task = asyncio.create_task(reader.stack.aclose())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _begin_transaction(self) -> _ReadTransaction:
        stack = AsyncExitStack()
        conn = await stack.enter_async_context(
            self._db.transaction(read_only=True, statement_timeout_s=self.statement_timeout_s)
        )
        try:
            await conn.execute(sql("dataset/settings"))
        except BaseException as error:
            await stack.__aexit__(type(error), error, error.__traceback__)
            raise
        return _ReadTransaction(conn, stack, time.monotonic())


DATASET_CHUNK_BYTES = 128 << 10
ChunkConsumer = Callable[[bytes], Awaitable[None]]


async def copy_query_rows(
    readers: ReadTransactionPool, query: str, values: Mapping[str, Any], form: OutputFileSpec, consume: ChunkConsumer
) -> int:
    """Pass the rows of the query to ``consume``, chunk by chunk, and return the number of rows.

    Raises:
        Fail: The query failed, and a retry would not help.
        Retry: The database is temporarily unavailable, or the query timed out.
    """
    async with _acquire_with_query_errors_as_outcomes(readers) as conn, conn.cursor() as cursor:
        last = b""
        async with cursor.copy(
            _insert_query_into_statement(conn, f"dataset/copy_{form.postgres_copy_format}", query, values, form)
        ) as copy:
            while piece := await conn.wait(_read_copy_chunk(copy)):
                if last:
                    await consume(last)
                last = piece
        count = cursor.rowcount
    if last:  # after releasing the connection, because most files are one chunk and the store may be slow
        await consume(last)
    return count


def _read_copy_chunk(copy: psycopg.AsyncCopy) -> Generator[Any, Any, bytes]:
    """Read rows until the chunk is full, with one wait instead of one per row as with ``copy.read``."""
    rows: list[bytes] = []
    size = 0
    while size < DATASET_CHUNK_BYTES:
        row = yield from copy._read_gen()  # noqa: SLF001  psycopg has no public API for it
        if not row:
            break
        rows.append(bytes(row))
        size += len(row)
    return b"".join(rows)


async def describe_query_columns(
    readers: ReadTransactionPool, query: str, values: Mapping[str, Any]
) -> tuple[OutputColumn, ...]:
    """Return the columns of the query with their types."""
    async with _acquire_with_query_errors_as_outcomes(readers) as conn:
        cursor = await conn.execute(
            _insert_query_into_statement(conn, "dataset/describe", query, values), prepare=False
        )
        columns = cursor.description or []
        cursor = await conn.execute(sql("dataset/types"), {"oids": [column.type_code for column in columns]})
        types = {oid: (get_type_by_pg_name(base), written) for oid, written, base in await cursor.fetchall()}
    return tuple(OutputColumn(column.name, *types[column.type_code]) for column in columns)


@asynccontextmanager
async def _acquire_with_query_errors_as_outcomes(readers: ReadTransactionPool) -> AsyncIterator[Connection]:
    """Open a read-only transaction. Raise errors of the query as outcomes of the item."""
    try:
        async with readers.acquire() as conn:
            yield conn
    except psycopg.Error as error:
        if is_timeout_error(error):
            raise Retry(
                f"The dataset query timed out after {readers.statement_timeout_s:g} s", code="query_timeout"
            ) from error
        if is_transient(error):
            raise Retry("The database is temporarily unavailable", code="database") from error
        message = error.diag.message_primary or str(error)
        raise Fail(f"The dataset query failed: {message}", code="query", retryable=True) from error


def _insert_query_into_statement(
    conn: Connection, name: str, query: str, values: Mapping[str, Any], form: OutputFileSpec | None = None
) -> bytes:
    """Return the statement with the query and its values as quoted literals, because COPY accepts no parameters."""
    bound = psycopg.AsyncClientCursor(conn).mogrify(query, values)
    if form is not None:
        bound = _wrap_query_with_row_encoding(bound, form)
    return sql(name).replace(b"{query}", bound.encode(conn.info.encoding))


def _wrap_query_with_row_encoding(bound: str, form: OutputFileSpec) -> str:
    head, tail = _build_row_encoding_sql(form.columns, form.postgres_copy_format)
    return f"{head}{bound}{tail}"


@lru_cache
def _build_row_encoding_sql(columns: tuple[OutputColumn, ...], feed: CopyFormat) -> tuple[str, str]:
    """Return the SQL before and after a query that formats its columns like those of a table.

    Two columns may have the same name.
    """
    numbered = [Identifier(f"c{number}") for number in range(len(columns))]
    expression = build_csv_column_sql if feed == "csv" else build_json_column_sql
    written = [expression(c, one.type, one.sql_type) for c, one in zip(numbered, columns, strict=True)]
    if written == numbered:
        return "", ""
    named = [SQL("{} AS {}").format(c, Identifier(one.name)) for c, one in zip(written, columns, strict=True)]
    return (
        SQL("SELECT {} FROM (").format(SQL(", ").join(named)).as_string(),
        SQL("\n) AS found({})").format(SQL(", ").join(numbered)).as_string(),
    )
