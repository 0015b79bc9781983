"""Helpers for tests of malformed and hostile requests: raw connections, events, and checks of responses."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import httpx2

from support.api import Api
from tidemill.telemetry.events import Event, subscribe

SECURITY = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
Told = list[Event]


@contextmanager
def listening() -> Iterator[Told]:
    """Collect all events that are emitted inside the block."""
    told: Told = []
    end = subscribe(told.append)
    try:
        yield told
    finally:
        end()


class Wire:
    """A connection that can send any bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *lines: str, body: bytes = b"") -> None:
        self.writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        await self.writer.drain()

    async def answer(self, within: float = 20.0) -> httpx2.Response:
        """Read the next complete response. Raise an error if the connection breaks before its end."""
        async with asyncio.timeout(within):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            start, *lines = head.strip().split("\r\n")
            headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
            length = int({name.lower(): value for name, value in headers}.get("content-length", "0"))
            return httpx2.Response(
                int(start.split()[1]), headers=headers, content=await self.reader.readexactly(length)
            )

    async def is_closed(self, within: float = 20.0) -> bool:
        """Return whether the server closes the connection without more data. Raise an error after a reset."""
        async with asyncio.timeout(within):
            return await self.reader.read() == b""


@asynccontextmanager
async def wired(api: Api) -> AsyncIterator[Wire]:
    wire = Wire(*await asyncio.open_connection(*api.address))
    try:
        yield wire
    finally:
        wire.writer.close()
        with suppress(ConnectionError):
            await wire.writer.wait_closed()


async def exchanged(api: Api, *lines: str, body: bytes = b"") -> httpx2.Response:
    async with wired(api) as wire:
        await wire.send(*lines, body=body)
        return await wire.answer()


def is_dressed(answer: httpx2.Response) -> bool:
    """Return whether a response has the security headers and a request id."""
    worn = {name: answer.headers.get(name) for name in SECURITY}
    return worn == SECURITY and len(answer.headers.get("x-request-id", "")) >= 1


def is_problem(answer: httpx2.Response) -> bool:
    """Return whether a response is a problem document with matching status and request id."""
    if answer.headers["content-type"] != "application/problem+json" or not is_dressed(answer):
        return False
    problem = answer.json()
    shown = (problem["status"], problem["request_id"])
    return bool(shown == (answer.status_code, answer.headers["x-request-id"]))
