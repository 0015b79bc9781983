"""Responses that skip models for speed, streams, and work that ends when the client disconnects."""

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
    """A response whose body is already encoded as JSON."""

    media_type = "application/json"

    def __init__(self, body: bytes) -> None:
        super().__init__(body)


# For one chunk. While a stream waits for a slow client, it blocks vacuuming of rows and holds a stream slot.
STREAM_SEND_TIMEOUT_S = 300.0


class StreamSlots:
    """Limits concurrent streams, each of which holds a database connection."""

    def __init__(self, most: int) -> None:
        self._max_open = most
        self._open = 0

    @contextmanager
    def acquire(self) -> Iterator[None]:
        if self._open >= self._max_open:
            raise Busy(f"{self._open} exports are already being streamed. Retry later, or submit the export as a job.")
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1


class ClosingStreamingResponse(StreamingResponse):
    """Closes its generator in every case: a generator that waits for a slow client does not notice a disconnect."""

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
    """Wait for the first chunk and return the stream. An earlier error can still become a problem document."""
    try:
        first = await anext(chunks, b"")
    except BaseException:
        await chunks.aclose()
        raise
    return _prepend_chunk(first, chunks)


async def _prepend_chunk(first: bytes, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(chunks):
        yield first
        async for chunk in chunks:
            yield chunk


T = TypeVar("T")


async def run_until_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``; cancel it if the client disconnects first. The body must have been read."""
    task = asyncio.create_task(work)
    disconnected = asyncio.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait((task, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise HttpError(408, "The client disconnected")
        return task.result()
    finally:
        for running in (task, disconnected):
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await running


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def make_stream_slots(runtime: Runtime) -> StreamSlots:
    return StreamSlots(runtime.settings.export_streams)
