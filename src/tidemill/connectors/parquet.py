"""Parquet: row groups, batch by batch."""

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

import msgspec

from tidemill.connectors.parquet_bounds import SHRINK, Bounds, longest, portions, weight_of
from tidemill.connectors.records import BlockSource, Draft
from tidemill.domain.errors import InvalidInput

_encode = msgspec.json.Encoder().encode
_NUL = b"\\u0000"


def load_pyarrow() -> Any:
    """The library; InvalidInput when it is not there."""
    try:
        import pyarrow as pa  # noqa: PLC0415  an extra, and slow to import
    except ImportError:
        raise InvalidInput("Parquet files need an extra: pip install 'tidemill[parquet]'") from None
    return pa


class ParquetSource(BlockSource):
    """A checkpoint is the number of rows before the next one, and of the bytes that they came to."""

    columns: list[str]

    def __init__(self, file: BinaryIO, checkpoint: dict[str, Any], *, max_row_bytes: int, max_bytes: int) -> None:
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
            self._bounds = Bounds(about)
            options = {"metadata": about, "buffer_size": 1 << 20, "pre_buffer": False}
            self._parquet = parquet.ParquetFile(file, read_dictionary=self._bounds.listed, **options)
            self._words = parquet.ParquetFile(file, read_dictionary=self._bounds.worded, **options)
        except self._errors as error:
            raise InvalidInput(f"not a Parquet file: {error}") from error
        self._check()
        self.columns = list(self._parquet.schema_arrow.names)
        self._batches = self._read()

    def close(self) -> None:
        self._parquet.close()
        self._file.close()

    def _place(self) -> dict[str, Any]:
        return {"unpacked": self._unpacked}

    def _check(self) -> None:
        about = self._parquet.metadata
        self._count(sum(about.row_group(n).total_byte_size for n in range(about.num_row_groups)))
        self._bounds.check(self._file.seek(0, 2), self._limit)
        names = self._parquet.schema_arrow.names
        if len(set(names)) < len(names):
            raise InvalidInput(f"columns are there twice: {sorted({name for name in names if names.count(name) > 1})}")

    def _count(self, unpacked: int) -> None:
        if unpacked > self._max_bytes:
            raise InvalidInput(f"the file unpacks to more than {self._max_bytes >> 20} MB")

    def _more(self, draft: Draft) -> bool:
        self._left = self._left or next(self._batches, [])
        before = len(draft.inputs)
        for record in self._left:
            self._add(draft, record)
            if not draft.room:
                break
        taken = len(draft.inputs) - before
        self._unpacked += sum(map(len, self._left[:taken]))
        self._left = self._left[taken:]
        self._count(self._unpacked)
        return taken > 0

    def _add(self, draft: Draft, record: bytes | str) -> None:
        line = self._row + len(draft.inputs) + 1
        if isinstance(record, str):
            draft.add_bad("", line, record)
        elif len(record) > self._limit:
            draft.add_bad(record, line, f"longer than {self._limit} bytes")
        elif _NUL in record and _NUL in record.replace(b"\\\\", b""):
            draft.add_bad(record, line, "a NUL character cannot be stored")
        else:
            draft.add(record, line)

    def _read(self) -> Iterator[list[bytes | str]]:
        skip = self._row
        about = self._parquet.metadata
        for group in range(about.num_row_groups):
            rows = about.row_group(group).num_rows
            if skip >= rows:
                skip -= rows
                continue
            for batch in self._batches_of(group):
                left = batch.slice(min(skip, batch.num_rows))
                skip -= batch.num_rows - left.num_rows
                for part in portions(left) if left.num_rows else ():
                    yield self._records(part)

    def _batches_of(self, group: int) -> Iterator[Any]:
        try:
            rows = self._bounds.rows(group, self._longest(group))
            yield from self._parquet.iter_batches(rows, row_groups=[group], use_threads=False)
        except self._errors as error:
            raise InvalidInput(f"the Parquet file is damaged: {error}") from error

    def _longest(self, group: int) -> int:
        if not self._bounds.worded:
            return 0
        first = self._words.iter_batches(1, row_groups=[group], columns=self._bounds.worded, use_threads=False)
        return sum(map(longest, islice(first, 1)))

    def _records(self, batch: Any) -> list[bytes | str]:
        """Each row encoded, or why it cannot be. One that is too long is not even made."""
        if batch.num_rows == 1 and weight_of(batch) > SHRINK * self._limit:
            return [f"longer than {self._limit} bytes"]
        try:
            return [_encode(row) for row in _rows(_plain(batch))]
        except (TypeError, ValueError, OverflowError) as error:
            if batch.num_rows == 1:
                return [f"cannot be read: {error}"]
        return [record for n in range(batch.num_rows) for record in self._records(batch.slice(n, 1))]


def _rows(batch: Any) -> list[dict[str, Any]]:
    """As JSON can hold them: no number there is infinite or none, and it would be nothing."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    for name in [name for name, column in zip(batch.schema.names, batch.columns, strict=True) if _may_be_odd(column)]:
        for row in rows:
            row[name] = _said(row[name])
    return rows


def _may_be_odd(column: Any) -> bool:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import compute  # noqa: PLC0415

    if pa.types.is_floating(column.type):
        return not compute.all(compute.is_finite(column), min_count=0).as_py()
    return pa.types.is_nested(column.type) and ("float" in str(column.type) or "double" in str(column.type))


def _said(value: Any) -> Any:
    """Numbers that are none, as texts that PostgreSQL takes for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _said(one) for name, one in value.items()}
    return [_said(one) for one in value] if isinstance(value, list | tuple) else value


def _plain(batch: Any) -> Any:
    """Nanoseconds become microseconds: no date of Python has them."""
    import pyarrow as pa  # noqa: PLC0415

    for at, field in enumerate(batch.schema):
        if (unit := _coarser(field.type, pa)) is not None:
            batch = batch.set_column(at, field.name, batch.column(at).cast(unit, safe=False))
    return batch


def _coarser(kind: Any, pa: Any) -> Any:
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    return pa.time64("us") if pa.types.is_time64(kind) and kind.unit == "ns" else None
