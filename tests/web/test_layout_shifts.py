"""Nothing moves under the pointer, and counts match the lists."""

import json
import re
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio
from playwright.async_api import Route, expect

from support import FAILED, settle, take, verdict
from web.conftest import OpenPage
from web.page_checks import follow_link, isolated
from web.site import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def job(site: Site) -> dict[str, Any]:
    return await site.submit("ada", [{"sku": f"A-{n}"} for n in range(100)])


async def test_grid_does_not_scroll_when_drawer_opens_and_closes(
    site: Site, signed_in: OpenPage, job: dict[str, Any]
) -> None:
    page = await signed_in("ada", f"/jobs/{job['key']}/results")
    await page.get_by_role("gridcell", name="A-4", exact=True).click()
    await expect(page.get_by_role("complementary")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("complementary")).to_have_count(0)
    assert await isolated(page, "document.querySelector('.grid-scroll').scrollTop") == 0


async def test_paused_notice_does_not_move_heading(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("ada", "/jobs")
    heading = page.get_by_role("heading", name="Jobs", exact=True)
    before = await heading.bounding_box()
    await page.get_by_role("button", name="Live updates").click()
    await expect(page.get_by_text("Paused. Showing data from")).to_be_visible()
    assert await heading.bounding_box() == before


async def test_new_operations_appear_only_after_show_is_clicked(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("ada")
    made = {"verb": "reprocess", "items": 0, "user_id": 1, "predicate": {"statuses": ["failed"]}, "state": "running"}
    made |= {"created_at": "2026-11-16T12:00:00Z", "updated_at": "2026-11-16T12:00:00Z", "job_id": None}
    old = made | {"id": "019a8b7c-1d2e-7f00-8000-000000000001"}
    new = made | {"id": "019a8b7c-1d2e-7f00-8000-000000000002", "verb": "redrive", "state": "done"}
    responses = [[old]]

    async def answer(route: Route) -> None:
        found = {"operations": responses[-1]}
        await route.fulfill(body=json.dumps(found), content_type="application/json")

    await page.route(re.compile("/v1/operations"), answer)
    await page.goto(f"{site.url}/operations")
    table = page.get_by_role("table", name="Operations").locator("tbody tr")
    await expect(table).to_have_count(1)
    responses.append([new, old | {"items": 7}])
    await expect(page.get_by_role("button", name="1 new – show")).to_be_visible()  # noqa: RUF001
    await expect(table).to_have_count(1)
    await expect(table).to_contain_text("7")
    await page.get_by_role("button", name="1 new").click()
    await expect(table).to_have_count(2)


async def test_jobs_status_counts_are_hidden_when_kind_filter_is_set(
    site: Site, signed_in: OpenPage, job: dict[str, Any]
) -> None:
    page = await signed_in("ada", "/jobs")
    toggles = page.get_by_role("group", name="Status").get_by_role("button")
    await expect(toggles.first).to_have_text(re.compile(r"\d"))
    await page.goto(f"{site.url}/jobs?kind=price.lookup")
    await expect(toggles.first).to_be_visible()
    await expect(toggles.first).not_to_have_text(re.compile(r"\d"))


async def test_pending_totals_show_at_least_when_job_list_is_truncated(
    site: Site, signed_in: OpenPage, job: dict[str, Any]
) -> None:
    async def cut(route: Route) -> None:
        page_of_jobs = await (await route.fetch()).json()
        await route.fulfill(body=json.dumps(page_of_jobs | {"next_page": "more"}), content_type="application/json")

    page = await signed_in("ada")
    await page.route(re.compile(r"/v1/jobs\?.*page_size=500"), cut)
    await page.goto(f"{site.url}/pending")
    await expect(page.get_by_text("at least 100 open")).to_be_visible()
    await expect(page.get_by_text("≥ 100 waiting or processing")).to_be_visible()


async def test_jobs_list_does_not_move_when_new_job_is_offered(site: Site, signed_in: OpenPage) -> None:
    job = await site.submit("bea", [{"sku": "A"}])
    page = await signed_in("bea", "/jobs")
    line = page.get_by_role("row", name=job["key"])
    await expect(line).to_be_visible()
    await expect(page.get_by_role("group", name="Status").get_by_role("button")).to_have_count(1)
    before = await line.bounding_box()
    await site.submit("bea", [{"sku": "B"}])
    await expect(page.get_by_role("button", name="1 new")).to_be_visible()
    assert await line.bounding_box() == before
    await page.get_by_role("button", name="1 new").click()
    await expect(page.get_by_role("table", name="Jobs").get_by_role("rowheader")).to_have_count(2)


def operation(n: int, **more: Any) -> dict[str, Any]:
    made = {"id": f"019a8b7c-1d2e-7f00-8000-00000000000{n}", "verb": "reprocess", "items": 0, "user_id": 1}
    made |= {"predicate": {"statuses": ["failed"]}, "state": "running", "job_id": None}
    return made | {"created_at": "2026-11-16T12:00:00Z", "updated_at": "2026-11-16T12:00:00Z"} | more


def file(n: int) -> dict[str, Any]:
    at = "2026-11-16T12:00:00Z"
    made = {"path": f"{n}.csv", "state": "seen", "status": None, "tries": 0, "job_id": None, "job_key": None}
    return made | {"moved_to": None, "size": 1, "seen_at": at, "updated_at": at}


WATCH = {
    "name": "prices",
    "scheme": "file",
    "source": "inbox",
    "pattern": ["*.csv"],
    "task": {"kind": "price.lookup"},
    "every_s": None,
    "scanning": False,
    "last_scan_at": None,
    "next_scan_at": None,
    "problem": None,
    "found": 1,
    "submitted": 0,
    "files": {"seen": 1},
}


@pytest.mark.parametrize(
    ("screen", "path", "name", "rows", "table_count"),
    [
        ("/operations", "/v1/operations", "operations", [operation(1), operation(2)], 1),
        ("/sources/prices", "/v1/sources/prices/files", "files", [file(1), file(2)], 2),
    ],
)
async def test_other_lists_do_not_move_when_new_rows_are_offered(
    site: Site, signed_in: OpenPage, screen: str, path: str, name: str, rows: list[dict[str, Any]], table_count: int
) -> None:
    page = await signed_in("bea")
    shown = rows[:1]
    await page.route(re.compile(r"/v1/sources$"), lambda route: route.fulfill(json={"sources": [WATCH]}))
    await page.route(re.compile(path + r"\b"), lambda route: route.fulfill(json={name: shown}))
    await page.goto(site.url + screen)
    tables = page.get_by_role("table")
    await expect(tables).to_have_count(table_count)
    line = tables.last.locator("tbody tr").last
    await expect(line).to_be_visible()
    before = await line.bounding_box()
    shown = rows[::-1]
    await expect(page.get_by_role("button", name="1 new")).to_be_visible()
    assert await line.bounding_box() == before


async def test_job_action_buttons_do_not_move_on_first_failure(site: Site, signed_in: OpenPage) -> None:
    job = await site.submit("bea", [{"sku": "A"}, {"sku": "B"}])
    lease = await take(site.db, UUID(job["id"]), lease=600)
    page = await signed_in("bea", f"/jobs/{job['key']}")
    acts = [page.get_by_role("button", name=name, exact=True) for name in ("Pause", "Cancel …", "Export …")]
    retry = page.get_by_role("button", name="Retry failed …", exact=True)
    await expect(retry).to_be_disabled()
    before = [await act.bounding_box() for act in acts]
    await settle(site.db, lease, [verdict(0, FAILED)])
    await expect(retry).to_be_enabled()
    assert [await act.bounding_box() for act in acts] == before


async def test_status_toggles_do_not_move_when_new_status_appears(site: Site, signed_in: OpenPage) -> None:
    await site.cancelled("cleo")
    page = await signed_in("cleo", "/jobs")
    toggles = page.get_by_role("group", name="Status").get_by_role("button")
    await expect(toggles).to_have_text([re.compile("^cancelled")])
    before = await toggles.first.bounding_box()
    await site.submit("cleo", [{"sku": "A"}])
    await expect(toggles).to_have_text([re.compile("^cancelled"), re.compile("^pending")])
    assert await toggles.first.bounding_box() == before


async def refuse(route: Route) -> None:
    await route.fulfill(status=500, json={"detail": "The database is unavailable"})


@pytest.mark.parametrize(
    ("screen", "asks", "stays"),
    [
        ("/operations", r"/v1/operations\?", "No bulk operations yet"),
        ("/service", r"/v1/flow|/v1/limiters|/health", "Queue depth"),
        ("/sources", r"/v1/sources", "No watches"),
    ],
)
async def test_screen_does_not_move_when_refresh_fails(
    site: Site, open_page: OpenPage, screen: str, asks: str, stays: str
) -> None:
    page = await open_page(expect=("500",))
    await page.clock.install()
    await follow_link(page, await site.link("dan"))
    await page.goto(site.url + screen)
    shown = page.get_by_role("heading", name=stays).first
    await expect(shown).to_be_visible()
    before = await shown.bounding_box()
    await page.route(re.compile(asks), refuse)
    toast = page.locator(".toast").filter(has_text="The database is unavailable")
    await page.clock.run_for(12_000)
    await expect(toast).to_have_count(1)
    assert await shown.bounding_box() == before
    await page.unroute_all()
    await toast.get_by_role("button", name="Try again").click()
    await expect(toast).to_have_count(0)


async def test_jobs_list_does_not_move_when_reload_fails(site: Site, signed_in: OpenPage) -> None:
    job = await site.submit("emil", [{"sku": "A"}])
    page = await signed_in("emil", "/jobs", expect=("500",))
    line = page.get_by_role("row", name=job["key"])
    await expect(line).to_be_visible()
    await expect(page.get_by_role("group", name="Status").get_by_role("button")).to_have_count(1)
    before = await line.bounding_box()
    await site.submit("emil", [{"sku": "B"}])
    await page.route(re.compile(r"/v1/jobs\?"), refuse)
    await page.get_by_role("button", name="1 new").click()
    await expect(page.locator(".toast").filter(has_text="The database is unavailable")).to_be_visible()
    assert await line.bounding_box() == before
