"""The import screens: from a dropped file to rows in a table."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Page, Route, expect

from support import rows
from support.workbooks import workbook
from tidemill.core.principal import Role
from web.conftest import OpenPage
from web.page_checks import axe, follow_link, open_failed_row, screenshot
from web.shop import SLOW, people_csv, site, written
from web.site import Site
from web.test_focus_and_errors import Gate

__all__ = ["site"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=20_000)


async def choose(page: Page, path: Path, label: str = "File to import") -> None:
    await page.get_by_label(label).set_input_files(path)


async def figure(page: Page, label: str, value: str) -> None:
    """Expect a figure of the import by its label."""
    await expect(
        page.locator(".figures > div").filter(has=page.get_by_text(label, exact=True)).locator("dd")
    ).to_have_text(value, timeout=SLOW)


async def leave_out_and_map(page: Page) -> None:
    await page.get_by_label("Field of column Full name").select_option("name")
    await expect(page.get_by_label("Field of column Full name")).to_have_value("name")
    await page.get_by_label("Field of column Remarks").select_option(label="\N{EN DASH} leave out \N{EN DASH}")


async def test_imports_screen_shows_instructions_when_empty(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("newcomer", "/imports")
    await expect(page.get_by_role("heading", name="No imports yet")).to_be_visible()
    await expect(page.get_by_text("tidemill import users.csv")).to_be_hidden()
    await page.get_by_text("From a program or the command line").click()
    await expect(page.get_by_text("tidemill import users.csv")).to_be_visible()
    await axe(page)
    await screenshot(page, "imports-empty")


async def test_import_flow_previews_maps_checks_fixes_and_promotes_file(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    page = await signed_in("ada", "/imports/new")
    await upload_and_check_file(page, tmp_path)
    await open_error_group(page)
    await fix_a_row(page)
    await promote(page)
    assert await count_of(site, "fix%") == 55


async def upload_and_check_file(page: Page, tmp_path: Path) -> None:
    await page.get_by_label("Import into").select_option("people")
    await expect(page).to_have_url(re.compile("resource=people"))
    await axe(page)
    await screenshot(page, "import-file")
    await choose(page, written(tmp_path, "people.csv", people_csv(60, bad=6, prefix="fix")))

    await expect(page.get_by_text("detected: semicolon")).to_be_attached()
    await expect(page.get_by_role("columnheader", name="E-Mail → email")).to_be_visible()
    await axe(page)
    await screenshot(page, "import-preview")
    await page.get_by_role("button", name="Continue to columns").click()

    await expect(page.get_by_text('No column for the required field "name"')).to_be_visible()
    await expect(page.get_by_role("button", name="Check all rows")).to_be_disabled()
    await axe(page)
    await screenshot(page, "import-columns")
    await leave_out_and_map(page)
    await expect(page.get_by_text("The column mapping for people is complete.")).to_be_visible()
    await page.get_by_role("button", name="Check all rows").click()

    await expect(page).to_have_url(re.compile(r"/imports/J\d+_\d+$"))


async def open_error_group(page: Page) -> None:
    await figure(page, "with errors", "6")
    await figure(page, "valid", "54")
    group = page.get_by_role("button", name="email: wrong format 2 rows")
    await expect(group).to_be_visible()
    await axe(page)
    await screenshot(page, "import-findings")
    await group.click()
    await expect(page).to_have_url(re.compile("code=email.pattern"))
    await expect(page.get_by_role("gridcell", name="email: must be an e-mail address")).to_have_count(2)


async def test_error_group_shows_number_of_rows_that_it_lists(site: Site, signed_in: OpenPage, tmp_path: Path) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    lines = ["one,A,1", "two,B,old", "three,,old", "four@x.org,,4", "five@x.org,E,old", "six@x.org,F,6"]
    await choose(page, written(tmp_path, "groups.csv", "\n".join(["email,name,age", *lines])))
    await page.get_by_role("button", name="Continue to columns").click()
    await page.get_by_role("button", name="Check all rows").click()
    await figure(page, "with errors", "5")
    await expect(page.get_by_text("Rows can have several errors.")).to_be_visible()
    cells = page.get_by_role("grid", name="Rows with errors").get_by_role("gridcell")
    groups = {"email.pattern": ("wrong format", 3), "name.required": ("missing", 2), "age.type": ("wrong type", 3)}
    for code, (reason, count) in groups.items():
        field = code.partition(".")[0]
        group = page.get_by_role("button", name=f"{field}: {reason} {count} rows", exact=True)
        await expect(group).to_have_attribute("title", code)
        await group.click()
        await expect(group).to_have_attribute("aria-pressed", "true")
        await expect(page).to_have_url(re.compile(f"code={code}"))
        await expect(cells.filter(has_text=re.compile(rf"(^|; ){field}: "))).to_have_count(count)
        found = f'{count} rows with the error "{field}: {reason}"'
        await expect(page.get_by_role("status").filter(has_text=found)).to_be_visible()
    await axe(page)


async def test_invalid_values_are_translated_in_columns_step(site: Site, signed_in: OpenPage, tmp_path: Path) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    lines = [f"translated{n}@example.org,P,{'forty' if n < 3 else 40},{'Chef' if n % 2 else 'admin'}" for n in range(9)]
    await choose(page, written(tmp_path, "places.csv", "\n".join(["email,name,age,role", *lines])))
    await page.get_by_role("button", name="Continue to columns").click()
    values = page.get_by_role("table", name="Values that are not valid")
    await expect(values.get_by_role("row")).to_have_count(3)
    await expect(values.get_by_role("row", name="age forty")).to_contain_text("3")
    await axe(page)
    await values.get_by_label("Import instead of Chef in role").select_option("admin")
    await values.get_by_label("Import instead of forty in age").fill("40")
    await values.get_by_label("Import instead of forty in age").press("Enter")
    await expect(values.get_by_text("replaced")).to_have_count(2)
    await expect(values.get_by_label("Import instead of Chef in role")).to_have_value("admin")
    await page.get_by_role("button", name="Import without checking").click()
    await figure(page, "imported", "9")
    found = await rows(site.db, "SELECT DISTINCT age, role FROM shop.people WHERE starts_with(email, 'translated')")
    assert found == [(40, "admin")]


async def test_ambiguous_column_requires_choice_of_format(site: Site, signed_in: OpenPage, tmp_path: Path) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    lines = "email;name;age;at\nlocale@example.org;L;12.000;31.12.2024\n"
    await choose(page, written(tmp_path, "locale.csv", lines))
    await page.get_by_role("button", name="Continue to columns").click()
    await expect(page.get_by_role("alert")).to_contain_text('"12.000" is "12000" (decimal-comma) or "12.000"')
    age = page.get_by_role("row", name="age 12.000")
    await expect(age).to_contain_text("can be read in two ways")
    await expect(page.get_by_role("row", name="at 31.12.2024")).to_contain_text("31.12.2024 → 2024-12-31")
    start = page.get_by_role("button", name="Import without checking")
    await expect(start).to_be_disabled()
    await axe(page)
    await age.get_by_label("Format of column age").select_option(label="decimal-comma: 12.000 → 12000")
    await expect(age).to_contain_text("12.000 → 12000")
    await expect(age.get_by_text("can be read in two ways")).to_be_hidden()
    await start.click()
    await figure(page, "imported", "1")
    found = await rows(site.db, "SELECT age, at::date::text FROM shop.people WHERE email = 'locale@example.org'")
    assert found == [(12000, "2024-12-31")]
    await page.get_by_text("Import settings").click()
    await expect(page.get_by_text("age: decimal-comma, at: DD.MM.YYYY")).to_be_visible()


async def fix_a_row(page: Page) -> None:
    await open_failed_row(page, "fix0")
    drawer = page.get_by_role("complementary")
    await expect(drawer.get_by_role("heading", name="Row 1")).to_be_visible()
    await expect(drawer.get_by_text("must be an e-mail address")).to_be_visible()
    await axe(page)
    await screenshot(page, "import-row")
    await drawer.get_by_label("E-Mail").fill("fixed0@example.org")
    await drawer.get_by_label("E-Mail").press("Enter")
    await expect(page.get_by_role("gridcell", name="valid", exact=True)).to_be_visible(timeout=SLOW)
    await expect(drawer.get_by_role("heading", name="Row 31")).to_be_visible()
    await page.keyboard.press("Escape")
    await figure(page, "with errors", "5")


async def promote(page: Page) -> None:
    await page.get_by_role("button", name="Import 55 valid rows").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_text("5 rows with errors will fail again")).to_be_visible()
    await axe(page)
    await screenshot(page, "import-promote")
    dry_run = page.url
    await dialog.get_by_role("button", name="Import 55").click()
    await expect(page).not_to_have_url(dry_run)
    await figure(page, "imported", "55")
    await page.goto(dry_run)
    await expect(page.get_by_role("link", name="Go to the import")).to_be_visible()


async def test_import_survives_closed_tab_and_accepts_fixed_rows_file(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    page = await signed_in("ada", "/imports/new?resource=people&mode=upsert", expect=("422",))
    mapping = "mapping=%7B%22Full+name%22%3A%22name%22%2C%22Remarks%22%3A%22%22%7D"
    await page.goto(f"{site.url}/imports/new?resource=people&step=columns&{mapping}")
    await expect(page.get_by_text("Choose the file again")).to_be_visible()
    await choose(page, written(tmp_path, "p.csv", people_csv(30, bad=3, prefix="tab")))
    await page.get_by_role("button", name="Continue to columns").click()
    await page.get_by_role("button", name="Check all rows").click()
    await figure(page, "with errors", "3")
    await expect(page.get_by_role("button", name="Import 27 valid rows")).to_be_enabled()
    dry_run = page.url
    await page.close()

    page = await signed_in("ada", "/imports", expect=("422",))
    await page.get_by_role("link", name=dry_run.rpartition("/")[2]).click()
    await figure(page, "with errors", "3")
    await page.get_by_role("button", name="Download errors").click()
    async with page.expect_download() as download:
        await page.get_by_role("menuitem", name="CSV file (like the uploaded file)").click()
    failed = (await (await download.value).path()).read_text()
    assert "_row" in failed.splitlines()[0]
    await page.get_by_role("button", name="Upload fixed file").click()
    dialog = page.get_by_role("dialog")
    await choose(page, written(tmp_path, "no-rows.csv", "age\n7\n"), "File with fixed rows")
    await expect(dialog.get_by_role("alert")).to_contain_text('Column "_row"')
    await axe(page)
    await screenshot(page, "import-fixed-file")
    fixed = re.sub(r"(?m)^tab0;", "tab0@example.org;", failed).replace("old", "41").replace("king", "editor")
    await choose(page, written(tmp_path, "fixed.csv", fixed), "File with fixed rows")
    await expect(page.get_by_text("All rows are valid")).to_be_visible(timeout=SLOW)
    await page.goto(f"{site.url}/imports")
    await expect(page.get_by_role("row", name="p.csv")).to_contain_text("completed", timeout=SLOW)
    await axe(page)
    await screenshot(page, "imports")


DROP = """(zone, [name, text]) => {
  const files = new DataTransfer();
  files.items.add(new File([text], name, { type: "text/csv" }));
  const handled = ["dragenter", "dragover", "drop"].map((type) => {
    const event = new DragEvent(type, { dataTransfer: files, bubbles: true, cancelable: true });
    zone.dispatchEvent(event);
    return event.defaultPrevented;
  });
  return handled.at(-1) && handled.at(-2);
}"""


async def test_drop_zone_accepts_file_and_drop_outside_does_not_leave_page(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    given = ["dropped.csv", people_csv(3, prefix="drop")]
    await expect(page.get_by_text("Drop a file here")).to_be_visible()
    assert await page.locator("main").evaluate(DROP, given), "the browser would open the file"
    await expect(page.get_by_text("Drop a file here")).to_be_visible()
    assert await page.locator(".drop").evaluate(DROP, given)
    await expect(page.get_by_text("Detected format of dropped.csv")).to_be_visible()
    assert await page.locator("main").evaluate(DROP, given), "the browser would open the file"
    await page.get_by_role("link", name="Jobs", exact=True).click()
    await expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    assert not await page.locator("main").evaluate(DROP, given)


async def test_import_draft_after_reload_requests_same_file_and_keeps_mapping(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    path = written(tmp_path, "staff.csv", people_csv(3, prefix="anew"))
    await choose(page, path)
    await page.get_by_role("button", name="Continue to columns").click()
    await page.get_by_label("Field of column Full name").select_option("name")
    await page.get_by_label("Rows whose key already exists").select_option("upsert")
    await expect(page).to_have_url(re.compile("mode=upsert"))
    await page.reload()
    await expect(page.get_by_text("Choose staff.csv again")).to_be_visible()
    await choose(page, path)
    await page.get_by_role("button", name="Continue to columns").click()
    await expect(page.get_by_label("Field of column Full name")).to_have_value("name")
    await expect(page.get_by_label("Rows whose key already exists")).to_have_value("upsert")

    await follow_link(page, await site.link("bea"))
    await page.goto(f"{site.url}/imports/new?resource=people&step=columns")
    await expect(page.get_by_text("Choose the file again")).to_be_visible()


async def test_fixed_rows_upload_dialog_stays_open_until_upload_finishes(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    await choose(page, written(tmp_path, "way.csv", "email,name,age\nway@x.org,Way,old\n"))
    await page.get_by_role("button", name="Continue to columns").click()
    await page.get_by_role("button", name="Check all rows").click()
    await figure(page, "with errors", "1")
    await page.get_by_role("button", name="Upload fixed file").click()
    dialog, held = page.get_by_role("dialog"), Gate()
    await page.route("**/fixes?*", held.hold)
    await choose(page, written(tmp_path, "fixed.csv", "_row,age\n1,44\n"), "File with fixed rows")
    await expect(dialog.get_by_role("button", name="Go back")).to_be_disabled()
    for _ in range(3):
        await page.keyboard.press("Escape")
    await expect(dialog).to_be_visible()
    held.opened.set()
    await expect(page.get_by_text("Requeued 1 fixed row")).to_be_visible()
    await expect(dialog).to_have_count(0)


async def test_import_shows_error_for_empty_oversized_and_corrupt_files(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    page = await signed_in("ada", "/imports/new?resource=people", expect=("422",))
    await choose(page, written(tmp_path, "empty.csv", ""))
    await expect(page.get_by_role("alert")).to_contain_text("empty.csv is empty")
    await choose(page, written(tmp_path, "huge.csv", "x" * (9 << 20)))
    await expect(page.get_by_role("alert")).to_contain_text("the limit is 8 MB")
    await choose(page, written(tmp_path, "broken.xlsx", "not a workbook"))
    await expect(page.get_by_role("alert")).to_contain_text("Not an XLSX workbook", timeout=SLOW)
    await expect(page.get_by_role("button", name="Continue to columns")).to_be_disabled()


async def test_import_requires_sheet_when_workbook_has_several_tables(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    page = await signed_in("ada", "/imports/new?resource=people", expect=("422",))
    book = tmp_path / "two.xlsx"
    book.write_bytes(workbook([["x"], [1]], people=[["email", "name"], ["sheet1@x.org", "One"]]))
    await choose(page, book)
    await expect(page.get_by_role("alert")).to_contain_text("rows in several sheets: Sheet, people", timeout=SLOW)
    await page.get_by_label("Sheet name or number").fill("people")
    await page.get_by_label("Sheet name or number").press("Enter")
    await expect(page.get_by_text("sheet1@x.org")).to_be_visible(timeout=SLOW)


async def test_import_starts_without_dry_run_when_check_is_skipped(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    await choose(page, written(tmp_path, "plain.csv", "email,name\nplain1@x.org,One\nplain2@x.org,Two\n"))
    await page.get_by_role("button", name="Continue to columns").click()
    await page.get_by_role("button", name="Import without checking").click()
    await expect(page.get_by_text("All rows were imported into people: 2 inserted")).to_be_visible(timeout=SLOW)
    await figure(page, "waiting", "0")
    await expect(page.get_by_text(re.compile(r"^Finished \d.* in [\d.,]+ (ms|s)"))).to_be_visible()
    assert await count_of(site, "plain%") == 2


async def test_import_cancelled_in_queue_shows_that_it_did_not_start(site: Site, signed_in: OpenPage) -> None:
    made = await site.ask("ada", "POST", "/v1/imports?resource=people&format=csv", content=b"email,name\nq@x.org,Q\n")
    page = await signed_in("ada")

    async def queued(route: Route) -> None:
        found = await (await route.fetch()).json()
        ended = {"status": "cancelled", "started_at": None, "completed_at": found["created_at"]}
        await route.fulfill(json=found | ended)

    await page.route(f"**/v1/imports/{made['key']}", queued)
    await page.goto(f"{site.url}/imports/{made['key']}")
    await expect(page.get_by_text(re.compile(r"^Cancelled \d.* before it started"))).to_be_visible()


@pytest.mark.parametrize(
    ("age", "verdict"), [("1", "No errors in the first row."), ("old", "Errors in the first row.")]
)
async def test_import_preview_of_one_row_names_first_row(
    site: Site, signed_in: OpenPage, tmp_path: Path, age: str, verdict: str
) -> None:
    page = await signed_in("ada", "/imports/new?resource=people")
    await choose(page, written(tmp_path, "one.csv", f"email,name,age\none@x.org,One,{age}\n"))
    await expect(page.get_by_text(verdict)).to_be_visible(timeout=SLOW)


async def test_import_continues_to_preview_while_table_name_has_focus(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    page = await signed_in("root", "/imports/new", role=Role.ADMIN)
    await page.get_by_label("Import into").select_option("Another table …")
    await choose(page, written(tmp_path, "typed.csv", "email,name\ntyped@x.org,Typed\n"))
    proceed, name = page.get_by_role("button", name="Continue to preview"), page.get_by_label("Table name")
    await expect(proceed).to_be_disabled()
    await name.press_sequentially("shop.people")
    await expect(name).to_be_focused()
    await expect(proceed).to_be_enabled()
    await proceed.click()
    await expect(page.get_by_role("heading", name="Import into shop.people typed.csv", level=1)).to_be_visible()
    await expect(page.get_by_text("typed@x.org")).to_be_visible(timeout=SLOW)


async def test_imports_list_fits_window_of_1280_pixels(site: Site, signed_in: OpenPage, tmp_path: Path) -> None:
    page = await signed_in("root", "/imports/new?resource=shop.people", role=Role.ADMIN)
    name = "customers-with-a-long-file-name-2026-11-18.csv"
    await choose(page, written(tmp_path, name, "email,name,age\nfit@x.org,Fit,old\nfit2@x.org,Fit,2\n"))
    await page.get_by_role("button", name="Continue to columns").click()
    await page.get_by_role("button", name="Check all rows").click()
    await expect(page.locator(".head").get_by_text("completed with errors")).to_be_visible(timeout=SLOW)
    await page.goto(f"{site.url}/imports")
    row = page.get_by_role("row", name=name)
    await expect(row).to_contain_text("completed with errors")
    await screenshot(page, "imports-1280")
    cut = "(box) => box.scrollWidth - box.clientWidth"
    assert await page.get_by_role("region", name="List").evaluate(cut) == 0
    await expect(row.get_by_role("cell").last).to_be_in_viewport(ratio=1)


async def count_of(site: Site, like: str) -> int:
    query = "SELECT count(*) FROM shop.people WHERE email LIKE %s"
    return int((await rows(site.db, query, like))[0][0])
