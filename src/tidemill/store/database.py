"""Connections and transactions: the only way to the server."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from tidemill.core.errors import Unavailable
from tidemill.store.jsonb import decode_json
from tidemill.store.transaction_stats import POOL_WAIT_MIN_MS, MeasuredResult, QueryTimer, TransactionStats
from tidemill.telemetry.events import emit

logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # what it warns of, our own events tell

P = ParamSpec("P")
T = TypeVar("T")
Connection = AsyncConnection[Any]

TIMEOUT_STATES = ("57014", "25P03", "25P04")
TRANSIENT_STATES = ("40001", "40P01", "55P03", *TIMEOUT_STATES)
TRANSIENT_STATE_CLASSES = ("08", "53", "57P")
TRANSACTION_TIMEOUT_MIN_VERSION = 170000
MAX_TIMEOUT_ATTEMPTS = 5  # a statement that is too slow five times will be the sixth time too
UNBOUNDED_SESSION_NAME = "tidemill, unbounded"  # a large submission: nobody may end it for being slow


def is_transient(error: Exception) -> bool:
    """Whether the whole transaction may simply be run again."""
    if isinstance(error, PoolTimeout):
        return True
    if not isinstance(error, psycopg.Error):
        return False
    state = error.sqlstate
    if state is None:  # the connection broke: no server said why
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state in TRANSIENT_STATES or state.startswith(TRANSIENT_STATE_CLASSES)


def is_contention(error: Exception) -> bool:
    """Whether others stood in the way: a deadlock, a serialization failure, a lock that could not be had."""
    return isinstance(error, psycopg.Error) and error.sqlstate in ("40001", "40P01", "55P03")


def is_out_of_resources(error: Exception) -> bool:
    """Whether the server has run out of something: of its disk, mostly."""
    return isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith("53")


def is_timeout(error: BaseException) -> bool:
    """Whether a statement or a transaction took longer than it may."""
    return isinstance(error, psycopg.Error) and error.sqlstate in TIMEOUT_STATES


def is_unstorable_value(error: BaseException) -> bool:
    """Whether PostgreSQL cannot store a value: not a bug of ours, and no retry will help."""
    return isinstance(
        error, psycopg.DataError | psycopg.errors.ProgramLimitExceeded | psycopg.errors.StatementTooComplex
    )


class Database:
    """A pool of connections without session state, so that a transaction-pooling proxy may stand between."""

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
        """``patience``: for how many seconds ``run`` tries. Workers try for ever; who waits for an answer does not."""
        self.url = url
        self._patience = retry_for_s
        self._watch = QueryTimer(slow_ms)
        self.stats = TransactionStats()
        self._queued = 0
        self._before_close: list[Callable[[], Awaitable[None]]] = []
        self.timeout_ms = int(timeout * 1000)
        settings: dict[str, Any] = {"autocommit": True, "application_name": name, "connect_timeout": 10}
        settings["client_encoding"] = "UTF8"  # as we write what we COPY, whatever the server or PGCLIENTENCODING says
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
        """Where it is, for people to read: without the password."""
        parts = psycopg.conninfo.conninfo_to_dict(self.url)
        password = parts.pop("password", None)
        return psycopg.conninfo.make_conninfo("", **parts) if password else self.url

    async def __aenter__(self) -> Self:
        await _check_reachable(self.url)
        try:
            await self._pool.open(wait=True, timeout=15.0)
        except PoolTimeout as error:
            await self._pool.close()
            raise Unavailable("PostgreSQL answers too slowly, or has no free connection") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        for give_back in self._before_close:
            await give_back()
        await self._pool.close()

    def add_close_callback(self, give_back: Callable[[], Awaitable[None]]) -> None:
        """For who keeps a connection longer than it is used."""
        self._before_close.append(give_back)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection in autocommit, for what cannot run in a transaction."""
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
        """One transaction, bounded in time: a worker that is stopped in it must not hold its batch for ever.

        ``seconds`` is what one statement may take, 0 for as long as it likes; ``lock_seconds``, what it may wait for
        others.
        """
        async with self._acquire_connection() as conn:
            begin = b"BEGIN ISOLATION LEVEL REPEATABLE READ" if snapshot else b"BEGIN"
            begin += b" READ ONLY" if read_only else b""
            try:
                bounds = self._build_timeout_settings(conn, bounded, durable, statement_timeout_s)
                if lock_timeout_s is not None:
                    bounds += f"; SET LOCAL lock_timeout = {int(lock_timeout_s * 1000)}".encode()
                await conn.execute(begin + bounds, prepare=False)
                yield conn
                await conn.execute(b"COMMIT", prepare=False)
            except BaseException:
                with suppress(psycopg.Error):
                    await conn.rollback()
                raise

    @asynccontextmanager
    async def _open_autocommit(self) -> AsyncIterator[Connection]:
        """For one statement: nothing is held open, so it is bounded from here."""
        async with self._acquire_connection() as conn:
            try:
                async with asyncio.timeout(self.timeout_ms / 1000):
                    yield conn
            except TimeoutError as error:
                raise psycopg.errors.QueryCanceled("a look at the database took too long") from error

    @asynccontextmanager
    async def _acquire_connection(self) -> AsyncIterator[Connection]:
        asked = time.monotonic()
        async with self._pool.connection() as conn:
            self._record_pool_wait(time.monotonic() - asked)
            yield conn

    async def run(
        self, verb: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run ``verb`` in a transaction, and again while PostgreSQL reports transient errors.

        Verbs are fenced: a verb whose COMMIT answer was lost finds its own work when it runs again.
        """
        return (await self._retry(self.transaction, verb, *args, **kwargs)).value

    async def run_async_commit(
        self, verb: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As ``run``, with synchronous_commit off: a crash of the server may undo a committed transaction."""
        return (await self._retry(partial(self.transaction, durable=False), verb, *args, **kwargs)).value

    async def read(
        self, verb: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a verb of one SELECT without BEGIN and COMMIT, which saves two round trips."""
        return (await self._retry(self._open_autocommit, verb, *args, **kwargs)).value

    async def read_snapshot(
        self, verb: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a verb whose statements must see the same rows: REPEATABLE READ."""
        return (await self._retry(partial(self.transaction, snapshot=True), verb, *args, **kwargs)).value

    async def run_measured(
        self, verb: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> MeasuredResult[T]:
        """As ``run``, with the duration of the successful attempt and the number of failed ones."""
        return await self._retry(self.transaction, verb, *args, **kwargs)

    async def _retry(
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
                seconds = time.monotonic() - began
                self._watch.record_transaction(verb.__name__, seconds)
                self.stats.record_transaction(seconds * 1000)
                return MeasuredResult(value, seconds * 1000, failed)
            except (psycopg.Error, PoolTimeout) as error:
                failed += 1
                self.stats.failures += 1
                if not is_transient(error) or (is_timeout(error) and failed >= MAX_TIMEOUT_ATTEMPTS):
                    raise
                if self._patience is not None and time.monotonic() - started > self._patience:
                    raise Unavailable("the database is not available now; try again later") from error
                emit("database.retry", verb=verb.__name__, attempt=failed, error=str(error).strip())
                await asyncio.sleep(min(5.0, 0.02 * 2 ** min(failed, 10)) * (0.5 + random.random()))  # noqa: S311

    def _record_pool_wait(self, seconds: float) -> None:
        """A wait is a shortage when there was no connection left to open: a pool that grows is not short of any."""
        self._watch.record_pool_wait(seconds)
        short = seconds * 1000 >= POOL_WAIT_MIN_MS and self._is_pool_exhausted()
        self.stats.record_pool_wait(seconds * 1000 if short else 0.0)

    def _is_pool_exhausted(self) -> bool:
        """Whether somebody stood in line since we last looked, with every connection open that may be.

        The clock alone does not tell: a process that was not let on for a while has waited for nobody.
        """
        stats = self._pool.get_stats()
        before, self._queued = self._queued, stats.get("requests_queued", 0)
        return self._queued > before and stats["pool_size"] >= stats["pool_max"]

    def _build_timeout_settings(self, conn: Connection, bounded: bool, durable: bool, seconds: float | None) -> bytes:
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
    """The name of a session whose transaction has a limit of its own, for whoever looks for stuck ones."""
    return f"tidemill, limit {milliseconds // 1000 + 1} s"


async def _configure_connection(conn: Connection) -> None:
    set_json_loads(decode_json, conn)


async def _check_reachable(url: str) -> None:
    """One plain connection first: it says why there is none, where a pool would only try for long."""
    try:
        shown = psycopg.conninfo.conninfo_to_dict(url)
        conn = await AsyncConnection.connect(url, connect_timeout=10)
    except psycopg.ProgrammingError as error:
        raise Unavailable(f"DATABASE_URL is not a PostgreSQL address: {str(error).strip()}") from error
    except psycopg.Error as error:
        where = f"{shown.get('host') or 'localhost'}:{shown.get('port') or 5432}/{shown.get('dbname') or ''}"
        reason = str(error).strip().splitlines()[0].rpartition("failed: ")[2]
        raise Unavailable(f"cannot reach PostgreSQL at {where}: {reason}") from error
    await conn.close()
