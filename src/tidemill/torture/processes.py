"""The processes of a run: an API server and workers. A process that ends is started again, as by a service manager."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tidemill.core.errors import Unavailable
from tidemill.store import embedded_postgres
from tidemill.store.database import Connection, Database
from tidemill.store.statements import RowDict, SqlParams, fetch_rows, make_sql_loader

_sql = make_sql_loader("tidemill.torture")


async def fetch_statement_rows(conn: Connection, name: str, params: SqlParams | None = None) -> list[RowDict]:
    """Return the rows of the statement ``queries/torture/<name>.sql``."""
    return await fetch_rows(conn, _sql(f"torture/{name}"), params or {})


async def execute_statement(conn: Connection, name: str, params: SqlParams | None = None) -> int:
    """Run a statement, or several if there are no parameters. Return the number of affected rows."""
    return (await conn.execute(_sql(f"torture/{name}"), params, prepare=False)).rowcount


@dataclass(frozen=True)
class ServerAddress:
    """Where a server listens. ``host`` is a name, an address, or the folder of a Unix socket."""

    host: str
    port: int
    is_encrypted: bool
    _parameters: dict[str, str]

    def build_proxied_url(self, host: str, port: int) -> str:
        """Return the parameters of the same database through a proxy."""
        mode = self._parameters.get("sslmode", "prefer")
        if not self.is_encrypted:
            mode = "disable"
        elif mode == "verify-full":  # the name in the certificate is not that of the proxy
            mode = "verify-ca"
        proxied = {"host": host, "port": str(port), "sslmode": mode, "gssencmode": "disable"}
        return make_conninfo("", **self._parameters | proxied)


async def find_server_address(db: Database) -> ServerAddress:
    """Return the address that an open connection uses. Environment variables can also set it."""
    async with db.connection() as conn:
        info = conn.info
        given = {name: str(value) for name, value in conninfo_to_dict(db.url).items()}
        given |= {"user": info.user, "dbname": info.dbname}
        given |= {"password": info.password} if info.password else {}
        given.pop("hostaddr", None)
        return ServerAddress(info.hostaddr or info.host, info.port, bool(conn.pgconn.ssl_in_use), given)


DISK_MB = 768  # of the file system in memory that holds the server, so that it can become full
MOUNT_TIMEOUT_S = 30
RESUME_TIMEOUT_S, RESUME_RETRY_S = 120.0, 0.5
SERVER_SETTINGS = """\
# Durable, as the embedded server of an installation, but small.
shared_buffers = 64MB
max_wal_size = 192MB
min_wal_size = 48MB
checkpoint_timeout = 60s
max_connections = 150
autovacuum_naptime = 5s
jit = off
idle_in_transaction_session_timeout = 60s
client_connection_check_interval = 5s
"""


class OwnServer:
    """A server in a temporary folder, in its own file system if this process may mount one."""

    def __init__(self, folder: Path) -> None:
        self._disk = folder / "disk"
        self._balloon = self._disk / "balloon"
        self.disk_problem: str | None = None  # why the disk cannot become full

    def __enter__(self) -> Self:
        self._disk.mkdir(0o700)
        self.disk_problem = _try_mount(self._disk)
        self._server = embedded_postgres.prepare_server(self._disk / "postgres", SERVER_SETTINGS)
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.free_disk()
        self._server.cleanup()
        if self.disk_problem is None:
            subprocess.run(["umount", "--lazy", self._disk], check=False, timeout=MOUNT_TIMEOUT_S, capture_output=True)  # noqa: S603, S607

    @property
    def url(self) -> str:
        return self._server.get_uri()

    @property
    def log(self) -> Path:
        return self._server.log

    def restart(self, *, by_kill: bool) -> None:
        """Stop the server, or kill its main process, and start it again."""
        self._server.suspend(by_kill=by_kill)
        self.ensure_running()

    def kill_backend(self, pid: int) -> bool:
        """Kill a process of the server; return whether it existed."""
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.ppid() == self._server.get_pid():
                process.kill()
                return True
        return False

    def ensure_running(self) -> None:
        """Start the server if it does not run; raise Unavailable if it cannot be started in time."""
        deadline = time.monotonic() + RESUME_TIMEOUT_S
        while True:
            try:
                self._server.resume()
                return
            except Unavailable:  # processes of the killed server still end, or the disk is full
                if time.monotonic() > deadline:
                    raise
                time.sleep(RESUME_RETRY_S)

    def fill_disk(self) -> None:
        """Use all free space."""
        file = os.open(self._balloon, os.O_WRONLY | os.O_CREAT, 0o600)
        with contextlib.suppress(OSError):
            os.posix_fallocate(file, 0, shutil.disk_usage(self._disk).free)
        os.close(file)

    def free_disk(self) -> None:
        with contextlib.suppress(OSError):
            self._balloon.unlink(missing_ok=True)


def _try_mount(folder: Path) -> str | None:
    """Mount a file system in memory; return the reason if that is not possible."""
    if os.geteuid() != 0:
        return "only root may mount a small file system"
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=0700", "tidemill-torture", str(folder)]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=MOUNT_TIMEOUT_S)  # noqa: S603
    except OSError as error:
        return f"mount failed: {error}"
    return f"mount failed: {done.stderr.strip()}" if done.returncode else None


EXIT_TIMEOUT_S = 30.0
RESTART_PAUSE_S = 0.3
WATCH_INTERVAL_S = 0.2


class ManagedProcess:
    """A `tidemill` command that is started again whenever it ends."""

    def __init__(
        self, name: str, arguments: Sequence[str], environment: dict[str, str], logs: Path, working_folder: Path
    ) -> None:
        self.name = name
        self.starts = 0
        self._argv = [sys.executable, "-m", "tidemill", *arguments]
        self._environment = environment
        self._log = logs / f"{name}.log"
        self._working_folder = working_folder
        self._process: subprocess.Popen[bytes] | None = None
        self._ended_at: float | None = None

    @property
    def pid(self) -> int | None:
        """The process id, or None if the process does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        self.starts += 1
        self._ended_at = None
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  no input of a user
                self._argv,
                cwd=self._working_folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start_if_ended(self) -> None:
        if self.pid is not None:
            return
        now = time.monotonic()
        if self._ended_at is None:
            self._ended_at = now
        elif now - self._ended_at >= RESTART_PAUSE_S:
            self.start()

    def list_child_pids(self) -> list[int]:
        """Return the child processes of the worker, in the order of their start."""
        if self.pid is None:
            return []
        with contextlib.suppress(psutil.Error):
            return sorted(child.pid for child in psutil.Process(self.pid).children())
        return []

    def end(self) -> None:
        """Kill the process and its children, which are in its session."""
        if self._process is None:
            return
        children = self.list_child_pids()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pid in children:
            send_signal(pid, signal.SIGKILL)
        self._process.wait(EXIT_TIMEOUT_S)


def send_signal(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return whether the process exists."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


class Fleet:
    """The API server and the workers of a run."""

    def __init__(self, api: ManagedProcess, workers: list[ManagedProcess]) -> None:
        self.api = api
        self.workers = workers

    @property
    def processes(self) -> list[ManagedProcess]:
        return [self.api, *self.workers]

    async def keep_running(self) -> None:
        """Start each process that ended, until the task is cancelled."""
        while True:
            for process in self.processes:
                process.start_if_ended()
            await asyncio.sleep(WATCH_INTERVAL_S)

    def end_processes(self) -> None:
        for process in self.processes:
            process.end()
