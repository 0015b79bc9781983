"""The main module of a reader process, which parses files of users for another process.

A file can make a parser slow, or exhaust the memory. A reader process has limits, and can be killed at any time.
"""

import os
import resource
import select
import signal
import sys
import threading
from math import ceil
from typing import BinaryIO

import msgspec

from tidemill.core.errors import InvalidInput
from tidemill.core.input_source import Checkpoint, InputSource, SourceReference
from tidemill.files.blobs import open_blob_store
from tidemill.files.layout_detection import inspect_layout
from tidemill.files.reader_messages import (
    MESSAGE_LENGTH,
    READER_STARTED,
    BlockRead,
    CloseSourceRequest,
    DetectLayoutRequest,
    OpenSourceRequest,
    ReadBlockRequest,
    ReaderResponse,
    ReaderTask,
    ReadSampleRequest,
    SourceClosed,
    SourceOpened,
    make_failed_response,
)
from tidemill.files.source_opener import SourceOpener


class FileReader:
    """Runs the requests of one process, one after another. At most one source is open."""

    def __init__(self) -> None:
        self._source: InputSource | None = None

    def run_task(self, task: ReaderTask) -> ReaderResponse:
        match task.request:
            case OpenSourceRequest(reference, checkpoint):
                return self._open_source(task, SourceReference.from_json(reference), checkpoint)
            case DetectLayoutRequest():
                return self._detect_layout(task, task.request)
            case ReadBlockRequest(rows, size):
                if self._source is None:
                    raise InvalidInput("No source is open")
                block = self._source.read(rows, size)
                return BlockRead(block.inputs, dict(block.checkpoint), block.defects, block.lines)
            case ReadSampleRequest():
                if self._source is None:
                    raise InvalidInput("No source is open")
                return BlockRead(self._source.read_sample(), {}, {}, None)
            case CloseSourceRequest():
                self.close_source()
                return SourceClosed()

    def close_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _detect_layout(self, task: ReaderTask, request: DetectLayoutRequest) -> SourceOpened:
        with open_blob_store(task.blobs).open(request.blob_id) as file:
            detected = inspect_layout(
                file, name=request.name, content_type=request.content_type, options=request.options
            )
        layout = detected.layout if request.opens else detected.require_certain()
        if not request.opens or layout.format == "images":
            return SourceOpened(layout.to_json())
        opened = self._open_source(task, SourceReference(blob=request.blob_id, format=layout.format, layout=layout), {})
        findings = [each.to_json() for each in detected.findings] + opened.findings
        return SourceOpened(opened.layout, opened.columns, opened.first_line, findings)

    def _open_source(self, task: ReaderTask, reference: SourceReference, checkpoint: Checkpoint) -> SourceOpened:
        self.close_source()
        open_source = SourceOpener(
            open_blob_store(task.blobs), max_row_bytes=task.max_row_bytes, max_unpacked_bytes=task.max_unpacked_bytes
        )
        self._source = source = open_source(reference, checkpoint)
        findings = [each.to_json() for each in getattr(source, "findings", ())]
        return SourceOpened(source.layout.to_json(), source.columns, source.first_line, findings)


def limit_cpu_time_and_memory(cpu_s: int, memory_mb: int) -> None:
    """Limit the CPU time of the next request: the system ends the process with SIGXCPU. Limit the memory."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _lower_limit(resource.RLIMIT_CPU, ceil(used.ru_utime + used.ru_stime) + cpu_s)
    if sys.platform == "linux":
        _lower_limit(resource.RLIMIT_DATA, memory_mb << 20)


def _lower_limit(which: int, value: int) -> None:
    """Set a limit, within the limit that the process inherited."""
    _, most = resource.getrlimit(which)
    resource.setrlimit(which, (value if most == resource.RLIM_INFINITY else min(value, most), most))


def serve_requests(requests: BinaryIO, responses: BinaryIO) -> None:
    """Run requests until the other process closes the pipe."""
    reader, decode, encode = FileReader(), msgspec.msgpack.Decoder(ReaderTask).decode, msgspec.msgpack.encode
    responses.write(READER_STARTED)
    responses.flush()
    while head := requests.read(MESSAGE_LENGTH.size):
        task = decode(requests.read(MESSAGE_LENGTH.unpack(head)[0]))
        limit_cpu_time_and_memory(task.cpu_s, task.memory_mb)
        response: ReaderResponse
        try:
            response = reader.run_task(task)
        except MemoryError:
            reader.close_source()
            response = make_failed_response(
                InvalidInput(f"Reading the file needs more than {task.memory_mb} MB of memory")
            )
        except Exception as error:  # noqa: BLE001  the other process raises it
            response = make_failed_response(error)
        data = encode(response)
        responses.write(MESSAGE_LENGTH.pack(len(data)) + data)
        responses.flush()


def exit_when_parent_closes_pipe() -> None:
    """End this process when the other process has closed the pipe, also while a file is being parsed."""
    pipe = select.poll()
    pipe.register(0, 0)  # reports only that the pipe was closed
    pipe.poll()
    os._exit(0)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # signals of a process group are for the other process
        signal.signal(number, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    responses = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not become part of a response
    threading.Thread(target=exit_when_parent_closes_pipe, daemon=True).start()
    serve_requests(sys.stdin.buffer, responses)


if __name__ == "__main__":
    main()
