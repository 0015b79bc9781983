"""The first screen: a plain user imports a file; users with jobs and admins see the jobs."""

import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from tidemill.core.principal import Role
from web.conftest import OpenPage, serving
from web.page_checks import axe, screenshot
from web.shop import site, written
from web.site import Site

__all__ = ["site"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_first_screen_of_user_without_jobs_is_import_of_a_file(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("newcomer", "/")
    await expect(page).to_have_url(re.compile(r"/imports/new"))
    await expect(page.get_by_role("heading", name="Import a file", level=1)).to_be_visible()
    await expect(page.get_by_label("File to import")).to_be_attached()
    await expect(page.get_by_text("curl")).to_have_count(0)
    await expect(page).to_have_title("Import a file · Tidemill")
    await axe(page)
    await screenshot(page, "first-screen")
    await page.goto(f"{site.url}/jobs")
    await expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
    await expect(page.get_by_text("curl http")).to_be_hidden()
    await expect(page.get_by_role("main").get_by_role("link", name="Import a file")).to_have_count(2)


async def test_first_screen_of_user_with_jobs_is_jobs_list_with_import_button(site: Site, signed_in: OpenPage) -> None:
    await site.ask("busy", "POST", "/v1/exports", json={"resource": "people", "format": "csv"})
    page = await signed_in("busy", "/")
    await expect(page).to_have_url(re.compile(r"/jobs$"))
    await expect(page.get_by_role("row", name="export")).to_be_visible()
    await page.get_by_role("main").get_by_role("link", name="Import a file").click()
    await expect(page).to_have_url(re.compile(r"/imports/new"))


async def test_first_screen_of_admin_is_jobs_list(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("root", "/", role=Role.ADMIN)
    await expect(page).to_have_url(re.compile(r"/jobs$"))


async def test_user_without_writable_table_learns_what_administrator_must_do(
    site: Site, open_page: OpenPage, tmp_path: Path
) -> None:
    config = written(tmp_path, "tidemill.toml", "")
    async with serving(site.settings.model_copy(update={"config": config})) as bare:
        page = await open_page()
        await page.request.post((await site.link("newcomer")).replace(site.url, bare.url), max_redirects=0)
        await page.goto(bare.url)
        await expect(page.get_by_role("heading", name="No table is set up for your imports")).to_be_visible()
        await expect(page.get_by_text("Ask an administrator to declare a table in tidemill.toml")).to_be_visible()
        await expect(page.get_by_text("[resources.users]")).to_be_visible()
        await axe(page)
        await page.close()


async def test_first_screen_without_imports_feature_is_jobs_list(
    site: Site, open_page: OpenPage, tmp_path: Path
) -> None:
    changes = {"config": written(tmp_path, "tidemill.toml", ""), "disabled_features": ["imports"]}
    async with serving(site.settings.model_copy(update=changes)) as bare:
        page = await open_page()
        await page.request.post((await site.link("newcomer")).replace(site.url, bare.url), max_redirects=0)
        await page.goto(bare.url)
        await expect(page).to_have_url(re.compile(r"/jobs$"))
        await expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
        await expect(page.get_by_text("tidemill submit")).to_be_visible()
        await expect(page.get_by_role("link", name="Import a file")).to_have_count(0)
        await expect(page.get_by_role("link", name="Imports")).to_have_count(0)
        await expect(page.get_by_role("link", name="Exports")).to_be_visible()
        await page.close()
