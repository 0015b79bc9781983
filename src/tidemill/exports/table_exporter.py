"""Writes the rows of a table to a stream or a stored file: reads them with COPY and encodes them in a thread."""

import asyncio
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, TypedDict, TypeVar
from urllib.parse import urlencode
from uuid import UUID

import asyncpg
import msgspec
import psycopg
from psycopg.sql import SQL, Composable, Identifier, Literal

from tidemill.core.errors import Conflict, InvalidInput, TidemillError, Unavailable
from tidemill.core.file_format import Compression, CopyFormat, FileFormat
from tidemill.core.job import Item
from tidemill.core.outcome import Fail, Wait
from tidemill.exports import result_export
from tidemill.exports.result_export import ExportedFile
from tidemill.exports.table_export_request import SortColumn, TableExportPlan, TypedFilter
from tidemill.failpoints import failpoint
from tidemill.files.blobs.blob_store import Blob, BlobStore, BlobWriter, DownloadLabel
from tidemill.files.writers import open_copy_encoder
from tidemill.files.writers.byte_output import CopyEncoder
from tidemill.store import job_records, quota_records, retention
from tidemill.store.copy_rows import build_csv_column_sql, build_json_column_sql
from tidemill.store.database import Connection, Database
from tidemill.store.job_events import compute_rate
from tidemill.store.statements import make_sql_loader
from tidemill.tables.resource import Field
from tidemill.telemetry.events import emit

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


T = TypeVar("T")


class SerialThread:
    """A thread that runs functions one after another, even after the submitting task was cancelled."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "export-writer")
        self._begun: asyncio.Future[Any] | None = None

    async def start_after_previous(self, work: Callable[..., Any], *args: Any) -> None:
        """Wait for the previous function, then start this one and return without waiting for it."""
        await self._wait_for_submitted()
        self._begun = asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def run_after_previous(self, work: Callable[..., T], *args: Any) -> T:
        """Wait for the previous function, then run this one and return its result."""
        await self._wait_for_submitted()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def run_last(self, work: Callable[[], None]) -> None:
        """Run this after all other functions, even if they failed. Cancelling the caller does not stop it."""
        last = asyncio.get_running_loop().run_in_executor(self._thread, work)
        self.shut_down_without_waiting()
        unfinished = [last] if self._begun is None else [self._begun, last]
        await asyncio.shield(asyncio.gather(*unfinished, return_exceptions=True))

    def shut_down_without_waiting(self) -> None:
        self._thread.shutdown(wait=False)

    async def _wait_for_submitted(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            await begun


STREAM_CHUNKS_AHEAD = 2  # encoded chunks that may wait for the reader


async def stream_table_export(
    db: Database, plan: TableExportPlan, on_complete: Callable[[int], None] = lambda _: None
) -> AsyncGenerator[bytes]:
    """Yield the chunks of the file, then call ``on_complete`` with the number of rows.

    Closing the generator cancels the query.
    """
    pipe = _ChunkPipe()
    reading = asyncio.create_task(_copy_encoded_rows_into_pipe(db, plan, pipe, on_complete))
    reading.add_done_callback(lambda _: pipe.mark_end())
    try:
        while (chunk := await pipe.get()) is not None:
            yield chunk
        await reading
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await reading


async def _copy_encoded_rows_into_pipe(
    db: Database, plan: TableExportPlan, pipe: "_ChunkPipe", on_complete: Callable[[int], None]
) -> None:
    started, output = time.monotonic(), _EncodedChunks()
    is_plain = plan.compression is Compression.NONE and plan.format in (FileFormat.CSV, FileFormat.NDJSON)
    encoder = open_copy_encoder(plan.file_spec, output)

    async def write_chunk(chunk: bytes) -> None:
        if is_plain:  # switching to a thread would cost more than the encoding
            encoder.write(chunk)
        else:
            await asyncio.to_thread(encoder.write, chunk)
        await pipe.put(output.drain())

    rows = await copy_query_to_sink(db, compile_export_query(plan), plan.file_spec.postgres_copy_format, write_chunk)
    await asyncio.to_thread(encoder.close)
    await pipe.put(output.drain())
    on_complete(rows)
    _report_export_completed(plan.resource, str(plan.format), rows, time.monotonic() - started)


class _ChunkPipe:
    """Passes chunks from the writer to the reader. ``put`` waits for a slow reader; ``close`` never waits."""

    def __init__(self) -> None:
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._slots = asyncio.Semaphore(STREAM_CHUNKS_AHEAD)

    async def put(self, chunk: bytes) -> None:
        if chunk:
            await self._slots.acquire()
            self._chunks.put_nowait(chunk)

    async def get(self) -> bytes | None:
        """Return the next chunk; None after the last one."""
        chunk = await self._chunks.get()
        self._slots.release()
        return chunk

    def mark_end(self) -> None:
        self._chunks.put_nowait(None)


class _EncodedChunks:
    """Keeps the output of an encoder until ``drain`` returns it."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, chunk: bytes, /) -> int:
        self._written.append(bytes(chunk))
        return len(chunk)

    def flush(self) -> None: ...

    def drain(self) -> bytes:
        written, self._written = self._written, []
        return written[0] if len(written) == 1 else b"".join(written)


EXPORT_CANCEL_CHECK_S = 1.0  # interval of the check whether the export was cancelled


class TableExporter:
    """Reads rows in the event loop and writes them in a thread, which is at most one chunk behind."""

    def __init__(self, db: Database, blobs: BlobStore, *, ttl_hours: int) -> None:
        self._db = db
        self._blobs = blobs
        self._ttl_hours = ttl_hours

    async def write_table_file(self, item: Item) -> ExportedFile:
        """Write the file and return its description. On any error, remove the partial file and raise the error."""
        job = await self._db.read(job_records.get_job, item.job_id)
        plan = msgspec.convert(job.params["plan"], TableExportPlan)
        name, started = plan.build_file_name(job.key), time.monotonic()
        writing, thread = self._blobs.open_writer(), SerialThread()  # each attempt writes its own file
        writing.label = DownloadLabel(name, plan.file_spec.content_type)
        encoders: list[CopyEncoder] = []
        try:
            rows, cut_cells = await self._write_file(plan, item.job_id, writing, thread, encoders)
            blob, expires_at = await self._set_expiry_and_finish_file(item.job_id, writing, thread)
        except (Conflict, InvalidInput) as error:
            await thread.run_last(lambda: _discard_table_file(writing, encoders))
            raise Fail(str(error), code="unreadable", retryable=True) from error
        except BaseException:
            await thread.run_last(lambda: _discard_table_file(writing, encoders))
            raise
        thread.shut_down_without_waiting()
        _report_export_completed(plan.resource, str(plan.format), rows, time.monotonic() - started, item.job_id)
        return ExportedFile(
            name=name,
            format=str(plan.format),
            compression=str(plan.compression),
            rows=rows,
            cut_cells=cut_cells,
            size=blob.size,
            sha256=blob.sha256.hex(),
            file_id=blob.id,
            spreadsheet_safe=plan.spreadsheet_safe,
            expires_at=expires_at,
        )

    async def _write_file(
        self,
        plan: TableExportPlan,
        job_id: UUID,
        writing: BlobWriter,
        thread: SerialThread,
        encoders: list[CopyEncoder],
    ) -> tuple[int, int]:
        encoder = await thread.run_after_previous(open_copy_encoder, plan.file_spec, writing)
        encoders.append(encoder)
        last_check = time.monotonic()

        async def write_chunk(chunk: bytes) -> None:
            nonlocal last_check
            await thread.start_after_previous(encoder.write, chunk)
            if time.monotonic() - last_check > EXPORT_CANCEL_CHECK_S:
                await self._stop_unless_still_requested(job_id)
                last_check = time.monotonic()

        rows = await copy_query_to_sink(
            self._db, compile_export_query(plan), plan.file_spec.postgres_copy_format, write_chunk
        )
        await thread.run_after_previous(encoder.close)
        encoders.clear()
        return rows, encoder.cut_cells

    async def _set_expiry_and_finish_file(
        self, job_id: UUID, writing: BlobWriter, thread: SerialThread
    ) -> tuple[Blob, str]:
        """Record when the file expires, then finish it. If the worker dies in between, cleanup removes the file."""
        await self._stop_unless_still_requested(job_id)
        failpoint("export.rows_written")
        expires_at = await self._db.run(retention.set_file_expiry, writing.name, job_id, self._ttl_hours)
        blob = await thread.run_after_previous(writing.finish)
        failpoint("export.file_finished")
        await self._db.run(quota_records.record_stored_file_size, blob.id, job_id, blob.size)
        return blob, expires_at.isoformat()

    async def _stop_unless_still_requested(self, job_id: UUID) -> None:
        """Raise Wait, which ends the attempt, if the export was cancelled or another worker has written its file."""
        if not await self._db.read(result_export.is_export_file_needed, job_id):
            raise Wait("The export was cancelled or has already finished", after=1.0, code="unwanted")


def _discard_table_file(writing: BlobWriter, encoders: list[CopyEncoder]) -> None:
    """Remove the file. Close the encoders here: otherwise the garbage collector closes them, and they write more."""
    writing.discard()
    for encoder in encoders:
        with suppress(Exception):
            encoder.close()


def _report_export_completed(
    resource: str, file_format: str, rows: int, seconds: float, job_id: UUID | None = None
) -> None:
    """Emit ``export.completed``. A stream has no job."""
    emit(
        "export.completed",
        job=job_id,
        resource_type=resource,
        format=file_format,
        total_records=rows,
        duration_ms=round(seconds * 1000),
        rows_per_sec=compute_rate(rows, seconds),
    )
