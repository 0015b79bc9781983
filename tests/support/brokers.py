"""Redis and RabbitMQ servers for tests, and a proxy that interrupts their connections."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from support import require
from tidemill.testing.throwaway_postgres import find_memory_folder
from tidemill_bench.broker_servers import (
    BrokerServer,
    RabbitMQServer,
    RedisServer,
    find_rabbitmq_binary,
    find_redis_binary,
)

__all__ = ["BrokerServer", "Proxy", "folder_for", "make_broker", "need"]
BINARIES = {"redis": find_redis_binary, "rabbitmq": find_rabbitmq_binary}


def need(name: str) -> None:
    require(f"{name}-server", BINARIES[name]())


def make_broker(name: str, folder: Path) -> BrokerServer:
    """Return a broker that is not started yet."""
    return RedisServer(folder) if name == "redis" else RabbitMQServer(folder)


def folder_for(name: str, tmp: Path) -> Path:
    return (find_memory_folder() or tmp) / f"tidemill-{name}-{tmp.name}-{random.getrandbits(32):08x}"


class Proxy:
    """A TCP proxy before a broker. ``cut`` aborts all connections; while ``closed`` is set, new ones are rejected."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname, parts.port)
        self._parts = parts
        self._lines: set[asyncio.StreamWriter] = set()
        self.closed = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Run the proxy, and yield the URL to use instead of the broker's."""
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        user = self._parts.netloc.rpartition("@")
        try:
            yield urlunsplit(self._parts._replace(netloc=f"{user[0]}{user[1]}127.0.0.1:{port}"))
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        for writer in list(self._lines):
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.closed:
            writer.transport.abort()
            return
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            self._lines |= {writer, far_writer}
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer), return_exceptions=True)
            self._lines -= {writer, far_writer}


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
