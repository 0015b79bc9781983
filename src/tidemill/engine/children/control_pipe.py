"""The control messages from a parent to its child: one line each, through a pipe.

A line is shorter than PIPE_BUF, so that it is written completely or not at all. A read may end anywhere.
"""

from dataclasses import dataclass
from uuid import UUID

MAX_MESSAGE_BYTES = 512  # the smallest PIPE_BUF that POSIX allows


@dataclass(frozen=True, slots=True)
class WakeMessage:
    """There may be new work, in this job if it is set."""

    job_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class StopMessage:
    """Finish the running items, then exit."""


@dataclass(frozen=True, slots=True)
class StartSliceMessage:
    """Work on this job for a limited time. ``number`` counts the slices of a child, starting at 1."""

    number: int
    job_id: UUID
    kind: str
    milliseconds: int


@dataclass(frozen=True, slots=True)
class EndSliceMessage:
    """End the slice with this number; no effect if it has ended."""

    number: int


ControlMessage = WakeMessage | StopMessage | StartSliceMessage | EndSliceMessage


def encode_message(message: ControlMessage) -> bytes:
    fields = _to_wire_fields(message)
    line = " ".join(map(str, fields)).encode() + b"\n"
    if len(line) > MAX_MESSAGE_BYTES or len(line.split()) != len(fields):
        raise ValueError(f"Control message is too long or has spaces in a field: {message}")
    return line


def _to_wire_fields(message: ControlMessage) -> tuple[object, ...]:
    match message:
        case WakeMessage(None):
            return ("w",)
        case WakeMessage(job_id):
            return ("w", job_id)
        case StopMessage():
            return ("s",)
        case StartSliceMessage(number, job_id, kind, milliseconds):
            return ("k", number, job_id, kind, milliseconds)
        case EndSliceMessage(number):
            return ("e", number)


class ControlDecoder:
    """Decodes messages from reads that may end anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[ControlMessage]:
        """Add data; return the messages that are complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [_decode_message(line.decode()) for line in lines]


def _decode_message(line: str) -> ControlMessage:
    match line.split(" "):
        case ["w"]:
            return WakeMessage()
        case ["w", job_id]:
            return WakeMessage(UUID(job_id))
        case ["s"]:
            return StopMessage()
        case ["k", number, job_id, kind, milliseconds]:
            return StartSliceMessage(int(number), UUID(job_id), kind, int(milliseconds))
        case ["e", number]:
            return EndSliceMessage(int(number))
    raise ValueError(f"Unknown control message: {line!r}")
