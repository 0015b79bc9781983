"""The jobs list without workers: filters, changed matches, and the menu of a row."""

import json
import re
from uuid import UUID

import pytest
from playwright.async_api import expect

from support import close_job_as, eventually, rows, settle, take
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
    await site.db.run(workers.register_kinds, mill.registry.create_all())
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


async def test_jobs_search_asks_service_for_part_of_name_and_keeps_it_in_url(site: Site, signed_in: OpenPage) -> None:
    jobs = [await site.submit("hana", [{"sku": "A"}]) for _ in range(3)]
    for job, name in zip(jobs, ("Orders_2026.csv", "OrdersX2026.csv", "100% stock.csv"), strict=True):
        await rows(
            site.db,
            "UPDATE tidemill.job SET source = jsonb_build_object('name', %s::text) WHERE id = %s",
            name,
            job["id"],
        )
    page = await signed_in("hana", "/jobs")
    lines = page.get_by_role("table", name="Jobs").get_by_role("rowheader")
    await expect(lines).to_have_count(3)
    await expect(page.get_by_role("row", name="Orders_2026.csv")).to_contain_text("queued")
    search = page.get_by_role("searchbox", name="Search by file name or key")
    await search.fill("orders_")
    await expect(lines).to_have_text([jobs[0]["key"]])
    await expect(page).to_have_url(re.compile(r"/jobs\?q=orders_$"))
    await search.fill("%")
    await expect(lines).to_have_text([jobs[2]["key"]])
    await page.reload()
    await expect(search).to_have_value("%")
    await expect(lines).to_have_text([jobs[2]["key"]])
    await search.fill(jobs[1]["key"].lower())
    await expect(lines).to_have_text([jobs[1]["key"]])
    await site.submit("hana", [{"sku": "B"}])  # does not match, and is not offered
    await search.fill("no such file")
    await expect(page.get_by_text("No job matches")).to_be_visible()
    for path, heading in (("imports", "Imports"), ("exports", "Exports"), ("distributions", "Distributions")):
        await page.goto(f"{site.url}/{path}?q=%25")
        await expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()
        await expect(page.get_by_role("searchbox", name="Search by file name or key")).to_have_value("%")
        await expect(page.get_by_text("Nothing matches")).to_be_visible()


async def test_job_duration_counts_from_start_and_names_time_in_queue(site: Site, signed_in: OpenPage) -> None:
    job = await site.submit("ivy", [{"sku": "A"}])
    job_id = UUID(job["id"])
    await rows(
        site.db,
        "UPDATE tidemill.job SET created_at = created_at - interval '37 min', "
        'source = \'{"name": "one.csv"}\' WHERE id = %s',
        job_id,
    )
    await settle(site.db, await take(site.db, job_id))
    await site.db.run(close_job_as, job_id)
    page = await signed_in("ivy", "/jobs")
    row = page.get_by_role("row", name="one.csv")
    await expect(row).to_contain_text("completed")
    await expect(row).to_contain_text(re.compile(r"\d ms|\d s"))
    await expect(row).not_to_contain_text("min")
    await page.get_by_role("link", name=job["key"]).click()
    heading = page.get_by_role("heading", level=1)
    await expect(heading).to_have_text(f"price.lookup one.csv {job['key']}")
    await expect(page).to_have_title(f"price.lookup · one.csv · {job['key']} · Tidemill")
    await expect(page.locator(".card").first).to_contain_text(re.compile(r"ran [\d.]+ m?s.*queued 37 min"))


async def test_paused_or_unserved_rows_have_no_estimate(site: Site, signed_in: OpenPage) -> None:
    job = await site.submit("jon", [{"sku": "A"}, {"sku": "B"}])
    await settle(site.db, await take(site.db, UUID(job["id"]), 1))
    page = await signed_in("jon", "/pending")
    await expect(page.get_by_text('no estimate: No worker serves "price.lookup"').first).to_be_visible()
    await page.goto(f"{site.url}/jobs/{job['key']}")
    await expect(page.get_by_text("no estimate: no running worker handles this kind")).to_be_visible()
    await site.ask("jon", "POST", f"/v1/jobs/{job['id']}/pause")
    await expect(page.get_by_text("no estimate: paused")).to_be_visible()
    await page.goto(f"{site.url}/pending")
    await expect(page.get_by_text("no estimate: all of them are paused").first).to_be_visible()
