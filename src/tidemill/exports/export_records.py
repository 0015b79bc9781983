"""Database queries for exports: requests, results, and whether an export still needs its file."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg.rows import class_row

from tidemill.core.errors import UnknownJob
from tidemill.core.json_input import JsonObject
from tidemill.core.outcome import ErrorDetails
from tidemill.exports.result_export import ExportedFile
from tidemill.store.database import Connection
from tidemill.store.statements import RowDict, fetch_rows, make_sql_loader

sql = make_sql_loader("tidemill.exports")


async def is_export_file_needed(conn: Connection, export_id: UUID) -> bool:
    """Return whether an export still needs its file: it is not deleted, not cancelled and not finished."""
    cursor = await conn.execute(sql("job/is_wanted"), {"export_id": export_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


@dataclass(frozen=True, slots=True)
class ExportRecord:
    """The request of an export, and its result or error if it has one."""

    id: UUID
    idem_key: str | None
    input: JsonObject | None
    result: ExportedFile | None
    error: ErrorDetails | None


async def read_export_records_by_id(conn: Connection, export_ids: Sequence[UUID]) -> dict[UUID, ExportRecord]:
    async with conn.cursor(row_factory=class_row(ExportRecord)) as cursor:
        await cursor.execute(sql("job/exports"), {"ids": list(export_ids)})
        return {record.id: record for record in await cursor.fetchall()}


async def read_results_version(conn: Connection, job_id: UUID) -> RowDict:
    """Return the columns of a job that change whenever its results do; raise UnknownJob if the job does not exist."""
    rows = await fetch_rows(conn, sql("job/results_state"), {"job_id": job_id})
    if not rows:
        raise UnknownJob(f'Unknown job "{job_id}"')
    return rows[0]


async def is_result_export_file_needed(conn: Connection, job_id: UUID, export_id: UUID) -> bool:
    """Return whether an export still needs its file and the job with the results still exists."""
    cursor = await conn.execute(sql("job/is_exportable"), {"job_id": job_id, "export_id": export_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])
