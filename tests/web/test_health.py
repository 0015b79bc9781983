"""Health: what the figures are, and what they go by."""

import re

import pytest
from playwright.async_api import expect

from support import rows
from tidemill.domain.identity import Role
from web.conftest import OpenPage
from web.site import Site
from web.watching import axe, screenshot

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_every_figure_says_what_it_goes_by(working: Site, signed_in: OpenPage) -> None:
    await working.finished("ada", [{"sku": f"A-{n}"} for n in range(60)] + [{"sku": "B", "wish": "never"}] * 20)
    page = await signed_in("ada", "/service")
    tile = page.locator(".tile")
    await expect(tile.filter(has_text="Queue depth")).to_contain_text("0 pending, 0 in hand")
    await expect(tile.filter(has_text="Failure rate")).to_contain_text("25.0%")
    await expect(tile.filter(has_text="Failure rate")).to_contain_text("20 of 80 rows")
    await expect(tile.filter(has_text="Failure rate")).to_contain_text("Worth a look from 10 % on")
    await expect(tile.filter(has_text="Throughput")).to_contain_text("/s")
    await expect(tile.filter(has_text="Oldest due work")).to_contain_text("Degraded beyond five minutes")
    await expect(tile.filter(has_text="Database")).to_contain_text("ok")
    await expect(page.get_by_role("table", name="Workers")).to_have_count(0)
    await axe(page)


async def test_an_admin_sees_who_is_at_work(working: Site, signed_in: OpenPage) -> None:
    await working.finished("ada", [{"sku": "slow", "wish": "slow"}] * 30)
    page = await signed_in("root", "/service", role=Role.ADMIN, expect=("/v1/limiters",))
    row = page.get_by_role("table", name="Workers").get_by_role("row").nth(1)
    await expect(row).to_contain_text("price.lookup", timeout=20_000)
    await expect(row).to_contain_text("s ago")
    await page.get_by_label("Whose work").select_option("all")
    await expect(page.locator(".tile").filter(has_text="Failure rate")).to_contain_text(
        re.compile(r"of [1-9]\d* rows"), timeout=20_000
    )
    await axe(page)
    await screenshot(page, "health")


async def test_work_without_workers_is_degraded(working: Site, signed_in: OpenPage) -> None:
    working.workers.end()
    await rows(working.db, "DELETE FROM tidemill.worker")
    await working.submit("ada", [{"sku": "A"}])
    page = await signed_in("ada", "/service")
    await expect(page.get_by_role("status").filter(has_text="degraded")).to_be_visible()
    await expect(page.locator(".tile").filter(has_text="Workers")).to_contain_text("nobody to do it")
    await axe(page)
    await screenshot(page, "health-degraded")
