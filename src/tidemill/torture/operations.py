"""Random operations on the jobs of a run, by HTTP and by Python."""

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any

from tidemill.core.errors import Conflict, InvalidInput, UnknownEntity
from tidemill.core.status import ItemStatus
from tidemill.jobs import job_control, reprocessing
from tidemill.store.database import Database
from tidemill.store.reprocess_items import ReprocessSelection
from tidemill.torture.client import Client, ClientJob
from tidemill.torture.plan import PlannedOperation, pick_one
from tidemill.torture.workload import ITEM_KIND, OWN_KINDS, build_input

FIXED_ITEMS_MAX = 5
MIN_JOBS_AFTER_DELETE = 4
REFUSALS = (Conflict, InvalidInput, UnknownEntity)  # the state of the job does not allow the operation
CONTROLS = {"pause": job_control.pause_job, "resume": job_control.resume_job, "cancel": job_control.cancel_job}


class Operations:
    """Runs the planned operations of a run."""

    def __init__(self, client: Client, owner_id: int) -> None:
        self._client = client
        self._owner_id = owner_id

    async def run(self, planned: PlannedOperation) -> None:
        if not self._client.jobs:
            return
        job = pick_one(self._client.jobs, planned.pick)
        try:
            match planned.verb:
                case "reprocess":
                    await self._reprocess(job, by_http=planned.by_http)
                case "redrive":
                    await self._redrive(job, by_http=planned.by_http)
                case "fix":
                    await self._fix(job, by_http=planned.by_http)
                case "delete" if len(self._client.jobs) > MIN_JOBS_AFTER_DELETE:
                    await self.delete(job, by_http=planned.by_http)
                case "pause" | "resume" | "cancel":
                    job.may_be_cancelled |= planned.verb == "cancel"
                    call = partial(CONTROLS[planned.verb], job_id=job.id, by=self._owner_id)
                    await self._send(planned.by_http, "POST", f"/jobs/{job.id}/{planned.verb}", None, call)
        except REFUSALS:
            return
        self._client.operations += 1

    async def delete(self, job: ClientJob, *, by_http: bool) -> None:
        """Delete a job. If it is unknown, an earlier request has deleted it.

        Raises:
            Conflict: A worker still writes rows of the job, which stays in the ledger.
        """
        job.may_be_cancelled = True  # the first step of a deletion
        with contextlib.suppress(UnknownEntity):
            await self._send(by_http, "DELETE", f"/jobs/{job.id}", None, partial(job_control.delete_job, job_id=job.id))
        for known in (self._client.jobs, self._client.suspects):
            if job in known:
                known.remove(job)
        self._client.deleted.append(job.id)

    async def _reprocess(self, job: ClientJob, *, by_http: bool) -> None:
        """Run failed and cancelled items again; also done items, if a handler may repeat their effects."""
        statuses = ["failed", "cancelled"] + (["done"] if job.what == ITEM_KIND else [])
        choice = ReprocessSelection(statuses=[ItemStatus(status) for status in statuses])
        call = partial(reprocessing.reprocess_items, job_id=job.id, choice=choice, user_id=self._owner_id)
        await self._send(by_http, "POST", f"/jobs/{job.id}/reprocess", {"statuses": statuses}, call)

    async def _redrive(self, job: ClientJob, *, by_http: bool) -> None:
        filters = {"jobs": [str(job.id)]}
        call = partial(
            reprocessing.run_dead_letter_operation,
            owner_id=self._owner_id,
            filters=filters,
            user_id=self._owner_id,
        )
        await self._send(by_http, "POST", "/dead-letters/redrive", {"job_id": str(job.id)}, call)

    async def _fix(self, job: ClientJob, *, by_http: bool) -> None:
        """Fix some failed items, and run them again."""
        if job.what not in OWN_KINDS:
            return
        seqs = [seq for seq, fate in enumerate(job.fates) if fate == "fail" and seq not in job.fixed][:FIXED_ITEMS_MAX]
        for seq in seqs:
            given = build_input(seq, "done", 1)
            job.fixed.add(seq)  # also if there is no answer: the item may be done or failed from now on
            call = partial(reprocessing.record_item_fix, job_id=job.id, seq=seq, input=given, by=self._owner_id)
            await self._send(by_http, "PATCH", f"/jobs/{job.id}/items/{seq}", {"input": given}, call)
        choice = ReprocessSelection(statuses=[ItemStatus.FAILED], seqs=seqs)
        await self._call(partial(reprocessing.reprocess_items, job_id=job.id, choice=choice, user_id=self._owner_id))

    async def _send(
        self, by_http: bool, method: str, path: str, body: Any, call: Callable[[Database], Awaitable[object]]
    ) -> None:
        """Send a request, or call the same use case; raise one of REFUSALS if the job does not allow it."""
        if not by_http:
            await self._call(call)
            return
        response = await self._client.call(method, path, json=body)
        if response.status_code == HTTPStatus.NOT_FOUND:
            raise UnknownEntity(response.text[:500])
        if response.is_client_error:
            raise Conflict(response.text[:500])

    async def _call(self, call: Callable[[Database], Awaitable[object]]) -> None:
        async def call_with_database() -> None:
            await call(await self._client.mill.shared_database.get_for_running_loop())

        await self._client.call_mill(call_with_database)
