"""Sends events of child processes to their parent, which alone has metrics.

A child writes one line per event into a pipe that all children share. Lines in the pipe survive the child, however it
dies. A line is at most PIPE_BUF long, so that concurrent writes are atomic. A child never waits: if its parent does not
read, the oldest lines above a limit are dropped, and the child reports their number.

The multi-process mode of prometheus_client is not used. The environment enables it for the whole process, so it would
change the metrics of handlers; the files of dead children stay, thousands of them for a job that crashes its processes;
and it cannot average over children.
"""

import asyncio
import contextlib
import os
import select
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec

from tidemill.telemetry.events import Event, emit, publish_child_event, subscribe
from tidemill.telemetry.metric_labels import filter_measured_codes

EVENT_PIPE_VARIABLE = "_TIDEMILL_EVENTS"  # environment variable of a child: the file descriptor of its pipe
MAX_BACKLOG_EVENTS = 1_000
EVENT_PIPE_READ_BYTES = 1 << 16

# The events of children that metrics need.
MEASURED_EVENTS = frozenset(
    {
        "job.closed",
        "ingest.chunk",
        "ingest.stale",
        "batch.claimed",
        "batch.flushed",
        "batch.stale",
        "concurrency.changed",
        "limiter.taken",
        "limiter.blocked",
        "limiter.slowed",
        "item.retry",
        "loop.failed",
        "database.latency",
        "database.retry",
        "query.slow",
        "pool.waited",
        "relay.lost",
    }
)
_DROPPED_FIELDS = frozenset(
    {"job", "batch", "request_id", "by_request_id", "traceparent", "worker", "error", "decisions"}
)

_encode_event = msgspec.json.Encoder(enc_hook=str).encode
_decode_event = msgspec.json.Decoder(Event).decode  # a JSON array: name, fields


class ChildEventWriter:
    """The child's end of the pipe: subscribes to its events and sends those that metrics need."""

    def __init__(self, fd: int, child: int) -> None:
        os.set_inheritable(fd, False)
        self._fd = fd
        self._child = child
        self._backlog: deque[bytes] = deque()
        self._lost = 0

    def write_event(self, event: Event) -> None:
        if event.name not in MEASURED_EVENTS:
            return
        fields = {key: value for key, value in event.fields.items() if key not in _DROPPED_FIELDS}
        fields["child"] = self._child
        if "codes" in fields:
            fields["codes"] = filter_measured_codes(fields["codes"])
        self._write_to_pipe(_encode_event(Event(event.name, fields)) + b"\n")
        if self._lost and not self._backlog:
            lost, self._lost = self._lost, 0
            emit("relay.lost", events=lost)

    def _write_to_pipe(self, line: bytes) -> None:
        if len(line) > select.PIPE_BUF:
            self._lost += 1
            return
        self._backlog.append(line)
        try:
            while self._backlog:
                os.write(self._fd, self._backlog[0])
                self._backlog.popleft()
        except (BlockingIOError, BrokenPipeError):
            if len(self._backlog) > MAX_BACKLOG_EVENTS:
                self._backlog.popleft()
                self._lost += 1


class ChildEventReader:
    """The parent's end of the pipe. It keeps ``write_fd`` open too, for children that are started later."""

    def __init__(self) -> None:
        self._fd, self.write_fd = os.pipe()
        for fd in (self._fd, self.write_fd):
            os.set_blocking(fd, False)
        self._rest = b""

    def fileno(self) -> int:
        return self._fd

    def relay_pending_events(self) -> None:
        """Publish the events that are in the pipe now."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._fd, EVENT_PIPE_READ_BYTES):
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    with contextlib.suppress(msgspec.DecodeError):
                        publish_child_event(_decode_event(line))

    def close(self) -> None:
        self.relay_pending_events()
        os.close(self._fd)
        os.close(self.write_fd)


@asynccontextmanager
async def receive_child_events() -> AsyncIterator[dict[str, str]]:
    """Publish the events of child processes; yields the environment variables that the children need."""
    reader = ChildEventReader()
    loop = asyncio.get_running_loop()
    loop.add_reader(reader.fileno(), reader.relay_pending_events)
    try:
        yield {EVENT_PIPE_VARIABLE: str(reader.write_fd)}
    finally:
        loop.remove_reader(reader.fileno())
        reader.close()


def list_event_pipe_fds(environment: Mapping[str, str]) -> tuple[int, ...]:
    """Return the file descriptors that a child with this environment must inherit."""
    return (int(environment[EVENT_PIPE_VARIABLE]),) if EVENT_PIPE_VARIABLE in environment else ()


def relay_events_to_parent(child: int) -> None:
    """Send the measured events of this child to its parent, if the parent collects metrics."""
    for fd in list_event_pipe_fds(os.environ):
        subscribe(ChildEventWriter(fd, child).write_event)
