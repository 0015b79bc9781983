"""Parquet: typed rows, row group by row group."""

import datetime as dt
import decimal
import io
import math
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from files.reading import opened, told, walk
from tidemill.core.errors import InvalidInput

PARQUET = {"format": "parquet"}


def written(columns: dict[str, Any], **options: Any) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table(columns), file, **options)
    return file.getvalue()


def test_parquet_values_become_json() -> None:
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


def test_parquet_nan_and_infinity_become_text_at_any_depth() -> None:
    odd = [math.nan, math.inf, -math.inf, 0.5]
    columns = {
        "n": [*odd, None],
        "f": pa.array([*odd, None], pa.float32()),
        "many": [odd, [None], [], None, [1.0]],
        "about": [{"x": number} for number in odd] + [None],
    }
    rows = told(written(columns), PARQUET)[0]
    said = ["NaN", "Infinity", "-Infinity", 0.5]
    assert [row["n"] for row in rows] == [row["f"] for row in rows] == [*said, None]
    assert [row["many"] for row in rows] == [said, [None], [], None, [1.0]]
    assert [row["about"] for row in rows] == [{"x": one} for one in said] + [None]


def test_parquet_reading_resumes_at_any_row() -> None:
    data = written({"n": list(range(20_000))}, row_group_size=6_000)
    for row in (0, 1, 5_999, 6_000, 13_000, 19_999, 20_000):
        found = [read.value["n"] for read in walk(opened(data, PARQUET, {"row": row}), 3_000)]
        assert found == list(range(row, 20_000))


def test_parquet_columns_are_available_before_reading() -> None:
    assert opened(written({"b": [1], "a": [2]}), PARQUET).columns == ["b", "a"]


def test_parquet_unstorable_value_fails_its_row() -> None:
    texts = pa.array([b"good", b"\xff", b"n\x00l", b"last"]).view(pa.string())
    found, error = told(written({"x": texts}), PARQUET)
    assert error is None
    assert (found[0], found[3]) == ({"x": "good"}, {"x": "last"})
    assert "Cannot read the row" in found[1]
    assert found[2] == "Row contains a NUL character, which PostgreSQL cannot store"


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + b"x" * 100 + b"PAR1"])
def test_parquet_reader_rejects_other_files(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="Not a Parquet file"):
        opened(data, PARQUET)


def test_parquet_damaged_page_is_reported_after_good_rows() -> None:
    data = bytearray(
        written({"n": list(range(20_000))}, row_group_size=5_000, compression="gzip", use_dictionary=False)
    )
    half = len(data) // 2
    data[half : half + 500] = b"\xff" * 500
    found, error = told(bytes(data), PARQUET)
    assert 0 < len(found) < 20_000
    assert "The Parquet file is damaged" in (error or "")


def test_parquet_file_above_uncompressed_size_limit_is_rejected() -> None:
    data = written({"n": ["x" * 1_000] * 10_000}, use_dictionary=False)
    with pytest.raises(InvalidInput, match="larger than 1 MB when decompressed"):
        opened(data, PARQUET, max_bytes=1 << 20)


MANY = 200_000
POOL = pa.proxy_memory_pool(pa.system_memory_pool())  # must outlive all memory allocated from it


@contextmanager
def measured() -> Iterator[None]:
    """Return the peak memory of Arrow and of Python."""
    old = pa.default_memory_pool()
    pa.set_memory_pool(POOL)
    tracemalloc.start()
    try:
        yield
        assert POOL.max_memory() < 200 << 20
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(old)


def few_words(long: int) -> pa.Array:
    """Return a dictionary column with the same long value in every row."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * MANY, pa.int32()), pa.array(["x" * long]))


def one_long_list(values: Any) -> pa.Array:
    """Return a list column with two rows; the second has all values."""
    return pa.ListArray.from_arrays(pa.array([0, 0, len(values)], pa.int32()), values)


@pytest.mark.parametrize(
    ("make", "read", "reason"),
    [
        (lambda: {"a": few_words(100_000)}, 3_000, "good"),
        (lambda: {"a": few_words(30 << 20)}, 20, "Row is longer than 1048576 bytes"),
        (lambda: {"a": few_words(300_000), "b": few_words(300_000)}, 500, "good"),
        (lambda: {f"c{n}": [0] * 1_000 for n in range(2_000)}, 1_000, "good"),
        (lambda: {"a": pa.StructArray.from_arrays([few_words(100_000)], ["b"])}, 3_000, "good"),
        (lambda: {"a": one_long_list(few_words(100_000))}, 2, "Row is longer than 1048576 bytes"),
    ],
)
def test_parquet_small_file_with_large_rows_uses_bounded_memory(
    make: Callable[[], dict[str, Any]], read: int, reason: str
) -> None:
    data = written(make(), compression="zstd", store_schema=False)
    found: Counter[str] = Counter()
    with measured(), closing(opened(data, PARQUET)) as source:
        while found.total() < read and (block := source.read(min(read, 1_000), 1 << 20)).inputs:
            assert sum(map(len, block.inputs)) < 4 << 20
            found.update(block.defects[n]["reason"] if n in block.defects else "good" for n in range(len(block.inputs)))
    assert found[reason] >= read - 1


def test_parquet_rows_above_row_size_limit_are_rejected_before_reading() -> None:
    data = written({"a": one_long_list(pa.array([0] * (2 << 20)))})
    with pytest.raises(InvalidInput, match=r'Values in column "a\.list\.element" are longer than'):
        opened(data, PARQUET, limit=1 << 19)


def test_parquet_uncompressed_size_limit_counts_rows_before_checkpoint() -> None:
    data = written({"a": ["x" * 1_000] * 3_000})
    _, error = told(data, PARQUET, max_bytes=1 << 20)
    assert "larger than 1 MB when decompressed" in (error or "")
    again = opened(data, PARQUET, {"row": 10, "unpacked": (1 << 20) - 1_500}, max_bytes=1 << 20)
    assert len(again.read(1, 1 << 20).inputs) == 1
    again.read(1, 1 << 20)
    with pytest.raises(InvalidInput, match="larger than 1 MB when decompressed"):
        again.read(1, 1 << 20)


def test_parquet_nested_and_dictionary_values_are_read() -> None:
    columns = {
        "tags": [["a", None, "b"], [], None],
        "pairs": pa.array([[("k", "v")], [], None], pa.map_(pa.string(), pa.string())),
        "about": [{"k": "v"}, {"k": None}, None],
        "kind": pa.array(["one", "two", None]).dictionary_encode(),
        "grade": pa.array([1, 2, None]).dictionary_encode(),
    }
    found, error = told(written(columns), PARQUET)
    assert error is None
    assert [row["tags"] for row in found] == [["a", None, "b"], [], None]
    assert [row["pairs"] for row in found] == [[["k", "v"]], [], None]
    assert [row["about"] for row in found] == [{"k": "v"}, {"k": None}, None]
    assert [(row["kind"], row["grade"]) for row in found] == [("one", 1), ("two", 2), (None, None)]


def test_parquet_delta_encoded_strings_use_bounded_memory() -> None:
    words = ["x" * 200_000] * 2_000
    data = written({"a": words}, use_dictionary=False, column_encoding="DELTA_BYTE_ARRAY")
    assert len(data) < 500_000
    with measured(), closing(opened(data, PARQUET)) as source:
        assert source.read(5, 8 << 20).inputs


def test_parquet_reader_without_pyarrow_names_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidInput, match=r"pip install 'tidemill\[parquet\]'"):
        opened(b"PAR1", PARQUET)
