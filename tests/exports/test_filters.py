"""Filters: what they are read as, what they refuse, and that the server selects what Python says."""

import operator
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exports.scenes import Scene, sorted_by
from tidemill.domain.errors import InvalidInput, InvalidRequest
from tidemill.domain.exporting import Condition, TableExport, from_object, from_query, make_plan, parse_condition
from tidemill.domain.resource import Field, Resource, Table
from tidemill.operations.resources import Resources
from tidemill.store.extract import compiled

RESOURCE = Resource(
    name="people",
    table=Table("public", "people"),
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


def test_the_query_and_the_command_line_say_the_same() -> None:
    assert from_query([("filter[role][in]", "admin,editor"), ("fields", "id")]) == [
        parse_condition("role[in]=admin,editor")
    ]
    assert (
        from_query([("filter[role]", "admin")])
        == [Condition("role", "eq", ("admin",))]
        == [parse_condition("role=admin")]
    )
    assert parse_condition("filter[role][in]=admin,editor") == parse_condition("role[in]=admin,editor")
    assert parse_condition("filter[role]=a=b") == parse_condition("role=a=b")
    assert from_object({"role": {"in": ["admin"]}, "ok": True, "id": {"gte": 1, "lt": 9}}) == [
        Condition("role", "in", ("admin",)),
        Condition("ok", "eq", ("true",)),
        Condition("id", "gte", ("1",)),
        Condition("id", "lt", ("9",)),
    ]


def test_what_a_declaration_allows_is_no_word_about_what_a_table_has() -> None:
    role = Field(name="role", column="role", type="text", sql_type="character varying(20)", enum=("admin",))
    people = Resource(name="people", table=Table("public", "people"), key=(), fields=(role,))
    plan = make_plan(TableExport(resource="people", filters=(parse_condition("role=legacy"),)), people)
    assert plan.filters[0].values == ("legacy",)


def test_a_field_may_be_called_filter() -> None:
    assert parse_condition("filter=x") == Condition("filter", "eq", ("x",))
    assert parse_condition("filter[in]=x,y") == Condition("filter", "in", ("x", "y"))
    assert parse_condition("filter[filter][in]=x,y") == Condition("filter", "in", ("x", "y"))


def test_values_with_commas_stand_in_quotes_and_others_may_have_anything() -> None:
    assert parse_condition('name[in]="a,b",c').values == ("a,b", "c")
    assert parse_condition("name=a=b,[c]").values == ("a=b,[c]",)


def test_values_are_read_as_their_field_is() -> None:
    conditions = (
        parse_condition("id=5.0"),
        parse_condition("seen[gte]=2026-11-15"),
        parse_condition("ok=YES"),
        parse_condition("born[between]=2000-01-01,infinity"),
    )
    plan = make_plan(TableExport(resource="people", filters=conditions), RESOURCE)
    assert [one.values for one in plan.filters] == [
        ("5",),
        ("2026-11-15T00:00:00+00:00",),
        ("t",),
        ("2000-01-01", "infinity"),
    ]


REFUSED = [
    ("nmae=x", "did you mean 'name'?"),
    ("id=old", "'old' is not a whole number"),
    ("id=99999999999", "not between"),
    ("born[lt]=yesterday", "not a date"),
    ("role=king", "not one of admin, editor"),
    ("role[near]=admin", "there is no operator 'near'"),
    ("ok[lt]=true", "lt is not for boolean"),
    ("id[like]=1%", "like is not for integer"),
    ("more=1", "eq is not for jsonb"),
    ("id[between]=1", "between wants two values, not 1"),
    ("id[in]=", "in wants 1 to"),
    ("id[is_null]=maybe", "is_null is true or false"),
    ("name[like]=x\\", "does not end with a single backslash"),
    ("name=a\0b", "cannot store"),
    ("pin=secret", "… is not a whole number"),
]


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_what_does_not_fit_is_refused_with_a_sentence(text: str, says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        make_plan(TableExport(resource="people", filters=(parse_condition(text),)), RESOURCE)
    assert says in str(refused.value)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    request = TableExport(
        resource="people",
        fields=("id", "id", "nam"),
        filters=(parse_condition("id=x"), parse_condition("?=1")),
        order=("-nobody", "more"),
        format="docx",
        compression="rar",
    )
    with pytest.raises(InvalidRequest) as refused:
        make_plan(request, RESOURCE)
    assert len(refused.value.problems) == 8


@pytest.mark.parametrize("name", ["filter", "filter[", "filter[a][b][c]", "filter[a]b", "filterx"])
def test_names_that_are_no_filters(name: str) -> None:
    with pytest.raises(InvalidInput, match="a filter is written"):
        from_query([(name, "1")])


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
    """What Python finds of a row's value."""
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


async def test_the_server_selects_what_python_says(scene: Scene) -> None:
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
        filters = tuple(Condition(name, op, tuple(map(_written, values))) for name, op, values in found)
        plan = make_plan(
            TableExport(resource="t", filters=filters, format="ndjson", fields=("id",)), (await _resource(scene))
        )
        selected = await _selected(scene, plan)
        wanted = [
            row[0] for row in ROWS if all(_says(op, row[COLUMNS.index(name)], values) for name, op, values in found)
        ]
        assert selected == wanted, found


async def _resource(scene: Scene) -> Resource:
    return await Resources({}).find(scene.db, "t", any_table=True, reads=True)


async def _selected(scene: Scene, plan: Any) -> list[int]:
    async with scene.db.connection() as conn:
        found = await (await conn.execute(compiled(plan).encode())).fetchall()
    return [row[0]["id"] for row in found]


async def test_like_is_as_in_sql(scene: Scene) -> None:
    await scene.run(
        "CREATE TABLE t (id int PRIMARY KEY, w varchar(5))", "INSERT INTO t VALUES (1, 'a%%b'), (2, 'axb'), (3, NULL)"
    )
    assert sorted_by(await scene.objects("t", "w[like]=a%"), "id") == [1, 2]
    assert sorted_by(await scene.objects("t", "w[like]=a\\%b"), "id") == [1]
    assert await scene.objects("t", "w=a%bcd") == [], "a value is not cut to the length of its column"
