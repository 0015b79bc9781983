"""Processes of Tidemill without the second that its imports take.

One process has imported the command line and does nothing else; each command is a fork of it, which goes on as the
command: a process of its own, with its own folder, environment, files, signals and exit code. Only the start of the
interpreter is left out, and that is proved wherever a test asks for a plain ``subprocess.Popen``.
"""

import atexit
import functools
import gc
import inspect
import json
import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, AnyStr

MAIN = "from tidemill.cli.main import main; main()"
WIDTH = {"COLUMNS": "160"}
READ_AT_START = ("COLUMNS", "COVERAGE_", "FORCE_COLOR", "LC_", "NO_COLOR", "PYTHON", "TERM")
DEAD = "the process that forks has died"
FILES = 1_024


def starting(env: dict[str, str]) -> dict[str, str]:
    """Of an environment, what a process has read before it becomes a command."""
    return WIDTH | {name: value for name, value in env.items() if name.startswith(READ_AT_START)}


class Forked(subprocess.Popen[AnyStr]):
    """``python -c MAIN arguments`` as a fork; whatever else is asked for is started as ever."""

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
            "argv": ["-c", *argv[3:]],
            "cwd": str(Path(asked["cwd"] or ".").absolute()),
            "env": env,
            "new_session": asked["start_new_session"],
        }
        ends = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        try:
            self._told, self.pid = server.fork(request, [own if end == -1 else end for own, end in enumerate(ends)])
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
        """The exit code is told when there is one."""
        assert self._told is not None
        if self.returncode is not None:
            return
        self._told.settimeout(timeout and max(timeout, 0))
        try:
            self.returncode = _number(self._told)
        except (TimeoutError, BlockingIOError):
            return
        self._told.close()


class _Server:
    """The process that forks; it ends with this one."""

    def __init__(self) -> None:
        self.env = starting(dict(os.environ))
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here = f"sys.path.insert(0, {str(Path(__file__).parent)!r}); import forks; del sys.path[0]"
        program = f"import sys; {here}; forks.serve({theirs.fileno()}); {MAIN}"
        nothing = subprocess.DEVNULL  # a terminal would make it colourful
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program],
                pass_fds=[theirs.fileno()],
                env=os.environ | WIDTH,
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                start_new_session=True,
            )
        atexit.register(self.close)

    def fork(self, request: dict[str, Any], files: list[int]) -> tuple[socket.socket, int]:
        """Where its exit code will be told, and its process id."""
        text = json.dumps(request).encode()
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._ours, [len(text).to_bytes(4)], [*files, theirs.fileno()])
        ours.sendall(text)
        return ours, _number(ours)

    def close(self) -> None:
        self._ours.close()
        self._process.wait()


@functools.cache
def _server() -> _Server | None:
    """One for each process of the tests, where a process can be waited for as a file."""
    return _Server() if hasattr(os, "pidfd_open") else None


def _number(told: socket.socket) -> int:
    said = told.recv(4)
    assert said, DEAD
    return int.from_bytes(said, signed=True)


def serve(control: int) -> None:
    """Fork as often as it is asked for. Only a fork comes back from here, to become what was asked for."""
    import tidemill.cli.main  # noqa: F401, PLC0415  this is what it is for

    gc.collect()
    gc.freeze()
    callers: dict[int, tuple[int, socket.socket]] = {}
    asked = socket.socket(fileno=control)
    while True:
        for ready in select.select([control, *callers], [], [])[0]:
            if ready != control:
                _tell_the_end(ready, *callers.pop(ready))
                continue
            size, files, _, _ = socket.recv_fds(asked, 4, 4)
            if not size:
                os._exit(0)
            caller = socket.socket(fileno=files.pop())
            request = json.loads(caller.recv(int.from_bytes(size), socket.MSG_WAITALL))
            pid = os.fork()
            if pid == 0:
                if request["new_session"]:
                    os.setsid()
                # Only now: who knows of it may end its whole session at once.
                caller.sendall(os.getpid().to_bytes(4, signed=True))
                for inherited in (asked, caller, *(other for _, other in callers.values())):
                    inherited.detach()
                _become(request, files)
                return
            for file in files:
                os.close(file)
            callers[os.pidfd_open(pid)] = pid, caller


def _tell_the_end(file: int, pid: int, caller: socket.socket) -> None:
    os.close(file)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with caller:
        try:
            caller.sendall(code.to_bytes(4, signed=True))
        except OSError:  # nobody wants to know any more
            return


def _become(request: dict[str, Any], files: list[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, FILES)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["argv"]
