"""Fixtures: a real browser, a real service per module and real workers, all in one event loop."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect
from playwright.async_api import Error as PlaywrightError

from support import require, until
from tidemill import Mill
from tidemill.app.runtime_factory import make_runtime
from tidemill.cli.http_server import HttpServer, open_listen_socket
from tidemill.config import Settings
from tidemill.core.principal import Role
from tidemill.http.application import create_api
from tidemill.store import workers
from tidemill.store.database import Database
from tidemill.testing.throwaway_postgres import ThrowawayServer
from tidemill.web.pages import install_pages
from web.page_checks import Watch
from web.site import KINDS, UNSERVED_KIND, Site

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")  # the first one is the fastest
FLAGS = ["--disable-dev-shm-usage", "--enable-precise-memory-info"]
WINDOW = {"width": 1280, "height": 800}
expect.set_options(timeout=20_000)  # the machine may be busy
OpenPage = Callable[..., Awaitable[Page]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One browser per test process."""
    installed = next(filter(None, map(shutil.which, NAMES)), None)
    flags = [*FLAGS, "--no-sandbox"] if os.getuid() == 0 else FLAGS
    async with async_playwright() as playwright:
        try:  # without a path, Playwright uses the browser that it downloaded
            started = await playwright.chromium.launch(executable_path=installed, args=flags)
        except PlaywrightError:
            require(NAMES[0], installed)
            raise
        yield started
        await started.close()


def settings_in(url: str, folder: Path) -> Settings:
    return Settings(
        database_url=url,
        home=folder,
        poll_ms=50,
        flush_interval_ms=200,
        stop_grace_ms=500,
        rate_limit_per_s=1_000,
        rate_limit_burst=2_000,
        cpu_high_percent=1_000_000,
        memory_high_percent=100,
    )


@contextlib.asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Site]:
    async with Database(str(settings.database_url), size=8, retry_for_s=5) as db:
        app = create_api(make_runtime(db, settings))
        install_pages(app)
        with open_listen_socket(Settings(http_port=0)) as listening:
            server = HttpServer(app, app.state.runtime.settings)
            task = asyncio.create_task(server.serve(sockets=[listening]))
            await until(server.ready)
            yield Site(f"http://127.0.0.1:{listening.getsockname()[1]}", db, settings)
            server.should_exit = True
            await task


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tidemill_server: ThrowawayServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A service with its database and registered kinds, without a worker."""
    url = await asyncio.to_thread(tidemill_server.create_database)
    settings = settings_in(url, tmp_path_factory.mktemp("site"))
    async with serving(settings) as started:
        mill = Mill(settings)
        mill.handler("price.lookup")(lambda item: item.input)
        mill.handler(UNSERVED_KIND)(lambda item: item.input)
        await started.db.run(workers.register_kinds, mill.registry.create_all())
        yield started
        started.workers.end()
    await asyncio.to_thread(tidemill_server.drop_database, url)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def working(site: Site) -> Site:
    """The same service with a worker."""
    site.workers.app(KINDS)
    site.workers.start()
    return site


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(browser: Browser) -> AsyncIterator[OpenPage]:
    """Open tabs that fail the test on console errors, except errors that contain a text in ``expect``."""
    opened: list[Watch] = []

    async def make(*, expect: tuple[str, ...] = (), **options: Any) -> Page:
        context = await browser.new_context(**({"viewport": WINDOW} | options))
        context.set_default_timeout(20_000)
        page = await context.new_page()
        opened.append(Watch(page, expect))
        return page

    yield make
    for watch in opened:
        await watch.page.context.close()
    for watch in opened:
        watch.check()


@pytest.fixture
def signed_in(site: Site, open_page: OpenPage) -> OpenPage:
    """Open a tab of a user who signed in with a link."""

    async def make(name: str = "ada", to: str = "/jobs", role: Role = Role.USER, **options: Any) -> Page:
        page = await open_page(**options)
        await page.request.post(
            await site.link(name, role), max_redirects=0
        )  # gets only the cookie, so that the page loads once
        await page.goto(site.url + to)
        return page

    return make
