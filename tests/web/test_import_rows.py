"""Rows that are fixed more than once, large file limits, late previews and invalid addresses."""

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, Route, expect

from support import eventually, rows
from web.conftest import OpenPage
from web.page_checks import open_failed_row
from web.shop import SLOW, site, written
from web.site import Site
from web.test_focus_and_errors import Gate

__all__ = ["site"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
AWAY = ("401", "503")


async def bad_row(page: Page, folder: Path, email: str) -> Locator:
    """Import a row whose age is not a number, and return its drawer."""
    text = f"email,name,age\n{email},Bob,old\n"
    await page.get_by_label("File to import").set_input_files(written(folder, "twice.csv", text))
    await page.get_by_role("button", name="Continue to columns").click()
    await page.get_by_role("button", name="Check all rows").click()
    await open_failed_row(page, "Bob")
    drawer = page.get_by_role("complementary")
    await expect(drawer.get_by_label("age")).to_be_focused()
    return drawer


async def test_import_row_fixed_twice_is_imported_as_last_saved(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    drawer = await bad_row(page, tmp_path, "bob@x.org")
    await drawer.get_by_label("name").fill("Oops")
    await drawer.get_by_label("age").fill("older")
    await drawer.get_by_role("button", name="Save and check").click()
    await expect(drawer.get_by_text("has errors")).to_be_visible()
    await expect(drawer.get_by_label("age")).to_be_editable(timeout=SLOW)
    await drawer.get_by_label("name").fill("Bob")
    await drawer.get_by_label("age").fill("44")
    await drawer.get_by_role("button", name="Save and check").click()
    await expect(drawer.get_by_text("valid", exact=True)).to_be_visible(timeout=SLOW)
    await drawer.get_by_role("button", name="Close").click()
    await page.get_by_role("button", name="Import 1 valid row").click()
    await page.get_by_role("dialog").get_by_role("button", name="Import 1").click()

    await expect(page.get_by_text("All rows were imported into people: 1 inserted")).to_be_visible(timeout=SLOW)
    assert await rows(site.db, "SELECT name, age FROM shop.people WHERE email = 'bob@x.org'") == [("Bob", 44)]


async def test_import_row_editor_imports_fixed_row_and_hides_errors_when_none_are_left(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    text = "email,name,age\nrow1@live.org,Ann,old\nrow2@live.org,Ben,old\n"
    await page.get_by_label("File to import").set_input_files(written(tmp_path, "live.csv", text))
    await page.get_by_role("button", name="Continue to columns").click()
    await page.get_by_role("button", name="Import without checking").click()
    await open_failed_row(page, "Ann", SLOW)
    drawer = page.get_by_role("complementary")
    save, age = drawer.get_by_role("button", name="Save and retry"), drawer.get_by_label("age")
    await expect(drawer.get_by_text("Tidemill imports this row if it is valid, then opens the next")).to_be_visible()
    await age.fill("41")
    await save.click()
    await expect(drawer.get_by_role("heading", name="Row 2")).to_be_visible(timeout=SLOW)
    await expect(page.get_by_role("gridcell", name="imported", exact=True)).to_be_visible()
    await expect(age).to_have_value("old")
    await age.fill("42")
    await save.click()
    await expect(drawer.get_by_text("imported", exact=True)).to_be_visible(timeout=SLOW)
    assert await rows(site.db, "SELECT age FROM shop.people WHERE email LIKE '%%@live.org' ORDER BY 1") == [
        (41,),
        (42,),
    ]

    await expect(page.get_by_text("All rows were imported into people")).to_be_visible(timeout=SLOW)
    await expect(page.get_by_role("region", name="Errors")).to_be_hidden()
    for name in ("Download errors", "Upload fixed file", "Retry failed rows"):
        await expect(page.get_by_role("button", name=name)).to_be_hidden()
    await drawer.get_by_role("button", name="Close").click()
    await expect(page.locator("#main")).to_be_focused()


async def test_import_row_edits_survive_lost_response_and_expired_session(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    async def checked_and_away(route: Route) -> None:
        async def is_checked() -> bool:
            return bool((await (await route.fetch()).json())["status"] == "failed")

        await eventually(is_checked)
        await route.fulfill(status=503, json={"detail": "The response was lost"})

    page = await signed_in("bea", "/imports/new?resource=people", expect=AWAY)
    drawer = await bad_row(page, tmp_path, "rob@x.org")
    await page.route("**/items/0", checked_and_away, times=1)
    await drawer.get_by_label("name").fill("Oops")
    await drawer.get_by_label("age").fill("older")
    await drawer.get_by_role("button", name="Save and check").click()
    await expect(drawer.get_by_role("alert")).to_have_text("The response was lost", timeout=SLOW)

    await drawer.get_by_label("name").fill("Bob")
    await drawer.get_by_label("age").fill("44")
    await rows(site.db, "DELETE FROM tidemill.session")
    await drawer.get_by_role("button", name="Save and check").dispatch_event(
        "click"
    )  # sends a request in case no other one has detected the expired session yet
    dialog = page.get_by_role("dialog", name="Signed out")
    await dialog.get_by_label("API key or sign-in link").fill(await site.user("bea"))
    async with page.expect_response("**/items/0"):
        await dialog.get_by_role("button", name="Sign in again").click()
    await expect(drawer.get_by_label("age")).to_have_value("44")
    await drawer.get_by_role("button", name="Save and check").click()
    await expect(drawer.get_by_text("valid", exact=True)).to_be_visible(timeout=SLOW)
    key = page.url.partition("?")[0].rpartition("/")[2]
    item = await (await page.request.get(f"{site.url}/v1/jobs/{key}/items/0")).json()
    assert item["input"] == {"email": "rob@x.org", "name": "Bob", "age": "44"}


async def test_import_mapping_keeps_focus_on_late_preview_and_blocks_check_on_failure(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    page = await signed_in("ada", "/imports/new?resource=people", expect=AWAY)
    path = written(tmp_path, "columns.csv", "Mail,Full name,age\na@x.org,A,1\n")
    await page.get_by_label("File to import").set_input_files(path)
    await page.get_by_role("button", name="Continue to columns").click()
    first, other = page.get_by_label("Field of column Mail"), page.get_by_label("Field of column Full name")
    late = Gate()
    await page.route("**/v1/imports/preview?*", late.hold)
    await first.select_option("email")
    await other.focus()
    late.opened.set()
    await expect(page.get_by_role("row").filter(has=first)).to_contain_text("your choice")
    await expect(other).to_be_focused()
    await other.select_option("name")
    check = page.get_by_role("button", name="Check all rows")
    await expect(check).to_be_enabled()

    await page.route("**/v1/imports/preview?*", lambda route: route.fulfill(status=503, json={"detail": "away"}))
    await page.get_by_label("Rows whose key already exists").select_option("upsert")
    await expect(page.get_by_text("The file could not be read")).to_be_visible()
    await expect(check).to_be_disabled()


async def test_import_draft_is_cleared_when_another_user_signs_in(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    page = await signed_in("cem", "/imports/new?resource=people", expect=AWAY)
    await page.get_by_label("File to import").set_input_files(
        written(tmp_path, "secret.csv", "email,name\na@x.org,A\n")
    )
    await expect(page.get_by_role("heading", name="Detected format of secret.csv")).to_be_visible()
    await page.get_by_role("button", name="cem account").click()
    await page.get_by_role("menuitem", name="Sign out").click()
    await page.wait_for_url("**/sign-in")
    await page.get_by_label("API key or sign-in link").fill(await site.user("dan"))
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_text("Drop a file here")).to_be_visible()


async def test_import_accepts_small_file_when_size_limit_is_gigabytes(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    async def generous(route: Route) -> None:
        limits = await (await route.fetch()).json()
        await route.fulfill(body=json.dumps(limits | {"max_file_size_mb": 4096}), content_type="application/json")

    page = await signed_in("ada")
    await page.route("**/v1/limits", generous)
    await page.goto(f"{site.url}/imports/new?resource=people")
    await expect(page.get_by_text("up to 4,096 MB")).to_be_visible()
    await page.get_by_label("File to import").set_input_files(written(tmp_path, "s.csv", "email,name\na@x.org,A\n"))
    await expect(page).to_have_url(re.compile("step=preview"))


@pytest.mark.parametrize("kind", ["imports", "distributions"])
async def test_job_url_with_encoded_slash_shows_not_found(site: Site, signed_in: OpenPage, kind: str) -> None:
    page = await signed_in("ada", f"/{kind}/..%2Fjobs", expect=("404",))
    await expect(page.get_by_text("Not Found")).to_be_visible()
