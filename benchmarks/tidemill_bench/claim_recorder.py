"""Records the claims of worker processes: their durations, and whether a lane found nothing although work was due."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from tidemill.core.batch import Lease
from tidemill.engine.lane import FairClaimer
from tidemill.store.database import Connection
from tidemill.store.statements import make_sql_loader

sql = make_sql_loader("tidemill_bench")
CLAIM_FOLDER_VARIABLE = "BENCH_CLAIM_FOLDER"
WRITE_INTERVAL_S = 0.5
CLAIMED, IDLE, FALSE_IDLE = "claimed", "idle", "false idle"


def record_claims_if_requested() -> None:
    """Record the claims of this process, if the variable names a folder. The mill calls this in each child."""
    folder = os.environ.get(CLAIM_FOLDER_VARIABLE)
    if folder is not None:
        _wrap_claim(Path(folder))


def _wrap_claim(folder: Path) -> None:
    claim, lines, written_at = FairClaimer.claim, list[str](), 0.0

    async def claim_and_record(self: FairClaimer, lease_id: UUID, lane: object = None) -> Lease | None:
        nonlocal written_at
        started = time.monotonic()
        lease = await claim(self, lease_id, lane)
        now = time.monotonic()
        result = CLAIMED if lease is not None else IDLE
        # A lane that is kept for other owners is not idle by mistake: the claimer still has the list of jobs.
        if lease is None and not self._runnable_jobs and await self._context.db.run(_is_claimable):
            result = FALSE_IDLE
        lines.append(f"{now:.4f}\t{(now - started) * 1000:.3f}\t{result}\n")
        if lease is None or now - written_at > WRITE_INTERVAL_S:  # a short job ends within the interval
            written_at = now
            with (folder / f"{os.getpid()}.claims").open("a") as file:
                file.writelines(lines)
            lines.clear()
        return lease

    FairClaimer.claim = claim_and_record  # type: ignore[method-assign]


async def _is_claimable(conn: Connection) -> bool:
    return await (await conn.execute(sql("find_claimable"))).fetchone() is not None


@dataclass(frozen=True, slots=True)
class RecordedClaims:
    """The claims of all processes: the durations of successful ones in milliseconds, and the number of each result."""

    durations_ms: Sequence[float]
    idle: int
    false_idle: int
    seconds: float  # from the first to the last successful claim

    @property
    def per_s(self) -> float:
        return len(self.durations_ms) / self.seconds if self.seconds else 0.0

    @property
    def false_idle_percent(self) -> float:
        """False idles per hundred claims that could have succeeded."""
        return 100 * self.false_idle / max(1, len(self.durations_ms) + self.false_idle)


def read_claims(folder: Path, since: float = 0.0) -> RecordedClaims:
    """Return the claims since a time of the monotonic clock, which all processes of a machine share."""
    lines = [line.split("\t") for path in folder.glob("*.claims") for line in path.read_text().splitlines()]
    found = [(float(at), float(ms), result) for at, ms, result in lines if float(at) >= since]
    times = sorted(at for at, _, result in found if result == CLAIMED)
    return RecordedClaims(
        durations_ms=[ms for _, ms, result in found if result == CLAIMED],
        idle=sum(result == IDLE for *_, result in found),
        false_idle=sum(result == FALSE_IDLE for *_, result in found),
        seconds=times[-1] - times[0] if times else 0.0,
    )
