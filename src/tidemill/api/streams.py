"""Answers that are made while they are sent: a client that goes away ends the making."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

from fastapi.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from tidemill.domain.errors import Busy

STALLED_S = (
    300.0  # that a piece waits for a client who does not read: as long, rows cannot be vacuumed, nor others served
)


class Streams:
    """How many are open; each of them holds a connection to the database."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        if self._open >= self._most:
            raise Busy(f"{self._open} exports are being streamed already: try again in a moment, or submit it as a job")
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1


class Streamed(StreamingResponse):
    """Closes what it sends, however it ends: a generator that waits for a slow reader does not hear of it itself."""

    def __init__(self, pieces: AsyncGenerator[bytes], headers: dict[str, str], media_type: str) -> None:
        super().__init__(pieces, 200, headers, media_type)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def patient(message: Message) -> None:
            async with asyncio.timeout(STALLED_S):
                await send(message)

        async with aclosing(self._pieces):
            await super().__call__(scope, receive, patient)


async def begun(pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """The same, once the first piece is there: what goes wrong before that can still be told properly."""
    try:
        first = await anext(pieces, b"")
    except BaseException:
        await pieces.aclose()
        raise
    return _with_first(first, pieces)


async def _with_first(first: bytes, pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(pieces):
        yield first
        async for piece in pieces:
            yield piece
