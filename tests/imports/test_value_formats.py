"""Imports of values as people write them: numbers, dates and words in other notations, read with named formats."""

import json
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from imports.scenes import Scene
from support.workbooks import workbook
from tidemill.core.errors import InvalidInput

if TYPE_CHECKING:
    from support.command import Tidemill

TABLE = """CREATE TABLE t (id int PRIMARY KEY, price numeric(12,2) NOT NULL DEFAULT 7, born date, seen timestamp,
    ok boolean, phone text)"""
GERMAN = {"price": "decimal-comma", "born": "DD.MM.YYYY", "seen": "DD.MM.YYYY", "ok": "yes-no"}
QUERY = "SELECT id, price, born, seen::text, ok, phone FROM t ORDER BY id"
NEW_YEAR = date(2024, 12, 31)


async def test_given_formats_convert_texts_before_validation(scene: Scene) -> None:
    await scene.table(TABLE)
    text = (
        "id;price;born;seen;ok;phone\n"
        "1;1.234,56;31.12.2024;31.12.2024 14:30;ja;0049 30\n"
        "2;€ 12.000;1.2.2024;2024-01-02;NEIN;007\n"
        "3;;;;;\n"
    )
    job = await scene.run(text, "t", formats=GERMAN)
    assert job.status == "completed"
    assert await scene.rows(QUERY) == [
        (1, Decimal("1234.56"), NEW_YEAR, "2024-12-31 14:30:00", True, "0049 30"),
        (2, Decimal("12000.00"), date(2024, 2, 1), "2024-01-02 00:00:00", False, "007"),
        (3, Decimal("7.00"), None, None, None, None),
    ]


async def test_value_in_other_format_fails_row_with_name_of_format(scene: Scene) -> None:
    await scene.table(TABLE)
    text = "id;price;born;ok\n1;12.50;31.02.2024;vielleicht\n2;1,5;31.01.2024;ja\n"
    job = await scene.run(text, "t", formats={"price": "decimal-comma", "born": "DD.MM.YYYY", "ok": "yes-no"})
    ((_, _, error),) = [one for one in await scene.outcomes(job) if one[1] == "failed"]
    assert [(one["code"], one["value"], one["reason"]) for one in error["errors"]] == [
        ("price.type", "12.50", "must be a number with a decimal comma, such as 1.234,50"),
        ("born.type", "31.02.2024", "must be a date in the format DD.MM.YYYY, such as 31.12.2024"),
        ("ok.type", "vielleicht", "must be a word for yes or no, such as ja or non"),
    ]
    assert await scene.rows("SELECT id FROM t") == [(2,)]


async def test_nulls_option_applies_default_and_required_rule(scene: Scene) -> None:
    await scene.table(TABLE, "CREATE TABLE strict (id int PRIMARY KEY, n int NOT NULL)")
    formats = {"price": "decimal-comma+nulls", "phone": "text+nulls", "born": "nulls"}
    await scene.run("id;price;born;phone\n1;-;n/a;-\n2;1,5;2024-12-31;k.A.\n", "t", formats=formats)
    assert [row[:3] + row[5:] for row in await scene.rows(QUERY)] == [
        (1, Decimal("7.00"), None, None),
        (2, Decimal("1.50"), NEW_YEAR, None),
    ]
    job = await scene.run("id,n\n1,n/a\n", "strict", formats={"n": "nulls"})
    assert await scene.errors(job) == [(1, "n.required")]


async def test_native_numbers_of_json_and_workbooks_are_not_reinterpreted(scene: Scene) -> None:
    await scene.table(TABLE)
    records: list[dict[str, Any]] = [
        {"id": 1, "price": 1234.5},
        {"id": 2, "price": "1.234,5"},
        {"id": 3, "price": None},
    ]
    await scene.run("".join(json.dumps(one) + "\n" for one in records), "t", name="r.ndjson", formats=GERMAN)
    cells: list[list[Any]] = [["id", "price", "born"], [4, 12.5, 45657], [5, "12,5", "31.12.2024"]]
    formats = {"price": "decimal-comma", "born": "excel-date"}
    job = await scene.run(workbook(cells), "t", name="r.xlsx", formats=formats)
    assert await scene.rows("SELECT id, price, born FROM t ORDER BY id") == [
        (1, Decimal("1234.50"), None),
        (2, Decimal("1234.50"), None),
        (3, Decimal("7.00"), None),
        (4, Decimal("12.50"), NEW_YEAR),
    ]
    assert await scene.errors(job) == [(2, "born.type")]


async def test_duplicate_keys_are_found_in_converted_values(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (day date PRIMARY KEY, n int)")
    job = await scene.run("day,n\n01.02.2024,1\n1.2.2024,2\n", "t", formats={"day": "DD.MM.YYYY"})
    assert await scene.errors(job) == [(2, "day.duplicate")]


async def test_format_can_name_column_of_file_and_must_fit_field(scene: Scene) -> None:
    await scene.table(TABLE)
    text = "id;Preis\n1;1,5\n"
    job = await scene.run(text, "t", mapping={"Preis": "price"}, formats={"Preis": "decimal-comma"})
    assert job.params["plan"]["formats"] == {"price": "decimal-comma"}
    for formats, reason in (
        ({"prise": "decimal-comma"}, 'Cannot set the format of "prise".*did you mean "price"'),
        ({"price": "yes-no"}, 'Format "yes-no" cannot be used for the field "price" of type number'),
        ({"phone": "decimal-comma"}, 'Format "decimal-comma" cannot be used for the field "phone" of type text'),
        ({"price": "comma"}, 'Unknown format "comma"'),
    ):
        with pytest.raises(InvalidInput, match=reason):
            await scene.submit(text, "t", mapping={"Preis": "price"}, formats=formats)


async def test_import_command_takes_formats_of_fields_and_of_file(tidemill: "Tidemill", scene: Scene) -> None:
    await scene.table(TABLE)
    file = tidemill.file("rows.txt", "id;price;born\n1;1.234,56;31.12.2024\n")
    formats = ("--format", "csv", "--format", "price=decimal-comma", "--format", "born=DD.MM.YYYY")
    tidemill("import", file, "--into", "t", *formats)
    assert [row[:3] for row in await scene.rows(QUERY)] == [(1, Decimal("1234.56"), NEW_YEAR)]
    said = tidemill("import", file, "--into", "t", "--format", "price=comma", code=2).err
    assert 'error: Unknown format "comma"' in said
