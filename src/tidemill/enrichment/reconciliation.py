"""Requests and responses of the W3C Reconciliation API, and the choice of a candidate.

Supports version 0.2, which OpenRefine and most services use, and the draft of version 1.0.
"""

import asyncio
import json
import math
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict
from urllib.parse import urlencode

from tidemill.core.outcome import Outcome
from tidemill.enrichment.external_service import (
    NOT_FOUND_STATUSES,
    ReconciliationVersion,
    ServiceCallError,
    describe_http_status,
    make_invalid_answer_error,
)
from tidemill.enrichment.job_requests import MatchQuery, MatchRequest
from tidemill.enrichment.service_client import ActiveCheck, ServiceClient

CANDIDATE_ID_MAX_CHARS, CANDIDATE_NAME_MAX_CHARS, CANDIDATE_TYPES_MAX = 500, 500, 10


@dataclass(frozen=True, slots=True)
class MatchCandidate:
    id: str
    name: str
    score: float | None
    match: bool
    type: str | None

    def to_json(self) -> "CandidateJson":
        return {"id": self.id, "name": self.name, "score": self.score, "match": self.match, "type": self.type}


class CandidateJson(TypedDict):
    """A candidate in the result of a row. The id is None if no candidate was chosen."""

    id: str | None
    name: str | None
    score: float | None
    match: bool
    type: str | None


class MatchResult(CandidateJson):
    """The result of a row: the chosen candidate, the query and strategy, and all candidates."""

    query: str
    strategy: str
    candidates: list[CandidateJson]


def parse_candidates(given: Any, limit: int) -> list[MatchCandidate]:
    """Return at most ``limit`` candidates, best first. Raise ValueError if they cannot be parsed."""
    if not isinstance(given, list):
        raise ValueError("the candidates are not a list")  # noqa: TRY004  the caller handles ValueError only
    candidates = [_parse_candidate(one) for one in given[: 10 * limit]]
    return sorted(candidates, key=lambda one: -math.inf if one.score is None else one.score, reverse=True)[:limit]


def choose_candidate(candidates: Sequence[MatchCandidate], request: MatchRequest) -> MatchCandidate | None:
    """Return the only candidate that the service marks as a match, if the request accepts that.

    Otherwise return the best candidate if it reaches the threshold, or None.
    """
    if request.accept_match:
        matches = [one for one in candidates if one.match]
        if len(matches) == 1:
            return matches[0]
    best = candidates[0] if candidates else None
    if best is None or request.threshold is None or best.score is None or best.score < request.threshold:
        return None
    return best


def build_match_result(
    chosen: MatchCandidate | None, candidates: Sequence[MatchCandidate], query: MatchQuery
) -> MatchResult:
    """Return the result of a row. Without a match, the id is None and the score is that of the best candidate."""
    best: CandidateJson = {"id": None, "name": None, "score": None, "match": False, "type": None}
    if chosen is not None:
        best = {**chosen.to_json(), "match": True}
    elif candidates:
        best["score"] = candidates[0].score
    listed = [one.to_json() for one in candidates]
    return {**best, "query": query.text, "strategy": query.strategy, "candidates": listed}


def _parse_candidate(given: Any) -> MatchCandidate:
    if not isinstance(given, Mapping):
        raise ValueError("a candidate is not an object")  # noqa: TRY004  the caller handles ValueError only
    id_ = given.get("id")
    if isinstance(id_, int) and not isinstance(id_, bool):
        id_ = str(id_)
    if not isinstance(id_, str) or not 0 < len(id_) <= CANDIDATE_ID_MAX_CHARS:
        raise ValueError("a candidate has no id")
    return MatchCandidate(
        id_,
        _parse_name(given.get("name")) or id_,
        _parse_score(given),
        given.get("match") is True,
        _parse_type_names(given),
    )


def _parse_score(given: Mapping[str, Any]) -> float | None:
    score = given.get("score")
    if score is None:
        return None
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise ValueError(f"the score of a candidate is {type(score).__name__}, not a number")  # noqa: TRY004
    if not abs(score) <= sys.float_info.max:  # an integer may exceed the range of float
        raise ValueError("the score of a candidate is not finite or is too large")
    return float(score)


def _parse_name(given: Any) -> str:
    """Return the name. In version 1.0 it may be a list of names in several languages; use the first."""
    if isinstance(given, list) and given:
        given = given[0]
    if isinstance(given, Mapping):
        given = given.get("str", given.get("name"))
    return given[:CANDIDATE_NAME_MAX_CHARS] if isinstance(given, str) else ""


def _parse_type_names(given: Mapping[str, Any]) -> str | None:
    """Return the names of the types, or their ids if they have no names."""
    types = given.get("type")
    several = types if isinstance(types, list) else [types]
    named = [
        _parse_name(one) or _parse_name(one.get("id") if isinstance(one, Mapping) else None)
        for one in several[:CANDIDATE_TYPES_MAX]
    ]
    return ", ".join(name for name in named if name) or None


FORM_CONTENT_TYPE, JSON_CONTENT_TYPE = "application/x-www-form-urlencoded", "application/json"


@dataclass(frozen=True, slots=True)
class ReconciliationRequest:
    """A request. Its path is appended to the URL of the service."""

    path: str
    content_type: str
    body: bytes


ReconciliationAnswer = list[MatchCandidate] | str
"""The candidates of a row, or why they cannot be parsed."""


def encode_queries(queries: Mapping[str, MatchQuery], protocol: ReconciliationVersion) -> ReconciliationRequest:
    """Return one request for several rows. Row ids make a response to another request detectable."""
    if protocol == "1.0":
        body = {"queries": [_encode_query_v1(query) for query in queries.values()]}
        return ReconciliationRequest("/match", JSON_CONTENT_TYPE, _encode_json(body))
    by_id = {id_: _encode_query(query) for id_, query in queries.items()}
    return ReconciliationRequest("", FORM_CONTENT_TYPE, urlencode({"queries": _encode_json(by_id).decode()}).encode())


def decode_answers(
    body: bytes, queries: Mapping[str, MatchQuery], protocol: ReconciliationVersion
) -> dict[str, ReconciliationAnswer]:
    """Return the answer for each row. Raise ServiceCallError if the response answers no row."""
    document = parse_json_object(body)
    if protocol == "1.0":
        return _decode_answers_v1(document, queries)
    if not any(id_ in document for id_ in queries):
        raise make_invalid_answer_error(_describe_error_answer(document) or "it contains none of the requested row ids")
    return {id_: _parse_answer(document.get(id_), "result", query) for id_, query in queries.items()}


def parse_json_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a response. Values such as NaN are rejected later, where they are used."""
    try:
        document = json.loads(body, parse_constant=lambda _: math.nan)
    except (ValueError, RecursionError):
        start = body[:200].lstrip().lower()
        is_html = start.startswith((b"<!doctype", b"<html"))
        raise make_invalid_answer_error("HTML page instead of JSON" if is_html else "not valid JSON") from None
    if not isinstance(document, dict):
        raise make_invalid_answer_error("not a JSON object")
    return document


def get_batch_size_from_manifest(manifest: Mapping[str, Any]) -> int | None:
    """Return the number of queries per request that the manifest allows, or None."""
    size = manifest.get("batchSize")
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None


def _decode_answers_v1(
    document: Mapping[str, Any], queries: Mapping[str, MatchQuery]
) -> dict[str, ReconciliationAnswer]:
    """Return the answers in the order of the queries. They have no ids, so the counts must be equal."""
    results = document.get("results")
    if not isinstance(results, list) or len(results) != len(queries):
        raise make_invalid_answer_error(
            _describe_error_answer(document) or f"it does not contain exactly {len(queries)} results"
        )
    pairs = zip(queries.items(), results, strict=True)
    return {id_: _parse_answer(result, "candidates", query) for (id_, query), result in pairs}


def _parse_answer(said: Any, name: str, query: MatchQuery) -> ReconciliationAnswer:
    if not isinstance(said, Mapping):
        return "it contains no result for this row"
    try:
        return parse_candidates(said.get(name), query.limit)
    except ValueError as error:
        return str(error)


def _describe_error_answer(document: Mapping[str, Any]) -> str | None:
    """Return a message if a response with HTTP status 200 reports an error, else None."""
    return 'it reports an error: {"status": "error", …}' if document.get("status") == "error" else None


def _encode_query(query: MatchQuery) -> dict[str, object]:
    encoded: dict[str, object] = {"query": query.text, "limit": query.limit}
    if query.type is not None:
        encoded["type"] = query.type
    if query.properties:
        encoded["properties"] = [{"pid": pid, "v": value} for pid, value in query.properties]
    return encoded


def _encode_query_v1(query: MatchQuery) -> dict[str, object]:
    conditions: list[dict[str, object]] = [{"matchType": "name", "propertyValue": query.text}]
    conditions += [
        {"matchType": "property", "propertyId": pid, "propertyValue": value, "required": False}
        for pid, value in query.properties
    ]
    kind = {} if query.type is None else {"type": query.type}
    return kind | {"limit": query.limit, "conditions": conditions}


def _encode_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


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
