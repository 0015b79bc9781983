"""The pending list of all jobs and of one job, and its actions."""

import re
from uuid import UUID

import pytest
from playwright.async_api import Locator, Page, expect

from support import RETRY, assert_sound, rows, settle, take, verdict
from tidemill.core.principal import Role
from tidemill.store import workers
from web.conftest import OpenPage
from web.page_checks import axe, screenshot
from web.site import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

COLUMNS = ["Selected", "Item ID", "Job ID", "Input", "Status", "Wait reason", "Attempts"]
COLUMNS += ["Worker", "Updated at", "Kind", "Progress"]
# Whether the content of a cell fits.
FITS = """it => {
  const inside = document.createRange();
  inside.selectNodeContents(it);
  const { paddingLeft, paddingRight } = getComputedStyle(it);
  const room = it.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
  return inside.getBoundingClientRect().width <= room + 1;
}"""


async def waiting_for_a_retry(site: Site, name: str, n: int = 3) -> str:
    """Create a job whose rows were attempted once and wait an hour for a retry, and return its ID."""
    job = await site.submit(name, [{"sku": f"R-{seq}", "title": f"Retried {seq}"} for seq in range(n)])
    lease = await take(site.db, UUID(job["id"]))
    await settle(site.db, lease, [verdict(seq, RETRY, delay=3600.0) for seq in range(n)])
    return str(job["id"])


async def in_hand(site: Site, name: str, n: int = 2) -> str:
    job = await site.submit(name, [{"sku": f"H-{seq}", "title": f"Held {seq}"} for seq in range(n)])
    await take(site.db, UUID(job["id"]), worker="mill-9", lease=600.0)
    return str(job["id"])


async def due(site: Site, job: str) -> list[int]:
    query = "SELECT unnest(seqs) FROM tidemill.batch WHERE job_id = %s AND not_before <= tidemill.now()"
    return sorted(row[0] for row in await rows(site.db, query, UUID(job)))


def line(page: Page, title: str) -> Locator:
    return page.get_by_role("row").filter(has_text=title)


async def test_pending_list_shows_open_rows_with_wait_reason(site: Site, signed_in: OpenPage) -> None:
    await site.submit("ada", [{"sku": f"P-{n}", "title": f"Pending {n}", "brand": "Acme"} for n in range(450)])
    await in_hand(site, "ada")
    await waiting_for_a_retry(site, "ada")
    page = await signed_in("ada", "/pending")
    grid = page.get_by_role("grid", name="Open rows of all jobs")
    await expect(grid.get_by_role("columnheader")).to_have_text(COLUMNS)
    await expect(line(page, "Pending 0 · Acme")).to_contain_text("No running worker handles this kind")
    await expect(page.get_by_role("button", name="pending 450")).to_have_attribute("aria-pressed", "true")
    await expect(page.get_by_role("button", name="retry wait 3")).to_have_attribute("aria-pressed", "false")
    await page.get_by_role("button", name="pending 450").click()  # leaves the processing rows
    await expect(line(page, "Held 0")).to_contain_text("Processing on worker mill-9")
    await expect(page).to_have_url(re.compile("statuses=processing"))
    await axe(page)
    await page.get_by_role("button", name="Clear filters").click()
    await expect(line(page, "Pending 0 ·")).to_be_visible()
    await screenshot(page, "pending")


async def test_pending_list_loads_more_rows_on_scroll(site: Site, signed_in: OpenPage) -> None:
    await site.submit("gil", [{"sku": f"P-{n}", "title": f"Pending {n}", "brand": "Acme"} for n in range(450)])
    await in_hand(site, "gil")
    page = await signed_in("gil", "/pending")
    await expect(line(page, "Pending 0 ·")).to_be_visible()
    await line(page, "Pending 0 ·").get_by_role("gridcell").first.focus()
    for loaded in ("400 loaded", "452 loaded"):
        await page.keyboard.press("Control+End")
        await expect(page.get_by_text(loaded)).to_be_visible()
    await page.keyboard.press("Control+End")
    await expect(line(page, "Held 1")).to_be_visible()


async def test_pending_filters_are_read_from_and_stored_in_url(site: Site, signed_in: OpenPage) -> None:
    job = await waiting_for_a_retry(site, "ada", 1)
    await site.db.run(workers.register_worker, "mill-9", "here", 1, {"kinds": ["price.lookup"]})
    key = (await rows(site.db, "SELECT key FROM tidemill.job WHERE id = %s", UUID(job)))[0][0]
    page = await signed_in("ada", f"/pending?statuses=retry_wait&job={key}&type=price.lookup")
    await expect(page.get_by_role("row").filter(has_text="Retried")).to_have_count(1)
    await expect(line(page, "Retried 0")).to_contain_text(re.compile(r"Waiting for its retry at [\d :-]+, after test"))
    search = page.get_by_placeholder("Search by file name or key")
    await search.fill("J19990101")
    await expect(page.get_by_text('No job found with the key, ID or file name "J19990101"')).to_be_visible()
    await search.fill("")
    await page.get_by_label("Updated from").fill("2001-01-01")
    await page.get_by_label("to", exact=True).fill("2001-01-02")
    await expect(page.get_by_text("Nothing matches this filter")).to_be_visible()
    await expect(page).to_have_url(re.compile("from=2001-01-01.*to=2001-01-02"))


async def test_run_now_makes_selected_retry_rows_due_and_reports_leased_ones(site: Site, signed_in: OpenPage) -> None:
    one, other, held = (
        await waiting_for_a_retry(site, "cleo"),
        await waiting_for_a_retry(site, "cleo"),
        await in_hand(site, "cleo", 1),
    )
    page = await signed_in("cleo", "/pending?statuses=retry_wait,processing")
    for title, n in {"Retried 1": 2, "Held 0": 1}.items():
        await expect(line(page, title)).to_have_count(n)
        for box in await line(page, title).get_by_role("checkbox").all():
            await box.click()
    await expect(page.get_by_text("3 rows selected")).to_be_visible()
    await page.get_by_role("button", name="Run selected now").click()
    await expect(page.get_by_text("2 rows are due now; 1 row is already being processed")).to_be_visible()
    assert (await due(site, one), await due(site, other), await due(site, held)) == ([1], [1], [])
    await assert_sound(site.db)


async def test_pending_row_drawer_shows_details_and_links_to_job(site: Site, signed_in: OpenPage) -> None:
    job = await waiting_for_a_retry(site, "dora", 2)
    page = await signed_in("dora", "/pending?statuses=retry_wait")
    await line(page, "Retried 1").get_by_text("Retried 1").click()
    drawer = page.get_by_role("complementary")
    await expect(drawer).to_contain_text(f"{job}:1")
    await expect(drawer).to_contain_text("because")
    await axe(page)
    await screenshot(page, "pending-row")
    await drawer.get_by_role("button", name="Run this row now").click()
    await expect(page.get_by_text("1 row is due now")).to_be_visible()
    assert await due(site, job) == [1]
    await page.keyboard.press("Escape")
    await line(page, "Retried 0").get_by_text("Retried 0").click()
    await page.get_by_role("link", name="Go to job").click()
    await expect(page).to_have_url(re.compile(r"/jobs/J\d+_\d+$"))


async def test_job_pending_tab_shows_only_rows_of_that_job(site: Site, signed_in: OpenPage) -> None:
    job = await waiting_for_a_retry(site, "emil", 2)
    await waiting_for_a_retry(site, "emil", 2)
    page = await signed_in("emil", f"/jobs/{job}/pending")
    await expect(page.get_by_text("Nothing matches this filter")).to_be_visible()
    await expect(page.get_by_text(", but 2 rows wait for a retry.")).to_be_visible()
    await expect(page.get_by_text("Every row is settled")).to_have_count(0)
    await page.get_by_role("button", name="Show them").click()
    await expect(page).to_have_url(re.compile("statuses=retry_wait"))
    await expect(page.get_by_role("row").filter(has_text="Retried")).to_have_count(2)
    await axe(page)
    await screenshot(page, "job-pending")


async def test_admin_sees_pending_rows_of_all_users_after_selecting_all(site: Site, signed_in: OpenPage) -> None:
    await waiting_for_a_retry(site, "hal", 1)
    page = await signed_in("root", "/pending?statuses=retry_wait", role=Role.ADMIN)
    await expect(page.get_by_text("No open rows")).to_be_visible()
    await page.get_by_label("Owner").select_option("all")
    await expect(line(page, "Retried 0").first).to_be_visible()


async def test_pending_screen_shows_empty_state_with_submit_command(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("nobody", "/pending")
    await expect(page.get_by_text("No open rows")).to_be_visible()
    await expect(page.get_by_text("tidemill submit")).to_be_visible()
    await axe(page)
    await screenshot(page, "pending-empty")


async def test_pending_hint_about_rows_outside_filter_disappears_when_none_wait(
    site: Site, signed_in: OpenPage
) -> None:
    job = await waiting_for_a_retry(site, "ines", 1)
    page = await signed_in("ines", "/pending")
    await expect(page.get_by_text(", but 1 row waits for a retry.")).to_be_visible()
    await site.ask("ines", "POST", f"/v1/jobs/{job}/cancel")
    await expect(page.get_by_text("No open rows")).to_be_visible()
    await expect(page.get_by_role("button", name="Show them")).to_be_hidden()


@pytest.mark.parametrize("screen", ["/pending", "/jobs/{job}/pending"])
async def test_pending_status_counts_are_hidden_when_date_filter_is_set(
    site: Site, signed_in: OpenPage, screen: str
) -> None:
    job = await waiting_for_a_retry(site, "jon", 1)
    page = await signed_in("jon", screen.format(job=job))
    toggles = page.get_by_role("group", name="Status").get_by_role("button")
    await expect(toggles.first).to_have_text(re.compile(r"\d"))
    await page.get_by_label("Updated from").fill("2001-01-01")
    await expect(toggles.first).not_to_have_text(re.compile(r"\d"))


async def test_pending_item_ids_differ_for_jobs_of_the_same_minute(site: Site, signed_in: OpenPage) -> None:
    jobs = [await in_hand(site, "kim", 1) for _ in range(2)]
    page = await signed_in("kim", "/pending")
    cells = [line(page, "Held 0").nth(n).get_by_role("gridcell").nth(1) for n in range(2)]
    assert sorted([await cell.inner_text() for cell in cells]) == sorted(f"…{job[-4:]}:0" for job in jobs)


async def test_process_now_is_disabled_when_paused_and_hidden_when_cancelled(site: Site, signed_in: OpenPage) -> None:
    job = await site.submit("lea", [{"sku": "A"}])
    page = await signed_in("lea", f"/jobs/{job['key']}/pending")
    await expect(page.get_by_role("button", name="Process now")).to_be_enabled()
    await site.ask("lea", "POST", f"/v1/jobs/{job['id']}/pause")
    await expect(page.get_by_role("button", name="Process now")).to_be_disabled()
    await site.ask("lea", "POST", f"/v1/jobs/{job['id']}/cancel")
    await expect(page.get_by_role("button", name="Process now")).to_be_hidden()


async def test_pending_grid_shows_every_column_at_1280_pixels(site: Site, signed_in: OpenPage) -> None:
    await in_hand(site, "max", 1)
    bars = 2 * 15  # scrollbars of the page and the grid; those of a headless browser have no width
    page = await signed_in("max", "/pending", viewport={"width": 1280 - bars, "height": 800})
    await expect(line(page, "Held 0")).to_be_visible()
    box = await page.get_by_role("grid").bounding_box()
    last = await page.get_by_role("columnheader", name="Progress").bounding_box()
    assert box is not None
    assert last is not None
    assert last["x"] + last["width"] <= box["x"] + box["width"]
    for name in COLUMNS[1:]:
        label = page.get_by_role("columnheader", name=name, exact=True)
        assert await label.evaluate(FITS), f"{name} is cut"
    cells = line(page, "Held 0").get_by_role("gridcell")
    for n in (1, 2, 4, 6, 7, 8, 9, 10):  # columns with values of a known length, not with user text
        assert await cells.nth(n).evaluate(FITS), f"a value of {COLUMNS[n]} is cut"
