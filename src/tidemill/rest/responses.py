"""Responses that skip models for speed, that are streamed, or whose work ends when the client disconnects."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar

import msgspec
from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tidemill.core.errors import Busy
from tidemill.rest.problems import HttpError
from tidemill.runtime import Runtime

encode_json = msgspec.json.Encoder().encode


class JsonBytesResponse(Response):
    """A value that is JSON already."""

    media_type = "application/json"

    def __init__(self, body: bytes) -> None:
        super().__init__(body)


STREAM_SEND_TIMEOUT_S = (
    300.0  # that a piece waits for a client who does not read: as long, rows cannot be vacuumed, nor others served
)


class StreamSlots:
    """How many are open; each of them holds a connection to the database."""

    def __init__(self, most: int) -> None:
        self._max_open = most
        self._open = 0

    @contextmanager
    def acquire(self) -> Iterator[None]:
        if self._open >= self._max_open:
            raise Busy(f"{self._open} exports are being streamed already: try again in a moment, or submit it as a job")
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1


class ClosingStreamingResponse(StreamingResponse):
    """Closes what it sends, however it ends: a generator that waits for a slow reader does not hear of it itself."""

    def __init__(self, pieces: AsyncGenerator[bytes], headers: dict[str, str], media_type: str) -> None:
        super().__init__(pieces, 200, headers, media_type)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_timeout(message: Message) -> None:
            async with asyncio.timeout(STREAM_SEND_TIMEOUT_S):
                await send(message)

        async with aclosing(self._pieces):
            await super().__call__(scope, receive, send_with_timeout)


async def await_first_chunk(chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """The same, once the first piece is there: what goes wrong before that can still be told properly."""
    try:
        first = await anext(chunks, b"")
    except BaseException:
        await chunks.aclose()
        raise
    return _prepend_chunk(first, chunks)


async def _prepend_chunk(first: bytes, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(chunks):
        yield first
        async for piece in chunks:
            yield piece


T = TypeVar("T")


async def run_until_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Its result, unless the client leaves first: then it is cancelled. The body must have been read."""
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise HttpError(408, "the client has gone")
        return task.result()
    finally:
        for running in (task, gone):
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await running


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def make_stream_slots(runtime: Runtime) -> StreamSlots:
    return StreamSlots(runtime.settings.export_streams)
