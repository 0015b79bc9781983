"""One rule for all rows of an error, and edits of single cells in the grid of failed rows."""

from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, Route, expect

from support import rows
from web.conftest import OpenPage
from web.page_checks import axe, screenshot
from web.shop import SLOW, site, written
from web.site import Site

__all__ = ["site"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
HEADER = "email,name,age,role\n"


async def imported(page: Page, folder: Path, text: str) -> None:
    """Import a file without a dry run, and wait for its errors."""
    await page.get_by_label("File to import").set_input_files(written(folder, "repair.csv", HEADER + text))
    await page.get_by_role("button", name="Continue to columns").click()
    await page.get_by_role("button", name="Import without checking").click()
    await expect(page.locator(".head").get_by_text("completed with errors")).to_be_visible(timeout=SLOW)


def fix_all(page: Page, reason: str) -> Locator:
    """The button that fixes all rows with an error."""
    group = page.get_by_role("listitem").filter(has=page.get_by_role("button", name=reason))
    return group.get_by_role("button", name="Fix")


def cell(page: Page, text: str) -> Locator:
    return page.get_by_role("grid", name="Rows with errors").get_by_role("gridcell", name=text, exact=True)


async def test_rule_is_previewed_and_fixes_all_rows_of_error(site: Site, signed_in: OpenPage, tmp_path: Path) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    lines = [f"rule{n}@x.org,P,{f'4{n} years' if n < 8 else 'old' if n == 8 else n}," for n in range(12)]
    await imported(page, tmp_path, "\n".join(lines))
    button = fix_all(page, "age: wrong type")
    await expect(button).to_have_text("Fix 9 rows …")
    await button.click()
    dialog = page.get_by_role("dialog", name="Fix all rows with “age: wrong type”")
    await expect(dialog.get_by_role("combobox", name="Column")).to_have_value("age")
    apply = dialog.get_by_role("button", name="Fix", exact=False)
    await expect(apply).to_be_disabled()
    await dialog.get_by_label("Find").fill(" years")
    told = dialog.get_by_role("status").filter(has_text="The rule changes")
    await expect(told).to_have_text("The rule changes 8 of 9 rows. After the change, 8 are valid.")
    await expect(dialog.get_by_role("row", name="1 40 years 40 none")).to_be_visible()
    await axe(page)
    await screenshot(page, "import-repair")
    await dialog.get_by_label("Replace with").fill("x")
    await expect(told).to_have_text("The rule changes 8 of 9 rows. After the change, 0 are valid.")
    await expect(dialog.get_by_role("row", name="1 40 years 40x age: must be")).to_be_visible()
    await dialog.get_by_label("Replace with").fill("")
    await expect(told).to_have_text("The rule changes 8 of 9 rows. After the change, 8 are valid.")
    await dialog.get_by_role("button", name="Fix 9 rows").click()
    await expect(page.get_by_text("Requeued 8 rows. The rule did not change 1 row.")).to_be_visible(timeout=SLOW)
    await expect(fix_all(page, "age: wrong type")).to_have_text("Fix 1 row …", timeout=SLOW)
    found = await rows(site.db, "SELECT age FROM shop.people WHERE starts_with(email, 'rule') ORDER BY age")
    assert found == [(9,), (10,), (11,), *((40 + n,) for n in range(8))]


async def test_values_are_translated_and_other_rows_dismissed(site: Site, signed_in: OpenPage, tmp_path: Path) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    lines = [f"tr{n}@x.org,P,1,{'boss' if n < 3 else 'king'}" for n in range(5)] + ["tr9@x.org,P,old,reader"]
    await imported(page, tmp_path, "\n".join(lines))
    await fix_all(page, "role: not an allowed value").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Rule").select_option("translate")
    await dialog.get_by_label("New value for boss").fill("admin")
    await expect(dialog.get_by_text("The rule changes 3 of 5 rows. After the change, 3 are valid.")).to_be_visible()
    await dialog.get_by_role("button", name="Fix 5 rows").click()
    await expect(fix_all(page, "role: not an allowed value")).to_have_text("Fix 2 rows …", timeout=SLOW)
    await fix_all(page, "role: not an allowed value").click()
    await dialog.get_by_label("Rule").select_option("drop")
    await expect(dialog.get_by_text("2 rows will be dismissed.")).to_be_visible()
    await dialog.get_by_role("button", name="Dismiss 2 rows").click()
    await expect(page.get_by_text("Dismissed 2 rows")).to_be_visible(timeout=SLOW)
    await expect(fix_all(page, "role: not an allowed value")).to_have_count(0)
    await expect(page.get_by_text("2 dismissed rows not counted by reason.")).to_be_visible()
    await axe(page)
    await page.get_by_role("link", name="Show dismissed rows").click()
    await expect(page.get_by_role("heading", name="Failed items", level=1)).to_be_visible()
    await expect(page).to_have_url(f"{site.url}/dead-letters?show=dismissed")
    found = await rows(site.db, "SELECT count(*) FROM shop.people WHERE starts_with(email, 'tr') AND role = 'admin'")
    assert found == [(3,)]


async def test_repair_dialog_shows_error_of_service_and_stays_open(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    async def is_running(route: Route) -> None:
        await route.fulfill(status=409, json={"detail": "A repair is already running"})

    page = await signed_in("ada", "/imports/new?resource=people", expect=("409",))
    await imported(page, tmp_path, "late@x.org,P,old,\n")
    await fix_all(page, "age: wrong type").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Rule").select_option("default")
    await dialog.get_by_label("Value", exact=True).fill("7")
    await expect(dialog.get_by_role("button", name="Fix 1 row")).to_be_enabled()
    await page.route("**/repairs", is_running, times=1)
    await dialog.get_by_role("button", name="Fix 1 row").click()
    await expect(dialog.get_by_role("alert")).to_have_text("A repair is already running")
    await dialog.get_by_role("button", name="Fix 1 row").click()
    await expect(page.get_by_text("All rows were imported into people")).to_be_visible(timeout=SLOW)


async def test_cell_is_edited_by_double_click_and_its_error_shown_at_cell(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    await imported(page, tmp_path, "cell1@x.org,Ann,old,\ncell2@x.org,Ben,old,\n")
    await cell(page, "old").first.dblclick()
    editor = page.get_by_role("textbox", name="age, row 1")
    await expect(editor).to_be_focused()
    await expect(page.get_by_role("complementary")).to_have_count(0)
    await editor.fill("older")
    await editor.press("Enter")
    await expect(editor).to_have_attribute("aria-invalid", "true", timeout=SLOW)
    assert "must be" in await editor.evaluate("input => input.validationMessage")
    await axe(page)
    await editor.fill("41")
    await editor.press("Enter")
    await expect(cell(page, "imported")).to_be_visible(timeout=SLOW)
    await expect(cell(page, "41")).to_be_focused()
    found = await rows(site.db, "SELECT name, age FROM shop.people WHERE starts_with(email, 'cell')")
    assert found == [("Ann", 41)]


async def test_cell_is_edited_by_keyboard_and_escape_cancels(site: Site, signed_in: OpenPage, tmp_path: Path) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    await imported(page, tmp_path, "key1@x.org,Ann,old,\nkey2@x.org,Ben,old,\n")
    await cell(page, "old").first.click()
    await expect(cell(page, "old").first).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.type("77")
    await page.keyboard.press("Escape")
    await expect(cell(page, "old").first).to_be_focused()
    await expect(cell(page, "old")).to_have_count(2)
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await page.keyboard.type("42")
    await page.keyboard.press("Enter")
    await expect(cell(page, "imported")).to_be_visible(timeout=SLOW)
    await expect(cell(page, "42")).to_be_focused()
    await page.keyboard.press("Enter")  # a fixed row is not editable, and opens
    await expect(page.get_by_role("complementary").get_by_role("heading", name="Row 2")).to_be_visible()
    found = await rows(site.db, "SELECT name, age FROM shop.people WHERE starts_with(email, 'key')")
    assert found == [("Ben", 42)]


async def test_cell_edit_is_saved_when_another_cell_is_clicked(site: Site, signed_in: OpenPage, tmp_path: Path) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    await imported(page, tmp_path, "blur1@x.org,Ann,old,\nblur2@x.org,Ben,old,\n")
    await cell(page, "old").first.dblclick()
    await page.get_by_role("textbox", name="age, row 1").fill("43")
    await cell(page, "Ben").click()
    await expect(cell(page, "imported")).to_be_visible(timeout=SLOW)
    await expect(cell(page, "43")).to_be_visible()
    found = await rows(site.db, "SELECT name, age FROM shop.people WHERE starts_with(email, 'blur')")
    assert found == [("Ann", 43)]
