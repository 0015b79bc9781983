"""What is left of a job."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from tidemill.domain.errors import UnknownJob
from tidemill.store.database import Connection, one_statement
from tidemill.store.statements import sql


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is left of a job. ``next_due_at`` is None when nothing waits, or the job is not to run."""

    is_open: bool
    next_due_at: datetime | None
    due_in: float | None


@one_statement
async def outlook(conn: Connection, job_id: UUID) -> Outlook:
    async with conn.cursor(row_factory=class_row(Outlook)) as cursor:
        await cursor.execute(sql("job/outlook"), {"job_id": job_id})
        row = await cursor.fetchone()
    if row is None:
        raise UnknownJob(f"there is no job {job_id}")
    return row
