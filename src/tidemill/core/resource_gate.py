"""A limit inside a handler: items wait for a resource of their process, such as a database connection."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any


class ResourceGate:
    """Lets ``width`` tasks of a process use a resource at a time.

    The engine claims no more items than can use it, and withdraws items that wait for it when their job stops.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.requests = 0  # for the resource, since the start of the process
        self.limits_items = True  # whether items of the last batch needed the resource; assumed before the first batch
        self._semaphore = asyncio.Semaphore(width)
        self._waiting: set[asyncio.Task[Any]] = set()

    def is_waiting(self, task: "asyncio.Task[Any]") -> bool:
        return task in self._waiting

    @contextmanager
    def while_waiting(self) -> Iterator[None]:
        """Mark the current task as waiting, so that the engine may cancel it."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  a coroutine runs in a task
        self._waiting.add(task)
        try:
            yield
        finally:
            self._waiting.discard(task)

    @asynccontextmanager
    async def hold_resource(self) -> AsyncIterator[None]:
        """Wait for the resource, and hold it in this context."""
        self.requests += 1
        with self.while_waiting():
            await self._semaphore.acquire()
        try:
            yield
        finally:
            self._semaphore.release()
