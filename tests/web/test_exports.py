"""The export screens: create and download a file, or stream the rows."""

import json
import re

import pytest
from playwright.async_api import expect

from support import rows
from tidemill.jobs import job_control
from web.conftest import OpenPage
from web.page_checks import axe, screenshot
from web.shop import SLOW, site
from web.site import Site

__all__ = ["site"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_export_form_with_filters_streams_rows_and_creates_downloadable_file(
    site: Site, signed_in: OpenPage
) -> None:
    people = "('old@x.org', 'Old', 80), ('mid@x.org', 'Mid', 30), ('new@x.org', 'New', 20)"
    await rows(site.db, f"INSERT INTO shop.people (email, name, age) VALUES {people}")
    page = await signed_in("ada", "/exports")
    await expect(page.get_by_role("heading", name="No exports yet")).to_be_visible(timeout=SLOW)
    await axe(page)
    await screenshot(page, "exports-empty")
    await page.get_by_role("link", name="New export").first.click()
    await page.get_by_label("Export from").select_option("people")
    await page.get_by_label("at", exact=True).uncheck()
    for _ in range(2):  # the button keeps the focus
        await page.get_by_role("button", name="Move age up").press("Enter")
    await page.get_by_role("button", name="Add a filter").click()
    await page.get_by_label("Field of filter 1").select_option("age")
    await page.get_by_label("Operator of filter 1").select_option("between")
    await page.get_by_label("From value of filter 1").fill("25")
    await page.get_by_label("To value of filter 1").fill("90")
    await page.get_by_label("Order").select_option("-age")
    await expect(
        page.get_by_text('"filters":{"age":{"between":["25","90"]}},"order":["-age"],"spreadsheet_safe":true')
    ).to_be_visible()
    await axe(page)
    await screenshot(page, "export-new")

    await page.reload()
    await expect(page.get_by_label("From value of filter 1")).to_have_value("25", timeout=SLOW)
    async with page.expect_download() as streamed:
        await page.get_by_role("button", name="Stream now").click()
    streamed_to = await (await streamed.value).path()
    expected = "age,email,name,role\n80,old@x.org,Old,\n30,mid@x.org,Mid,\n"
    assert streamed_to.read_text() == expected

    await page.get_by_role("button", name="Create a file").click()
    row = page.get_by_role("row").filter(has_text="people")
    await expect(row).to_contain_text("completed", timeout=SLOW)
    await expect(row).to_contain_text(re.compile(r"in \d d"))
    async with page.expect_download() as made:
        await row.get_by_role("link", name="Download").click()
    assert (await (await made.value).path()).read_text() == expected
    await axe(page)
    await screenshot(page, "exports")


async def test_export_escapes_formulas_unless_spreadsheet_safe_is_unchecked(site: Site, signed_in: OpenPage) -> None:
    await rows(site.db, "INSERT INTO shop.people (email, name) VALUES ('=1+1', 'Formula')")
    page = await signed_in("ada", "/exports/new?resource=people&fields=email%2Cname&format=csv")
    safe = page.get_by_label("Escape formulas")
    await expect(safe).to_be_checked()
    await expect(page.get_by_role("button", name="Stream now")).to_be_enabled()
    for is_safe in (True, False):
        await safe.set_checked(is_safe)
        async with page.expect_download() as streamed:
            await page.get_by_role("button", name="Stream now").click()
        text = (await (await streamed.value).path()).read_text()
        assert ("\n'=1+1," in text, "\n=1+1," in text) == (is_safe, not is_safe)
    await page.get_by_label("Format").select_option("ndjson")
    await expect(safe).to_be_hidden()
    await page.reload()
    await page.get_by_label("Format").select_option("csv")
    await expect(safe).not_to_be_checked()


async def test_export_with_invalid_filter_shows_error_before_download(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in(
        "ada", f"/exports/new?resource=people&filters={json.dumps([{'field': 'age', 'op': 'eq'}])}", expect=("422",)
    )
    await page.get_by_role("button", name="Stream now").click()
    await expect(page.get_by_role("alert")).to_contain_text("must be a whole number", timeout=SLOW)
    await page.get_by_role("button", name="Create a file").click()
    await expect(page.get_by_role("alert")).to_contain_text("must be a whole number", timeout=SLOW)


async def test_pending_export_can_be_cancelled_from_list(site: Site, signed_in: OpenPage) -> None:
    site.workers.end()
    try:
        page = await signed_in("cy", "/exports/new?resource=people")
        await page.get_by_role("button", name="Create a file").click()
        await page.get_by_role("button", name=re.compile("^Cancel J")).click()
        await page.get_by_role("dialog").get_by_role("button", name="Cancel the export").click()
        await expect(page.get_by_role("row").filter(has_text="people")).to_contain_text("cancel", timeout=SLOW)
    finally:
        site.workers.start()


async def test_export_list_shows_final_status_when_detail_request_fails(site: Site, signed_in: OpenPage) -> None:
    site.workers.end()
    try:
        page = await signed_in("dora", "/exports/new?resource=people", expect=("503",))
        await page.get_by_role("button", name="Create a file").click()
        row = page.get_by_role("row").filter(has_text="people")
        await expect(row.get_by_role("button", name="Cancel")).to_be_visible()
        await page.route(re.compile("/v1/exports/[0-9a-f-]+$"), lambda route: route.fulfill(status=503, json={}))
        [(job,)] = await rows(site.db, "SELECT id FROM tidemill.job WHERE owner_id = %s", site.ids["dora"])
        await job_control.cancel_job(site.db, job)
        await expect(row).to_contain_text("cancelled")
    finally:
        site.workers.start()
