"""Calls services for items: with bounded concurrency and permits, and not for jobs that were cancelled or deleted."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Generic, TypeVar
from uuid import UUID

from tidemill.core.allowed_hosts import AllowedHost
from tidemill.core.errors import InvalidInput, InvalidRequest, UnknownJob
from tidemill.core.job import Item
from tidemill.core.json_input import JsonObject
from tidemill.core.lookup_coalescer import Coalescer
from tidemill.core.outcome import Fail, Outcome, Retry, Wait
from tidemill.core.policies import RetryPolicy
from tidemill.core.suggest import format_suggestion
from tidemill.enrichment.external_service import (
    NOT_FOUND_STATUSES,
    SECRET_PLACEHOLDER,
    ExternalService,
    HttpHeaders,
    ServiceAddressPolicy,
    ServiceCallError,
    ServiceCallPermit,
    ServicePermits,
    ServiceResponse,
    ServiceThrottled,
    UnlimitedPermits,
    check_service_url,
    error_from_status,
    make_undeclared_service,
)
from tidemill.store import job_records
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

# Errors that a change of settings or of the service can fix, so that a retry makes sense.
FIXABLE_ERROR_CODES = (
    *("service_denied", "service_secret", "service_certificate", "service_redirect", "address_refused"),
    "unknown_limiter",
)


def outcome_from_call_error(error: ServiceCallError, item: Item, retry: RetryPolicy) -> Outcome:
    """The outcome of a failed call. The last attempt fails with the code of the call's error."""
    if not error.is_transient:
        return Fail(error.reason, code=error.code, retryable=error.code in FIXABLE_ERROR_CODES)
    if item.attempt - item.misses >= retry.max_attempts:
        return Fail(error.reason, code=error.code, retryable=True)
    return Retry(error.reason, code=error.code)


ActiveCheck = Callable[[], Awaitable[None]]
"""Raises if the job was cancelled or deleted."""


class ServiceClient:
    """Calls one service: waits for a slot and a permit, sends the request and reports it."""

    def __init__(
        self,
        service: ExternalService,
        reach: ServiceAddressPolicy,
        environment: Mapping[str, str],
        permits: ServicePermits,
    ) -> None:
        # Imported here, because few processes call services: it costs 4 MB and 0.04 s.
        from tidemill.enrichment.service_http_client import ServiceCallLimits, ServiceHttpClient  # noqa: PLC0415

        self.service = service
        self.batch_size: int | None = None  # rows per request, once the manifest was read
        self.manifest_retry_at = 0.0  # by the monotonic clock
        self._slots = asyncio.Semaphore(service.concurrency)
        self._permits = permits
        self._secret = service.read_secret(environment)
        bounds = ServiceCallLimits(service.timeout, service.max_answer_bytes, service.concurrency)
        self._caller = ServiceHttpClient(reach, bounds, secret=self._build_secret_header())

    async def acquire_slot(self) -> None:
        """Wait for a slot, which the caller releases after its request."""
        await self._slots.acquire()

    def release_slot(self) -> None:
        self._slots.release()

    async def send(
        self,
        method: str,
        path: str,
        *,
        check_active: ActiveCheck,
        headers: HttpHeaders | None = None,
        content: bytes = b"",
        rows: int = 1,
    ) -> ServiceResponse:
        """The answer, if its status is a success or "not found"; ServiceCallError for any other.

        The caller has a slot. One request takes one permit, for any number of rows.
        """
        if self._secret is not None and not _is_valid_header_value(self._secret):
            reason = f"{self.service.secret_env} is not set where this worker runs, or cannot be sent in a header"
            raise ServiceCallError("service_secret", reason)
        service = self.service
        if service.limit is not None:
            await check_active()  # before waiting, too: a permit must not be spent on a cancelled job
        async with self._get_permit():
            await check_active()
            started = time.monotonic()
            answered, failure = await self._try_send_request(method, service.url.rstrip("/") + path, headers, content)
            self._report_call(answered, failure, rows, time.monotonic() - started)
            if failure is not None:
                raise failure
        return answered

    async def close(self) -> None:
        await self._caller.close()

    def _get_permit(self) -> ServiceCallPermit:
        if self.service.limit is None:
            return nullcontext()
        try:
            return self._permits.permit(self.service.limit, "")
        except InvalidInput as error:  # it is not declared
            raise ServiceCallError("unknown_limiter", str(error)) from None

    async def _try_send_request(
        self, method: str, url: str, headers: HttpHeaders | None, content: bytes
    ) -> tuple[ServiceResponse, ServiceCallError | None]:
        try:
            answered = await self._caller.call(method, url, headers, content)
        except ServiceCallError as error:
            return ServiceResponse(0, b"", None), error
        failure = (
            None
            if answered.status in NOT_FOUND_STATUSES
            else error_from_status(answered.status, answered.retry_after_s)
        )
        return answered, failure

    def _report_call(
        self, answered: ServiceResponse, failure: ServiceCallError | None, rows: int, seconds: float
    ) -> None:
        name, ms = self.service.name, round(seconds * 1000, 1)
        if isinstance(failure, ServiceThrottled):
            emit("service.refused", service=name, status=answered.status, rows=rows, after=failure.retry_after_s)
        elif failure is not None:
            emit("service.failed", service=name, status=answered.status, rows=rows, code=failure.code, ms=ms)
        else:
            emit("service.called", service=name, status=answered.status, rows=rows, ms=ms)

    def _build_secret_header(self) -> tuple[str, str] | None:
        if self.service.header is None or not self._secret or not _is_valid_header_value(self._secret):
            return None
        return self.service.header, self.service.value.replace(SECRET_PLACEHOLDER, self._secret)


def _is_valid_header_value(secret: str) -> bool:
    return bool(secret) and secret.isascii() and secret.isprintable()


class ServiceClients:
    def __init__(
        self,
        declared: Mapping[str, ExternalService],
        *,
        allowed: Sequence[AllowedHost] = (),
        permits: ServicePermits | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._declared = declared
        self._allowed = allowed
        self._permits = permits or UnlimitedPermits()
        self._environment = environment
        self._clients: dict[str, ServiceClient] = {}

    def get_client(self, name: str) -> ServiceClient:
        """The client of a service; Fail if the worker does not declare it."""
        if name not in self._clients:
            service = self._find_service(name)
            reach = service.build_address_policy(self._allowed)
            self._clients[name] = ServiceClient(service, reach, self._environment, self._permits)
        return self._clients[name]

    async def close(self) -> None:
        for desk in self._clients.values():
            await desk.close()

    def _find_service(self, name: str) -> ExternalService:
        if "://" in name:
            try:
                return make_undeclared_service(check_service_url(name))
            except ValueError as error:
                raise Fail(f"{name[:200]}: {error}", code="invalid") from None
        if name not in self._declared:
            known = format_suggestion(name, self._declared)
            reason = f"the worker knows no service {name[:100]!r}: it reads another tidemill.toml{known}"
            raise Fail(reason, code="unknown_service", retryable=True)
        return self._declared[name]


JOB_REQUESTS_CACHED_MAX = 64
T = TypeVar("T")


class JobRequestCache(Generic[T]):
    """The requests of jobs, which ``read`` parses from their params once for all items."""

    def __init__(self, db: Database, read: Callable[[Mapping[str, Any]], T]) -> None:
        self._db = db
        self._read = read
        self._requests: dict[UUID, T] = {}
        self._params_lookups: Coalescer[UUID, JsonObject | None] = Coalescer(self._read_params_batch)
        self._active_lookups: Coalescer[UUID, bool] = Coalescer(self._load_active_flags)

    async def get(self, job_id: UUID) -> T:
        found = self._requests.get(job_id)
        return found if found is not None else await self._load_request(job_id)

    async def check_active(self, job_id: UUID) -> None:
        """Raises Wait, which requeues the item unchanged, if the job was cancelled or deleted."""
        if not await self._active_lookups.get(job_id):
            raise Wait("nobody wants this any more", after=1.0, code="unwanted")

    async def _load_request(self, job_id: UUID) -> T:
        params = await self._params_lookups.get(job_id)
        if params is None:
            raise Fail("the job is gone", code="job_gone")
        try:
            request = self._read(params)
        except InvalidRequest as error:
            raise Fail(str(error), code="invalid") from None
        while len(self._requests) >= JOB_REQUESTS_CACHED_MAX:
            del self._requests[next(iter(self._requests))]
        self._requests[job_id] = request
        return request

    async def _read_params_batch(self, job_ids: Sequence[UUID]) -> list[JsonObject | None]:
        return [await self._read_params(job_id) for job_id in job_ids]

    async def _read_params(self, job_id: UUID) -> JsonObject | None:
        try:
            return await self._db.run(job_records.read_job_params, job_id)
        except UnknownJob:
            return None

    async def _load_active_flags(self, job_ids: Sequence[UUID]) -> list[bool]:
        going_on = await self._db.read(job_records.filter_active_jobs, job_ids)
        return [job_id in going_on for job_id in job_ids]
