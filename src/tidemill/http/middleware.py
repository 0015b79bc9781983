"""The outermost middleware: request id, trace, body, and response headers."""

import asyncio
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

from tidemill.core.errors import TidemillError
from tidemill.rest import problems
from tidemill.rest.request_body import RequestBody
from tidemill.rest.responses import SlowReader
from tidemill.telemetry.events import bind_fields, emit

_REQUEST_ID_REGEX = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_TRACEPARENT_REGEX = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_CAMEL_CASE_BOUNDARY = re.compile(r"(?<=[a-z0-9])([A-Z]+)")

ABORT_CONNECTION_KEY = "tidemill.abort_connection"  # in the state of a request: closes the connection at once
# After a response has started, these have causes outside of Tidemill: the client, the database or the file store.
EXPECTED_STREAM_ERRORS = (SlowReader, TidemillError, OSError, EOFError)
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


class RequestMiddleware:
    """Adds a request id and the common headers to every response, and a problem document to every error."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        tracked = _TrackedRequest(scope, RequestBody(scope, receive), send)
        scope["query_string"] = convert_query_to_snake_case(scope["query_string"])
        with bind_fields(request_id=tracked.request_id, traceparent=tracked.traceparent):
            try:
                await self._handle_request(scope, tracked)
            except ClientDisconnect:
                tracked.is_complete = False  # there is no client to respond to
            finally:
                tracked.report_request_done()

    async def _handle_request(self, scope: Scope, tracked: "_TrackedRequest") -> None:
        if tracked.body.is_ambiguous:
            await tracked.send_problem(
                HTTPStatus.BAD_REQUEST,
                "The request has both Content-Length and Transfer-Encoding. Send only one of them.",
            )
            return
        if tracked.body.is_encoded:
            await tracked.send_problem(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                "Content-Encoding is not supported. Send the body without it.",
                {"Accept-Encoding": "identity"},
            )
            return
        try:
            await self._app(scope, tracked.body.receive, tracked.send)
        except ClientDisconnect:
            raise
        except asyncio.CancelledError:  # uvicorn cancels requests only when the server stops
            if tracked.status:
                tracked.abort("the server is shutting down")
            else:
                detail = "The server is shutting down. Retry the request."
                await tracked.send_last_problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, {"Retry-After": "5"})
        except Exception as error:  # noqa: BLE001  logged; the client gets no details
            cause = error.__cause__ or error  # Starlette wraps an error that it could not report in the response
            if tracked.status and isinstance(cause, EXPECTED_STREAM_ERRORS):
                tracked.abort(str(cause))
                return
            reason = problems.describe_internal_error(error)
            emit("request.failed", request_id=tracked.request_id, route=tracked.route, error=reason)
            if tracked.status:
                tracked.abort("internal error")
                return
            detail = "Internal error. See the log entries with this request id."
            await tracked.send_problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail)


class _TrackedRequest:
    def __init__(self, scope: Scope, body: RequestBody, send: Send) -> None:
        headers = Headers(scope=scope)
        self._scope = scope
        self._send = send
        self._started = self._ended = time.monotonic()
        self.body = body
        self.status = 0
        self.is_complete = True
        state: MutableMapping[str, Any] = scope.setdefault("state", {})
        self.request_id = get_header_if_well_formed(headers.get("x-request-id"), _REQUEST_ID_REGEX) or uuid4().hex
        self.traceparent = get_header_if_well_formed(headers.get("traceparent"), _TRACEPARENT_REGEX)
        state["request_id"] = self.request_id
        state["traceparent"] = self.traceparent
        state["body"] = body
        state["headers"] = {}
        state["cookie"] = None

    async def send_problem(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        response = problems.build_problem_response(self.request_id, status, detail, headers)
        await response(self._scope, self.body.receive, self.send)

    async def send_last_problem(self, status: int, detail: str, headers: dict[str, str]) -> None:
        """Send a problem and close the connection, without reading the rest of the body."""
        self.body.is_unread = False
        await self.send_problem(status, detail, headers | {"Connection": "close"})

    def abort(self, reason: str) -> None:
        """Report that the response ends early, and break the connection, so that it does not look complete."""
        self.is_complete = False
        emit("response.aborted", request_id=self.request_id, route=self.route, status=self.status, reason=reason)
        self._scope["state"].get(ABORT_CONNECTION_KEY, _do_nothing)()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._add_response_headers(MutableHeaders(scope=message))
        elif self.body.is_unread and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            self._ended = time.monotonic()
            await self.body.drain()
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await self._send(message)
        self._ended = time.monotonic()

    def _add_response_headers(self, headers: MutableHeaders) -> None:
        if self.body.is_unread:  # the body was rejected: the rest of it is not read
            headers["connection"] = "close"
        for name, value in (SECURITY_HEADERS | self._scope["state"]["headers"]).items():
            headers.setdefault(name, value)
        if self._scope["state"]["cookie"]:  # set here, so that errors and streams also have it
            headers.append("set-cookie", self._scope["state"]["cookie"])
        headers["x-request-id"] = self.request_id
        if self.traceparent:
            headers["traceparent"] = self.traceparent

    @property
    def route(self) -> str:
        """The declared path, because the actual path may contain a secret."""
        route = getattr(self._scope.get("route"), "path_format", "unknown")
        if self._scope["path"].startswith("/v1/") and route.startswith("/"):
            route = "/v1" + route.removeprefix("/v1")
        return str(route)

    def report_request_done(self) -> None:
        ms = round((self._ended - self._started) * 1000, 1)
        emit(
            "request.done",
            request_id=self.request_id,
            method=self._scope["method"],
            route=self.route,
            status=self.status,
            ms=ms,
            complete=self.is_complete,
        )


def _do_nothing() -> None:
    """The server of a test has no connection to abort."""


def get_header_if_well_formed(value: str | None, pattern: re.Pattern[str]) -> str | None:
    """Return a header value if it is well formed, because it is logged and stored; otherwise None."""
    return value if value is not None and pattern.fullmatch(value) else None


def convert_query_to_snake_case(query: bytes) -> bytes:
    """Convert camelCase parameters: pageSize becomes page_size. Names of filtered fields do not change."""
    if not _CAMEL_CASE_BOUNDARY.search(query.decode("latin-1")):
        return query
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    return urlencode([(_convert_name_to_snake_case(name), value) for name, value in pairs]).encode()


def _convert_name_to_snake_case(name: str) -> str:
    return name if name.startswith("filter[") else _CAMEL_CASE_BOUNDARY.sub(lambda hump: f"_{hump[1].lower()}", name)
