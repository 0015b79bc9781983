"""The failed items screen: groups by cause, retry of one or all rows, and the resulting operations."""

import re
from typing import Any

import httpx2
import pytest
from playwright.async_api import Page, expect

from support import rows
from tidemill.core.principal import Role
from web.conftest import OpenPage
from web.page_checks import axe, screenshot
from web.site import Site
from web.test_focus_and_errors import Gate

pytestmark = pytest.mark.asyncio(loop_scope="session")

SOLD_OUT = {"sku": "X", "title": "Sold out", "wish": "never"}
SHY = {"sku": "Y", "title": "Shy", "wish": "fail"}


def group(page: Page, cause: str) -> Any:
    return page.get_by_role("table", name="Causes").get_by_role("row").filter(has_text=cause)


async def test_dead_letters_are_grouped_by_cause_and_group_opens_its_rows(working: Site, signed_in: OpenPage) -> None:
    job = await working.finished("ada", [SOLD_OUT] * 40 + [SHY] * 3 + [{"sku": "ok"}])
    await working.finished("ada", [SHY] * 2)
    page = await signed_in("ada", "/dead-letters")
    await expect(page.get_by_text("45 rows in 2 groups")).to_be_visible()
    await expect(group(page, "not_sold")).to_contain_text("40")
    await expect(group(page, "exhausted")).to_contain_text("5")
    await axe(page)
    await page.get_by_role("button", name="exhausted").click()
    await expect(page).to_have_url(re.compile("cause=exhausted"))
    grid = page.get_by_role("grid", name="Failed items with cause exhausted")
    await expect(grid.get_by_role("row").filter(has_text="the shop did not answer")).to_have_count(5)
    await axe(page)
    await screenshot(page, "dead-letters")
    await page.get_by_placeholder("Job ID or key").fill(job.key)
    await expect(grid.get_by_role("row").filter(has_text="the shop did not answer")).to_have_count(3)
    await expect(group(page, "exhausted")).to_contain_text("3")


async def test_dead_letter_try_one_redrives_single_row_and_shows_outcome(working: Site, signed_in: OpenPage) -> None:
    await working.finished("bea", [SOLD_OUT] * 3)
    page = await signed_in("bea", "/dead-letters")
    await group(page, "not_sold").get_by_role("button", name="Retry one").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("this product is not sold")
    await dialog.get_by_role("button", name="Retry this row").click()
    await expect(dialog).to_contain_text("Failed again: not_sold")
    await axe(page)
    await screenshot(page, "dead-letters-try")
    await dialog.get_by_role("button", name="Close").click()
    await expect(group(page, "not_sold")).to_contain_text("3")


async def test_dead_letters_redrive_all_matching_except_deselected_rows_as_operation(
    working: Site, signed_in: OpenPage
) -> None:
    await working.finished("cem", [SOLD_OUT] * 12)
    page = await signed_in("cem", "/dead-letters?cause=not_sold")
    boxes = page.get_by_role("grid").get_by_role("checkbox")
    await boxes.nth(0).click()
    await page.get_by_role("button", name="Select all 12 matching").click()
    await boxes.nth(1).click()
    await boxes.nth(2).click()
    await expect(page.get_by_text("All 12 matching rows except 2")).to_be_visible()
    await page.get_by_role("button", name="Retry selected").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("heading")).to_have_text("Retry all matching rows except 2?")
    await expect(dialog).to_contain_text("Filter: cause is not_sold, your jobs. Matching rows at")
    await expect(dialog).to_contain_text(": 12; 2 of them are excluded.")
    await axe(page)
    await screenshot(page, "dead-letters-redrive")
    await dialog.get_by_role("button", name="Retry the others").click()
    await expect(page.get_by_text("Requeued 10 rows")).to_be_visible()
    stored = await rows(
        working.db, "SELECT predicate, items FROM tidemill.operation WHERE user_id = %s", working.ids["cem"]
    )
    assert [(stated["codes"], sum(map(len, stated["except"].values())), items) for stated, items in stored] == [
        (["not_sold"], 2, 10)
    ]
    await page.get_by_role("link", name="Show the operation").first.click()
    await expect(page).to_have_url(re.compile("/operations/[0-9a-f-]{36}$"))
    await expect(page.get_by_label("Selected operation")).to_contain_text("cause is not_sold, except 2 rows")


async def test_dead_letters_grid_keeps_selection_when_one_row_is_redriven(working: Site, signed_in: OpenPage) -> None:
    await working.finished("hal", [SOLD_OUT] * 3)
    page = await signed_in("hal", "/dead-letters?cause=not_sold")
    grid, foot, dialog = page.get_by_role("grid"), page.locator(".grid-foot"), page.get_by_role("dialog")
    await grid.get_by_role("checkbox").nth(0).click()
    await expect(foot).to_contain_text("1 row selected")
    await grid.get_by_role("button", name="Retry row 2 of").click()
    await dialog.get_by_role("button", name="Close").click()
    await expect(foot).to_contain_text("1 row selected")

    await grid.get_by_role("gridcell", name="2", exact=True).click()
    drawer = page.get_by_role("complementary")
    await drawer.get_by_label("Input, as JSON").fill('{"sku": "Z"}')
    await drawer.get_by_role("button", name="Save and retry").click()
    await expect(drawer.get_by_role("heading", name="Result")).to_be_visible()
    await expect(drawer.get_by_role("group")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(grid.get_by_role("row").nth(2)).to_contain_text("Retried: done")
    await expect(foot).to_contain_text("1 row selected")


async def test_dead_letters_screen_lists_all_job_types_and_refreshes_last_seen_age(
    working: Site, signed_in: OpenPage
) -> None:
    await working.finished("ida", [SOLD_OUT])
    other = await working.finished("ida", [SOLD_OUT])
    await rows(working.db, "UPDATE tidemill.job SET kind = 'other.kind' WHERE id = %s", other.id)
    page = await signed_in("ida", "/dead-letters?type=price.lookup")
    seen = group(page, "not_sold").get_by_role("cell").nth(3)
    await expect(seen).to_contain_text(re.compile(r"just now|\d s ago"))
    await expect(page.get_by_label("Job type").get_by_role("option")).to_have_text(
        ["Job type: any", "Job type: other.kind", "Job type: price.lookup"]
    )
    before = await seen.text_content()
    await expect(seen).not_to_have_text(str(before))


async def test_redriven_dead_letter_shows_no_outcome_until_item_is_loaded(working: Site, signed_in: OpenPage) -> None:
    await working.finished("jo", [SOLD_OUT])
    page = await signed_in("jo", "/dead-letters?cause=not_sold")
    held = Gate()
    await page.route("**/items/0", held.hold)
    await page.get_by_role("grid").get_by_role("button", name="Retry row 1 of").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Retry this row").click()
    await expect(dialog.get_by_role("status")).to_have_text("Requeued. Waiting for the result …")
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.get_by_role("gridcell", name="Retried", exact=True)).to_be_visible()
    held.opened.set()


async def redriven(site: Site, name: str) -> None:
    """Create three dead letters of a user, and redrive all but one."""
    job = await site.finished(name, [SOLD_OUT] * 3)
    request = {"all_matching": True, "filter": {"error_codes": ["not_sold"]}, "except": [f"{job.id}:0"]}
    headers = {"Authorization": f"Bearer {await site.user(name)}"}
    async with httpx2.AsyncClient(base_url=site.url, headers=headers, timeout=30, trust_env=False) as client:
        assert (await client.post("/v1/dead-letters/redrive", json=request)).status_code in (200, 202)


async def test_operations_list_shows_user_filter_item_count_and_state(working: Site, signed_in: OpenPage) -> None:
    await redriven(working, "finn")
    page = await signed_in("finn", "/operations")
    row = page.get_by_role("table", name="Operations").get_by_role("row").filter(has_text="retry")
    await expect(row).to_contain_text("finn")
    await expect(row).to_contain_text("all matching failed items, cause is not_sold, except 1 row")
    await expect(row).to_contain_text("2")
    await expect(row).to_contain_text("done")
    await row.get_by_role("link").click()
    await axe(page)
    await screenshot(page, "operations")


async def test_operations_list_updates_state_without_reload(working: Site, signed_in: OpenPage) -> None:
    page = await signed_in("dan", "/operations")
    await expect(page.get_by_text("No bulk operations yet")).to_be_visible()
    await axe(page)
    values = "VALUES (%s, 'redrive', '{}', 'done') RETURNING id"
    add = f"INSERT INTO tidemill.operation (user_id, verb, predicate, state) {values}"
    [(running,)] = await rows(working.db, add, working.ids["dan"])
    await expect(page.get_by_role("row").filter(has_text="retry")).to_contain_text("done", timeout=15_000)
    await rows(working.db, "UPDATE tidemill.operation SET state = 'failed', error = 'because' WHERE id = %s", running)
    await expect(page.get_by_role("row").filter(has_text="retry")).to_contain_text("because", timeout=15_000)


async def test_admin_sees_operations_and_dead_letters_of_all_users_after_selecting_all(
    working: Site, signed_in: OpenPage
) -> None:
    await redriven(working, "gus")
    page = await signed_in("root", "/operations", role=Role.ADMIN)
    await page.get_by_label("Owner").select_option("all")
    await expect(page.get_by_role("row").filter(has_text="gus")).to_have_count(1)
    await page.get_by_role("link", name="Failed items").click()
    await expect(group(page, "not_sold")).to_be_visible()


async def test_dead_letters_screen_shows_empty_state_when_none_exist(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("nobody", "/dead-letters")
    await expect(page.get_by_text("No failed items")).to_be_visible()
    await axe(page)
    await screenshot(page, "dead-letters-empty")
