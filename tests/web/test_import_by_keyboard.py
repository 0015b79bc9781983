"""A whole import with the keyboard only: no pointer, and no focus set by the test."""

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import FileChooser, Locator, Page, expect

from support import rows
from web.conftest import OpenPage
from web.shop import SLOW, people_csv, site, written
from web.site import Site

__all__ = ["site"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
MAX_TABS = 60
# The outline of the focused element, or of the drop zone around it, is visible.
HAS_VISIBLE_FOCUS = """() => {
  const one = document.activeElement;
  const shown = one.closest(".drop") ?? one;
  return getComputedStyle(shown).outlineStyle !== "none" && parseFloat(getComputedStyle(shown).outlineWidth) > 0;
}"""


async def tab_to(page: Page, target: Locator) -> None:
    """Press Tab until the target has the focus, and check that the focus is visible."""
    for _ in range(MAX_TABS):
        await page.keyboard.press("Tab")
        if await target.evaluate("one => one === document.activeElement"):
            assert await page.evaluate(HAS_VISIBLE_FOCUS), "the focus is not visible"
            return
    pytest.fail(f"Tab does not reach {target}")


async def choose_option(page: Page, select: Locator, text: str) -> None:
    """Choose an option by typing its first letters."""
    await tab_to(page, select)
    await page.keyboard.type(text)


async def test_whole_import_works_with_keyboard_only(site: Site, signed_in: OpenPage, tmp_path: Path) -> None:
    page = await signed_in("kay", "/")
    path = written(tmp_path, "keys.csv", people_csv(30, bad=3, prefix="keyboard"))
    await expect(page).to_have_url(re.compile("resource=people"))
    await expect(page.get_by_text("key: email")).to_be_visible()
    await expect(page.get_by_text("up to 8 MB")).to_be_visible()
    choosers: asyncio.Queue[FileChooser] = asyncio.Queue()
    page.on("filechooser", choosers.put_nowait)  # before the first key: the browser must know it when Enter arrives
    await tab_to(page, page.get_by_label("File to import"))
    await page.keyboard.press("Enter")
    await (await asyncio.wait_for(choosers.get(), 20)).set_files(path)

    await expect(page.get_by_role("heading", name="Detected format of keys.csv")).to_be_focused()
    await expect(page.get_by_role("heading", name="Import into people keys.csv", level=1)).to_be_visible()
    await expect(page.get_by_role("columnheader", name="E-Mail → email")).to_be_visible()
    await tab_to(page, page.get_by_role("button", name="Continue to columns"))
    await page.keyboard.press("Enter")

    await expect(page.get_by_role("heading", name="Columns")).to_be_focused()
    await choose_option(page, page.get_by_label("Field of column Full name"), "name")
    await expect(page.get_by_label("Field of column Full name")).to_have_value("name")
    await tab_to(page, page.get_by_role("row", name="Remarks").get_by_role("button", name="Leave out"))
    await page.keyboard.press("Space")
    await expect(page.get_by_text("The column mapping for people is complete.")).to_be_visible()
    check = page.get_by_role("button", name="Check all rows")
    await expect(check).to_be_enabled()
    await tab_to(page, check)
    await page.keyboard.press("Space")

    await expect(page.get_by_role("heading", name="Import into people", level=1)).to_be_focused(timeout=SLOW)
    await expect(page.get_by_role("button", name="Import 27 valid rows")).to_be_enabled(timeout=SLOW)
    await fix_row_by_keyboard(page)
    await promote_by_keyboard(page, site)


async def fix_row_by_keyboard(page: Page) -> None:
    cells = page.get_by_role("gridcell")
    await expect(cells.first).to_be_visible()
    await tab_to(page, page.locator(".grid [tabindex='0']").first)
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Enter")
    drawer = page.get_by_role("complementary")
    await expect(drawer.get_by_role("heading", name="Row 1", exact=True)).to_be_visible()
    await expect(drawer.get_by_label("E-Mail")).to_be_focused()
    await page.keyboard.press("Control+A")
    await page.keyboard.type("keyboard-fixed@example.org")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Import 28 valid rows")).to_be_visible(timeout=SLOW)
    await expect(drawer.get_by_role("heading", name="Row 11")).to_be_visible(timeout=SLOW)
    await page.keyboard.press("Escape")
    await expect(drawer).to_have_count(0)
    assert await page.evaluate("document.activeElement !== document.body"), (
        "closing the row keeps the focus on the page"
    )


async def promote_by_keyboard(page: Page, site: Site) -> None:
    promote = page.get_by_role("button", name="Import 28 valid rows")
    for _ in range(MAX_TABS):  # backwards: the button is above the grid
        await page.keyboard.press("Shift+Tab")
        if await promote.evaluate("one => one === document.activeElement"):
            break
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    confirm = dialog.get_by_role("button", name="Import 28")
    await expect(confirm).to_be_visible()
    await tab_to(page, confirm)
    dry_run = page.url
    await page.keyboard.press("Enter")
    await expect(page).not_to_have_url(dry_run)
    await expect(page.get_by_role("heading", name="Import into people", level=1)).to_be_focused(timeout=SLOW)
    imported = page.locator(".figures > div").filter(has=page.get_by_text("imported", exact=True)).locator("dd")
    await expect(imported).to_have_text("28", timeout=SLOW)
    assert await rows(site.db, "SELECT count(*) FROM shop.people WHERE email LIKE 'keyboard%%'") == [(28,)]
