"""The grid with many rows: a million rows cost as little time and memory as a few."""

import json
import os
import re

import pytest
from playwright.async_api import CDPSession, Page, expect

from support import add_job
from web.conftest import OpenPage
from web.page_checks import isolated, keep
from web.site import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")
FRAMES = 90
SCROLL = """
new Promise((resolve) => {
  const box = document.querySelector(".grid-scroll");
  const frames = [];
  let last = performance.now();
  const step = (now) => {
    frames.push(now - last);
    last = now;
    box.scrollTop += 350;
    if (frames.length < FRAMES) requestAnimationFrame(step);
    else resolve(JSON.stringify(frames.slice(1)));
  };
  requestAnimationFrame(step);
})
""".replace("FRAMES", str(FRAMES))
FIRST_ROW = "performance.getEntriesByType('resource').filter(e => e.name.includes('/items')).at(0)?.responseEnd ?? 0"
NODES = "document.querySelectorAll('*').length"
HEAP = "performance.memory.usedJSHeapSize / 1e6"


async def p95_frame(page: Page) -> float:
    frames = sorted(json.loads(await isolated(page, SCROLL)))
    return float(frames[int(len(frames) * 0.95)])


async def busy_frame(page: Page) -> float:
    """Return the CPU time of the page per frame in ms, independent of other load on the machine."""
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = await metrics(session)
    await isolated(page, SCROLL)
    after = await metrics(session)
    await session.detach()
    return (after["TaskDuration"] - before["TaskDuration"]) * 1000 / FRAMES


async def metrics(session: CDPSession) -> dict[str, float]:
    found = await session.send("Performance.getMetrics")
    return {one["name"]: one["value"] for one in found["metrics"]}


def is_machine_busy() -> bool:
    return os.getloadavg()[0] > 1.5 * (os.cpu_count() or 1)


@pytest.mark.parametrize(("n", "is_timed"), [(20_000, False), pytest.param(1_000_000, True, marks=pytest.mark.full)])
async def test_grid_scrolling_cost_is_bounded_for_any_number_of_rows(
    site: Site, signed_in: OpenPage, n: int, is_timed: bool
) -> None:
    await site.user("ada")
    job = await add_job(site.db, n, "price.lookup", owner_id=site.ids["ada"])
    page = await signed_in("ada", f"/jobs/{job}/results")
    grid = page.get_by_role("grid")
    await expect(grid.get_by_label("Select row 1", exact=True)).to_be_visible()
    first = float(await isolated(page, FIRST_ROW))
    await expect(grid).to_have_attribute("aria-rowcount", str(n + 1))
    await page.get_by_label("Go to row").fill(f"{n - 3:,}")
    await page.get_by_label("Go to row").press("Enter")
    await expect(grid.get_by_label(f"Select row {n:,}", exact=True)).to_be_visible()
    await page.get_by_label("Go to row").fill("1")
    await page.get_by_label("Go to row").press("Enter")
    await expect(grid.get_by_label("Select row 1", exact=True)).to_be_visible()
    frame, busy = min([await p95_frame(page) for _ in range(2)]), await busy_frame(page)
    nodes, heap = int(await isolated(page, NODES)), float(await isolated(page, HEAP))
    figures = f"first row {first:.0f} ms, p95 frame {frame:.0f} ms, of which busy {busy:.1f} ms"
    figures += f", {nodes} elements, heap {heap:.1f} MB"
    keep(f"grid-{n}", figures)
    assert busy < 25, figures
    assert nodes < 1_500, figures
    assert heap < 50, figures
    if not is_timed:  # wall-clock times mean nothing on a shared machine; the checks above do not depend on them
        return
    if is_machine_busy() and not (first < 1_000 and frame < 50):
        pytest.skip(f"NOT MEASURED: frame times mean nothing while the machine is busy ({figures})")
    assert first < 1_000, figures
    assert frame < 50, figures


async def test_grid_keyboard_reaches_first_and_last_row(site: Site, signed_in: OpenPage) -> None:
    await site.user("ada")
    job = await add_job(site.db, 3_000, "price.lookup", owner_id=site.ids["ada"])
    page = await signed_in("ada", f"/jobs/{job}/results")
    grid = page.get_by_role("grid")
    await grid.get_by_role("gridcell", name="1", exact=True).first.click()
    await page.keyboard.press("Escape")
    await grid.get_by_role("gridcell", name="1", exact=True).first.focus()
    await page.keyboard.press("Control+End")
    await expect(grid.get_by_role("gridcell", name="3,000", exact=True)).to_be_visible()
    await page.keyboard.press("Shift+PageUp")
    await expect(page.get_by_text(re.compile(r"\d+ rows selected"))).to_be_visible()
    await page.keyboard.press("Control+Home")
    await expect(grid.get_by_role("gridcell", name="1", exact=True).first).to_be_visible()
