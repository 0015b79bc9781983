"""A small HTTP service on the loopback interface, which enrichment jobs call."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator

from tidemill.torture.client import MISSING_ROW_EVERY
from tidemill.torture.proxy import LOOPBACK

REQUEST_TIMEOUT_S = 10.0
_REQUEST_REGEX = re.compile(rb"GET /rows/(\d+) ")


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            request = _REQUEST_REGEX.match(await reader.readuntil(b"\r\n\r\n"))
        number = int(request[1]) if request else 0
        status, body = (404, b"{}") if number % MISSING_ROW_EVERY == 0 else (200, json.dumps({"n": number}).encode())
        head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
        await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def run_local_service() -> AsyncIterator[int]:
    """Run the service and yield its port."""
    server = await asyncio.start_server(_answer, LOOPBACK, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
