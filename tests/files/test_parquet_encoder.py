"""Parquet exports: typed columns, NULL distinct from empty text, and clear errors for values that do not fit."""

import gc
import io
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyarrow import parquet

from files.encoding import Pieces, copy_csv, encoded, form, read
from tidemill.core.errors import InvalidInput
from tidemill.files.writers import open_copy_encoder
from tidemill.files.writers import parquet_encoder as encoders

PEAK = """
import resource, sys
from files.encoding import form
from tidemill.files.writers import open_copy_encoder

class Nowhere:
    def write(self, piece): return len(piece)
    def flush(self): pass

columns = (("id", "integer", "bigint"), ("name", "text"), ("at", "timestamp", "timestamp with time zone"))
line = b'%d,"Customer with a name, number %d",2024-01-01 00:00:00+00\\n'

def peak(rows):
    encoder = open_copy_encoder(form(sys.argv[1], *columns), Nowhere())
    encoder.write(b"id,name,at\\n")
    for start in range(0, rows, 1000):
        encoder.write(b"".join(line % (n, n) for n in range(start, start + 1000)))
    encoder.close()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

few = peak(int(sys.argv[2]))
print((peak(5 * int(sys.argv[2])) - few) / 1024)
"""


def column(type_: str, sql_type: str, *values: str | None) -> tuple[str, list[Any]]:
    table = parquet.read_table(
        io.BytesIO(encoded(form("parquet", ("c", type_, sql_type)), copy_csv("c", [(value,) for value in values])))
    )
    return str(table.schema.field("c").type), table.column("c").to_pylist()


@pytest.mark.parametrize(
    ("type_", "sql_type", "text", "arrow", "value"),
    [
        ("integer", "smallint", "-32768", "int16", -32768),
        ("integer", "integer", "2147483647", "int32", 2**31 - 1),
        ("integer", "bigint", "-9223372036854775808", "int64", -(2**63)),
        ("integer", "public.positive", "7", "int64", 7),
        ("number", "real", "0.1", "double", 0.1),
        ("number", "double precision", "0.30000000000000004", "double", 0.30000000000000004),
        ("number", "double precision", "-Infinity", "double", float("-inf")),
        ("number", "numeric(10,2)", "-12345678.90", "decimal128(10, 2)", Decimal("-12345678.90")),
        ("number", "numeric(38)", "9" * 38, "decimal128(38, 0)", Decimal("9" * 38)),
        ("number", "numeric(39,2)", "1.50", "string", "1.50"),
        ("number", "numeric", "NaN", "string", "NaN"),
        ("boolean", "boolean", "t", "bool", True),
        ("boolean", "boolean", "false", "bool", False),
        ("date", "date", "0001-01-01", "date32[day]", date(1, 1, 1)),
        (
            "timestamp",
            "timestamp with time zone",
            "2024-01-01 01:30:45.123456+02",
            "timestamp[us, tz=UTC]",
            datetime(2023, 12, 31, 23, 30, 45, 123456, UTC),
        ),
        (
            "timestamp",
            "timestamp(3) without time zone",
            "2024-01-01 01:30:45",
            "timestamp[us]",
            datetime(2024, 1, 1, 1, 30, 45),  # noqa: DTZ001
        ),
        ("time", "time without time zone", "12:30:45", "string", "12:30:45"),
        ("uuid", "uuid", "ee7278f9-249f-bacd-c71c-5384166955d1", "string", "ee7278f9-249f-bacd-c71c-5384166955d1"),
        ("json", "jsonb", '{"a": [1, "x"]}', "string", '{"a": [1, "x"]}'),
        ("array", "text[]", '{a,"b c"}', "string", '{a,"b c"}'),
        ("bytes", "bytea", "\\x00ff61", "binary", b"\x00\xffa"),
        ("text", "text", "NULL", "string", "NULL"),
    ],
)
def test_parquet_column_type_follows_sql_type(type_: str, sql_type: str, text: str, arrow: str, value: object) -> None:
    assert column(type_, sql_type, text, None) == (arrow, [value, None])


def test_parquet_encoder_distinguishes_empty_text_from_null() -> None:
    assert column("text", "text", "", None, "NaN", "x")[1] == ["", None, "NaN", "x"]


@pytest.mark.parametrize(
    ("type_", "sql_type", "text", "kind"),
    [
        ("date", "date", "infinity", "date32"),
        ("date", "date", "0044-03-15 BC", "date32"),
        ("timestamp", "timestamp with time zone", "-infinity", "timestamp"),
        ("number", "numeric(10,2)", "NaN", "decimal128"),
        ("integer", "smallint", "40000", "int16"),
    ],
)
def test_parquet_unrepresentable_value_error_names_column_and_value(
    type_: str, sql_type: str, text: str, kind: str
) -> None:
    how = form("parquet", ("fine", "text"), ("odd one", type_, sql_type))
    with pytest.raises(InvalidInput, match=rf"Column 'odd one' has the value '{text}', which Parquet type {kind}"):
        encoded(how, copy_csv(("fine", "odd one"), [("x", text)]))


def test_parquet_row_groups_are_bounded_in_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "PARQUET_CSV_BLOCK_BYTES", 100)
    monkeypatch.setattr(encoders, "PARQUET_ROW_GROUP_BYTES", 1_000)
    how = form("parquet", ("n", "integer", "integer"), ("t", "text"))
    data = encoded(how, copy_csv("nt", [(str(n), "line\n" * (n % 5)) for n in range(1_000)]), 11)
    assert parquet.ParquetFile(io.BytesIO(data)).num_row_groups > 10
    assert read(how, data) == [{"n": n, "t": "line\n" * (n % 5)} for n in range(1_000)]


def test_parquet_column_names_may_contain_special_characters() -> None:
    how = form("parquet", ('a,"b"\n', "text"), ("0", "integer", "integer"))
    assert read(how, encoded(how, copy_csv(('a,"b"\n', "0"), [("x", "1")]))) == [{'a,"b"\n': "x", "0": 1}]


@pytest.mark.parametrize("format_", ["xlsx", "parquet"])
def test_abandoned_encoder_writes_no_file_footer(format_: str) -> None:
    output = Pieces()
    encoder = open_copy_encoder(form(format_, ("t", "text")), output)
    encoder.write(copy_csv("t", [("x",)]))
    before = bytes(output)
    del encoder
    gc.collect()
    after = bytes(output)
    assert b"PK\x01\x02" not in after, "the directory of a zip"
    assert format_ == "xlsx" or after == before


@pytest.mark.parametrize(("format_", "rows"), [("xlsx", 20_000), ("parquet", 60_000)])
def test_encoder_memory_does_not_grow_with_row_count(format_: str, rows: int) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PEAK, format_, str(rows)], capture_output=True, text=True, check=True, env=_env()
    )
    assert float(found.stdout) < 24, "megabytes that five times the rows took more"


def test_parquet_encoder_without_pyarrow_names_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidInput, match=r"pip install 'tidemill\[parquet\]'"):
        open_copy_encoder(form("parquet", ("t", "text")), Pieces())


def _env() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(sys.path)}
