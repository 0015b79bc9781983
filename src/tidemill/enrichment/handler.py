"""Handlers of match and enrich jobs. Each item is one row, sent to an external service."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar
from uuid import UUID

from tidemill.core.allowed_hosts import AllowedHost
from tidemill.core.coalescers import Coalescer
from tidemill.core.errors import InvalidRequest, UnknownJob
from tidemill.core.job import Item
from tidemill.core.json_input import JsonObject
from tidemill.core.kinds import ENRICH_KIND, MATCH_KIND, Handler
from tidemill.core.outcome import Fail, NotFound, Skip, Wait
from tidemill.core.policies import RetryPolicy
from tidemill.enrichment.external_service import (
    NOT_FOUND_STATUSES,
    ServiceCallError,
    ServiceResponse,
    ServiceThrottled,
    describe_http_status,
    make_invalid_answer_error,
)
from tidemill.enrichment.job_requests import (
    MATCH_COLUMNS,
    EmptyTemplateValue,
    EnrichRequest,
    MatchQuery,
    MatchRequest,
    PathTraversal,
    fill_json_template,
    fill_path_template,
)
from tidemill.enrichment.reconciliation import (
    MatchCandidate,
    MatchQueryBatcher,
    MatchResult,
    build_match_result,
    choose_candidate,
)
from tidemill.enrichment.service_client import ServiceClients, outcome_from_call_error
from tidemill.enrichment.use_cases import list_service_requirements, load_services
from tidemill.runtime import Runtime
from tidemill.store import job_records
from tidemill.store.database import Database

JOB_REQUESTS_CACHED_MAX = 64
T = TypeVar("T")


class JobParamsCache(Generic[T]):
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


MATCH_CONCURRENCY = 200  # rows at a time; the service's concurrency limits the requests
QUERY_BATCHERS_CACHED_MAX = 64


def make_service_clients(runtime: Runtime) -> ServiceClients:
    allowed = [AllowedHost.parse(entry) for entry in runtime.settings.remote_allow]
    return ServiceClients(runtime.get(load_services), allowed=allowed, permits=runtime.permits)


def _make_retry_policy(runtime: Runtime) -> RetryPolicy:
    return RetryPolicy(runtime.settings.max_attempts_error, runtime.settings.max_attempts_not_found)


def make_match_handler(runtime: Runtime) -> Handler:
    retry = _make_retry_policy(runtime)
    matcher = RowMatcher(runtime.db, runtime.get(make_service_clients), retry)
    options: dict[str, Any] = {"retry": retry, "columns": MATCH_COLUMNS, "close": matcher.close}
    options["provides"] = _list_requirements_met_by_services(runtime)
    # No timeout: each request has its own, and rows wait for permits as long as the limiter requires.
    return Handler(MATCH_KIND, matcher.match_item, "async", concurrency=MATCH_CONCURRENCY, timeout=None, **options)


class RowMatcher:
    def __init__(self, db: Database, directory: ServiceClients, retry: RetryPolicy) -> None:
        self._clients = directory
        self._retry = retry
        self._requests: JobParamsCache[MatchRequest] = JobParamsCache(db, MatchRequest.from_params)
        self._batchers: dict[UUID, MatchQueryBatcher] = {}

    async def match_item(self, item: Item) -> MatchResult:
        request = await self._requests.get(item.job_id)
        queries = _build_row_queries(request, item)
        query = queries[min(item.misses, len(queries) - 1)]
        candidates = await self._fetch_candidates(item, request.service, query)
        chosen = choose_candidate(candidates, request)
        result = build_match_result(chosen, candidates, query)
        if chosen is not None:
            return result
        is_last = item.misses + 1 >= len(queries)
        raise NotFound(
            _explain_no_match(candidates, request), result=result, again=not is_last, after=request.not_found_delay
        )

    async def close(self) -> None:
        for batcher in self._batchers.values():
            await batcher.close()
        await self._clients.close()

    async def _fetch_candidates(self, item: Item, service: str, query: MatchQuery) -> list[MatchCandidate]:
        attempts = item.attempt - item.misses
        # The last attempt is sent alone, so that no other row can make it fail.
        alone = attempts > 1 and attempts >= self._retry.max_attempts
        try:
            return await self._get_or_make_batcher(item.job_id, service).fetch_candidates(
                f"q{item.seq}", query, alone=alone
            )
        except ServiceThrottled:
            raise
        except ServiceCallError as error:
            raise outcome_from_call_error(error, item, self._retry) from None

    def _get_or_make_batcher(self, job_id: UUID, service: str) -> MatchQueryBatcher:
        batcher = self._batchers.get(job_id)
        if batcher is None:
            self._drop_idle_batchers_if_full()
            client = self._clients.get_client(service)
            batcher = MatchQueryBatcher(client, lambda: self._requests.check_active(job_id))
            self._batchers[job_id] = batcher
        return batcher

    def _drop_idle_batchers_if_full(self) -> None:
        if len(self._batchers) >= QUERY_BATCHERS_CACHED_MAX:
            self._batchers = {key: one for key, one in self._batchers.items() if not one.is_idle}


def _build_row_queries(request: MatchRequest, item: Item) -> list[MatchQuery]:
    row = item.input
    if not isinstance(row, dict):
        raise Fail("The row must be a JSON object with columns", code="invalid")
    if request.query not in row:
        raise Fail(f'The row has no column "{request.query}"', code="invalid", details={"field": request.query})
    queries = request.build_queries(row)
    if not queries:
        raise Skip(f'Nothing to search for: column "{request.query}" is empty')
    return queries


def _explain_no_match(candidates: list[MatchCandidate], request: MatchRequest) -> str:
    if not candidates:
        return "The service returned no candidates"
    best = candidates[0]
    score = "no score" if best.score is None else f"score {best.score:g}"
    reason = (
        "the service marks none as a match" if request.threshold is None else f"the threshold is {request.threshold:g}"
    )
    return f'The best of {len(candidates)} candidates, "{best.name[:100]}", has the score {score}; {reason}'


ENRICH_CONCURRENCY = 50


def make_enrich_handler(runtime: Runtime) -> Handler:
    retry, clients = _make_retry_policy(runtime), runtime.get(make_service_clients)
    call = Enricher(runtime.db, clients, retry).enrich_item
    # No timeout: each request has its own, and rows wait for permits as long as the limiter requires.
    return Handler(
        ENRICH_KIND,
        call,
        "async",
        concurrency=ENRICH_CONCURRENCY,
        timeout=None,
        retry=retry,
        provides=_list_requirements_met_by_services(runtime),
        close=clients.close,
    )


def _list_requirements_met_by_services(runtime: Runtime) -> frozenset[str]:
    return frozenset(name for service in runtime.get(load_services) for name in list_service_requirements(service))


class Enricher:
    def __init__(self, db: Database, directory: ServiceClients, retry: RetryPolicy) -> None:
        self._clients = directory
        self._retry = retry
        self._requests: JobParamsCache[EnrichRequest] = JobParamsCache(db, EnrichRequest.from_params)

    async def enrich_item(self, item: Item) -> JsonObject:
        request = await self._requests.get(item.job_id)
        path = _build_request_path(request, item)
        try:
            response = await self._call_service(request, item, path)
            if response.status in NOT_FOUND_STATUSES:
                raise NotFound(f"The service returned {describe_http_status(response.status)}")
            result = request.extract_result(_parse_answer_body(response.body))
        except ServiceThrottled:
            raise
        except ServiceCallError as error:
            raise outcome_from_call_error(error, item, self._retry) from None
        missing = request.list_missing_required_fields(result)
        if missing:
            raise NotFound(f"Required fields are missing in the response: {', '.join(missing)}", result=result)
        return result

    async def _call_service(self, request: EnrichRequest, item: Item, path: str) -> ServiceResponse:
        headers = list(request.headers.items())
        content = b""
        if request.method == "POST":
            content = json.dumps(fill_json_template(request.body, item.input), ensure_ascii=False).encode(
                errors="replace"
            )
            headers.append(("Content-Type", "application/json"))
        client = self._clients.get_client(request.service)
        await client.acquire_slot()
        try:
            return await client.send(
                request.method,
                path,
                check_active=lambda: self._requests.check_active(item.job_id),
                headers=headers,
                content=content,
            )
        finally:
            client.release_slot()


def _build_request_path(request: EnrichRequest, item: Item) -> str:
    row = item.input
    if not isinstance(row, dict):
        raise Fail("The row must be a JSON object with columns", code="invalid")
    missing = [column for column in request.referenced_columns if column not in row]
    if missing:
        raise Fail(f'The row has no column "{missing[0]}"', code="invalid", details={"field": missing[0]})
    try:
        return fill_path_template(request.path, row)
    except EmptyTemplateValue as empty:
        raise Skip(f'No request sent: column "{empty.column}" is empty') from None
    except PathTraversal:
        raise Fail('A value in the row adds a "." or ".." segment to the path', code="invalid") from None


def _parse_answer_body(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        raise make_invalid_answer_error("not valid JSON") from None
