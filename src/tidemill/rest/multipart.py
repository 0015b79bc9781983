"""multipart/form-data as a stream of parts and their bytes."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from tidemill.rest.problems import HttpError

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

PART_HEADERS_MAX = 16


@dataclass(frozen=True, slots=True)
class PartStart:
    """A part begins: a field, or a file if it has a filename."""

    name: str
    filename: str | None
    media_type: str


@dataclass(frozen=True, slots=True)
class PartData:
    data: bytes


@dataclass(frozen=True, slots=True)
class PartEnd:
    """A part is over."""


async def parse_multipart(
    content_type: str, body: AsyncIterator[bytes]
) -> AsyncIterator[PartStart | PartData | PartEnd]:
    """What comes over the wire, in order; 400 when it is malformed or ends too early."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise HttpError(400, "multipart/form-data without a boundary")
    collector = _MultipartCollector()
    parser = MultipartParser(boundary, collector.build_callbacks(), max_header_count=PART_HEADERS_MAX)
    try:
        async for piece in body:
            parser.write(piece)
            for found in collector.take_events():
                yield found
        parser.finalize()
    except FormParserError as error:
        raise HttpError(400, f"malformed multipart body: {error}") from error
    if not collector.is_complete:
        raise HttpError(400, "malformed multipart body: it ends too early")


class _MultipartCollector:
    """Turns the parser's callbacks into pieces."""

    def __init__(self) -> None:
        self._events: list[PartStart | PartData | PartEnd] = []
        self._headers: dict[str, str] = {}
        self._field = self._value = b""
        self.is_complete = False

    def build_callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self.on_part_begin,
            "on_part_data": self.on_part_data,
            "on_part_end": self.on_part_end,
            "on_header_field": self.on_header_field,
            "on_header_value": self.on_header_value,
            "on_header_end": self.on_header_end,
            "on_headers_finished": self.on_headers_finished,
            "on_end": self.on_end,
        }

    def take_events(self) -> list[PartStart | PartData | PartEnd]:
        found, self._events = self._events, []
        return found

    def on_part_begin(self) -> None:
        self._headers = {}

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def on_header_end(self) -> None:
        self._headers[self._field.decode("latin-1").lower()] = self._value.decode("latin-1")
        self._field = self._value = b""

    def on_headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get("content-disposition", ""))
        filename = options.get(b"filename")
        media_type = self._headers.get("content-type", "").partition(";")[0].strip().lower()
        name = options.get(b"name", b"").decode("utf-8", "replace")
        self._events.append(
            PartStart(name, None if filename is None else filename.decode("utf-8", "replace"), media_type)
        )

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._events.append(PartData(data[start:end]))

    def on_part_end(self) -> None:
        self._events.append(PartEnd())

    def on_end(self) -> None:
        self.is_complete = True
