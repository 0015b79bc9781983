"""The jobs screen."""

import pytest
from playwright.async_api import expect

from support import rows
from web.conftest import OpenPage
from web.page_checks import axe, isolated, screenshot
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


async def test_jobs_list_with_long_file_name_fits_window_of_1280_pixels(working: Site, signed_in: OpenPage) -> None:
    job = await working.finished("bo", [{"sku": "B", "wish": "never"}] * 120 + [{"sku": "A"}] * 900)
    name = '{"name": "customers of the whole year, exported on the last day.csv"}'
    await rows(working.db, "UPDATE tidemill.job SET source = %s WHERE id = %s", name, job.id)
    page = await signed_in("bo", viewport={"width": 1280, "height": 800})
    await expect(page.get_by_role("row", name=job.key)).to_contain_text("900 done · 120 failed")
    overflow = (
        "(() => { const box = document.querySelector('.table-box'); return box.scrollWidth - box.clientWidth; })()"
    )
    assert await isolated(page, overflow) == 0
