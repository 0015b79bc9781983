"""Work for a client who waits: it ends when the client leaves."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

from tidemill.api.problems import Refusal

T = TypeVar("T")


async def while_there(request: Request, doing: Coroutine[Any, Any, T]) -> T:
    """Its result, unless the client leaves first: then it is cancelled. The body must have been read."""
    work = asyncio.create_task(doing)
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise Refusal(408, "the client has gone")
        return work.result()
    finally:
        for task in (work, gone):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
