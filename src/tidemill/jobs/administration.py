"""Administration of an installation: schema, old rows, invariants, health and workers."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, field

from tidemill.core.errors import InvalidSettings, Unavailable
from tidemill.store import doctor, migrate, retention, sql_scripts, workers
from tidemill.store.database import Database
from tidemill.store.open_database import build_psql_environment, find_psql

WORKER_SILENT_S = 30.0
QUEUE_AGE_DEGRADED_S = 300.0
OUTBOX_AGE_DEGRADED_S = 60.0


@dataclass(frozen=True, slots=True)
class SystemHealth:
    """Health of the system; ``status`` is ok, degraded (it works, but an operator should check it) or unfit."""

    database: str
    migrations: str
    workers: int = 0
    queue_age_s: float = 0.0
    open_jobs: int = 0
    broker: str | None = None
    outbox: int = 0
    outbox_age_s: float = 0.0
    quarantined: int = 0
    disconnected: int = 0  # open batches whose transactions lost their connection
    unserved: Mapping[str, int] = field(default_factory=dict)  # kinds without a live worker, and their open jobs

    @property
    def is_operational(self) -> bool:
        return self.database == "ok" and self.migrations == "ok"

    @property
    def status(self) -> str:
        if not self.is_operational:
            return "unfit"
        return "degraded" if self.reasons else "ok"

    @property
    def reasons(self) -> list[str]:
        """Why the status is not ok."""
        if self.database != "ok":
            return [f"The database is {self.database}"]
        return self._degraded_reasons if self.migrations == "ok" else [self.migrations]

    @property
    def _degraded_reasons(self) -> list[str]:
        # Without a broker, no one sends the hints in the outbox.
        is_late = self.broker is not None and self.outbox_age_s > OUTBOX_AGE_DEGRADED_S
        checks = {
            f"The oldest due work has waited for {self.queue_age_s:.0f} s": self.queue_age_s > QUEUE_AGE_DEGRADED_S,
            "Jobs are open, but no worker is running": self.open_jobs and not self.workers,
            "The broker is not reachable; workers fall back to polling": self.broker == "lost",
            **{
                f'No worker serves "{kind}": {_format_waiting_jobs(n)}': self.workers
                for kind, n in self.unserved.items()
            },
            f"Transactions of {self.disconnected:,} open batches lost the database connection": self.disconnected,
            f"The oldest hint for the broker has waited for {self.outbox_age_s:.0f} s": is_late,
        }
        return [reason for reason, holds in checks.items() if holds]


def _format_waiting_jobs(n: int) -> str:
    return "1 job waits" if n == 1 else f"{n:,} jobs wait"


async def check_health(db: Database) -> SystemHealth:
    try:
        await migrate.check_schema(db)
        return SystemHealth("ok", "ok", **asdict(await db.read(workers.read_work_summary, WORKER_SILENT_S)))
    except Unavailable as error:
        return SystemHealth("ok", str(error))
    except Exception:  # noqa: BLE001  details are not for unauthenticated callers
        return SystemHealth("not reachable", "unknown")


async def migrate_schema(db: Database) -> list[str]:
    """Migrate the schema to the current version and return the names of the applied migrations."""
    return await migrate.migrate_schema(db)


async def purge_jobs(db: Database, min_age_s: float) -> list[str]:
    """Drop the rows of jobs that closed longer ago, in complete weeks, and return the names of the weeks."""
    return await retention.purge_old_weeks(db, min_age_s)


async def check_installation(db: Database) -> list[doctor.Finding]:
    """Check the settings of the database server and all invariants of the engine."""
    return await doctor.check_server_and_invariants(db)


async def list_live_kinds(db: Database) -> set[str]:
    """Return every kind that a running worker serves."""
    return await db.read(workers.list_live_kinds)


async def list_workers(db: Database) -> list[workers.WorkerRecord]:
    """Return the registered workers with their last reports."""
    return await db.read(workers.list_workers)


def run_user_sql(
    db: Database, text: str, name: str, *, row_limit: int, as_text: bool
) -> AsyncIterator[sql_scripts.StatementResult]:
    """Run the SQL statements of a text, whose name is for messages, and yield the result of each statement.

    Raises:
        InvalidInput: The text contains no statement.
        InvalidSql: A statement failed.
    """
    sql_scripts.check_sql_script_text(text, name)
    return sql_scripts.run_statements(db, text, row_limit=row_limit, as_text=as_text)


async def run_psql(db: Database) -> int:
    """Run psql on the database with this terminal, and return its exit code; raise InvalidSettings if it is missing."""
    program = find_psql()
    if program is None:
        raise InvalidSettings('psql is not installed. Use `tidemill sql FILE.sql` or `tidemill sql -c "SELECT …"`.')
    # The terminal sends Ctrl-C to both processes. Only psql may act on it: it cancels the query.
    previous = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        psql = await asyncio.create_subprocess_exec(program, env=os.environ | build_psql_environment(db.url))
        return await psql.wait()
    finally:
        signal.signal(signal.SIGINT, previous)
