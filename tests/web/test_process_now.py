"""Process now: slices of work in a real `tidemill serve`, without workers."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.async_api import Route, expect

from support import assert_sound, eventually, until
from web.conftest import OpenPage
from web.page_checks import axe, follow_link, screenshot
from web.site import KINDS, Site
from web.test_live_updates import HIDE, has

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(scope="module")
def address(site: Site) -> Iterator[str]:
    """Start `tidemill serve` with handlers on the same database, and yield its address."""
    site.workers.app(KINDS)
    main = "from tidemill.cli.main import main; main()"
    argv = [sys.executable, "-c", main, "serve", "app:mill", "--port", "0"]
    process = subprocess.Popen(argv, cwd=site.settings.home, env=site.workers.env(), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    yield next(match[1] for line in lines if (match := re.search(r"Listening at (http://\S+)", line)))
    process.terminate()
    process.communicate(timeout=30)


async def test_process_now_reports_settled_rows_until_job_is_drained(
    site: Site, address: str, open_page: OpenPage
) -> None:
    job = await site.submit("ada", [{"sku": str(n)} for n in range(20)] + [{"sku": "x", "wish": "never"}] * 2)
    page = await open_page(expect=("503", "the server responded"))
    await follow_link(page, (await site.link("ada")).replace(site.url, address))
    await page.goto(f"{address}/jobs/{job['key']}/pending")
    await page.get_by_role("button", name="Process now").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_text("22 settled, 2 failed")).to_be_visible(timeout=30_000)
    await expect(dialog.get_by_text("No open rows are left in this job")).to_be_visible()
    await axe(page)
    await screenshot(page, "process-now")
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.get_by_role("main").get_by_text("completed with errors", exact=True)).to_be_visible()
    await assert_sound(site.db)


async def test_process_now_stop_keeps_finished_rows(site: Site, address: str, open_page: OpenPage) -> None:
    job = await site.submit("ada", [{"sku": str(n), "wish": "slow"} for n in range(5_000)])
    page = await open_page(expect=("503", "the server responded"))
    await follow_link(page, (await site.link("ada")).replace(site.url, address))
    await page.goto(f"{address}/jobs/{job['key']}/pending")
    await page.get_by_role("button", name="Process now").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_text(re.compile(r"1\. [\d,]+ settled, in"))).to_be_visible(timeout=30_000)
    await dialog.get_by_role("button", name="Stop").click()
    await expect(dialog.get_by_text("Stopped: finished rows are kept")).to_be_visible()
    await expect(dialog.get_by_role("button", name="Continue")).to_be_visible()
    await assert_sound(site.db)


async def test_process_now_starts_no_slice_while_tab_hidden_or_updates_paused(
    site: Site, address: str, open_page: OpenPage
) -> None:
    job = await site.submit("cleo", [{"sku": str(n), "wish": "slow"} for n in range(50_000)])
    page = await open_page(expect=("503", "the server responded"))
    await follow_link(page, (await site.link("cleo")).replace(site.url, address))
    await page.goto(f"{address}/jobs/{job['key']}/pending")
    slices: list[str] = []
    held = asyncio.Event()

    async def answer(route: Route) -> None:
        slices.append(route.request.url)
        if len(slices) == 2:
            await until(held)
        slice_result = {
            "settled": 1,
            "failed": 0,
            "retried": 0,
            "seconds": 0.1,
            "is_drained": False,
            "child_died": False,
        }
        await route.fulfill(json=slice_result)

    await page.route("**/kickoff*", answer)
    await page.get_by_role("button", name="Process now").click()
    dialog = page.get_by_role("dialog")
    lines = dialog.get_by_text("1 settled, in 0.1 s")
    await expect(lines).to_have_count(1)
    await eventually(lambda: has(slices, "/kickoff", 2))
    await page.evaluate(HIDE, "hidden")
    held.set()
    await expect(lines).to_have_count(2)
    await page.evaluate("() => new Promise(requestAnimationFrame)")
    assert len(slices) == 2, "no slice starts after the running one"
    await page.evaluate(HIDE, "visible")
    await expect(lines.nth(3)).to_be_visible()
    await dialog.get_by_role("button", name="Stop").click()
    await dialog.get_by_role("button", name="Close").click()

    await page.get_by_role("button", name="Live updates").click()
    slices.clear()
    await page.get_by_role("button", name="Process now").click()
    await expect(dialog.get_by_text("Live updates are paused")).to_be_visible()
    assert len(slices) == 1, "each click starts one slice"


async def test_process_now_shows_error_when_service_has_no_handlers(site: Site, signed_in: OpenPage) -> None:
    job = await site.submit("bea", [{"sku": "1"}])
    page = await signed_in("bea", f"/jobs/{job['key']}/pending", expect=("409", "the server responded"))
    await page.get_by_role("button", name="Process now").click()
    await expect(page.get_by_role("dialog").get_by_text("This service has no handlers")).to_be_visible()
