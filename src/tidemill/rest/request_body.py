"""Request bodies: size and time limits, and draining of rejected bodies."""

import asyncio
import contextlib
import time
from enum import StrEnum
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope

from tidemill.config import Settings

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
