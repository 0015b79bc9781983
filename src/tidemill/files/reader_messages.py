"""The messages between a process and its reader process, and how errors are passed back."""

import struct
from typing import Any

import msgspec

from tidemill.core import errors
from tidemill.core.decide import describe_exception
from tidemill.core.file_format import FileLayout, LayoutFinding
from tidemill.core.input_source import Checkpoint, InputBlock, InputDefect

MESSAGE_LENGTH = struct.Struct("<Q")
READER_STARTED = b"\n"  # what a reader process sends before its first response


class OpenSourceRequest(msgspec.Struct, tag=True, frozen=True):
    """Open the source of a job at a checkpoint."""

    reference: dict[str, Any]
    checkpoint: Checkpoint


class DetectLayoutRequest(msgspec.Struct, tag=True, frozen=True):
    """Detect the layout of a stored file, and open the file with it if ``opens`` is set and it has rows.

    If ``opens`` is not set, a layout that is not certain is an error.
    """

    blob_id: str
    name: str
    content_type: str
    options: dict[str, Any]
    opens: bool


class ReadBlockRequest(msgspec.Struct, tag=True, frozen=True):
    """Read the next rows of the open source."""

    rows: int
    size: int


class ReadSampleRequest(msgspec.Struct, tag=True, frozen=True):
    """Read records from all parts of the open source, without moving its position."""


class CloseSourceRequest(msgspec.Struct, tag=True, frozen=True):
    """Close the open source, if any."""


ReaderRequest = OpenSourceRequest | DetectLayoutRequest | ReadBlockRequest | ReadSampleRequest | CloseSourceRequest


class ReaderTask(msgspec.Struct, frozen=True):
    """A request, with the blob store and the limits that apply to it."""

    request: ReaderRequest
    blobs: str
    max_row_bytes: int
    max_unpacked_bytes: int
    cpu_s: int
    memory_mb: int


class SourceOpened(msgspec.Struct, tag=True, frozen=True):
    """The layout with the findings of its detection, and the columns and the first line if the file is open."""

    layout: dict[str, Any]
    columns: list[str] | None = None
    first_line: int = 1
    findings: list[dict[str, Any]] = []

    def get_layout(self) -> FileLayout:
        return FileLayout.from_json(self.layout)

    def get_findings(self) -> tuple[LayoutFinding, ...]:
        return tuple(LayoutFinding(**each) for each in self.findings)


class BlockRead(msgspec.Struct, tag=True, frozen=True):
    """The rows of a block."""

    inputs: list[bytes]
    checkpoint: dict[str, int]
    defects: dict[int, InputDefect]
    lines: list[int] | None

    def to_block(self) -> InputBlock:
        return InputBlock(self.inputs, self.checkpoint, self.defects, self.lines)


class SourceClosed(msgspec.Struct, tag=True, frozen=True):
    """The source is closed."""


class RequestFailed(msgspec.Struct, tag=True, frozen=True):
    """The request raised an error. ``error_type`` is the name of a class in ``core.errors``, or OSError."""

    error_type: str
    message: str

    def to_exception(self) -> Exception:
        kind = getattr(errors, self.error_type, OSError)
        error: Exception = kind(self.message)
        return error


ReaderResponse = SourceOpened | BlockRead | SourceClosed | RequestFailed


def make_failed_response(error: Exception) -> RequestFailed:
    """Convert an error. An unexpected error is an error in the file: it would occur again."""
    if isinstance(error, errors.TidemillError):
        return RequestFailed(type(error).__name__, str(error))
    if isinstance(error, OSError):
        return RequestFailed("OSError", str(error))
    return RequestFailed(errors.InvalidInput.__name__, describe_exception(error))
