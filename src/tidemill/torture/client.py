"""The client of a run: submits jobs by HTTP and by Python, and keeps the ledger of accepted jobs."""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import httpx2

from tidemill.app.mill import Mill
from tidemill.core.errors import Conflict, InvalidInput, TidemillError, Unavailable, UnknownEntity
from tidemill.core.kinds import ENRICH_KIND
from tidemill.core.status import ItemStatus
from tidemill.jobs import job_control, reprocessing
from tidemill.store.database import Database, is_transient
from tidemill.store.reprocess_items import ReprocessSelection
from tidemill.torture.plan import PlannedJob, PlannedOperation, pick_one
from tidemill.torture.workload import DATASET, ITEM_KIND, OWN_KINDS, SCHEMA, build_input

T = TypeVar("T")
CALL_TIMEOUT_S, ANSWER_DEADLINE_S, RETRY_PAUSE_S = 10.0, 180.0, 0.3
FATES = {"done": 80, "retry": 8, "fail": 6, "skip": 3, "missing": 3}
INVALID_ROW_EVERY = 37  # of an import
MISSING_ROW_EVERY = 11  # of an enrichment


@dataclass(eq=False)
class ClientJob:
    """An accepted job, as the client knows it."""

    id: UUID
    what: str
    rows: int
    idempotency_key: str
    fates: list[str] = field(default_factory=list)  # the expected outcome of each row
    may_be_cancelled: bool = False
    fixed: set[int] = field(default_factory=set)


class NoAnswer(Exception):
    """The client got no usable answer within its deadline."""


class Client:
    """Calls the API and a mill. It repeats each call until it gets an answer."""

    def __init__(self, url: str, key: str, owner_id: int, mill: Mill, folder: Path, service_url: str) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        self._http = httpx2.AsyncClient(base_url=url, headers=headers, timeout=CALL_TIMEOUT_S, trust_env=False)
        self._owner_id = owner_id
        self.mill = mill
        self._folder = folder
        self._service_url = service_url
        self.jobs: list[ClientJob] = []
        self.suspects: list[ClientJob] = []  # jobs with violations, which stay as evidence
        self.deleted: list[UUID] = []
        self.operations = 0

    async def close(self) -> None:
        await self._http.aclose()
        await self.mill.close_async()

    async def call(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Return the first answer that is not a server error."""

        async def send() -> httpx2.Response:
            response = await self._http.request(method, f"/v1{path}", **options)
            if response.is_server_error or response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
                raise Unavailable(f"{method} {path}: {response.status_code} {response.text[:200]}")
            return response

        return await repeat_until_answered(send)

    async def call_mill(self, send: Callable[[], Awaitable[T]]) -> T:
        async def send_in_time() -> T:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                return await send()

        return await repeat_until_answered(send_in_time)

    async def submit(self, planned: PlannedJob, key: str) -> None:
        """Submit a job, and add it to the ledger. All repeated calls have the same key, so that one job exists."""
        n, what = planned.rows, planned.what
        rng = random.Random(planned.seed)  # noqa: S311  not for cryptography
        options: dict[str, Any] = {"owner_id": self._owner_id, "idempotency_key": key}
        path = "/jobs"
        body: dict[str, Any]
        call: Callable[..., Awaitable[UUID]] = self.mill.submit_async
        match what:
            case "export":
                fates, path, body = ["done"], "/exports", {"resource": f"{SCHEMA}.source"}
                call = self.mill.submit_export_async
            case "insert" | "upsert":
                fates = ["fail" if row % INVALID_ROW_EVERY == 1 else "done" for row in range(n)]
                path, body = "/imports", {"resource": f"{SCHEMA}.target", "mode": what}
                call = partial(self.mill.submit_import_async, self._write_csv(key, fates))
            case "distribution":
                fates, path = ["done"] * n, "/distributions"
                body = {"inputs": [{"run": key, "n": row} for row in range(n)], "policy": {"mode": "continue"}}
                body["dataset"] = DATASET
                call = self.mill.submit_distribution_async
            case "enrich":
                fates = ["missing" if row % MISSING_ROW_EVERY == 0 else "done" for row in range(n)]
                params = {"service": self._service_url, "path": "/rows/{n}", "fields": {"n": "$.n"}}
                body = {"kind": ENRICH_KIND, "inputs": [{"n": row} for row in range(n)], "params": params}
            case kind:
                fates = rng.choices(list(FATES), list(FATES.values()), k=n)
                inputs = [build_input(row, fate, rng.randrange(2, 25)) for row, fate in enumerate(fates)]
                body = {"kind": kind, "inputs": inputs}
        if planned.by_http:
            job_id = await self._post_job(path, key, body)
        else:
            job_id = await self.call_mill(partial(call, **body, **options))
        self.jobs.append(ClientJob(job_id, what, n, key, fates))

    def _write_csv(self, key: str, fates: list[str]) -> Path:
        lines = (f"{key}-{n},{'x' if fate == 'fail' else n},1\n" for n, fate in enumerate(fates))
        path = self._folder / f"{key}.csv"
        path.write_text("id,n,version\n" + "".join(lines))
        return path

    async def _post_job(self, path: str, key: str, body: dict[str, Any]) -> UUID:
        sent: dict[str, Any] = {"json": body}
        if path == "/imports":
            file = self._folder / f"{key}.csv"
            sent = {"data": body, "files": {"file": (file.name, await asyncio.to_thread(file.read_bytes), "text/csv")}}
        response = await self.call("POST", path, headers={"Idempotency-Key": key}, **sent)
        if response.is_client_error:
            raise TidemillError(f"POST {path} was refused: {response.status_code} {response.text[:500]}")
        answer = response.json()
        return UUID(answer.get("job_id") or answer["id"])


async def repeat_until_answered(send: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call that failed because a process or a connection ended.

    Raises:
        NoAnswer: All calls within the deadline failed.
    """
    deadline = time.monotonic() + ANSWER_DEADLINE_S
    while True:
        try:
            return await send()
        except Exception as error:
            if not isinstance(error, httpx2.HTTPError | TimeoutError | Unavailable) and not is_transient(error):
                raise
            if time.monotonic() > deadline:
                raise NoAnswer(f"no answer for {ANSWER_DEADLINE_S:g} s: {error!r}") from error
            await asyncio.sleep(RETRY_PAUSE_S)


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
                    await self._send_request_or_call(
                        planned.by_http, "POST", f"/jobs/{job.id}/{planned.verb}", None, call
                    )
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
            await self._send_request_or_call(
                by_http, "DELETE", f"/jobs/{job.id}", None, partial(job_control.delete_job, job_id=job.id)
            )
        for known in (self._client.jobs, self._client.suspects):
            if job in known:
                known.remove(job)
        self._client.deleted.append(job.id)

    async def _reprocess(self, job: ClientJob, *, by_http: bool) -> None:
        """Run failed and cancelled items again; also done items, if a handler may repeat their effects."""
        statuses = ["failed", "cancelled"] + (["done"] if job.what == ITEM_KIND else [])
        choice = ReprocessSelection(statuses=[ItemStatus(status) for status in statuses])
        call = partial(reprocessing.reprocess_items, job_id=job.id, choice=choice, user_id=self._owner_id)
        await self._send_request_or_call(by_http, "POST", f"/jobs/{job.id}/reprocess", {"statuses": statuses}, call)

    async def _redrive(self, job: ClientJob, *, by_http: bool) -> None:
        filters = {"jobs": [str(job.id)]}
        call = partial(
            reprocessing.run_dead_letter_operation,
            owner_id=self._owner_id,
            filters=filters,
            user_id=self._owner_id,
        )
        await self._send_request_or_call(by_http, "POST", "/dead-letters/redrive", {"job_id": str(job.id)}, call)

    async def _fix(self, job: ClientJob, *, by_http: bool) -> None:
        """Fix some failed items, and run them again."""
        if job.what not in OWN_KINDS:
            return
        seqs = [seq for seq, fate in enumerate(job.fates) if fate == "fail" and seq not in job.fixed][:FIXED_ITEMS_MAX]
        for seq in seqs:
            given = build_input(seq, "done", 1)
            job.fixed.add(seq)  # also if there is no answer: the item may be done or failed from now on
            call = partial(reprocessing.record_item_fix, job_id=job.id, seq=seq, input=given, by=self._owner_id)
            await self._send_request_or_call(by_http, "PATCH", f"/jobs/{job.id}/items/{seq}", {"input": given}, call)
        choice = ReprocessSelection(statuses=[ItemStatus.FAILED], seqs=seqs)
        await self._call_use_case(
            partial(reprocessing.reprocess_items, job_id=job.id, choice=choice, user_id=self._owner_id)
        )

    async def _send_request_or_call(
        self, by_http: bool, method: str, path: str, body: Any, call: Callable[[Database], Awaitable[object]]
    ) -> None:
        """Send a request, or call the same use case; raise one of REFUSALS if the job does not allow it."""
        if not by_http:
            await self._call_use_case(call)
            return
        response = await self._client.call(method, path, json=body)
        if response.status_code == HTTPStatus.NOT_FOUND:
            raise UnknownEntity(response.text[:500])
        if response.is_client_error:
            raise Conflict(response.text[:500])

    async def _call_use_case(self, call: Callable[[Database], Awaitable[object]]) -> None:
        async def call_with_database() -> None:
            await call(await self._client.mill.shared_database.get_for_running_loop())

        await self._client.call_mill(call_with_database)
