"""Responses that skip models for speed, streams, and work that ends when the client disconnects."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar

import msgspec
from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tidemill.core.errors import Busy, QuotaExceeded
from tidemill.rest.problems import HttpError
from tidemill.runtime import Runtime

encode_json = msgspec.json.Encoder().encode


class JsonBytesResponse(Response):
    """A response whose body is already encoded as JSON."""

    media_type = "application/json"

    def __init__(self, body: bytes) -> None:
        super().__init__(body)


# A stream holds a snapshot and a stream slot while it waits for its client.
STREAM_GRACE_S = 30.0  # a client may be slower in total for this duration
MIN_STREAM_BYTES_PER_S = 10_000


class SlowReader(Exception):
    """The client of a stream reads more slowly than the minimum rate."""


class StreamSlots:
    """Limits concurrent streams, each of which holds a database connection: in total, and for each user."""

    def __init__(self, *, max_open: int, max_per_user: int) -> None:
        self._max_open = max_open
        self._max_per_user = max_per_user
        self._open: Counter[int] = Counter()

    @contextmanager
    def acquire(self, user_id: int) -> Iterator[None]:
        """Hold a slot of this user.

        Raises:
            QuotaExceeded: The user has no free slot.
            Busy: All slots are in use.
        """
        own, total = self._open[user_id], self._open.total()
        if own >= self._max_per_user:
            raise QuotaExceeded("export_streams", own + 1, self._max_per_user, STREAM_SLOT_REMEDY)
        if total >= self._max_open:
            raise Busy(f"{total} exports are already being streamed. {STREAM_SLOT_REMEDY}")
        self._open[user_id] += 1
        try:
            yield
        finally:
            self._open[user_id] -= 1
            if not self._open[user_id]:
                del self._open[user_id]


STREAM_SLOT_REMEDY = "Retry later, or submit the export as a job."


class ClosingStreamingResponse(StreamingResponse):
    """Closes its generator in every case: a generator that waits for a slow client does not notice a disconnect."""

    def __init__(self, pieces: AsyncGenerator[bytes], headers: dict[str, str], media_type: str) -> None:
        super().__init__(pieces, 200, headers, media_type)
        self._pieces = pieces
        self._sent_bytes = 0
        self._waited_s = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_at_minimum_rate(message: Message) -> None:
            allowed_s = STREAM_GRACE_S + self._sent_bytes / MIN_STREAM_BYTES_PER_S - self._waited_s
            started = time.monotonic()
            try:
                async with asyncio.timeout(max(0.0, allowed_s)):
                    await send(message)
            except TimeoutError:
                rate = f"{MIN_STREAM_BYTES_PER_S:,} bytes per second"
                raise SlowReader(f"the client read less than {rate}") from None
            self._waited_s += time.monotonic() - started
            self._sent_bytes += len(message.get("body", b""))

        async with aclosing(self._pieces):
            await super().__call__(scope, receive, send_at_minimum_rate)


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
    settings = runtime.settings
    return StreamSlots(max_open=settings.export_streams, max_per_user=settings.export_streams_per_user)
