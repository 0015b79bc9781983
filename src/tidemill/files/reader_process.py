"""Reads files of users in reader processes, which have limits and are killed when a file exceeds them."""

import atexit
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self, TypeVar

import msgspec

from tidemill.config import Settings
from tidemill.core.errors import Interrupted, InvalidInput, ReaderKilled
from tidemill.core.file_format import FileLayout
from tidemill.core.input_source import Checkpoint, InputBlock, InputSource, InputSourceOpener, SourceReference
from tidemill.files.reader_messages import (
    MESSAGE_LENGTH,
    READER_STARTED,
    BlockRead,
    CloseSourceRequest,
    DetectLayoutRequest,
    OpenSourceRequest,
    ReadBlockRequest,
    ReaderRequest,
    ReaderResponse,
    ReaderTask,
    ReadSampleRequest,
    RequestFailed,
    SourceClosed,
    SourceOpened,
)

ShouldContinue = Callable[[], bool]
ResponseT = TypeVar("ResponseT", bound=ReaderResponse)
READER_POLL_S = 0.1  # how often a wait for a reader process checks whether to continue
READER_START_TIMEOUT_S = 60.0
READER_EXIT_TIMEOUT_S = 5.0
READER_READ_BYTES = 1 << 20
IDLE_READERS_MAX = 2  # starting one takes 0.2 s
READER_SOURCES_MAX = 100  # then a new process replaces it, which returns its memory
RESUMED_ROWS_PER_CPU_S, RESUMED_BYTES_PER_CPU_S = 10_000, 10 << 20  # the slowest that a resumed read skips
READER_EXTRA_TIME_S = 60.0  # a request may take longer than its CPU time: storage and the machine may be slow
_KILL_SIGNALS = (signal.SIGKILL, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class ReaderLimits:
    """The blob store, and the limits of a reader process. ``cpu_s`` applies to each request."""

    blobs: str
    max_row_bytes: int
    max_unpacked_bytes: int
    cpu_s: int
    memory_mb: int

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        return cls(
            settings.blobs,
            settings.max_row_bytes,
            settings.max_unpacked_mb << 20,
            settings.file_cpu_s,
            settings.file_memory_mb,
        )

    def compute_cpu_s_after_checkpoint(self, checkpoint: Checkpoint) -> int:
        """Return the CPU time for requests after a checkpoint: compressed files are read from their beginning."""
        skipped_s = checkpoint.get("row", 0) // RESUMED_ROWS_PER_CPU_S
        return self.cpu_s + skipped_s + checkpoint.get("offset", 0) // RESUMED_BYTES_PER_CPU_S


class ReaderProcess:
    """A reader process. Calls block, and only one thread at a time may use it."""

    def __init__(self) -> None:
        argv = [sys.executable, "-P", "-m", "tidemill.files.reader_main"]
        environment = {"MALLOC_ARENA_MAX": "1"} | os.environ
        self._process = subprocess.Popen(  # noqa: S603  argv is not user input
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment
        )
        self._decode = msgspec.msgpack.Decoder(ReaderResponse).decode
        self.has_started = False
        self.sources = 0

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def run(self, task: ReaderTask, expected: type[ResponseT], should_continue: ShouldContinue) -> ResponseT:
        """Return the response to a request.

        Raises:
            InvalidInput: The file is invalid, exceeds a limit, or crashed the reader process.
            Interrupted: ``should_continue`` returned False. The reader process is killed, unless it was starting: the
                next caller can use it.
            ReaderKilled: The reader process was killed from outside, or did not respond in time.
            TidemillError, OSError: The file cannot be opened.
        """
        data = msgspec.msgpack.encode(task)
        try:
            self._wait_for_start(should_continue)
            deadline = time.monotonic() + task.cpu_s + READER_EXTRA_TIME_S
            self._send(MESSAGE_LENGTH.pack(len(data)) + data)
            length = MESSAGE_LENGTH.unpack(self._receive(MESSAGE_LENGTH.size, deadline, should_continue))[0]
            response: ReaderResponse = self._decode(self._receive(length, deadline, should_continue))
        except (EOFError, BrokenPipeError):
            raise self._explain_death(task) from None
        if isinstance(response, RequestFailed):
            raise response.to_exception()
        if not isinstance(response, expected):
            raise TypeError(f"unexpected response {type(response).__name__}")
        return response

    def kill(self) -> None:
        if self.is_alive:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _wait_for_start(self, should_continue: ShouldContinue) -> None:
        if not self.has_started:
            self._receive(len(READER_STARTED), time.monotonic() + READER_START_TIMEOUT_S, should_continue)
            self.has_started = True

    def _send(self, data: bytes) -> None:
        if self._process.stdin is not None:
            view = memoryview(data)
            while view:
                view = view[self._process.stdin.write(view) :]

    def _receive(self, size: int, deadline: float, should_continue: ShouldContinue) -> bytes:
        pipe = self._process.stdout
        if pipe is None:
            raise EOFError
        ready, data = select.poll(), bytearray()
        ready.register(pipe, select.POLLIN)
        while len(data) < size:
            if not ready.poll(READER_POLL_S * 1000):
                self._kill_if_stopped_or_overdue(deadline, should_continue)
            elif piece := os.read(pipe.fileno(), min(READER_READ_BYTES, size - len(data))):
                data += piece
            else:
                raise EOFError
        return bytes(data)

    def _kill_if_stopped_or_overdue(self, deadline: float, should_continue: ShouldContinue) -> None:
        if not should_continue():
            if self.has_started:
                self.kill()
            raise Interrupted("Reading the file was stopped")
        if time.monotonic() > deadline:
            self.kill()
            raise ReaderKilled("Reading the file took too long. The file store may be slow.")

    def _explain_death(self, task: ReaderTask) -> Exception:
        try:
            code = self._process.wait(READER_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            code = -signal.SIGKILL
        if code == -signal.SIGXCPU:
            return InvalidInput(f"Reading the file needs more than {task.cpu_s} s of CPU time")
        if -code in _KILL_SIGNALS:
            return ReaderKilled("The process that reads the file was killed")
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return InvalidInput(f"The file crashed the process that reads it ({name})")


_idle_readers: list[ReaderProcess] = []
_idle_lock = threading.Lock()


@contextmanager
def use_reader_process() -> Iterator[ReaderProcess]:
    """Yield an idle reader process or a new one. Callers limit how many are in use."""
    process = _take_idle_or_new_reader()
    try:
        yield process
    finally:
        _return_reader(process)


def _take_idle_or_new_reader() -> ReaderProcess:
    with _idle_lock:
        while _idle_readers:
            process = _idle_readers.pop()
            if process.is_alive:
                return process
            process.kill()
    return ReaderProcess()


def _return_reader(process: ReaderProcess) -> None:
    process.sources += 1
    with _idle_lock:
        if process.is_alive and process.sources < READER_SOURCES_MAX and len(_idle_readers) < IDLE_READERS_MAX:
            _idle_readers.append(process)
            return
    process.kill()


@atexit.register
def stop_idle_readers() -> None:
    """Stop the idle reader processes, for example before a fork."""
    with _idle_lock:
        while _idle_readers:
            _idle_readers.pop().kill()


class IsolatedSource:
    """An open source that a reader process reads."""

    def __init__(
        self, reader: "IsolatedReader", process: ReaderProcess, opened: SourceOpened, checkpoint: Checkpoint
    ) -> None:
        self.columns = opened.columns
        self.first_line = opened.first_line
        self.layout = opened.get_layout()
        self.findings = opened.get_findings()
        self._reader = reader
        self._process: ReaderProcess | None = process
        self._resumed_at = checkpoint

    def read(self, rows: int, size: int) -> InputBlock:
        if self._process is None:
            raise ValueError("read of a closed source")
        block = self._reader.run(self._process, ReadBlockRequest(rows, size), BlockRead, self._resumed_at).to_block()
        self._resumed_at = {}
        return block

    def read_sample(self) -> list[bytes]:
        if self._process is None:
            raise ValueError("read of a closed source")
        return self._reader.run(self._process, ReadSampleRequest(), BlockRead, self._resumed_at).inputs

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._reader.close_source(process)


class IsolatedReader:
    """Opens sources and detects layouts in reader processes.

    ``should_continue`` ends a request: its process is killed, and the request raises Interrupted.
    """

    def __init__(self, limits: ReaderLimits, should_continue: ShouldContinue = lambda: True) -> None:
        self._limits = limits
        self._should_continue = should_continue

    def open_source(self, reference: SourceReference, checkpoint: Checkpoint) -> IsolatedSource:
        """Return the open source, with the errors of ``ReaderProcess.run``. The caller closes it."""
        return self._open(OpenSourceRequest(reference.to_json(), checkpoint), checkpoint)

    def open_detected(
        self, blob_id: str, *, name: str, content_type: str, options: Mapping[str, object]
    ) -> IsolatedSource:
        """Detect the layout of a stored file and open it, unless it contains images: then the source has no rows."""
        return self._open(DetectLayoutRequest(blob_id, name, content_type, dict(options), opens=True), {})

    def detect_layout(self, blob_id: str, *, name: str, options: Mapping[str, object]) -> FileLayout:
        request = DetectLayoutRequest(blob_id, name, "", dict(options), opens=False)
        with use_reader_process() as process:
            return self.run(process, request, SourceOpened, {}).get_layout()

    def run(
        self,
        process: ReaderProcess,
        request: ReaderRequest,
        expected: type[ResponseT],
        resumed_at: Checkpoint,
    ) -> ResponseT:
        limits = self._limits
        task = ReaderTask(
            request,
            limits.blobs,
            limits.max_row_bytes,
            limits.max_unpacked_bytes,
            limits.compute_cpu_s_after_checkpoint(resumed_at),
            limits.memory_mb,
        )
        return process.run(task, expected, self._should_continue)

    def close_source(self, process: ReaderProcess) -> None:
        try:
            if process.is_alive and process.has_started:
                self.run(process, CloseSourceRequest(), SourceClosed, {})
        except Exception:  # noqa: BLE001  the result is complete, and a new process replaces this one
            process.kill()
        _return_reader(process)

    def _open(self, request: OpenSourceRequest | DetectLayoutRequest, checkpoint: Checkpoint) -> IsolatedSource:
        process = _take_idle_or_new_reader()
        try:
            opened = self.run(process, request, SourceOpened, checkpoint)
        except BaseException:
            self.close_source(process)
            raise
        return IsolatedSource(self, process, opened, checkpoint)


def make_isolated_source_opener(settings: Settings) -> InputSourceOpener:
    """Return the opener for the sources of jobs in a worker process."""
    limits = ReaderLimits.from_settings(settings)

    def open_source(
        reference: SourceReference, checkpoint: Checkpoint, should_continue: ShouldContinue = lambda: True
    ) -> InputSource:
        return IsolatedReader(limits, should_continue).open_source(reference, checkpoint)

    return open_source
