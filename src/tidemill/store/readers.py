"""Transactions that only read, each for many short queries: to begin and end one are three trips more."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from tidemill.store.database import Connection, Database
from tidemill.store.statements import sql

LONGEST_S = 2.0  # that a transaction is handed on; a query in it may take longer
IDLE_S = 0.05  # that it is kept for the next one


@dataclass(eq=False)
class _Reader:
    conn: Connection
    stack: AsyncExitStack
    began: float
    end: asyncio.TimerHandle | None = None


class Readers:
    """No more at a time than ``at_once``. A transaction that nobody takes up soon is ended."""

    def __init__(self, db: Database, *, at_once: int, seconds: float) -> None:
        self.seconds = seconds
        self._db = db
        self._turn = asyncio.Semaphore(at_once)
        self._free: list[_Reader] = []
        self._ending: set[asyncio.Task[None]] = set()
        db.before_close(self.close)

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[Connection]:
        """A connection in such a transaction; each statement sees what is committed when it begins."""
        async with self._turn:
            reader = self._taken_up() or await self._open()
            try:
                yield reader.conn
            except BaseException as error:
                await reader.stack.__aexit__(type(error), error, error.__traceback__)
                raise
            if time.monotonic() - reader.began < LONGEST_S:
                self._leave(reader)
            else:
                await reader.stack.aclose()

    async def close(self) -> None:
        while reader := self._taken_up():
            await reader.stack.aclose()
        await asyncio.gather(*self._ending)

    def _taken_up(self) -> _Reader | None:
        if not self._free:
            return None
        reader = self._free.pop()
        if reader.end is not None:
            reader.end.cancel()
        return reader

    def _leave(self, reader: _Reader) -> None:
        reader.end = asyncio.get_running_loop().call_later(IDLE_S, self._end, reader)
        self._free.append(reader)

    def _end(self, reader: _Reader) -> None:
        self._free.remove(reader)
        task = asyncio.create_task(reader.stack.aclose())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _open(self) -> _Reader:
        stack = AsyncExitStack()
        conn = await stack.enter_async_context(self._db.transaction(read_only=True, seconds=self.seconds))
        try:
            await conn.execute(sql("dataset/settings"))
        except BaseException as error:
            await stack.__aexit__(type(error), error, error.__traceback__)
            raise
        return _Reader(conn, stack, time.monotonic())
