"""The UI behind a proxy that serves it below a prefix and removes the prefix from requests."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import expect
from starlette.types import Receive, Scope, Send

from support import until
from tidemill.app.runtime_factory import make_runtime
from tidemill.cli.http_server import HttpServer, open_listen_socket
from tidemill.config import Settings
from tidemill.http.application import create_api
from tidemill.web.pages import install_pages
from web.conftest import OpenPage
from web.page_checks import follow_link
from web.site import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")
PREFIX = "/mill/of/ours"


class Proxy:
    """Remove the prefix from requests, and record the paths of requests without it."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.others: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if not scope["path"].startswith(PREFIX + "/"):
                self.others.append(scope["path"])
            scope = {**scope, **{name: scope[name][len(PREFIX) :] for name in ("path", "raw_path")}}
        await self._app(scope, receive, send)


@pytest_asyncio.fixture(loop_scope="session")
async def proxy(site: Site) -> AsyncIterator[tuple[str, Proxy]]:
    app = create_api(make_runtime(site.db, site.settings))
    install_pages(app)
    with open_listen_socket(Settings(http_port=0)) as listening:
        between = Proxy(app)
        server = HttpServer(between, Settings())  # type: ignore[arg-type]
        task = asyncio.create_task(server.serve(sockets=[listening]))
        await until(server.ready)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", between
        server.should_exit = True
        await task


async def test_web_ui_works_below_proxy_prefix(site: Site, proxy: tuple[str, Proxy], open_page: OpenPage) -> None:
    job = await site.submit("ada", [{"sku": "A-1"}, {"sku": "A-2"}])
    root, between = proxy
    link = (await site.link("ada")).removeprefix(site.url)
    page = await open_page()
    await follow_link(page, root + PREFIX + link)
    await expect(page).to_have_url(f"{root}{PREFIX}/jobs")
    await page.get_by_role("link", name=job["key"]).click()
    await expect(page).to_have_url(f"{root}{PREFIX}/jobs/{job['key']}")
    await page.get_by_role("link", name="Results").first.click()
    await expect(page.get_by_role("gridcell", name="A-2")).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("gridcell", name="A-2")).to_be_visible()
    await page.get_by_role("button", name="Pause", exact=True).click()
    await expect(page.get_by_role("heading", name=job["key"]).locator("..")).to_contain_text("paused")
    await page.go_back()
    await expect(page).to_have_url(f"{root}{PREFIX}/jobs/{job['key']}")
    await page.keyboard.press("g")
    await page.keyboard.press("o")
    await expect(page).to_have_url(f"{root}{PREFIX}/operations")
    assert between.others == []
