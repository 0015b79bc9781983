"""At 200% zoom (half the window) and on a phone, no page is wider than its window and every control is reachable."""

from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tidemill.core.principal import Role
from web.conftest import OpenPage
from web.page_checks import isolated
from web.shop import SLOW, people_csv, written
from web.shop import site as shop
from web.site import Site
from web.test_imports import leave_out_and_map

__all__ = ["shop"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
SIZES = {"phone": {"width": 390, "height": 800}, "zoomed": {"width": 640, "height": 400}}
SCREENS = (
    ("/jobs", "Jobs"),
    ("/pending", "Pending"),
    ("/dead-letters", "Failed items"),
    ("/imports", "Imports"),
    ("/imports/new", "Import a file"),
    ("/exports", "Exports"),
    ("/exports/new", "New export"),
    ("/distributions", "Distributions"),
    ("/distributions/new", "New distribution"),
    ("/sources", "Watches"),
    ("/operations", "Operations"),
    ("/service", "Health"),
    ("/keys", "API keys"),
    ("/users", "Users"),
)
TABS = ("", "/results", "/pending", "/errors", "/config", "/activity")
# The elements that make a page wider than its window.
TOO_WIDE = """
(() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return "";
  const isCut = (one) => one.closest(".table-box > *, .grid-scroll > *");
  const all = [...document.body.querySelectorAll("*")].filter((one) => one.getBoundingClientRect().right > width + 1);
  const wide = all.filter((one) => !isCut(one)).map((one) => one.outerHTML.slice(0, 100));
  return wide.slice(-3).join("\\n") || "something";
})()
"""
# Controls outside of the window that are not in a box that scrolls horizontally.
OUT_OF_REACH = """
[...document.querySelectorAll("main :is(button, a, input, select), header :is(button, a)")].filter((one) => {
  const box = one.getBoundingClientRect();
  if (box.width === 0 || one.closest(".table-box, .grid-scroll, .tabs, pre, .unseen")) return false;
  return box.left < -1 || box.right > window.innerWidth + 1;
}).map((one) => one.outerHTML.slice(0, 120)).join("\\n")
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def job(site: Site) -> dict[str, Any]:
    await site.user("root", Role.ADMIN)
    return await site.submit("root", [{"sku": f"a rather long name of number {n}"} for n in range(200)])


async def assert_all_is_there(page: Page, where: str) -> None:
    assert await isolated(page, TOO_WIDE) == "", f"{where} is wider than its window"
    assert await isolated(page, OUT_OF_REACH) == "", f"{where} has controls out of reach"


@pytest.mark.parametrize("size", sorted(SIZES))
async def test_every_screen_fits_phone_and_zoomed_viewport(
    site: Site, signed_in: OpenPage, job: dict[str, Any], size: str
) -> None:
    page = await signed_in("root", role=Role.ADMIN, viewport=SIZES[size])
    for path, name in SCREENS:
        await page.goto(site.url + path)
        await expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
        await assert_all_is_there(page, path)
    for tab in TABS:
        await page.goto(f"{site.url}/jobs/{job['key']}{tab}")
        await expect(page.get_by_role("heading", name=job["key"])).to_be_visible()
        await assert_all_is_there(page, f"the tab {tab or 'overview'} of a job")


# Statuses and actions that are outside of the window, also in a box that scrolls horizontally; grids excepted.
CUT_OFF = """
[...document.querySelectorAll("main :is(.status, .main-act, td button, td a, td select)")].filter((one) => {
  const box = one.getBoundingClientRect();
  if (box.width === 0 || one.closest(".grid-scroll, [popover]")) return false;
  return box.left < -1 || box.right > window.innerWidth + 1;
}).map((one) => one.outerHTML.slice(0, 120)).join("\\n")
"""


async def assert_nothing_is_cut_off(page: Page, where: str) -> None:
    await assert_all_is_there(page, where)
    assert await isolated(page, CUT_OFF) == "", f"{where} cuts off a status or an action"


async def test_phone_layout_shows_status_and_actions_of_lists_and_import_steps(
    shop: Site, open_page: OpenPage, tmp_path: Path
) -> None:
    await shop.user("root", Role.ADMIN)
    page = await open_page(viewport=SIZES["phone"])
    await page.request.post(await shop.link("root", Role.ADMIN), max_redirects=0)
    await page.goto(f"{shop.url}/imports/new?resource=people")
    await expect(page.get_by_role("heading", name="File and target table")).to_be_visible()
    await assert_nothing_is_cut_off(page, "the file step")
    name = "a file with a rather long name that does not fit on a phone.csv"
    await page.get_by_label("File to import").set_input_files(
        written(tmp_path, name, people_csv(30, bad=3, prefix="n"))
    )
    await expect(page.get_by_role("columnheader", name="E-Mail → email")).to_be_visible()
    await assert_nothing_is_cut_off(page, "the preview step")
    await page.get_by_role("button", name="Continue to columns").click()
    await expect(page.get_by_label("Field of column Full name")).to_be_visible()
    await assert_nothing_is_cut_off(page, "the columns step")
    await leave_out_and_map(page)
    await page.get_by_role("button", name="Check all rows").click()
    await expect(page.get_by_role("button", name="Import 27 valid rows")).to_be_enabled(timeout=SLOW)
    await assert_nothing_is_cut_off(page, "an import")

    await shop.ask("root", "POST", "/v1/exports", json={"resource": "people", "format": "csv"})
    inputs = [{"index_key": "ABC", "effective_date": 20240202}]
    await shop.ask("root", "POST", "/v1/distributions", json={"dataset": "prices", "inputs": inputs})
    [first, *_] = (await shop.ask("root", "GET", "/v1/jobs"))["jobs"]
    await shop.ask("root", "POST", f"/v1/jobs/{first['id']}/reprocess", json={"scope": "job", "statuses": ["failed"]})
    for path in ("/jobs", "/imports", "/exports", "/distributions", "/operations", "/keys", "/users"):
        await page.goto(shop.url + path)
        await expect(page.locator("main table.cards th[scope=row]").first).to_be_visible()
        await assert_nothing_is_cut_off(page, path)
    for path in ("/jobs", "/distributions"):
        await page.goto(shop.url + path)
        await page.locator("main table.cards th[scope=row] a").first.click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("prices")
        await assert_nothing_is_cut_off(page, f"the first entry of {path}")


async def test_phone_layout_opens_menu_and_full_screen_drawer(
    site: Site, signed_in: OpenPage, job: dict[str, Any]
) -> None:
    page = await signed_in("root", f"/jobs/{job['key']}/results", role=Role.ADMIN, viewport=SIZES["phone"])
    await page.get_by_role("grid").get_by_role("gridcell", name="a rather long name of number 1", exact=True).click()
    drawer = page.get_by_role("complementary")
    await expect(drawer.get_by_role("heading", name="Row 2")).to_be_visible()
    await expect(page.locator(".bar")).to_have_js_property(
        "inert", value=True
    )  # the content behind the drawer is inert
    await assert_all_is_there(page, "a row")
    await drawer.get_by_role("button", name="Close").click()
    await page.get_by_role("button", name="Menu").click()
    await page.get_by_role("link", name="Operations").click()
    await expect(page.get_by_role("heading", name="Operations", exact=True)).to_be_visible()
