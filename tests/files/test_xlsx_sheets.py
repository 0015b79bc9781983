"""XLSX exports: typed cells if they lose nothing, text cells otherwise."""

import io
import zipfile
from datetime import date, datetime
from typing import Any

import openpyxl
import pytest

from files.encoding import Pieces, copy_csv, encoded, form, made, read
from tidemill.core.errors import InvalidInput
from tidemill.files.writers import open_copy_encoder, xlsx_sheets


def cells(type_: str, *values: str | None, sql_type: str = "text") -> list[Any]:
    """Return the cells that a spreadsheet reads from a column of these values."""
    data = encoded(
        form("xlsx", ("c", type_, sql_type), ("n", "text")), copy_csv("cn", [(value, "x") for value in values])
    )
    return [row[0] for row in sheets(data)[0][1:]]


def sheets(data: bytes) -> list[list[tuple[Any, ...]]]:
    book = openpyxl.load_workbook(io.BytesIO(data))
    return [list(sheet.iter_rows(values_only=True)) for sheet in book.worksheets]


def test_xlsx_encoder_keeps_text_values_as_text() -> None:
    values = ["007", "=1+1", "12345678901234567890", "1e5", "true", "2024-01-01", "-1"]
    assert cells("text", *values) == values


@pytest.mark.parametrize(
    ("type_", "sql_type", "text", "cell"),
    [
        ("integer", "bigint", "0", 0),
        ("integer", "bigint", "-42", -42),
        ("integer", "bigint", "9007199254740991", 9007199254740991),
        ("integer", "bigint", "9007199254740993", "9007199254740993"),
        ("integer", "bigint", "-9223372036854775808", "-9223372036854775808"),
        ("number", "numeric", "1.10", 1.1),
        ("number", "numeric", "-0.000000000000000012345", -1.2345e-17),
        ("number", "numeric(20,5)", "123456789012345", 123456789012345),
        ("number", "numeric", "1234567890.123456", "1234567890.123456"),
        ("number", "numeric", "1234567890123456", "1234567890123456"),
        ("number", "numeric", f"0.{'0' * 399}1", f"0.{'0' * 399}1"),
        ("number", "numeric", "NaN", "NaN"),
        ("number", "double precision", "0.30000000000000004", 0.30000000000000004),
        ("number", "double precision", "1e+300", 1e300),
        ("number", "double precision", "1e-320", "1e-320"),
        ("number", "double precision", "-0", "-0"),
        ("number", "double precision", "-Infinity", "-Infinity"),
        ("boolean", "boolean", "true", True),
        ("boolean", "boolean", "f", False),
        ("date", "date", "2024-02-29", datetime(2024, 2, 29)),  # noqa: DTZ001
        ("date", "date", "1900-03-01", datetime(1900, 3, 1)),  # noqa: DTZ001
        ("date", "date", "1900-02-28", "1900-02-28"),
        ("date", "date", "infinity", "infinity"),
        ("date", "date", "0044-03-15 BC", "0044-03-15 BC"),
        ("timestamp", "timestamp without time zone", "2024-01-01 12:30:45", datetime(2024, 1, 1, 12, 30, 45)),  # noqa: DTZ001
        ("timestamp", "timestamp with time zone", "2024-01-01 01:30:45+02", datetime(2023, 12, 31, 23, 30, 45)),  # noqa: DTZ001
        (
            "timestamp",
            "timestamp with time zone",
            "2024-01-01 01:30:45.25+00",
            datetime(2024, 1, 1, 1, 30, 45, 250_000),  # noqa: DTZ001
        ),
        ("timestamp", "timestamp with time zone", "2024-01-01 01:30:45.123456+00", "2024-01-01 01:30:45.123456+00"),
        ("timestamp", "timestamp with time zone", "-infinity", "-infinity"),
        ("time", "time without time zone", "12:30:45", "12:30:45"),
        ("json", "jsonb", '{"a": 1}', '{"a": 1}'),
        ("array", "integer[]", "{1,2}", "{1,2}"),
        ("bytes", "bytea", "\\x6162", "\\x6162"),
    ],
)
def test_xlsx_encoder_writes_typed_cell_only_when_lossless(type_: str, sql_type: str, text: str, cell: object) -> None:
    (found,) = cells(type_, text, sql_type=sql_type)
    assert found == cell
    assert type(found) is type(cell)


def test_xlsx_encoder_dates_round_trip_through_reader() -> None:
    how = form("xlsx", ("day", "date", "date"), ("at", "timestamp", "timestamp without time zone"))
    rows = [("2024-02-29", "2024-02-29 23:59:59"), ("9999-12-31", "1999-12-31 23:59:59.999")]
    found = read(how, encoded(how, copy_csv(("day", "at"), rows)))
    assert [(date.fromisoformat(row["day"]), datetime.fromisoformat(row["at"])) for row in found] == [
        (date.fromisoformat(day), datetime.fromisoformat(at)) for day, at in rows
    ]


def test_xlsx_encoder_writes_null_and_empty_text_as_empty_cells() -> None:
    assert cells("text", None, "", "x") == [None, None, "x"]
    how = form("xlsx", ("only", "integer", "integer"))
    assert sheets(encoded(how, b"only\n1\n\n3\n")) == [[("only",), (1,), (None,), (3,)]]


def test_xlsx_encoder_continues_full_sheet_on_next_sheet_with_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx_sheets, "ROWS_PER_SHEET_MAX", 4)
    data = encoded(form("xlsx", ("n", "integer")), copy_csv("n", [(str(n),) for n in range(7)]), 3)
    assert sheets(data) == [[("n",), (0,), (1,), (2,)], [("n",), (3,), (4,), (5,)], [("n",), (6,)]]


def test_xlsx_encoder_truncates_and_counts_long_texts() -> None:
    output, encoder = made(
        form("xlsx", ("t", "text")), copy_csv("t", [("x" * 40_000,), ("y" * 32_767,), ("👩" * 20_000,)])
    )
    assert [len(row[0]) for row in sheets(bytes(output))[0][1:]] == [32_767, 32_767, 16_383]
    assert encoder.cut_cells == 2


def test_xlsx_encoder_accepts_field_above_csv_parser_default_limit() -> None:
    output, encoder = made(form("xlsx", ("t", "text")), copy_csv("t", [('"' * 200_000,)]))
    assert len(sheets(bytes(output))[0][1][0]) == 32_767
    assert encoder.cut_cells == 1


def test_xlsx_encoder_escapes_control_characters() -> None:
    data = encoded(form("xlsx", ("t", "text")), copy_csv("t", [("a\x01b",)]))
    assert "a_x0001_b" in zipfile.ZipFile(io.BytesIO(data)).read("xl/worksheets/sheet1.xml").decode()


def test_xlsx_encoder_rejects_row_with_wrong_field_count() -> None:
    encoder = open_copy_encoder(form("xlsx", ("a", "text"), ("b", "text")), Pieces())
    with pytest.raises(InvalidInput, match="must have 2 fields"):
        encoder.write(b"a,b\n1,2,3\n")
