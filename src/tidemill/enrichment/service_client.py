"""Calls external services for items: with limited concurrency and permits, and only for active jobs."""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from ipaddress import ip_address

import httpcore2
import httpx2

from tidemill.core.allowed_hosts import AllowedHost, IPAddress, parse_ip_literal
from tidemill.core.errors import InvalidInput, format_suggestion
from tidemill.core.job import Item
from tidemill.core.outcome import Fail, Outcome, Retry
from tidemill.core.policies import RetryPolicy
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
    make_answer_too_large_error,
    make_invalid_answer_error,
    make_service_from_url,
)
from tidemill.files.remote.partial_download import REDIRECT_STATUSES, parse_retry_after
from tidemill.telemetry.events import emit

AsyncResolver = Callable[[str, int], Awaitable[Sequence[str]]]
SERVICE_ADDRESSES_TRIED_MAX = 4
SERVICE_CONNECT_TIMEOUT_S = 10.0


async def resolve_host_async(host: str, port: int) -> list[str]:
    """Return the addresses of a host from the system's resolver."""
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in infos]


class AsyncCheckedBackend(httpcore2.AsyncNetworkBackend):
    """Resolves a host, checks its addresses and connects to one of them.

    It connects to the checked address itself, so a later DNS change has no effect.
    """

    def __init__(self, reach: ServiceAddressPolicy, resolver: AsyncResolver = resolve_host_async) -> None:
        self._reach = reach
        self._resolve = resolver
        self._backend = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore2 defines this signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        addresses = await self._resolve_addresses(host, port)
        reason = self._reach.explain_refusal(host, addresses, port)
        if reason:
            raise ServiceCallError("address_refused", f'Cannot connect to "{host}": {reason}')
        failure: Exception = httpcore2.ConnectError("host has no address")
        for address in addresses[:SERVICE_ADDRESSES_TRIED_MAX]:
            try:
                seconds = timeout or SERVICE_CONNECT_TIMEOUT_S
                return await self._backend.connect_tcp(str(address), port, seconds, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def _resolve_addresses(self, host: str, port: int) -> list[IPAddress]:
        literal = parse_ip_literal(host)
        if literal is not None:
            return [literal]
        try:
            async with asyncio.timeout(SERVICE_CONNECT_TIMEOUT_S):
                addresses = await self._resolve(host, port)
        except TimeoutError:
            raise httpcore2.ConnectTimeout("resolving the host name timed out") from None
        except UnicodeError:
            raise ServiceCallError("address_refused", f"Invalid host name {host[:100]!r}") from None
        except OSError as error:
            raise httpcore2.ConnectError("cannot resolve the host name") from error
        return list(dict.fromkeys(ip_address(text) for text in addresses))


SERVICE_REDIRECTS_MAX = 3
HTTP_SEE_OTHER = 303
SERVICE_CONNECTION_IDLE_S = 15.0  # idle connections are closed after this time
_DEFAULT_HEADERS = [("Accept", "application/json"), ("Accept-Encoding", "identity"), ("User-Agent", "tidemill")]


@dataclass(frozen=True, slots=True)
class ServiceCallLimits:
    seconds: float = 30.0
    max_bytes: int = 8 << 20
    connections: int = 4


class ServiceHttpClient:
    """An HTTP client for one service. It sends the header ``secret`` only to the service's own host."""

    def __init__(
        self,
        reach: ServiceAddressPolicy,
        limits: ServiceCallLimits,
        *,
        secret: tuple[str, str] | None = None,
        resolver: AsyncResolver = resolve_host_async,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._reach = replace(reach, host=_encode_host(reach.host))
        self._bounds = limits
        self._secret = secret
        self._resolve = resolver
        self._given_context = ssl_context

    async def call(
        self, method: str, url: str, headers: HttpHeaders | None = None, content: bytes = b""
    ) -> ServiceResponse:
        """Send a request, follow redirects and return the response. Raise ServiceCallError if the call fails."""
        try:
            async with asyncio.timeout(self._bounds.seconds):
                return await self._send_with_redirects(method, httpx2.URL(url), headers or [], content)
        except (TimeoutError, httpcore2.TimeoutException):
            reason = f"The service did not respond within {self._bounds.seconds:g} s"
            raise ServiceCallError("service_timeout", reason, is_transient=True) from None
        except httpx2.InvalidURL:
            raise ServiceCallError("address_refused", "Invalid request URL") from None
        except httpcore2.ConnectError as error:
            raise _make_connect_error(error) from None
        except (httpcore2.NetworkError, httpcore2.RemoteProtocolError):
            reason = "The connection to the service was lost before the response was complete"
            raise ServiceCallError("service_unreachable", reason, is_transient=True, is_splittable=True) from None
        except httpcore2.LocalProtocolError:
            raise ServiceCallError("service_refused", "A header contains characters that cannot be sent") from None

    async def close(self) -> None:
        if "_connection_pool" in self.__dict__:
            await self._connection_pool.aclose()
            del self.__dict__["_connection_pool"]

    async def _send_with_redirects(
        self, method: str, link: httpx2.URL, headers: HttpHeaders, content: bytes
    ) -> ServiceResponse:
        for _ in range(SERVICE_REDIRECTS_MAX + 1):
            status, response_headers, body = await self._send_request(method, link, headers, content)
            if status not in REDIRECT_STATUSES:
                return ServiceResponse(status, body, parse_retry_after(response_headers))
            link = _resolve_redirect(link, response_headers.get("location"))
            if status == HTTP_SEE_OTHER:
                method, content = "GET", b""
        raise ServiceCallError("service_redirect", f"The service redirected more than {SERVICE_REDIRECTS_MAX} times")

    async def _send_request(
        self, method: str, link: httpx2.URL, headers: HttpHeaders, content: bytes
    ) -> tuple[int, httpx2.Headers, bytes]:
        port = link.port or {"http": 80, "https": 443}[link.scheme]
        target = httpcore2.URL(scheme=link.raw_scheme, host=link.raw_host, port=port, target=link.raw_path)
        given = {name.lower() for name, _ in headers}
        defaults = [header for header in _DEFAULT_HEADERS if header[0].lower() not in given]
        sent = defaults + headers + self._make_secret_headers_for_own_host(link, port)
        extensions = {"timeout": _make_timeouts(self._bounds.seconds)}
        async with self._connection_pool.stream(
            method, target, headers=sent, content=content, extensions=extensions
        ) as response:
            response_headers = httpx2.Headers(response.headers)
            if response_headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
                raise make_invalid_answer_error("it is compressed, although the request did not allow compression")
            body = bytearray()
            async for piece in response.aiter_stream():
                body += piece
                if len(body) > self._bounds.max_bytes:
                    raise make_answer_too_large_error(self._bounds.max_bytes >> 20)
        return response.status, response_headers, self._redact_secret(bytes(body))

    def _make_secret_headers_for_own_host(self, link: httpx2.URL, port: int) -> HttpHeaders:
        """Return the secret header, or an empty list if a redirect leads to another host."""
        is_own = (link.raw_host.decode("ascii").lower(), port) == (self._reach.host, self._reach.port)
        return [self._secret] if self._secret is not None and is_own else []

    def _redact_secret(self, body: bytes) -> bytes:
        """Return the body with the secret replaced, because a service may echo it."""
        if self._secret is None:
            return body
        for word in self._secret[1].split():
            if len(word) > len("Bearer"):
                body = body.replace(word.encode(), b"***")
        return body

    def _make_ssl_context_if_tls(self) -> ssl.SSLContext | None:
        """Return None for a service without TLS: loading certificates is slow, and only redirects to https need it."""
        return httpx2.create_ssl_context(trust_env=False) if self._reach.tls else None

    @cached_property
    def _connection_pool(self) -> httpcore2.AsyncConnectionPool:
        return httpcore2.AsyncConnectionPool(
            ssl_context=self._given_context or self._make_ssl_context_if_tls(),
            max_connections=self._bounds.connections + SERVICE_REDIRECTS_MAX,
            keepalive_expiry=SERVICE_CONNECTION_IDLE_S,
            network_backend=AsyncCheckedBackend(self._reach, self._resolve),
        )


def _encode_host(host: str) -> str:
    """Return the host as URLs and certificates contain it: in lower case, with IDNA encoding."""
    try:
        return httpx2.URL(f"http://[{host}]" if ":" in host else f"http://{host}").raw_host.decode("ascii").lower()
    except httpx2.InvalidURL:  # every call reports the error
        return host


def _make_timeouts(seconds: float) -> dict[str, float]:
    return {"connect": min(SERVICE_CONNECT_TIMEOUT_S, seconds), "read": seconds, "write": seconds, "pool": seconds}


def _resolve_redirect(link: httpx2.URL, location: str | None) -> httpx2.URL:
    """Return the target of a redirect. The network backend checks its address when it connects."""
    try:
        target = link.join(location or "")
        scheme, host, user = target.scheme, target.host, target.userinfo
    except (httpx2.InvalidURL, ValueError):
        raise ServiceCallError("service_redirect", "The service redirected to an invalid URL") from None
    if not location or scheme not in ("http", "https") or not host or user:
        raise ServiceCallError("service_redirect", "The service redirected to a URL that cannot be followed")
    if link.scheme == "https" and scheme == "http":
        raise ServiceCallError("service_redirect", "The service redirected from https to http")
    return target.copy_with(fragment=None)


def _make_connect_error(error: httpcore2.ConnectError) -> ServiceCallError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = f"The service's certificate is invalid: {cause.verify_message}"
            return ServiceCallError("service_certificate", reason)
        cause = cause.__cause__ or cause.__context__
    return ServiceCallError("service_unreachable", "Cannot connect to the service", is_transient=True)


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
