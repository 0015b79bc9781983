"""Filters: parsing, validation errors, and the same selection in PostgreSQL as in Python."""

import operator
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exports.scenes import Scene, sorted_by
from tidemill.core.errors import InvalidInput, InvalidRequest
from tidemill.exports.table_export_request import (
    FilterCondition,
    TableExportRequest,
    build_table_export_plan,
    parse_filter_condition,
    parse_filter_object,
    parse_query_filters,
)
from tidemill.exports.table_exporter import compile_export_query
from tidemill.tables.resource import Field, Resource, TableName
from tidemill.tables.resource_registry import ResourceRegistry

RESOURCE = Resource(
    name="people",
    table=TableName("public", "people"),
    key=("id",),
    fields=(
        Field(name="id", column="id", type="integer", sql_type="integer", bits=32),
        Field(name="role", column="role", type="text", sql_type="public.role", enum=("admin", "editor")),
        Field(name="name", column="full_name", type="text"),
        Field(name="born", column="born", type="date", sql_type="date"),
        Field(name="seen", column="seen", type="timestamp", sql_type="timestamp with time zone", with_zone=True),
        Field(name="ok", column="ok", type="boolean", sql_type="boolean"),
        Field(name="more", column="more", type="json", sql_type="jsonb"),
        Field(name="pin", column="pin", type="integer", sql_type="integer", sensitive=True),
    ),
)


def test_filter_syntax_is_equivalent_in_query_object_and_command_line() -> None:
    assert parse_query_filters([("filter[role][in]", "admin,editor"), ("fields", "id")]) == [
        parse_filter_condition("role[in]=admin,editor")
    ]
    assert (
        parse_query_filters([("filter[role]", "admin")])
        == [FilterCondition("role", "eq", ("admin",))]
        == [parse_filter_condition("role=admin")]
    )
    assert parse_filter_condition("filter[role][in]=admin,editor") == parse_filter_condition("role[in]=admin,editor")
    assert parse_filter_condition("filter[role]=a=b") == parse_filter_condition("role=a=b")
    assert parse_filter_object({"role": {"in": ["admin"]}, "ok": True, "id": {"gte": 1, "lt": 9}}) == [
        FilterCondition("role", "in", ("admin",)),
        FilterCondition("ok", "eq", ("true",)),
        FilterCondition("id", "gte", ("1",)),
        FilterCondition("id", "lt", ("9",)),
    ]


def test_filter_value_outside_declared_enum_is_accepted_for_text_column() -> None:
    role = Field(name="role", column="role", type="text", sql_type="character varying(20)", enum=("admin",))
    people = Resource(name="people", table=TableName("public", "people"), key=(), fields=(role,))
    plan = build_table_export_plan(
        TableExportRequest(resource="people", filters=(parse_filter_condition("role=legacy"),)), people
    )
    assert plan.filters[0].values == ("legacy",)


def test_field_named_filter_can_be_filtered() -> None:
    assert parse_filter_condition("filter=x") == FilterCondition("filter", "eq", ("x",))
    assert parse_filter_condition("filter[in]=x,y") == FilterCondition("filter", "in", ("x", "y"))
    assert parse_filter_condition("filter[filter][in]=x,y") == FilterCondition("filter", "in", ("x", "y"))


def test_filter_list_values_with_commas_are_quoted() -> None:
    assert parse_filter_condition('name[in]="a,b",c').values == ("a,b", "c")
    assert parse_filter_condition("name=a=b,[c]").values == ("a=b,[c]",)


def test_filter_values_are_parsed_by_field_type() -> None:
    conditions = (
        parse_filter_condition("id=5.0"),
        parse_filter_condition("seen[gte]=2026-11-15"),
        parse_filter_condition("ok=YES"),
        parse_filter_condition("born[between]=2000-01-01,infinity"),
    )
    plan = build_table_export_plan(TableExportRequest(resource="people", filters=conditions), RESOURCE)
    assert [one.values for one in plan.filters] == [
        ("5",),
        ("2026-11-15T00:00:00+00:00",),
        ("t",),
        ("2000-01-01", "infinity"),
    ]


REFUSED = [
    ("nmae=x", 'did you mean "name"?'),
    ("id=old", '"old" must be a whole number'),
    ("id=99999999999", "must be between"),
    ("born[lt]=yesterday", "must be a date"),
    ("role=king", 'not one of "admin", "editor"'),
    ("role[near]=admin", 'unknown operator "near"'),
    ("ok[lt]=true", 'operator "lt" does not support type boolean'),
    ("id[like]=1%", 'operator "like" does not support type integer'),
    ("more=1", 'operator "eq" does not support type jsonb'),
    ("id[between]=1", '"between" requires 2 values, got 1'),
    ("id[in]=", '"in" requires 1 to'),
    ("id[is_null]=maybe", '"is_null" must be true or false'),
    ("name[like]=x\\", "must not end with a single backslash"),
    ("name=a\0b", "cannot store"),
    ("pin=secret", "… must be a whole number"),
]


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_invalid_filter_is_rejected_with_reason(text: str, says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        build_table_export_plan(
            TableExportRequest(resource="people", filters=(parse_filter_condition(text),)), RESOURCE
        )
    assert says in str(refused.value)


def test_invalid_export_request_reports_all_problems() -> None:
    request = TableExportRequest(
        resource="people",
        fields=("id", "id", "nam"),
        filters=(parse_filter_condition("id=x"), parse_filter_condition("?=1")),
        order=("-nobody", "more"),
        format="docx",
        compression="rar",
    )
    with pytest.raises(InvalidRequest) as refused:
        build_table_export_plan(request, RESOURCE)
    assert len(refused.value.problems) == 8


@pytest.mark.parametrize("name", ["filter", "filter[", "filter[a][b][c]", "filter[a]b", "filterx"])
def test_malformed_filter_parameter_name_is_rejected(name: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid filter parameter"):
        parse_query_filters([(name, "1")])


TEXTS = ["", "a", "B", "b%", "a_c", "\\", "'", "''; DROP TABLE t; --", '"', "ab", "é", "%s", "{}", "a,b", " "]
ROWS: list[tuple[int, str | None, int | None, Decimal | None, bool | None, date | None]] = [
    (
        number,
        None if number % 7 == 0 else TEXTS[number % len(TEXTS)],
        None if number % 5 == 0 else number % 11 - 5,
        None if number % 6 == 0 else Decimal(number) / 4,
        (None, True, False)[number % 3],
        None if number % 4 == 0 else date(2026, 1, 1 + number % 28),
    )
    for number in range(60)
]
COLUMNS = ("id", "word", "age", "price", "ok", "day")
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}


def _says(op: str, value: Any, wanted: list[Any]) -> bool:
    """Return whether the value matches the condition in Python."""
    if op == "is_null":
        return (value is None) is wanted[0]
    if op == "ne":
        return bool(value != wanted[0])
    if value is None:
        return False
    if op == "in":
        return value in wanted
    if op == "between":
        return bool(wanted[0] <= value <= wanted[1])
    return COMPARE[op](value, wanted[0])


def _written(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


@st.composite
def conditions(draw: st.DrawFn) -> tuple[str, str, list[Any]]:
    at = draw(st.integers(1, 5))
    values = sorted({row[at] for row in ROWS if row[at] is not None}, key=str)
    ops = ["eq", "ne", "in", "is_null"] + ([] if at == 4 else ["lt", "lte", "gt", "gte", "between"])
    op = draw(st.sampled_from(ops))
    if op == "is_null":
        return COLUMNS[at], op, [draw(st.booleans())]
    count = 2 if op == "between" else draw(st.integers(1, 4)) if op == "in" else 1
    return COLUMNS[at], op, draw(st.lists(st.sampled_from(values), min_size=count, max_size=count))


async def test_filters_select_same_rows_in_postgresql_and_python(scene: Scene) -> None:
    await scene.run(
        'CREATE TABLE t (id integer PRIMARY KEY, word text COLLATE "C", age integer, price numeric(8, 2),'
        " ok boolean, day date)"
    )
    async with scene.db.connection() as conn:
        await conn.cursor().executemany("INSERT INTO t VALUES (%s, %s, %s, %s, %s, %s)", ROWS)
    asked: list[list[tuple[str, str, list[Any]]]] = []

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(conditions(), min_size=1, max_size=3))
    def choose(found: list[tuple[str, str, list[Any]]]) -> None:
        asked.append(found)

    choose()
    for found in asked:
        filters = tuple(FilterCondition(name, op, tuple(map(_written, values))) for name, op, values in found)
        plan = build_table_export_plan(
            TableExportRequest(resource="t", filters=filters, format="ndjson", fields=("id",)), (await _resource(scene))
        )
        selected = await _selected(scene, plan)
        wanted = [
            row[0] for row in ROWS if all(_says(op, row[COLUMNS.index(name)], values) for name, op, values in found)
        ]
        assert selected == wanted, found


async def _resource(scene: Scene) -> Resource:
    return await ResourceRegistry({}).get_resource(scene.db, "t", any_table=True, for_reading=True)


async def _selected(scene: Scene, plan: Any) -> list[int]:
    async with scene.db.connection() as conn:
        found = await (await conn.execute(compile_export_query(plan).encode())).fetchall()
    return [row[0]["id"] for row in found]


async def test_like_filter_follows_sql_and_does_not_truncate_values(scene: Scene) -> None:
    await scene.run(
        "CREATE TABLE t (id int PRIMARY KEY, w varchar(5))", "INSERT INTO t VALUES (1, 'a%%b'), (2, 'axb'), (3, NULL)"
    )
    assert sorted_by(await scene.objects("t", "w[like]=a%"), "id") == [1, 2]
    assert sorted_by(await scene.objects("t", "w[like]=a\\%b"), "id") == [1]
    assert await scene.objects("t", "w=a%bcd") == [], "the value is not truncated to the length of its column"
