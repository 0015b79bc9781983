"""Rows of declared queries, as COPY delivers them. Values are bound; the query is what somebody declared."""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from tidemill.domain.catalog.column import type_named
from tidemill.domain.form import Column, Feed, Form
from tidemill.domain.outcome import Fail, Retry
from tidemill.store.database import Connection, is_timeout, is_transient
from tidemill.store.extract.cells import in_csv, in_json
from tidemill.store.readers import Readers
from tidemill.store.statements import sql

PIECE = 128 << 10
Take = Callable[[bytes], Awaitable[None]]


async def copy_rows(readers: Readers, query: str, values: Mapping[str, Any], form: Form, take: Take) -> int:
    """Give what the query finds to ``take``, piece by piece; how many rows it was. The form has its columns.

    Raises:
        Fail: The query cannot be run, and no retry will mend it.
        Retry: The database has trouble, or the query takes too long.
    """
    async with _opened(readers) as conn, conn.cursor() as cursor:
        last = b""
        async with cursor.copy(_statement(conn, f"dataset/copy_{form.feed}", query, values, form)) as copy:
            while piece := await conn.wait(_read_piece(copy)):
                if last:
                    await take(last)
                last = piece
        count = cursor.rowcount
    if last:  # with the connection given back: most files are one piece, and the store may be slow
        await take(last)
    return count


def _read_piece(copy: psycopg.AsyncCopy) -> Generator[Any, Any, bytes]:
    """Rows, until they are enough. ``copy.read`` would wait for each by itself."""
    rows: list[bytes] = []
    size = 0
    while size < PIECE:
        row = yield from copy._read_gen()  # noqa: SLF001  there is no other way to it
        if not row:
            break
        rows.append(bytes(row))
        size += len(row)
    return b"".join(rows)


async def columns_of(readers: Readers, query: str, values: Mapping[str, Any]) -> tuple[Column, ...]:
    """What the query's columns are, for files that say it too."""
    async with _opened(readers) as conn:
        cursor = await conn.execute(_statement(conn, "dataset/describe", query, values), prepare=False)
        found = cursor.description or []
        cursor = await conn.execute(sql("dataset/types"), {"oids": [column.type_code for column in found]})
        types = {oid: (type_named(base), written) for oid, written, base in await cursor.fetchall()}
    return tuple(Column(column.name, *types[column.type_code]) for column in found)


@asynccontextmanager
async def _opened(readers: Readers) -> AsyncIterator[Connection]:
    """A transaction that writes nothing; the errors of the query become what they mean for the item."""
    try:
        async with readers.reader() as conn:
            yield conn
    except psycopg.Error as error:
        if is_timeout(error):
            raise Retry(
                f"the query of the dataset took longer than {readers.seconds:g} s", code="query_timeout"
            ) from error
        if is_transient(error):
            raise Retry("the database has trouble", code="database") from error
        said = error.diag.message_primary or str(error)
        raise Fail(f"the query of the dataset cannot be run: {said}", code="query", retryable=True) from error


def _statement(conn: Connection, name: str, query: str, values: Mapping[str, Any], form: Form | None = None) -> bytes:
    """COPY takes no parameters, so the client writes the values, each quoted by the driver."""
    bound = psycopg.AsyncClientCursor(conn).mogrify(query, values)
    if form is not None:
        bound = _written(bound, form)
    return sql(name).replace(b"{query}", bound.encode(conn.info.encoding))


def _written(bound: str, form: Form) -> str:
    head, tail = _around(form.columns, form.feed)
    return f"{head}{bound}{tail}"


@lru_cache
def _around(columns: tuple[Column, ...], feed: Feed) -> tuple[str, str]:
    """What a query needs around it for its columns to be written as those of a table. Two may have the same name."""
    numbered = [Identifier(f"c{number}") for number in range(len(columns))]
    expression = in_csv if feed == "csv" else in_json
    written = [expression(c, one.type, one.sql_type) for c, one in zip(numbered, columns, strict=True)]
    if written == numbered:
        return "", ""
    named = [SQL("{} AS {}").format(c, Identifier(one.name)) for c, one in zip(written, columns, strict=True)]
    return (
        SQL("SELECT {} FROM (").format(SQL(", ").join(named)).as_string(),
        SQL("\n) AS found({})").format(SQL(", ").join(numbered)).as_string(),
    )
