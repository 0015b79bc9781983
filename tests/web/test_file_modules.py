"""What the screens of imports, exports and distributions decide by themselves, asked in the page."""

import json
from typing import Any

import pytest
from playwright.async_api import Page

from tidemill.web.assets import load
from web.conftest import OpenPage
from web.site import Site
from web.watching import isolated

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def said(page: Page, module: str, expression: str) -> Any:
    address = f"/static/{load().version}/{module}"
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
async def test_tables_are_read_as_people_paste_them(signed_in: OpenPage, text: str, rows: list[Any]) -> None:
    page = await signed_in()
    assert await said(page, "core/table.js", f"it.readTable({json.dumps(text)})") == rows


async def test_small_decisions(signed_in: OpenPage) -> None:
    page = await signed_in()
    assert await said(page, "screens/import-columns.js", 'it.nearest("Full name", ["email", "name"])') == "name"
    assert await said(page, "screens/import-columns.js", 'it.nearest("Remarks", ["email", "name"])') is None
    assert await said(page, "screens/export-filters.js", """it.listed('"Doe, J.",Smith')""") == ["Doe, J.", "Smith"]
    asked = {
        "resource": "users",
        "format": "csv",
        "filters": {"name": {"in": ["Doe, J.", "Smith"]}},
        "fields": ["a", "b"],
    }
    query = await said(page, "screens/export-new.js", f"it.streamQuery({json.dumps(asked)})")
    assert query == "?resource=users&format=csv&fields=a%2Cb&filter%5Bname%5D%5Bin%5D=%22Doe%2C+J.%22%2CSmith"
    lines = 'new File(["é\\n".repeat(500_000)], "long.csv")'
    assert (await said(page, "screens/import-draft.js", f"it.head({lines}).then((head) => head.size % 3)")) == 0
    assert await said(page, "screens/import-draft.js", f"it.head({lines}).then((head) => head.size)") <= 1 << 20


async def test_causes_keep_their_order_when_numbers_overtake_one_another(open_page: OpenPage, site: Site) -> None:
    page = await blank(open_page, site)
    keep = '((keep) => [keep(["b", "a"]), keep(["a", "c", "b"])].join(" "))(it.steady((one) => one))'
    assert await said(page, "core/steady.js", keep) == "b,a b,a,c"


async def test_numbers_of_rows_stay_as_they_were_written(open_page: OpenPage, site: Site) -> None:
    page = await blank(open_page, site)
    text = '{"a":10.0,"b":1e3,"c":7,"d":12345678901234567890}'
    assert await said(page, "core/json.js", f"it.stringify(it.parseExactly({json.dumps(text)}))") == text


async def test_words_with_commas_are_repeated_and_not_joined(open_page: OpenPage, site: Site) -> None:
    page = await blank(open_page, site)
    assert (
        await said(page, "core/api.js", 'it.search({ codes: ["a,b"], other: ["x", "y"] })')
        == "?codes=a%2Cb&codes=&other=x%2Cy"
    )


async def blank(open_page: OpenPage, site: Site) -> Page:
    page = await open_page(expect=("401",))
    await page.goto(f"{site.url}/sign-in")
    return page
