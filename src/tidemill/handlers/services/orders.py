"""What jobs were asked to do, read once for all their items; and whether anybody still wants it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar
from uuid import UUID

from tidemill.domain.errors import InvalidRequest, UnknownJob
from tidemill.domain.outcome import Fail, Wait
from tidemill.handlers.together import Together
from tidemill.store import jobs
from tidemill.store.database import Database

JOBS_KEPT = 64
T = TypeVar("T")


class Orders(Generic[T]):
    """``read`` makes a request of a job's params."""

    def __init__(self, db: Database, read: Callable[[Mapping[str, Any]], T]) -> None:
        self._db = db
        self._read = read
        self._known: dict[UUID, T] = {}
        self._asked: Together[UUID, dict[str, Any] | None] = Together(self._find)
        self._wanted: Together[UUID, bool] = Together(self._look)

    async def of(self, job_id: UUID) -> T:
        found = self._known.get(job_id)
        return found if found is not None else await self._learn(job_id)

    async def insist(self, job_id: UUID) -> None:
        """Nobody is asked for a job that is deleted or is to be cancelled; its items go back as they are."""
        if not await self._wanted.ask(job_id):
            raise Wait("nobody wants this any more", after=1.0, code="unwanted")

    async def _learn(self, job_id: UUID) -> T:
        params = await self._asked.ask(job_id)
        if params is None:
            raise Fail("the job is gone", code="job_gone")
        try:
            request = self._read(params)
        except InvalidRequest as error:
            raise Fail(str(error), code="invalid") from None
        while len(self._known) >= JOBS_KEPT:
            del self._known[next(iter(self._known))]
        self._known[job_id] = request
        return request

    async def _find(self, job_ids: Sequence[UUID]) -> list[dict[str, Any] | None]:
        return [await self._params(job_id) for job_id in job_ids]

    async def _params(self, job_id: UUID) -> dict[str, Any] | None:
        try:
            return await self._db.run(jobs.params, job_id)
        except UnknownJob:
            return None

    async def _look(self, job_ids: Sequence[UUID]) -> list[bool]:
        going_on = await self._db.run(jobs.going_on, job_ids)
        return [job_id in going_on for job_id in job_ids]
