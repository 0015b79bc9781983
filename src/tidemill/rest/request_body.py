"""Request bodies: size and time limits, and draining of rejected bodies."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pydantic
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic_core import from_json
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope

from tidemill.config import Settings
from tidemill.core.errors import InvalidInput, TooLarge
from tidemill.rest.problems import MESSAGE_BY_ERROR_TYPE, HttpError

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks


BODY_IDLE_TIMEOUT_S = 30.0  # between two chunks of a body
MIN_BODY_BYTES_PER_S = 1_000  # on average, after BODY_IDLE_TIMEOUT_S
BODY_DRAIN_TIMEOUT_S = 2.0
BODY_DRAIN_MAX_BYTES = 16 << 20
SMALL_BODY_MAX_BYTES = 1 << 20
SIGN_IN_BODY_MAX_BYTES = 8 << 10


class BodyLimit(StrEnum):
    """The content of a request body, which determines its maximum size. Every route declares it."""

    SMALL = "small"  # parameters only
    SIGN_IN = "sign_in"  # credentials, sent by a caller who is not authenticated yet
    ITEM = "item"  # one input
    INLINE_INPUTS = "inline_inputs"  # many inputs
    UPLOAD = "upload"  # a file, whose bytes `tidemill.jobs.upload` counts

    def compute_max_bytes(self, settings: Settings) -> int | None:
        """Return the maximum size in bytes; None for a file."""
        limits = {
            BodyLimit.SMALL: SMALL_BODY_MAX_BYTES,
            BodyLimit.SIGN_IN: SIGN_IN_BODY_MAX_BYTES,
            BodyLimit.ITEM: settings.max_row_bytes + SMALL_BODY_MAX_BYTES,
            BodyLimit.INLINE_INPUTS: settings.max_json_bytes,
        }
        return None if self is BodyLimit.UPLOAD else min(limits[self], settings.max_json_bytes)


class RequestBody:
    """The body of one request. Its route sets the limit before the first byte is read."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        headers = Headers(scope=scope)
        self._receive = receive
        self._max_bytes: int | None = SMALL_BODY_MAX_BYTES
        self._has_query = bool(scope["query_string"])
        self._is_json = has_json_content_type(headers)
        self.has_json_parameters = False
        self._content_length = headers.get("content-length", "0")
        self._started = time.monotonic()
        self._received_bytes = 0
        self.is_unread = "transfer-encoding" in headers or self._content_length != "0"
        self.is_encoded = self.is_unread and not _has_identity_encoding(headers)
        self.is_ambiguous = "transfer-encoding" in headers and "content-length" in headers

    def set_limit(self, settings: Settings, body: BodyLimit, json_body: BodyLimit | None) -> None:
        """Set the limit of the body; ``json_body`` applies if the body contains JSON parameters instead of a file.

        A JSON body is a file if the request has query parameters.
        """
        self.has_json_parameters = json_body is not None and self._is_json and not self._has_query
        limit = json_body if self.has_json_parameters and json_body is not None else body
        self._max_bytes = limit.compute_max_bytes(settings)

    async def receive(self) -> Message:
        if not self.is_unread:
            return await self._receive()
        if self._max_bytes is not None and content_length_exceeds(self._content_length, self._max_bytes):
            raise self._make_too_large_error()
        message = await self._receive_chunk()
        if self._max_bytes is not None and self._received_bytes > self._max_bytes:
            raise self._make_too_large_error()
        return message

    async def drain(self) -> None:
        """Read the rest of a rejected body for a limited time: a client may not read the response while it sends."""
        drained_bytes = self._received_bytes + BODY_DRAIN_MAX_BYTES
        with contextlib.suppress(TimeoutError, HTTPException):
            async with asyncio.timeout(BODY_DRAIN_TIMEOUT_S):
                while self.is_unread and self._received_bytes < drained_bytes:
                    await self._receive_chunk()

    async def _receive_chunk(self) -> Message:
        remaining_s = (
            self._started + BODY_IDLE_TIMEOUT_S + self._received_bytes / MIN_BODY_BYTES_PER_S - time.monotonic()
        )
        try:
            async with asyncio.timeout(max(0.0, min(BODY_IDLE_TIMEOUT_S, remaining_s))):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, "Timeout while reading the request body") from None
        self._received_bytes += len(message.get("body", b""))
        self.is_unread = message.get("more_body", False)
        return message

    def _make_too_large_error(self) -> HTTPException:
        return HTTPException(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The request body has more than {self._max_bytes} bytes"
        )


def content_length_exceeds(content_length: str, max_bytes: int) -> bool:
    """Return whether the declared length is too large. Very long numbers are compared without parsing them."""
    digits = content_length.lstrip("0")
    return digits.isdigit() and (len(digits) > len(str(max_bytes)) or int(digits) > max_bytes)


def _has_identity_encoding(headers: Headers) -> bool:
    encodings = ",".join(headers.getlist("content-encoding")).split(",")
    return all(encoding.strip().lower() in ("", "identity") for encoding in encodings)


def has_json_content_type(headers: Headers) -> bool:
    return headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


def carries_json_parameters(scope: Scope) -> bool:
    """Return whether the body contains JSON parameters. Otherwise it is a file."""
    body: RequestBody = scope["state"]["body"]
    return body.has_json_parameters


BodyModel = TypeVar("BodyModel", bound=pydantic.BaseModel)
DIRECT_PARSE_MAX_BYTES = 64 << 10
ARRAY_SCAN_WINDOW_BYTES = 256 << 10
COMMAS_PER_WINDOW_MAX = 1_000_000  # without the end of an input; real rows do not come close
# Where an input may end, and the number of tries for each marker.
ELEMENT_END_MARKERS = (
    (b"},", 8),
    (b"],", 4),
    (b'",', 2),
    (b",", 2),
)
INPUTS_FIELD = "inputs"
_UNKNOWN_FIELD_MESSAGE = re.compile(r"unknown field `(.*)`", re.DOTALL)


class LazyJsonArray(list[Any]):
    """Inputs that are parsed one by one during iteration."""

    def __iter__(self) -> Iterator[Any]:
        for number, one in enumerate(super().__iter__(), 1):
            try:
                yield from_json(bytes(one))
            except ValueError as error:
                raise InvalidInput(f"Input {number} is not valid JSON: {error}") from error


async def read_json_body(request: Request, model: type[BodyModel], *, max_inputs: int) -> BodyModel:
    """Parse the body as a model with at most ``max_inputs`` inputs."""
    if "content-type" in request.headers and not has_json_content_type(request.headers):
        sent = request.headers["content-type"].partition(";")[0]
        raise HttpError(415, f'Unsupported content type "{sent}". Send application/json.')
    body = await request.body()
    parsed = (
        _parse_whole_body(model, body)
        if len(body) <= DIRECT_PARSE_MAX_BYTES
        else await asyncio.to_thread(_parse_body_with_lazy_inputs, model, body, max_inputs)
    )
    if len(getattr(parsed, INPUTS_FIELD) or ()) > max_inputs:
        raise _make_too_many_error(max_inputs)
    return parsed


def to_request_validation_error(error: pydantic.ValidationError, location: str) -> RequestValidationError:
    return RequestValidationError([{**detail, "loc": (location, *detail["loc"])} for detail in error.errors()])


def make_validation_error(problems: Iterable[tuple[tuple[int | str, ...], str]]) -> RequestValidationError:
    """Return an error with these (location, message) pairs; a location starts with ``body`` or ``query``."""
    return RequestValidationError([{"type": "value_error", "loc": at, "msg": reason} for at, reason in problems])


def _parse_whole_body(model: type[BodyModel], body: bytes) -> BodyModel:
    try:
        return model.model_validate_json(body)
    except pydantic.ValidationError as error:
        raise to_request_validation_error(error, "body") from error


def _parse_body_with_lazy_inputs(model: type[BodyModel], body: bytes, max_inputs: int) -> BodyModel:
    parts = _split_body_into_raw_fields(model, body)
    inputs = parts.get(INPUTS_FIELD, b"").strip()
    if not inputs.startswith(b"["):
        return _parse_whole_body(model, _join_fields_within_limit(parts))
    # Problems of the other fields are reported before those of inputs.
    parameters = _parse_whole_body(model, _join_fields_within_limit(parts | {INPUTS_FIELD: b"[{}]"}))
    return parameters.model_copy(update={INPUTS_FIELD: LazyJsonArray(slice_json_array(inputs, max_inputs))})


def slice_json_array(array: bytes, max_elements: int) -> list[msgspec.Raw]:
    """Return the elements of a JSON array, unparsed; raise InvalidInput if there are more than ``max_elements``."""
    elements: list[msgspec.Raw] = []
    at, end, window = 1, len(array) - 1, ARRAY_SCAN_WINDOW_BYTES
    while at < end:
        part = next(_decode_slices_at_candidate_ends(array, at, min(at + window, end)), None)
        if part is None and at + window >= end:
            raise InvalidInput("The inputs are not a valid JSON array. Send them as a file.")
        if part is None:
            window *= 2
            continue
        at, window = part[0] + 1, ARRAY_SCAN_WINDOW_BYTES
        elements += part[1]
        if len(elements) > max_elements:
            raise _make_too_many_error(max_elements)
    return elements


def _decode_slices_at_candidate_ends(array: bytes, at: int, limit: int) -> Iterator[tuple[int, list[msgspec.Raw]]]:
    """Yield possible ends of a part that starts at an element, with the elements of the part.

    A part in brackets is valid JSON only if it ends between two elements, so wrong candidates are skipped.
    """
    for end in _find_candidate_slice_ends(array, at, limit):
        if array.count(b",", at, end) > COMMAS_PER_WINDOW_MAX:
            raise InvalidInput("An input has too many values, or there are too many inputs. Send the inputs as a file.")
        try:
            yield end, msgspec.json.decode(b"[" + array[at:end] + b"]", type=list[msgspec.Raw])
        except msgspec.DecodeError:
            continue


def _find_candidate_slice_ends(array: bytes, at: int, limit: int) -> Iterator[int]:
    if limit == len(array) - 1:
        yield limit
    for mark, tries in ELEMENT_END_MARKERS:
        found = limit
        for _ in range(tries):
            found = array.rfind(mark, at, found)
            if found < 0:
                break
            yield found + len(mark) - 1


def _split_body_into_raw_fields(model: type[pydantic.BaseModel], body: bytes) -> dict[str, bytes]:
    """Return the fields of a body, unparsed."""
    try:
        decoded = msgspec.json.decode(body, type=_make_struct_of_raw_fields(model))
    except msgspec.ValidationError as error:  # not an object, or an unknown field, whose name is only in the message
        named = _UNKNOWN_FIELD_MESSAGE.search(str(error))
        at, reason = (
            ("body",) + ((named[1],) if named else ()),
            MESSAGE_BY_ERROR_TYPE["extra_forbidden"] if named else str(error),
        )
        raise make_validation_error([(at, reason)]) from error
    except (msgspec.DecodeError, RecursionError) as error:
        invalid = {"type": "json_invalid", "loc": ("body",), "msg": "", "ctx": {"error": str(error)}}
        raise RequestValidationError([invalid]) from error
    parts = {name: bytes(getattr(decoded, name)) for name in model.model_fields}
    return {name: text for name, text in parts.items() if text}


@cache
def _make_struct_of_raw_fields(model: type[pydantic.BaseModel]) -> type[msgspec.Struct]:
    fields = [(name, msgspec.Raw, msgspec.Raw()) for name in model.model_fields]
    return msgspec.defstruct(model.__name__, fields, forbid_unknown_fields=True)


def _join_fields_within_limit(parts: dict[str, bytes]) -> bytes:
    body = b"{%s}" % b",".join(b'"%s":%s' % (name.encode(), text) for name, text in parts.items())
    if len(body) > SMALL_BODY_MAX_BYTES:
        raise TooLarge(f"The fields other than {INPUTS_FIELD} must have at most {SMALL_BODY_MAX_BYTES} bytes")
    return body


def _make_too_many_error(max_inputs: int) -> InvalidInput:
    return InvalidInput(f"{INPUTS_FIELD}: must have at most {max_inputs} entries in a JSON body. Send more as a file.")


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
