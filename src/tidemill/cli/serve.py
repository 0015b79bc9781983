"""The service: its socket, its event loop, its end."""

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
from tidemill.app.build import make_runtime
from tidemill.app.mill import Mill
from tidemill.app.worker import Worker
from tidemill.config import Settings
from tidemill.core.errors import InvalidSettings
from tidemill.engine.maintenance.maintenance_loop import BulkOperationLoop, QueueDepthLoop
from tidemill.http.application import create_api
from tidemill.http.middleware import ProblemH11Protocol
from tidemill.runtime import Runtime
from tidemill.store.open_database import open_database
from tidemill.tables.resource_registry import make_resource_registry
from tidemill.telemetry.metrics_server import collect_metrics
from tidemill.web.pages import install_pages

logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # what it warns of, our own events tell

HTTP_DB_RETRY_BUDGET_S = 5.0
HTTP_SHUTDOWN_TIMEOUT_S = 3
LISTEN_BACKLOG = 512
LOOPBACK_FOR_WILDCARD_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  known here, not listened on


def run_with_uvloop(main: Coroutine[Any, Any, None]) -> None:
    """In an event loop that costs less of each request."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


class HttpServer(uvicorn.Server):
    """Tells when it is ready. Signals are for whoever runs several things in one process, not for one of them."""

    def __init__(self, app: FastAPI) -> None:
        config = uvicorn.Config(
            app,
            http=ProblemH11Protocol,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # the service itself knows whom to believe
            timeout_graceful_shutdown=HTTP_SHUTDOWN_TIMEOUT_S,
        )
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def open_listen_socket(settings: Settings) -> socket.socket:
    """The socket first: that its port is taken must be said in one line, before anything is started."""
    family = socket.AF_INET6 if ":" in settings.http_host else socket.AF_INET
    try:
        listening = socket.create_server(
            (settings.http_host, settings.http_port), family=family, backlog=LISTEN_BACKLOG
        )
    except OSError as error:
        place = f"{settings.http_host}:{settings.http_port}"
        reason = str(error.strerror).partition(" (while ")[0]
        hint = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        raise InvalidSettings(f"cannot listen on {place}: {reason}; say another {hint}") from error
    # Connections inherit it. asyncio sets it by itself, but not where a socket does not name its protocol, as here:
    # then the body of an answer waits 40 ms for the client to acknowledge its head.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def format_browser_url(listening: socket.socket) -> str:
    """Where a browser on this machine finds it."""
    host, port, *_ = listening.getsockname()
    host = LOOPBACK_FOR_WILDCARD_HOST.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def check_declared_resources(runtime: Runtime) -> None:
    """InvalidSettings with every declared resource that does not match its table: nothing starts then."""
    problems = await runtime.get(make_resource_registry).list_problems(runtime.db)
    if problems:
        raise InvalidSettings("\n".join(problems))


@asynccontextmanager
async def run_http_service(
    settings: Settings, listening: socket.socket, pool: Worker | None = None, mill: Mill | None = None
) -> AsyncIterator[None]:
    """The API and the page, for as long as the block lasts.

    ``pool`` is where kickoffs run, ``mill`` may declare resources.
    """
    with collect_metrics(settings, None if mill is None else mill.registry.map_kinds_to_providers()) as meter:
        async with open_database(settings, patience=HTTP_DB_RETRY_BUDGET_S) as db:
            runtime = make_runtime(db, settings, None if mill is None else mill.registry, pool)
            app = create_api(runtime, meter=meter)
            install_pages(app)
            await check_declared_resources(runtime)
            server, loops = HttpServer(app), [BulkOperationLoop(db), QueueDepthLoop(db)]
            work = [server.serve(sockets=[listening]), *(loop.run() for loop in loops)]
            tasks = [asyncio.create_task(task) for task in work]
            await server.ready.wait()
            relax_garbage_collector()
            try:
                yield
            finally:
                for loop in loops:
                    loop.stop()
                server.should_exit = True
                await asyncio.gather(*tasks)
