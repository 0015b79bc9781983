"""Parses multipart/form-data as a stream of parts and their bytes."""

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
    """The start of a part: a field, or a file if it has a filename."""

    name: str
    filename: str | None
    media_type: str


@dataclass(frozen=True, slots=True)
class PartData:
    data: bytes


@dataclass(frozen=True, slots=True)
class PartEnd:
    """The end of a part."""


async def parse_multipart(
    content_type: str, body: AsyncIterator[bytes]
) -> AsyncIterator[PartStart | PartData | PartEnd]:
    """Yield the parts of a body in order; respond 400 if the body is malformed or incomplete."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise HttpError(400, "The Content-Type multipart/form-data has no boundary")
    collector = _MultipartCollector()
    try:
        parser = MultipartParser(boundary, collector.build_callbacks(), max_header_count=PART_HEADERS_MAX)
        async for chunk in body:
            parser.write(chunk)
            for event in collector.take_events():
                yield event
        parser.finalize()
    except FormParserError as error:
        raise HttpError(400, f"Malformed multipart body: {error}") from error
    if not collector.is_complete:
        raise HttpError(400, "Malformed multipart body: it is incomplete")


class _MultipartCollector:
    """Turns the callbacks of the parser into events."""

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
        events, self._events = self._events, []
        return events

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
