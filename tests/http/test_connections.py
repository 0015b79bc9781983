"""Connections: a timeout for request heads, limits on open connections, and the shutdown of the server."""

import asyncio
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from support import eventually, until
from support.api import ANY_PORT, Api
from support.raw_http import Wire, exchanged, is_problem, listening, wired
from tidemill.cli.http_server import HttpServer, open_listen_socket

GET = ("GET /v1 HTTP/1.1", "Host: x")


async def test_half_open_request_gets_408_when_head_timeout_ends(make_api: Callable[..., Any]) -> None:
    api: Api = await make_api(http_head_timeout_s=0.5)
    async with wired(api) as silent, wired(api) as slow, wired(api) as reused:
        await reused.send(*GET)
        assert (await reused.answer()).status_code == 200
        trickling = asyncio.create_task(trickle(slow))
        reused.writer.write(b"GET /v1 HTTP/1.1\r\nX-")
        for wire in (silent, slow, reused):
            answer = await wire.answer(within=5)
            assert (answer.status_code, is_problem(answer)) == (408, True)
            assert await wire.is_closed()
        trickling.cancel()


async def trickle(wire: Wire) -> None:
    """Send one byte after another, and never complete the head."""
    wire.writer.write(b"GET /v1 HTTP/1.1\r\nX-Long: ")
    while True:
        wire.writer.write(b"a")
        await asyncio.sleep(0.05)


async def test_connections_of_one_address_are_limited_and_freed(make_api: Callable[..., Any]) -> None:
    api: Api = await make_api(http_max_connections_per_address=20)
    async with AsyncExitStack() as stack:
        held = [await stack.enter_async_context(wired(api)) for _ in range(20)]
        answer = await exchanged(api, *GET)
        assert (answer.status_code, is_problem(answer)) == (429, True)
        assert answer.headers["retry-after"]
        await held[0].send(*GET, "Connection: close")
        assert (await held[0].answer()).status_code == 200, "open connections still work"
        assert await held[0].is_closed()
        assert (await exchanged(api, *GET)).status_code == 200


async def test_all_connections_are_limited(make_api: Callable[..., Any]) -> None:
    api: Api = await make_api(http_max_connections=4)  # of which one address gets half
    async with wired(api), wired(api):
        assert (await exchanged(api, *GET)).status_code == 429


def test_descriptor_limit_is_raised_to_hard_limit() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = 512 if hard == resource.RLIM_INFINITY else min(hard, 512)
    script = (
        f"import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (64, {wanted}));"
        "from tidemill.cli.http_server import raise_descriptor_limit as f; print(f(), r.getrlimit(r.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [str(wanted)] * 2


async def is_in_progress(server: HttpServer) -> bool:
    return bool(server.server_state.tasks)


async def test_upload_in_flight_gets_503_problem_when_server_stops(api: Api, ada: Any) -> None:
    server = HttpServer(api.app, api.settings)
    server.config.timeout_graceful_shutdown = 1
    key = ada.headers["authorization"]
    with open_listen_socket(ANY_PORT) as listening_socket, listening() as events:
        serving = asyncio.create_task(server.serve(sockets=[listening_socket]))
        await until(server.ready)
        wire = Wire(*await asyncio.open_connection(*listening_socket.getsockname()))
        head = ("POST /v1/jobs?kind=echo HTTP/1.1", "Host: x", f"Authorization: {key}", "Content-Type: text/csv")
        await wire.send(*head, "Content-Length: 1000000", body=b"sku\n" + b"x" * 1_000)
        await eventually(lambda: is_in_progress(server))
        server.should_exit = True
        answer = await wire.answer(within=10)
        assert (answer.status_code, is_problem(answer)) == (503, True)
        assert answer.headers["retry-after"]
        assert "shutting down" in answer.json()["detail"]
        assert await wire.is_closed()
        await serving
        wire.writer.close()
    done = [event.fields["status"] for event in events if event.name == "request.done"]
    assert done == [503]
