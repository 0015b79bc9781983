"""Detection of the formats of columns: what values prove, and what they leave open."""

from collections.abc import Sequence
from typing import Any

import pytest

from tidemill.core.errors import AmbiguousFormats
from tidemill.core.file_format import ColumnType
from tidemill.imports.format_detection import FormatFinding, detect_formats, resolve_formats
from tidemill.tables.resource import Field

SQL_TYPES = {"integer": "integer", "number": "numeric", "date": "date", "timestamp": "timestamp", "boolean": "boolean"}
MONTH_OF_DAYS = [f"{day:02}.03.24" for day in range(1, 29)]


def detect(
    type_: ColumnType, values: Sequence[Any], delimiter: str | None = None, **rules: Any
) -> FormatFinding | None:
    of = Field(name="x", column="x", type=type_, sql_type=SQL_TYPES.get(type_, "text"), **rules)
    found = detect_formats({"X": of}, [{"X": value} for value in values], delimiter=delimiter)
    return found[0] if found else None


@pytest.mark.parametrize(
    ("type_", "values", "expected"),
    [
        ("number", ["12,5", "12.000"], "decimal-comma"),
        ("number", ["1.234,56", "7"], "decimal-comma"),
        ("number", ["1,234.56", "7"], "decimal-point"),
        ("number", ["12.000", "0.500"], "decimal-point"),
        ("number", ["12.000", "1234.500"], "decimal-point"),
        ("number", ["€ 99,90", "1.000"], "decimal-comma"),
        ("number", ["12,50", "n/a", "-"], "decimal-comma+nulls"),
        ("number", ["5", "n/a"], "nulls"),
        ("integer", ["1.234", "12.000"], "decimal-comma"),
        ("integer", ["12,345.00"], "decimal-point"),
        ("date", ["31.12.2024", "01.02.2024"], "DD.MM.YYYY"),
        ("date", ["12/31/2024", "01/02/2024"], "MM/DD/YYYY"),
        ("date", ["31/12/2024", "2024-12-31"], "DD/MM/YYYY"),
        ("timestamp", ["31.12.2024 14:30"], "DD.MM.YYYY"),
        ("date", ["5. März 2024", "31 Dez 2024"], "DD MMM YYYY"),
        ("date", ["December 31, 2024"], "MMM DD YYYY"),
        ("date", ["05-Dec-24"], "DD MMM YY"),
        ("date", ["45292", "45657.5"], "excel-date"),
        ("date", ["20241231", "20240101"], "YYYYMMDD"),
        ("date", ["31.12.99", "01.02.95"], "DD.MM.YY"),
        ("date", MONTH_OF_DAYS, "DD.MM.YY"),
        ("boolean", ["ja", "nein"], "yes-no"),
        ("boolean", ["VRAI", "FAUX", "k.A."], "yes-no+nulls"),
    ],
)
def test_format_is_certain_when_values_prove_it(type_: ColumnType, values: list[str], expected: str) -> None:
    finding = detect(type_, values)
    assert finding is not None
    assert (finding.format, finding.is_ambiguous) == (expected, False)
    assert finding.confidence > 0.6


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("number", ["1", "22", "333", "-4"]),
        ("integer", ["1000000", "7"]),
        ("number", ["1e5", "NaN"]),
        ("number", [12.5, 3, None]),
        ("date", ["2024-01-02", "infinity", ""]),
        ("date", ["yesterday", "tomorrow"]),
        ("boolean", ["yes", "no", "TRUE", "0"]),
        ("text", ["12.000", "01/02/2024", "n/a", "0049"]),
        ("time", ["14:30"]),
    ],
)
def test_plain_and_unknown_values_have_no_format(type_: ColumnType, values: list[Any]) -> None:
    assert detect(type_, values) is None


@pytest.mark.parametrize(
    ("type_", "values", "delimiter", "likelier", "alternatives"),
    [
        ("number", ["12.000", "7"], ";", "decimal-comma", ["decimal-point"]),
        ("number", ["12.000", "7"], ",", "decimal-point", ["decimal-comma"]),
        ("integer", ["12.000"], ";", "decimal-comma", ["decimal-point"]),
        ("number", ["1,234"], ";", "decimal-comma", ["decimal-point"]),
        ("number", ["12.000", "1,5", "1.5"], ",", "decimal-point", ["decimal-comma"]),
        ("number", ["12 %", "7 %"], ",", "decimal-point", ["percent-point"]),
        ("date", ["01/02/2024", "03/04/2024"], ";", "DD/MM/YYYY", ["MM/DD/YYYY"]),
        ("date", ["01/02/2024"], ",", "MM/DD/YYYY", ["DD/MM/YYYY"]),
        ("date", ["01.02.2024"], ",", "DD.MM.YYYY", ["MM.DD.YYYY"]),
        ("date", ["31/12/2024", "12/31/2024", "01/02/2024"], ",", "MM/DD/YYYY", ["DD/MM/YYYY"]),
        ("date", ["31.12.55"], ";", "DD.MM.YY", ["DD.MM.YY:30"]),
        ("date", ["31.12.24"], ";", "DD.MM.YY", ["YY.MM.DD"]),
    ],
)
def test_format_is_ambiguous_when_two_readings_differ(
    type_: ColumnType, values: list[str], delimiter: str, likelier: str, alternatives: list[str]
) -> None:
    finding = detect(type_, values, delimiter)
    assert finding is not None
    assert finding.is_ambiguous
    assert (finding.format, [each.format for each in finding.alternatives][: len(alternatives)]) == (
        likelier,
        alternatives,
    )
    assert finding.confidence < 0.6
    assert finding.examples[0] != finding.alternatives[0].examples[0]


def test_rare_ambiguous_value_among_plain_values_is_left_to_its_row() -> None:
    days = [f"2026-11-{day:02}" for day in range(1, 5)]
    assert detect("date", [*days, "07/11/1939"]) is None
    found = detect("date", [*days[:3], "07/11/1939"])
    assert found is not None
    assert found.is_ambiguous


def test_other_columns_make_one_reading_likelier_and_prove_nothing() -> None:
    fields = {
        name: Field(name=name, column=name, type="date" if name in "ab" else "number", sql_type="numeric")
        for name in "abcd"
    }
    rows = [{"a": "01/02/2024", "b": "31/12/2024", "c": "12.000", "d": "1,5"}]
    found = {one.field: one for one in detect_formats(fields, rows, delimiter=",")}
    assert {name: (one.format, one.is_ambiguous) for name, one in found.items()} == {
        "a": ("DD/MM/YYYY", True),
        "b": ("DD/MM/YYYY", False),
        "c": ("decimal-comma", True),
        "d": ("decimal-comma", False),
    }


def test_resolving_raises_with_choices_unless_reading_is_assumed() -> None:
    finding = detect("number", ["12.000"], ";")
    assert finding is not None
    with pytest.raises(AmbiguousFormats) as caught:
        resolve_formats([finding], {}, assume=False)
    assert caught.value.problems == [
        'Column "X" can be read in two ways: "12.000" is "12000" (decimal-comma) or "12.000" (decimal-point)'
    ]
    assert caught.value.choices[0]["alternatives"][0]["format"] == "decimal-point"
    assert resolve_formats([finding], {}, assume=True) == ({"x": "decimal-comma"}, ("x",))


def test_given_format_and_declared_date_formats_need_no_detection() -> None:
    of = Field(name="x", column="x", type="number", sql_type="numeric")
    assert detect_formats({"X": of}, [{"X": "12.000"}], given={"x": "decimal-comma"}) == []
    assert detect("date", ["01/02/2024"], formats=("%d/%m/%Y",)) is None


def test_values_of_sensitive_field_are_not_shown() -> None:
    finding = detect("number", ["12.000", "n/a"], ";", sensitive=True)
    assert finding is not None
    assert "12" not in str(finding.to_json())
    doubt = 'Column "X" can be read in two ways: decimal-comma+nulls or decimal-point+nulls'
    assert finding.describe_doubt() == doubt


def test_rare_proof_among_many_values_is_found() -> None:
    dates = [f"{n % 12 + 1:02}/{n % 11 + 1:02}/{1900 + n % 150}" for n in range(4_000)]
    finding = detect("date", [*dates, "31/12/2024", *dates])
    assert finding is not None
    assert (finding.format, finding.is_ambiguous) == ("DD/MM/YYYY", False)
    finding = detect("number", [*map(str, range(4_000)), "1,5"])
    assert finding is not None
    assert finding.format == "decimal-comma"
