"""A German spreadsheet that fills three related tables, and the file of the next month, in the browser alone."""

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from support import rows
from tidemill.core.principal import Role
from web.conftest import OpenPage
from web.page_checks import axe, screenshot
from web.shop import SLOW, site
from web.site import Site
from web.test_imports import choose, figure

__all__ = ["site"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
LEAVE_OUT = "\N{EN DASH} leave out \N{EN DASH}"
TABLES = """
CREATE SCHEMA sales;
CREATE TABLE sales.regions (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE);
CREATE TABLE sales.customers (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE);
CREATE TABLE sales.orders (
    number integer PRIMARY KEY, customer_id integer NOT NULL REFERENCES sales.customers,
    region_id integer REFERENCES sales.regions, ordered_on date NOT NULL, amount numeric(10,2) NOT NULL,
    shipping numeric(10,2), paid boolean NOT NULL);
INSERT INTO sales.regions (name) VALUES ('Nord'), ('Süd'), ('West');
INSERT INTO sales.customers (name) VALUES ('Bäckerei Groß');
"""
OCTOBER = """Auftrag;Kunde;Gebiet;Bestelldatum;Betrag;Versand;Bezahlt;Bemerkung
1001;Müller & Söhne;Nord;31.10.2026;1.234,56;€ 99,90;ja;
1002;Bäckerei Groß;Süd;01.10.2026;99,00;€ 0,00;nein;eilig
1003;Müller & Söhne;Sued;13.10.2026;7,50;€ 4,90;ja;
1004;Café Österreich;Übersee;14.10.2026;12.000,00;€ 1.099,90;ja;per Schiff
1005; Bäckerei Groß ;;15.10.2026;-20,00;;nein;Gutschrift
1002;Bäckerei Groß;Süd;02.10.2026;98,00;€ 0,00;ja;doppelt
1006;Café Österreich;Nord;31.11.2026;5,00;€ 1,00;ja;
Summe;;;;13.424,06;€ 1.205,70;;
"""
NOVEMBER = """Auftrag;Kunde;Gebiet;Datum der Bestellung;Betrag in Euro;Versand;Bezahlt;Bemerkung;Filiale
1101;Müller & Söhne;Sued;30.11.2026;2.000,10;€ 5,00;ja;;Kiel
1102;Neue Kundschaft AG;West;01.11.2026;1,99;€ 0,00;nein;;Bonn
"""
FIELDS = {
    "Auftrag": "number",
    "Kunde": "customer_id",
    "Gebiet": "region_id",
    "Bestelldatum": "ordered_on",
    "Betrag": "amount",
    "Versand": "shipping",
    "Bezahlt": "paid",
}
IN_OCTOBER = [
    (1001, "Müller & Söhne", "Nord", date(2026, 10, 31), Decimal("1234.56"), Decimal("99.90"), True),
    (1002, "Bäckerei Groß", "Süd", date(2026, 10, 1), Decimal("99.00"), Decimal("0.00"), False),
    (1003, "Müller & Söhne", "Süd", date(2026, 10, 13), Decimal("7.50"), Decimal("4.90"), True),
    (1005, "Bäckerei Groß", None, date(2026, 10, 15), Decimal("-20.00"), None, False),
]
ORDERS = """
SELECT o.number, c.name, r.name, o.ordered_on, o.amount, o.shipping, o.paid FROM sales.orders o
JOIN sales.customers c ON c.id = o.customer_id LEFT JOIN sales.regions r ON r.id = o.region_id ORDER BY 1
"""


def spreadsheet(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(text.replace("\n", "\r\n").encode("cp1252"))
    return path


async def open_columns(page: Page, path: Path) -> None:
    await choose(page, path)
    await page.get_by_role("button", name="Continue to columns").click()
    await expect(page.get_by_label("Field of column Kunde")).to_be_visible(timeout=SLOW)


async def map_columns_and_find_references(page: Page) -> None:
    for column, field in FIELDS.items():
        await page.get_by_label(f"Field of column {column}").select_option(field)
        await expect(page.get_by_label(f"Field of column {column}")).to_have_value(field)
    await page.get_by_label("Field of column Bemerkung").select_option(label=LEAVE_OUT)

    customers = page.get_by_label("Find rows of column Kunde by")
    await expect(customers).to_have_value("")
    await customers.select_option("name")
    await page.get_by_label("Create missing rows of column Kunde").check()
    await expect(page.get_by_text("1 found, 2 to create in the first rows")).to_be_visible()
    await page.get_by_label("Find rows of column Gebiet by").select_option("name")
    await expect(page.get_by_text("2 found, 2 missing in the first rows")).to_be_visible()
    await page.get_by_label("Import instead of Sued in region_id").fill("Süd")
    await page.get_by_label("Import instead of Sued in region_id").press("Enter")
    await expect(page.get_by_text("2 found, 1 missing in the first rows")).to_be_visible()
    await expect(page.get_by_text("The column mapping for sales.orders is complete.")).to_be_visible()
    await axe(page)
    await screenshot(page, "import-lookups")


async def list_errors(site: Site, name: str, key: str) -> list[tuple[Any, ...]]:
    page = await site.ask(name, "GET", f"/v1/imports/{key}/errors")
    return [(row["row"], one["code"], one["value"]) for row in page["rows"] for one in row["errors"]]


async def test_german_spreadsheet_fills_three_related_tables_and_next_month_asks_about_changes(
    site: Site, signed_in: OpenPage, tmp_path: Path
) -> None:
    for statement in filter(str.strip, TABLES.split(";\n")):
        await rows(site.db, statement)
    page = await signed_in("root", "/imports/new", role=Role.ADMIN)
    await page.get_by_label("Import into").select_option("*")
    await page.get_by_label("Table name").fill("sales.orders")
    await choose(page, spreadsheet(tmp_path, "oktober.csv", OCTOBER))
    await expect(page.get_by_role("list", name="Detected options")).to_contain_text("footer_lines: 1")
    await expect(page.get_by_text("detected: cp1252")).to_be_attached()
    await page.get_by_role("button", name="Continue to columns").click()
    await map_columns_and_find_references(page)
    await page.get_by_role("button", name="Check all rows").click()
    await figure(page, "with errors", "3")
    await expect(page.get_by_text("1 to create in sales.customers")).to_be_visible(timeout=SLOW)
    assert await rows(site.db, "SELECT count(*) FROM sales.customers") == [(1,)]
    await screenshot(page, "import-lookup-errors")
    await page.get_by_role("button", name="Import 4 valid rows").click(timeout=SLOW)
    await page.get_by_role("dialog").get_by_role("button", name="Import 4").click()
    await figure(page, "imported", "4")
    await expect(page.get_by_text("1 created in sales.customers")).to_be_visible(timeout=SLOW)
    assert await rows(site.db, ORDERS) == IN_OCTOBER
    assert await list_errors(site, "root", page.url.rpartition("/")[2]) == [
        (4, "region_id.unknown_reference", "Übersee"),
        (6, "number.duplicate", "1002"),
        (7, "ordered_on.type", "31.11.2026"),
    ]

    await page.goto(f"{site.url}/imports/new?resource=sales.orders")
    await open_columns(page, spreadsheet(tmp_path, "november.csv", NOVEMBER))
    notice = page.get_by_role("status", name="Earlier import")
    await expect(notice).to_contain_text("The known columns are mapped as in import J")
    await expect(notice).to_contain_text("Datum der Bestellung. It may be the new name of Bestelldatum")
    await expect(notice).to_contain_text("Betrag in Euro. It may be the new name of Betrag")
    await expect(notice).to_contain_text("New: Filiale")
    await expect(page.get_by_label("Find rows of column Kunde by")).to_have_value("name")
    await expect(page.get_by_label("Create missing rows of column Kunde")).to_be_checked()
    await expect(page.get_by_label("Find rows of column Gebiet by")).to_have_value("name")
    await expect(page.get_by_label("Import instead of Sued in region_id")).to_have_value("Süd")
    await expect(page.get_by_text("1 found, 1 to create in the first rows")).to_be_visible()
    await expect(page.get_by_role("button", name="Check all rows")).to_be_disabled()
    await screenshot(page, "import-lookups-remembered")
    await notice.get_by_role("button", name="Map Datum der Bestellung to ordered_on").click()
    await notice.get_by_role("button", name="Map Betrag in Euro to amount").click()
    await page.get_by_label("Field of column Filiale").select_option(label=LEAVE_OUT)
    await page.get_by_role("button", name="Import without checking").click()
    await figure(page, "imported", "2")
    assert await rows(site.db, ORDERS) == [
        *IN_OCTOBER,
        (1101, "Müller & Söhne", "Süd", date(2026, 11, 30), Decimal("2000.10"), Decimal("5.00"), True),
        (1102, "Neue Kundschaft AG", "West", date(2026, 11, 1), Decimal("1.99"), Decimal("0.00"), False),
    ]
    assert await rows(site.db, "SELECT count(*) FROM sales.customers") == [(3,)]
