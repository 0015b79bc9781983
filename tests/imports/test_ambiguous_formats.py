"""Columns whose values can be read in two ways: no interface imports them without a choice."""

import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imports.scenes import Scene
from support import rows
from support.import_requests import open_shop
from support.loopback_server import Server, ranged
from support.workbooks import workbook
from tidemill import Mill
from tidemill.config import Settings
from tidemill.core.errors import AmbiguousFormats

if TYPE_CHECKING:
    from support.command import Tidemill

TABLE = "CREATE TABLE t (id int PRIMARY KEY, price numeric, born date)"
AMBIGUOUS = "id;price;born\n1;12.000;01.02.2024\n2;7;03.04.2024\n"
PRICE_DOUBT = 'Column "price" can be read in two ways: "12.000" is "12000" (decimal-comma) or "12.000" (decimal-point)'
BORN_DOUBT = (
    'Column "born" can be read in two ways: "01.02.2024" is "2024-02-01" (DD.MM.YYYY) or "2024-01-02" (MM.DD.YYYY)'
)


async def test_number_with_point_in_semicolon_file_is_not_imported_without_choice(scene: Scene) -> None:
    await scene.table(TABLE)
    with pytest.raises(AmbiguousFormats) as caught:
        await scene.submit("id;price\n1;12.000\n", "t")
    assert caught.value.problems == [PRICE_DOUBT]
    assert await scene.rows("SELECT count(*) FROM tidemill.job") == [(0,)]


async def test_choice_and_assumption_are_imported_and_stored_with_job(scene: Scene) -> None:
    await scene.table(TABLE)
    job = await scene.run(AMBIGUOUS, "t", formats={"price": "decimal-point", "born": "MM.DD.YYYY"})
    plan = job.params["plan"]
    assert (plan["formats"], plan["assumed"]) == ({"price": "decimal-point", "born": "MM.DD.YYYY"}, [])
    assert await scene.rows("SELECT id, price, born::text FROM t ORDER BY id") == [
        (1, Decimal("12.000"), "2024-01-02"),
        (2, Decimal(7), "2024-03-04"),
    ]
    await scene.table("TRUNCATE t")
    plan = (await scene.run(AMBIGUOUS, "t", assume=True)).params["plan"]
    assert (plan["formats"], plan["assumed"]) == ({"price": "decimal-comma", "born": "DD.MM.YYYY"}, ["price", "born"])
    assert await scene.rows("SELECT id, price, born::text FROM t ORDER BY id") == [
        (1, Decimal(12000), "2024-02-01"),
        (2, Decimal(7), "2024-04-03"),
    ]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
async def test_value_after_first_rows_proves_format(scene: Scene, pack: Callable[[bytes], bytes]) -> None:
    await scene.table(TABLE)
    lines = [f"{n};{n % 9 + 1}.000;0{n % 9 + 1}.02.2024" for n in range(20_000)]
    lines[12_000:15_000] = [f"{n};7,5;31.12.2024" for n in range(12_000, 15_000)]
    job_id = await scene.submit(pack("\n".join(["id;price;born", *lines, ""]).encode()), "t")
    ((params,),) = await scene.rows("SELECT params FROM tidemill.job WHERE id = %s", job_id)
    assert params["plan"]["formats"] == {"price": "decimal-comma", "born": "DD.MM.YYYY"}


async def test_rare_ambiguous_number_fails_row_when_nothing_shows_its_format(scene: Scene) -> None:
    await scene.table(TABLE)
    lines = [f"{n};{n}" for n in range(30_000)]
    lines[11_111] = "11111;12.000"
    job = await scene.run("\n".join(["id;price", *lines, ""]), "t")
    ((row, _, error),) = [one for one in await scene.outcomes(job) if one[1] == "failed"]
    assert (row, error["code"], error["value"]) == (11_112, "price.type", "12.000")
    assert error["reason"] == "has a point that can separate decimals or thousands. Set the format of the field."


async def test_exported_and_native_values_are_never_ambiguous(scene: Scene) -> None:
    await scene.table(TABLE)
    exported = await scene.run("id,price\n1,12.000\n", "t", keep_empty=True)
    native = await scene.run('{"id": 2, "price": 12.000}\n', "t", name="r.ndjson")
    cells: list[list[Any]] = [["id", "price", "born"], [3, 12.5, None]]
    sheet = await scene.run(workbook(cells), "t", name="r.xlsx")
    assert {job.status for job in (exported, native, sheet)} == {"completed"}
    assert [price for _, price in await scene.rows("SELECT id, price FROM t ORDER BY id")] == [12, 12, Decimal("12.5")]


async def test_texts_of_workbook_and_json_are_ambiguous_like_those_of_csv(scene: Scene) -> None:
    await scene.table(TABLE)
    cells: list[list[Any]] = [["id", "price"], [1, 5], [2, "12.000"]]
    record = json.dumps({"id": 1, "price": "12.000"}) + "\n"
    for data, name in ((workbook(cells), "r.xlsx"), (record.encode(), "r.ndjson"), (f"[{record}]".encode(), "r.json")):
        with pytest.raises(AmbiguousFormats):
            await scene.submit(data, "t", name=name)


async def test_import_command_lists_options_for_each_reading_and_exits_with_2(
    tidemill: "Tidemill", scene: Scene
) -> None:
    await scene.table(TABLE)
    file = tidemill.file("rows.csv", AMBIGUOUS)
    assert tidemill("import", file, "--into", "t", code=2).err.splitlines()[-7:] == [
        f"error: {PRICE_DOUBT}. Add one of these options:",
        "  --format price=decimal-comma    12.000 → 12000",
        "  --format price=decimal-point    12.000 → 12.000",
        f"{BORN_DOUBT}. Add one of these options:",
        "  --format born=DD.MM.YYYY    01.02.2024 → 2024-02-01, 03.04.2024 → 2024-04-03",
        "  --format born=MM.DD.YYYY    01.02.2024 → 2024-01-02, 03.04.2024 → 2024-03-04",
        "To use the more likely format (price=decimal-comma, born=DD.MM.YYYY), add --assume",
    ]
    assert await scene.count("t") == 0
    shown = tidemill("import", file, "--into", "t", "--preview", code=2).out
    assert "price: decimal-comma, or decimal-point (" in shown
    assert PRICE_DOUBT in shown
    tidemill("import", file, "--into", "t", "--format", "price=decimal-comma", "--assume")
    assert await scene.rows("SELECT price::text, born::text FROM t WHERE id = 1") == [("12000", "2024-02-01")]


AGES = b"email;name;age\nada@x.org;Ada;12.000\n"


async def test_http_import_is_refused_with_choices_and_accepts_each(
    make_api: Callable[..., Any], toy: Mill, tmp_path: Path
) -> None:
    shop = await open_shop(make_api, toy, tmp_path)
    refused = await shop.post(AGES)
    assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")
    problem = refused.json()
    assert problem["errors"][0]["pointer"] == "#/formats/age"
    (choice,) = problem["formats"]
    assert (choice["field"], choice["column"], choice["format"], choice["ambiguous"]) == (
        "age",
        "age",
        "decimal-comma",
        True,
    )
    assert choice["examples"] == [{"before": "12.000", "after": "12000"}]
    assert choice["alternatives"][0]["examples"] == [{"before": "12.000", "after": "12.000"}]
    params = {"resource": "people"}
    seen = await shop.ada.post("/v1/imports/preview", params=params, content=AGES, headers={"content-type": "text/csv"})
    assert seen.status_code == 200
    assert seen.json()["formats"][0]["ambiguous"]
    assert len(seen.json()["problems"]) == 1
    assert "decimal-comma" in {one["name"] for one in seen.json()["known_formats"]}
    done = await shop.imported(AGES, formats=json.dumps({"age": "decimal-point"}))
    assert (done["formats"], done["assumed"]) == ({"age": "decimal-point"}, [])
    done = await shop.imported(AGES.replace(b"ada@", b"bob@"), assume=True)
    assert (done["formats"], done["assumed"]) == ({"age": "decimal-comma"}, ["age"])
    assert [age for _, _, age in await shop.people()] == [12, 12000]


async def test_import_from_url_fails_with_choices_before_row_is_written(
    make_api: Callable[..., Any], settings: Settings, tmp_path: Path
) -> None:
    with Server(ranged(AGES)) as server:
        allowed = {"remote_allow": [f"127.0.0.1:{server.port}"]}
        shop = await open_shop(make_api, Mill(settings.model_copy(update=allowed)), tmp_path, **allowed)
        asked = {"resource": "people", "source": {"url": server.url("/people.csv")}}
        failed = await shop.worked((await shop.ada.post("/v1/imports", json=asked)).json()["job_id"])
        assert (failed["status"], failed["total_records"]) == ("failed", 0)
        assert '"12.000" is "12000" (decimal-comma) or "12.000" (decimal-point)' in failed["failure_reason"]
        done = await shop.worked((await shop.ada.post("/v1/imports", json=asked | {"assume": True})).json()["job_id"])
        assert (done["status"], done["formats"], done["assumed"]) == ("completed", {"age": "decimal-comma"}, ["age"])
    assert await rows(shop.api.db, "SELECT age FROM shop.people") == [(12000,)]
