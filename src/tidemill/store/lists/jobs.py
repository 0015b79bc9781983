"""Jobs, the newest first."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tidemill.domain.job import Job
from tidemill.domain.page import Page, Walk, identity, mark_of
from tidemill.domain.scan import BATCH_BUDGET
from tidemill.domain.search import Ids, ids_of
from tidemill.domain.status import JobStatus
from tidemill.store.database import Connection, one_statement
from tidemill.store.jobs import get_many
from tidemill.store.lists.fetch import Row, rows

WALK = Walk("jobs", (identity,))


@dataclass(frozen=True, slots=True)
class Asked:
    """Which jobs. ``q`` is the beginning of a key or an id."""

    owner_id: int | None = None
    statuses: Sequence[JobStatus] = ()
    kind: str | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None
    q: str | None = None

    @property
    def mark(self) -> str:
        made = (self.created_from, self.created_to)
        return mark_of(self.owner_id, sorted(set(self.statuses)), self.kind, *made, self.q)

    @property
    def ids(self) -> Ids | None:
        found = Ids() if self.q is None else ids_of(self.q)
        return None if found is None else found.created(self.created_from, self.created_to)

    @property
    def words(self) -> list[str] | None:
        """What may turn out to be one of the statuses: whether a job has begun only its sums can tell."""
        words = {status.value for status in self.statuses if status is not JobStatus.PENDING}
        if JobStatus.PENDING in self.statuses:
            words |= {JobStatus.RUNNING, JobStatus.INGESTING}
        return sorted(words) or None


@one_statement  # and a second one, that tells again of what the first has picked
async def list_jobs(conn: Connection, asked: Asked, *, limit: int, after: object = None) -> Page[Job]:
    """A page may be short and not the last: only so many jobs are looked at."""
    place = None if after is None else WALK.read(after, asked.mark)[0]
    ids = asked.ids
    if ids is not None and place is not None:
        ids = ids.before(place)
    if ids is None or ids.is_empty:
        return Page([], None)
    found = await _pick(conn, asked, ids, limit)
    picked: list[UUID] = [row["id"] for row in found[:limit] if not row["is_end"]]
    jobs = await get_many(conn, picked)
    shown = [job for job in jobs if not asked.statuses or job.status in asked.statuses]
    if len(found) > limit:
        return Page(shown, WALK.place(asked.mark, picked[-1]))
    if found and found[-1]["is_end"]:
        return Page(shown, WALK.place(asked.mark, UUID(int=found[-1]["id"].int + 1)))
    return Page(shown, None)


async def _pick(conn: Connection, asked: Asked, ids: Ids, limit: int) -> list[Row]:
    params = {
        "lo": ids.lo,
        "hi": ids.hi,
        "prefix": ids.prefix,
        "words": asked.words,
        "kind": asked.kind,
        "created_from": asked.created_from,
        "created_to": asked.created_to,
        "budget": BATCH_BUDGET,
        "limit": limit + 1,
    }
    if asked.owner_id is None:
        return await rows(conn, "job/pick_of_all", params)
    return await rows(conn, "job/pick_of_owner", params | {"owner_id": asked.owner_id})
