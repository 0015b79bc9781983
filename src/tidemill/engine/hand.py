"""One child process, as its parent knows it."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from uuid import UUID

from tidemill.domain.crash import Cause, is_stuck
from tidemill.engine.control import Begin, End, Message, encode
from tidemill.engine.logbook import Logbook
from tidemill.telemetry.events import emit
from tidemill.telemetry.relay import ends_in

OVERDUE_S = 3.0  # after the grace of a slice, until a child that has not let go is killed

Command = Callable[[str, int, int, int], list[str]]  # (worker, number, control fd, logbook fd) -> argv


class Hand:
    """Starts the process; then speaks to it, looks into its logbook, and knows when it is dead."""

    def __init__(self, number: int, worker: str, command: Command, pages: int, env: dict[str, str]) -> None:
        self.number = number
        self.book = Logbook.create(pages)
        self.book.beat()
        self.started = time.monotonic()
        self.killed_as: Cause | None = None
        self._dead: tuple[int, float] | None = None
        self.bury_at = 0.0
        self._slices = 0
        self._before: dict[str, int] = {}
        self._kill_at = 0.0
        control, self._control = os.pipe()
        os.set_blocking(self._control, False)
        argv = command(worker, number, control, self.book.fd)
        try:
            self.process = self._start(argv, control, env)
        except OSError:
            os.close(self._control)
            self.book.close()
            raise
        finally:
            os.close(control)
        emit("child.started", child=number, pid=self.process.pid)

    def _start(self, argv: list[str], control: int, env: dict[str, str]) -> "subprocess.Popen[bytes]":
        fds = (control, self.book.fd, *ends_in(env))
        return subprocess.Popen(argv, pass_fds=fds, stdin=subprocess.DEVNULL, env=env)  # noqa: S603  our own argv

    def tell(self, message: Message) -> bool:
        """False if it did not arrive: the child is dead, or has not listened for thousands of messages."""
        if self._dead is not None:
            return False
        try:
            os.write(self._control, encode(message))  # whole or not at all: it is shorter than PIPE_BUF
        except (BrokenPipeError, BlockingIOError):
            return False
        return True

    @property
    def is_free(self) -> bool:
        """Whether a slice may begin."""
        return self.is_idle and self.book.is_ready and self._dead is None and self.killed_as is None

    @property
    def is_idle(self) -> bool:
        """Whether every slice that began is over."""
        return self.book.slices_ended >= self._slices

    @property
    def idle_lanes(self) -> int:
        """How many batches it could take beside those it has; the last page is the ingester's."""
        return 0 if self._dead is not None else sum(page.lease_id is None for page in self.book.pages[:-1])

    def begin_slice(self, job_id: UUID, kind: str, seconds: float, grace: float) -> bool:
        """Ask for a slice; False if the child cannot be asked."""
        before = self.book.counters()
        order = Begin(self._slices + 1, job_id, kind, max(1, round(seconds * 1000)))
        if not self.tell(order):
            return False
        self._slices += 1
        self._before = before
        self._kill_at = time.monotonic() + seconds + grace + OVERDUE_S
        return True

    def end_slice(self, grace: float) -> None:
        """Rather now than at its end. A child that does not hear it is killed when it is overdue."""
        if not self.is_idle:
            self.tell(End(self._slices))
            self._kill_at = min(self._kill_at, time.monotonic() + grace + OVERDUE_S)

    def did(self) -> dict[str, int]:
        """What was counted since the last slice began, also by a parent who cleared up."""
        return {name: n - self._before.get(name, 0) for name, n in self.book.counters().items()}

    @property
    def is_overdue(self) -> bool:
        """Whether a slice should have been over long ago."""
        return not self.is_idle and time.monotonic() > self._kill_at

    def kill(self, cause: Cause) -> None:
        if self._dead is not None:
            return  # its number may be somebody else's by now
        self.killed_as = cause
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)

    def reap(self) -> tuple[int, float] | None:
        """Return code and peak memory in MB of a child that is dead, else None. The same again until it is buried."""
        if self._dead is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if not pid:
                return None
            self.process.returncode = os.waitstatus_to_exitcode(status)
            os.close(self._control)
            self._dead = (self.process.returncode, usage.ru_maxrss / 1024)
        return self._dead

    def is_stuck(self, now_ns: int, silence_s: float) -> bool:
        pages = [page for page in self.book.pages if page.lease_id is not None]
        oldest = [(page.oldest_start_ns, page.timeout) for page in pages]
        return bool(pages) and is_stuck(now_ns, pulse_ns=self.book.pulse_ns, in_hand=oldest, silence_s=silence_s)
