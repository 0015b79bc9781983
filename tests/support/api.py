"""Fixtures for tests that call the HTTP API: a server on a loopback port, and clients of its users."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from support import until
from tidemill import Item, Mill
from tidemill.app.runtime_factory import make_runtime
from tidemill.cli.http_server import HttpServer, open_listen_socket
from tidemill.config import Settings, SourceFolder
from tidemill.core.principal import Role
from tidemill.http.application import create_api
from tidemill.runtime import OnDemandPool
from tidemill.store import users, workers
from tidemill.store.database import Database
from tidemill.telemetry.metrics import MetricsSubscriber

ANY_PORT = Settings(http_port=0)


@dataclass
class Api:
    """A running API, and the keys and ids of its users by name."""

    app: FastAPI
    url: str
    db: Database
    settings: Settings
    keys: dict[str, str] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    _clients: list[httpx2.AsyncClient] = field(default_factory=list)

    @property
    def address(self) -> tuple[str, int]:
        url = httpx2.URL(self.url)
        return url.host, url.port or 80

    async def user(self, name: str, role: Role = Role.USER) -> httpx2.AsyncClient:
        """Return a client with the API key of a user. Create the user on the first call."""
        if name not in self.keys:
            self.ids[name] = (await self.db.run(users.add_user, name, role)).id
            self.keys[name], _ = await self.db.run(users.add_key, self.ids[name])
        return self.client({"Authorization": f"Bearer {self.keys[name]}"})

    def client(self, headers: dict[str, str] | None = None) -> httpx2.AsyncClient:
        # No connection here uses TLS, and loading the CA certificates would take 50 ms.
        client = httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=30, trust_env=False, verify=False)
        self._clients.append(client)
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


async def signed_in(api: Api, key: str) -> tuple[httpx2.AsyncClient, str]:
    """Sign in with an API key. Return a client with the session cookie, and its CSRF token."""
    browser = api.client()
    answer = await browser.post("/v1/session", json={"key": key})
    assert answer.status_code == 201, answer.text
    return browser, answer.json()["csrf_token"]


class PromptServer(HttpServer):
    """A server that stops as soon as ``end`` is set; uvicorn takes up to 200 ms, because it polls every 100 ms."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(app, app.state.runtime.settings)
        self.end = asyncio.Event()

    async def main_loop(self) -> None:
        for second in itertools.count():
            await self.on_tick(10 * second)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.end.wait(), 1)
                return

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        for _ in range(100):
            if not self.server_state.connections and not self.server_state.tasks:
                await self.lifespan.shutdown()
                return
            await asyncio.sleep(0.002)
        await super().shutdown(sockets)


@contextlib.asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[str]:
    with open_listen_socket(ANY_PORT) as listening:
        server = PromptServer(app)
        task = asyncio.create_task(server.serve(sockets=[listening]))
        await until(server.ready)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.end.set()
        await task


@pytest.fixture
def toy(settings: Settings) -> Mill:
    """Return a mill with the kind ``echo``, which fails items that have a field ``fail``."""
    mill = Mill(settings)

    @mill.handler("echo", max_attempts=2, backoff=0.01)
    async def echo(item: Item) -> Any:
        if isinstance(item.input, dict) and "fail" in item.input:
            raise ValueError(str(item.input["fail"]))
        return item.input

    return mill


@contextlib.asynccontextmanager
async def opened(
    settings: Settings, mill: Mill, *, on_demand_pool: OnDemandPool | None = None, **more: Any
) -> AsyncIterator[Api]:
    """Run an API with its own database pool, and register the kinds of the mill."""
    async with Database(str(settings.database_url), size=8, retry_for_s=5) as db:
        await db.run(workers.register_kinds, mill.registry.create_all())
        app = create_api(make_runtime(db, settings, on_demand_pool=on_demand_pool), **more)
        async with serving(app) as url:
            api = Api(app, url, db, settings)
            yield api
            await api.close()


def share_with_users(folder: Path) -> SourceFolder:
    """Return a source folder whose files every user may submit."""
    return SourceFolder(path=folder, read=(Role.USER,))


@pytest.fixture
async def make_api(settings: Settings, toy: Mill) -> AsyncIterator[Callable[..., Any]]:
    """Return a function that starts an API. Its keyword arguments change settings."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(**changes: Any) -> Api:
            return await stack.enter_async_context(
                opened(settings.model_copy(update=changes), toy, meter=MetricsSubscriber())
            )

        yield make


@pytest.fixture
async def api(make_api: Callable[..., Any]) -> Api:
    return await make_api()  # type: ignore[no-any-return]


@pytest.fixture
async def ada(api: Api) -> httpx2.AsyncClient:
    return await api.user("ada")


@pytest.fixture
async def bob(api: Api) -> httpx2.AsyncClient:
    return await api.user("bob")


@pytest.fixture
async def root(api: Api) -> httpx2.AsyncClient:
    return await api.user("root", Role.ADMIN)
