"""The tabs of a job: figures, batches, settings, activity, and errors of failed requests."""

import re
from typing import Any
from uuid import UUID

import pytest
from playwright.async_api import Page, Route, expect

from support import DONE, FAILED, rows, settle, take, verdict
from tidemill.store import progress_samples, workers
from web.conftest import OpenPage
from web.site import Site
from web.test_live_updates import with_a_clock

pytestmark = pytest.mark.asyncio(loop_scope="session")
ADAPTIVE = [{"child": 3, "kinds": {"price.lookup": {"claim_size": 250, "concurrency": 7.25}}}]


def card(page: Page, name: str) -> Any:
    return page.locator("section.card, details.card").filter(has=page.get_by_role("heading", name=name, exact=True))


async def refuse(route: Route) -> None:
    await route.fulfill(status=500, json={"detail": "The database is unavailable"})


async def begun(site: Site, name: str) -> dict[str, Any]:
    """Create a job of 40 rows that started 990 seconds ago. One batch of 20 rows is done; 2 of its rows failed."""
    job = await site.submit(name, [{"sku": f"A-{n}"} for n in range(40)], params={"shop": "north"}, priority=2)
    job_id = UUID(job["id"])
    lease = await take(site.db, job_id, 20, worker="mill-1")
    await settle(site.db, lease, [verdict(seq, FAILED if seq < 2 else DONE) for seq in range(20)])
    old = "UPDATE tidemill.job SET created_at = created_at - interval '1000 s' WHERE id = %s"
    took = "UPDATE tidemill.batch SET since = closed_at - interval '1.5 s' WHERE job_id = %s AND state = 'done'"
    start = "UPDATE tidemill.job_tally SET started_at = tidemill.now() - interval '990 s' WHERE job_id = %s"
    sample = "INSERT INTO tidemill.job_sample VALUES (%s, tidemill.now() - interval '20 s', 10, 0)"
    for query in (old, took, start, sample):
        await rows(site.db, query, job_id)
    await site.db.run_async_commit(progress_samples.add_progress_samples, [job_id])
    return job


async def test_job_overview_shows_throughput_batches_and_adaptive_state(site: Site, signed_in: OpenPage) -> None:
    job = await begun(site, "ada")
    info = {"kinds": ["price.lookup"], "adaptive": ADAPTIVE}
    await site.db.run(workers.register_worker, "mill-1", "here", 1, info)
    page = await signed_in("ada", f"/jobs/{job['key']}")
    summary = page.locator(".card").first
    await expect(summary).to_contain_text(re.compile(r"now [\d.]+/(s|min)"))
    await expect(summary).to_contain_text("average 1.2/min")
    await expect(summary).to_contain_text(re.compile(r"done in \d"))
    chart = card(page, "Throughput")
    await expect(chart.get_by_role("img", name="Items settled per second")).to_be_visible()
    points = chart.get_by_role("table", name="Items settled per second").get_by_role("row")
    await expect(points.first).to_have_text("Timesucceededfailed")
    await expect(points.last).to_have_text(re.compile(r"[\d.]+/(s|min).*[\d.]+/(s|min)$"))
    batch = card(page, "Newest batches").get_by_role("row").filter(has_text="1–20")  # noqa: RUF001
    await expect(batch.get_by_role("cell")).to_have_text(
        ["1–20", "done", "20", "2", "1.5 s", re.compile(r"\d\d:\d\d:\d\d")]  # noqa: RUF001
    )
    await expect(card(page, "Adaptive state").get_by_role("table")).to_be_hidden()
    await card(page, "Adaptive state").get_by_role("heading").click()
    await expect(card(page, "Adaptive state").get_by_role("columnheader")).to_have_text(
        ["worker", "child", "silent s", "claim size", "concurrency"]
    )
    await expect(card(page, "Adaptive state").get_by_role("cell")).to_have_text(
        ["mill-1", "3", re.compile(r"\d"), "250", "7.25"]
    )


async def test_job_config_tab_shows_facts_and_parameters(site: Site, signed_in: OpenPage) -> None:
    job = await begun(site, "bea")
    page = await signed_in("bea", f"/jobs/{job['key']}/config")
    facts = card(page, "Details")
    for name, value in {"ID": job["id"], "Kind": "price.lookup", "Priority": "2", "Owner": "bea"}.items():
        fact = facts.locator("dt", has_text=re.compile(f"^{name}$")).locator("xpath=following-sibling::dd[1]")
        await expect(fact).to_have_text(value)
    await expect(facts.get_by_text("Closed", exact=True)).to_be_hidden()
    await expect(card(page, "Parameters").locator("pre").first).to_contain_text('"shop": "north"')


async def test_job_activity_tab_shows_new_actions_live(site: Site, signed_in: OpenPage) -> None:
    job = await site.submit("cleo", [{"sku": "A"}])
    page = await signed_in("cleo", f"/jobs/{job['key']}/activity")
    await expect(page.get_by_text("No actions since this job was submitted")).to_be_visible()
    lines = page.get_by_role("table", name="Activity").locator("tbody tr")
    await page.get_by_role("button", name="Pause", exact=True).click()
    await expect(lines).to_have_text([re.compile(r"\d\d:\d\d:\d\dcleopause")])
    await site.ask("cleo", "POST", f"/v1/jobs/{job['id']}/resume")  # from another client
    await expect(lines).to_have_text([re.compile("cleoresume"), re.compile("cleopause")])


async def test_job_activity_keeps_loaded_pages_when_new_action_arrives(site: Site, signed_in: OpenPage) -> None:
    job = await site.submit("dan", [{"sku": "A"}])
    for _ in range(30):
        await site.ask("dan", "POST", f"/v1/jobs/{job['id']}/pause")
        await site.ask("dan", "POST", f"/v1/jobs/{job['id']}/resume")
    page = await signed_in("dan", f"/jobs/{job['key']}/activity")
    lines = page.get_by_role("table", name="Activity").locator("tbody tr")
    await expect(lines).to_have_count(50)
    await page.get_by_role("button", name="Show more").click()
    await expect(lines).to_have_count(60)
    await page.get_by_role("button", name="Pause", exact=True).click()
    await expect(lines).to_have_count(61)


async def test_job_overview_cards_show_error_and_retry_when_request_fails(site: Site, open_page: OpenPage) -> None:
    job = await begun(site, "emil")
    page = await open_page(expect=("500",))
    await page.route(re.compile(r"/v1/jobs/[^/]+/(chart|batches)"), refuse)
    await with_a_clock(site, page, "emil", f"/jobs/{job['key']}")
    for name in ("Throughput", "Newest batches"):
        await expect(card(page, name).get_by_role("alert")).to_contain_text("The database is unavailable")
        await expect(card(page, name)).not_to_contain_text("Loading")
    await page.unroute_all()
    await card(page, "Throughput").get_by_role("button", name="Try again").click()
    await expect(card(page, "Throughput").get_by_role("img")).to_be_visible()
    await page.clock.run_for(6_000)
    await expect(card(page, "Newest batches").get_by_role("cell").first).to_be_visible()
    await expect(page.get_by_role("alert")).to_have_count(0)


async def test_job_screen_removes_actions_when_job_is_deleted_elsewhere(site: Site, open_page: OpenPage) -> None:
    job = await site.cancelled("fay")
    page = await with_a_clock(site, await open_page(expect=("404",)), "fay", f"/jobs/{job['key']}")
    await expect(page.get_by_role("button", name="Export …")).to_be_visible()
    await site.ask("fay", "DELETE", f"/v1/jobs/{job['id']}")
    await page.clock.run_for(11_000)
    await expect(page.get_by_role("heading", name="This job no longer exists")).to_be_visible()
    await expect(page.get_by_role("button", name="Export …")).to_have_count(0)
    await page.get_by_role("link", name="Go to jobs", exact=True).click()
    await expect(page.get_by_text("No jobs yet")).to_be_visible()


async def test_job_screen_shows_error_toast_when_refresh_fails(site: Site, open_page: OpenPage) -> None:
    job = await site.cancelled("gil")
    page = await with_a_clock(site, await open_page(expect=("500",)), "gil", f"/jobs/{job['key']}")
    export = page.get_by_role("button", name="Export …")
    await expect(export).to_be_visible()
    await page.route(re.compile(rf"/v1/jobs/{job['key']}$"), refuse)
    await page.clock.run_for(11_000)
    toast = page.locator(".toast").filter(has_text="The database is unavailable")
    await expect(toast).to_be_visible()
    await expect(export).to_be_visible()
    await page.unroute_all()
    await toast.get_by_role("button", name="Try again").click()
    await expect(toast).to_have_count(0)
