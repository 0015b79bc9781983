"""The watches screen: watches, their files, and manual scans."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from support import rows
from tidemill.config import SourceFolder
from tidemill.core.principal import Role
from tidemill.testing.throwaway_postgres import ThrowawayServer
from web.conftest import OpenPage, serving, settings_in
from web.page_checks import axe, screenshot
from web.site import KINDS, Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

DECLARED = """
[watches.prices]
source = "inbox"
pattern = "*.csv"
owner = "ada"
every = "manual"
job = { kind = "price.lookup" }
[watches.people]
source = "inbox/people"
owner = "ada"
every = "manual"
stable_for = "0s"
import = { resource = "people" }
[resources.people]
table = "public.people"
write = ["user"]
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tidemill_server: ThrowawayServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    url = await asyncio.to_thread(tidemill_server.create_database)
    folder = tmp_path_factory.mktemp("watched")
    (folder / "inbox" / "people").mkdir(parents=True)
    (folder / "tidemill.toml").write_text(DECLARED)
    more = {
        "config": folder / "tidemill.toml",
        "sources": {"inbox": SourceFolder(path=folder / "inbox", read=(Role.USER,))},
    }
    settings = settings_in(url, folder).model_copy(update=more)
    async with serving(settings) as started:
        await rows(started.db, "CREATE TABLE public.people (email text PRIMARY KEY, age integer)")
        started.workers.app(KINDS)
        started.workers.start()
        yield started
        started.workers.end()
    await asyncio.to_thread(tidemill_server.drop_database, url)


async def test_watched_file_is_submitted_on_second_scan_and_links_to_job(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("ada", "/sources/prices")
    await asyncio.to_thread(
        (Path(str(site.settings.sources["inbox"].path)) / "today.csv").write_text, "sku\nA-1\nA-2\n"
    )
    table = page.get_by_role("table", name="Files of prices")
    scan = page.get_by_role("row", name="prices folder").get_by_role("button", name="Scan now")
    await scan.click()
    await expect(table).to_contain_text("today.csv")
    await expect(table).to_contain_text("seen")
    await axe(page)
    await expect(scan).to_be_enabled()
    await scan.click()  # unchanged since the first scan: the file is complete
    await expect(table.get_by_role("link")).to_be_visible()
    await screenshot(page, "sources")
    await table.get_by_role("link").click()
    await expect(page.get_by_text("price.lookup").first).to_be_visible()


async def test_file_with_changed_columns_is_held_until_accepted(site: Site, signed_in: OpenPage) -> None:
    folder = Path(str(site.settings.sources["inbox"].path)) / "people"
    for name, text in (("first.csv", "email\na\n"), ("second.csv", "email,age\nb,7\n"), ("third.csv", "age\n7\n")):
        await asyncio.to_thread((folder / name).write_text, text)
        for _ in range(2):
            await site.ask("ada", "POST", "/v1/ingestion/scan", json={"name": "people"})
    page = await signed_in("ada", "/sources/people")
    row = page.get_by_role("row", name="second.csv")
    await expect(row).to_contain_text('The columns changed (new: "age")')
    await axe(page)
    await row.get_by_role("button", name="Accept second.csv").click()
    await expect(row.get_by_role("link")).to_be_visible()
    other = page.get_by_role("row", name="third.csv")
    await other.get_by_role("button", name="Reject third.csv").click()
    await expect(other.get_by_role("button")).to_have_count(0)
    await expect(other).to_contain_text("rejected the changed columns")


async def test_watch_of_another_user_is_hidden(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("bo", "/sources/prices", expect=("/v1/sources/prices",))
    await expect(page.get_by_role("heading", name="No watches")).to_be_visible()
    await expect(page.get_by_text("today.csv")).to_have_count(0)
