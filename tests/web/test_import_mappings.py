"""Remembered mappings: proposed in the columns step, shared, ignored and forgotten."""

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from support import rows
from web.conftest import OpenPage
from web.page_checks import axe
from web.shop import site, written
from web.site import Site
from web.test_imports import choose, figure

__all__ = ["site"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
OCTOBER = "E-Mail;Full name;age;role;Remarks\noct{0}@example.org;Ann;forty;admin;x\n"
NOVEMBER = "E-Mail;Name in full;age;role;Remarks;Shoe size\nnov@example.org;Bob;forty;admin;x;38\n"


async def open_columns_step(page: Page, path: Path) -> None:
    await choose(page, path)
    await page.get_by_role("button", name="Continue to columns").click()


async def test_columns_step_proposes_earlier_mapping_and_asks_about_renamed_columns(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    await open_columns_step(page, written(tmp_path, "october.csv", OCTOBER.format(1)))
    await page.get_by_label("Field of column Full name").select_option("name")
    await page.get_by_label("Field of column Remarks").select_option(label="\N{EN DASH} leave out \N{EN DASH}")
    await page.get_by_label("Import instead of forty in age").fill("40")
    await page.get_by_label("Import instead of forty in age").press("Enter")
    await page.get_by_role("button", name="Import without checking").click()
    await figure(page, "imported", "1")

    await page.goto(f"{site.url}/imports/new?resource=people")
    await open_columns_step(page, written(tmp_path, "same.csv", OCTOBER.format(2)))
    notice = page.get_by_role("status", name="Earlier import")
    await expect(notice).to_contain_text("The columns are mapped as in import J")
    await expect(page.get_by_label("Field of column Full name")).to_have_value("name")
    await expect(page.get_by_label("Import instead of forty in age")).to_have_value("40")
    await axe(page)
    await notice.get_by_role("button", name="Ignore the earlier import").click()
    await expect(page.get_by_role("button", name="Check all rows")).to_be_disabled()
    await page.get_by_role("button", name="Use them").click()
    await page.get_by_role("button", name="Import without checking").click()
    await figure(page, "imported", "1")

    await page.goto(f"{site.url}/imports/new?resource=people")
    await open_columns_step(page, written(tmp_path, "november.csv", NOVEMBER))
    await expect(notice).to_contain_text("The known columns are mapped as in import J")
    await expect(notice).to_contain_text("Name in full. It may be the new name of Full name")
    await expect(notice).to_contain_text("New: Shoe size")
    await expect(page.get_by_role("button", name="Check all rows")).to_be_disabled()
    await axe(page)
    await notice.get_by_role("button", name="Map Name in full to name").click()
    await page.get_by_label("Field of column Shoe size").select_option(label="\N{EN DASH} leave out \N{EN DASH}")
    await page.get_by_role("button", name="Import without checking").click()
    await figure(page, "imported", "1")
    found = await rows(site.db, "SELECT email, name, age FROM shop.people ORDER BY email")
    assert found == [
        ("nov@example.org", "Bob", 40),
        ("oct1@example.org", "Ann", 40),
        ("oct2@example.org", "Ann", 40),
    ]


async def test_mappings_screen_shares_and_forgets_mappings(site: Site, signed_in: OpenPage, tmp_path: Path) -> None:
    content = "E-Mail,name,Ort\nshared@example.org,A,x\n"
    params = {"resource": "people", "mapping": '{"Ort": ""}', "filename": "a.csv"}
    made = await site.ask("mona", "POST", "/v1/imports", params=params, content=content)
    page = await signed_in("mona", f"/imports/{made['key']}")
    await figure(page, "imported", "1")
    await page.goto(f"{site.url}/imports")
    await page.get_by_role("link", name="Remembered mappings").click()
    row = page.get_by_role("row", name="people E-Mail, name, Ort")
    await axe(page)
    await row.get_by_role("button", name="Share").click()
    await expect(row.get_by_text("shared")).to_be_visible()

    other = await signed_in("nina", "/imports/new?resource=people")
    await open_columns_step(other, written(tmp_path, "b.csv", content))
    notice = other.get_by_role("status", name="Earlier import")
    await expect(notice).to_contain_text("shared by mona")
    await expect(notice.get_by_role("button", name="Stop sharing")).to_have_count(0)

    await row.get_by_role("button", name="Forget").click()
    await page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    await expect(page.get_by_role("heading", name="No mappings yet")).to_be_visible()
