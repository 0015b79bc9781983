"""Users see no data of other users on any screen, link or search."""

import contextlib
import re
from pathlib import Path

import pytest
from playwright.async_api import Error, Page, Route, expect

import tidemill.web
from web.conftest import OpenPage, serving
from web.page_checks import axe, follow_link, screenshot
from web.site import UNSERVED_KIND, Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

SEALED = {"sku": "Z-1", "title": "Sealed letter"}
MARKS = ("Sealed letter", "owner-of-secrets", "hidden purpose", "this product is not sold")
DEEP = (
    "/jobs?q={key}",
    "/jobs?q={id}",
    "/jobs/{key}",
    "/jobs/{id}/results",
    "/jobs/{key}/pending?statuses=pending,processing,retry_wait",
    "/jobs/{key}/errors",
    "/jobs/{key}/config",
    "/jobs/{key}/activity",
    "/pending?statuses=pending,processing,retry_wait",
    "/pending?job={key}",
    "/dead-letters?cause=not_sold",
    "/dead-letters?job={id}&cause=not_sold",
    "/operations/{operation}",
)
REFUSED = ("403", "404", "the server responded")


def screens(job: str) -> list[str]:
    """Return the path of every registered screen."""
    index = Path(tidemill.web.__file__).parent / "static" / "screens" / "index.js"
    found = re.findall(r'path: "([^"]+)"', index.read_text())
    assert {"/jobs", "/pending", "/users"} <= set(found)
    return [re.sub(r":\w+", job, re.sub(r"/:\w+\?", "", path)) for path in found]


class Ears:
    """Record every response to a tab except the event stream."""

    def __init__(self) -> None:
        self._responses: list[tuple[str, str]] = []

    async def listen(self, route: Route) -> None:
        """Pass a request on and record its response."""
        if route.request.url.split("?")[0].endswith("/events"):
            await route.continue_()
            return
        with contextlib.suppress(Error):  # the tab has left the screen
            response = await route.fetch()
            self._responses.append((route.request.url, await response.text()))
            await route.fulfill(response=response)

    def check(self, marks: tuple[str, ...]) -> None:
        for url, text in self._responses:
            assert not [mark for mark in marks if mark in text], f"{url}: {text[:500]}"


GO = """path => {
    for (const next of ["/nothing-is-here", path]) {
        history.pushState({}, "", next);
        dispatchEvent(new PopStateEvent("popstate"));
    }
}"""


async def see(page: Page, path: str) -> str:
    """Navigate within the page, as a link does, and return the text of the loaded screen."""
    await page.evaluate(GO, path)
    await expect(page.get_by_text("Page not found")).to_have_count(0)
    await expect(page.locator("main :is(h1, h2)").first).to_be_visible()
    await expect(page.get_by_text("Loading …")).to_have_count(0)
    return await page.locator("body").inner_text()


async def test_no_screen_or_deep_link_shows_data_of_another_owner(working: Site, signed_in: OpenPage) -> None:
    done = await working.finished("owner-of-secrets", [SEALED, SEALED | {"wish": "never"}])
    working.workers.end()
    waiting = await working.submit("owner-of-secrets", [SEALED] * 3)
    owner = await signed_in("owner-of-secrets", f"/dead-letters?job={done.key}")
    await owner.get_by_role("button", name="Retry all").click()
    await owner.get_by_role("dialog").get_by_role("button", name="Retry 1").click()
    await owner.get_by_role("link", name="Show the operation").first.click()
    await expect(owner).to_have_url(re.compile("/operations/.{36}$"))
    operation = owner.url.rsplit("/", 1)[1]
    await owner.goto(f"{working.url}/keys")
    await owner.get_by_role("button", name="New key").click()
    await owner.get_by_label("Name").fill("hidden purpose")
    await owner.get_by_role("button", name="Create key").click()
    await owner.get_by_role("button", name="I have saved it").click()
    await expect(owner.get_by_text("hidden purpose")).to_be_visible()

    page = await signed_in("nosy", expect=REFUSED)
    ears = Ears()
    await page.route("**/v1/**", ears.listen)
    for path in screens(str(done.id)):
        shown = await see(page, path)
        assert not [mark for mark in (*MARKS, done.key, waiting["key"]) if mark in shown and mark not in path], path
    for job in ({"key": done.key, "id": str(done.id)}, waiting):
        for path in DEEP:
            shown = await see(page, path.format(key=job["key"], id=job["id"], operation=operation))
            assert not [mark for mark in MARKS if mark in shown], path
    ears.check(MARKS)


async def test_event_stream_does_not_deliver_jobs_of_another_owner(working: Site, signed_in: OpenPage) -> None:
    own = await working.submit("nosy", [{"sku": "N-1"}])
    page = await signed_in("nosy")
    await expect(page.get_by_role("row", name=own["key"])).to_be_visible()
    await expect(page.get_by_role("button", name="Live updates: Live")).to_be_visible()
    other = await working.submit("owner-of-secrets", [SEALED])
    newer = await working.submit("nosy", [{"sku": "N-2"}])
    await page.get_by_role("button", name=re.compile("^1 new")).click()
    await expect(page.get_by_role("row", name=newer["key"])).to_be_visible()
    await expect(page.get_by_role("row", name=other["key"])).to_have_count(0)


async def test_pending_screen_shows_setting_name_when_dashboard_is_disabled(site: Site, open_page: OpenPage) -> None:
    job = await site.submit("ada", [{"sku": "A", "title": "Lonely"}], kind=UNSERVED_KIND)
    async with serving(site.settings.model_copy(update={"pending_dashboard": False})) as off:
        page = await open_page()
        await follow_link(page, (await site.link("ada")).replace(site.url, off.url))
        await page.goto(f"{off.url}/pending")
        await expect(page.get_by_text("This screen is disabled")).to_be_visible()
        await expect(page.get_by_text("TIDEMILL_PENDING_DASHBOARD=true")).to_be_visible()
        await expect(page.get_by_role("link", name="Jobs", exact=True)).to_be_visible()
        await expect(page.get_by_role("link", name="Pending")).to_have_count(0)
        await axe(page)
        await screenshot(page, "pending-off")
        await page.goto(f"{off.url}/jobs/{job['key']}/pending")
        await expect(page.get_by_role("row").filter(has_text="Lonely")).to_contain_text("pending")
        await page.goto("about:blank")
