"""Live updates: screens follow changes, show the age of stale data, and send no requests while paused or hidden."""

import asyncio
import re
from typing import Any

import httpx2
import pytest
from playwright.async_api import Page, Route, expect

from support import eventually, until
from web.conftest import OpenPage
from web.page_checks import follow_link
from web.site import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")
AWAY = ("ERR_CONNECTION_REFUSED", "503")
HIDE = """(state) => {
  Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
NO_DATE = """
const get = Headers.prototype.get;
Headers.prototype.get = function (name) { return name === "date" ? null : get.call(this, name); };
"""


def requests_of(page: Page) -> list[str]:
    """Return a list that collects the requests of the page from now on."""
    begun: list[str] = []
    page.on("request", lambda request: begun.append(f"{request.method} {request.url}"))
    return begun


def live(page: Page, word: str) -> Any:
    return expect(page.get_by_role("button", name=re.compile(f"Live updates: *{word}")))


async def with_a_clock(site: Site, page: Page, name: str, to: str = "/jobs") -> Page:
    """Sign in, in a tab with a fake clock."""
    await page.clock.install()
    await page.request.post(await site.link(name), max_redirects=0)
    await page.goto(site.url + to)
    return page


async def test_live_updates_send_no_requests_while_paused_or_hidden_then_catch_up(
    site: Site, open_page: OpenPage
) -> None:
    page = await open_page()
    async with page.expect_request(re.compile("/v1/events")) as stream:
        await with_a_clock(site, page, "pia")
    assert "last-event-id" in await (await stream.value).all_headers(), "the stream starts when the page was loaded"
    await expect(page.get_by_text("No jobs yet")).to_be_visible()
    await live(page, "Live").to_be_visible()

    await page.get_by_role("button", name="Live updates").click()
    await expect(page.get_by_text(re.compile(r"Paused\. Showing data from \d\d:\d\d:\d\d"))).to_be_visible()
    begun = requests_of(page)
    await site.cancelled("pia")  # closed before updates resume
    await page.clock.fast_forward(120_000)
    assert begun == []
    await page.get_by_role("button", name="Live updates").click()
    await page.get_by_role("button", name="1 new").click()
    lines = page.get_by_role("table", name="Jobs").get_by_role("rowheader")
    await expect(lines).to_have_count(1)

    job = await site.submit("pia", [{"sku": "B"}])
    await expect(page.get_by_role("button", name="1 new")).to_be_visible()
    await expect(lines).to_have_count(1)
    await page.get_by_role("button", name="1 new").click()
    await expect(lines.first).to_have_text(job["key"])

    await lines.first.get_by_role("link").click()
    await page.get_by_role("button", name="Export …").click()
    await page.get_by_role("button", name="Export 1").click()
    await expect(page.get_by_text("Creating the file")).to_be_visible()
    await page.evaluate(HIDE, "hidden")
    await live(page, "In background").to_be_visible()
    begun.clear()
    await page.clock.fast_forward(120_000)
    assert begun == [], "no request for the job or the export"
    async with page.expect_request(re.compile("/v1/exports/")):
        await page.evaluate(HIDE, "visible")
    assert any(f"job={job['id']}" in one for one in begun), "the stream request names the open job"


async def test_paused_notice_shows_load_time_of_opened_screen(site: Site, open_page: OpenPage) -> None:
    job = await site.submit("uma", [{"sku": "A"}])
    page = await open_page()
    await page.add_init_script(NO_DATE)  # the date of a late response would set the fake clock back
    await with_a_clock(site, page, "uma")
    notice = page.get_by_text(re.compile(r"Paused\. Showing data from \d\d:\d\d:\d\d"))
    await live(page, "Live").to_be_visible()
    await page.get_by_role("button", name="Live updates").click()
    began = await notice.inner_text()
    await page.clock.fast_forward(120_000)
    await expect(notice).to_have_text(began)
    await page.get_by_role("link", name=job["key"]).click()
    await expect(page.get_by_role("heading", name=job["key"])).to_be_visible()
    opened = await notice.inner_text()
    assert opened != began
    await page.clock.fast_forward(120_000)
    await page.get_by_role("link", name="Config").click()  # another tab of the same screen
    await expect(page.get_by_role("heading", name="Details")).to_be_visible()
    await expect(notice).to_have_text(opened)


async def test_live_updates_show_data_age_on_lost_stream_and_reconnect(site: Site, open_page: OpenPage) -> None:
    page = await with_a_clock(site, await open_page(expect=AWAY), "quinn")
    notice = page.get_by_text(re.compile(r"Offline\. Showing data from \d\d:\d\d:\d\d"))
    await live(page, "Live").to_be_visible()
    await page.route("**/v1/**", lambda route: route.abort("connectionrefused"))
    await page.clock.fast_forward(41_000)  # longer than the silence timeout of the stream
    await expect(notice).to_be_visible()
    await expect(notice.locator("[aria-hidden]")).to_contain_text("Reconnecting")
    await page.unroute_all()
    await page.clock.fast_forward(31_000)
    await live(page, "Live").to_be_visible()
    await expect(notice).to_be_hidden()

    async def full(route: Route) -> None:
        await route.fulfill(status=503, json={"detail": "Too many event streams are open"})

    await page.route("**/v1/events*", full)
    begun = requests_of(page)
    await page.clock.fast_forward(41_000)
    for tries in range(1, 4):
        await eventually(lambda tries=tries: has(begun, "/v1/events", tries))  # type: ignore[misc]
        await live(page, "Offline").to_be_visible()
        await page.clock.fast_forward(31_000)
    await expect(notice).to_contain_text(re.compile(r"Reconnecting in ([4-9]|[12]\d|30) s"), timeout=9_000)
    await page.get_by_role("button", name="Live updates").click()
    await live(page, "Paused").to_be_visible()
    begun.clear()
    await page.clock.fast_forward(60_000)
    assert begun == []


async def has(begun: list[str], path: str, n: int) -> bool:
    return sum(path in one for one in begun) >= n


@pytest.mark.parametrize("screen", ["/jobs", "/jobs/{key}"])
async def test_live_update_newer_than_late_response_is_shown(site: Site, open_page: OpenPage, screen: str) -> None:
    job = await site.submit("rosa", [{"sku": "A"}])
    path = screen.format(key=job["key"])
    before = await site.ask("rosa", "GET", f"/v1{path}")
    await site.ask("rosa", "POST", f"/v1/jobs/{job['id']}/cancel")
    after = httpx2.Response(200, json=await site.ask("rosa", "GET", f"/v1/jobs/{job['id']}")).text
    page = await open_page()
    is_requested, was_sent = asyncio.Event(), False

    async def stream(route: Route) -> None:
        nonlocal was_sent
        if was_sent:
            return  # the second stream sends nothing
        was_sent = True
        await until(is_requested)
        await route.fulfill(content_type="text/event-stream", body=f"event: job\nid: 2026-01-01\ndata: {after}\n\n")

    async def late(route: Route) -> None:
        is_requested.set()
        await live(page, "Offline").to_be_visible()  # the page has handled the event
        await route.fulfill(json=before)

    await follow_link(page, await site.link("rosa"))
    await expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    await page.route("**/v1/events*", stream)
    await page.route(re.compile(rf"/v1{path}(\?|$)"), late, times=1)
    await page.goto(site.url + path)
    shown = page.get_by_role("row").filter(has_text=job["key"]) if screen == "/jobs" else page.locator(".head .title")
    await expect(shown).to_contain_text("cancelled")


async def test_failed_sign_out_shows_error_and_user_switch_clears_old_data(site: Site, open_page: OpenPage) -> None:
    job = await site.cancelled("sam")
    page = await with_a_clock(site, await open_page(expect=AWAY), "sam")
    await expect(page.get_by_role("link", name=job["key"])).to_be_visible()

    async def refuse(route: Route) -> None:
        await route.fulfill(status=503, json={"detail": "The database is unavailable"})

    await page.route("**/v1/session", refuse)
    await page.get_by_role("button", name="sam account").click()
    await page.get_by_role("menuitem", name="Sign out").click()
    await expect(page.get_by_text("The database is unavailable")).to_be_visible()
    await expect(page.get_by_role("link", name=job["key"])).to_be_visible()

    other = await page.context.new_page()
    await follow_link(other, await site.link("tess"))
    await expect(other.get_by_role("button", name="tess account")).to_be_visible()
    await other.close()
    await page.clock.fast_forward(41_000)  # the stream reconnects and checks the current user
    await expect(page.get_by_role("button", name="tess account")).to_be_visible()
    await expect(page.get_by_text("No jobs yet")).to_be_visible()
