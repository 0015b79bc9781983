"""Combines the queries of rows that arrive at about the same time into one request."""

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemill.core.outcome import Outcome
from tidemill.enrichment.external_service import (
    NOT_FOUND_STATUSES,
    ServiceCallError,
    describe_http_status,
    make_invalid_answer_error,
)
from tidemill.enrichment.match_request import MatchQuery
from tidemill.enrichment.reconciliation import (
    MatchCandidate,
    ReconciliationAnswer,
    decode_answers,
    encode_queries,
    get_batch_size_from_manifest,
    parse_json_object,
)
from tidemill.enrichment.service_client import ActiveCheck, ServiceClient

QUERY_BATCH_WAIT_S = 0.005  # how long a request that is not full waits for more rows
DEFAULT_QUERY_BATCH_SIZE = 10  # rows per request if the service's manifest has no batch size
QUERY_BATCH_SIZE_MAX = 200  # even if the service accepts more
MANIFEST_RETRY_S = 300.0  # delay before the manifest is requested again after an error


@dataclass(eq=False, slots=True)
class QueuedMatchQuery:
    """A row that waits for its candidates."""

    id: str
    query: MatchQuery
    answer: "asyncio.Future[list[MatchCandidate]]"


class MatchQueryBatcher:
    """Sends the rows of one job to one service."""

    def __init__(self, client: ServiceClient, check_active: ActiveCheck) -> None:
        self._client = client
        self._check_active = check_active
        self._waiting: deque[QueuedMatchQuery] = deque()
        self._alone: deque[QueuedMatchQuery] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_dispatching = False

    @property
    def is_idle(self) -> bool:
        return not self._tasks

    async def fetch_candidates(self, id_: str, query: MatchQuery, *, alone: bool = False) -> list[MatchCandidate]:
        """Return the candidates of a row. With ``alone``, send the row in its own request."""
        queued = QueuedMatchQuery(id_, query, asyncio.get_running_loop().create_future())
        (self._alone if alone else self._waiting).append(queued)
        if not self._is_dispatching:
            self._is_dispatching = True
            self._start_task(self._dispatch_batches())
        return await queued.answer

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start_task(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dispatch_batches(self) -> None:
        """Send a request whenever a slot is free. Rows that arrive before that join the request."""
        try:
            while self._waiting or self._alone:
                await self._client.acquire_slot()
                if not await self._start_next_batch():
                    self._client.release_slot()
        finally:
            self._is_dispatching = False

    async def _start_next_batch(self) -> bool:
        """Return whether a request now uses the slot. An error before the request fails all waiting rows."""
        try:
            batch = await self._collect_next_batch()
        except Exception as error:  # noqa: BLE001  rows must not wait forever
            _fail_queries([*self._alone, *self._waiting], error)
            self._alone.clear()
            self._waiting.clear()
            return False
        if batch:
            self._start_task(self._send_or_bisect_batch(batch))
        return bool(batch)

    async def _collect_next_batch(self) -> list[QueuedMatchQuery]:
        """Return the next rows that still wait for candidates. A row with ``alone`` is a batch of one."""
        size = await get_or_fetch_query_batch_size(self._client, self._check_active)
        if len(self._waiting) < size and not self._alone:
            await asyncio.sleep(QUERY_BATCH_WAIT_S)
        queue, max_rows = (self._alone, 1) if self._alone else (self._waiting, size)
        batch: list[QueuedMatchQuery] = []
        while queue and len(batch) < max_rows:
            queued = queue.popleft()
            if not queued.answer.done():
                batch.append(queued)
        return batch

    async def _send_or_bisect_batch(self, batch: list[QueuedMatchQuery]) -> None:
        try:
            error = await self._send_batch(batch)
            if error is not None:
                await self._bisect_batch(batch, error)
        except Exception as error:  # noqa: BLE001  every error fails the waiting rows
            _fail_queries(batch, error)
        finally:
            for queued in batch:
                queued.answer.cancel()  # when the process ends, rows must not wait forever
            self._client.release_slot()

    async def _send_batch(self, batch: Sequence[QueuedMatchQuery]) -> ServiceCallError | None:
        """Send the rows and set their candidates. Return the error if the whole request failed."""
        try:
            answers = await self._fetch_answers({queued.id: queued.query for queued in batch})
        except ServiceCallError as error:
            return error
        except Outcome as outcome:  # the job was cancelled or deleted
            _fail_queries(batch, outcome)
            return None
        for queued in batch:
            answer = answers[queued.id]
            if isinstance(answer, str):
                _fail_queries([queued], make_invalid_answer_error(answer))
            elif not queued.answer.done():
                queued.answer.set_result(answer)
        return None

    async def _bisect_batch(self, batch: Sequence[QueuedMatchQuery], error: ServiceCallError) -> None:
        """Bisect the batch to find the row that causes the error.

        If both halves fail with transient errors, the service is the cause and all rows fail with the error.
        """
        if len(batch) == 1 or not error.is_splittable:
            _fail_queries(batch, error)
            return
        middle = len(batch) // 2
        halves = [batch[:middle], batch[middle:]]
        failed = [(half, cause) for half in halves if (cause := await self._send_batch(half)) is not None]
        if len(failed) == len(halves) and error.is_transient and all(cause.is_transient for _, cause in failed):
            _fail_queries(batch, error)
            return
        for half, cause in failed:
            await self._bisect_batch(half, cause)

    async def _fetch_answers(self, queries: Mapping[str, MatchQuery]) -> dict[str, ReconciliationAnswer]:
        protocol = self._client.service.protocol
        message = encode_queries(queries, protocol)
        headers = [("Content-Type", message.content_type)]
        response = await self._client.send(
            "POST",
            message.path,
            check_active=self._check_active,
            headers=headers,
            content=message.body,
            rows=len(queries),
        )
        if response.status in NOT_FOUND_STATUSES:
            raise ServiceCallError("service_refused", f"The service returned {describe_http_status(response.status)}")
        return decode_answers(response.body, queries, protocol)


def _fail_queries(batch: Sequence[QueuedMatchQuery], error: BaseException) -> None:
    for queued in batch:
        if not queued.answer.done():
            queued.answer.set_exception(error)


async def get_or_fetch_query_batch_size(client: ServiceClient, check_active: ActiveCheck) -> int:
    """Return the declared batch size, or the one in the service's manifest, or the default.

    A failed manifest request is retried after ``MANIFEST_RETRY_S``.
    """
    if client.service.batch is not None:
        return client.service.batch
    if client.batch_size is None and time.monotonic() >= client.manifest_retry_at:
        client.manifest_retry_at = time.monotonic() + MANIFEST_RETRY_S
        try:
            response = await client.send("GET", "", check_active=check_active, rows=0)
            client.batch_size = min(
                get_batch_size_from_manifest(parse_json_object(response.body)) or DEFAULT_QUERY_BATCH_SIZE,
                QUERY_BATCH_SIZE_MAX,
            )
        except Exception:  # noqa: BLE001, S110  the queries that follow report the error
            pass
    return client.batch_size or DEFAULT_QUERY_BATCH_SIZE
