"""Calls external services for items: with limited concurrency and permits, and only for active jobs."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext

from tidemill.core.allowed_hosts import AllowedHost
from tidemill.core.errors import InvalidInput
from tidemill.core.job import Item
from tidemill.core.outcome import Fail, Outcome, Retry
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
    make_service_from_url,
)
from tidemill.telemetry.events import emit

# Errors that a change of the settings or of the service can fix, so a later retry can succeed.
FIXABLE_ERROR_CODES = (
    *("service_denied", "service_secret", "service_certificate", "service_redirect", "address_refused"),
    "unknown_limiter",
)


def outcome_from_call_error(error: ServiceCallError, item: Item, retry: RetryPolicy) -> Outcome:
    """Return the outcome of a failed call. The last attempt fails with the code of the call's error."""
    if not error.is_transient:
        return Fail(error.reason, code=error.code, retryable=error.code in FIXABLE_ERROR_CODES)
    if item.attempt - item.misses >= retry.max_attempts:
        return Fail(error.reason, code=error.code, retryable=True)
    return Retry(error.reason, code=error.code)


ActiveCheck = Callable[[], Awaitable[None]]
"""Raises if the job was cancelled or deleted."""


class ServiceClient:
    """Calls one service: waits for a slot and a permit, sends the request and emits an event."""

    def __init__(
        self,
        service: ExternalService,
        reach: ServiceAddressPolicy,
        environment: Mapping[str, str],
        permits: ServicePermits,
    ) -> None:
        # Imported here because it costs 4 MB and 0.04 s, and few processes call services.
        from tidemill.enrichment.service_http_client import ServiceCallLimits, ServiceHttpClient  # noqa: PLC0415

        self.service = service
        self.batch_size: int | None = None  # rows per request, known after the manifest is read
        self.manifest_retry_at = 0.0  # on the monotonic clock
        self._slots = asyncio.Semaphore(service.concurrency)
        self._permits = permits
        self._secret = service.get_secret_from_environment(environment)
        bounds = ServiceCallLimits(service.timeout, service.max_answer_bytes, service.concurrency)
        self._caller = ServiceHttpClient(reach, bounds, secret=self._build_secret_header())

    async def acquire_slot(self) -> None:
        """Wait for a slot. The caller must release it after its request."""
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
        """Return the response if its status is a success or "not found". Raise ServiceCallError otherwise.

        The caller must hold a slot. One request takes one permit, for any number of rows.
        """
        if self._secret is not None and not _is_valid_header_value(self._secret):
            reason = (
                f"Environment variable {self.service.secret_env} is not set on this worker, "
                "or contains characters that a header cannot carry"
            )
            raise ServiceCallError("service_secret", reason)
        service = self.service
        if service.limit is not None:
            await check_active()  # also before the wait, so that a cancelled job does not take a permit
        async with self._make_call_permit():
            await check_active()
            started = time.monotonic()
            response, failure = await self._try_send_request(method, service.url.rstrip("/") + path, headers, content)
            self._emit_call_event(response, failure, rows, time.monotonic() - started)
            if failure is not None:
                raise failure
        return response

    async def close(self) -> None:
        await self._caller.close()

    def _make_call_permit(self) -> ServiceCallPermit:
        if self.service.limit is None:
            return nullcontext()
        try:
            return self._permits.permit(self.service.limit, "")
        except InvalidInput as error:  # the limiter is not declared
            raise ServiceCallError("unknown_limiter", str(error)) from None

    async def _try_send_request(
        self, method: str, url: str, headers: HttpHeaders | None, content: bytes
    ) -> tuple[ServiceResponse, ServiceCallError | None]:
        try:
            response = await self._caller.call(method, url, headers, content)
        except ServiceCallError as error:
            return ServiceResponse(0, b"", None), error
        failure = (
            None
            if response.status in NOT_FOUND_STATUSES
            else error_from_status(response.status, response.retry_after_s)
        )
        return response, failure

    def _emit_call_event(
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
        """Return the client of a service. Raise Fail if this worker does not declare the service."""
        if name not in self._clients:
            service = self._get_declared_or_url_service(name)
            reach = service.build_address_policy(self._allowed)
            self._clients[name] = ServiceClient(service, reach, self._environment, self._permits)
        return self._clients[name]

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()

    def _get_declared_or_url_service(self, name: str) -> ExternalService:
        if "://" in name:
            try:
                return make_service_from_url(check_service_url(name))
            except ValueError as error:
                raise Fail(f"{name[:200]}: {error}", code="invalid") from None
        if name not in self._declared:
            suggestion = format_suggestion(name, self._declared)
            reason = f'Service "{name[:100]}" is not declared in the tidemill.toml of this worker{suggestion}'
            raise Fail(reason, code="unknown_service", retryable=True)
        return self._declared[name]
