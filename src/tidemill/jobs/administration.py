"""Maintenance of an installation: its schema, its old rows, its invariants and its workers."""

from dataclasses import asdict, dataclass

from tidemill.core.errors import Unavailable
from tidemill.store import doctor, migrate, retention, workers
from tidemill.store.database import Database

WORKER_SILENT_S = 30.0
QUEUE_AGE_DEGRADED_S = 300.0
OUTBOX_AGE_DEGRADED_S = 60.0


@dataclass(frozen=True, slots=True)
class SystemHealth:
    """``status`` is ok, degraded (it works, somebody should look), or unfit."""

    database: str
    migrations: str
    workers: int = 0
    queue_age_s: float = 0.0
    open_jobs: int = 0
    broker: str | None = None
    outbox: int = 0
    outbox_age_s: float = 0.0
    quarantined: int = 0

    @property
    def is_operational(self) -> bool:
        return self.database == "ok" and self.migrations == "ok"

    @property
    def status(self) -> str:
        if not self.is_operational:
            return "unfit"
        return "degraded" if self.degraded_reasons else "ok"

    @property
    def degraded_reasons(self) -> list[str]:
        """Why somebody should look, although it works."""
        is_late = (
            self.broker is not None and self.outbox_age_s > OUTBOX_AGE_DEGRADED_S
        )  # without one, nobody waits for it
        found = {
            f"work that is due has waited for {self.queue_age_s:.0f} s": self.queue_age_s > QUEUE_AGE_DEGRADED_S,
            "there are open jobs and no worker": self.open_jobs and not self.workers,
            "the broker is lost; work goes on by polling": self.broker == "lost",
            f"hints have waited for the broker for {self.outbox_age_s:.0f} s": is_late,
        }
        return [reason for reason, holds in found.items() if holds]


async def check_health(db: Database) -> SystemHealth:
    try:
        await migrate.check_schema(db)
        return SystemHealth("ok", "ok", **asdict(await db.read(workers.read_work_summary, WORKER_SILENT_S)))
    except Unavailable as error:
        return SystemHealth("ok", str(error))
    except Exception:  # noqa: BLE001  whatever it is, it is not well; strangers need not know more
        return SystemHealth("not reachable", "unknown")


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
