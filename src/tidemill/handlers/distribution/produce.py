"""Who makes the rows of a file: a query, or a function of the mill."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterable, Iterable
from dataclasses import replace
from typing import Any

from tidemill.domain.distribution import Dataset, Input
from tidemill.domain.form import Column
from tidemill.domain.outcome import Fail
from tidemill.handlers.distribution.outgoing import Outgoing
from tidemill.handlers.distribution.rows import Rows
from tidemill.store import datasets
from tidemill.store.database import Database
from tidemill.store.readers import Readers

PIECE = 128 << 10
FRESH_S = 5.0


class Producer:
    """No more queries at a time than there are connections to spare: outcomes have to be written beside them."""

    def __init__(self, db: Database, *, at_once: int, seconds: float) -> None:
        self._readers = Readers(db, at_once=at_once, seconds=seconds)
        self._columns: dict[str, tuple[tuple[Column, ...], float]] = {}  # by query, and until when they are believed
        self._describing = asyncio.Lock()

    async def produce(self, dataset: Dataset, given: Input, out: Outgoing) -> int:
        """All rows of the file, which is still to be finished; how many they are."""
        values = {field.name: field.bound(given.values[field.name]) for field in dataset.fields}
        if dataset.query is not None:
            return await self._query(dataset.query, values, out)
        function = dataset.producer
        if function is None:
            raise Fail(f"nothing makes the rows of {dataset.name}", code="unknown_dataset", retryable=True)
        made = Rows(out.form.feed, dataset.columns)
        if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function):
            found = function(values)
            await _walk(found if hasattr(found, "__aiter__") else await found, made, out)
        else:  # all of it in one thread: a generator that blocks must not block its neighbours
            await out.run(lambda: _drain(function(values), made, out))
        return made.count

    async def _query(self, query: str, values: dict[str, Any], out: Outgoing) -> int:
        out.form = replace(out.form, columns=await self._described(query, values))
        try:
            return await datasets.copy_rows(self._readers, query, values, out.form, out.take)
        except Fail:  # its tables may have been altered
            self._columns.pop(query, None)
            raise

    async def _described(self, query: str, values: dict[str, Any]) -> tuple[Column, ...]:
        """Once for all who begin together, and again after a while: tables are altered."""
        async with self._describing:
            columns, good_until = self._columns.get(query, ((), 0.0))
            if time.monotonic() >= good_until:
                columns = await datasets.columns_of(self._readers, query, values)
                if not columns:
                    raise Fail("the query of the dataset has no columns", code="invalid_rows")
                self._columns[query] = columns, time.monotonic() + FRESH_S
        return columns


async def _walk(found: AsyncIterable[Any] | Iterable[Any], made: Rows, out: Outgoing) -> None:
    waiting = bytearray()
    async for row in _each(found):
        waiting += made.add(row)
        if len(waiting) >= PIECE:
            _name_columns(made, out)
            await out.take(bytes(waiting))
            waiting.clear()
    waiting += made.begin()
    _name_columns(made, out)
    await out.take(bytes(waiting))


async def _each(found: AsyncIterable[Any] | Iterable[Any]) -> AsyncIterable[Any]:
    if isinstance(found, AsyncIterable):
        async for row in found:
            yield row
    else:
        for row in found:
            yield row


def _drain(found: Iterable[Any], made: Rows, out: Outgoing) -> None:
    waiting = bytearray()
    for row in found:
        waiting += made.add(row)
        if len(waiting) >= PIECE:
            _name_columns(made, out)
            out.put(bytes(waiting))
            waiting.clear()
    waiting += made.begin()
    _name_columns(made, out)
    out.put(bytes(waiting))


def _name_columns(made: Rows, out: Outgoing) -> None:
    if not out.form.columns:
        out.form = replace(out.form, columns=made.columns)
