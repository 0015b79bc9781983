"""The distribution screens: a pasted table becomes files, and each file is shown as generated or reused."""

import pytest
from playwright.async_api import Page, expect

from support import rows
from web.conftest import OpenPage
from web.page_checks import axe, screenshot
from web.shop import SLOW, site
from web.site import Site

__all__ = ["site"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
INPUTS = "index_key\teffective_date\nABC\t20240202\nDEF\t2024-02-02\n"


async def ask(page: Page, site: Site, inputs: str, button: str) -> None:
    await page.goto(f"{site.url}/distributions/new?dataset=prices&policy=continue")
    await page.get_by_label("Inputs", exact=True).fill(inputs)
    await page.get_by_role("button", name=button).click()


async def test_distribution_generates_reuses_and_redrives_failed_files(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("ada", "/distributions")
    await expect(page.get_by_role("heading", name="No distributions yet")).to_be_visible(timeout=SLOW)
    await axe(page)
    await screenshot(page, "distributions-empty")
    await page.get_by_role("link", name="New distribution").first.click()
    await page.get_by_label("Inputs", exact=True).fill(INPUTS)
    await expect(page.get_by_text("2 inputs:")).to_be_visible()
    await axe(page)
    await screenshot(page, "distribution-new")
    await page.get_by_role("button", name="Generate 2 files").click()
    await expect(page.get_by_role("gridcell", name="generated")).to_have_count(2, timeout=SLOW)

    await ask(page, site, f"{INPUTS}BAD\t20240202\n", "Generate 3 files")
    await expect(page.get_by_role("gridcell", name="reused")).to_have_count(2, timeout=SLOW)
    await expect(page.get_by_text("completed with errors")).to_be_visible(timeout=SLOW)
    await expect(page.get_by_role("gridcell", name="division by zero")).to_be_visible(timeout=SLOW)
    await axe(page)
    await screenshot(page, "distribution")
    await expect(page.get_by_role("link", name="Download ABC 20240202")).to_be_in_viewport()
    async with page.expect_download() as taken:
        await page.get_by_role("link", name="Download ABC 20240202").click()
    assert (await taken.value).suggested_filename == "ABC_20240202.csv"
    assert (await (await taken.value).path()).read_text().startswith("member,price\nX,1.5")
    swatches = page.locator(".figures > div", has=page.locator(".swatch")).locator("dt")
    await expect(swatches).to_have_text(["done", "failed", "cancelled", "retrying", "processing"])
    await page.get_by_role("gridcell", name="ABC", exact=True).click()
    await expect(page.get_by_role("complementary")).to_contain_text("ABC_20240202.csv")
    await expect(page.get_by_role("complementary").get_by_role("link", name="Download")).to_be_visible()
    await axe(page)
    await page.keyboard.press("Escape")

    await rows(site.db, "UPDATE shop.settings SET divisor = 1")
    await page.get_by_role("button", name="Retry failed").click()
    await page.get_by_role("dialog").get_by_role("button", name="Retry", exact=True).click()
    await expect(page.locator(".head").get_by_text("completed", exact=True)).to_be_visible(timeout=SLOW)
    await expect(page.get_by_role("gridcell", name="generated")).to_have_count(1, timeout=SLOW)
    await page.goto(f"{site.url}/distributions")
    await expect(page.get_by_role("row")).to_have_count(3)
    await axe(page)
    await screenshot(page, "distributions")


async def test_distribution_form_lists_every_invalid_input(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("ada", expect=("422",))
    await ask(page, site, "index_key,effective_date\nABC,20241399\nABC,soon\n", "Generate 2 files")
    await expect(page.get_by_role("alert").get_by_role("listitem")).to_have_count(2, timeout=SLOW)
    await page.get_by_label("Inputs", exact=True).fill('[{"index_key": "ABC"')
    await expect(page.get_by_text("Cannot read the inputs: the list is not valid JSON")).to_be_visible()
