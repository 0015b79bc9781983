"""Collects metrics of a process and its children, and serves them over HTTP.

prometheus_client is imported where it is used: it takes 0.1 s that children and commands do not need.
"""

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from tidemill.config import Settings
from tidemill.core.errors import InvalidSettings
from tidemill.telemetry.child_events import receive_child_events
from tidemill.telemetry.events import emit, subscribe

if TYPE_CHECKING:
    from tidemill.telemetry.metrics import MetricsSubscriber


@contextmanager
def collect_metrics(
    settings: Settings, providers: Mapping[str, str] | None = None, *, only_these_kinds: bool = False
) -> "Iterator[MetricsSubscriber | None]":
    """Metrics of this process and of the children it has, for whoever serves them; None when they are switched off.

    With ``only``, of no other kinds than those whose providers are given.
    """
    if not settings.enable_metrics:
        yield None
        return
    from tidemill.telemetry.metrics import MetricsSubscriber  # noqa: PLC0415

    meter = MetricsSubscriber(providers, only_these_kinds=only_these_kinds)
    unsubscribe = subscribe(meter.record_event, children=True)
    try:
        yield meter
    finally:
        unsubscribe()


@asynccontextmanager
async def serve_worker_metrics(settings: Settings, providers: Mapping[str, str]) -> AsyncIterator[dict[str, str]]:
    """For the parent of a worker: metrics on its port, if it has one. What its children need in their environment."""
    if not settings.enable_metrics:
        yield {}
        return
    async with receive_child_events() as environment:
        if settings.metrics_port is None:
            yield environment  # another part of this process may have metrics to serve
            return
        with collect_metrics(settings, providers, only_these_kinds=True) as meter:
            assert meter is not None  # noqa: S101  they are switched on
            async with serve_metrics(meter, settings.metrics_host, settings.metrics_port, settings.metrics_path):
                yield environment


METRICS_PORT_ATTEMPTS = 100  # ports tried, so that workers on one machine can have the same settings
METRICS_REQUEST_MAX_BYTES = 16 * 1024
METRICS_REQUEST_TIMEOUT_S = 5.0


class MetricsEndpoint:
    """Answers one request per connection."""

    def __init__(self, meter: "MetricsSubscriber", path: str) -> None:
        self._meter = meter
        self._path = path

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
            async with asyncio.timeout(METRICS_REQUEST_TIMEOUT_S):
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                except asyncio.LimitOverrunError:
                    head = b""
                writer.write(self._build_response(head.decode("latin-1")))
                await writer.drain()
        writer.close()

    def _build_response(self, head: str) -> bytes:
        request, *headers = head.split("\r\n")
        method, _, rest = request.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if not rest:
            return _format_response(HTTPStatus.BAD_REQUEST)
        if path != self._path:
            return _format_response(HTTPStatus.NOT_FOUND)
        if method != "GET":
            return _format_response(HTTPStatus.METHOD_NOT_ALLOWED, headers="Allow: GET\r\n")
        named = (line.partition(":") for line in headers)
        accept = next((value.strip() for name, _, value in named if name.lower() == "accept"), "")
        body, content_type = self._meter.render(accept)
        return _format_response(HTTPStatus.OK, body, content_type)


def _format_response(
    status: HTTPStatus, body: bytes | None = None, content_type: str = "text/plain", headers: str = ""
) -> bytes:
    body = f"{status.phrase}\n".encode() if body is None else body
    headers += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    return f"HTTP/1.1 {status.value} {status.phrase}\r\n{headers}\r\n".encode() + body


@asynccontextmanager
async def serve_metrics(meter: "MetricsSubscriber", host: str, port: int, path: str) -> AsyncIterator[int]:
    """Answer Prometheus on a port, or the next free one after it; which."""
    server = await _start_server(MetricsEndpoint(meter, path), host, port)
    async with server:
        port = server.sockets[0].getsockname()[1]
        emit("metrics.served", host=host, port=port, path=path)
        yield port


async def _start_server(endpoint: MetricsEndpoint, host: str, first: int) -> asyncio.Server:
    problem: OSError | None = None
    for port in range(first, min(first + (METRICS_PORT_ATTEMPTS if first else 1), 65_536)):
        try:
            return await asyncio.start_server(endpoint.serve_connection, host, port, limit=METRICS_REQUEST_MAX_BYTES)
        except OSError as error:
            problem = error
            if error.errno != errno.EADDRINUSE:
                break
    raise InvalidSettings(f"cannot serve metrics at {host}:{first}: {problem}")
