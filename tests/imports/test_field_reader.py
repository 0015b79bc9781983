"""PostgreSQL accepts every text that a reader accepts; every rejected text has a reason."""

import json
import string
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemill.core.file_format import ColumnType
from tidemill.imports.validation.canonical_values import canonicalize_texts
from tidemill.imports.validation.field_reader import FieldReader
from tidemill.tables.resource import Field

EXAMPLES = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
DIGITS = st.text("0123456789", min_size=1, max_size=25)
NUMBERS = st.one_of(
    st.from_regex(r"[+-]?[0-9]{0,12}\.?[0-9]{0,12}([eE][+-]?[0-9]{1,5})?", fullmatch=True),
    st.integers(-(1 << 64), 1 << 64).map(str),
    st.floats().map(repr),
    st.decimals(allow_nan=True).map(str),
    st.sampled_from(
        ["999.995", "-999.994", "1e-50", "3.4028236e38", "1e309", "1e-400", "0x10", "1_000", "٣", " 5 ", "5\n"]
    ),
    DIGITS,
)
MOMENTS = st.one_of(
    st.datetimes().map(str),
    st.datetimes(timezones=st.timezones()).map(lambda moment: moment.isoformat()),
    st.from_regex(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,7})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?"
    ),
    st.from_regex(r"[0-9]{4,7}-[01][0-9]-[0-3][0-9]([T ][0-2][0-9]:[0-5][0-9](Z|[+-]0[0-9])?)?( BC)?", fullmatch=True),
    st.sampled_from(["2026-01-01T00:00:00+23:00", "2026-01-01T24:00:00", "0000-01-01 00:00", "2026-02-30T00:00"]),
)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
JSON = st.one_of(
    DOCUMENTS.map(json.dumps),
    st.text(max_size=9),
    st.sampled_from(
        [
            "NaN",
            "[-Infinity]",
            '"\\ud800"',
            '"\\udc00\\ud800"',
            '"\\ud83d\\ude00"',
            '"\\u0000"',
            '"\\\\u0000"',
            "1e999999",
        ]
    ),
)
ANY = st.text(max_size=12)
TYPES: list[tuple[ColumnType, str, dict[str, Any], st.SearchStrategy[str]]] = [
    ("integer", "smallint", {"bits": 16}, NUMBERS),
    ("integer", "bigint", {"bits": 64}, NUMBERS),
    ("number", "numeric", {}, NUMBERS),
    ("number", "numeric(5,2)", {"precision": 5, "scale": 2}, NUMBERS),
    ("number", "numeric(3,-2)", {"precision": 3, "scale": -2}, NUMBERS),
    ("number", "numeric(3,5)", {"precision": 3, "scale": 5}, NUMBERS),
    ("number", "real", {}, NUMBERS),
    ("number", "double precision", {}, NUMBERS),
    ("boolean", "boolean", {}, st.sampled_from(["yes", "No", "T", "f", "ON", "2", "ja", "wahr", " true "]) | ANY),
    ("date", "date", {}, st.dates().map(str) | MOMENTS | ANY),
    ("time", "time", {}, st.times().map(str) | MOMENTS | st.sampled_from(["13", "1345", "13:45+23:00", "T10:00"])),
    ("timestamp", "timestamp", {}, MOMENTS | ANY),
    ("timestamp", "timestamptz", {"with_zone": True}, MOMENTS | ANY),
    ("uuid", "uuid", {}, st.uuids().map(str) | st.uuids().map(lambda one: f"{{{one.hex}}}") | ANY),
    ("json", "json", {}, JSON),
    ("json", "jsonb", {}, JSON),
    ("bytes", "bytea", {}, st.binary().map(lambda data: "\\x" + data.hex()) | st.text(string.printable, max_size=9)),
    (
        "array",
        "integer[]",
        {"element": "integer"},
        st.lists(st.integers(-9, 9) | st.none()).map(json.dumps),
    ),
    ("array", "text[]", {"element": "text"}, st.lists(st.text()).map(json.dumps)),
]


@pytest.fixture(scope="module")
def server(tidemill_server: Any) -> Iterator[psycopg.Connection[Any]]:
    url = tidemill_server.create_database()
    with psycopg.connect(url, autocommit=True) as conn:
        yield conn
    tidemill_server.drop_database(url)


@pytest.mark.parametrize(("kind", "sql_type", "rules", "texts"), TYPES, ids=[one[1] for one in TYPES])
def test_field_reader_accepts_only_values_the_server_accepts(
    kind: ColumnType,
    sql_type: str,
    rules: dict[str, Any],
    texts: st.SearchStrategy[str],
    server: psycopg.Connection[Any],
) -> None:
    reader = FieldReader(Field(name="f", column="f", type=kind, sql_type=sql_type, **rules))

    @EXAMPLES
    @given(st.lists(texts, min_size=20, max_size=60))
    def check(values: list[str]) -> None:
        found, flaws = reader.validate_and_convert_values(list(values))
        for index, value in enumerate(values):
            assert found[index] is None or index not in flaws.bad_rows
            assert found[index] is not None or index in flaws.bad_rows or not value.strip()
        query = "SELECT v FROM unnest(%s::text[]) v WHERE NOT pg_input_is_valid(v, %s)"
        assert server.execute(query, (found, sql_type)).fetchall() == []
        assert all(told["reason"] for told in flaws.build_details_by_row().values())

    check()


@pytest.mark.parametrize(
    ("kind", "sql_type", "one", "other"),
    [
        ("integer", "integer", "007", "+7"),
        ("number", "numeric", "1.50", "1.5e0"),
        ("number", "numeric", "-0", "0.0"),
        ("number", "numeric(5,2)", "1.001", "1.00"),
        ("number", "double precision", "1e3", "1000"),
        ("uuid", "uuid", str(uuid.UUID(int=255)).upper(), str(uuid.UUID(int=255))),
        ("timestamp", "timestamp with time zone", "2026-01-01T01:00:00+01:00", "2026-01-01 00:00Z"),
        ("time", "time without time zone", "13:45", "13:45:00"),
        ("text", "character(3)", "a", "a  "),
        ("other", "public.citext", "Ab", "aB"),
    ],
)
def test_canonical_text_is_equal_for_two_spellings_of_one_value(
    kind: ColumnType, sql_type: str, one: str, other: str
) -> None:
    limits: dict[str, Any] = {"precision": 5, "scale": 2} if "(5,2)" in sql_type else {}
    field = Field(name="f", column="f", type=kind, sql_type=sql_type, with_zone="with time" in sql_type, **limits)
    first, second = canonicalize_texts(field, [one, other])
    assert first == second
    assert canonicalize_texts(field, [None]) == [None]


def test_range_rule_compares_values_not_spellings() -> None:
    limits: dict[str, Any] = {"minimum": "2026-01-01T00:00:00", "maximum": "2026-12-31T23:59:59"}
    reader = FieldReader(Field(name="f", column="f", type="timestamp", with_zone=True, **limits))
    _, flaws = reader.validate_and_convert_values(
        ["2026-01-01 00:00:00Z", "2026-01-01T00:30:00+01:00", "2026-06-01 10:00"]
    )
    assert flaws.bad_rows == {1}


def test_number_with_200000_digits_is_rejected_without_crash() -> None:
    kinds: tuple[ColumnType, ...] = ("integer", "number")
    for kind in kinds:
        texts, flaws = FieldReader(Field(name="f", column="f", type=kind)).validate_and_convert_values(
            ["1" * 200_000, "5"]
        )
        assert (texts, flaws.bad_rows) == ([None, "5"], {0})


EXTREME_NUMBERS = ["1e99999999999999999999", "-1e-99999999999999999999", "1e999999"]


@pytest.mark.parametrize("number", EXTREME_NUMBERS)
def test_number_with_extreme_exponent_in_array_or_json_is_an_invalid_row(number: str) -> None:
    array = Field(name="f", column="f", type="array", element="number", sql_type="numeric[]")
    json_ = Field(name="f", column="f", type="json", sql_type="jsonb")
    for field, text in ((array, f"[{number}]"), (json_, f'{{"a": {number}}}')):
        texts, flaws = FieldReader(field).validate_and_convert_values([text, None])
        assert (texts, flaws.bad_rows) == ([None, None], {0})


@pytest.mark.parametrize("value", ["5\n", "\v5", "5\x1f"])
def test_blanks_around_number_are_stripped_whatever_other_rows_contain(value: str) -> None:
    reader = FieldReader(Field(name="f", column="f", type="integer", sql_type="smallint", bits=16))
    for others in ([], ["6"], [" 6"], ["x"], [None]):
        texts, flaws = reader.validate_and_convert_values([value, *others])
        assert (texts[0], 0 in flaws.bad_rows) == ("5", False), others
