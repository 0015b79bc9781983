"""Process now: slices of work in a real `tidemill serve`, without any worker."""

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.async_api import expect

from support import assert_sound
from web.conftest import OpenPage
from web.site import KINDS, Site
from web.watching import axe, screenshot

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(scope="module")
def address(site: Site) -> Iterator[str]:
    """Where a `tidemill serve` with handlers listens, before the same database."""
    site.workers.app(KINDS)
    main = "from tidemill.cli.main import main; main()"
    argv = [sys.executable, "-c", main, "serve", "app:mill", "--port", "0"]
    process = subprocess.Popen(argv, cwd=site.settings.home, env=site.workers.env(), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    yield next(match[1] for line in lines if (match := re.search(r"listening at (http://\S+)", line)))
    process.terminate()
    process.communicate(timeout=30)


async def test_slices_tell_what_they_settled_until_nothing_is_open(
    site: Site, address: str, open_page: OpenPage
) -> None:
    job = await site.submit("ada", [{"sku": str(n)} for n in range(20)] + [{"sku": "x", "wish": "never"}] * 2)
    page = await open_page(expect=("503", "the server responded"))
    await page.goto((await site.link("ada")).replace(site.url, address))
    await page.goto(f"{address}/jobs/{job['key']}/pending")
    await page.get_by_role("button", name="Process now").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_text("22 settled, 2 failed")).to_be_visible(timeout=30_000)
    await expect(dialog.get_by_text("Nothing of this job is open any more")).to_be_visible()
    await axe(page)
    await screenshot(page, "process-now")
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.get_by_role("main").get_by_text("completed with errors", exact=True)).to_be_visible()
    await assert_sound(site.db)


async def test_stopping_keeps_what_is_finished(site: Site, address: str, open_page: OpenPage) -> None:
    job = await site.submit("ada", [{"sku": str(n), "wish": "slow"} for n in range(5_000)])
    page = await open_page(expect=("503", "the server responded"))
    await page.goto((await site.link("ada")).replace(site.url, address))
    await page.goto(f"{address}/jobs/{job['key']}/pending")
    await page.get_by_role("button", name="Process now").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_text(re.compile(r"1\. [\d,]+ settled, in"))).to_be_visible(timeout=30_000)
    await dialog.get_by_role("button", name="Stop").click()
    await expect(dialog.get_by_text("Stopped: what was finished is kept")).to_be_visible()
    await expect(dialog.get_by_role("button", name="Go on")).to_be_visible()
    await assert_sound(site.db)


async def test_a_service_without_handlers_says_so(site: Site, signed_in: OpenPage) -> None:
    job = await site.submit("bea", [{"sku": "1"}])
    page = await signed_in("bea", f"/jobs/{job['key']}/pending", expect=("409", "the server responded"))
    await page.get_by_role("button", name="Process now").click()
    await expect(page.get_by_role("dialog").get_by_text("this service has no handlers")).to_be_visible()
