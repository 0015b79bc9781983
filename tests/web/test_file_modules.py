"""Modules of the import, export and distribution screens, called in the page."""

import json
from typing import Any

import pytest
from playwright.async_api import Page

from tidemill.web.pages import load_assets
from web.conftest import OpenPage
from web.page_checks import isolated
from web.site import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def said(page: Page, module: str, expression: str) -> Any:
    address = f"/static/{load_assets().version}/{module}"
    return await isolated(page, f"import({json.dumps(address)}).then((it) => {expression})")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,b\n1,2\n", [{"a": "1", "b": "2"}]),
        ('a;b\r\n"x;""y""\nz";\r\n', [{"a": 'x;"y"\nz'}]),
        ("a\tb\n1\t2\n\n3\t4", [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]),
        ('[{"a": 1}]', [{"a": 1}]),
        ('{"a": 1}\n{"a": 2}\n', [{"a": 1}, {"a": 2}]),
        ("", []),
    ],
)
async def test_pasted_table_parses_csv_tsv_json_and_ndjson(signed_in: OpenPage, text: str, rows: list[Any]) -> None:
    page = await signed_in()
    assert await said(page, "core/table-parser.js", f"it.parseTable({json.dumps(text)})") == rows


async def test_form_helpers_suggest_columns_split_lists_build_queries_cut_previews(signed_in: OpenPage) -> None:
    page = await signed_in()
    assert await said(page, "screens/import-columns.js", 'it.closestName("Full name", ["email", "name"])') == "name"
    assert await said(page, "screens/import-columns.js", 'it.closestName("Remarks", ["email", "name"])') is None
    assert await said(page, "screens/export-filters.js", """it.splitList('"Doe, J.",Smith')""") == ["Doe, J.", "Smith"]
    request = {
        "resource": "users",
        "format": "csv",
        "filters": {"name": {"in": ["Doe, J.", "Smith"]}},
        "fields": ["a", "b"],
    }
    query = await said(page, "screens/export-new.js", f"it.streamQuery({json.dumps(request)})")
    assert query == "?resource=users&format=csv&fields=a%2Cb&filter%5Bname%5D%5Bin%5D=%22Doe%2C+J.%22%2CSmith"
    lines = 'new File(["é\\n".repeat(500_000)], "long.csv")'
    assert (await said(page, "screens/import-draft.js", f"it.fileHead({lines}).then((head) => head.size % 3)")) == 0
    assert await said(page, "screens/import-draft.js", f"it.fileHead({lines}).then((head) => head.size)") <= 1 << 20


async def test_stable_order_keeps_existing_keys_in_order_and_appends_new_ones(open_page: OpenPage, site: Site) -> None:
    page = await blank(open_page, site)
    keep = '((keep) => [keep(["b", "a"]), keep(["a", "c", "b"])].join(" "))(it.stableOrder((one) => one))'
    assert await said(page, "core/stable-order.js", keep) == "b,a b,a,c"


async def test_exact_json_round_trip_keeps_number_literals(open_page: OpenPage, site: Site) -> None:
    page = await blank(open_page, site)
    text = '{"a":10.0,"b":1e3,"c":7,"d":12345678901234567890}'
    assert await said(page, "core/json.js", f"it.stringify(it.parseExactly({json.dumps(text)}))") == text


async def test_query_string_repeats_parameter_when_value_contains_comma(open_page: OpenPage, site: Site) -> None:
    page = await blank(open_page, site)
    assert (
        await said(page, "core/api.js", 'it.queryString({ codes: ["a,b"], other: ["x", "y"] })')
        == "?codes=a%2Cb&codes=&other=x%2Cy"
    )


async def blank(open_page: OpenPage, site: Site) -> Page:
    page = await open_page(expect=("401",))
    await page.goto(f"{site.url}/sign-in")
    return page
