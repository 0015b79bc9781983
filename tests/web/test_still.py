"""Nothing moves under the pointer, and numbers say what lists show."""

import json
import re
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Route, expect

from web.conftest import OpenPage
from web.site import Site
from web.watching import isolated

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def job(site: Site) -> dict[str, Any]:
    return await site.submit("ada", [{"sku": f"A-{n}"} for n in range(100)])


async def test_a_row_that_was_looked_at_stays_where_it_was(
    site: Site, signed_in: OpenPage, job: dict[str, Any]
) -> None:
    page = await signed_in("ada", f"/jobs/{job['key']}/results")
    await page.get_by_role("gridcell", name="A-4", exact=True).click()
    await expect(page.get_by_role("complementary")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("complementary")).to_have_count(0)
    assert await isolated(page, "document.querySelector('.grid-scroll').scrollTop") == 0


async def test_a_notice_pushes_nothing_away(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("ada", "/jobs")
    heading = page.get_by_role("heading", name="Jobs", exact=True)
    before = await heading.bounding_box()
    await page.get_by_role("button", name="Live updates").click()
    await expect(page.get_by_text("Paused, showing")).to_be_visible()
    assert await heading.bounding_box() == before


async def test_new_operations_wait_until_they_are_asked_for(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("ada")
    made = {"verb": "reprocess", "items": 0, "user_id": 1, "predicate": {"statuses": ["failed"]}, "state": "running"}
    made |= {"created_at": "2026-11-16T12:00:00Z", "updated_at": "2026-11-16T12:00:00Z", "job_id": None}
    old = made | {"id": "019a8b7c-1d2e-7f00-8000-000000000001"}
    new = made | {"id": "019a8b7c-1d2e-7f00-8000-000000000002", "verb": "redrive", "state": "done"}
    answers = [[old]]

    async def told(route: Route) -> None:
        found = {"operations": answers[-1]}
        await route.fulfill(body=json.dumps(found), content_type="application/json")

    await page.route(re.compile("/v1/operations"), told)
    await page.goto(f"{site.url}/operations")
    table = page.get_by_role("table", name="Operations").locator("tbody tr")
    await expect(table).to_have_count(1)
    answers.append([new, old | {"items": 7}])
    await expect(page.get_by_role("button", name="1 new – show")).to_be_visible()  # noqa: RUF001
    await expect(table).to_have_count(1)
    await expect(table).to_contain_text("7")
    await page.get_by_role("button", name="1 new").click()
    await expect(table).to_have_count(2)


async def test_numbers_of_all_jobs_do_not_stand_beside_some_of_them(
    site: Site, signed_in: OpenPage, job: dict[str, Any]
) -> None:
    page = await signed_in("ada", "/jobs")
    toggles = page.get_by_role("group", name="Status").get_by_role("button")
    await expect(toggles.first).to_have_text(re.compile(r"\d"))
    await page.goto(f"{site.url}/jobs?kind=price.lookup")
    await expect(toggles.first).to_be_visible()
    await expect(toggles.first).not_to_have_text(re.compile(r"\d"))


async def test_sums_of_too_many_jobs_are_said_to_be_at_least_that(
    site: Site, signed_in: OpenPage, job: dict[str, Any]
) -> None:
    async def cut(route: Route) -> None:
        said = await (await route.fetch()).json()
        await route.fulfill(body=json.dumps(said | {"next_page": "more"}), content_type="application/json")

    page = await signed_in("ada")
    await page.route(re.compile(r"/v1/jobs\?.*page_size=500"), cut)
    await page.goto(f"{site.url}/pending")
    await expect(page.get_by_text("at least 100 open")).to_be_visible()
    await expect(page.get_by_text("≥ 100 wait or are in hand")).to_be_visible()
