"""Transactions that only read, each for several short queries: to begin and end one are two trips more."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from tidemill.store.database import Connection, Database
from tidemill.store.statements import sql

LONGEST_S = 2.0  # that a transaction is handed on; a query in it may take longer


@dataclass
class _Reader:
    conn: Connection
    stack: AsyncExitStack
    began: float


class Readers:
    """No more at a time than ``at_once``. Nobody waits in a transaction: it is handed on at once, or ended."""

    def __init__(self, db: Database, *, at_once: int, seconds: float) -> None:
        self.seconds = seconds
        self._db = db
        self._turn = asyncio.Semaphore(at_once)
        self._waiting = 0
        self._free: list[_Reader] = []
        self._ending: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[Connection]:
        """A connection in such a transaction; each statement sees what is committed when it begins."""
        await self._take_turn()
        try:
            reader = self._free.pop() if self._free else await self._open()
            try:
                yield reader.conn
            except BaseException as error:
                await reader.stack.__aexit__(type(error), error, error.__traceback__)
                raise
            if self._waiting > len(self._free) and time.monotonic() - reader.began < LONGEST_S:
                self._free.append(reader)
            else:
                await reader.stack.aclose()
        finally:
            self._turn.release()

    async def _take_turn(self) -> None:
        self._waiting += 1
        try:
            await self._turn.acquire()
        except BaseException:  # one may have been left for us
            self._end_free(but=self._waiting - 1)
            raise
        finally:
            self._waiting -= 1

    async def _open(self) -> _Reader:
        stack = AsyncExitStack()
        conn = await stack.enter_async_context(self._db.transaction(read_only=True, seconds=self.seconds))
        try:
            await conn.execute(sql("dataset/settings"))
        except BaseException as error:
            await stack.__aexit__(type(error), error, error.__traceback__)
            raise
        return _Reader(conn, stack, time.monotonic())

    def _end_free(self, *, but: int) -> None:
        while len(self._free) > but:
            task = asyncio.create_task(self._free.pop().stack.aclose())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
