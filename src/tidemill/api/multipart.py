"""multipart/form-data as a stream of parts and their bytes."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from tidemill.api.problems import Refusal

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

HEADERS_MAX = 16


@dataclass(frozen=True, slots=True)
class Part:
    """A part begins: a field, or a file if it has a filename."""

    name: str
    filename: str | None
    media_type: str


@dataclass(frozen=True, slots=True)
class Data:
    data: bytes


@dataclass(frozen=True, slots=True)
class End:
    """A part is over."""


async def parts(content_type: str, body: AsyncIterator[bytes]) -> AsyncIterator[Part | Data | End]:
    """What comes over the wire, in order; 400 when it is malformed or ends too early."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise Refusal(400, "multipart/form-data without a boundary")
    collector = _Collector()
    parser = MultipartParser(boundary, collector.callbacks(), max_header_count=HEADERS_MAX)
    try:
        async for piece in body:
            parser.write(piece)
            for found in collector.take():
                yield found
        parser.finalize()
    except FormParserError as error:
        raise Refusal(400, f"malformed multipart body: {error}") from error
    if not collector.is_complete:
        raise Refusal(400, "malformed multipart body: it ends too early")


class _Collector:
    """Turns the parser's callbacks into pieces."""

    def __init__(self) -> None:
        self._found: list[Part | Data | End] = []
        self._headers: dict[str, str] = {}
        self._field = self._value = b""
        self.is_complete = False

    def callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self.part_begin,
            "on_part_data": self.part_data,
            "on_part_end": self.part_end,
            "on_header_field": self.header_field,
            "on_header_value": self.header_value,
            "on_header_end": self.header_end,
            "on_headers_finished": self.headers_finished,
            "on_end": self.end,
        }

    def take(self) -> list[Part | Data | End]:
        found, self._found = self._found, []
        return found

    def part_begin(self) -> None:
        self._headers = {}

    def header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def header_end(self) -> None:
        self._headers[self._field.decode("latin-1").lower()] = self._value.decode("latin-1")
        self._field = self._value = b""

    def headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get("content-disposition", ""))
        filename = options.get(b"filename")
        media_type = self._headers.get("content-type", "").partition(";")[0].strip().lower()
        name = options.get(b"name", b"").decode("utf-8", "replace")
        self._found.append(Part(name, None if filename is None else filename.decode("utf-8", "replace"), media_type))

    def part_data(self, data: bytes, start: int, end: int) -> None:
        self._found.append(Data(data[start:end]))

    def part_end(self) -> None:
        self._found.append(End())

    def end(self) -> None:
        self.is_complete = True
