"""Bodies as they come in: counted, timed, and heard out when they are refused."""

import asyncio
import contextlib
import re
import time
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope

BODY_IDLE_TIMEOUT_S = 30.0  # between two pieces of a body
MIN_BODY_BYTES_PER_S = 1_000  # bytes a second, on average, once IDLE_S are over
BODY_DRAIN_TIMEOUT_S = 2.0
BODY_DRAIN_MAX_BYTES = 16 << 20
SMALL_BODY_MAX_BYTES = 1 << 20  # of requests that carry no rows
SIGN_IN_BODY_MAX_BYTES = 8 << 10  # of requests of strangers
_INLINE_INPUT_PATHS = re.compile(r"/v1/jobs|/v1/distributions")
_ITEM_PATH = re.compile(r"/v1/jobs/[^/]+/items/[^/]+")
_UPLOAD_PATHS = re.compile(r"/v1/(jobs|imports|imports/preview|imports/[^/]+/fixes)")


class RequestBody:
    """One request's body. Uploads count their bytes themselves, against a limit of their own."""

    def __init__(self, scope: Scope, receive: Receive, *, max_json_bytes: int, max_row_bytes: int) -> None:
        headers = Headers(scope=scope)
        self._receive = receive
        self._max_bytes = _find_body_limit(scope, max_json_bytes, max_row_bytes)
        self._content_length = headers.get("content-length", "0")
        self._started = time.monotonic()
        self._received_bytes = 0
        self.is_unread = "transfer-encoding" in headers or self._content_length != "0"
        self.is_encoded = self.is_unread and not _has_identity_encoding(headers)
        self.is_ambiguous = "transfer-encoding" in headers and "content-length" in headers

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
        """Hear a refused body out for a moment: who is cut off while sending may never see the answer."""
        enough = self._received_bytes + BODY_DRAIN_MAX_BYTES
        with contextlib.suppress(TimeoutError, HTTPException):
            async with asyncio.timeout(BODY_DRAIN_TIMEOUT_S):
                while self.is_unread and self._received_bytes < enough:
                    await self._receive_chunk()

    async def _receive_chunk(self) -> Message:
        late = self._started + BODY_IDLE_TIMEOUT_S + self._received_bytes / MIN_BODY_BYTES_PER_S - time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, min(BODY_IDLE_TIMEOUT_S, late))):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, "the rest of the body did not come in time") from None
        self._received_bytes += len(message.get("body", b""))
        self.is_unread = message.get("more_body", False)
        return message

    def _make_too_large_error(self) -> HTTPException:
        return HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {self._max_bytes} bytes")


def content_length_exceeds(content_length: str, max_bytes: int) -> bool:
    """Whether a body says itself that it is too long. Numbers are compared that no int should be made of, too."""
    digits = content_length.lstrip("0")
    return digits.isdigit() and (len(digits) > len(str(max_bytes)) or int(digits) > max_bytes)


def _has_identity_encoding(headers: Headers) -> bool:
    said = ",".join(headers.getlist("content-encoding")).split(",")
    return all(word.strip().lower() in ("", "identity") for word in said)


def has_json_content_type(headers: Headers) -> bool:
    return headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


def carries_json_parameters(scope: Scope) -> bool:
    """Whether a body of JSON is what is asked for. Where that stands in the query, or in no body, it is a file."""
    if not has_json_content_type(Headers(scope=scope)) or scope["path"].endswith("/fixes"):
        return False
    return scope["path"] == "/v1/jobs" or not scope["query_string"]


def _find_body_limit(scope: Scope, max_json_bytes: int, max_row_bytes: int) -> int | None:
    path = scope["path"]
    if scope["method"] == "POST" and _UPLOAD_PATHS.fullmatch(path) and not carries_json_parameters(scope):
        return None
    if _INLINE_INPUT_PATHS.fullmatch(path):
        return max_json_bytes
    if _ITEM_PATH.fullmatch(path):
        return min(max_row_bytes + SMALL_BODY_MAX_BYTES, max_json_bytes)
    return min(SIGN_IN_BODY_MAX_BYTES if path == "/v1/session" else SMALL_BODY_MAX_BYTES, max_json_bytes)
