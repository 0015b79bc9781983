"""Actions on selected rows affect exactly those rows, with the count of the service."""

import re
from uuid import UUID

import pytest
from playwright.async_api import Page, expect

from support import rows
from tidemill.jobs import job_control
from web.conftest import OpenPage
from web.page_checks import axe, screenshot
from web.site import Site
from web.test_focus_and_errors import Gate

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def select(page: Page, *numbers: int) -> None:
    for number in numbers:
        box = page.get_by_role("grid").get_by_label(f"Select row {number}", exact=True)
        await box.click()
        await expect(box).to_be_checked()


async def waiting_job(site: Site, n: int = 40) -> dict[str, str]:
    return await site.submit("ada", [{"sku": f"AB-{seq}"} for seq in range(n)])


async def test_cancel_matching_rows_excludes_deselected_and_allows_reprocess(site: Site, signed_in: OpenPage) -> None:
    job = await waiting_job(site)
    page = await signed_in("ada", f"/jobs/{job['key']}/results?key=AB-1*")
    await expect(page.get_by_text("11 matching · 11 loaded")).to_be_visible()
    await select(page, 2)
    await page.get_by_role("button", name="Select all 11 matching").click()
    await page.get_by_role("grid").get_by_label("Select row 11", exact=True).click()
    await expect(page.get_by_text("10 rows selected of 11 matching")).to_be_visible()
    await page.locator(".grid-foot").get_by_role("button", name="Cancel …").click()
    dialog = page.get_by_role("dialog", name="Cancel 10 rows?")
    await expect(dialog).to_contain_text("an input value starts with AB-1, except 1 row")
    await axe(page)
    await screenshot(page, "cancel-rows")
    await dialog.get_by_role("button", name="Cancel 10").click()
    await expect(page.get_by_text("Cancelled 10 rows")).to_be_visible()

    await page.goto(f"{site.url}/jobs/{job['key']}/results?statuses=cancelled&key=AB-12")
    await select(page, 13)
    await page.get_by_role("button", name="Run again …", exact=True).last.click()
    await page.get_by_role("dialog", name="Run 1 row again?").get_by_role("button", name="Run 1 again").click()
    await expect(page.get_by_text("Requeued 1 row")).to_be_visible()
    counts = "SELECT pending, cancelled FROM tidemill.job_progress WHERE key = %s"
    assert await rows(site.db, counts, job["key"]) == [(31, 9)]


async def test_reprocess_confirmation_counts_only_rows_that_can_run(site: Site, signed_in: OpenPage) -> None:
    job = await waiting_job(site)
    await job_control.cancel_job(site.db, UUID(job["id"]))
    page = await signed_in("ada", f"/jobs/{job['key']}/results?statuses=cancelled")
    await select(page, 1)
    await page.get_by_role("button", name="Select all 40 matching").click()
    await page.get_by_role("grid").get_by_label("Select row 3", exact=True).click()
    await page.get_by_role("button", name="Run again …", exact=True).last.click()
    await page.get_by_role("dialog", name="Run 39 rows again?").get_by_role("button", name="Run 39 again").click()
    await expect(page.get_by_text("Requeued 39 rows")).to_be_visible()

    await page.goto(f"{site.url}/jobs/{job['key']}/results")
    await select(page, 1)
    await page.get_by_role("button", name="Run again …", exact=True).last.click()
    await expect(page.get_by_text("None of these rows can run again")).to_be_visible()


async def test_selection_survives_new_columns_and_cancelled_navigation(site: Site, signed_in: OpenPage) -> None:
    job = await waiting_job(site)
    page = await signed_in("ada", f"/jobs/{job['key']}/results")
    await page.get_by_role("button", name="pending 40").click()
    await expect(page).to_have_url(re.compile("statuses=pending"))
    await select(page, 2)
    learn = "UPDATE tidemill.job SET result_columns = '{fresh,cents}', updated_at = tidemill.now() WHERE key = %s"
    await rows(site.db, learn, job["key"])
    await expect(page.get_by_text("new columns are available")).to_be_visible()
    await expect(page.get_by_role("grid").get_by_label("Select row 2", exact=True)).to_be_checked()

    await page.go_back()
    await page.get_by_role("dialog", name="Clear the selection?").get_by_role("button", name="Go back").click()
    await expect(page).to_have_url(re.compile("statuses=pending"))
    await expect(page.get_by_text("1 row selected")).to_be_visible()
    await page.locator(".grid-foot").get_by_role("button", name="Clear").click()
    await expect(page.get_by_role("columnheader", name="fresh")).to_be_visible()


async def test_results_filter_replaces_invalid_statuses(site: Site, signed_in: OpenPage) -> None:
    job = await waiting_job(site)
    page = await signed_in("ada", f"/jobs/{job['key']}/results?statuses=bogus")
    await expect(page.locator(".grid-foot").get_by_text("40 rows")).to_be_visible()
    await page.goto(f"{site.url}/jobs/{job['key']}/results?statuses=done&causes=not_sold")
    await expect(page).to_have_url(re.compile("statuses=failed"))


async def test_shift_arrow_selection_shrinks_when_direction_reverses(site: Site, signed_in: OpenPage) -> None:
    job = await waiting_job(site)
    page = await signed_in("ada", f"/jobs/{job['key']}/results")
    await select(page, 2)
    for key, n in (("ArrowDown", 2), ("ArrowDown", 3), ("ArrowUp", 2), ("ArrowUp", 1), ("ArrowUp", 2)):
        await page.keyboard.press(f"Shift+{key}")
        await expect(page.locator(".grid-foot")).to_contain_text(f"{n} row{'s' if n > 1 else ''} selected")


async def test_shrinking_range_keeps_rows_selected_earlier(site: Site, signed_in: OpenPage) -> None:
    job = await waiting_job(site, 230)
    page = await signed_in("ada", f"/jobs/{job['key']}/results")
    foot = page.locator(".grid-foot")
    await select(page, 5, 8, 3)
    for key, times, n in (("ArrowDown", 6, 7), ("ArrowUp", 5, 4)):
        for _ in range(times):
            await page.keyboard.press(f"Shift+{key}")
        await expect(foot).to_contain_text(f"{n} rows selected")
    await page.keyboard.press("Control+a")
    for key in ("End", "Home"):
        await page.keyboard.press(f"Control+Shift+{key}")
        await expect(foot).to_contain_text("230 rows selected of 230 matching")

    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="pending 230").click()
    await expect(foot).to_contain_text("230 matching \N{MIDDLE DOT} 200 loaded")
    await select(page, 1)
    await page.keyboard.press("Control+Shift+End")
    await expect(foot).to_contain_text("200 rows selected")
    await expect(page.get_by_text("no longer loaded")).to_have_count(0)


async def test_range_selection_extends_from_anchor_after_jump_to_row(site: Site, signed_in: OpenPage) -> None:
    job = await waiting_job(site, 15_500)
    page = await signed_in("ada", f"/jobs/{job['key']}/results")
    foot = page.locator(".grid-foot")
    await select(page, 1)
    await page.get_by_label("Go to row").fill("15000")
    await page.keyboard.press("Enter")
    await page.get_by_role("grid").get_by_label("Select row 15,000", exact=True).click(modifiers=["Shift"])
    await expect(foot).to_contain_text("15,000 rows selected")

    await foot.get_by_role("button", name="Export …").click()
    dialog = page.get_by_role("dialog", name="Export 15,000 rows?")
    await expect(dialog).to_contain_text("15,000 selected rows, job")
    await dialog.get_by_role("button", name="Go back").click()
    await foot.get_by_role("button", name="Cancel …").click()
    await page.get_by_role("dialog", name="Cancel 15,000 rows?").get_by_role("button", name="Cancel 15,000").click()
    await expect(page.get_by_text("Cancelled 15,000 rows")).to_be_visible()
    counts = "SELECT pending, cancelled FROM tidemill.job_progress WHERE key = %s"
    assert await rows(site.db, counts, job["key"]) == [(500, 15_000)]
    await page.get_by_role("link", name="Show the operation").click()
    await expect(page.get_by_label("Selected operation")).to_contain_text("15,000 selected rows")


async def test_results_status_counts_are_hidden_when_key_filter_is_set(site: Site, signed_in: OpenPage) -> None:
    job = await waiting_job(site)
    page = await signed_in("ada", f"/jobs/{job['key']}/results")
    toggle = page.get_by_role("group", name="Status").get_by_role("button", name="pending")
    await expect(toggle).to_have_text("pending40")
    await page.get_by_role("searchbox").fill("AB-1*")
    await expect(page.locator(".grid-foot")).to_contain_text("11 matching \N{MIDDLE DOT} 11 loaded")
    await expect(toggle).to_have_text("pending")
    await page.get_by_role("button", name="Clear filters").click()
    await expect(toggle).to_have_text("pending40")


async def test_kept_selection_keeps_filter_and_grid_refreshes_after_clear(site: Site, signed_in: OpenPage) -> None:
    job = await waiting_job(site)
    page = await signed_in("ada", f"/jobs/{job['key']}/results")
    await select(page, 2)
    await page.get_by_role("searchbox").fill("AB-1*")
    await page.get_by_role("dialog", name="Clear the selection?").get_by_role("button", name="Go back").click()
    await expect(page.get_by_role("searchbox")).to_have_value("")

    held = Gate()
    await page.route("**/selection/count", held.hold)
    export = page.locator(".grid-foot").get_by_role("button", name="Export …")
    await export.press("Enter")
    await export.press("Enter")
    held.opened.set()
    await page.get_by_role("dialog", name="Export 1 row?").get_by_role("button", name="Go back").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert held.n == 1

    await job_control.cancel_job(site.db, UUID(job["id"]))
    await expect(page.locator(".head .title")).to_contain_text("cancelled")
    await expect(page.get_by_role("gridcell", name="pending").first).to_be_visible()
    await page.locator(".grid-foot").get_by_role("button", name="Clear").click()
    await expect(page.get_by_role("gridcell", name="cancelled").first).to_be_visible()
