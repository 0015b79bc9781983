"""Forks Tidemill's processes in tests, because the imports of a new process take one second.

A server process imports the command line once. Each command is a fork of it, with its own folder, environment, files,
signals and exit code. Only the start of the interpreter is skipped. Tests that use a plain ``subprocess.Popen`` cover
that start.

A worker must be the parent of its children, so each command has its own forker: a second fork, created before the
command runs any code. To start a child, the forker forks twice, and the process in between exits. The worker is a
subreaper during that time, so the kernel makes it the parent of the child. A worker that was started with a plain
``Popen`` starts its children the same way.
"""

import atexit
import ctypes
import fcntl
import functools
import gc
import importlib
import inspect
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, AnyStr

MAIN = "from tidemill.cli.main import main; main()"
COMMAND_MODULE, CHILD_MODULE = "tidemill.cli.main", "tidemill.app.child_main"
FORKER_NAME = "forker"
WIDTH = {"COLUMNS": "160"}
READ_AT_START = ("COLUMNS", "COVERAGE_", "FORCE_COLOR", "LC_", "NO_COLOR", "PYTHON", "TERM")
DEAD = "the process that forks has died"
FILES = 1_024
MAX_FILES_PER_REQUEST = 16
PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 15, 36
REPARENT_WAIT_S = 10.0
FORK_TIMEOUT_S = 60.0
FORKER_EXIT_TIMEOUT_S = 10.0


def starting(env: dict[str, str]) -> dict[str, str]:
    """Return the variables that an interpreter reads at startup, before it runs a command."""
    return WIDTH | {name: value for name, value in env.items() if name.startswith(READ_AT_START)}


class Forked(subprocess.Popen[AnyStr]):
    """A ``Popen`` that forks ``python -c MAIN arguments``, and starts any other command as ``Popen`` does."""

    _told: socket.socket | None = None

    def _execute_child(self, *given: Any) -> None:
        plain = super()._execute_child  # type: ignore[misc]
        asked = inspect.signature(plain).bind(*given).arguments
        argv: list[str] = list(asked["args"])
        env: dict[str, str] = dict(asked["env"] or os.environ)
        server = _server() if argv[:3] == [sys.executable, "-c", MAIN] else None
        if server is None or starting(env) != server.env:
            plain(*given)
            return
        request = {
            "module": COMMAND_MODULE,
            "argv": ["-c", *argv[3:]],
            "cwd": str(Path(asked["cwd"] or ".").absolute()),
            "env": env,
            "new_session": asked["start_new_session"],
        }
        ends = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        files = {own: own if end == -1 else end for own, end in enumerate(ends)}
        try:
            self._told, self.pid = server.fork(request, files)
        finally:
            pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(asked[pipe] for pipe in pipes))  # type: ignore[attr-defined]
        self._child_created = True

    def _internal_poll(self, *given: Any, **more: Any) -> int | None:
        if self._told is None:
            return super()._internal_poll(*given, **more)  # type: ignore[misc, no-any-return]
        self._listen(0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self._told is None:
            return super()._wait(timeout=timeout)  # type: ignore[misc, no-any-return]
        self._listen(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def _listen(self, timeout: float | None) -> None:
        """Wait up to ``timeout`` s for the exit code, and set ``returncode`` if the process has ended."""
        assert self._told is not None
        if self.returncode is not None:
            return
        self._told.settimeout(timeout and max(timeout, 0))
        try:
            self.returncode = _number(self._told)
        except (TimeoutError, BlockingIOError):
            return
        self._told.close()


class ForkedChild:
    """The attributes of ``Popen`` that a worker uses, for a child that was forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None


class _Forker:
    """A connection to a process that forks on request."""

    def __init__(self, requests: socket.socket, env: dict[str, str]) -> None:
        self._requests = requests
        self.env = env

    def fork(self, request: dict[str, Any], files: dict[int, int]) -> tuple[socket.socket, int]:
        """Fork a process. Return the socket that will receive its exit code, and its process id.

        ``files`` maps file descriptors of the fork to those of this process.
        """
        text = json.dumps(request | {"files": list(files)}).encode()
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._requests, [len(text).to_bytes(4)], [*files.values(), theirs.fileno()])
        ours.settimeout(FORK_TIMEOUT_S)
        try:
            ours.sendall(text)
            return ours, _number(ours)
        except TimeoutError:
            raise AssertionError(f"the process that forks has not answered for {FORK_TIMEOUT_S} s") from None

    def fork_child(self, argv: list[str], env: dict[str, str], files: list[int]) -> ForkedChild:
        """Fork a child of this process."""
        cwd = str(Path.cwd())
        request = {"module": CHILD_MODULE, "argv": argv[2:], "cwd": cwd, "env": env, "parent": os.getpid()}
        with Path(os.devnull).open() as nothing:
            _prctl(PR_SET_CHILD_SUBREAPER, 1)
            try:
                told, pid = self.fork(request, {0: nothing.fileno(), 1: 1, 2: 2} | {file: file for file in files})
            finally:
                _prctl(PR_SET_CHILD_SUBREAPER, 0)
        told.close()
        return ForkedChild(pid)

    def close(self) -> None:
        self._requests.close()


def _prctl(option: int, value: int | bytes) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


@functools.cache
def _server() -> _Forker | None:
    """Start the forker of this test process; it ends with this process. Return None without ``os.pidfd_open``."""
    if not hasattr(os, "pidfd_open"):
        return None
    from tidemill.app.worker import CHILD_MEMORY_ENVIRONMENT  # noqa: PLC0415  so that coverage measures the import

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    here = f"sys.path.insert(0, {str(Path(__file__).parent)!r}); import forks; del sys.path[0]"
    nothing = subprocess.DEVNULL  # on a terminal, commands would print colors
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", f"import sys; {here}; forks.serve({theirs.fileno()})()"],
            pass_fds=[theirs.fileno()],
            # A process that starts without TIDEMILL_FAILPOINTS can arm no failpoint; each command has its own value.
            env={"TIDEMILL_FAILPOINTS": ""} | os.environ | CHILD_MEMORY_ENVIRONMENT | WIDTH,
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,
        )
    forker = _Forker(ours, starting(dict(os.environ)))
    atexit.register(_end, process)
    atexit.register(forker.close)  # atexit calls the last function first
    return forker


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Wait for the forker, which exits when its connection is closed. Kill it if another process keeps that open."""
    try:
        process.wait(FORKER_EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(FORKER_EXIT_TIMEOUT_S)


def fork_children(find_forker: Callable[[], _Forker | None] = _server) -> None:
    """Make the workers of this process fork their children."""
    from tidemill.engine.children.child_process import ChildProcess  # noqa: PLC0415  as above
    from tidemill.telemetry.child_events import list_event_pipe_fds  # noqa: PLC0415

    plain = ChildProcess._start_process

    def start(self: ChildProcess, argv: list[str], control: int, env: dict[str, str]) -> Any:
        forker = find_forker() if argv[:3] == [sys.executable, "-m", CHILD_MODULE] else None
        if forker is None or starting(env) != forker.env:
            return plain(self, argv, control, env)
        return forker.fork_child(argv, env, [control, self.shared_state.fd, *list_event_pipe_fds(env)])

    ChildProcess._start_process = start  # type: ignore[method-assign]


def _number(told: socket.socket) -> int:
    said = told.recv(4)
    assert said, DEAD
    return int.from_bytes(said, signed=True)


def serve(control: int) -> Callable[[], None]:
    """Fork on each request. Only the forks return, with the function to run; this process never does."""
    for module in (COMMAND_MODULE, CHILD_MODULE):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    return _serve(control)


def _serve(control: int) -> Callable[[], None]:
    callers: dict[int, tuple[int, socket.socket]] = {}
    asked = socket.socket(fileno=control)
    while True:
        for ready in select.select([control, *callers], [], [])[0]:
            if ready != control:
                _tell_the_end(ready, *callers.pop(ready))
                continue
            size, files, _, _ = socket.recv_fds(asked, 4, MAX_FILES_PER_REQUEST)
            if not size:
                os._exit(0)
            caller = socket.socket(fileno=files.pop())
            request = json.loads(caller.recv(int.from_bytes(size), socket.MSG_WAITALL))
            pid = _fork(request.get("parent"))
            if pid == 0:
                if request.get("new_session"):
                    os.setsid()
                # Send the id after setsid: the caller may kill the whole session as soon as it has the id.
                caller.sendall(os.getpid().to_bytes(4, signed=True))
                for inherited in (asked, caller, *(other for _, other in callers.values())):
                    inherited.detach()
                return _become(request, dict(zip(request["files"], files, strict=True)))
            for file in files:
                os.close(file)
            if "parent" in request:
                caller.close()
                os.waitpid(pid, 0)
            else:
                callers[os.pidfd_open(pid)] = pid, caller


def _fork(parent: int | None) -> int:
    """Fork, and return 0 in the new process. If ``parent`` is given, the new process is its child."""
    pid = os.fork()
    if pid or parent is None:
        return pid
    if os.fork():
        os._exit(0)
    deadline = time.monotonic() + REPARENT_WAIT_S
    while os.getppid() != parent:
        if time.monotonic() > deadline:
            os._exit(1)
        time.sleep(0.0002)
    return 0


def _tell_the_end(file: int, pid: int, caller: socket.socket) -> None:
    os.close(file)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with caller:
        try:
            caller.sendall(code.to_bytes(4, signed=True))
        except OSError:  # the caller has closed its socket
            return


def _become(request: dict[str, Any], files: dict[int, int]) -> Callable[[], None]:
    _set_files(files)
    os.chdir(request["cwd"])
    if "parent" not in request:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            ours.close()
            return _serve_children(theirs.detach())
        theirs.close()
        forker = _Forker(ours, starting(request["env"]))
        fork_children(lambda: forker)
    else:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _prctl(PR_SET_NAME, b"python")
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["argv"]
    return sys.modules[request["module"]].main  # type: ignore[no-any-return]


def _set_files(files: dict[int, int]) -> None:
    """Move open files to the given descriptors, and close all others. ``files`` maps new descriptors to old ones."""
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD, FILES // 2) for file in files.values()]
    for number, file in zip(files, moved, strict=True):
        os.dup2(file, number)
    for before, after in itertools.pairwise([*sorted(files), FILES]):
        if before + 1 < after:  # skip empty ranges: one that starts at 0 would close all files
            os.closerange(before + 1, after)


def _serve_children(control: int) -> Callable[[], None]:
    """Run as the forker of a command. It ignores signals to the process group, and ends with the command."""
    _prctl(PR_SET_NAME, FORKER_NAME.encode())
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    with Path(os.devnull).open("r+") as nothing:
        for number in range(3):
            os.dup2(nothing.fileno(), number)
    return _serve(control)
