"""Bodies as they come in: counted, timed, and heard out when they are refused."""

import asyncio
import contextlib
import re
import time
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope

IDLE_S = 30.0  # between two pieces of a body
SLOWEST = 1_000  # bytes a second, on average, once IDLE_S are over
LINGER_S = 2.0
LINGER_BYTES = 16 << 20
SMALL = 1 << 20  # of requests that carry no rows
TINY = 8 << 10  # of requests of strangers
_LARGE = re.compile(r"/v1/jobs|/v1/distributions")
_ROW = re.compile(r"/v1/jobs/[^/]+/items/[^/]+")
_FILES = re.compile(r"/v1/(jobs|imports|imports/preview|imports/[^/]+/fixes)")


class Body:
    """One request's body. Uploads count their bytes themselves, against a limit of their own."""

    def __init__(self, scope: Scope, receive: Receive, *, max_json_bytes: int, max_row_bytes: int) -> None:
        headers = Headers(scope=scope)
        self._receive = receive
        self._most = _most(scope, max_json_bytes, max_row_bytes)
        self._declared = headers.get("content-length", "0")
        self._started = time.monotonic()
        self._seen = 0
        self.is_unread = "transfer-encoding" in headers or self._declared != "0"
        self.is_encoded = self.is_unread and not _is_plain(headers)
        self.is_ambiguous = "transfer-encoding" in headers and "content-length" in headers

    async def receive(self) -> Message:
        if not self.is_unread:
            return await self._receive()
        if self._most is not None and is_more(self._declared, self._most):
            raise self._too_large()
        message = await self._next()
        if self._most is not None and self._seen > self._most:
            raise self._too_large()
        return message

    async def linger(self) -> None:
        """Hear a refused body out for a moment: who is cut off while sending may never see the answer."""
        enough = self._seen + LINGER_BYTES
        with contextlib.suppress(TimeoutError, HTTPException):
            async with asyncio.timeout(LINGER_S):
                while self.is_unread and self._seen < enough:
                    await self._next()

    async def _next(self) -> Message:
        late = self._started + IDLE_S + self._seen / SLOWEST - time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, min(IDLE_S, late))):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, "the rest of the body did not come in time") from None
        self._seen += len(message.get("body", b""))
        self.is_unread = message.get("more_body", False)
        return message

    def _too_large(self) -> HTTPException:
        return HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {self._most} bytes")


def is_more(content_length: str, most: int) -> bool:
    """Whether a body says itself that it is too long. Numbers are compared that no int should be made of, too."""
    digits = content_length.lstrip("0")
    return digits.isdigit() and (len(digits) > len(str(most)) or int(digits) > most)


def _is_plain(headers: Headers) -> bool:
    said = ",".join(headers.getlist("content-encoding")).split(",")
    return all(word.strip().lower() in ("", "identity") for word in said)


def is_json(headers: Headers) -> bool:
    return headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


def is_words(scope: Scope) -> bool:
    """Whether a body of JSON is what is asked for. Where that stands in the query, or in no body, it is a file."""
    if not is_json(Headers(scope=scope)) or scope["path"].endswith("/fixes"):
        return False
    return scope["path"] == "/v1/jobs" or not scope["query_string"]


def _most(scope: Scope, max_json_bytes: int, max_row_bytes: int) -> int | None:
    path = scope["path"]
    if scope["method"] == "POST" and _FILES.fullmatch(path) and not is_words(scope):
        return None
    if _LARGE.fullmatch(path):
        return max_json_bytes
    if _ROW.fullmatch(path):
        return min(max_row_bytes + SMALL, max_json_bytes)
    return min(TINY if path == "/v1/session" else SMALL, max_json_bytes)
