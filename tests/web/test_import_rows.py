"""Rows that are mended more than once, files of any size, and addresses that are not what they should be."""

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Route, expect

from support import rows
from web.conftest import OpenPage
from web.shop import SLOW, site, written
from web.site import Site

__all__ = ["site"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_row_that_is_mended_twice_is_imported_as_the_form_shows_it(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    text = "email,name,age\nbob@x.org,Bob,old\n"
    await page.get_by_label("File to import").set_input_files(written(tmp_path, "twice.csv", text))
    await page.get_by_role("button", name="To the columns").click()
    await page.get_by_role("button", name="Check all rows").click()
    await page.get_by_role("gridcell", name="Bob", exact=True).click()
    drawer = page.get_by_role("complementary")

    await drawer.get_by_label("name").fill("Oops")
    await drawer.get_by_label("age").fill("older")
    await drawer.get_by_role("button", name="Save and check").click()
    await expect(drawer.get_by_text("has errors")).to_be_visible()
    await expect(drawer.get_by_label("age")).to_be_editable(timeout=SLOW)
    await drawer.get_by_label("name").fill("Bob")
    await drawer.get_by_label("age").fill("44")
    await drawer.get_by_role("button", name="Save and check").click()
    await expect(drawer.get_by_text("good now")).to_be_visible(timeout=SLOW)
    await drawer.get_by_role("button", name="Close").click()
    await page.get_by_role("button", name="Import 1 good row").click()
    await page.get_by_role("dialog").get_by_role("button", name="Import 1").click()

    await expect(page.get_by_text("All rows are in people. 1 are new")).to_be_visible(timeout=SLOW)
    assert await rows(site.db, "SELECT name, age FROM shop.people WHERE email = 'bob@x.org'") == [("Bob", 44)]


async def test_a_service_that_takes_gigabytes_takes_small_files_too(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    async def generous(route: Route) -> None:
        said = await (await route.fetch()).json()
        await route.fulfill(body=json.dumps(said | {"max_file_size_mb": 4096}), content_type="application/json")

    page = await signed_in("ada")
    await page.route("**/v1/limits", generous)
    await page.goto(f"{site.url}/imports/new?resource=people")
    await expect(page.get_by_text("up to 4,096 MB")).to_be_visible()
    await page.get_by_label("File to import").set_input_files(written(tmp_path, "s.csv", "email,name\na@x.org,A\n"))
    await expect(page).to_have_url(re.compile("step=preview"))


@pytest.mark.parametrize("kind", ["imports", "distributions"])
async def test_an_address_with_a_slash_in_it_asks_for_nothing_else(site: Site, signed_in: OpenPage, kind: str) -> None:
    page = await signed_in("ada", f"/{kind}/..%2Fjobs", expect=("404",))
    await expect(page.get_by_text("Not Found")).to_be_visible()
