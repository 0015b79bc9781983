"""Is the installation fit to work?"""

from dataclasses import dataclass

from tidemill.domain.errors import Unavailable
from tidemill.store import migrate, workers
from tidemill.store.database import Database

SILENT_S = 30.0
OLD_S = 300.0


@dataclass(frozen=True, slots=True)
class Health:
    """``status`` is ok, degraded (it works, somebody should look), or unfit."""

    database: str
    migrations: str
    workers: int = 0
    queue_age_s: float = 0.0
    open_jobs: int = 0

    @property
    def is_fit(self) -> bool:
        return self.database == "ok" and self.migrations == "ok"

    @property
    def status(self) -> str:
        if not self.is_fit:
            return "unfit"
        return "degraded" if self.queue_age_s > OLD_S or (self.open_jobs and not self.workers) else "ok"


async def examine(db: Database) -> Health:
    try:
        await migrate.check_schema(db)
        return Health("ok", "ok", **await db.run(workers.at_work, SILENT_S))
    except Unavailable as error:
        return Health("ok", str(error))
    except Exception:  # noqa: BLE001  whatever it is, it is not well; strangers need not know more
        return Health("not reachable", "unknown")
