"""The faults of a run. Each fault has an end: what it stops, fills or locks, it releases again."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NoReturn

from tidemill.store.database import Connection, Database
from tidemill.torture.client import Client
from tidemill.torture.database_server import OwnServer, execute, fetch
from tidemill.torture.plan import PlannedFault, pick_one
from tidemill.torture.processes import Fleet, ManagedProcess, send_signal
from tidemill.torture.proxy import Link, ProxiedConnection

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

    def _worker(self, planned: PlannedFault) -> ManagedProcess:
        return pick_one(self.fleet.workers, planned.pick)

    def _link(self, planned: PlannedFault) -> Link:
        return self.links[pick_one(sorted(self.links), planned.pick)]

    def _child(self, planned: PlannedFault) -> int:
        return pick_one(self._worker(planned).list_child_pids() or _no_target(), planned.pick * 100 % 1)

    async def _signal_process(self, planned: PlannedFault) -> None:
        verb, _, target = planned.name.partition("-")
        pid = self._child(planned) if target == "child" else self.fleet.api.pid
        pid = self._worker(planned).pid if target == "worker" else pid
        if pid is None or not send_signal(pid, signal.SIGKILL if verb == "kill" else signal.SIGTERM):
            raise NotApplied

    _kill_api = _stop_api = _kill_worker = _stop_worker = _kill_child = _signal_process

    async def _suspend_worker(self, planned: PlannedFault) -> None:
        """Suspend a worker with its children for longer than its leases."""
        worker = self._worker(planned)
        await self._suspend([worker.pid or _no_target(), *worker.list_child_pids()], self.lease_s * LEASE_FACTOR)

    async def _suspend_child(self, planned: PlannedFault) -> None:
        await self._suspend([self._child(planned)], self.lease_s * LEASE_FACTOR)

    async def _suspend(self, pids: list[int], seconds: float) -> None:
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
        self._link(planned).drop_connections() or _no_target()

    async def _half_open_connections(self, planned: PlannedFault) -> None:
        link = self._link(planned)
        held = link.hold_connections() or _no_target()
        await asyncio.sleep(planned.seconds)
        for connection in held:
            connection.is_held = False
        link.notify_change()

    async def _partition_worker(self, planned: PlannedFault) -> None:
        """Forward nothing between one worker and the server for longer than its leases."""
        link = self.links[self._worker(planned).name]
        link.is_partitioned = True
        await asyncio.sleep(self.lease_s * LEASE_FACTOR)
        link.is_partitioned = False
        link.notify_change()

    async def _slow_link(self, planned: PlannedFault) -> None:
        link = self._link(planned)
        link.delay_s = SLOW_LINK_DELAY_S
        await asyncio.sleep(planned.seconds)
        link.delay_s = 0.0

    async def _lost_commit_answer(self, planned: PlannedFault) -> None:
        link = self._link(planned)
        before = link.swallowed_commits
        link.commits_to_swallow = SWALLOWED_COMMITS
        await asyncio.sleep(planned.seconds)
        link.commits_to_swallow = 0
        if link.swallowed_commits == before:
            raise NotApplied

    async def _signal_session(self, planned: PlannedFault) -> None:
        connection = self._pick_connection(planned)
        session = {"pid": connection.backend_pid, "port": connection.client_port}
        await self.db.run(fetch, planned.name.replace("-", "_"), session) or _no_target()

    _terminate_session = _cancel_statement = _signal_session

    def _pick_connection(self, planned: PlannedFault) -> ProxiedConnection:
        known = [one for one in self._link(planned).connections if one.backend_pid is not None]
        return pick_one(sorted(known, key=lambda one: one.backend_pid or 0) or _no_target(), planned.pick * 100 % 1)

    async def _held_lock(self, planned: PlannedFault) -> None:
        """Lock the open batches of one job, as a slow transaction would, so that statements of workers time out."""
        job = pick_one(self.client.jobs or _no_target(), planned.pick)

        async def hold_lock(conn: Connection) -> None:
            await execute(conn, "lock_batches", {"job_id": job.id})
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
                await execute(conn, "terminate_all_sessions")

            await self.db.read(shift)
            self.shift_s = shift_s

    _clock_forward = _clock_back = _shift_clock

    @property
    def _own_server(self) -> OwnServer:
        assert self.server is not None  # noqa: S101  list_skipped excludes the faults of the server
        return self.server


def _no_target() -> NoReturn:
    raise NotApplied
