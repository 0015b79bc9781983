"""Built-in: rows as a file, those of a job or of a table. One item is one export; its input tells which."""

from contextlib import aclosing, suppress
from typing import Any

from tidemill.connectors.blobs import Blobs, Label, Writing
from tidemill.domain.errors import StoreDenied
from tidemill.domain.export import CONTENT_TYPES, KIND, ExportRequest, Rows, is_of_table
from tidemill.domain.handler import Handler
from tidemill.domain.item import Item
from tidemill.domain.outcome import Fail, Wait
from tidemill.domain.retry import RetryPolicy
from tidemill.handlers.desk import Desk
from tidemill.handlers.export_table import TableExporter
from tidemill.handlers.table import Table
from tidemill.store import exports, files, results
from tidemill.store.database import Connection, Database
from tidemill.store.results import Survey

TTL_HOURS = 168
COLUMNS = ("name", "format", "rows", "cut_cells", "size", "sha256", "file_id")


def export_handler(db: Database, blobs: Blobs, *, ttl_hours: int = TTL_HOURS) -> Handler:
    of_job = Exporter(db, blobs, ttl_hours=ttl_hours).run
    of_table = TableExporter(db, blobs, ttl_hours=ttl_hours).run

    async def run(item: Item) -> dict[str, Any]:
        try:
            return await (of_table if is_of_table(item.input) else of_job)(item)
        except StoreDenied as error:  # another attempt would be denied as well
            raise Fail(str(error), code="store_denied", retryable=True) from error

    retry = RetryPolicy(max_attempts=3)
    return Handler(KIND, run, "async", concurrency=2, timeout=None, retry=retry, columns=COLUMNS)


class Exporter:
    """Reads in the event loop and writes in a thread, a packet apart: neither gets far ahead of the other."""

    def __init__(self, db: Database, blobs: Blobs, *, ttl_hours: int = TTL_HOURS) -> None:
        self._db = db
        self._blobs = blobs
        self._ttl_hours = ttl_hours

    async def run(self, item: Item) -> dict[str, Any]:
        """The file is whole, or there is none."""
        request = ExportRequest.parse(item.input)
        writing, desk = self._blobs.write(), Desk()  # each attempt has a file of its own: a late one harms nobody
        tables: list[Table] = []
        try:
            made = await self._write(writing, desk, request, tables)
            await self._insist(request, item)
            expires_at = await self._db.run(files.expire, writing.name, item.job_id, self._ttl_hours)
            blob = await desk.do(writing.finish)
        except BaseException:
            await desk.clear(lambda: _abandon(writing, tables))
            raise
        desk.close()
        made |= {"size": blob.size, "sha256": blob.sha256.hex(), "file_id": blob.id}
        return made | {"spreadsheet_safe": request.spreadsheet_safe, "expires_at": expires_at.isoformat()}

    async def _write(self, writing: Writing, desk: Desk, request: ExportRequest, tables: list[Table]) -> dict[str, Any]:
        async with results.snapshot(self._db) as conn:
            survey = await results.survey(conn, request.job_id)
            if survey is None or survey.purged:
                raise _gone(request)
            name = request.file_name(survey.key)
            writing.label = Label(name, CONTENT_TYPES[request.format])
            table = Table(writing, request, survey.columns, survey.standing)
            tables.append(table)
            await _copy(conn, survey, request.rows, table, desk)
        await desk.do(table.close)
        return {"name": name, "format": request.format, "rows": table.rows, "cut_cells": table.cut_cells}

    async def _insist(self, request: ExportRequest, item: Item) -> None:
        """A file that nobody wants any more is not kept; nor is one that somebody else has made meanwhile."""
        if not await self._db.run(results.is_exportable, request.job_id, item.job_id):
            if not await self._db.run(exports.is_wanted, item.job_id):
                raise Wait("nobody wants this file any more", after=1.0, code="unwanted")
            raise _gone(request)


async def _copy(conn: Connection, survey: Survey, rows: Rows, table: Table, desk: Desk) -> None:
    async with aclosing(results.walk(conn, survey, rows)) as packets:
        async for packet in packets:
            await desk.begin(table.add, packet)


def _abandon(writing: Writing, tables: list[Table]) -> None:
    """Nothing stays. A table that is not closed would write its end whenever the garbage collector finds it."""
    writing.discard()
    for table in tables:
        with suppress(Exception):
            table.close()


def _gone(request: ExportRequest) -> Fail:
    return Fail(
        f"job {request.job_id} is gone: it was deleted or purged before its export was complete", code="job_gone"
    )
