"""Imports on the screen: from a file that is dropped to rows in a table."""

import re
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Page, expect

from support import rows

from .conftest import SCREENSHOTS, Site
from .shop import people_csv, site, written
from .watching import axe, screenshot

__all__ = ["site"]
SignedIn = Callable[..., Page]
SLOW = 60_000


def choose(page: Page, path: Path, label: str = "File to import") -> None:
    page.get_by_label(label).set_input_files(path)


def figure(page: Page, label: str, value: str) -> None:
    """A number of the import, by what it is called."""
    expect(page.locator(".figures > div").filter(has=page.get_by_text(label, exact=True)).locator("dd")).to_have_text(
        value, timeout=SLOW
    )


def to_columns(page: Page, site: Site, path: Path) -> None:
    page.goto(f"{site.url}/imports/new?resource=people")
    choose(page, path)
    page.get_by_role("button", name="To the columns").click()


def leave_out_and_map(page: Page) -> None:
    page.get_by_label("Field of column Full name").select_option("name")
    expect(page.get_by_label("Field of column Full name")).to_have_value("name")
    page.get_by_label("Field of column Remarks").select_option(label="– leave out –")


def test_before_anything_was_imported_the_screen_teaches_how(site: Site, signed_in: SignedIn) -> None:
    page = signed_in("newcomer", "/imports")
    expect(page.get_by_role("heading", name="No imports yet")).to_be_visible()
    expect(page.get_by_text("tidemill import users.csv")).to_be_visible()
    axe(page)
    screenshot(page, SCREENSHOTS, "imports-empty")


def test_a_file_is_previewed_mapped_checked_mended_and_imported(
    site: Site, signed_in: SignedIn, tmp_path: Path
) -> None:
    page = signed_in("ada", "/imports/new")
    page.get_by_label("Into").select_option("people")
    expect(page).to_have_url(re.compile("resource=people"))
    axe(page)
    screenshot(page, SCREENSHOTS, "import-file")
    choose(page, written(tmp_path, "people.csv", people_csv(60, bad=6, prefix="mend")))

    expect(page.get_by_text("found: semicolon")).to_be_attached()
    expect(page.get_by_role("columnheader", name="E-Mail → email")).to_be_visible()
    axe(page)
    screenshot(page, SCREENSHOTS, "import-preview")
    page.get_by_role("button", name="To the columns").click()

    expect(page.get_by_text("there is no column for 'name', which is required")).to_be_visible()
    expect(page.get_by_role("button", name="Check all rows")).to_be_disabled()
    axe(page)
    screenshot(page, SCREENSHOTS, "import-columns")
    leave_out_and_map(page)
    expect(page.get_by_text("Every column has its place in people.")).to_be_visible()
    page.get_by_role("button", name="Check all rows").click()

    expect(page).to_have_url(re.compile(r"/imports/J\d+_\d+$"))
    figure(page, "with errors", "6")
    figure(page, "good", "54")
    group = page.get_by_role("button", name="email pattern 2")
    expect(group).to_be_visible()
    axe(page)
    screenshot(page, SCREENSHOTS, "import-findings")
    group.click()
    expect(page).to_have_url(re.compile("code=email.pattern"))
    expect(page.get_by_role("gridcell", name="email: not an e-mail address")).to_have_count(2)

    page.get_by_role("gridcell", name="mend0", exact=True).click()
    drawer = page.get_by_role("complementary")
    expect(drawer.get_by_role("heading", name="Row 1")).to_be_visible()
    expect(drawer.get_by_text("not an e-mail address")).to_be_visible()
    axe(page)
    screenshot(page, SCREENSHOTS, "import-row")
    drawer.get_by_label("E-Mail").fill("mended@example.org")
    drawer.get_by_label("E-Mail").press("Enter")
    expect(page.get_by_role("gridcell", name="good now")).to_be_visible(timeout=SLOW)
    expect(drawer.get_by_role("heading", name="Row 31")).to_be_visible()
    page.keyboard.press("Escape")
    figure(page, "with errors", "5")

    page.get_by_role("button", name="Import 55 good rows").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("5 rows with errors will fail again")).to_be_visible()
    axe(page)
    screenshot(page, SCREENSHOTS, "import-promote")
    trial = page.url
    dialog.get_by_role("button", name="Import 55").click()
    expect(page).not_to_have_url(trial)
    figure(page, "imported", "55")
    assert count_of(site, "mend%") == 55  # noqa: PLR2004
    page.goto(trial)
    expect(page.get_by_role("link", name="To the import")).to_be_visible()


def count_of(site: Site, like: str) -> int:
    query = "SELECT count(*) FROM shop.people WHERE email LIKE %s"
    return int(site.run(rows(site.db, query, like))[0][0])
