"""The HTTP server: its socket, its event loop and its shutdown, and the limits and timeouts of its connections."""

import asyncio
import contextlib
import errno
import logging
import resource
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any, cast
from uuid import uuid4

import h11
import uvicorn
import uvloop
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidemill.app.bootstrap import relax_garbage_collector
from tidemill.app.mill import Mill
from tidemill.app.processes import open_http_runtime
from tidemill.app.worker import Worker
from tidemill.config import Settings
from tidemill.core.errors import InvalidSettings
from tidemill.http.application import create_api
from tidemill.http.middleware import ABORT_CONNECTION_KEY, SECURITY_HEADERS
from tidemill.rest import problems
from tidemill.rest.auth import normalize_caller_address
from tidemill.telemetry.events import emit
from tidemill.telemetry.metrics_server import subscribe_metrics_if_enabled
from tidemill.web.pages import install_pages

RESERVED_DESCRIPTORS = 256  # for the database, stored files, child processes and connections that are rejected
DESCRIPTORS_MAX = 65_536  # enough, if the operating system sets no limit
CLOSE_TIMEOUT_S = 10.0  # for a client that does not read the rest of a response
HEAD_TIMEOUT_DETAIL = "Timeout while reading the request line and headers"


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard limit, and return it. The default of 1,024 is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft if soft != resource.RLIM_INFINITY else DESCRIPTORS_MAX
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a connection is rejected."""

    status: int
    detail: str


class OpenConnections:
    """Counts the open connections of an API process: all of them, and those of each client address."""

    def __init__(
        self, *, max_open: int, max_per_address: int, trusted: Sequence[IPv4Network | IPv6Network] = ()
    ) -> None:
        self._max_open = max_open
        self._max_per_address = max_per_address
        self._trusted = trusted
        self._open = 0
        self._by_address: Counter[str] = Counter()

    def add(self, address: str) -> Rejection | None:
        """Count a connection; return why it must be rejected, or None. ``remove`` must follow in both cases."""
        self._open += 1
        self._by_address[address] += 1
        if self._open > self._max_open:
            return Rejection(503, "The server has too many open connections. Retry later.")
        if self._by_address[address] > self._max_per_address and not self._is_trusted(address):
            return Rejection(429, "Your address has too many open connections. Close some, or retry later.")
        return None

    def remove(self, address: str) -> None:
        self._open -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def _is_trusted(self, address: str) -> bool:
        try:
            parsed = ip_address(address)
        except ValueError:  # an IPv6 network, or a socket without an address
            return False
        return any(parsed in network for network in self._trusted)


class LimitedH11Protocol(H11Protocol):
    """The HTTP protocol of uvicorn, with limits, and with problem documents for invalid requests."""

    def __init__(self, *args: Any, open_connections: OpenConnections, head_timeout_s: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._open_connections = open_connections
        self._head_timeout_s = head_timeout_s
        self._head_timer: asyncio.TimerHandle | None = None
        self._address = "unknown"
        self._is_rejected = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, ABORT_CONNECTION_KEY: transport.abort}
        self._address = normalize_caller_address(self.client[0] if self.client else None)
        rejection = self._open_connections.add(self._address)
        if rejection is None:
            self._start_head_timer()
            return
        self._is_rejected = True
        self._send_problem(rejection.status, rejection.detail)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._open_connections.remove(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_rejected:
            return
        if self.conn.their_state is h11.IDLE:
            self._start_head_timer()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_head_timer()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self.loop.call_later(CLOSE_TIMEOUT_S, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        self._send_problem(HTTPStatus.BAD_REQUEST, msg)

    def _start_head_timer(self) -> None:
        """Start the timer, unless it runs: a client that sends one byte at a time gets no more time."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._head_timeout_s, self._on_head_timeout)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_head_timeout(self) -> None:
        self._send_problem(HTTPStatus.REQUEST_TIMEOUT, HEAD_TIMEOUT_DETAIL)

    def _send_problem(self, status: int, detail: str) -> None:
        """Send a problem document, unless a response has started, and close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.is_closing():
            for event in _build_problem_events(status, detail):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self.loop.call_later(CLOSE_TIMEOUT_S, self.transport.abort)


def make_protocol_factory(settings: Settings) -> type[asyncio.Protocol]:
    """Return the factory of the connections of one API process."""
    max_open = max(2, min(settings.http_max_connections, raise_descriptor_limit() - RESERVED_DESCRIPTORS))
    factory: Callable[..., LimitedH11Protocol] = partial(
        LimitedH11Protocol,
        open_connections=OpenConnections(
            max_open=max_open,
            max_per_address=min(settings.http_max_connections_per_address, max_open // 2),
            trusted=settings.trusted_proxies,
        ),
        head_timeout_s=settings.http_head_timeout_s,
    )
    return cast("type[asyncio.Protocol]", factory)  # uvicorn only calls it


def _build_problem_events(status: int, detail: str) -> tuple[h11.Response, h11.Data, h11.EndOfMessage]:
    request_id = uuid4().hex
    retry = problems.RETRY_AFTER_BY_STATUS.get(status)
    document = problems.build_problem_response(request_id, status, detail, {"retry-after": retry} if retry else None)
    more = SECURITY_HEADERS | {"x-request-id": request_id, "connection": "close"}
    headers = [*document.raw_headers, *((name.encode(), value.encode()) for name, value in more.items())]
    emit("request.done", request_id=request_id, method="unknown", route="unknown", status=status, ms=0.0, complete=True)
    return (
        h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode()),
        h11.Data(data=bytes(document.body)),
        h11.EndOfMessage(),
    )


logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # its messages duplicate Tidemill's events

HTTP_SHUTDOWN_TIMEOUT_S = 3
HTTP_CANCEL_TIMEOUT_S = 2.0
LISTEN_BACKLOG = 512
LOOPBACK_FOR_WILDCARD_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  a lookup, not a bind address


def run_with_uvloop(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine with uvloop, which uses less CPU time per request than the asyncio event loop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


class HttpServer(uvicorn.Server):
    """Sets ``ready`` when it accepts connections. It does not handle signals: the command stops the whole process."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        config = uvicorn.Config(
            app,
            http=make_protocol_factory(settings),
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # create_api adds the trusted proxies
            timeout_graceful_shutdown=HTTP_SHUTDOWN_TIMEOUT_S,
        )
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; requests that do not end in time are cancelled, and get time to respond 503."""
        await super().shutdown(sockets)
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=HTTP_CANCEL_TIMEOUT_S)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def open_listen_socket(settings: Settings) -> socket.socket:
    """Open the listening socket; raise InvalidSettings if the address cannot be used."""
    family = socket.AF_INET6 if ":" in settings.http_host else socket.AF_INET
    try:
        listening = socket.create_server(
            (settings.http_host, settings.http_port), family=family, backlog=LISTEN_BACKLOG
        )
    except OSError as error:
        address = f"{settings.http_host}:{settings.http_port}"
        reason = str(error.strerror).partition(" (while ")[0]
        hint = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        raise InvalidSettings(f"Cannot listen on {address}: {reason}. Set another {hint}.") from error
    # Connections inherit it. asyncio sets it only if a socket names its protocol, and this one does not. Without it,
    # the body of a response waits 40 ms for the client to acknowledge the headers.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def format_browser_url(listening: socket.socket) -> str:
    """Return the URL for a browser on this machine."""
    host, port, *_ = listening.getsockname()
    host = LOOPBACK_FOR_WILDCARD_HOST.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@asynccontextmanager
async def run_http_service(
    settings: Settings, listening: socket.socket, pool: Worker | None = None, mill: Mill | None = None
) -> AsyncIterator[None]:
    """Serve the API and the web UI while the block runs; ``pool`` runs kickoffs, ``mill`` may declare resources."""
    with subscribe_metrics_if_enabled(
        settings, None if mill is None else mill.registry.map_kinds_to_metric_providers()
    ) as meter:
        async with open_http_runtime(settings, pool, mill) as runtime:
            app = create_api(runtime, meter=meter)
            install_pages(app)
            server = HttpServer(app, settings)
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            await server.ready.wait()
            relax_garbage_collector()
            try:
                yield
            finally:
                server.should_exit = True
                await serving
