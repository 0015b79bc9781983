"""The jobs screen."""

import pytest
from playwright.async_api import expect

from web.conftest import OpenPage
from web.page_checks import axe, screenshot
from web.site import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_jobs_list_shows_status_and_item_counts(working: Site, signed_in: OpenPage) -> None:
    job = await working.finished("ada", [{"sku": f"A-{n}"} for n in range(30)] + [{"sku": "B", "wish": "never"}] * 3)
    page = await signed_in("ada")
    row = page.get_by_role("row", name=job.key)
    await expect(row).to_contain_text("completed with errors")
    await expect(row).to_contain_text("30 done · 3 failed")
    await axe(page)
    await screenshot(page, "jobs")
