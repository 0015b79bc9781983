"""The named formats of values: what they read, what they reject, and that columns and single texts agree."""

from pathlib import Path

import pytest

from tidemill.core.errors import InvalidInput
from tidemill.tables.values.value_formats import (
    MONTH_NUMBERS,
    VALUE_FORMATS,
    YES_NO_WORDS,
    ValueFormat,
    get_value_format,
)

NUMBERS = {
    "decimal-comma": {
        "1.234,56": "1234.56",
        "12.000": "12000",
        "1.234.567": "1234567",
        "€ 99,90": "99.90",
        "99,90 €": "99.90",
        "EUR 5": "5",
        "CHF\u00a01'234,5": "1234.5",
        "1\u202f234,5": "1234.5",
        "-1.234,5": "-1234.5",
        "-€ 5": "-5",
        "\u22125,5": "-5.5",
        "(12,5)": "-12.5",
        "12,5-": "-12.5",
        "99,-": "99.",
        "12,5 %": "12.5",
        "1,5E+03": "1.5E+03",
    },
    "decimal-point": {
        "1,234.56": "1234.56",
        "12.000": "12.000",
        "$1,234": "1234",
        "US$ 5.5": "5.5",
        "1 234.5": "1234.5",
        "1e5": "1e5",
        ".5": ".5",
        "NaN": "NaN",
    },
    "percent-comma": {"12,5 %": "0.125", "-1.200%": "-12.00"},
    "percent-point": {"12.5 %": "0.125", "0.05%": "0.0005"},
}
NOT_NUMBERS = {
    "decimal-comma": [
        "12.5",
        "0.500",
        "1.23,4",
        "1.234.56",
        "1,234,567",
        "12,5,5",
        "5 EUR x",
        "--5",
        "(-5)",
        "",
        "abc",
    ],
    "decimal-point": ["1,5", "1.234,56", "1,23", "0,500", "abc"],
    "percent-point": ["12.5", "12,5 %"],
}
DATES = {
    "DD.MM.YYYY": {"31.12.2024": "2024-12-31", "1.2.2024": "2024-02-01", "31.12.2024 14:30": "2024-12-31T14:30:00"},
    "MM/DD/YYYY": {"12/31/2024": "2024-12-31", "1/2/2024 3:04 PM": "2024-01-02T15:04:00", "2024-01-02": "2024-01-02"},
    "DD.MM.YY": {"31.12.69": "2069-12-31", "31.12.70": "1970-12-31"},
    "DD.MM.YY:30": {"31.12.29": "2029-12-31", "31.12.30": "1930-12-31"},
    "YY-MM-DD": {"24-12-31": "2024-12-31"},
    "YYYYMMDD": {"20241231": "2024-12-31"},
    "DD MMM YYYY": {
        "5. März 2024": "2024-03-05",
        "5 de marzo de 2024": "2024-03-05",
        "1er janvier 2024": "2024-01-01",
        "5 mrt. 2024": "2024-03-05",
        "5 de março de 2024": "2024-03-05",
        "5 luglio 2024": "2024-07-05",
        "05-Mar-2024": "2024-03-05",
    },
    "DD MMM YY": {"05-Dec-24": "2024-12-05"},
    "MMM DD YYYY": {"Mar. 5th, 2024": "2024-03-05", "December 31, 2024": "2024-12-31"},
    "excel-date": {"45657": "2024-12-31", "45657.5": "2024-12-31T12:00:00", "45657,25": "2024-12-31T06:00:00"},
    "excel-date-1904": {"44195": "2024-12-31"},
}
NOT_DATES = {
    "DD.MM.YYYY": ["31.02.2024", "12/31/2024", "31.12.24", "31.12.2024 25", "x"],
    "MM/DD/YYYY": ["31/12/2024", "12.31.2024"],
    "DD MMM YYYY": ["5 Foo 2024", "31 Feb 2024"],
    "excel-date": ["0", "9999999", "yesterday"],
}


@pytest.mark.parametrize("value_format", VALUE_FORMATS.values(), ids=lambda one: one.name)
def test_format_reads_its_own_example(value_format: ValueFormat) -> None:
    before, after = value_format.example
    assert value_format.parse(before) == after


@pytest.mark.parametrize("name", [*NUMBERS, *DATES])
def test_format_converts_same_values_alone_and_as_column(name: str) -> None:
    value_format, expected = get_value_format(name), (NUMBERS | DATES)[name]
    assert {text: value_format.parse(text) for text in expected} == expected
    for text, converted in expected.items():
        assert value_format.convert_column([text, None, ""]) == ([converted, None, ""], [])
    texts = [*expected, "?!", None]
    assert value_format.convert_column(texts) == ([*expected.values(), None, None], [len(expected)])


@pytest.mark.parametrize("name", [*NOT_NUMBERS, *NOT_DATES])
def test_format_rejects_values_in_other_notations(name: str) -> None:
    value_format = get_value_format(name)
    for text in (NOT_NUMBERS | NOT_DATES)[name]:
        assert value_format.parse(text) is None
        if text:
            assert value_format.convert_column(["?!", text])[1] == [0, 1]
            assert value_format.convert_column([text])[1] == [0]


def test_number_column_with_currencies_is_converted_in_bulk() -> None:
    convert = get_value_format("decimal-comma").convert_in_bulk
    assert convert is not None
    assert convert(["€ 1.234,50", "5 EUR", None, "7"]) == ["1234.50", "5", None, "7"]
    assert convert(["€ 1.234,50", "(5)"]) is None


def test_nulls_option_makes_words_missing() -> None:
    value_format = get_value_format("decimal-comma+nulls")
    texts = value_format.replace_missing_words(["-", "n/a", "NULL", "#N/A", "k.A.", "1,5", None, "NaN"])
    assert texts == [None, None, None, None, None, "1,5", None, "NaN"]
    assert get_value_format("decimal-comma").replace_missing_words(["-"]) == ["-"]
    assert get_value_format("nulls").replace_missing_words(["n/a", "1"]) == [None, "1"]


def test_words_have_one_meaning_in_all_languages() -> None:
    assert [YES_NO_WORDS[word] for word in ("ja", "oui", "sí", "sì", "sim", "yes")] == ["true"] * 6
    assert [YES_NO_WORDS[word] for word in ("nein", "non", "no", "não", "nee", "faux")] == ["false"] * 6
    assert len(MONTH_NUMBERS) > 100
    assert get_value_format("yes-no").convert_column(["Ja", "NEIN", "maybe"]) == (["true", "false", None], [2])


@pytest.mark.parametrize("name", ["decimal", "DD.MM.YYYY:30", "DD.MM.YY:3", "decimal-comma:30", "", "+nulls+nulls"])
def test_unknown_format_is_rejected_with_known_names(name: str) -> None:
    with pytest.raises(InvalidInput, match="format"):
        get_value_format(name)


def test_reference_page_lists_every_format() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/imports.md").read_text()
    assert [name for name in VALUE_FORMATS if f"`{name}`" not in page] == []
