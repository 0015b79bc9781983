"""The job screen: overview, results, fixes, retries and exports."""

import re

import pytest
import pytest_asyncio
from playwright.async_api import expect

from support import rows
from tidemill.core.job import Job
from web.conftest import OpenPage
from web.page_checks import axe, screenshot
from web.site import Site
from web.test_focus_and_errors import Gate
from web.test_live_updates import with_a_clock

pytestmark = pytest.mark.asyncio(loop_scope="session")
INPUTS = (
    [{"sku": f"A-{n}"} for n in range(300)]
    + [{"sku": f"B-{n}", "wish": "never"} for n in range(12)]
    + [{"sku": f"C-{n}", "wish": "fail"} for n in range(5)]
    + [{"sku": f"D-{n}", "wish": "missing"} for n in range(3)]
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def job(working: Site) -> Job:
    return await working.finished("ada", INPUTS)


@pytest.mark.parametrize("tab", ["", "/results", "/pending", "/errors", "/config", "/activity"])
async def test_job_tab_has_own_url_and_passes_accessibility_check(job: Job, signed_in: OpenPage, tab: str) -> None:
    page = await signed_in("ada", f"/jobs/{job.key}{tab}")
    await expect(page.get_by_role("heading", name=job.key)).to_be_visible()
    name = tab.removeprefix("/") or "overview"
    link = page.get_by_role("main").get_by_role("link", name=name.capitalize()).first
    await expect(link).to_have_attribute("aria-current", "page")
    await axe(page)
    await screenshot(page, f"job-{name}")


async def test_failed_row_is_fixed_in_drawer_and_reprocessed(working: Site, signed_in: OpenPage) -> None:
    job = await working.finished("ada", [{"sku": "A-1"}, {"sku": "B-1", "wish": "never", "n": 12345678901234567890}])
    page = await signed_in("ada", f"/jobs/{job.key}/results?statuses=failed")
    await page.get_by_role("grid").get_by_role("gridcell", name="this product is not sold").click()
    drawer = page.get_by_role("complementary")
    await axe(page)
    await screenshot(page, "item-failed")
    field = drawer.get_by_label("Input, as JSON")
    assert "12345678901234567890" in await field.input_value(), "no digit is lost"
    await field.fill('{"sku": "B-1"')
    await drawer.get_by_role("button", name="Save and retry").click()
    await expect(drawer.get_by_role("alert")).to_contain_text("Invalid JSON")
    await field.fill('{"sku": "B-2", "n": 12345678901234567890}')
    await drawer.get_by_role("button", name="Save and retry").click()
    await expect(page.get_by_role("status").get_by_text("Row 2 requeued")).to_be_visible()
    await expect(drawer.get_by_role("heading", name="Result")).to_be_visible()
    await expect(page.get_by_role("grid").get_by_role("row").nth(1)).to_contain_text("done")
    await drawer.get_by_role("button", name="Close").click()
    await expect(page.get_by_role("heading", name=job.key).locator("..")).to_contain_text("completed")
    await page.goto(f"{working.url}/jobs/{job.key}/results")
    row = page.get_by_role("row").filter(has=page.get_by_label("Select row 2", exact=True))
    await expect(row).to_contain_text("B-2")
    await expect(row).to_contain_text("12345678901234567890")


async def test_item_drawer_shows_traceback_and_attempts_of_failed_row(working: Site, signed_in: OpenPage) -> None:
    job = await working.finished("ada", [{"sku": "C-1", "wish": "fail"}])
    page = await signed_in("ada", f"/jobs/{job.key}/errors")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.get_by_role("grid").get_by_role("gridcell", name="the shop did not answer").click()
    drawer = page.get_by_role("complementary")
    block = drawer.locator("details pre")
    await expect(block).to_contain_text("ValueError: the shop did not answer")
    await expect(block).to_contain_text("in lookup")
    attempts = drawer.get_by_role("table", name="Attempts").locator("tbody").get_by_role("row")
    await expect(attempts).to_have_count(2)
    await expect(attempts.nth(0)).to_contain_text("retry wait error")
    await expect(attempts.nth(1)).to_contain_text("failed exhausted")
    await expect(drawer.get_by_role("heading", name="Details")).to_have_count(0)
    await axe(page)
    await drawer.get_by_role("button", name="Copy the traceback").click()
    await expect(drawer.get_by_role("button", name="Copy the traceback")).to_contain_text("Copied")
    assert await page.evaluate("navigator.clipboard.readText()") == await block.text_content()
    await drawer.get_by_text("Traceback", exact=True).click()
    await expect(block).to_be_hidden()


async def test_reprocess_all_matching_rows_excludes_deselected_row(working: Site, signed_in: OpenPage) -> None:
    job = await working.finished("ada", [{"sku": f"B-{n}", "wish": "never"} for n in range(40)] + [{"sku": "A"}])
    page = await signed_in("ada", f"/jobs/{job.key}/errors")
    grid = page.get_by_role("grid")
    await grid.get_by_label("Select row 1", exact=True).click()
    await expect(grid.get_by_label("Select row 1", exact=True)).to_be_checked()  # it is checked in the next frame
    await page.get_by_role("button", name="Select all 40 matching").click()
    await grid.get_by_label("Select row 3", exact=True).click()
    await expect(page.get_by_text("39 rows selected of 40 matching")).to_be_visible()
    await screenshot(page, "items-selected")
    await page.get_by_role("button", name="Retry …", exact=True).last.click()
    dialog = page.get_by_role("dialog", name="Retry 39 rows?")
    await expect(dialog).to_contain_text("status is failed, except 1 row")
    await axe(page)
    await screenshot(page, "reprocess")
    await dialog.get_by_role("button", name="Retry 39").click()
    await expect(page.get_by_text("Requeued 39 rows")).to_be_visible()


async def test_job_status_follows_pause_resume_and_cancel(working: Site, signed_in: OpenPage) -> None:
    job = await working.submit("ada", [{"sku": f"A-{n}", "wish": "slow"} for n in range(4_000)])
    page = await signed_in("ada", f"/jobs/{job['key']}")
    shown = page.get_by_role("heading", name=job["key"], level=1).locator("..")
    await page.get_by_role("button", name="Pause", exact=True).click()
    await expect(shown).to_contain_text("paused")
    await page.get_by_role("button", name="Resume", exact=True).click()
    await expect(shown).to_contain_text("running", timeout=20_000)
    await screenshot(page, "job-running")
    await page.get_by_role("button", name="Cancel …").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    await expect(shown).to_contain_text("cancelled", timeout=30_000)


async def test_results_grid_shows_row_input_and_all_columns_in_viewport(job: Job, signed_in: OpenPage) -> None:
    page = await signed_in("ada", f"/jobs/{job.key}/results?causes=not_sold")
    grid = page.get_by_role("grid")
    row = grid.get_by_role("row").filter(has=page.get_by_label("Select row 303", exact=True))
    await expect(row).to_contain_text("B-2")
    for name in ("Input", "Attempts", "Duration", "Updated", "Error code", "Reason"):
        await expect(grid.get_by_role("columnheader", name=name, exact=True)).to_be_in_viewport(ratio=0.98)
    await page.goto(page.url.partition("?")[0])
    for name in ("Input", "Attempts", "Duration", "Updated", "sku"):
        await expect(grid.get_by_role("columnheader", name=name, exact=True)).to_be_in_viewport(ratio=0.98)


async def test_results_column_choice_is_stored_in_url(job: Job, signed_in: OpenPage) -> None:
    page = await signed_in("ada", f"/jobs/{job.key}/results")
    serial = page.get_by_role("columnheader", name="serial")
    await expect(serial).to_have_count(1)
    await page.get_by_role("button", name="Columns").click()
    await page.get_by_role("menuitem", name="✓ serial").click()
    await expect(page).to_have_url(re.compile("columns=sku%2Ccents$"))
    await expect(serial).to_have_count(0)
    await page.get_by_role("button", name="Columns").click()
    await page.get_by_role("menuitem", name="serial").click()
    await expect(serial).to_have_count(1)


async def test_job_export_dialog_waits_for_request_and_offers_download(
    job: Job, signed_in: OpenPage, working: Site
) -> None:
    page = await signed_in("ada", f"/jobs/{job.key}")
    await page.get_by_role("button", name="Export …").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Escape formulas")).to_be_checked()
    await axe(page)
    await screenshot(page, "job-export")
    await dialog.get_by_label("Excel workbook (xlsx)").check()
    held = Gate()
    await page.route("**/export?*", held.hold)
    await dialog.get_by_role("button", name="Export 320").click()
    await expect(dialog.get_by_role("button", name="Go back")).to_be_disabled()
    for _ in range(3):
        await page.keyboard.press("Escape")
    await expect(dialog).to_be_visible()
    held.opened.set()
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Download").click(timeout=30_000)
    assert (await download.value).suggested_filename == f"{job.key}.xlsx"
    of_exports = "SELECT id FROM tidemill.job WHERE kind = 'tidemill.export'"
    made = f"SELECT input->>'spreadsheet_safe' FROM tidemill.item WHERE job_id IN ({of_exports})"
    assert ("true",) in await rows(working.db, made)


async def test_export_progress_notice_stays_until_file_is_ready(working: Site, job: Job, open_page: OpenPage) -> None:
    page = await with_a_clock(working, await open_page(), "ada", f"/jobs/{job.key}")
    held = Gate()
    await page.route(re.compile(r"/v1/exports/[^/]+$"), held.hold)
    await page.get_by_role("button", name="Export …").click()
    await page.get_by_role("dialog").get_by_role("button", name="Export 320").click()
    notice = page.get_by_text("Creating the file")
    await expect(notice).to_be_visible()
    await page.clock.fast_forward(10_000)
    await expect(notice).to_be_visible()
    held.opened.set()
    await expect(page.get_by_text("Export with 320 rows ready")).to_be_visible(timeout=30_000)
    await expect(notice).to_have_count(0)


async def test_export_of_selected_rows_contains_only_those_rows(job: Job, signed_in: OpenPage) -> None:
    page = await signed_in("ada", f"/jobs/{job.key}/results?causes=not_sold")
    await expect(page).to_have_url(re.compile("statuses=failed"))
    await page.get_by_role("grid").get_by_label("Select row 303", exact=True).click()
    await expect(page.get_by_text("1 row selected")).to_be_visible()
    await page.locator(".grid-foot").get_by_role("button", name="Export …").click()
    dialog = page.get_by_role("dialog", name="Export 1 row?")
    await expect(dialog).to_contain_text("1 selected row, status is failed, error code is not_sold")
    await dialog.get_by_text("Choose columns").click()
    await dialog.get_by_label("_attempts", exact=True).uncheck()
    await dialog.get_by_role("button", name="Move _status up").click()
    await axe(page)
    await screenshot(page, "job-export-columns")
    await dialog.get_by_role("button", name="Export 1").click()
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Download").click(timeout=30_000)
    lines = (await (await download.value).path()).read_text().splitlines()
    assert len(lines) == 2
    assert lines[0].endswith(",_status,_row,_error_code,_error")
    assert "not_sold" in lines[1]


async def test_job_of_another_user_shows_not_found(job: Job, signed_in: OpenPage) -> None:
    page = await signed_in("bob", f"/jobs/{job.key}", expect=("404",))
    await expect(page.get_by_text("Job not found")).to_be_visible()
    await page.get_by_role("link", name="Go to jobs", exact=True).click()
    await expect(page.get_by_text("No jobs yet")).to_be_visible()
    await screenshot(page, "jobs-empty")
