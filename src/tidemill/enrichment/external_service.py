"""The declaration of an external service, the errors of its calls, and the permits of its limiter."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from tidemill.core.allowed_hosts import (
    NOT_PUBLIC_REASON,
    WEB_PORTS,
    AllowedHost,
    IPAddress,
    explain_refused_host,
    is_public_address,
)
from tidemill.core.principal import Role, has_role

RETRY_AFTER_MAX_S = 7 * 86_400.0  # longer delays that a service requests are capped
NOT_FOUND_STATUSES = frozenset({204, 404, 410})
_THROTTLE_STATUSES = frozenset({429, 503})
_RETRIED_CLIENT_ERRORS = frozenset({408, 425})
_CALL_DENIED_STATUSES = frozenset({401, 403, 407})
_INVALID_ROW_STATUSES = frozenset({400, 413, 414, 422})
_SUCCESS_STATUSES = range(200, 300)
_ALL_REDIRECT_STATUSES = range(300, 400)
_SERVER_ERROR_MIN_STATUS = 500

HttpHeaders = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ServiceResponse:
    """The response to a request, with any status."""

    status: int
    body: bytes
    retry_after_s: float | None  # from the header Retry-After


class ServiceCallError(Exception):
    """A call without a usable response. ``is_transient``: another attempt may succeed.

    ``is_splittable``: one row of the request may be the cause, so the caller sends the others without it.
    """

    def __init__(self, code: str, reason: str, *, is_transient: bool = False, is_splittable: bool = False) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.is_transient = is_transient
        self.is_splittable = is_splittable


class ServiceThrottled(ServiceCallError):
    """The service throttles requests. ``after`` is the number of seconds to wait, if the service returns one."""

    def __init__(self, reason: str, after: float | None = None, status: int = 429) -> None:
        super().__init__("throttled", reason, is_transient=True)
        self.retry_after_s = None if after is None else min(after, RETRY_AFTER_MAX_S)
        self.status = status  # core/throttling.py reads the status and headers of throttling exceptions
        self.headers = {} if self.retry_after_s is None else {"Retry-After": f"{self.retry_after_s:g}"}


def error_from_status(status: int, retry_after_s: float | None = None) -> ServiceCallError | None:
    """Return the error for a status, or None for a success."""
    reason = f"The service returned {describe_http_status(status)}"
    if status in _SUCCESS_STATUSES:
        return None
    if status in _THROTTLE_STATUSES:
        return ServiceThrottled(reason, retry_after_s, status)
    if status in _CALL_DENIED_STATUSES:
        return ServiceCallError("service_denied", reason)
    if status >= _SERVER_ERROR_MIN_STATUS or status in _RETRIED_CLIENT_ERRORS:
        return ServiceCallError("service_error", reason, is_transient=True, is_splittable=True)
    if status in _ALL_REDIRECT_STATUSES:
        return ServiceCallError("service_redirect", f"{reason}, a redirect that cannot be followed")
    return ServiceCallError("service_refused", reason, is_splittable=status in _INVALID_ROW_STATUSES)


def make_invalid_answer_error(reason: str) -> ServiceCallError:
    """Return the error for a complete response that cannot be parsed. ``reason`` completes the message."""
    return ServiceCallError(
        "invalid_answer", f"Invalid response from the service: {reason}", is_transient=True, is_splittable=True
    )


def make_answer_too_large_error(megabytes: int) -> ServiceCallError:
    return ServiceCallError(
        "answer_too_large", f"The service's response is larger than {megabytes} MB", is_splittable=True
    )


def describe_http_status(status: int) -> str:
    """Return the status with its standard phrase. The server's own phrase is not trusted."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


class ServiceCallPermit(Protocol):
    """A permit for one request: entering waits for it, leaving releases it.

    If the block raises the error of a throttled request, the limiter pauses until the retry time of that error.
    """

    async def __aenter__(self) -> Any: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Any: ...


class ServicePermits(Protocol):
    """Permits of named limiters, one for each HTTP request. An unknown limiter raises InvalidInput."""

    def permit(self, name: str, key: str, /) -> ServiceCallPermit: ...


class UnlimitedPermits:
    """Permits every request immediately. The engine still reacts to throttled outcomes of the kind."""

    def permit(self, _name: str, _key: str, /) -> ServiceCallPermit:
        return nullcontext()


ReconciliationVersion = Literal["0.2", "1.0"]
SECRET_PLACEHOLDER = "{secret}"  # noqa: S105  a placeholder, not a secret
DEFAULT_WEB_PORT_BY_SCHEME = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalService:
    """A declared service. Requests go to ``url`` or to paths below it.

    ``header`` carries the secret in the format ``value``. Only the environment of the workers contains the secret.
    ``limit`` names the limiter that counts requests, not rows.
    """

    name: str
    url: str
    header: str | None = None
    value: str = SECRET_PLACEHOLDER
    secret_env: str = ""
    allow_private: bool = False
    use: tuple[Role, ...] = (Role.ADMIN,)
    limit: str | None = None
    protocol: ReconciliationVersion = "0.2"
    batch: int | None = None  # rows per request; None: the batch size of the service's manifest
    concurrency: int = 4  # open requests per process
    timeout: float = 30.0  # seconds per request
    answer_mb: int = 8

    @property
    def host(self) -> str:
        return (urlsplit(self.url).hostname or "").lower()

    @property
    def port(self) -> int:
        parts = urlsplit(self.url)
        return parts.port or DEFAULT_WEB_PORT_BY_SCHEME[parts.scheme]

    @property
    def max_answer_bytes(self) -> int:
        return self.answer_mb << 20

    def is_allowed_for(self, role: Role) -> bool:
        return has_role(self.use, role)

    def get_secret_from_environment(self, environment: Mapping[str, str]) -> str | None:
        """Return the secret: None if the service needs none, ``""`` if the variable is not set."""
        return None if self.header is None else environment.get(self.secret_env, "").strip()

    def build_address_policy(self, extra_allowed: Sequence[AllowedHost] = ()) -> "ServiceAddressPolicy":
        tls = self.url.startswith("https:")
        return ServiceAddressPolicy(
            self.host, self.port, allow_private=self.allow_private, extra_allowed=tuple(extra_allowed), tls=tls
        )


@dataclass(frozen=True, slots=True)
class ServiceAddressPolicy:
    """The addresses that calls may connect to, also after redirects: the service's own and public addresses."""

    host: str
    port: int
    allow_private: bool = False
    extra_allowed: tuple[AllowedHost, ...] = ()
    tls: bool = False

    def explain_refusal(self, host: str, addresses: Sequence[IPAddress], port: int) -> str | None:
        """Return why calls may not connect to the host, or None.

        One refused address refuses the host, because the connection may use any of its addresses.
        """
        is_own = (host.lower(), port) == (self.host, self.port)
        if is_own and self.allow_private:
            return None
        if is_own and port not in WEB_PORTS:
            bad = [address for address in addresses if not is_public_address(address)]
            return NOT_PUBLIC_REASON if bad and explain_refused_host(host, bad, port, self.extra_allowed) else None
        return explain_refused_host(host, addresses, port, self.extra_allowed)


def check_service_url(url: str) -> str:
    """Return the URL. Raise ValueError if it is not an http or https URL, or may contain a secret: URLs are stored."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("Input should be a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError("Input should be an http or https URL with a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError('Remove the user and the password; set "header" and "secret_env" instead')
    if parts.query or parts.fragment or any(ord(mark) <= ord(" ") for mark in url):
        raise ValueError("Remove ?, # and spaces; secrets belong in a header")
    return url


def make_service_from_url(url: str) -> ExternalService:
    """Return a service that an administrator refers to by URL. It must be public and has no secret."""
    return ExternalService(name=(urlsplit(url).hostname or "").lower(), url=url)
