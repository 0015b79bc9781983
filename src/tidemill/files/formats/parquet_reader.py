"""Reads Parquet, batch by batch, with bounded memory.

A dictionary stores a value once for a million rows, and the declared size of the file does not include the repeats. So
the size of a row is estimated from the longest values that it can have.
"""

import math
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

import msgspec

from tidemill.core.errors import InvalidInput
from tidemill.core.input_source import Checkpoint
from tidemill.files.compression import DecompressionLimit
from tidemill.files.formats.block_reader import BlockBuilder, BlockReader
from tidemill.files.formats.column_names import check_column_count

PARQUET_BATCH_MAX_ROWS = 4_096
PARQUET_BATCH_MAX_BYTES = 16 << 20  # of the rows that Arrow holds at once, unless a single row is larger
PARQUET_SLICE_MAX_BYTES = 4 << 20  # of the rows that are converted to Python objects at once
CELL_OVERHEAD_BYTES = 64  # of a value as a Python object
BATCH_ROWS_TIMES_GROUP_BYTES_MAX = (
    1 << 35
)  # rows times bytes of their row group: 2,048 rows at a time for a group of 16 MB
ARROW_TO_JSON_SIZE_RATIO_MAX = 8  # the worst case is a 256-bit decimal
_PHYSICAL_TYPE_BYTES = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
_DELTA_ENCODING = "DELTA_BYTE_ARRAY"  # stores differences between values, without a dictionary


class ParquetBatchSizer:
    """Chooses batch sizes for a file. ``listed``: list columns, which stay dictionary-encoded because of their size."""

    def __init__(self, about: Any) -> None:
        self._about = about
        columns = range(about.num_columns)
        text_columns = [at for at in columns if about.num_row_groups and self._may_have_text_dictionary(at)]
        self.listed = [self._get_column_path(at) for at in text_columns if self._is_repeated_column(at)]
        self.worded = [self._get_column_path(at) for at in text_columns if not self._is_repeated_column(at)]

    def check_value_sizes(self, packed: int, max_row_bytes: int) -> None:
        """Raise InvalidInput if the values exceed the decompression limit, or those of a list column the row limit.

        A run of equal values takes a few bytes in the file, so its declared size does not limit the number of rows.
        """
        widths = [self._get_bytes_per_value(at) for at in range(self._about.num_columns)]
        repeated = [at for at in range(self._about.num_columns) if self._is_repeated_column(at)]
        flat_row_bytes = max(1, sum(width for at, width in enumerate(widths) if at not in set(repeated)))
        limit, size = DecompressionLimit(packed, sys.maxsize), 0
        limit.add_bytes(self._about.num_rows * flat_row_bytes)
        for group in self._iter_row_groups():
            for at in repeated:
                values = group.column(at).num_values
                if values > group.num_rows * max_row_bytes:
                    raise InvalidInput(
                        f'Values in column "{self._get_column_path(at)}" are longer than {max_row_bytes} bytes'
                    )
                size += values * widths[at]
        limit.add_bytes(size)

    def choose_batch_rows(self, number: int, longest_values_bytes: int) -> int:
        """Return how many rows of a row group to read at once.

        ``longest_values_bytes``: the sum of the longest values in its dictionaries.
        """
        group = self._about.row_group(number)
        row, spread = longest_values_bytes, 1
        for at in range(self._about.num_columns):
            column, width = group.column(at), self._get_bytes_per_value(at)
            row += CELL_OVERHEAD_BYTES + width
            if self._is_repeated_column(at):
                spread += column.num_values * width
            if column.physical_type == "BYTE_ARRAY":
                spread += column.total_uncompressed_size
                row += column.total_uncompressed_size if _DELTA_ENCODING in column.encodings else 0
        return max(
            1, min(PARQUET_BATCH_MAX_ROWS, PARQUET_BATCH_MAX_BYTES // row, BATCH_ROWS_TIMES_GROUP_BYTES_MAX // spread)
        )

    def _iter_row_groups(self) -> Iterator[Any]:
        return (self._about.row_group(number) for number in range(self._about.num_row_groups))

    def _may_have_text_dictionary(self, at: int) -> bool:
        columns = [group.column(at) for group in self._iter_row_groups()]
        return columns[0].physical_type == "BYTE_ARRAY" and not any(_DELTA_ENCODING in one.encodings for one in columns)

    def _is_repeated_column(self, at: int) -> bool:
        return bool(self._about.schema.column(at).max_repetition_level)

    def _get_column_path(self, at: int) -> str:
        return str(self._about.schema.column(at).path)

    def _get_bytes_per_value(self, at: int) -> int:
        column = self._about.schema.column(at)
        return _PHYSICAL_TYPE_BYTES.get(column.physical_type) or max(1, column.length)


def sum_longest_value_bytes(batch: Any) -> int:
    """Return the sum of the longest values in the dictionaries of a batch, which are those of its whole group."""
    from pyarrow import compute  # noqa: PLC0415

    lengths = (
        compute.max(compute.binary_length(one.dictionary)).as_py() for one in _iter_dictionary_arrays(batch.columns)
    )
    return sum(length or 0 for length in lengths)


def count_decoded_array_bytes(array: Any) -> int:
    """Return the size of the values without dictionary encoding."""
    from pyarrow import compute, types  # noqa: PLC0415

    kind = array.type
    if types.is_dictionary(kind) and (types.is_string(kind.value_type) or types.is_binary(kind.value_type)):
        lengths = compute.binary_length(array.dictionary).take(array.indices)
        return int(compute.sum(lengths).as_py() or 0) + len(array)
    if types.is_struct(kind):
        return sum(map(count_decoded_array_bytes, array.flatten()))
    if types.is_map(kind) or types.is_list(kind) or types.is_large_list(kind):
        lo, hi = array.offsets[0].as_py(), array.offsets[-1].as_py()
        children = (array.keys, array.items) if types.is_map(kind) else (array.values,)
        return sum(count_decoded_array_bytes(child.slice(lo, hi - lo)) for child in children)
    return int(array.nbytes)


def estimate_batch_bytes(batch: Any) -> int:
    return (
        sum(map(count_decoded_array_bytes, batch.columns))
        + int(batch.num_rows * batch.num_columns) * CELL_OVERHEAD_BYTES
    )


def split_batch(batch: Any) -> Iterator[Any]:
    """Yield the rows in parts of limited size. A single row is not split."""
    half = batch.num_rows // 2
    if half and estimate_batch_bytes(batch) > PARQUET_SLICE_MAX_BYTES:
        yield from split_batch(batch.slice(0, half))
        yield from split_batch(batch.slice(half))
    else:
        yield batch


def _iter_dictionary_arrays(arrays: list[Any]) -> Iterator[Any]:
    from pyarrow import types  # noqa: PLC0415

    for array in arrays:
        if types.is_dictionary(array.type):
            yield array
        elif types.is_struct(array.type):
            yield from _iter_dictionary_arrays(array.flatten())


_encode_json = msgspec.json.Encoder().encode
_JSON_ESCAPED_NUL = b"\\u0000"


def load_pyarrow() -> Any:
    """Return the pyarrow module; InvalidInput if it is not installed."""
    try:
        import pyarrow as pa  # noqa: PLC0415  an extra, and slow to import
    except ImportError:
        raise InvalidInput("Parquet support is not installed. Run: pip install 'tidemill[parquet]'") from None
    return pa


class ParquetReader(BlockReader):
    """Reads Parquet. A checkpoint is the number of rows that were read, and their size in bytes."""

    columns: list[str]

    def __init__(self, file: BinaryIO, checkpoint: Checkpoint, *, max_row_bytes: int, max_bytes: int) -> None:
        super().__init__(checkpoint)
        self._file = file
        self._limit = max_row_bytes
        self._max_bytes = max_bytes
        self._unpacked = int(checkpoint.get("unpacked", 0))
        self._left: list[bytes | str] = []
        pa = load_pyarrow()
        from pyarrow import parquet  # noqa: PLC0415

        self._errors = (pa.ArrowException, OSError, ValueError)
        try:
            about = parquet.read_metadata(file)
            self._bounds = ParquetBatchSizer(about)
            options = {"metadata": about, "buffer_size": 1 << 20, "pre_buffer": False}
            self._parquet = parquet.ParquetFile(file, read_dictionary=self._bounds.listed, **options)
            self._words = parquet.ParquetFile(file, read_dictionary=self._bounds.worded, **options)
        except self._errors as error:
            raise InvalidInput(f"Not a Parquet file: {error}") from error
        self._check_sizes_and_column_names()
        self.columns = list(self._parquet.schema_arrow.names)
        self._batches = self._iter_encoded_batches()

    def close(self) -> None:
        self._parquet.close()
        self._file.close()

    def _get_checkpoint(self) -> Checkpoint:
        return {"unpacked": self._unpacked}

    def _check_sizes_and_column_names(self) -> None:
        about = self._parquet.metadata
        self._check_decompressed_size(sum(about.row_group(n).total_byte_size for n in range(about.num_row_groups)))
        self._bounds.check_value_sizes(self._file.seek(0, 2), self._limit)
        names = self._parquet.schema_arrow.names
        check_column_count(len(names))
        if len(set(names)) < len(names):
            raise InvalidInput(f"Duplicate column names: {sorted(name for name, n in Counter(names).items() if n > 1)}")

    def _check_decompressed_size(self, unpacked: int) -> None:
        if unpacked > self._max_bytes:
            raise InvalidInput(f"The file is larger than {self._max_bytes >> 20} MB when decompressed")

    def _read_into(self, draft: BlockBuilder) -> bool:
        self._left = self._left or next(self._batches, [])
        before = len(draft.inputs)
        for record in self._left:
            self._add_record(draft, record)
            if not draft.remaining_rows:
                break
        taken = len(draft.inputs) - before
        self._unpacked += sum(map(len, self._left[:taken]))
        self._left = self._left[taken:]
        self._check_decompressed_size(self._unpacked)
        return taken > 0

    def _add_record(self, draft: BlockBuilder, record: bytes | str) -> None:
        line = self._row + len(draft.inputs) + 1
        if isinstance(record, str):
            draft.add_defective("", line, record)
        elif len(record) > self._limit:
            draft.add_defective(record, line, f"Row is longer than {self._limit} bytes")
        elif _JSON_ESCAPED_NUL in record and _JSON_ESCAPED_NUL in record.replace(b"\\\\", b""):
            draft.add_defective(record, line, "Row contains a NUL character, which PostgreSQL cannot store")
        else:
            draft.add_record(record, line)

    def _iter_encoded_batches(self) -> Iterator[list[bytes | str]]:
        skip = self._row
        about = self._parquet.metadata
        for group in range(about.num_row_groups):
            rows = about.row_group(group).num_rows
            if skip >= rows:
                skip -= rows
                continue
            for batch in self._iter_group_batches(group):
                left = batch.slice(min(skip, batch.num_rows))
                skip -= batch.num_rows - left.num_rows
                for part in split_batch(left) if left.num_rows else ():
                    yield self._encode_batch(part)

    def _iter_group_batches(self, group: int) -> Iterator[Any]:
        try:
            rows = self._bounds.choose_batch_rows(group, self._sum_longest_value_bytes_of_group(group))
            yield from self._parquet.iter_batches(rows, row_groups=[group], use_threads=False)
        except self._errors as error:
            raise InvalidInput(f"The Parquet file is damaged: {error}") from error

    def _sum_longest_value_bytes_of_group(self, group: int) -> int:
        if not self._bounds.worded:
            return 0
        first = self._words.iter_batches(1, row_groups=[group], columns=self._bounds.worded, use_threads=False)
        return sum(map(sum_longest_value_bytes, islice(first, 1)))

    def _encode_batch(self, batch: Any) -> list[bytes | str]:
        """Return each row encoded, or the reason why it is invalid. A row that is too long is not converted."""
        if batch.num_rows == 1 and estimate_batch_bytes(batch) > ARROW_TO_JSON_SIZE_RATIO_MAX * self._limit:
            return [f"Row is longer than {self._limit} bytes"]
        try:
            return [_encode_json(row) for row in _convert_batch_to_rows(_truncate_nanoseconds(batch))]
        except (TypeError, ValueError, OverflowError) as error:
            if batch.num_rows == 1:
                return [f"Cannot read the row: {error}"]
        return [record for n in range(batch.num_rows) for record in self._encode_batch(batch.slice(n, 1))]


def _convert_batch_to_rows(batch: Any) -> list[dict[str, Any]]:
    """Return the rows as JSON values. JSON has no NaN and infinity, so they become text."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    for name in [
        name for name, column in zip(batch.schema.names, batch.columns, strict=True) if _may_have_non_finite(column)
    ]:
        for row in rows:
            row[name] = _replace_non_finite(row[name])
    return rows


def _may_have_non_finite(column: Any) -> bool:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import compute  # noqa: PLC0415

    if pa.types.is_floating(column.type):
        return not compute.all(compute.is_finite(column), min_count=0).as_py()
    return pa.types.is_nested(column.type) and ("float" in str(column.type) or "double" in str(column.type))


def _replace_non_finite(value: Any) -> Any:
    """Replace NaN and infinity with the texts that PostgreSQL accepts for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _replace_non_finite(one) for name, one in value.items()}
    return [_replace_non_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _truncate_nanoseconds(batch: Any) -> Any:
    """Convert nanoseconds to microseconds, which is the precision of Python's datetime."""
    import pyarrow as pa  # noqa: PLC0415

    for at, field in enumerate(batch.schema):
        if (unit := _choose_microsecond_type(field.type, pa)) is not None:
            batch = batch.set_column(at, field.name, batch.column(at).cast(unit, safe=False))
    return batch


def _choose_microsecond_type(kind: Any, pa: Any) -> Any:
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    return pa.time64("us") if pa.types.is_time64(kind) and kind.unit == "ns" else None
