"""The embedded PostgreSQL server: all processes of a home share it, and the last one stops it."""

import atexit
import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import fasteners
import psutil

from tidemill.core.errors import InvalidSettings, Unavailable
from tidemill.core.private_files import PRIVATE_FOLDER_MODE, make_private_folder, open_private_file
from tidemill.store.embedded_programs import (
    build_server_environment,
    find_server_programs,
    get_server_user,
    run_program,
)
from tidemill.telemetry.events import emit

EMBEDDED_SERVER_SETTINGS = """\
# Written by Tidemill at every start. Durability is on: fsync, full_page_writes, synchronous_commit.
shared_buffers = 256MB
max_wal_size = 4GB
min_wal_size = 512MB
checkpoint_timeout = 15min
wal_buffers = 16MB
maintenance_work_mem = 128MB
max_connections = 200
autovacuum_naptime = 15s
jit = off
idle_in_transaction_session_timeout = 60s
client_connection_check_interval = 5s
"""

SERVER_START_TIMEOUT_S = 120.0  # recovery after a crash takes most of it
SERVER_STOP_TIMEOUT_S = 60.0
SERVER_POLL_S = 0.05
SERVER_WATCH_INTERVAL_S = 0.5
RESTARTS_MAX, RESTARTS_WINDOW_S = 10, 600.0
RESTART_BACKOFF_MAX_S = 30.0
SOCKET_NAME = ".s.PGSQL.5432"
SOCKET_PATH_MAX_BYTES = 103  # the limit of macOS; Linux allows 107
LOG_LINES_SHOWN = 5
# The server's user may be unable to enter the parents of the data folder. This path avoids the parents.
WORKING_DIRECTORY_PATH = Path("/proc/self/cwd")

_servers: dict[tuple[int, Path], "EmbeddedServer"] = {}  # by process and data folder
_servers_lock = threading.Lock()


def start_embedded_server(home: Path) -> str:
    """Start the embedded server, or join a running one, until this process ends. Return its URL."""
    data = home.absolute() / "postgres"
    with _servers_lock:
        server = _servers.get((os.getpid(), data))
        if server is None:
            server = prepare_server(data, EMBEDDED_SERVER_SETTINGS)
            server.start()
            _servers[os.getpid(), data] = server
    return server.get_uri()


def prepare_server(data: Path, settings: str) -> "EmbeddedServer":
    """Return a server for a data folder, not started yet. The folder is initialized if it does not exist."""
    server = EmbeddedServer(data)
    server.initialize(settings)
    return server


class EmbeddedServer:
    """A PostgreSQL server with a data folder and a socket that only its user and root can open."""

    def __init__(self, data: Path) -> None:
        self.data = data.absolute()
        self.log = self.data / "log"
        self._user = get_server_user()
        self._programs = find_server_programs(self._user)
        make_private_folder(self.data.parent)
        self._mutex = threading.Lock()
        self._lock_path = self.data.with_suffix(".lock")
        self._users = ProcessList(self.data.with_suffix(".processes"))
        self._socket_link: Path | None = None
        self._started_process: subprocess.Popen[bytes] | None = None
        self._owner_pid = os.getpid()
        self._is_closing = threading.Event()
        self._is_suspended = False

    def initialize(self, settings: str) -> None:
        """Create the data folder if it does not exist, and write the settings of the server."""
        with self._hold_lock():
            self._make_data_folder()
            if not (self.data / "PG_VERSION").exists():
                options = ("--auth-local=trust", "--auth-host=reject", "--encoding=UTF8", "--username=postgres")
                self._run("initdb", *options, "-D", self._data_folder_for_server)
            self._write_settings(settings)

    def start(self) -> None:
        """Start the server, or join the running one, and restart it if it dies before this process ends."""
        with self._hold_lock():
            self._users.add(os.getpid())
            if not self._is_running():
                self._launch()
        atexit.register(self.cleanup)
        threading.Thread(target=self._watch, name="tidemill-postgres", daemon=True).start()

    def get_uri(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{quote(database)}?host={quote(str(self._find_socket_folder()))}"

    def get_pid(self) -> int | None:
        """Return the process id of the running server, or None."""
        process = self._find_process()
        return None if process is None else int(process.pid)

    def cleanup(self) -> None:
        """Leave the server. The last process stops it. In a forked process, do nothing."""
        if os.getpid() != self._owner_pid or self._is_closing.is_set():
            return
        self._is_closing.set()
        atexit.unregister(self.cleanup)
        if self.data.parent.is_dir():  # otherwise the lock file would create it again
            with self._hold_lock():
                if not self._users.remove(os.getpid()):
                    self._stop()
        if self._socket_link is not None:
            shutil.rmtree(self._socket_link.parent, ignore_errors=True)

    def suspend(self, *, immediately: bool = False, by_kill: bool = False) -> None:
        """Stop the server until ``resume``. With ``immediately``, it needs a recovery afterwards, as after a crash.

        With ``by_kill``, its main process is killed. The others end as soon as they detect that, so that ``resume`` can
        fail until then.
        """
        with self._hold_lock():
            self._is_suspended = True
            self._stop(signal.SIGKILL if by_kill else signal.SIGQUIT if immediately else signal.SIGINT)

    def resume(self) -> None:
        """Start the server again after ``suspend``."""
        with self._hold_lock():
            self._is_suspended = False
            if not self._is_running():
                self._launch()

    @contextlib.contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Exclude other processes, and other threads of this process."""
        with self._mutex:
            open_private_file(self._lock_path, "ab").close()
            with fasteners.InterProcessLock(self._lock_path):
                yield

    def _make_data_folder(self) -> None:
        """Create the folder. Refuse a folder that another user has put there, who could then read the database."""
        try:
            self.data.mkdir(PRIVATE_FOLDER_MODE)
        except FileExistsError:
            found = self.data.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != self._user.uid:
                raise InvalidSettings(
                    f'"{self.data}" is not a folder of the user that runs the embedded PostgreSQL '
                    f"(user ID {self._user.uid}). Set TIDEMILL_HOME to another folder."
                ) from None
        else:
            if self._user.is_other:
                os.chown(self.data, self._user.uid, self._user.gid)

    @property
    def _data_folder_for_server(self) -> str:
        """The data folder as the server's user can open it. All programs run in this folder."""
        return str(WORKING_DIRECTORY_PATH if self._user.is_other and WORKING_DIRECTORY_PATH.exists() else self.data)

    def _run(self, program: str, *arguments: str) -> None:
        run_program(self._programs / program, *arguments, folder=self.data, user=self._user)

    def _write_settings(self, settings: str) -> None:
        ours = self.data / "tidemill.conf"
        if not ours.exists() or ours.read_text() != settings:
            with open_private_file(ours, "w") as file:
                self._give_file_to_server_user(file.fileno())
                file.write(settings)
        main = self.data / "postgresql.conf"
        line = "include_if_exists = 'tidemill.conf'\n"
        if line not in main.read_text():
            with open_private_file(main, "a") as file:
                file.write("\n" + line)

    def _give_file_to_server_user(self, file: int) -> None:
        if self._user.is_other:
            os.fchown(file, self._user.uid, self._user.gid)

    def _find_socket_folder(self) -> Path:
        """Return the data folder, or a link to it in a private folder if the path of the socket would be too long."""
        if len(os.fsencode(self.data / SOCKET_NAME)) <= SOCKET_PATH_MAX_BYTES:
            return self.data
        if self._socket_link is None:
            self._socket_link = Path(tempfile.mkdtemp(prefix="tidemill-")) / "postgres"
            self._socket_link.symlink_to(self.data)
        return self._socket_link

    def _find_process(self) -> "psutil.Process | None":
        """Return the process named in the PID file, unless it is another program that got the same number."""
        if self._started_process is not None:
            self._started_process.poll()  # otherwise a dead server stays in the list of processes
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            process = psutil.Process(int(lines[0]))
            is_server = process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == self.data.resolve()
        except (OSError, ValueError, IndexError, psutil.Error):
            return None
        return process if is_server else None

    def _is_running(self) -> bool:
        return self._find_process() is not None

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            return self._is_running() and lines[-1].strip() == "ready"
        return False

    def _launch(self) -> None:
        """Start the server in its own session, so that Ctrl-C does not stop it, and wait until it accepts connections.

        Raises:
            Unavailable: It did not start.
        """
        with open_private_file(self.log, "ab") as log:
            self._give_file_to_server_user(log.fileno())
            self._started_process = subprocess.Popen(  # noqa: S603  no input of a user
                [self._programs / "postgres", "-D", self._data_folder_for_server, "-h", "", "-k", "."],
                cwd=self.data,
                env=build_server_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._user.process_options,
            )
        deadline = time.monotonic() + SERVER_START_TIMEOUT_S
        while not self._is_ready():
            if self._started_process.poll() is not None or time.monotonic() > deadline:
                shown = "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])
                raise Unavailable(f'The embedded PostgreSQL did not start. See "{self.log}":\n{shown}')
            time.sleep(SERVER_POLL_S)

    def _stop(self, first: signal.Signals = signal.SIGINT) -> None:
        process = self._find_process()
        for number in (first, signal.SIGQUIT, signal.SIGKILL):  # fast shutdown, immediate shutdown, kill
            if process is None:
                return
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)
                process.wait(SERVER_STOP_TIMEOUT_S)
            process = self._find_process()

    def _watch(self) -> None:
        """Restart the server when it has died. Give up after ``RESTARTS_MAX`` restarts in ``RESTARTS_WINDOW_S``."""
        restarts: list[float] = []
        while not self._is_closing.wait(SERVER_WATCH_INTERVAL_S):
            if self._is_suspended or self._is_running():
                continue
            now = time.monotonic()
            restarts = [at for at in restarts if now - at < RESTARTS_WINDOW_S]
            if len(restarts) == RESTARTS_MAX:
                emit("postgres.abandoned", folder=str(self.data), restarts=len(restarts))
                return
            backoff_s = min(2.0 ** len(restarts) / 2, RESTART_BACKOFF_MAX_S) if restarts else 0.0
            if self._is_closing.wait(backoff_s):
                return
            restarts.append(now)
            self._restart_if_dead(len(restarts))

    def _restart_if_dead(self, attempt: int) -> None:
        with contextlib.suppress(OSError), self._hold_lock():
            if self._is_closing.is_set() or self._is_suspended or self._is_running():  # another process restarted it
                return
            emit("postgres.lost", folder=str(self.data), attempt=attempt)
            try:
                self._launch()
            except (OSError, Unavailable) as error:
                emit("postgres.failed", folder=str(self.data), attempt=attempt, error=str(error))
            else:
                emit("postgres.restarted", folder=str(self.data), attempt=attempt)


class ProcessList:
    """The processes that use the server, in a file. Processes that no longer exist are removed on every change."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, pid: int) -> list[int]:
        return self._write([*self._read(without=pid), pid])

    def remove(self, pid: int) -> list[int]:
        """Remove a process and return the remaining ones."""
        return self._write(self._read(without=pid))

    def _read(self, *, without: int) -> list[int]:
        try:
            pids = json.loads(self._path.read_text())
        except (OSError, ValueError):  # no process has used the server, or the writer was killed
            return []
        return [pid for pid in pids if pid != without and psutil.pid_exists(pid)]

    def _write(self, pids: list[int]) -> list[int]:
        with open_private_file(self._path, "w") as file:
            json.dump(pids, file)
        return pids
