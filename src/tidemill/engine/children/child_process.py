"""A child process from the point of view of its parent."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from uuid import UUID

from tidemill.core.child_exit import ExitCause, is_child_stuck
from tidemill.engine.children.control_pipe import ControlMessage, EndSliceMessage, StartSliceMessage, encode_message
from tidemill.engine.children.shared_state import SharedState
from tidemill.engine.context import INGESTERS, SPARE_LANES
from tidemill.telemetry.child_events import list_event_pipe_fds
from tidemill.telemetry.events import emit

SLICE_OVERDUE_S = 3.0  # after the grace period of a slice; then a child that still runs it is killed

ChildCommand = Callable[[str, int, int, int], list[str]]  # (worker, number, control fd, shared state fd) -> argv


class ChildProcess:
    """Starts the process, sends it messages, reads its shared state, and detects its end."""

    def __init__(self, number: int, worker: str, command: ChildCommand, lanes: int, env: dict[str, str]) -> None:
        self.number = number
        self.shared_state = SharedState.create(lanes)
        self.shared_state.update_pulse()
        self.started_at = time.monotonic()
        self.kill_cause: ExitCause | None = None
        self._exit_status: tuple[int, float] | None = None
        self.reap_retry_at = 0.0
        self._slices_started = 0
        self._counters_before_slice: dict[str, int] = {}
        self._slice_deadline = 0.0
        control, self._control_fd = os.pipe()
        os.set_blocking(self._control_fd, False)
        argv = command(worker, number, control, self.shared_state.fd)
        try:
            self.process = self._start_process(argv, control, env)
        except OSError:
            os.close(self._control_fd)
            self.shared_state.close()
            raise
        finally:
            os.close(control)
        emit("child.started", child=number, pid=self.process.pid)

    def _start_process(self, argv: list[str], control: int, env: dict[str, str]) -> "subprocess.Popen[bytes]":
        fds = (control, self.shared_state.fd, *list_event_pipe_fds(env))
        return subprocess.Popen(argv, pass_fds=fds, stdin=subprocess.DEVNULL, env=env)  # noqa: S603  argv is not user input

    def send_message(self, message: ControlMessage) -> bool:
        """Send a message; return False if the child is dead or has stopped reading and the pipe is full."""
        if self._exit_status is not None:
            return False
        try:
            os.write(self._control_fd, encode_message(message))  # atomic: it is shorter than PIPE_BUF
        except (BrokenPipeError, BlockingIOError):
            return False
        return True

    @property
    def can_start_slice(self) -> bool:
        """Whether the child can start a time slice now."""
        return (
            self.is_slice_over
            and self.shared_state.accepts_slices
            and self._exit_status is None
            and self.kill_cause is None
        )

    @property
    def is_slice_over(self) -> bool:
        """Whether every started slice has ended."""
        return self.shared_state.slices_ended >= self._slices_started

    @property
    def idle_lane_count(self) -> int:
        """The number of lanes that can run a batch of any owner; the last pages belong to the ingesters."""
        if self._exit_status is not None:
            return 0
        return max(0, sum(page.lease_id is None for page in self.shared_state.lanes[:-INGESTERS]) - SPARE_LANES)

    def request_slice(self, job_id: UUID, kind: str, seconds: float, grace: float) -> bool:
        """Request a time slice; return False if the message could not be sent."""
        before = self.shared_state.read_counters()
        message = StartSliceMessage(self._slices_started + 1, job_id, kind, max(1, round(seconds * 1000)))
        if not self.send_message(message):
            return False
        self._slices_started += 1
        self._counters_before_slice = before
        self._slice_deadline = time.monotonic() + seconds + grace + SLICE_OVERDUE_S
        return True

    def request_slice_end(self, grace: float) -> None:
        """Request the end of the slice now. A child that does not react is killed when the slice is overdue."""
        if not self.is_slice_over:
            self.send_message(EndSliceMessage(self._slices_started))
            self._slice_deadline = min(self._slice_deadline, time.monotonic() + grace + SLICE_OVERDUE_S)

    def read_slice_counters(self) -> dict[str, int]:
        """Return the counters since the start of the last slice, including what the parent recovered after a crash."""
        return {
            name: n - self._counters_before_slice.get(name, 0) for name, n in self.shared_state.read_counters().items()
        }

    @property
    def is_slice_overdue(self) -> bool:
        """Whether a slice has exceeded its deadline."""
        return not self.is_slice_over and time.monotonic() > self._slice_deadline

    def kill(self, cause: ExitCause) -> None:
        if self._exit_status is not None:
            return  # the PID may belong to another process by now
        self.kill_cause = cause
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)

    def reap(self) -> tuple[int, float] | None:
        """Return the exit code and the peak memory in MB of a dead child, else None. It can be called repeatedly."""
        if self._exit_status is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if not pid:
                return None
            self.process.returncode = os.waitstatus_to_exitcode(status)
            os.close(self._control_fd)
            self._exit_status = (self.process.returncode, usage.ru_maxrss / 1024)
        return self._exit_status

    def is_stuck(self, now_ns: int, silence_s: float) -> bool:
        pages = [page for page in self.shared_state.lanes if page.lease_id is not None]
        oldest = [(page.oldest_start_ns, page.timeout_s) for page in pages]
        return bool(pages) and is_child_stuck(
            now_ns, heartbeat_ns=self.shared_state.pulse_ns, oldest_items=oldest, silence_s=silence_s
        )
