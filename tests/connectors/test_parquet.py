"""Parquet: typed rows, row group by row group."""

import datetime as dt
import decimal
import io
import sys
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from connectors.reading import opened, told, walk
from tidemill.domain.errors import InvalidInput

PARQUET = {"format": "parquet"}


def written(columns: dict[str, Any], **options: Any) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table(columns), file, **options)
    return file.getvalue()


def test_values_become_json() -> None:
    columns = {
        "id": [1, None],
        "price": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(8, 2)),
        "at": pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns", "UTC")),
        "day": [dt.date(2024, 2, 29), None],
        "tags": [["a", "b"], None],
        "about": [{"k": 1}, None],
        "raw": [b"ab", None],
    }
    first, second = told(written(columns), PARQUET)[0]
    assert first == {
        "id": 1,
        "price": "1.50",
        "at": "2023-11-14T22:13:20.123456Z",
        "day": "2024-02-29",
        "tags": ["a", "b"],
        "about": {"k": 1},
        "raw": "YWI=",
    }
    assert set(second.values()) == {None}


def test_reading_goes_on_at_any_row_of_any_group() -> None:
    data = written({"n": list(range(20_000))}, row_group_size=6_000)
    for row in (0, 1, 5_999, 6_000, 13_000, 19_999, 20_000):
        found = [read.value["n"] for read in walk(opened(data, PARQUET, {"row": row}), 3_000)]
        assert found == list(range(row, 20_000))


def test_the_columns_are_known_before_any_row_is_read() -> None:
    assert opened(written({"b": [1], "a": [2]}), PARQUET).columns == ["b", "a"]


def test_a_value_that_cannot_be_stored_makes_a_bad_row() -> None:
    texts = pa.array([b"good", b"\xff", b"n\x00l", b"last"]).view(pa.string())
    found, error = told(written({"x": texts}), PARQUET)
    assert error is None
    assert (found[0], found[3]) == ({"x": "good"}, {"x": "last"})
    assert "cannot be read" in found[1]
    assert found[2] == "a NUL character cannot be stored"


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + b"x" * 100 + b"PAR1"])
def test_what_is_no_parquet_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="not a Parquet file"):
        opened(data, PARQUET)


def test_a_damaged_page_is_said_after_the_good_rows() -> None:
    data = bytearray(
        written({"n": list(range(20_000))}, row_group_size=5_000, compression="gzip", use_dictionary=False)
    )
    half = len(data) // 2
    data[half : half + 500] = b"\xff" * 500
    found, error = told(bytes(data), PARQUET)
    assert 0 < len(found) < 20_000
    assert "the Parquet file is damaged" in (error or "")


def test_a_file_that_unpacks_to_too_much_is_refused() -> None:
    data = written({"n": ["x" * 1_000] * 10_000}, use_dictionary=False)
    with pytest.raises(InvalidInput, match="unpacks to more than 1 MB"):
        opened(data, PARQUET, max_bytes=1 << 20)


def test_without_the_extra_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidInput, match=r"pip install 'tidemill\[parquet\]'"):
        opened(b"PAR1", PARQUET)
