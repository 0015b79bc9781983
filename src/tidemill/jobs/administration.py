"""Maintenance of an installation: its schema, its old rows, its invariants and its workers."""

from tidemill.store import doctor, migrate, retention, workers
from tidemill.store.database import Database


async def migrate_schema(db: Database) -> list[str]:
    """Bring the schema up to date; the names of the migrations that ran."""
    return await migrate.migrate_schema(db)


async def purge_jobs(db: Database, min_age_s: float) -> list[str]:
    """Drop the rows of jobs that were closed longer ago, in whole weeks; the names of the weeks."""
    return await retention.purge_old_weeks(db, min_age_s)


async def check_installation(db: Database) -> list[doctor.Finding]:
    """Check the server's settings and every invariant of the engine."""
    return await doctor.check_database(db)


async def list_workers(db: Database) -> list[workers.WorkerRecord]:
    """The workers that are registered, with what they reported last."""
    return await db.read(workers.list_workers)
