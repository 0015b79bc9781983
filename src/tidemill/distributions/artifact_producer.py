"""Produces the rows of a file, with the dataset's query or its function."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterable, Iterable
from dataclasses import replace
from typing import Any

from tidemill.core.file_format import OutputColumn
from tidemill.core.outcome import Fail
from tidemill.distributions import dataset_queries
from tidemill.distributions.artifact_storage import ArtifactUpload
from tidemill.distributions.dataset import Dataset, DistributionInput
from tidemill.distributions.dataset_queries import ReadTransactionPool
from tidemill.distributions.row_encoder import ProducedRowEncoder
from tidemill.store.database import Database
from tidemill.store.statements import SqlParams

ROW_CHUNK_BYTES = 128 << 10
QUERY_COLUMNS_CACHE_S = 5.0


class ArtifactProducer:
    """Runs at most ``max_queries`` queries at once, so that connections are left to write outcomes."""

    def __init__(self, db: Database, *, max_queries: int, timeout_s: float) -> None:
        self._readers = ReadTransactionPool(db, max_open=max_queries, statement_timeout_s=timeout_s)
        # Query -> its columns, and until when they are cached.
        self._columns: dict[str, tuple[tuple[OutputColumn, ...], float]] = {}
        self._describing = asyncio.Lock()

    async def produce_rows(self, dataset: Dataset, given: DistributionInput, out: ArtifactUpload) -> int:
        """Write all rows to the upload, which is not finished yet, and return their number."""
        values = {field.name: field.to_query_value(given.values[field.name]) for field in dataset.fields}
        if dataset.query is not None:
            return await self._copy_query(dataset.query, values, out)
        function = dataset.producer
        if function is None:
            raise Fail(f"nothing makes the rows of {dataset.name}", code="unknown_dataset", retryable=True)
        made = ProducedRowEncoder(out.form.copy_format, dataset.columns)
        if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function):
            found = function(values)
            await _write_async_rows(found if hasattr(found, "__aiter__") else await found, made, out)
        else:  # in a thread, because a blocking generator would stop the event loop
            await out.run_in_thread(lambda: _write_rows(function(values), made, out))
        return made.count

    async def _copy_query(self, query: str, values: SqlParams, out: ArtifactUpload) -> int:
        out.form = replace(out.form, columns=await self._describe_columns(query, values))
        try:
            return await dataset_queries.copy_query_rows(self._readers, query, values, out.form, out.write)
        except Fail:  # its tables may have been altered
            self._columns.pop(query, None)
            raise

    async def _describe_columns(self, query: str, values: SqlParams) -> tuple[OutputColumn, ...]:
        """The columns of a query. They are cached for seconds only, because tables are altered."""
        async with self._describing:
            columns, good_until = self._columns.get(query, ((), 0.0))
            if time.monotonic() >= good_until:
                columns = await dataset_queries.describe_query_columns(self._readers, query, values)
                if not columns:
                    raise Fail("the query of the dataset has no columns", code="invalid_rows")
                self._columns[query] = columns, time.monotonic() + QUERY_COLUMNS_CACHE_S
        return columns


async def _write_async_rows(
    found: AsyncIterable[Any] | Iterable[Any], made: ProducedRowEncoder, out: ArtifactUpload
) -> None:
    waiting = bytearray()
    async for row in _iterate_rows(found):
        waiting += made.encode_row(row)
        if len(waiting) >= ROW_CHUNK_BYTES:
            _set_file_columns(made, out)
            await out.write(bytes(waiting))
            waiting.clear()
    waiting += made.encode_header()
    _set_file_columns(made, out)
    await out.write(bytes(waiting))


async def _iterate_rows(found: AsyncIterable[Any] | Iterable[Any]) -> AsyncIterable[Any]:
    if isinstance(found, AsyncIterable):
        async for row in found:
            yield row
    else:
        for row in found:
            yield row


def _write_rows(found: Iterable[Any], made: ProducedRowEncoder, out: ArtifactUpload) -> None:
    waiting = bytearray()
    for row in found:
        waiting += made.encode_row(row)
        if len(waiting) >= ROW_CHUNK_BYTES:
            _set_file_columns(made, out)
            out.write_sync(bytes(waiting))
            waiting.clear()
    waiting += made.encode_header()
    _set_file_columns(made, out)
    out.write_sync(bytes(waiting))


def _set_file_columns(made: ProducedRowEncoder, out: ArtifactUpload) -> None:
    if not out.form.columns:
        out.form = replace(out.form, columns=made.columns)
