"""Caches the requests of jobs, and whether the jobs are still active."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar
from uuid import UUID

from tidemill.core.errors import InvalidRequest, UnknownJob
from tidemill.core.json_input import JsonObject
from tidemill.core.lookup_coalescer import Coalescer
from tidemill.core.outcome import Fail, Wait
from tidemill.store import job_records
from tidemill.store.database import Database

JOB_REQUESTS_CACHED_MAX = 64
T = TypeVar("T")


class JobRequestCache(Generic[T]):
    """Caches the requests of jobs, so that ``read`` parses the params of a job once for all its items."""

    def __init__(self, db: Database, read: Callable[[Mapping[str, Any]], T]) -> None:
        self._db = db
        self._read = read
        self._requests: dict[UUID, T] = {}
        self._params_lookups: Coalescer[UUID, JsonObject | None] = Coalescer(self._read_params_of_jobs)
        self._active_lookups: Coalescer[UUID, bool] = Coalescer(self._read_active_flags)

    async def get(self, job_id: UUID) -> T:
        request = self._requests.get(job_id)
        return request if request is not None else await self._read_and_cache_request(job_id)

    async def check_active(self, job_id: UUID) -> None:
        """Raise Wait, which requeues the item unchanged, if the job was cancelled or deleted."""
        if not await self._active_lookups.get(job_id):
            raise Wait("The job was cancelled or deleted", after=1.0, code="unwanted")

    async def _read_and_cache_request(self, job_id: UUID) -> T:
        params = await self._params_lookups.get(job_id)
        if params is None:
            raise Fail("The job was deleted", code="job_gone")
        try:
            request = self._read(params)
        except InvalidRequest as error:
            raise Fail(str(error), code="invalid") from None
        while len(self._requests) >= JOB_REQUESTS_CACHED_MAX:
            del self._requests[next(iter(self._requests))]
        self._requests[job_id] = request
        return request

    async def _read_params_of_jobs(self, job_ids: Sequence[UUID]) -> list[JsonObject | None]:
        return [await self._read_params(job_id) for job_id in job_ids]

    async def _read_params(self, job_id: UUID) -> JsonObject | None:
        try:
            return await self._db.run(job_records.read_job_params, job_id)
        except UnknownJob:
            return None

    async def _read_active_flags(self, job_ids: Sequence[UUID]) -> list[bool]:
        active = await self._db.read(job_records.find_active_job_ids, job_ids)
        return [job_id in active for job_id in job_ids]
