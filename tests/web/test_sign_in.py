"""Sign-in with keys and links, and expired sessions."""

import asyncio

import pytest
from playwright.async_api import Page, Route, expect

from support import rows, until
from web.conftest import OpenPage
from web.page_checks import axe, follow_link, screenshot
from web.site import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")
REFUSED = ("401",)


async def test_sign_in_with_key_returns_to_requested_url(site: Site, open_page: OpenPage) -> None:
    key = await site.user("ada")
    page = await open_page(expect=REFUSED)
    await page.goto(f"{site.url}/jobs?statuses=failed")
    field = page.get_by_label("API key or sign-in link")
    await expect(page.get_by_text("tidemill users link", exact=True)).to_be_visible()
    await axe(page)
    await screenshot(page, "sign-in")
    await field.fill("tm_12345678_wrong")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_contain_text("Invalid key or link")
    await field.fill(key)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    assert page.url == f"{site.url}/jobs?statuses=failed"


async def test_sign_in_link_used_twice_shows_error(site: Site, open_page: OpenPage) -> None:
    link = await site.link("ada")
    first = await open_page()
    await follow_link(first, link)
    await expect(first.get_by_role("heading", name="Import a file")).to_be_visible()
    second = await open_page(expect=REFUSED)
    await follow_link(second, link)
    await expect(second.get_by_role("alert")).to_contain_text("already used")


async def test_expired_session_dialog_signs_in_again_and_keeps_page_state(site: Site, signed_in: OpenPage) -> None:
    key = await site.user("ada")
    page = await signed_in("ada", expect=REFUSED)
    await page.get_by_role("searchbox").fill("J2026")
    await expect(page.get_by_text("No job matches")).to_be_visible()
    await rows(site.db, "DELETE FROM tidemill.session")
    await page.get_by_role("searchbox").fill("J2027")
    dialog = page.get_by_role("dialog", name="Signed out")
    await expect(dialog).to_be_visible()
    await axe(page)
    await dialog.get_by_label("API key or sign-in link").fill(key)
    await dialog.get_by_role("button", name="Sign in again").click()
    await expect(dialog).not_to_be_visible()
    assert await page.get_by_role("searchbox").input_value() == "J2027"
    await expect(page.get_by_text("No job matches")).to_be_visible()


async def test_late_401_after_new_sign_in_does_not_end_session(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("dora", expect=("401",))
    await expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
    is_requested, may_respond = asyncio.Event(), asyncio.Event()

    async def late(route: Route) -> None:
        response = await route.fetch()
        is_requested.set()
        await until(may_respond)
        await route.fulfill(response=response)

    await page.route("**/v1/flow*", late)
    await rows(site.db, "DELETE FROM tidemill.session")
    await ask(page, "/v1/flow")
    await until(is_requested)
    await ask(page, "/v1/jobs")
    dialog = page.get_by_role("dialog", name="Signed out")
    await dialog.get_by_label("API key or sign-in link").fill(await site.user("dora"))
    await dialog.get_by_role("button", name="Sign in again").click()
    await expect(dialog).to_be_hidden()
    async with page.expect_response("**/v1/flow*"):
        may_respond.set()
    await page.evaluate("new Promise((resolve) => setTimeout(resolve, 100))")  # the page handles the response
    assert await dialog.count() == 0


async def ask(page: Page, path: str) -> None:
    """Send a request through the API module of the page, without waiting for the response."""
    loaded = "performance.getEntriesByType('resource').map((one) => one.name)"
    module = await page.evaluate(f"{loaded}.find((name) => name.endsWith('/core/api.js'))")
    await page.evaluate(f"import('{module}').then((it) => void it.api.get('{path}').catch(() => 0))")
