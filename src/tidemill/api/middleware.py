"""What every request goes through: its id, its trace, the limits of its body, and the headers of its answer."""

import re
import time
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlencode
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemill.api import problems
from tidemill.api.body import Body
from tidemill.telemetry.events import bound, emit

_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_TRACE = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")

SECURITY = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


class Entrance:
    """The outermost layer. Nothing that happens inside leaves without an id, and no error without a document."""

    def __init__(self, app: ASGIApp, *, max_json_bytes: int, max_row_bytes: int) -> None:
        self._app = app
        self._limits = {"max_json_bytes": max_json_bytes, "max_row_bytes": max_row_bytes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        visit = _Visit(scope, Body(scope, receive, **self._limits), send)
        scope["query_string"] = snake_case(scope["query_string"])
        with bound(request_id=visit.request_id, traceparent=visit.traceparent):
            try:
                await self._pass(scope, visit)
            except ClientDisconnect:
                pass  # nobody is there to answer to
            finally:
                visit.tell()

    async def _pass(self, scope: Scope, visit: "_Visit") -> None:
        if visit.body.is_ambiguous:
            await visit.refuse(HTTPStatus.BAD_REQUEST, "a body has either a Content-Length or a Transfer-Encoding")
            return
        if visit.body.is_encoded:
            await visit.refuse(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                "a body is taken as it is: send it without a Content-Encoding",
                {"Accept-Encoding": "identity"},
            )
            return
        try:
            await self._app(scope, visit.body.receive, visit.send)
        except ClientDisconnect:
            raise
        except Exception as error:  # the last net: told in the log, with no detail for strangers
            emit("request.failed", request_id=visit.request_id, route=visit.route, error=repr(error))
            if visit.status:
                raise  # it never ends as if complete: the connection breaks
            detail = "something went wrong here; the log has more, under the id of this request"
            await visit.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, detail)


class _Visit:
    def __init__(self, scope: Scope, body: Body, send: Send) -> None:
        headers = Headers(scope=scope)
        self._scope = scope
        self._send = send
        self._started = self._ended = time.monotonic()
        self.body = body
        self.status = 0
        state: MutableMapping[str, Any] = scope.setdefault("state", {})
        self.request_id = accepted(headers.get("x-request-id"), _ID) or uuid4().hex
        self.traceparent = accepted(headers.get("traceparent"), _TRACE)
        state["request_id"] = self.request_id
        state["traceparent"] = self.traceparent
        state["headers"] = {}
        state["cookie"] = None

    async def refuse(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        answer = problems.answer(self.request_id, status, detail, headers)
        await answer(self._scope, self.body.receive, self.send)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._dress(MutableHeaders(scope=message))
        elif self.body.is_unread and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            self._ended = time.monotonic()
            await self.body.linger()
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await self._send(message)
        self._ended = time.monotonic()

    def _dress(self, headers: MutableHeaders) -> None:
        if self.body.is_unread:  # the rest of a body that was refused is not worth reading
            headers["connection"] = "close"
        for name, value in (SECURITY | self._scope["state"]["headers"]).items():
            headers.setdefault(name, value)
        if self._scope["state"]["cookie"]:  # here, because an error and a stream must carry it as well
            headers.append("set-cookie", self._scope["state"]["cookie"])
        headers["x-request-id"] = self.request_id
        if self.traceparent:
            headers["traceparent"] = self.traceparent

    @property
    def route(self) -> str:
        """As it was declared: what stands in a path may be a secret."""
        route = getattr(self._scope.get("route"), "path_format", "unknown")
        if self._scope["path"].startswith("/v1/") and route.startswith("/"):
            route = "/v1" + route.removeprefix("/v1")
        return str(route)

    def tell(self) -> None:
        ms = round((self._ended - self._started) * 1000, 1)
        emit(
            "request.done",
            request_id=self.request_id,
            method=self._scope["method"],
            route=self.route,
            status=self.status,
            ms=ms,
        )


def accepted(value: str | None, pattern: re.Pattern[str]) -> str | None:
    """What a client sent, if it is well formed: it goes into logs and rows."""
    return value if value is not None and pattern.fullmatch(value) else None


def snake_case(query: bytes) -> bytes:
    """The documents' camelCase names as ours: pageSize is page_size. A filter names a field, which is what it is."""
    if not _HUMP.search(query.decode("latin-1")):
        return query
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    return urlencode([(_snake(name), value) for name, value in pairs]).encode()


def _snake(name: str) -> str:
    return name if name.startswith("filter[") else _HUMP.sub(lambda hump: f"_{hump[1].lower()}", name)
