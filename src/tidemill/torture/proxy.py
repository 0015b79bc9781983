"""A TCP proxy on the loopback interface between the processes of a run and the database server. It injects faults."""

import asyncio
import contextlib
import json
import re
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tidemill.torture.client import MISSING_ROW_EVERY

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 65_536
CONNECT_TIMEOUT_S = 10.0
LENGTH_BYTES = 4
BODY_SHOWN_BYTES = 64  # enough to recognize COMMIT
BACKEND_KEY_DATA, QUERY, PARSE = b"K", b"Q", b"P"


class MessageScanner:
    """Splits an unencrypted stream of PostgreSQL's protocol into messages, and keeps the first bytes of each."""

    def __init__(self, *, has_startup: bool) -> None:
        self._type_bytes = 0 if has_startup else 1  # the first message of a client has no type
        self._buffer = bytearray()
        self._skip = 0  # bytes of the last message

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return the type and the first bytes of each message that is complete enough to be recognized."""
        found: list[tuple[bytes, bytes]] = []
        self._buffer += data
        while True:
            skipped = min(self._skip, len(self._buffer))
            del self._buffer[:skipped]
            self._skip -= skipped
            header = self._type_bytes + LENGTH_BYTES
            if self._skip or len(self._buffer) < header:
                return found
            size = self._type_bytes + struct.unpack_from("!i", self._buffer, self._type_bytes)[0]
            shown = min(size, header + BODY_SHOWN_BYTES)
            if len(self._buffer) < shown:
                return found
            found.append((bytes(self._buffer[: self._type_bytes]), bytes(self._buffer[header:shown])))
            self._type_bytes, self._skip = 1, size


def is_commit(kind: bytes, body: bytes) -> bool:
    """Whether a message of a client is COMMIT, as a simple query or as the statement to prepare."""
    if kind == PARSE:
        body = body.partition(b"\0")[2]
    elif kind != QUERY:
        return False
    return body.partition(b"\0")[0].strip(b"; \t\r\n").upper() == b"COMMIT"


@dataclass(eq=False)
class ProxiedConnection:
    """One connection of a process to the server."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    client_port: int  # as the server sees it; -1 for a Unix socket
    backend_pid: int | None = None
    is_held: bool = False
    swallows_answer: bool = False

    def abort(self) -> None:
        for writer in (self.client, self.server):
            writer.transport.abort()


@dataclass(eq=False)
class Link:
    """The connections of one process. Faults set its fields and call its methods."""

    name: str
    host: str
    port: int
    is_readable: bool  # False if TLS hides the messages
    delay_s: float = 0.0
    is_partitioned: bool = False
    commits_to_swallow: int = 0
    swallowed_commits: int = 0
    connections: set[ProxiedConnection] = field(default_factory=set)
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    listening_port: int = 0

    @property
    def _is_unix(self) -> bool:
        return self.host.startswith("/")

    def drop_connections(self) -> int:
        dropped = len(self.connections)
        for connection in list(self.connections):
            connection.abort()
        return dropped

    def hold_connections(self) -> list[ProxiedConnection]:
        """Forward nothing more on the current connections, without closing them. New connections work."""
        for connection in self.connections:
            connection.is_held = True
        return list(self.connections)

    def heal(self) -> None:
        self.delay_s, self.is_partitioned, self.commits_to_swallow = 0.0, False, 0
        for connection in self.connections:
            connection.is_held = False
        self.notify_change()

    def notify_change(self) -> None:
        """Wake the connections that wait for the end of a fault."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  a connection handler runs in a task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Suppressed here, because asyncio.start_server logs the cancellation of a task as an error.
        with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
            while self.is_partitioned:
                await self._changed.wait()
            await self._forward(reader, writer)
        writer.transport.abort()

    async def close(self) -> None:
        self.drop_connections()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            if self._is_unix:
                path = f"{self.host}/.s.PGSQL.{self.port}"
                server_reader, server = await asyncio.open_unix_connection(path)
            else:
                server_reader, server = await asyncio.open_connection(self.host, self.port)
        port = -1 if self._is_unix else server.get_extra_info("sockname")[1]
        connection = ProxiedConnection(writer, server, port)
        self.connections.add(connection)
        try:
            await asyncio.gather(
                self._copy_from_client(connection, reader), self._copy_from_server(connection, server_reader)
            )
        finally:
            self.connections.discard(connection)
            connection.abort()

    async def _copy_from_client(self, connection: ProxiedConnection, reader: asyncio.StreamReader) -> None:
        scanner = MessageScanner(has_startup=True)
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._wait_for_faults(connection)
                has_commit = self.is_readable and any(is_commit(*message) for message in scanner.feed(data))
                if has_commit and self.commits_to_swallow > 0:
                    self.commits_to_swallow -= 1
                    connection.swallows_answer = True
                connection.server.write(data)
                await connection.server.drain()
        connection.abort()

    async def _copy_from_server(self, connection: ProxiedConnection, reader: asyncio.StreamReader) -> None:
        scanner = MessageScanner(has_startup=False)
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if connection.swallows_answer:  # the server has committed, and the client cannot know
                    self.swallowed_commits += 1
                    break
                await self._wait_for_faults(connection)
                if self.is_readable and connection.backend_pid is None:
                    for kind, body in scanner.feed(data):
                        if kind == BACKEND_KEY_DATA:
                            connection.backend_pid = int(struct.unpack_from("!i", body)[0])
                connection.client.write(data)
                await connection.client.drain()
        connection.abort()

    async def _wait_for_faults(self, connection: ProxiedConnection) -> None:
        while connection.is_held or self.is_partitioned:
            await self._changed.wait()
        if self.delay_s:
            await asyncio.sleep(self.delay_s)


@contextlib.asynccontextmanager
async def open_links(names: list[str], host: str, port: int, *, is_readable: bool) -> AsyncIterator[dict[str, Link]]:
    """Listen on one loopback port for each name, and forward its connections to the server."""
    async with contextlib.AsyncExitStack() as stack:
        links = {}
        for name in names:
            link = links[name] = Link(name, host, port, is_readable)
            server = await asyncio.start_server(link.accept, LOOPBACK, 0)
            link.listening_port = server.sockets[0].getsockname()[1]
            stack.push_async_callback(link.close)
            stack.callback(server.close)
        yield links


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
