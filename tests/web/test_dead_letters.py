"""The failed items screen: groups by cause, retry of one or all rows, and the resulting operations."""

import re
from typing import Any

import httpx2
import pytest
from playwright.async_api import Page, expect
from psycopg.types.json import Jsonb

from support import add_job, rows, settle, take
from tidemill.core.decide import Verdict
from tidemill.core.principal import Role
from tidemill.core.status import ItemStatus
from web.conftest import OpenPage
from web.page_checks import axe, isolated, screenshot
from web.site import Site
from web.test_focus_and_errors import Gate
from web.test_narrow_windows import OUT_OF_REACH, TOO_WIDE

pytestmark = pytest.mark.asyncio(loop_scope="session")

SOLD_OUT = {"sku": "X", "title": "Sold out", "wish": "never"}
SHY = {"sku": "Y", "title": "Shy", "wish": "fail"}


SILENT = "the shop did not answer"  # the message of SHY
NOT_SOLD = "this product is not sold"


async def open_group(page: Page, message: str) -> None:
    await group(page, message).get_by_role("button", expanded=False).click()


def group(page: Page, cause: str) -> Any:
    return page.get_by_role("table", name="Errors").get_by_role("row").filter(has_text=cause)


async def test_dead_letters_are_grouped_by_cause_and_group_opens_its_rows(working: Site, signed_in: OpenPage) -> None:
    job = await working.finished("ada", [SOLD_OUT] * 40 + [SHY] * 3 + [{"sku": "ok"}])
    await working.finished("ada", [SHY] * 2)
    page = await signed_in("ada", "/dead-letters")
    await expect(page.get_by_text("45 rows in 2 groups")).to_be_visible()
    await expect(group(page, "not_sold")).to_contain_text("40")
    await expect(group(page, SILENT)).to_contain_text("5")
    await axe(page)
    await open_group(page, SILENT)
    await expect(page).to_have_url(re.compile("group=[0-9a-f]{32}"))
    grid = page.get_by_role("grid", name=re.compile(f"Failed items with error .*{SILENT}"))
    await expect(grid.get_by_role("row").filter(has_text="the shop did not answer")).to_have_count(5)
    await axe(page)
    await screenshot(page, "dead-letters")
    await page.get_by_placeholder("Search by file name or key").fill(job.key)
    await expect(grid.get_by_role("row").filter(has_text="the shop did not answer")).to_have_count(3)
    await expect(group(page, SILENT)).to_contain_text("3")


async def test_dead_letters_search_finds_job_by_file_name(working: Site, signed_in: OpenPage) -> None:
    jobs = [await working.finished("mia", [SHY] * n) for n in (3, 2)]
    for job, name in zip(jobs, ("orders.csv", "prices.csv"), strict=True):
        await rows(working.db, "UPDATE tidemill.job SET source = %s WHERE id = %s", Jsonb({"name": name}), job.id)
    page = await signed_in("mia", "/dead-letters")
    await expect(group(page, SILENT)).to_contain_text("5")
    search = page.get_by_placeholder("Search by file name or key")
    await search.fill("Orders")
    await expect(group(page, SILENT)).to_contain_text("3")
    await search.fill(".csv")
    await expect(page.get_by_text(f'Several jobs match ".csv": {jobs[1].key}, {jobs[0].key}.')).to_be_visible()


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


async def test_dead_letter_drawer_shows_traceback_and_attempts(working: Site, signed_in: OpenPage) -> None:
    await working.finished("ivy", [SHY])
    page = await signed_in("ivy", "/dead-letters")
    await open_group(page, "ValueError")
    await page.get_by_role("grid").get_by_role("gridcell", name="1", exact=True).click()
    drawer = page.get_by_role("complementary")
    await expect(drawer.locator("details pre")).to_contain_text("ValueError: the shop did not answer")
    await expect(drawer.get_by_role("table", name="Attempts").locator("tbody").get_by_role("row")).to_have_count(2)
    await screenshot(page, "item-traceback")


async def test_dead_letters_redrive_all_matching_except_deselected_rows_as_operation(
    working: Site, signed_in: OpenPage
) -> None:
    await working.finished("cem", [SOLD_OUT] * 12)
    page = await signed_in("cem", "/dead-letters")
    await open_group(page, NOT_SOLD)
    boxes = page.get_by_role("grid").get_by_role("checkbox")
    await boxes.nth(0).click()
    await page.get_by_role("button", name="Select all 12 matching").click()
    await boxes.nth(1).click()
    await boxes.nth(2).click()
    await expect(page.get_by_text("All 12 matching rows except 2")).to_be_visible()
    await page.get_by_role("button", name="Retry selected").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("heading")).to_have_text("Retry all matching rows except 2?")
    await expect(dialog).to_contain_text(
        "Filter: error is not_sold: this product is not sold, your jobs. Matching rows at"
    )
    await expect(dialog).to_contain_text(": 12; 2 of them are excluded.")
    await axe(page)
    await screenshot(page, "dead-letters-redrive")
    await dialog.get_by_role("button", name="Retry the others").click()
    await expect(page.get_by_text("Requeued 10 rows")).to_be_visible()
    stored = await rows(
        working.db, "SELECT predicate, items FROM tidemill.operation WHERE user_id = %s", working.ids["cem"]
    )
    assert [(stated["category"], sum(map(len, stated["except"].values())), items) for stated, items in stored] == [
        ("handler", 2, 10)
    ]
    await page.get_by_role("link", name="Show the operation").first.click()
    await expect(page).to_have_url(re.compile("/operations/[0-9a-f-]{36}$"))
    await expect(page.get_by_label("Selected operation")).to_contain_text(
        "handler failures, in one error group, except 2 rows"
    )


async def test_dead_letters_grid_keeps_selection_when_one_row_is_redriven(working: Site, signed_in: OpenPage) -> None:
    await working.finished("hal", [SOLD_OUT] * 3)
    page = await signed_in("hal", "/dead-letters")
    await open_group(page, NOT_SOLD)
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
    await expect(page.get_by_label("Kind").get_by_role("option")).to_have_text(
        ["Kind: any", "Kind: other.kind", "Kind: price.lookup"]
    )
    before = await seen.text_content()
    await expect(seen).not_to_have_text(str(before))


async def test_redriven_dead_letter_shows_no_outcome_until_item_is_loaded(working: Site, signed_in: OpenPage) -> None:
    await working.finished("jo", [SOLD_OUT])
    page = await signed_in("jo", "/dead-letters")
    await open_group(page, NOT_SOLD)
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
    await expect(row).to_contain_text("all matching failed items, error code is not_sold, except 1 row")
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
    await expect(group(page, "not_sold").first).to_be_visible()


async def test_dead_letters_screen_shows_empty_state_when_none_exist(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("nobody", "/dead-letters")
    await expect(page.get_by_text("No failed items")).to_be_visible()
    await axe(page)
    await screenshot(page, "dead-letters-empty")


async def fail_imports(site: Site, name: str) -> dict[str, str]:
    """Create an import and a dry run of a user, each with two invalid rows; return their keys."""
    keys = {}
    for category, params in (("invalid_row", {}), ("dry_run", {"plan": {"validate_only": True}})):
        await site.user(name)
        job_id = await add_job(site.db, 2, owner_id=site.ids[name], kind="no.worker", params=params)
        error = b'{"code": "email.pattern", "field": "email", "reason": "must be an e-mail address"}'
        failed = [Verdict(seq, ItemStatus.FAILED, 1, 1, error=error, code="email.pattern") for seq in range(2)]
        await settle(site.db, await take(site.db, job_id), failed)
        rename = "UPDATE tidemill.job SET kind = 'tidemill.import' WHERE id = %s RETURNING key"
        [(keys[category],)] = await rows(site.db, rename, job_id)
    return keys


def category(page: Page, name: str) -> Any:
    return page.get_by_role("group", name="Category").get_by_role("button", name=name)


async def test_failed_items_screen_separates_categories_and_offers_their_actions(
    working: Site, signed_in: OpenPage
) -> None:
    keys = await fail_imports(working, "kay")
    page = await signed_in("kay", "/dead-letters")
    await expect(category(page, "Invalid import rows")).to_have_attribute("aria-pressed", "true")
    await expect(group(page, "email.pattern")).to_have_count(1)
    await expect(group(page, "email.pattern").get_by_role("button", name="Fix and retry")).to_be_visible()
    await expect(page.get_by_role("button", name="Retry all")).to_have_count(0)
    await working.finished("kay", [SOLD_OUT])
    await page.goto(f"{working.url}/dead-letters")
    await expect(category(page, "Handler failures")).to_have_attribute("aria-pressed", "true")
    await expect(category(page, "Handler failures")).to_contain_text("1")
    await category(page, "Dry-run rows").click()
    await expect(page).to_have_url(re.compile("show=dry_run"))
    await expect(group(page, "email.pattern").get_by_role("link", name="Promote the dry run")).to_have_attribute(
        "href", re.compile(keys["dry_run"])
    )
    await expect(page.get_by_role("button", name="Retry")).to_have_count(0)
    await axe(page)


async def test_dismissed_rows_leave_failed_items_and_can_be_restored(working: Site, signed_in: OpenPage) -> None:
    await working.finished("lea", [SOLD_OUT] * 3 + [SHY])
    page = await signed_in("lea", "/dead-letters")
    await group(page, NOT_SOLD).get_by_role("button", name="Dismiss").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("heading")).to_have_text("Dismiss 3 rows?")
    await expect(dialog).to_contain_text("Their jobs and counts do not change.")
    await axe(page)
    await dialog.get_by_role("button", name="Dismiss 3 rows").click()
    await expect(page.get_by_text("Dismissed 3 rows")).to_be_visible()
    await expect(group(page, NOT_SOLD)).to_have_count(0)
    await expect(category(page, "Handler failures")).to_contain_text("1")
    await category(page, "Dismissed").click()
    await expect(category(page, "Dismissed")).to_contain_text("3")
    await open_group(page, NOT_SOLD)
    grid = page.get_by_role("grid")
    await expect(grid).to_contain_text("by lea")
    await axe(page)
    await screenshot(page, "dead-letters-dismissed")
    await grid.get_by_role("button", name="Restore row 2 of").click()
    await expect(category(page, "Handler failures")).to_contain_text("2")
    await grid.get_by_role("checkbox").nth(0).click()
    await page.get_by_role("button", name="Restore selected").click()
    await expect(category(page, "Handler failures")).to_contain_text("3")


async def test_selected_rows_are_dismissed_without_the_others(working: Site, signed_in: OpenPage) -> None:
    await working.finished("moe", [SOLD_OUT] * 3)
    page = await signed_in("moe", "/dead-letters")
    await open_group(page, NOT_SOLD)
    await page.get_by_role("grid").get_by_role("checkbox").nth(1).click()
    await page.get_by_role("button", name="Dismiss selected").click()
    await expect(page.get_by_text("Dismissed 1 row.")).to_be_visible()
    await expect(group(page, NOT_SOLD)).to_contain_text("2")


async def test_retry_dialog_warns_about_rows_that_probably_fail_again(working: Site, signed_in: OpenPage) -> None:
    await working.finished("ned", [SOLD_OUT] * 2)
    page = await signed_in("ned", "/dead-letters")
    await group(page, NOT_SOLD).get_by_role("button", name="Retry all").click()
    notice = page.get_by_role("dialog").get_by_role("note")
    await expect(notice).to_contain_text("A retry will probably not succeed for these rows:")
    await expect(notice).to_contain_text("2 rows with a permanent error")
    await axe(page)
    await screenshot(page, "dead-letters-forecast")
    await page.get_by_role("button", name="Go back").click()
    await fail_imports(working, "ned")
    await page.goto(f"{working.url}/dead-letters?show=invalid_row")
    await open_group(page, "email.pattern")
    await page.get_by_role("grid").get_by_role("checkbox").nth(0).click()
    await page.get_by_role("button", name="Retry selected").click()
    await expect(notice).to_contain_text("1 row with invalid values in imports: the same input fails again.")


async def test_retry_dialogs_of_import_warn_that_invalid_rows_fail_again(working: Site, signed_in: OpenPage) -> None:
    keys = await fail_imports(working, "pia")
    page = await signed_in("pia", f"/jobs/{keys['invalid_row']}")
    notice = page.get_by_role("dialog").get_by_role("note")
    for button in ("Retry failed …", "Retry failures with error code email.pattern"):
        await page.get_by_role("button", name=button, exact=True).click()
        await expect(notice).to_contain_text(
            "2 rows with invalid values in imports: the same input fails again. Fix the rows first."
        )
        await axe(page)
        await page.get_by_role("button", name="Go back").click()
    await page.goto(f"{working.url}/jobs/{keys['dry_run']}")
    await page.get_by_role("button", name="Retry failed …", exact=True).click()
    await expect(notice).to_contain_text("2 rows of dry runs: the same input fails again")


async def test_failed_items_fit_phone_with_visible_actions(working: Site, signed_in: OpenPage) -> None:
    await working.finished("oli", [SOLD_OUT] * 2 + [SHY])
    page = await signed_in("oli", "/dead-letters", viewport={"width": 390, "height": 800})
    await expect(group(page, NOT_SOLD).get_by_role("button", name="Dismiss")).to_be_in_viewport(ratio=1)
    await expect(group(page, NOT_SOLD).get_by_role("button", name="Retry all")).to_be_in_viewport(ratio=1)
    await open_group(page, NOT_SOLD)
    await page.get_by_role("grid").get_by_role("checkbox").nth(0).click()
    await expect(page.get_by_role("button", name="Dismiss selected")).to_be_visible()
    assert await isolated(page, TOO_WIDE) == ""
    assert await isolated(page, OUT_OF_REACH) == ""
    await isolated(page, "document.querySelector('.error-message').textContent = 'a long message '.repeat(20)")
    assert await isolated(page, "document.querySelector('.error-groups').scrollWidth <= window.innerWidth")
    await page.reload()
    await expect(group(page, NOT_SOLD)).to_be_visible()
    await screenshot(page, "dead-letters-phone")
