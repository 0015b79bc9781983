"""HTTP connections: limits on their number, a timeout for request heads, and responses to invalid requests."""

import asyncio
import resource
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any, cast
from uuid import uuid4

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidemill.config import Settings
from tidemill.http.middleware import ABORT_CONNECTION_KEY, SECURITY_HEADERS
from tidemill.rest import problems
from tidemill.rest.auth import normalize_caller_address
from tidemill.telemetry.events import emit

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
