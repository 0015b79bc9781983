"""The jobs list without workers: filters, changed matches, and the menu of a row."""

import json
import re

import pytest
from playwright.async_api import expect

from support import eventually
from tidemill import Mill
from tidemill.store import workers
from web.conftest import OpenPage
from web.site import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_filtered_jobs_list_offers_new_matches_and_removal_of_stale_rows(site: Site, signed_in: OpenPage) -> None:
    older, newer = await site.submit("bea", [{"sku": "A"}]), await site.cancelled("bea")
    page = await signed_in("bea", "/jobs?statuses=cancelled")
    lines = page.get_by_role("table", name="Jobs").get_by_role("rowheader")
    await expect(lines).to_have_text([newer["key"]])
    await site.ask("bea", "POST", f"/v1/jobs/{older['id']}/cancel")
    await page.get_by_role("button", name="1 new").click()
    await expect(lines).to_have_text([newer["key"], older["key"]])

    await page.goto(f"{site.url}/jobs?statuses=pending,running")
    await expect(page.get_by_text("No job matches")).to_be_visible()  # the first page is loaded
    waiting = await site.submit("bea", [{"sku": "B"}])
    await page.get_by_role("button", name="1 new").click()
    await expect(lines).to_have_text([waiting["key"]])
    await site.ask("bea", "POST", f"/v1/jobs/{waiting['id']}/cancel")
    await expect(page.get_by_role("row", name=waiting["key"])).to_contain_text("cancelled")
    await page.get_by_role("button", name="1 no longer matches – show").click()  # noqa: RUF001
    await expect(page.get_by_text("No job matches")).to_be_visible()


async def test_filtered_jobs_list_withdraws_new_match_when_it_stops_matching(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("cleo", "/jobs?statuses=pending")
    await expect(page.get_by_text("No job matches")).to_be_visible()
    job = await site.submit("cleo", [{"sku": "A"}])
    await expect(page.get_by_role("button", name="1 new")).to_be_visible()
    await site.ask("cleo", "POST", f"/v1/jobs/{job['id']}/cancel")
    await expect(page.get_by_role("button", name="1 new")).to_be_hidden()


async def test_filtered_imports_list_offers_import_that_now_matches(site: Site, signed_in: OpenPage) -> None:
    job = await site.cancelled("dan")
    page = await signed_in("dan")
    await page.route(re.compile(r"/v1/imports\?"), lambda route: route.fulfill(json={"imports": []}))
    stream = [f"event: job\ndata: {json.dumps(job | {'kind': 'tidemill.import', 'status': 'cancelled'})}\n\n"]
    await page.route(
        "**/v1/events*", lambda route: route.fulfill(content_type="text/event-stream", body="".join(stream))
    )
    await page.goto(f"{site.url}/imports?statuses=cancelled")
    await expect(page.get_by_role("button", name="1 new")).to_be_visible()
    await page.goto(f"{site.url}/imports?statuses=failed")
    await expect(page.get_by_text("Nothing matches")).to_be_visible()
    await expect(
        page.get_by_role("button", name="Live updates: Offline")
    ).to_be_visible()  # the stream has sent everything
    await expect(page.get_by_role("button", name="1 new")).to_be_hidden()


async def test_jobs_kind_filter_offers_seen_kinds_and_is_stored_in_url(site: Site, signed_in: OpenPage) -> None:
    mill = Mill(site.settings)
    mill.handler("stock.count")(lambda item: item.input)
    await site.db.run(workers.register_kinds, mill.registry.make_all())
    stock = await site.submit("emil", [{"sku": "A"}], kind="stock.count")
    price = await site.submit("emil", [{"sku": "A"}])
    page = await signed_in("emil", "/jobs")
    lines = page.get_by_role("table", name="Jobs").get_by_role("rowheader")
    await expect(lines).to_have_text([price["key"], stock["key"]])
    kind = page.get_by_label("Kind")
    await kind.select_option("stock.count")
    await expect(page).to_have_url(re.compile(r"/jobs\?kind=stock\.count$"))
    await expect(lines).to_have_text([stock["key"]])
    await expect(kind.get_by_role("option")).to_have_text(["Kind: any", "Kind: price.lookup", "Kind: stock.count"])
    await kind.select_option("price.lookup")
    await expect(lines).to_have_text([price["key"]])


async def test_jobs_date_filter_is_stored_in_url_and_can_be_cleared(site: Site, signed_in: OpenPage) -> None:
    job = await site.submit("fay", [{"sku": "A"}])
    page = await signed_in("fay", "/jobs")
    line = page.get_by_role("link", name=job["key"])
    today = await page.evaluate("new Date().toLocaleDateString('sv')")
    await page.get_by_label("From").fill(today)
    await expect(page).to_have_url(re.compile(rf"/jobs\?from={today}$"))
    await page.get_by_label("to", exact=True).fill(today)
    await expect(page).to_have_url(re.compile(rf"from={today}&to={today}$"))
    await expect(line).to_be_visible()
    await page.goto(f"{site.url}/jobs?from=2001-01-01&to=2001-01-02")
    await expect(page.get_by_text("No job matches")).to_be_visible()
    await expect(page.get_by_label("From")).to_have_value("2001-01-01")
    await page.get_by_role("button", name="Clear filters").click()
    await expect(page).to_have_url(re.compile(r"/jobs$"))
    await expect(line).to_be_visible()


async def test_job_row_menu_pauses_resumes_cancels_and_deletes_job(site: Site, signed_in: OpenPage) -> None:
    job = await site.submit("gil", [{"sku": "A"}])
    page = await signed_in("gil", "/jobs")
    line = page.get_by_role("row", name=job["key"])

    async def choose(name: str) -> None:
        """Open the menu until it offers the action: a late list response may show an earlier state of the job."""
        item = page.get_by_role("menuitem", name=name)

        async def is_offered() -> bool:
            await page.keyboard.press("Escape")
            await line.get_by_role("button", name=f"Actions for {job['key']}").click()
            return await item.is_visible()

        await eventually(is_offered)
        await item.click()

    await choose("Pause")
    await expect(line).to_contain_text("paused")
    await choose("Resume")
    await expect(line).to_contain_text("pending")
    await choose("Cancel …")
    await page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    await expect(line).to_contain_text("cancelled")
    await choose("Delete …")
    await page.get_by_role("dialog").get_by_role("button", name="Delete permanently").click()
    await expect(page.get_by_text("No jobs yet")).to_be_visible()
