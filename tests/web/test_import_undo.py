"""Undo and redo of an import: the checkbox, the dialog with its three numbers, and the rows that were not reversed."""

from pathlib import Path

import pytest
from playwright.async_api import expect

from support import rows
from web.conftest import OpenPage
from web.page_checks import axe, screenshot
from web.shop import SLOW, site, written
from web.site import Site

__all__ = ["site"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
COUNT = "SELECT count(*) FROM shop.people WHERE starts_with(email, 'undo')"


async def test_import_is_undone_after_preview_and_redone(site: Site, signed_in: OpenPage, tmp_path: Path) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    lines = "".join(f"undo{n}@x.org,P,{n},\n" for n in range(12))
    file = written(tmp_path, "undo.csv", "email,name,age,role\n" + lines)
    await page.get_by_label("File to import").set_input_files(file)
    await page.get_by_role("button", name="Continue to columns").click()
    await page.get_by_role("checkbox", name="Keep the data to undo this import").check()
    await page.get_by_role("button", name="Import without checking").click()
    await expect(page.get_by_text("All rows were imported into people")).to_be_visible(timeout=SLOW)
    await rows(site.db, "UPDATE shop.people SET name = 'edited' WHERE email IN ('undo3@x.org', 'undo4@x.org')")
    await page.get_by_role("button", name="Undo import …").click()
    dialog = page.get_by_role("dialog")
    undo = dialog.get_by_role("button", name="Undo 10 rows")
    await expect(undo).to_be_enabled(timeout=SLOW)
    await expect(dialog.locator(".figures dd")).to_have_text(["10", "2", "0"])
    await axe(page)
    await screenshot(page, "import-undo")
    await undo.click()
    result = page.get_by_text("Undone: 10 rows. 2 kept, because they have changed since. 0 could not be reversed.")
    await expect(result).to_be_visible(timeout=SLOW)
    assert await rows(site.db, COUNT) == [(2,)]
    await page.get_by_text("Rows that were not reversed", exact=True).click()
    table = page.get_by_role("table", name="Rows that were not reversed")
    await expect(table.get_by_role("row", name="undo3@x.org kept the row has changed since")).to_be_visible()
    await axe(page)
    await page.get_by_role("button", name="Redo …").click()
    await dialog.get_by_role("button", name="Redo 10 rows").click()
    await expect(page.get_by_text("Redone: 10 rows. 0 kept")).to_be_visible(timeout=SLOW)
    assert await rows(site.db, COUNT) == [(12,)]


async def test_import_without_undo_has_no_undo_buttons(signed_in: OpenPage, tmp_path: Path) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    file = written(tmp_path, "plain.csv", "email,name,age,role\nnoundo@x.org,P,1,\n")
    await page.get_by_label("File to import").set_input_files(file)
    await page.get_by_role("button", name="Continue to columns").click()
    await expect(page.get_by_role("checkbox", name="Keep the data to undo this import")).not_to_be_checked()
    await page.get_by_role("button", name="Import without checking").click()
    await expect(page.get_by_text("All rows were imported into people")).to_be_visible(timeout=SLOW)
    await expect(page.get_by_role("button", name="Undo import …")).to_be_hidden()
    await expect(page.get_by_role("button", name="Redo …")).to_be_hidden()
