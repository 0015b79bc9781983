"""The open databases of a mill, one per event loop, and a background event loop for blocking callers."""

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidemill.store.database import Database
from tidemill.store.migrate import check_schema

T = TypeVar("T")
DatabaseFactory = Callable[[], Awaitable[Database]]
BACKGROUND_LOOP_STOP_TIMEOUT_S = 5.0


class BackgroundLoop:
    """An event loop in a daemon thread that runs coroutines for blocking callers."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop
        self._stop_requested: asyncio.Event
        started = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, args=(started,), name="tidemill", daemon=True)
        self._thread.start()
        started.wait()

    def run_coroutine(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. An interrupt in the waiting thread cancels the coroutine."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @contextmanager
    def enter_on_loop(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter and exit an async context manager on the loop; the body runs in the caller's thread."""
        value = self.run_coroutine(manager.__aenter__())
        try:
            yield value
        except BaseException as error:
            if not self.run_coroutine(manager.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self.run_coroutine(manager.__aexit__(None, None, None))

    def stop(self) -> None:
        """Stop the thread. In a forked process, which has no such thread, do nothing."""
        if os.getpid() != self._pid or not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._stop_requested.set)
        if threading.current_thread() is not self._thread:
            self._thread.join(BACKGROUND_LOOP_STOP_TIMEOUT_S)

    def _run_loop(self, started: threading.Event) -> None:
        async def start_and_wait_for_stop() -> None:
            self._loop, self._stop_requested = asyncio.get_running_loop(), asyncio.Event()
            started.set()
            await self._stop_requested.wait()

        asyncio.run(start_and_wait_for_stop())


@dataclass(slots=True, eq=False, weakref_slot=True)
class _LoopDatabase:
    """The database of one owner in one event loop, and the generator that keeps it open."""

    owner: "weakref.ref[SharedDatabase]"
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    db: Database | None = None
    holder: AsyncGenerator[Database] | None = None

    async def close(self) -> None:
        if self.holder is not None:
            await self.holder.aclose()


# A global, and not a field of the owner: closing databases when the owner is garbage-collected would race with the
# end of the event loop.
_open_by_loop: dict[asyncio.AbstractEventLoop, list[_LoopDatabase]] = {}


@dataclass(slots=True)
class _ProcessState:
    """The open databases of one process. A forked process starts empty and does not use its parent's connections."""

    by_loop: weakref.WeakValueDictionary[asyncio.AbstractEventLoop, _LoopDatabase] = field(
        default_factory=weakref.WeakValueDictionary
    )
    lock: threading.Lock = field(default_factory=threading.Lock)
    background: BackgroundLoop | None = None


class SharedDatabase:
    """Opens one database per event loop on first use and keeps it open.

    A database closes with ``close`` or ``close_async``, with its event loop, or when the process ends.
    """

    def __init__(self, make_database: DatabaseFactory) -> None:
        self._make_database = make_database
        self._by_process: dict[int, _ProcessState] = {}

    async def get_for_running_loop(self) -> Database:
        """Return the database of the running event loop."""
        loop = asyncio.get_running_loop()
        shared = self._process_state.by_loop.get(loop)
        if shared is None:
            shared = self._process_state.by_loop[loop] = _LoopDatabase(weakref.ref(self))
            _open_by_loop.setdefault(loop, []).append(shared)
        if shared.db is None:
            async with shared.lock:
                if shared.db is None:
                    await _close_databases_without_owner(loop)
                    shared.holder = _open_database_until_loop_ends(self._make_database)
                    shared.db = await anext(shared.holder)
        return shared.db

    @property
    def background_loop(self) -> BackgroundLoop:
        """The event loop for blocking callers."""
        process = self._process_state
        with process.lock:
            if process.background is None:
                process.background = BackgroundLoop()
                weakref.finalize(self, process.background.stop)  # also at interpreter exit
            return process.background

    async def close_for_running_loop(self) -> None:
        """Close the database of the running event loop. The next use reopens it."""
        loop = asyncio.get_running_loop()
        shared = self._process_state.by_loop.pop(loop, None)
        if shared is not None:
            _open_by_loop[loop].remove(shared)
            await shared.close()

    def close_background_loop(self) -> None:
        """Close the database of the background loop and stop its thread. The next use restarts both."""
        process = self._process_state
        with process.lock:
            background, process.background = process.background, None
        if background is not None:
            background.run_coroutine(self.close_for_running_loop())
            background.stop()

    @property
    def _process_state(self) -> _ProcessState:
        return self._by_process.setdefault(os.getpid(), _ProcessState())


async def _open_database_until_loop_ends(make_database: DatabaseFactory) -> AsyncGenerator[Database]:
    """Yield an open database and close it with the generator.

    An event loop closes its async generators before it ends, so the database closes with the loop. No other async
    generator may be open inside, because the event loop closes all of them concurrently.
    """
    async with await make_database() as db:
        await check_schema(db)
        yield db


async def _close_databases_without_owner(loop: asyncio.AbstractEventLoop) -> None:
    """Close databases whose owner was garbage-collected, and forget event loops that have ended."""
    for ended in [other for other in tuple(_open_by_loop) if other.is_closed()]:
        _open_by_loop.pop(ended, None)
    abandoned = [shared for shared in _open_by_loop[loop] if shared.owner() is None]
    for shared in abandoned:
        _open_by_loop[loop].remove(shared)
        await shared.close()
