"""What a parent says to its child: a line each, through a pipe.

A line is far shorter than PIPE_BUF, so that it is written whole or not at all; a read may still end anywhere.
"""

from dataclasses import dataclass
from uuid import UUID

MAX_LINE = 512  # what POSIX promises to write in one piece


@dataclass(frozen=True, slots=True)
class Wake:
    """There may be work: of that job, if one is named."""

    job_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Finish what is in hand, then end."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Work on this job, for so long. ``number`` counts the slices of a child from 1."""

    number: int
    job_id: UUID
    kind: str
    milliseconds: int


@dataclass(frozen=True, slots=True)
class End:
    """The slice of that number is over; if it is over already, nothing."""

    number: int


Message = Wake | Stop | Begin | End


def encode(message: Message) -> bytes:
    words = _words(message)
    line = " ".join(map(str, words)).encode() + b"\n"
    if len(line) > MAX_LINE or len(line.split()) != len(words):
        raise ValueError(f"this cannot be said in one line: {message}")
    return line


def _words(message: Message) -> tuple[object, ...]:
    match message:
        case Wake(None):
            return ("w",)
        case Wake(job_id):
            return ("w", job_id)
        case Stop():
            return ("s",)
        case Begin(number, job_id, kind, milliseconds):
            return ("k", number, job_id, kind, milliseconds)
        case End(number):
            return ("e", number)


class Decoder:
    """Messages from reads that end anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Message]:
        """Every message that is whole by now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [_decode(line.decode()) for line in lines]


def _decode(line: str) -> Message:
    match line.split(" "):
        case ["w"]:
            return Wake()
        case ["w", job_id]:
            return Wake(UUID(job_id))
        case ["s"]:
            return Stop()
        case ["k", number, job_id, kind, milliseconds]:
            return Begin(int(number), UUID(job_id), kind, int(milliseconds))
        case ["e", number]:
            return End(int(number))
    raise ValueError(f"a parent does not say {line!r}")
