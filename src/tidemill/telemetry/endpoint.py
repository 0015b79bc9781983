"""A page of metrics over HTTP, for processes that have no other: one path, GET, and nothing else."""

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from tidemill.domain.errors import InvalidSettings
from tidemill.telemetry.events import emit
from tidemill.telemetry.metrics import Meter

NEIGHBOURS = 100  # ports tried, so that workers on one machine can have the same settings
REQUEST_BYTES = 16 * 1024
PATIENCE_S = 5.0


class Endpoint:
    """Answers one request per connection."""

    def __init__(self, meter: Meter, path: str) -> None:
        self._meter = meter
        self._path = path

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
            async with asyncio.timeout(PATIENCE_S):
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                except asyncio.LimitOverrunError:
                    head = b""
                writer.write(self._response(head.decode("latin-1")))
                await writer.drain()
        writer.close()

    def _response(self, head: str) -> bytes:
        request, *headers = head.split("\r\n")
        method, _, rest = request.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if not rest:
            return _page(HTTPStatus.BAD_REQUEST)
        if path != self._path:
            return _page(HTTPStatus.NOT_FOUND)
        if method != "GET":
            return _page(HTTPStatus.METHOD_NOT_ALLOWED, headers="Allow: GET\r\n")
        named = (line.partition(":") for line in headers)
        accept = next((value.strip() for name, _, value in named if name.lower() == "accept"), "")
        body, content_type = self._meter.render(accept)
        return _page(HTTPStatus.OK, body, content_type)


def _page(status: HTTPStatus, body: bytes | None = None, content_type: str = "text/plain", headers: str = "") -> bytes:
    body = f"{status.phrase}\n".encode() if body is None else body
    headers += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    return f"HTTP/1.1 {status.value} {status.phrase}\r\n{headers}\r\n".encode() + body


@asynccontextmanager
async def serving(meter: Meter, host: str, port: int, path: str) -> AsyncIterator[int]:
    """Answer Prometheus on a port, or the next free one after it; which."""
    server = await _listen(Endpoint(meter, path), host, port)
    async with server:
        port = server.sockets[0].getsockname()[1]
        emit("metrics.served", host=host, port=port, path=path)
        yield port


async def _listen(endpoint: Endpoint, host: str, first: int) -> asyncio.Server:
    problem: OSError | None = None
    for port in range(first, min(first + (NEIGHBOURS if first else 1), 65_536)):
        try:
            return await asyncio.start_server(endpoint.answer, host, port, limit=REQUEST_BYTES)
        except OSError as error:
            problem = error
            if error.errno != errno.EADDRINUSE:
                break
    raise InvalidSettings(f"cannot serve metrics at {host}:{first}: {problem}")
