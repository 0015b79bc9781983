"""Produces the rows of a file with the query or the function of the dataset."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime
from datetime import time as time_of_day
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from tidemill.core.file_format import CopyFormat, OutputColumn, OutputFileSpec
from tidemill.core.kinds import ResourceGate
from tidemill.core.outcome import Fail, Retry
from tidemill.distributions.artifact_storage import ArtifactUpload
from tidemill.distributions.dataset import Dataset, DistributionInput
from tidemill.store.copy_rows import build_csv_column_sql, build_json_column_sql
from tidemill.store.database import Connection, Database, is_timeout_error, is_transient
from tidemill.store.jsonb import encode_json
from tidemill.store.statements import SqlParams, make_sql_loader
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


_CSV_SPECIAL_CHARS = frozenset(',"\r\n')


class ProducedRowEncoder:
    """Encodes dicts and tuples as rows of a file. The dataset or its first row determines the columns."""

    def __init__(self, feed: CopyFormat, columns: Sequence[str]) -> None:
        self.count = 0
        self._columns = tuple(columns)
        self._feed = feed
        self._has_begun = False

    @property
    def columns(self) -> tuple[OutputColumn, ...]:
        return tuple(OutputColumn(name) for name in self._columns)

    def encode_row_with_header_if_first(self, row: Any) -> bytes:
        """Return the bytes of a row, after the header if it is the first row; raise Fail if the row is invalid."""
        if not self._columns and isinstance(row, Mapping):
            self._columns = tuple(str(name) for name in row)
            if not self._columns:
                raise self._make_failure("has no columns")
        cells = self._extract_cells(row)
        self.count += 1
        header = self.encode_header_once()
        if self._feed == "ndjson":
            return header + encode_json(dict(zip(self._columns, cells, strict=True))) + b"\n"
        return header + _encode_csv_line(cells)

    def encode_header_once(self) -> bytes:
        """Return the header on the first call, then nothing. Without rows, the header is the whole file."""
        if self._has_begun or self._feed == "ndjson" or not self._columns:
            return b""
        self._has_begun = True
        return _encode_csv_line(self._columns)

    def _extract_cells(self, row: Any) -> Sequence[Any]:
        names = self._columns
        if isinstance(row, Mapping):
            if not row.keys() <= set(names):
                other = next(name for name in row if name not in names)
                raise self._make_failure(f'has an unexpected column "{other}"')
            return [row.get(name) for name in names]
        if isinstance(row, str | bytes) or not isinstance(row, Sequence):
            raise self._make_failure(f"is of type {type(row).__name__}; expected a dict or a tuple")
        if not names:
            raise self._make_failure("is a tuple, but the dataset declares no columns. Set columns=… or return dicts.")
        if len(row) != len(names):
            raise self._make_failure(f"has {len(row)} values; expected {len(names)}")
        return row

    def _make_failure(self, problem: str) -> Fail:
        return Fail(f"Row {self.count + 1} from the dataset function {problem}", code="invalid_rows")


def _encode_csv_line(cells: Sequence[Any]) -> bytes:
    return (",".join(map(_format_csv_cell, cells)) + "\n").encode()


def _format_csv_cell(value: Any) -> str:
    """Format a value as PostgreSQL does in CSV: NULL is empty, and an empty text is quoted."""
    if value is None:
        return ""
    text = _format_value(value)
    if not text or not _CSV_SPECIAL_CHARS.isdisjoint(text) or text == "\\.":
        return '"' + text.replace('"', '""') + '"'
    return text


def _format_value(value: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case datetime() | date() | time_of_day():
            return value.isoformat()
        case bytes():
            return f"\\x{value.hex()}"
        case Mapping() | list() | tuple():
            return encode_json(value).decode()
        case _:
            return str(value)


ROW_CHUNK_BYTES = 128 << 10
QUERY_COLUMNS_CACHE_S = 5.0


class ArtifactProducer:
    """Runs at most ``max_queries`` queries at once, so that connections remain available to write outcomes."""

    def __init__(self, db: Database, *, max_queries: int, timeout_s: float) -> None:
        self._readers = ReadTransactionPool(db, max_open=max_queries, statement_timeout_s=timeout_s)
        self.query_gate = self._readers.gate
        # Query -> its columns, and the time at which the cache entry expires.
        self._columns: dict[str, tuple[tuple[OutputColumn, ...], float]] = {}
        self._describing = asyncio.Lock()

    async def write_artifact_rows(self, dataset: Dataset, given: DistributionInput, out: ArtifactUpload) -> int:
        """Write all rows to the upload and return the number of rows. The caller finishes the upload."""
        values = {field.name: field.convert_to_query_parameter(given.values[field.name]) for field in dataset.fields}
        if dataset.query is not None:
            return await self._upload_query_rows(dataset.query, values, out)
        function = dataset.producer
        if function is None:
            raise Fail(
                f'Dataset "{dataset.name}" has neither a query nor a function', code="unknown_dataset", retryable=True
            )
        made = ProducedRowEncoder(out.form.postgres_copy_format, dataset.columns)
        if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function):
            rows = function(values)
            await _encode_rows_to_upload_async(rows if hasattr(rows, "__aiter__") else await rows, made, out)
        else:  # in a thread, because a blocking generator would block the event loop
            await out.run_in_thread(lambda: _encode_rows_to_upload_sync(function(values), made, out))
        return made.count

    async def _upload_query_rows(self, query: str, values: SqlParams, out: ArtifactUpload) -> int:
        out.form = replace(out.form, columns=await self._get_recent_query_columns(query, values))
        try:
            return await copy_query_rows(self._readers, query, values, out.form, out.write)
        except Fail:  # a table of the query may have been altered
            self._columns.pop(query, None)
            raise

    async def _get_recent_query_columns(self, query: str, values: SqlParams) -> tuple[OutputColumn, ...]:
        """Return the columns of a query, cached for a few seconds only, because tables can be altered."""
        with self.query_gate.while_waiting():
            await self._describing.acquire()
        try:
            columns, good_until = self._columns.get(query, ((), 0.0))
            if time.monotonic() >= good_until:
                columns = await describe_query_columns(self._readers, query, values)
                if not columns:
                    raise Fail("The dataset query returns no columns", code="invalid_rows")
                self._columns[query] = columns, time.monotonic() + QUERY_COLUMNS_CACHE_S
        finally:
            self._describing.release()
        return columns


async def _encode_rows_to_upload_async(
    found: AsyncIterable[Any] | Iterable[Any], made: ProducedRowEncoder, out: ArtifactUpload
) -> None:
    buffer = bytearray()
    async for row in _iterate_rows(found):
        buffer += made.encode_row_with_header_if_first(row)
        if len(buffer) >= ROW_CHUNK_BYTES:
            _set_upload_columns_once(made, out)
            await out.write(bytes(buffer))
            buffer.clear()
    buffer += made.encode_header_once()
    _set_upload_columns_once(made, out)
    await out.write(bytes(buffer))


async def _iterate_rows(found: AsyncIterable[Any] | Iterable[Any]) -> AsyncIterable[Any]:
    if isinstance(found, AsyncIterable):
        async for row in found:
            yield row
    else:
        for row in found:
            yield row


def _encode_rows_to_upload_sync(found: Iterable[Any], made: ProducedRowEncoder, out: ArtifactUpload) -> None:
    buffer = bytearray()
    for row in found:
        buffer += made.encode_row_with_header_if_first(row)
        if len(buffer) >= ROW_CHUNK_BYTES:
            _set_upload_columns_once(made, out)
            out.write_sync(bytes(buffer))
            buffer.clear()
    buffer += made.encode_header_once()
    _set_upload_columns_once(made, out)
    out.write_sync(bytes(buffer))


def _set_upload_columns_once(made: ProducedRowEncoder, out: ArtifactUpload) -> None:
    if not out.form.columns:
        out.form = replace(out.form, columns=made.columns)
