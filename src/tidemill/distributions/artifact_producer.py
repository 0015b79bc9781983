"""Produces the rows of a file with the query or the function of the dataset."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from datetime import time as time_of_day
from typing import Any

from tidemill.core.file_format import CopyFormat, OutputColumn
from tidemill.core.outcome import Fail
from tidemill.distributions import dataset_queries
from tidemill.distributions.artifact_storage import ArtifactUpload
from tidemill.distributions.dataset import Dataset, DistributionInput
from tidemill.distributions.dataset_queries import ReadTransactionPool
from tidemill.store.database import Database
from tidemill.store.jsonb import encode_json
from tidemill.store.statements import SqlParams

_CSV_SPECIAL_CHARS = frozenset(',"\r\n')


class ProducedRowEncoder:
    """Encodes dicts and tuples as rows of a file. The dataset or its first row determines the columns."""

    def __init__(self, feed: CopyFormat, columns: Sequence[str]) -> None:
        self.count = 0
        self._columns = tuple(columns)
        self._feed = feed
        self._has_begun = False

    @property
    def columns(self) -> tuple[OutputColumn, ...]:
        return tuple(OutputColumn(name) for name in self._columns)

    def encode_row_with_header_if_first(self, row: Any) -> bytes:
        """Return the bytes of a row, after the header if it is the first row; raise Fail if the row is invalid."""
        if not self._columns and isinstance(row, Mapping):
            self._columns = tuple(str(name) for name in row)
            if not self._columns:
                raise self._make_failure("has no columns")
        cells = self._extract_cells(row)
        self.count += 1
        header = self.encode_header_once()
        if self._feed == "ndjson":
            return header + encode_json(dict(zip(self._columns, cells, strict=True))) + b"\n"
        return header + _encode_csv_line(cells)

    def encode_header_once(self) -> bytes:
        """Return the header on the first call, then nothing. Without rows, the header is the whole file."""
        if self._has_begun or self._feed == "ndjson" or not self._columns:
            return b""
        self._has_begun = True
        return _encode_csv_line(self._columns)

    def _extract_cells(self, row: Any) -> Sequence[Any]:
        names = self._columns
        if isinstance(row, Mapping):
            if not row.keys() <= set(names):
                other = next(name for name in row if name not in names)
                raise self._make_failure(f'has an unexpected column "{other}"')
            return [row.get(name) for name in names]
        if isinstance(row, str | bytes) or not isinstance(row, Sequence):
            raise self._make_failure(f"is of type {type(row).__name__}; expected a dict or a tuple")
        if not names:
            raise self._make_failure("is a tuple, but the dataset declares no columns. Set columns=… or return dicts.")
        if len(row) != len(names):
            raise self._make_failure(f"has {len(row)} values; expected {len(names)}")
        return row

    def _make_failure(self, problem: str) -> Fail:
        return Fail(f"Row {self.count + 1} from the dataset function {problem}", code="invalid_rows")


def _encode_csv_line(cells: Sequence[Any]) -> bytes:
    return (",".join(map(_format_csv_cell, cells)) + "\n").encode()


def _format_csv_cell(value: Any) -> str:
    """Format a value as PostgreSQL does in CSV: NULL is empty, and an empty text is quoted."""
    if value is None:
        return ""
    text = _format_value(value)
    if not text or not _CSV_SPECIAL_CHARS.isdisjoint(text) or text == "\\.":
        return '"' + text.replace('"', '""') + '"'
    return text


def _format_value(value: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case datetime() | date() | time_of_day():
            return value.isoformat()
        case bytes():
            return f"\\x{value.hex()}"
        case Mapping() | list() | tuple():
            return encode_json(value).decode()
        case _:
            return str(value)


ROW_CHUNK_BYTES = 128 << 10
QUERY_COLUMNS_CACHE_S = 5.0


class ArtifactProducer:
    """Runs at most ``max_queries`` queries at once, so that connections remain available to write outcomes."""

    def __init__(self, db: Database, *, max_queries: int, timeout_s: float) -> None:
        self._readers = ReadTransactionPool(db, max_open=max_queries, statement_timeout_s=timeout_s)
        self.query_gate = self._readers.gate
        # Query -> its columns, and the time at which the cache entry expires.
        self._columns: dict[str, tuple[tuple[OutputColumn, ...], float]] = {}
        self._describing = asyncio.Lock()

    async def write_artifact_rows(self, dataset: Dataset, given: DistributionInput, out: ArtifactUpload) -> int:
        """Write all rows to the upload and return the number of rows. The caller finishes the upload."""
        values = {field.name: field.convert_to_query_parameter(given.values[field.name]) for field in dataset.fields}
        if dataset.query is not None:
            return await self._upload_query_rows(dataset.query, values, out)
        function = dataset.producer
        if function is None:
            raise Fail(
                f'Dataset "{dataset.name}" has neither a query nor a function', code="unknown_dataset", retryable=True
            )
        made = ProducedRowEncoder(out.form.postgres_copy_format, dataset.columns)
        if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function):
            rows = function(values)
            await _encode_rows_to_upload_async(rows if hasattr(rows, "__aiter__") else await rows, made, out)
        else:  # in a thread, because a blocking generator would block the event loop
            await out.run_in_thread(lambda: _encode_rows_to_upload_sync(function(values), made, out))
        return made.count

    async def _upload_query_rows(self, query: str, values: SqlParams, out: ArtifactUpload) -> int:
        out.form = replace(out.form, columns=await self._get_recent_query_columns(query, values))
        try:
            return await dataset_queries.copy_query_rows(self._readers, query, values, out.form, out.write)
        except Fail:  # a table of the query may have been altered
            self._columns.pop(query, None)
            raise

    async def _get_recent_query_columns(self, query: str, values: SqlParams) -> tuple[OutputColumn, ...]:
        """Return the columns of a query, cached for a few seconds only, because tables can be altered."""
        with self.query_gate.while_waiting():
            await self._describing.acquire()
        try:
            columns, good_until = self._columns.get(query, ((), 0.0))
            if time.monotonic() >= good_until:
                columns = await dataset_queries.describe_query_columns(self._readers, query, values)
                if not columns:
                    raise Fail("The dataset query returns no columns", code="invalid_rows")
                self._columns[query] = columns, time.monotonic() + QUERY_COLUMNS_CACHE_S
        finally:
            self._describing.release()
        return columns


async def _encode_rows_to_upload_async(
    found: AsyncIterable[Any] | Iterable[Any], made: ProducedRowEncoder, out: ArtifactUpload
) -> None:
    buffer = bytearray()
    async for row in _iterate_rows(found):
        buffer += made.encode_row_with_header_if_first(row)
        if len(buffer) >= ROW_CHUNK_BYTES:
            _set_upload_columns_once(made, out)
            await out.write(bytes(buffer))
            buffer.clear()
    buffer += made.encode_header_once()
    _set_upload_columns_once(made, out)
    await out.write(bytes(buffer))


async def _iterate_rows(found: AsyncIterable[Any] | Iterable[Any]) -> AsyncIterable[Any]:
    if isinstance(found, AsyncIterable):
        async for row in found:
            yield row
    else:
        for row in found:
            yield row


def _encode_rows_to_upload_sync(found: Iterable[Any], made: ProducedRowEncoder, out: ArtifactUpload) -> None:
    buffer = bytearray()
    for row in found:
        buffer += made.encode_row_with_header_if_first(row)
        if len(buffer) >= ROW_CHUNK_BYTES:
            _set_upload_columns_once(made, out)
            out.write_sync(bytes(buffer))
            buffer.clear()
    buffer += made.encode_header_once()
    _set_upload_columns_once(made, out)
    out.write_sync(bytes(buffer))


def _set_upload_columns_once(made: ProducedRowEncoder, out: ArtifactUpload) -> None:
    if not out.form.columns:
        out.form = replace(out.form, columns=made.columns)
