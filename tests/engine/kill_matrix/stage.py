"""Runs a scenario with one armed failpoint: starts processes, repairs what the failpoint broke, checks the end."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2

from support import Workers, add_job, assert_sound, closed, eventually, rows
from support.forks import MAIN, Forked
from tidemill.config import Settings
from tidemill.core.job import Job
from tidemill.core.principal import Role
from tidemill.failpoints import Action
from tidemill.store import users
from tidemill.store.database import Database

LEASE_S = 2.0
STEP_TIMEOUT_S = 60.0
REQUEST_PAUSE_S = 0.1
PING = "mill.handler('ping')(lambda item: None)\n"
FAST: dict[str, Any] = {
    "lock_floor_ms": int(LEASE_S * 1000),
    "lock_cap_ms": 2 * int(LEASE_S * 1000),
    "db_timeout_ms": 1_500,
    "finalizer_interval_ms": 100,
    "stop_grace_ms": 1_000,
    "claim_max": 20,
    "batch_size": 5,
    "flush_interval_ms": 50,
}


class Stage:
    """A database, a folder and processes, all of which have the same armed failpoint."""

    def __init__(self, db: Database, settings: Settings, workers: Workers, point: str, action: Action) -> None:
        self.db = db
        self.settings = settings
        self.folder = Path(settings.home)
        self.workers = workers
        self.action = action
        self._failpoints = f"{point}={action}"
        self._marker = self.folder / "failpoints" / point
        self._workers: list[subprocess.Popen[bytes]] = []
        self._worker_settings: dict[str, Any] = {}
        self._others: list[subprocess.Popen[bytes]] = []
        self.command_count = 0
        self.stack = contextlib.ExitStack()  # servers that run until the end of the test

    @property
    def is_hit(self) -> bool:
        return self._marker.exists()

    async def hit(self) -> int:
        """Wait until a process has reached the failpoint, and return its process id."""

        async def read_pid() -> int:
            with contextlib.suppress(FileNotFoundError, ValueError):
                return int(self._marker.read_text())
            return 0

        return await eventually(read_pid, STEP_TIMEOUT_S)

    def app(self, source: str = "") -> None:
        """Write the mill of all workers."""
        self.workers.app(source)
        with (self.folder / "app.py").open("a") as app:
            app.write(PING)

    def work(self, **settings: Any) -> None:
        """Start an armed worker with one child process."""
        self._worker_settings = settings
        self._workers.append(self.workers.start(failpoints=self._failpoints, **settings))

    async def command(self, *arguments: str, accept: str | None = None) -> str:
        """Run an armed command. If the failpoint made it fail, run it again, as a user does. Return its output.

        The second run may fail with the text ``accept``: the first one was successful, although it reported no success.
        """
        code, output = await self._run_once(arguments)
        if code and self.is_hit:
            code, output = await self._run_once(arguments)
            if accept is not None and accept in output:
                return output
        assert code == 0, output
        return output

    async def _run_once(self, arguments: Sequence[str]) -> tuple[int, str]:
        self.command_count += 1
        process = self._start(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = await asyncio.to_thread(process.communicate, timeout=STEP_TIMEOUT_S)
        return process.returncode, output.decode()

    def _start(self, arguments: Sequence[str], **pipes: Any) -> "subprocess.Popen[bytes]":
        env = self.workers.env(failpoints=self._failpoints, **self._worker_settings)
        argv = [sys.executable, "-c", MAIN, *arguments]
        process: subprocess.Popen[bytes] = Forked(argv, cwd=self.folder, env=env, start_new_session=True, **pipes)
        self._others.append(process)
        return process

    async def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Send a request to an armed API until it succeeds, as a client does. If the API has died, start it again."""
        key, _ = await self.db.run(users.add_key, await self._get_user_id())
        headers = {"Authorization": f"Bearer {key}"} | options.pop("headers", {})
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        server = self._start(["serve", "--port", str(port)])
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10, trust_env=False) as client:
            deadline = time.monotonic() + STEP_TIMEOUT_S
            while time.monotonic() < deadline:
                with contextlib.suppress(httpx2.TransportError):
                    answer = await client.request(method, path, headers=headers, **options)
                    if answer.status_code < 500:
                        return answer
                if server.poll() is not None:
                    server = self._start(["serve", "--port", str(port)])
                await asyncio.sleep(REQUEST_PAUSE_S)
        raise AssertionError(f"{method} {path} did not succeed")

    async def _get_user_id(self) -> int:
        found = await rows(self.db, "SELECT id FROM tidemill.app_user WHERE name = 'ada'")
        return found[0][0] if found else (await self.db.run(users.add_user, "ada", Role.ADMIN)).id

    async def closed(self, job_id: UUID) -> Job:
        return await closed(self.db, job_id, STEP_TIMEOUT_S)

    async def recover(self) -> None:
        """Do what happens after the fault: another worker starts, leases expire, a stopped process continues."""
        pid = await self.hit()
        started_at = (await rows(self.db, "SELECT clock_timestamp()"))[0][0]
        if self.action in (Action.KILL, Action.STOP) and pid in [worker.pid for worker in self._workers]:
            # Without this, another worker takes the maintenance duty 10 s later.
            await rows(self.db, "UPDATE tidemill.duty SET until = '-infinity'")
            self._workers.append(self.workers.start(failpoints=self._failpoints, **self._worker_settings))
        if self.action is Action.STOP:

            async def has_lease_expired() -> bool:
                query = "SELECT clock_timestamp() > %s + %s * interval '1 second'"
                return bool((await rows(self.db, query, started_at, LEASE_S))[0][0])

            await eventually(has_lease_expired, STEP_TIMEOUT_S)
            with contextlib.suppress(ProcessLookupError):  # the parent of a stopped child has killed it
                os.kill(pid, signal.SIGCONT)

    async def check_end(self) -> None:
        """Assert that the failpoint was hit, all invariants hold, and the processes that live are healthy."""
        pid = await self.hit()
        await assert_sound(self.db)
        is_killed = self.action is Action.KILL
        living = [worker for worker in self._workers if not (is_killed and worker.pid == pid)]
        if not living:
            return
        dead = {worker.pid: code for worker in living if (code := worker.poll()) is not None}
        assert not dead, f"workers ended with {dead}"
        await self.closed(await add_job(self.db, 3, "ping"))
        before = (await rows(self.db, "SELECT tidemill.now()"))[0][0]

        async def have_heartbeats() -> bool:
            query = "SELECT count(*) FROM tidemill.worker WHERE pid = ANY(%s) AND seen_at > %s"
            return (await rows(self.db, query, [worker.pid for worker in living], before)) == [(len(living),)]

        await eventually(have_heartbeats, STEP_TIMEOUT_S)
        await assert_sound(self.db)

    def end(self) -> None:
        for process in self._others:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(STEP_TIMEOUT_S)
        self.workers.end()
        self.stack.close()
