"""The runtime of a request: what routes share, and the FastAPI dependencies that provide it."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Annotated, Any, Generic, TypeVar, cast

from fastapi import Depends, Request

from tidemill.runtime import Runtime
from tidemill.store.database import Database

T = TypeVar("T")


class RequestCoalescer(Generic[T]):
    """Runs one query for all requests that ask for the same thing at the same time.

    A request that arrives while a query runs shares the next one with all that arrive meanwhile: no answer is older
    than its request, and at most one query runs and one waits, however many requests there are. The key names
    everything that the answer depends on, the user included.
    """

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[T]] = {}
        self._waiting: dict[Hashable, asyncio.Task[T]] = {}

    async def get(self, key: Hashable, fetch: Callable[[], Awaitable[T]]) -> T:
        """The answer. The query is shielded: the first client may disconnect while others still wait."""
        query = self._waiting.get(key)
        if query is None:
            before = self._under_way.get(key)
            query = asyncio.create_task(self._fetch_after(key, before, fetch))
            (self._under_way if before is None else self._waiting)[key] = query
        return await asyncio.shield(query)

    async def _fetch_after(
        self, key: Hashable, running: asyncio.Task[T] | None, fetch: Callable[[], Awaitable[T]]
    ) -> T:
        if running is not None:
            await asyncio.wait([running])
            self._under_way[key] = self._waiting.pop(key)
        try:
            return await fetch()
        finally:
            if key not in self._waiting:  # else the waiting query has taken its place
                del self._under_way[key]


def make_coalescer(_runtime: Runtime) -> RequestCoalescer[bytes]:
    return RequestCoalescer()


def get_runtime(request: Request) -> Runtime:
    return cast("Runtime", request.app.state.runtime)


async def _provide_runtime(
    request: Request,
) -> Runtime:  # async: FastAPI calls other functions in a thread, 0.3 ms each
    return get_runtime(request)


async def _provide_database(request: Request) -> Database:
    return get_runtime(request).db


def make_runtime_dependency(make: Callable[[Runtime], T]) -> Any:
    """A dependency on the object that ``make`` builds, one for the whole process."""

    async def provide_object(request: Request) -> T:
        return get_runtime(request).get(make)

    return Depends(provide_object)


RuntimeDep = Annotated[Runtime, Depends(_provide_runtime)]
DatabaseDep = Annotated[Database, Depends(_provide_database)]
