"""The health screen: figures, thresholds, workers, limiters and quarantined messages."""

import re

import pytest
from playwright.async_api import expect

from support import rows
from tidemill.core.principal import Role
from tidemill.dispatch import quarantine
from tidemill.limits import limiter_records
from tidemill.limits.config import parse_limiters as declared
from web.conftest import OpenPage
from web.page_checks import axe, isolated, screenshot
from web.site import UNSERVED_KIND, Site
from web.test_narrow_windows import OUT_OF_REACH, TOO_WIDE

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_health_tiles_show_values_and_their_thresholds(working: Site, signed_in: OpenPage) -> None:
    await working.finished("ada", [{"sku": f"A-{n}"} for n in range(60)] + [{"sku": "B", "wish": "never"}] * 20)
    page = await signed_in("ada", "/service")
    tile = page.locator(".tile")
    await expect(tile.filter(has_text="Queue depth")).to_contain_text("0 pending, 0 processing")
    await expect(tile.filter(has_text="Failure rate")).to_contain_text("25.0%")
    await expect(tile.filter(has_text="Failure rate")).to_contain_text("20 of 80 settled rows")
    await expect(tile.filter(has_text="Failure rate")).to_contain_text("Threshold: 10%")
    await expect(tile.filter(has_text="Throughput")).to_contain_text("/s")
    await expect(tile.filter(has_text="Oldest due work")).to_contain_text("Degraded above 5 minutes")
    await expect(tile.filter(has_text="Database")).to_contain_text("ok")
    await expect(page.get_by_role("table", name="Workers")).to_have_count(0)
    summary = page.get_by_role("status").filter(has_text="degraded")
    await expect(summary).to_contain_text("In the last 15 minutes, 25.0% of the settled rows failed.")
    await axe(page)


async def test_health_shows_workers_to_admin(working: Site, signed_in: OpenPage) -> None:
    await working.finished("ada", [{"sku": "slow", "wish": "slow"}] * 30)
    page = await signed_in("root", "/service", role=Role.ADMIN)
    row = page.get_by_role("table", name="Workers").get_by_role("row").nth(1)
    await expect(row).to_contain_text("price.lookup", timeout=20_000)
    await expect(row).to_contain_text("s ago")
    await page.get_by_label("Owner").select_option("all")
    await expect(page.locator(".tile").filter(has_text="Failure rate")).to_contain_text(
        re.compile(r"of [1-9]\d* settled rows"), timeout=20_000
    )
    await axe(page)
    await screenshot(page, "health")


async def test_health_is_degraded_when_jobs_are_open_without_workers(working: Site, signed_in: OpenPage) -> None:
    working.workers.end()
    await rows(working.db, "DELETE FROM tidemill.worker")
    await working.submit("ada", [{"sku": "A"}])
    page = await signed_in("ada", "/service")
    await expect(page.get_by_role("status").filter(has_text="degraded")).to_be_visible()
    tile = page.locator(".tile").filter(has=page.get_by_role("heading", name="Workers"))
    await expect(tile).to_contain_text("no workers are running")
    await expect(tile).to_contain_text("for 1 open job.")
    await expect(page.get_by_role("status").filter(has_text="degraded")).to_contain_text(
        'No worker serves "price.lookup": 1 item waits.'
    )
    await axe(page)
    await screenshot(page, "health-degraded")


async def test_blocked_limiter_is_visible_to_all_users_and_lifted_by_admin(site: Site, signed_in: OpenPage) -> None:
    shop = declared({"limiters": {"shop": {"rate": "5/s", "burst": 10}}})
    await site.db.run(limiter_records.declare_limiters, shop.values())
    await site.db.run(limiter_records.block_throttled_limiter, "shop", "", after=600, age=0, times=1)
    page = await signed_in("ada", "/service")
    row = page.get_by_role("table", name="Limiters").get_by_role("row").nth(1)
    await expect(row).to_contain_text("shop")
    await expect(row).to_contain_text("50%")
    await expect(row.get_by_role("button", name="Unblock")).to_have_count(0)
    await axe(page)
    root = await signed_in("root", "/service", role=Role.ADMIN)
    row = root.get_by_role("table", name="Limiters").get_by_role("row").nth(1)
    await row.get_by_role("button", name="Unblock").click()
    await expect(root.get_by_text("shop unblocked")).to_be_visible()
    await expect(row.get_by_role("button", name="Unblock")).to_have_count(0)


async def test_health_shows_quarantined_messages_to_admin(site: Site, signed_in: OpenPage) -> None:
    await site.db.run(quarantine.quarantine_message, "worker-1", b"<b>not a hint</b>", "The message is not valid JSON")
    page = await signed_in("root", "/service", role=Role.ADMIN)
    table = page.get_by_role("table", name="Quarantined messages")
    await expect(table).to_contain_text("The message is not valid JSON")
    await expect(table).to_contain_text("<b>not a hint</b>")
    await axe(page)


async def test_health_names_kind_without_worker_although_workers_run(working: Site, signed_in: OpenPage) -> None:
    working.workers.start()
    await working.finished("eve", [{"sku": "A"}])
    await working.submit("eve", [{"sku": "A"}] * 12, kind=UNSERVED_KIND)
    page = await signed_in("eve", "/service")
    summary = page.get_by_role("status").filter(has_text="degraded")
    await expect(summary).to_contain_text(f'No worker serves "{UNSERVED_KIND}": 12 items wait.')
    await axe(page)
    await page.goto(f"{working.url}/pending")
    await expect(page.locator("p.row.muted")).to_contain_text(f'no estimate: No worker serves "{UNSERVED_KIND}"')


async def test_health_names_kind_without_worker_before_file_is_read(working: Site, signed_in: OpenPage) -> None:
    working.workers.start()
    await working.finished("ida", [{"sku": "A"}])
    file = {"content": b"sku\nA\n", "headers": {"content-type": "text/csv"}}
    await working.ask("ida", "POST", f"/v1/jobs?kind={UNSERVED_KIND}", **file)
    page = await signed_in("ida", "/service")
    summary = page.get_by_role("status").filter(has_text="degraded")
    await expect(summary).to_contain_text(f'No worker serves "{UNSERVED_KIND}": 1 job waits.')


async def test_pending_has_no_estimate_while_all_jobs_are_paused(site: Site, signed_in: OpenPage) -> None:
    job = await site.submit("fay", [{"sku": "A"}] * 3, kind=UNSERVED_KIND)
    await site.ask("fay", "POST", f"/v1/jobs/{job['id']}/pause")
    page = await signed_in("fay", "/pending")
    await expect(page.locator("p.row.muted")).to_contain_text("no estimate: all of them are paused")


async def test_health_fits_phone_with_status_in_view(site: Site, signed_in: OpenPage) -> None:
    await site.submit("gil", [{"sku": "A"}], kind=UNSERVED_KIND)
    page = await signed_in("gil", "/service", viewport={"width": 390, "height": 800})
    await expect(page.get_by_role("status").filter(has_text="degraded")).to_be_in_viewport(ratio=1)
    await expect(page.locator(".tile")).to_have_count(6)
    assert await isolated(page, TOO_WIDE) == ""
    assert await isolated(page, OUT_OF_REACH) == ""
    await screenshot(page, "health-phone")
