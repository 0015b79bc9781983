"""Rules of an import in the columns step: values for every row, computed columns and rows to skip."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from support import rows
from tidemill.testing.throwaway_postgres import ThrowawayServer
from web.conftest import OpenPage
from web.page_checks import axe, screenshot
from web.shop import open_shop_site, written
from web.site import Site
from web.test_import_by_keyboard import tab_to
from web.test_imports import choose, figure

pytestmark = pytest.mark.asyncio(loop_scope="session")
SUMMARY = "Rules for all rows: set values, compute columns, skip rows"
GUESTS = """
[resources.guests]
table = "shop.people"
key = ["email"]
write = ["user"]
constants = { role = { from = "owner" } }
computed = { email = "lower(trim(email))" }
skip = ["state = 'gone'"]
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tidemill_server: ThrowawayServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with open_shop_site(tidemill_server, tmp_path_factory, GUESTS) as opened:
        yield opened


async def test_rules_are_added_by_keyboard_previewed_applied_and_remembered(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    lines = ["email,first,last name,state", "a@x.org,Ada,L,ok", "b@x.org,Bob,M,deleted", "c@x.org,Cy,N,ok"]
    await choose(page, written(tmp_path, "people.csv", "\n".join(lines)))
    await page.get_by_role("button", name="Continue to columns").click()
    await expect(page.get_by_text('No column for the required field "name"')).to_be_visible()
    await tab_to(page, page.get_by_text(SUMMARY))
    await page.keyboard.press("Enter")

    await tab_to(page, page.get_by_label("Field to set"))
    await page.keyboard.type("role")
    await page.keyboard.press("Tab")
    await page.keyboard.type("reader")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("list", name="Values for every row")).to_contain_text('role is "reader"')
    await tab_to(page, page.get_by_label("Field to compute"))
    await page.keyboard.type("name")
    await page.keyboard.press("Tab")
    await page.keyboard.type("concat(first, ' ', \"last name\")")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("list", name="Computed columns")).to_contain_text("name = concat(first")
    await tab_to(page, page.get_by_label("Column to check"))
    await page.keyboard.type("state")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Tab")
    await page.keyboard.type("deleted")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("list", name="Skip rows")).to_contain_text("state = 'deleted'")

    await expect(page.get_by_text("The column mapping for people is complete.")).to_be_visible()
    table = page.get_by_role("table", name="First rows with these rules")
    await expect(table.get_by_role("row", name="1 Ada L")).to_be_visible()
    await expect(table.get_by_role("row", name="2 \N{EN DASH}")).to_contain_text(
        "skipped by the rule: state = 'deleted'"
    )
    await axe(page)
    await screenshot(page, "import-rules")
    await page.get_by_role("button", name="Import without checking").click()
    await figure(page, "imported", "2")
    await page.get_by_text("Import settings").click()
    await expect(page.get_by_text("skip rows where state = 'deleted'")).to_be_visible()
    found = await rows(site.db, "SELECT email, name, role FROM shop.people ORDER BY email")
    assert found == [("a@x.org", "Ada L", "reader"), ("c@x.org", "Cy N", "reader")]

    await page.goto(f"{site.url}/imports/new?resource=people")
    await choose(page, written(tmp_path, "next.csv", "\n".join([lines[0], "d@x.org,Di,O,deleted"])))
    await expect(page.get_by_text("1 of the first 1 rows would be skipped")).to_be_visible()
    await page.get_by_role("button", name="Continue to columns").click()
    await page.get_by_role("button", name="Remove state = 'deleted'").click()
    await expect(page.get_by_role("list", name="Skip rows").get_by_role("listitem")).to_have_count(0)
    await expect(page.get_by_label("Column to check")).to_be_focused()
    await expect(page.get_by_role("list", name="Computed columns")).to_contain_text("name = concat(first")
    await page.get_by_role("button", name="Import without checking").click()
    await figure(page, "imported", "1")


async def test_invalid_rule_is_reported_with_its_position_and_can_be_removed(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    page = await signed_in("ada", "/imports/new?resource=people&memory=false", expect=("422",))
    await choose(page, written(tmp_path, "one.csv", "email,name\nz@x.org,Z\n"))
    await page.get_by_role("button", name="Continue to columns").click()
    await page.get_by_text(SUMMARY).click()
    await page.get_by_label("or a condition").fill("name = ")
    await page.get_by_label("or a condition").press("Enter")
    await expect(page.get_by_text("at character 7: expected a value, not the end")).to_be_visible()
    await expect(page.get_by_role("button", name="Check all rows")).to_be_disabled()
    await page.get_by_role("button", name="Remove name =").click()
    await expect(page.get_by_text("The column mapping for people is complete.")).to_be_visible()
    await expect(page.get_by_role("button", name="Check all rows")).to_be_enabled()


async def test_rules_of_the_resource_are_shown_and_cannot_be_changed(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    page = await signed_in("gus", "/imports/new?resource=guests")
    await choose(page, written(tmp_path, "guests.csv", "email,name,state\nG@X.org ,Gus,ok\nh@x.org,Hal,gone\n"))
    await page.get_by_role("button", name="Continue to columns").click()
    await expect(page.get_by_text('role is "gus"')).to_be_visible()
    await expect(page.get_by_text("email is lower(trim(email))")).to_be_visible()
    await expect(page.get_by_text("Rows are skipped where state = 'gone'")).to_be_visible()
    options = page.get_by_label("Field to set").get_by_role("option")
    assert await options.all_inner_texts() == ["Choose …", "name", "age", "at"]
    mapped = page.get_by_label("Field of column name").get_by_role("option")
    assert not [text for text in await mapped.all_inner_texts() if text.startswith("role")]
    await axe(page)
    await page.get_by_role("button", name="Import without checking").click()
    await figure(page, "imported", "1")
    assert await rows(site.db, "SELECT email, role FROM shop.people WHERE name = 'Gus'") == [("g@x.org", "gus")]
