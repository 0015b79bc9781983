"""HTTP/1.1 as bare as can be: its own cost must not show in what is measured."""

import asyncio
import itertools
import json
import time
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from tidemill.domain.errors import TidemillError

PATIENCE_S = 60.0
LONGEST_HEAD = 1 << 20


class Answer(NamedTuple):
    """What came back, and after how many milliseconds all of it was here."""

    status: int
    body: bytes
    ms: float

    @property
    def value(self) -> Any:
        """The body as JSON; TidemillError if the request was refused."""
        if self.status >= 400:  # noqa: PLR2004  where errors begin
            raise TidemillError(f"the service answered {self.status}: {self.body[:300].decode(errors='replace')}")
        return json.loads(self.body)


class Client:
    """One connection, kept alive, that speaks with these keys in turns: each may ask only so often."""

    def __init__(self, place: tuple[str, int], *keys: str) -> None:
        self._place = place
        self._heads = itertools.cycle([f"Host: {place[0]}\r\nAuthorization: Bearer {key}\r\n" for key in keys])

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(*self._place, limit=LONGEST_HEAD)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def get(self, path: str) -> Answer:
        return await self._ask("GET", path, "", ())

    async def post(self, path: str, value: Any) -> Answer:
        body = json.dumps(value).encode()
        return await self.send(path, "application/json", len(body), [body])

    async def send(self, path: str, media_type: str, length: int, pieces: Iterable[bytes]) -> Answer:
        """A body in pieces, of which no two are in memory for long."""
        return await self._ask("POST", path, f"Content-Type: {media_type}\r\nContent-Length: {length}\r\n", pieces)

    async def _ask(self, method: str, path: str, headers: str, pieces: Iterable[bytes]) -> Answer:
        started = time.perf_counter()
        async with asyncio.timeout(PATIENCE_S):
            self._writer.write(f"{method} {path} HTTP/1.1\r\n{next(self._heads)}{headers}\r\n".encode())
            for piece in pieces:
                self._writer.write(piece)
                await self._writer.drain()
            status, body = await self._answer()
        return Answer(status, body, (time.perf_counter() - started) * 1000)

    async def _answer(self) -> tuple[int, bytes]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        return int(first.split(" ", 2)[1]), await self._reader.readexactly(int(headers.get("content-length", 0)))
