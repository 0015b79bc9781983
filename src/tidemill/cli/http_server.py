"""The HTTP server: its socket, its event loop and its shutdown."""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
import uvloop
from fastapi import FastAPI

from tidemill.app.bootstrap import relax_garbage_collector
from tidemill.app.mill import Mill
from tidemill.app.processes import open_http_runtime
from tidemill.app.worker import Worker
from tidemill.config import Settings
from tidemill.core.errors import InvalidSettings
from tidemill.http.application import create_api
from tidemill.http.connections import make_protocol_factory
from tidemill.telemetry.metrics_server import subscribe_metrics_if_enabled
from tidemill.web.pages import install_pages

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
