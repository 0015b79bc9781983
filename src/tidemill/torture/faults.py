"""The faults of a run. Each fault has an end: what it stops, fills or locks, it releases again."""

import asyncio
import contextlib
import signal
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import NoReturn

from tidemill.store.database import Connection, Database
from tidemill.torture.client import Client
from tidemill.torture.plan import PlannedFault, pick_one
from tidemill.torture.processes import (
    Fleet,
    ManagedProcess,
    OwnServer,
    execute_statement,
    fetch_statement_rows,
    send_signal,
)

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


SLOW_LINK_DELAY_S = 0.15
SWALLOWED_COMMITS = 2
SWALLOW_TIMEOUT_S = 10.0
CLOCK_STEP_S = 90.0
CLOCK_SHIFT_MAX_S = 600.0
SLOW_COMMIT_US = 100_000  # the longest delay that PostgreSQL permits
LEASE_FACTOR = 1.5  # a suspended worker sleeps for longer than its lease

PROCESS_FAULTS = ("kill-api", "kill-worker", "kill-child", "stop-api", "stop-worker", "suspend-worker", "suspend-child")
LINK_FAULTS = ("drop-connections", "half-open-connections", "partition-worker", "slow-link", "lost-commit-answer")
SESSION_FAULTS = ("terminate-session", "cancel-statement", "held-lock")
CRASH_FAULTS = ("restart-server", "crash-server", "kill-backend", "full-disk", "slow-disk")
SERVER_FAULTS = (*CRASH_FAULTS, "clock-forward", "clock-back")
FAULTS = (*PROCESS_FAULTS, *LINK_FAULTS, *SESSION_FAULTS, *SERVER_FAULTS)


class NotApplied(Exception):
    """The target of a fault does not exist at the moment, such as a child of a worker that starts."""


@dataclass
class Faults:
    """Applies faults to the processes, the connections and the server of a run."""

    fleet: Fleet
    links: dict[str, Link]
    db: Database  # does not use the proxy
    client: Client
    server: OwnServer | None
    lease_s: float
    shift_s: float = 0.0
    _suspended: set[int] = field(default_factory=set)
    _server_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def list_skipped(self) -> dict[str, str]:
        """Return the faults that cannot be applied, with the reason."""
        skipped = {}
        if self.server is None:
            skipped = dict.fromkeys(SERVER_FAULTS, "the database belongs to the user")
        elif self.server.disk_problem is not None:
            skipped["full-disk"] = self.server.disk_problem
        if not all(link.is_readable for link in self.links.values()):
            reason = "the connections are encrypted, so that the proxy cannot read them"
            skipped |= dict.fromkeys(("lost-commit-answer", "terminate-session", "cancel-statement"), reason)
        return skipped

    async def apply(self, planned: PlannedFault) -> None:
        """Apply one fault until its end; raise NotApplied if it has no target now."""
        fault: Callable[[PlannedFault], Awaitable[None]] = getattr(self, "_" + planned.name.replace("-", "_"))
        await fault(planned)

    async def heal(self) -> None:
        """End the effects of all faults."""
        for link in self.links.values():
            link.heal()
        for pid in self._suspended:
            send_signal(pid, signal.SIGCONT)
        self._suspended.clear()
        if self.server is not None:
            self.server.free_disk()
            await asyncio.to_thread(self.server.ensure_running)

    def _pick_worker(self, planned: PlannedFault) -> ManagedProcess:
        return pick_one(self.fleet.workers, planned.pick)

    def _pick_link(self, planned: PlannedFault) -> Link:
        return self.links[pick_one(sorted(self.links), planned.pick)]

    def _pick_child_pid(self, planned: PlannedFault) -> int:
        return pick_one(self._pick_worker(planned).list_child_pids() or _no_target(), planned.pick * 100 % 1)

    async def _signal_process(self, planned: PlannedFault) -> None:
        verb, _, target = planned.name.partition("-")
        pid = self._pick_child_pid(planned) if target == "child" else self.fleet.api.pid
        pid = self._pick_worker(planned).pid if target == "worker" else pid
        if pid is None or not send_signal(pid, signal.SIGKILL if verb == "kill" else signal.SIGTERM):
            raise NotApplied

    _kill_api = _stop_api = _kill_worker = _stop_worker = _kill_child = _signal_process

    async def _suspend_worker(self, planned: PlannedFault) -> None:
        """Suspend a worker with its children for longer than its leases."""
        worker = self._pick_worker(planned)
        await self._suspend_processes(
            [worker.pid or _no_target(), *worker.list_child_pids()], self.lease_s * LEASE_FACTOR
        )

    async def _suspend_child(self, planned: PlannedFault) -> None:
        await self._suspend_processes([self._pick_child_pid(planned)], self.lease_s * LEASE_FACTOR)

    async def _suspend_processes(self, pids: list[int], seconds: float) -> None:
        self._suspended.update(pids)
        try:
            for pid in pids:
                send_signal(pid, signal.SIGSTOP)
            await asyncio.sleep(seconds)
        finally:
            for pid in pids:
                send_signal(pid, signal.SIGCONT)
            self._suspended.difference_update(pids)

    async def _drop_connections(self, planned: PlannedFault) -> None:
        self._pick_link(planned).drop_connections() or _no_target()

    async def _half_open_connections(self, planned: PlannedFault) -> None:
        link = self._pick_link(planned)
        held = link.hold_connections() or _no_target()
        await asyncio.sleep(planned.seconds)
        for connection in held:
            connection.is_held = False
        link.notify_change()

    async def _partition_worker(self, planned: PlannedFault) -> None:
        """Forward nothing between one worker and the server for longer than its leases."""
        link = self.links[self._pick_worker(planned).name]
        link.is_partitioned = True
        await asyncio.sleep(self.lease_s * LEASE_FACTOR)
        link.is_partitioned = False
        link.notify_change()

    async def _slow_link(self, planned: PlannedFault) -> None:
        link = self._pick_link(planned)
        link.delay_s = SLOW_LINK_DELAY_S
        await asyncio.sleep(planned.seconds)
        link.delay_s = 0.0

    async def _lost_commit_answer(self, planned: PlannedFault) -> None:
        link = self._pick_link(planned)
        before = link.swallowed_commits
        link.commits_to_swallow = SWALLOWED_COMMITS
        await asyncio.sleep(planned.seconds)
        link.commits_to_swallow = 0
        if link.swallowed_commits == before:
            raise NotApplied

    async def _signal_session(self, planned: PlannedFault) -> None:
        connection = self._pick_connection(planned)
        session = {"pid": connection.backend_pid, "port": connection.client_port}
        await self.db.run(fetch_statement_rows, planned.name.replace("-", "_"), session) or _no_target()

    _terminate_session = _cancel_statement = _signal_session

    def _pick_connection(self, planned: PlannedFault) -> ProxiedConnection:
        known = [one for one in self._pick_link(planned).connections if one.backend_pid is not None]
        return pick_one(sorted(known, key=lambda one: one.backend_pid or 0) or _no_target(), planned.pick * 100 % 1)

    async def _held_lock(self, planned: PlannedFault) -> None:
        """Lock the open batches of one job, as a slow transaction would, so that statements of workers time out."""
        job = pick_one(self.client.jobs or _no_target(), planned.pick)

        async def hold_lock(conn: Connection) -> None:
            await execute_statement(conn, "lock_batches", {"job_id": job.id})
            await asyncio.sleep(planned.seconds)

        await self.db.run(hold_lock)

    async def _restart_server(self, planned: PlannedFault) -> None:
        async with self._server_lock:
            await asyncio.to_thread(self._own_server.restart, by_kill=planned.name == "crash-server")

    _crash_server = _restart_server

    async def _kill_backend(self, planned: PlannedFault) -> None:
        """Kill a process of the server. The server then ends all sessions and recovers."""
        async with self._server_lock:
            if not self._own_server.kill_backend(self._pick_connection(planned).backend_pid or 0):
                raise NotApplied

    async def _full_disk(self, planned: PlannedFault) -> None:
        server = self._own_server
        async with self._server_lock:
            await asyncio.to_thread(server.fill_disk)
            await asyncio.sleep(planned.seconds)
            server.free_disk()
            await asyncio.to_thread(server.ensure_running)

    async def _slow_disk(self, planned: PlannedFault) -> None:
        """Let each commit wait before it writes to the disk."""
        await self._set_commit_delay(SLOW_COMMIT_US, 0)
        await asyncio.sleep(planned.seconds)
        await self._set_commit_delay(0, 5)

    async def _set_commit_delay(self, microseconds: int, siblings: int) -> None:
        async def alter(conn: Connection) -> None:
            await conn.execute(b"ALTER SYSTEM SET commit_delay = %d" % microseconds, prepare=False)
            await conn.execute(b"ALTER SYSTEM SET commit_siblings = %d" % siblings, prepare=False)
            await conn.execute(b"SELECT pg_reload_conf()", prepare=False)

        await self.db.read(alter)

    async def _shift_clock(self, planned: PlannedFault) -> None:
        """Set the clock of the database for new sessions, and end all sessions, so that none has the old clock."""
        seconds = CLOCK_STEP_S * planned.pick * (1 if planned.name == "clock-forward" else -1)
        shift_s = round(max(-CLOCK_SHIFT_MAX_S, min(CLOCK_SHIFT_MAX_S, self.shift_s + seconds)), 1)
        async with self._server_lock:

            async def shift(conn: Connection) -> None:
                name = conn.info.dbname.encode()
                await conn.execute(b"ALTER DATABASE %b SET tidemill.shift = '%.1f s'" % (name, shift_s), prepare=False)
                await execute_statement(conn, "terminate_all_sessions")

            await self.db.read(shift)
            self.shift_s = shift_s

    _clock_forward = _clock_back = _shift_clock

    @property
    def _own_server(self) -> OwnServer:
        assert self.server is not None  # noqa: S101  list_skipped excludes the faults of the server
        return self.server


def _no_target() -> NoReturn:
    raise NotApplied
