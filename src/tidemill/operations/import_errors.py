"""The failed rows of an import: in pages, and as files that can be mended and sent back."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from tidemill.connectors.writers.csv import csv_line
from tidemill.domain.errors import Conflict
from tidemill.domain.importing.failures import ERRORS, RAW, ROW, as_cells, as_record, row_errors
from tidemill.domain.job import Job
from tidemill.domain.page import Page
from tidemill.store.database import Database
from tidemill.store.lists import failures
from tidemill.store.lists.failures import Failure

AT_ONCE = 500


async def list_errors(
    db: Database, job: Job, *, limit: int, after: object = None, codes: Sequence[str] | None = None
) -> Page[dict[str, Any]]:
    """Failed rows in their own order, each with all of its errors; with ``codes``, those that failed first of these."""
    _insist(job)
    page = await db.run(failures.list_failures, job.id, limit=limit, after=after, codes=codes)
    return Page([_told(found) for found in page.items], page.after)


async def csv_file(db: Database, job: Job) -> AsyncIterator[bytes]:
    """The failed rows in the columns of their file, and two more: a page at a time, whatever their number."""
    columns = await file_columns(db, job)
    yield csv_line([*columns, ROW, ERRORS])
    async for found in _pages(db, job):
        yield b"".join(csv_line(as_cells(columns, one.input, one.row, _errors(one))) for one in found)


async def ndjson_file(db: Database, job: Job) -> AsyncIterator[bytes]:
    """The same, an object a line; errors are lists of objects there."""
    columns = planned_columns(job)
    async for found in _pages(db, job):
        lines = [as_record(columns, one.input) | {ROW: one.row, ERRORS: _errors(one)} for one in found]
        yield b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def planned_columns(job: Job) -> list[str]:
    """The columns of a job's file, as far as its beginning told; none of ours."""
    plan = job.params.get("plan") or {}
    return [name for name in plan.get("columns") or () if name not in (ROW, ERRORS)]


async def file_columns(db: Database, job: Job) -> list[str]:
    """The same, with what later rows of a file without a header have called their fields."""
    _insist(job)
    columns = planned_columns(job)
    others = [name for name in await db.run(failures.names, job.id) if name not in (ROW, ERRORS)]
    return [*columns, *(name for name in others if name not in columns)] or [RAW]


async def _pages(db: Database, job: Job) -> AsyncIterator[Sequence[Failure]]:
    """No connection is held between two pages: whoever reads slowly keeps nobody waiting."""
    _insist(job)
    after: object = None
    while True:
        page = await db.run(failures.list_failures, job.id, limit=AT_ONCE, after=after)
        if page.items:
            yield page.items
        after = page.after
        if after is None:
            return


def _told(found: Failure) -> dict[str, Any]:
    return {"row": found.row, "line": found.line, "errors": _errors(found), "input": found.input}


def _errors(found: Failure) -> list[dict[str, Any]]:
    return row_errors(found.error, found.row, found.line)


def _insist(job: Job) -> None:
    if job.purged_at is not None:
        raise Conflict(f"job {job.key} was purged: its rows are gone")
