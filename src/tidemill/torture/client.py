"""The client of a run: submits jobs by HTTP and by Python, and keeps the ledger of accepted jobs."""

import asyncio
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
from tidemill.core.errors import TidemillError, Unavailable
from tidemill.core.kinds import ENRICH_KIND
from tidemill.store.database import is_transient
from tidemill.torture.plan import PlannedJob
from tidemill.torture.workload import DATASET, SCHEMA, build_input

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
