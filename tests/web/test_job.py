"""One job: overview, results, mending, reprocessing."""

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tidemill.domain.job import Job
from web.conftest import OpenPage
from web.site import Site
from web.watching import axe, screenshot

pytestmark = pytest.mark.asyncio(loop_scope="session")
INPUTS = (
    [{"sku": f"A-{n}"} for n in range(300)]
    + [{"sku": f"B-{n}", "wish": "never"} for n in range(12)]
    + [{"sku": f"C-{n}", "wish": "fail"} for n in range(5)]
    + [{"sku": f"D-{n}", "wish": "missing"} for n in range(3)]
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def job(working: Site) -> Job:
    return await working.finished("ada", INPUTS)


@pytest.mark.parametrize("tab", ["", "/results", "/pending", "/errors", "/config", "/activity"])
async def test_every_tab_can_be_linked_to_and_read_by_everybody(job: Job, signed_in: OpenPage, tab: str) -> None:
    page = await signed_in("ada", f"/jobs/{job.key}{tab}")
    await expect(page.get_by_role("heading", name=job.key)).to_be_visible()
    name = tab.removeprefix("/") or "overview"
    await expect(page.get_by_role("link", name=name.capitalize()).first).to_have_attribute("aria-current", "page")
    await axe(page)
    await screenshot(page, f"job-{name}")
