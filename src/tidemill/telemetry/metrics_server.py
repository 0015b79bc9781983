"""Collects metrics of a process and its children, and serves them over HTTP.

prometheus_client is imported where it is used: the import takes 0.1 s, and children and commands do not need it.
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
def subscribe_metrics_if_enabled(
    settings: Settings, providers: Mapping[str, str] | None = None, *, only_these_kinds: bool = False
) -> "Iterator[MetricsSubscriber | None]":
    """Collect metrics of this process and its children; yields None if metrics are disabled.

    With ``only_these_kinds``, all kinds without a provider are counted as ``other``.
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
    """Serve the metrics of a worker on its port, if set; yields the environment variables that its children need."""
    if not settings.enable_metrics:
        yield {}
        return
    async with receive_child_events() as environment:
        if settings.metrics_port is None:
            yield environment  # another part of this process may serve the metrics
            return
        with subscribe_metrics_if_enabled(settings, providers, only_these_kinds=True) as meter:
            assert meter is not None  # noqa: S101  metrics are enabled
            async with serve_metrics(meter, settings.metrics_host, settings.metrics_port, settings.metrics_path):
                yield environment


METRICS_PORT_ATTEMPTS = 100  # so that several workers on one machine can have the same settings
METRICS_REQUEST_MAX_BYTES = 16 * 1024
METRICS_REQUEST_TIMEOUT_S = 5.0


class MetricsEndpoint:
    """Serves one request per connection."""

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
    """Serve metrics on a port, or on the next free one; yields the port."""
    server = await _listen_on_free_port(MetricsEndpoint(meter, path), host, port)
    async with server:
        port = server.sockets[0].getsockname()[1]
        emit("metrics.served", host=host, port=port, path=path)
        yield port


async def _listen_on_free_port(endpoint: MetricsEndpoint, host: str, first: int) -> asyncio.Server:
    problem: OSError | None = None
    for port in range(first, min(first + (METRICS_PORT_ATTEMPTS if first else 1), 65_536)):
        try:
            return await asyncio.start_server(endpoint.serve_connection, host, port, limit=METRICS_REQUEST_MAX_BYTES)
        except OSError as error:
            problem = error
            if error.errno != errno.EADDRINUSE:
                break
    raise InvalidSettings(f"Cannot serve metrics at {host}:{first}: {problem}")
