"""A minimal HTTP/1.1 client, so that its own cost does not distort the measurements."""

import asyncio
import itertools
import json
import socket
import time
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from tidemill.core.errors import TidemillError

HTTP_REQUEST_TIMEOUT_S = 60.0
HTTP_HEAD_BYTES_MAX = 1 << 20


class TimedResponse(NamedTuple):
    """A response, and the milliseconds until it was complete."""

    status: int
    body: bytes
    ms: float

    @property
    def checked_json(self) -> Any:
        """The body as JSON; raises TidemillError if the status is an error."""
        if self.status >= 400:  # noqa: PLR2004  the first error status
            raise TidemillError(f"The server responded with {self.status}: {self.body[:300].decode(errors='replace')}")
        return json.loads(self.body)


class RawHttpClient:
    """One persistent connection. Requests use the API keys in turn, because each key has a rate limit."""

    def __init__(self, address: tuple[str, int], *keys: str, local_address: str | None = None) -> None:
        self._place = address
        self._local_address = None if local_address is None else (local_address, 0)
        self._heads = itertools.cycle([f"Host: {address[0]}\r\nAuthorization: Bearer {key}\r\n" for key in keys])

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(
            *self._place, limit=HTTP_HEAD_BYTES_MAX, local_addr=self._local_address
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def get(self, path: str) -> TimedResponse:
        return await self._send_request("GET", path, "", ())

    async def post(self, path: str, value: Any) -> TimedResponse:
        body = json.dumps(value).encode()
        return await self.send(path, "application/json", len(body), [body])

    async def send(self, path: str, media_type: str, length: int, pieces: Iterable[bytes]) -> TimedResponse:
        """Send a body piece by piece, without keeping all of it in memory."""
        return await self._send_request(
            "POST", path, f"Content-Type: {media_type}\r\nContent-Length: {length}\r\n", pieces
        )

    async def _send_request(self, method: str, path: str, headers: str, pieces: Iterable[bytes]) -> TimedResponse:
        started = time.perf_counter()
        async with asyncio.timeout(HTTP_REQUEST_TIMEOUT_S):
            self._writer.write(f"{method} {path} HTTP/1.1\r\n{next(self._heads)}{headers}\r\n".encode())
            for piece in pieces:
                self._writer.write(piece)
                await self._writer.drain()
            status, body = await self._read_response()
        return TimedResponse(status, body, (time.perf_counter() - started) * 1000)

    async def _read_response(self) -> tuple[int, bytes]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        return int(first.split(" ", 2)[1]), await self._reader.readexactly(int(headers.get("content-length", 0)))


STREAM_READ_CHUNK_BYTES = 1 << 18
HEAD = b"\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def drain_stream(address: tuple[str, int], path: str, key: str) -> float:
    """Read a streamed response and discard it; return the seconds. Raise TidemillError if it is incomplete."""
    host, port = address
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\r\n"
    buffer = memoryview(bytearray(STREAM_READ_CHUNK_BYTES))
    started = time.monotonic()
    with socket.create_connection(address) as connection:
        connection.sendall(request.encode())
        first = connection.recv(STREAM_READ_CHUNK_BYTES)
        if not first.startswith(b"HTTP/1.1 200 "):
            raise TidemillError(f"{host}:{port} rejected {path}: {first[:1_000].decode(errors='replace')}")
        end = first[-len(LAST_CHUNK) :]
        while size := connection.recv_into(buffer):
            end = (end + bytes(buffer[max(0, size - len(LAST_CHUNK)) : size]))[-len(LAST_CHUNK) :]
    if end != LAST_CHUNK:
        raise TidemillError(f"Invalid measurement: the response to {path} was incomplete")
    return time.monotonic() - started
