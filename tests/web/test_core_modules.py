"""Modules of `core` and `ui`, called in the page: when they send requests, and which response they show."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from web.page_checks import Watch, follow_link
from web.site import Site
from web.test_file_modules import said

pytestmark = pytest.mark.asyncio(loop_scope="session")

NEWS_ARE_QUICKER = """
(async () => {
  let [asked, broken] = [0, 0];
  const found = it.remoteData(async (signal) => {
    asked += 1;
    await new Promise((resolve) => setTimeout(resolve, 120));
    if (signal.aborted) broken += 1;
    return asked;
  });
  for (let news = 0; news < 30; news += 1) {
    found.reloadSoon(1);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return [found.data.peek() > 1, broken];
})()
"""
# ``takes`` has the duration of each request in milliseconds, by its number.
SOURCE = """
(async () => {
  const rest = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const takes = {1: 1, 2: 120, 3: 10};
  let asked = 0;
  const ask = async () => { const mine = (asked += 1); await rest(takes[mine] ?? 1); return ANSWER; };
  const source = MADE;
  source.setVisibleRange(0, 1);
  await rest(100);
  source.AGAIN();
  await rest(1);
  source.AGAIN();
  await rest(300);
  return [source.rowAt(0), asked];
})()
"""
FORGOTTEN = """
(async () => {
  const rest = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  let isAway = false;
  const source = new it.CursorRowSource(async () => {
    if (isAway) throw new Error("away");
    return { rows: ["there"], next: null };
  });
  source.setVisibleRange(0, 1);
  await rest(100);
  isAway = true;
  source.blocks.delete(0);
  source.setVisibleRange(0, 1);
  await rest(100);
  const before = source.stateAt(0);
  isAway = false;
  source.HOW;
  await rest(50);
  return [before, source.stateAt(0)];
})()
"""
TWO_DRAWERS = """
(() => {
  const [first, second] = ["one", "two"].map((name) => it.openDrawer(name, () => [name]));
  const shown = [...document.querySelectorAll(".drawer")].map((one) => one.textContent);
  second.close();
  return [shown, first.element.isConnected];
})()
"""
TWO_PRESSES = """
(async () => {
  let [runs, done] = [0, null];
  const listener = it.singleFlight(() => ((runs += 1), new Promise((resolve) => (done = resolve))));
  const button = document.createElement("button");
  button.addEventListener("click", listener);
  button.click();
  button.click();
  done();
  await new Promise((resolve) => setTimeout(resolve));
  button.dispatchEvent(new MouseEvent("click", { detail: 2 }));
  const before = runs;
  button.click();
  return [before, runs];
})()
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def page(site: Site, browser: Browser) -> AsyncIterator[Page]:
    context = await browser.new_context()
    made = await context.new_page()
    watch = Watch(made, ())
    await follow_link(made, await site.link("ada"))
    await expect(made.get_by_role("heading", name="Import a file")).to_be_visible()
    yield made
    await context.close()
    watch.check()


async def test_loaders_show_newest_response_and_do_not_abort_slow_requests(page: Page) -> None:
    assert await said(page, "core/remote-data.js", NEWS_ARE_QUICKER) == [True, 0]
    cursor = SOURCE.replace("ANSWER", "{ rows: [mine], next: null }").replace("MADE", "new it.CursorRowSource(ask)")
    assert await said(page, "ui/row-source.js", cursor.replace("AGAIN", "reload")) == [3, 3]
    dense = SOURCE.replace("ANSWER", "[mine]").replace("MADE", "new it.IndexedRowSource(1, ask)")
    assert await said(page, "ui/row-source.js", dense.replace("AGAIN", "refresh")) == [3, 3]


async def test_row_source_loads_failed_block_after_retry(page: Page) -> None:
    for how in ("retry(0)", "retryFailed()"):
        assert await said(page, "ui/row-source.js", FORGOTTEN.replace("HOW", how)) == ["failed", "there"]


async def test_second_drawer_replaces_first_and_double_click_runs_action_once(page: Page) -> None:
    assert await said(page, "ui/drawer.js", TWO_DRAWERS) == [["twotwo"], False]
    assert await said(page, "ui/single-flight.js", TWO_PRESSES) == [1, 2]
