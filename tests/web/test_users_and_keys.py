"""The API keys and users screens."""

import re

import httpx2
import pytest
from playwright.async_api import expect

from tidemill.core.principal import Role
from web.conftest import OpenPage
from web.page_checks import axe, follow_link, screenshot
from web.site import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def me(site: Site, key: str) -> int:
    async with httpx2.AsyncClient(
        base_url=site.url, headers={"Authorization": f"Bearer {key}"}, trust_env=False
    ) as one:
        return (await one.get("/v1/me")).status_code


async def test_api_key_is_shown_once_and_rejected_after_revocation(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("ada", "/keys")
    await page.get_by_role("button", name="New key").click()
    await page.get_by_label("Name").fill("<b>nightly</b> import")
    await page.get_by_label("Expires after").select_option("1 week")
    await axe(page)
    await page.get_by_role("button", name="Create key").click()
    dialog = page.get_by_role("dialog", name="Save this key")
    key = await dialog.get_by_role("code").inner_text()
    assert re.fullmatch(r"tm_[0-9a-f]{8}_[0-9a-f]{48}", key)
    await page.mouse.click(5, 5)
    await page.keyboard.press("Escape")
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_visible()
    await axe(page)
    await screenshot(page, "key-once")
    assert await me(site, key) == 200
    await dialog.get_by_role("button", name="I have saved it").click()
    row = page.get_by_role("row").filter(has_text="<b>nightly</b> import")
    await expect(row).to_contain_text(key[:11])
    await expect(page.get_by_text(key)).to_have_count(0)
    await axe(page)
    await screenshot(page, "keys")
    await row.get_by_role("button", name="Revoke").click()
    await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    await expect(row).to_contain_text("revoked")
    assert await me(site, key) == 401


async def test_sign_out_everywhere_else_ends_other_sessions(site: Site, signed_in: OpenPage) -> None:
    other, page = [await signed_in("bob", "/keys", expect=("401", "the server responded")) for _ in range(2)]
    await expect(page.get_by_role("table", name="Sessions").get_by_role("row")).to_have_count(3)
    await page.get_by_role("button", name="Sign out everywhere else").click()
    await page.get_by_role("dialog").get_by_role("button", name="Sign out everywhere else").click()
    await expect(page.get_by_role("table", name="Sessions").get_by_role("row")).to_have_count(2)
    await other.goto(f"{site.url}/keys")
    await expect(other.get_by_label("API key or sign-in link")).to_be_visible()
    await page.get_by_role("button", name="Sign out here").click()
    await expect(page.get_by_label("API key or sign-in link")).to_be_visible()


async def test_admin_adds_user_creates_link_changes_role_and_removes_user(
    site: Site, signed_in: OpenPage, open_page: OpenPage
) -> None:
    page = await signed_in("root", "/users", role=Role.ADMIN, expect=("409", "422", "the server responded"))
    await page.get_by_role("button", name="New user").click()
    await page.get_by_label("Name").fill("zoe")
    await page.get_by_role("button", name="Add").click()
    row = page.get_by_role("row", name=re.compile("^zoe"))
    await expect(row).to_contain_text("user")
    await axe(page)
    await screenshot(page, "users")
    await page.get_by_role("button", name="New user").click()
    await page.get_by_label("Name").fill("zoe")
    await page.get_by_role("button", name="Add").click()
    await expect(page.get_by_role("alert").filter(has_text='User "zoe" already exists')).to_be_visible()
    await page.get_by_role("button", name="Go back").click()

    await row.get_by_role("button", name="Sign-in link").click()
    link = await page.get_by_role("dialog").get_by_role("code").inner_text()
    await page.get_by_role("button", name="I have saved it").click()
    zoe = await open_page()
    await follow_link(zoe, link)
    await expect(zoe.get_by_role("button", name="zoe")).to_be_visible()
    await expect(zoe.get_by_role("link", name="Users")).to_have_count(0)
    await zoe.goto(f"{site.url}/users")
    await expect(zoe.get_by_text("Only admins can see users")).to_be_visible()
    await zoe.goto("about:blank")

    await row.get_by_role("button", name="Actions for zoe").click()
    await page.get_by_role("menuitem", name="Change role to admin").click()
    await page.get_by_role("dialog").get_by_role("button", name="Change role").click()
    await expect(row).to_contain_text("admin")
    await row.get_by_role("button", name="Actions for zoe").click()
    await page.get_by_role("menuitem", name="Remove").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await expect(row).to_have_count(0)


async def test_sources_screen_shows_watch_example_when_no_watches_exist(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("ada", "/sources")
    await expect(page.get_by_text("No watches")).to_be_visible()
    await expect(page.get_by_text("[watches.nightly]")).to_be_visible()
    await axe(page)
    await screenshot(page, "sources-empty")
