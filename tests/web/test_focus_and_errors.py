"""Elements under the pointer or with focus stay; a double click acts once; an error affects only its own screen."""

import asyncio
import re
from dataclasses import replace
from uuid import UUID

import pytest
from playwright.async_api import ElementHandle, Route, expect

from support import FAILED, settle, take, until, verdict
from tidemill.core.batch import Lease
from tidemill.core.principal import Role
from tidemill.store.database import Database
from tidemill.store.outcome_flush import FlushResult
from web.conftest import OpenPage
from web.page_checks import follow_link
from web.site import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")
FAR = "2999-01-01T00:00:00Z"
EXPORT = {
    "job_id": "1",
    "key": "J1",
    "user_id": 1,
    "status": "completed",
    "format": "csv",
    "compression": "none",
    "resource_type": "people",
    "filters": {},
    "record_count": 1,
    "size": 1,
    "download_url": "/v1/exports/1/download",
    "expires_at": FAR,
    "completed_at": "2026-01-01T00:00:00Z",
    "created_at": "2026-01-01T00:00:00Z",
    "failure_reason": None,
}
LIMITER = {
    "name": "shop",
    "rate": 5,
    "current_rate": 5,
    "concurrency": None,
    "in_use": 0,
    "waiting": 0,
    "refused": 0,
    "members": 0,
    "blocked_until": FAR,
}
KEPT = ["Pause", "Cancel …", "Retry failed …", "Export …", "More actions", "Retry failures with error code test"]


class Gate:
    """Hold requests until the gate is opened, and count them."""

    def __init__(self) -> None:
        self.n = 0
        self.opened = asyncio.Event()

    async def hold(self, route: Route) -> None:
        self.n += 1
        await until(self.opened)
        await route.continue_()


async def fails(db: Database, lease: Lease, seq: int) -> Lease:
    """Record one more failed row and return the lease after it."""
    assert await settle(db, lease, [verdict(seq, FAILED)]) is FlushResult.APPLIED
    return replace(lease, flush_no=lease.flush_no + 1)


async def are_there(kept: list[ElementHandle]) -> bool:
    return all([await one.evaluate("it => it.isConnected") for one in kept])


async def test_job_buttons_keep_elements_and_focus_when_job_changes(site: Site, signed_in: OpenPage) -> None:
    job = await site.submit("ada", [{"sku": f"A-{n}"} for n in range(20)])
    lease = await fails(site.db, await take(site.db, UUID(job["id"]), lease=600), 0)
    page = await signed_in("ada", f"/jobs/{job['key']}")
    shown = page.locator(".head .title")
    kept = [await page.get_by_role("button", name=name, exact=True).element_handle() for name in KEPT]
    await page.get_by_role("button", name="Pause", exact=True).focus()
    lease = await fails(site.db, lease, 1)
    await expect(page.locator(".bars .number")).to_have_text("2")
    assert await are_there(kept)
    await expect(page.get_by_role("button", name="Pause", exact=True)).to_be_focused()

    await page.get_by_role("button", name="Pause", exact=True).dblclick()
    await expect(shown).to_contain_text("paused")
    await page.get_by_role("button", name="Resume", exact=True).press("Enter")
    await expect(shown).to_contain_text("running")
    await expect(page.get_by_role("button", name="Pause", exact=True)).to_be_focused()

    await page.get_by_role("link", name="Results").click()
    await page.get_by_role("grid").get_by_label("Select row 1", exact=True).click()
    await page.get_by_role("button", name="Clear", exact=True).wait_for()
    selectors = (
        ".toggles button >> nth=0",
        'select[aria-label="Error code"] option >> nth=1',
        ".grid-foot .row button >> nth=0",
    )
    kept = [await page.locator(selector).element_handle() for selector in selectors]
    toggle = page.get_by_role("group", name="Status").get_by_role("button", name=re.compile("failed"))
    await toggle.focus()
    await fails(site.db, lease, 2)
    await expect(toggle).to_contain_text("3")
    await expect(toggle).to_be_focused()
    assert await are_there(kept)


async def test_buttons_keep_focus_when_lists_refresh(site: Site, open_page: OpenPage) -> None:
    asked = 0

    async def limiters(route: Route) -> None:
        nonlocal asked
        asked += 1
        await route.fulfill(json=[LIMITER | {"taken": asked}])

    page = await open_page()
    await page.route("**/v1/exports?*", lambda route: route.fulfill(json={"exports": [EXPORT], "next_page": None}))
    await page.route("**/v1/limiters", limiters)
    await page.clock.install()
    await follow_link(page, await site.link("root", Role.ADMIN))
    await page.get_by_role("link", name="Exports", exact=True).click()
    for name in ("Download J1", "Copy the link to J1"):
        act = page.get_by_label(name)
        await act.focus()
        await page.clock.run_for(6_000)
        await expect(act).to_be_focused()

    await page.get_by_role("link", name="Health").click()
    lift = page.get_by_role("button", name="Unblock")
    await lift.focus()
    before = asked
    await page.clock.run_for(6_000)
    row = page.get_by_role("table", name="Limiters").get_by_role("row").nth(1)
    await expect(row.get_by_role("cell").nth(4)).not_to_have_text(str(before))
    await expect(lift).to_be_focused()


async def test_double_click_sends_one_request_and_dialog_waits_for_response(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("bea", "/keys")
    keys, deaths = Gate(), Gate()
    await expect(page.get_by_role("button", name="Revoke tm_")).to_be_visible()
    await page.route("**/v1/keys", keys.hold)
    await page.get_by_role("button", name="New key …").click()
    await page.get_by_role("button", name="Create key").dblclick()
    for key in ("Enter", "Escape", "Escape"):  # closing now would leave a valid key that the user never saw
        await page.keyboard.press(key)
    assert keys.n == 1
    keys.opened.set()
    await expect(page.get_by_role("dialog", name="Save this key")).to_be_visible()
    await page.get_by_role("button", name="I have saved it").click()

    await page.route("**/v1/keys/*", deaths.hold)
    await page.get_by_role("button", name="Revoke tm_").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Revoke").click()
    await page.keyboard.press("Escape")
    await page.keyboard.press("Escape")
    await expect(dialog.get_by_role("button", name="Go back")).to_be_disabled()
    deaths.opened.set()
    await expect(dialog).to_be_hidden()


async def test_late_next_page_is_not_added_to_list_with_new_filter(site: Site, signed_in: OpenPage) -> None:
    mine, ours, theirs, last = [await site.submit("cara", [{"sku": "A"}]) for _ in range(4)]
    pages = {(False, False): mine, (False, True): ours, (True, False): theirs, (True, True): last}
    page = await signed_in("cara", "/imports")
    late = Gate()

    async def lists(route: Route) -> None:
        is_filtered, is_more = "search=" in route.request.url, "after=" in route.request.url
        if is_more:
            late.n += 1
            await until(late.opened)
        await route.fulfill(json={"jobs": [pages[is_filtered, is_more]], "next_page": "next"})

    await page.route(re.compile(r"/v1/jobs\?"), lists)
    await page.get_by_role("link", name="Jobs", exact=True).click()
    lines = page.get_by_role("table", name="Jobs").get_by_role("rowheader")
    await expect(lines).to_have_text([mine["key"]])
    await page.get_by_role("button", name="Show more").dblclick()
    await page.get_by_role("button", name="Show more").press("Enter")
    await page.get_by_role("searchbox").fill(theirs["key"])
    await expect(lines).to_have_text([theirs["key"]])
    assert late.n == 1
    late.opened.set()
    await page.get_by_role("button", name="Show more").click()
    await expect(lines).to_have_text([theirs["key"], last["key"]])


async def test_failed_rows_request_offers_retry_and_other_screens_keep_working(site: Site, signed_in: OpenPage) -> None:
    job = await site.submit("dan", [{"sku": f"A-{n}"} for n in range(3)])
    page = await signed_in("dan", "/jobs", expect=("ERR_CONNECTION_REFUSED", "uncaught"))
    await page.route("**/items?*", lambda route: route.abort("connectionrefused"))
    await page.get_by_role("link", name=job["key"]).click()
    await page.get_by_role("link", name="Results").click()
    await expect(page.get_by_text("Could not load rows 1")).to_be_visible()
    await page.unroute_all()
    await page.get_by_role("button", name="Try again").click()
    await page.get_by_role("gridcell", name="A-2").first.click()
    await expect(page.get_by_role("complementary")).to_be_visible()
    await page.keyboard.press("g")
    await page.keyboard.press("j")
    await expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    await expect(page.get_by_role("complementary")).to_have_count(0)

    await page.route("**/v1/imports*", lambda route: route.fulfill(json={"imports": [{}]}))
    await page.get_by_role("link", name="Imports", exact=True).click()
    await expect(page.get_by_role("heading", name="Imports")).to_be_visible()
    await page.get_by_role("link", name="Jobs", exact=True).click()
    await expect(page.get_by_role("link", name=job["key"])).to_be_visible()
