"""The connection pool, transactions and their retries."""

import asyncio
import logging
import os
import random
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from tidemill.config import get_database_variable_name
from tidemill.core.arithmetic import MOVING_AVERAGE_ALPHA
from tidemill.core.decide import describe_exception
from tidemill.core.errors import Unavailable
from tidemill.failpoints import is_commit_lost, register_connection
from tidemill.store.jsonb import decode_json
from tidemill.telemetry.events import emit

logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # Tidemill emits its own events instead

P = ParamSpec("P")
T = TypeVar("T")
Connection = AsyncConnection[Any]

TIMEOUT_STATES = ("57014", "25P03", "25P04")
TRANSIENT_STATES = ("40001", "40P01", "55P03", *TIMEOUT_STATES)
TRANSIENT_STATE_CLASSES = ("08", "53", "57P")
TRANSACTION_TIMEOUT_MIN_VERSION = 170000
MAX_TIMEOUT_ATTEMPTS = 5  # a statement that timed out five times will time out again
UNBOUNDED_SESSION_NAME = "tidemill, unbounded"  # a large submission: maintenance must not end it for being slow
LATENCY_REPORT_INTERVAL_S = 1.0
POOL_WAIT_MIN_MS = 1.0  # getting a free connection takes a tenth of this
POOL_WAIT_NEGLIGIBLE_MS = 0.001


def is_transient(error: Exception) -> bool:
    """Whether retrying the whole transaction may succeed."""
    if isinstance(error, PoolTimeout):
        return True
    if not isinstance(error, psycopg.Error):
        return False
    state = error.sqlstate
    if state is None:  # the connection broke without an error from the server
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state in TRANSIENT_STATES or state.startswith(TRANSIENT_STATE_CLASSES)


def is_contention_error(error: Exception) -> bool:
    """Whether other transactions caused it: a deadlock, a serialization failure, a lock timeout."""
    return isinstance(error, psycopg.Error) and error.sqlstate in ("40001", "40P01", "55P03")


def is_out_of_resources_error(error: Exception) -> bool:
    """Whether the server has run out of a resource, usually disk space."""
    return isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith("53")


def is_timeout_error(error: BaseException) -> bool:
    """Whether a statement or a transaction exceeded its timeout."""
    return isinstance(error, psycopg.Error) and error.sqlstate in TIMEOUT_STATES


def is_unstorable_value_error(error: BaseException) -> bool:
    """Whether PostgreSQL cannot store a value, so that no retry helps."""
    return isinstance(
        error, psycopg.DataError | psycopg.errors.ProgramLimitExceeded | psycopg.errors.StatementTooComplex
    )


def describe_error(error: BaseException) -> str:
    """Describe an error in one line for the log, without the values that PostgreSQL quotes: they may be users' data.

    The detail and the context of an error of PostgreSQL contain complete rows, and its message can quote a value.
    """
    if not isinstance(error, psycopg.Error):
        return describe_exception(error)
    message = error.diag.message_primary or (str(error).strip().splitlines() or [""])[0]
    return f"{error.sqlstate or type(error).__name__}: {_QUOTED_VALUE_REGEX.sub('…', message)}"


_QUOTED_VALUE_REGEX = re.compile(r'"[^"]*"|(?<!\w)\'[^\']*\'(?!\w)|\([^)]*\)=\(.*\)')


@dataclass(frozen=True, slots=True)
class MeasuredResult(Generic[T]):
    """The result of a verb, the milliseconds of the attempt that succeeded, and the number of failed attempts."""

    value: T
    ms: float
    failed: int


class TransactionStats:
    """The speed of the database as one process sees it.

    Slow transactions are reported at once; all of them together about once a second, because an event for each would
    cost too much.
    """

    def __init__(self, slow_ms: float) -> None:
        self.latency_ms: float | None = None  # moving average of transactions
        self.pool_wait_ms = 0.0  # moving average of waits for a connection, while the pool is exhausted
        self.pool_waited_ms = 0.0  # sum of these waits
        self.failures = 0  # transactions that failed, most of which are retried
        self._slow_ms = slow_ms
        self._sum_ms = 0.0
        self._transactions = 0
        self._reported_at = time.monotonic()

    def record_transaction(self, verb: str, ms: float) -> None:
        """Record the duration of a transaction, without the wait for its connection."""
        average = self.latency_ms
        self.latency_ms = ms if average is None else average + MOVING_AVERAGE_ALPHA * (ms - average)
        if ms >= self._slow_ms:
            emit("query.slow", verb=verb, ms=round(ms, 1), threshold_ms=self._slow_ms)
        self._sum_ms += ms
        self._transactions += 1
        now = time.monotonic()
        if now - self._reported_at >= LATENCY_REPORT_INTERVAL_S:
            mean, transactions = self._sum_ms / self._transactions, self._transactions
            self._sum_ms, self._transactions, self._reported_at = 0.0, 0, now
            emit("database.latency", ms=round(mean, 3), transactions=transactions)

    def record_pool_wait(self, ms: float, *, is_exhausted: bool) -> None:
        """Record a wait for a connection. It is a shortage only if the pool could not open another connection."""
        if ms >= POOL_WAIT_MIN_MS:
            emit("pool.waited", ms=round(ms, 1))
        shortage_ms = ms if is_exhausted else 0.0
        average = self.pool_wait_ms + MOVING_AVERAGE_ALPHA * (shortage_ms - self.pool_wait_ms)
        self.pool_wait_ms = average if average > POOL_WAIT_NEGLIGIBLE_MS else 0.0
        self.pool_waited_ms += shortage_ms


class Database:
    """A pool of connections without session state, so that a transaction-pooling proxy can be used."""

    def __init__(
        self,
        url: str,
        *,
        size: int = 4,
        idle: int = 1,
        lifetime: float = 3_600.0,
        timeout: float = 20.0,
        prepare: bool = True,
        name: str = "tidemill",
        retry_for_s: float | None = None,
        slow_ms: float = 500,
    ) -> None:
        """``retry_for_s`` limits how long ``run`` retries. Workers retry without limit; requests do not."""
        self.url = url
        self._retry_for_s = retry_for_s
        self.stats = TransactionStats(slow_ms)
        self._queued = 0
        self._before_close: list[Callable[[], Awaitable[None]]] = []
        self.timeout_ms = int(timeout * 1000)
        settings: dict[str, Any] = {"autocommit": True, "application_name": name, "connect_timeout": 10}
        settings["client_encoding"] = "UTF8"  # COPY writes bytes in this encoding; overrides PGCLIENTENCODING
        settings |= {"keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3}
        if not prepare:
            settings["prepare_threshold"] = None
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            min_size=min(idle, size),
            max_size=size,
            max_lifetime=lifetime,
            open=False,
            kwargs=settings,
            configure=_configure_connection,
            timeout=retry_for_s or 15.0,
        )

    @property
    def display_url(self) -> str:
        """The URL without the password."""
        parts = psycopg.conninfo.conninfo_to_dict(self.url)
        password = parts.pop("password", None)
        return psycopg.conninfo.make_conninfo("", **parts) if password else self.url

    async def __aenter__(self) -> Self:
        await _check_reachable(self.url)
        try:
            await self._pool.open(wait=True, timeout=15.0)
        except BaseException as error:  # also a cancellation: otherwise the tasks and connections of the pool stay
            await self._pool.close()
            if isinstance(error, PoolTimeout):
                raise Unavailable("PostgreSQL did not respond in time, or has no free connection") from error
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for callback in self._before_close:
            await callback()
        await self._pool.close()

    def add_close_callback(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Call ``callback`` before the pool closes, to return a connection that is kept longer than it is used."""
        self._before_close.append(callback)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Yield a connection in autocommit mode, for statements that cannot run in a transaction."""
        async with self._pool.connection() as conn:
            yield conn

    @asynccontextmanager
    async def transaction(
        self,
        *,
        bounded: bool = True,
        durable: bool = True,
        snapshot: bool = False,
        read_only: bool = False,
        statement_timeout_s: float | None = None,
        lock_timeout_s: float | None = None,
    ) -> AsyncIterator[Connection]:
        """Run a transaction with time limits, so that a worker that hangs cannot hold its batch forever.

        ``statement_timeout_s`` limits one statement (0: no limit); ``lock_timeout_s`` limits a wait for a lock.
        """
        async with self._acquire_connection() as conn:
            begin = b"BEGIN ISOLATION LEVEL REPEATABLE READ" if snapshot else b"BEGIN"
            begin += b" READ ONLY" if read_only else b""
            try:
                bounds = self._build_set_local_sql(conn, bounded, durable, statement_timeout_s)
                if lock_timeout_s is not None:
                    bounds += f"; SET LOCAL lock_timeout = {int(lock_timeout_s * 1000)}".encode()
                await conn.execute(begin + bounds, prepare=False)
                yield conn
                await conn.execute(b"COMMIT", prepare=False)
                if is_commit_lost():
                    break_connection(conn)
                    await conn.execute(b"", prepare=False)  # fails as COMMIT does if its answer is lost
            except BaseException:
                with suppress(psycopg.Error):
                    await conn.rollback()
                raise

    @asynccontextmanager
    async def _open_autocommit(self) -> AsyncIterator[Connection]:
        """Yield a connection for one statement without a transaction. The client enforces the timeout."""
        async with self._acquire_connection() as conn:
            try:
                async with asyncio.timeout(self.timeout_ms / 1000):
                    yield conn
            except TimeoutError as error:
                raise psycopg.errors.QueryCanceled("The query timed out") from error

    @asynccontextmanager
    async def _acquire_connection(self) -> AsyncIterator[Connection]:
        requested = time.monotonic()
        async with self._pool.connection() as conn:
            waited_ms = (time.monotonic() - requested) * 1000
            if waited_ms >= POOL_WAIT_MIN_MS or self.stats.pool_wait_ms:
                is_exhausted = waited_ms >= POOL_WAIT_MIN_MS and self._was_pool_exhausted()
                self.stats.record_pool_wait(waited_ms, is_exhausted=is_exhausted)
            yield conn

    async def run(
        self, verb: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run ``verb`` in a transaction, and again while PostgreSQL reports transient errors.

        Verbs are fenced: a verb whose COMMIT answer was lost finds its own work when it runs again.
        """
        return (await self._run_with_retries(self.transaction, verb, *args, **kwargs)).value

    async def run_async_commit(
        self, verb: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As ``run``, with synchronous_commit off: a crash of the server may undo a committed transaction."""
        return (await self._run_with_retries(partial(self.transaction, durable=False), verb, *args, **kwargs)).value

    async def read(
        self, verb: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a verb of one SELECT without BEGIN and COMMIT, which saves two round trips."""
        return (await self._run_with_retries(self._open_autocommit, verb, *args, **kwargs)).value

    async def read_snapshot(
        self, verb: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a verb whose statements must see the same rows: REPEATABLE READ."""
        return (await self._run_with_retries(partial(self.transaction, snapshot=True), verb, *args, **kwargs)).value

    async def run_measured(
        self, verb: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> MeasuredResult[T]:
        """As ``run``, with the duration of the successful attempt and the number of failed ones."""
        return await self._run_with_retries(self.transaction, verb, *args, **kwargs)

    async def _run_with_retries(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Connection]],
        verb: Callable[Concatenate[Connection, P], Awaitable[T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> MeasuredResult[T]:
        failed, started = 0, time.monotonic()
        while True:
            try:
                async with connect() as conn:
                    began = time.monotonic()
                    value = await verb(conn, *args, **kwargs)
                ms = (time.monotonic() - began) * 1000
                self.stats.record_transaction(verb.__name__, ms)
                return MeasuredResult(value, ms, failed)
            except (psycopg.Error, PoolTimeout) as error:
                failed += 1
                self.stats.failures += 1
                if not is_transient(error) or (is_timeout_error(error) and failed >= MAX_TIMEOUT_ATTEMPTS):
                    raise
                if self._retry_for_s is not None and time.monotonic() - started > self._retry_for_s:
                    raise Unavailable("The database is not available. Try again later.") from error
                emit("database.retry", verb=verb.__name__, attempt=failed, error=describe_error(error))
                await asyncio.sleep(min(5.0, 0.02 * 2 ** min(failed, 10)) * (0.5 + random.random()))  # noqa: S311

    def _was_pool_exhausted(self) -> bool:
        """Whether a request was queued since the last check while the pool had its maximum of connections.

        The duration of a wait proves nothing, because the process itself may have been suspended.
        """
        stats = self._pool.get_stats()
        before, self._queued = self._queued, stats.get("requests_queued", 0)
        return self._queued > before and stats["pool_size"] >= stats["pool_max"]

    def _build_set_local_sql(self, conn: Connection, bounded: bool, durable: bool, seconds: float | None) -> bytes:
        statements = [""]
        if bounded:
            longest = self.timeout_ms if seconds is None else int(seconds * 1000)
            statements.append(f"SET LOCAL statement_timeout = {longest}")
            statements.append(f"SET LOCAL idle_in_transaction_session_timeout = {self.timeout_ms}")
            if seconds is not None:
                statements.append(
                    f"SET LOCAL application_name = '{_format_limited_session_name(longest + self.timeout_ms)}'"
                )
            if longest and conn.info.server_version >= TRANSACTION_TIMEOUT_MIN_VERSION:
                statements.append(f"SET LOCAL transaction_timeout = {longest + self.timeout_ms}")
        else:
            statements.append(f"SET LOCAL application_name = '{UNBOUNDED_SESSION_NAME}'")
        if not durable:
            statements.append("SET LOCAL synchronous_commit = off")
        return "; ".join(statements).encode()


def _format_limited_session_name(milliseconds: int) -> str:
    """Return the session name for a transaction with its own time limit; maintenance uses it to end stuck sessions."""
    return f"tidemill, limit {milliseconds // 1000 + 1} s"


def break_connection(conn: Connection) -> None:
    """Break a connection as a failure of the network does. Only failpoints do that."""
    if not conn.closed:
        with socket.socket(fileno=os.dup(conn.fileno())) as connected:
            connected.shutdown(socket.SHUT_RDWR)


async def _configure_connection(conn: Connection) -> None:
    register_connection(conn, break_connection)
    set_json_loads(decode_json, conn)
    if conn.prepare_threshold is not None and await _is_behind_pooler(conn):
        # The next transaction may use another session, in which the name of a prepared statement is unknown or belongs
        # to a statement of another client.
        conn.prepare_threshold = None


async def _is_behind_pooler(conn: Connection) -> bool:
    """Whether a connection pooler answers for the server: it reports a process id of its own when a client connects."""
    cursor = await conn.execute(b"SELECT pg_backend_pid()", prepare=False)
    row = await cursor.fetchone()
    return row is None or row[0] != conn.info.backend_pid


def _describe_invalid_url(url: str) -> str:
    """Return the problem and its remedy. Of the URL itself, nothing is shown: it could be a part of the password."""
    known = [option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()]
    names = [option.partition("=")[0] for option in url.partition("?")[2].split("&")]
    near = [match for name in names if name not in known for match in get_close_matches(name, known, 1)]
    if near:
        return f'has an unknown option after "?". Did you mean "{near[0]}"?'
    return (
        "is not a valid PostgreSQL URL. Use postgresql://USER@HOST/DATABASE. "
        'In a password, write special characters as percent codes, such as %25 for "%".'
    )


async def _check_reachable(url: str) -> None:
    """Open a single connection first, because it fails with a reason while a pool would only retry."""
    try:
        shown = psycopg.conninfo.conninfo_to_dict(url)
        conn = await AsyncConnection.connect(url, connect_timeout=10)
    except psycopg.ProgrammingError:
        # The reason of libpq quotes the URL, which may contain the password.
        raise Unavailable(f"{get_database_variable_name()} {_describe_invalid_url(url)}") from None
    except psycopg.Error as error:
        where = f"{shown.get('host') or 'localhost'}:{shown.get('port') or 5432}/{shown.get('dbname') or ''}"
        reason = str(error).strip().splitlines()[0].rpartition("failed: ")[2].removeprefix("FATAL:").strip()
        remedy = next((text for part, text in _CONNECT_REMEDIES.items() if part in reason), _CONNECT_REMEDY)
        remedy = remedy.format(variable=get_database_variable_name())
        raise Unavailable(f"Cannot connect to PostgreSQL at {where}: {reason.rstrip('.')}. {remedy}") from error
    await conn.close()


_CONNECT_REMEDY = "Check {variable}."
_CONNECT_REMEDIES = {  # part of the reason -> what to do
    "password authentication failed": "Check the user and the password in {variable}.",
    "no password supplied": "Add the password to {variable}, or set PGPASSWORD.",
    "pg_hba.conf": "Allow the connection in pg_hba.conf, or check {variable}.",
    "role ": "Check the user in {variable}.",
    "database ": "Create the database with createdb, or check its name in {variable}.",
    "host name": "Check the host in {variable}.",
    "resolve host": "Check the host in {variable}.",
    "refused": "Start PostgreSQL, or check the host and the port in {variable}.",
    "No such file": "Start PostgreSQL, or check the host in {variable}.",
    "timeout": "Check the host and the port in {variable}, and the firewall.",
}
_DATABASE_REMEDY = "Grant the role CREATE on the database, or run `tidemill migrate` as a role that has it."
_SCHEMA_REMEDY = (
    'Connect as the role that owns the schema "tidemill", or grant the current role the privileges in the guide '
    '"Use your own PostgreSQL".'
)


def translate_access_error(error: Exception) -> Unavailable | None:
    """Return the message for a missing privilege, a read-only server or a lost connection; None for other errors."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        remedy = _DATABASE_REMEDY if "for database" in reason else _SCHEMA_REMEDY
        return Unavailable(f"PostgreSQL denied access: {reason}. {remedy}")
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        remedy = "Connect to the primary server, as a role that can write."
        return Unavailable(f"The database is read-only: {reason}. {remedy}")
    if is_transient(error) and not is_timeout_error(error) and not is_contention_error(error):
        return Unavailable(f"Lost the connection to PostgreSQL: {reason}. Check that the server is running, and retry.")
    return None
