"""HTTP calls to one service, with limits on time and size, and only to checked addresses."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from ipaddress import ip_address

import httpcore2
import httpx2

from tidemill.core.allowed_hosts import IPAddress, parse_ip_literal
from tidemill.enrichment.external_service import (
    HttpHeaders,
    ServiceAddressPolicy,
    ServiceCallError,
    ServiceResponse,
    make_answer_too_large_error,
    make_invalid_answer_error,
)
from tidemill.files.remote.response_headers import REDIRECT_STATUSES, parse_retry_after

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
