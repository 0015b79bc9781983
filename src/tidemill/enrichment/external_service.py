"""The declaration of a service that jobs call, the errors of its calls, and the permits of its limiter."""

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
from tidemill.core.principal import Role

RETRY_AFTER_MAX_S = 7 * 86_400.0  # upper bound of what a service may request
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
    """The answer to a request, with any status."""

    status: int
    body: bytes
    retry_after_s: float | None  # from the header Retry-After


class ServiceCallError(Exception):
    """A call without a usable answer. ``is_transient``: another attempt may succeed.

    ``is_splittable``: one row of the request may be the cause, so the others are sent without it.
    """

    def __init__(self, code: str, reason: str, *, is_transient: bool = False, is_splittable: bool = False) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.is_transient = is_transient
        self.is_splittable = is_splittable


class ServiceThrottled(ServiceCallError):
    """The service throttles requests. ``after`` is the number of seconds to wait, if the service says so."""

    def __init__(self, reason: str, after: float | None = None, status: int = 429) -> None:
        super().__init__("throttled", reason, is_transient=True)
        self.retry_after_s = None if after is None else min(after, RETRY_AFTER_MAX_S)
        self.status = status  # as other exceptions of refusals have it, see domain/throttle.py
        self.headers = {} if self.retry_after_s is None else {"Retry-After": f"{self.retry_after_s:g}"}


def error_from_status(status: int, retry_after_s: float | None = None) -> ServiceCallError | None:
    """The error that a status stands for; None for a success."""
    words = f"the service answered {describe_status(status)}"
    if status in _SUCCESS_STATUSES:
        return None
    if status in _THROTTLE_STATUSES:
        return ServiceThrottled(words, retry_after_s, status)
    if status in _CALL_DENIED_STATUSES:
        return ServiceCallError("service_denied", words)
    if status >= _SERVER_ERROR_MIN_STATUS or status in _RETRIED_CLIENT_ERRORS:
        return ServiceCallError("service_error", words, is_transient=True, is_splittable=True)
    if status in _ALL_REDIRECT_STATUSES:
        return ServiceCallError("service_redirect", f"{words}, which leads nowhere")
    return ServiceCallError("service_refused", words, is_splittable=status in _INVALID_ROW_STATUSES)


def make_invalid_answer_error(reason: str) -> ServiceCallError:
    """The error of a complete answer that cannot be parsed."""
    return ServiceCallError(
        "invalid_answer", f"the service's answer cannot be used: {reason}", is_transient=True, is_splittable=True
    )


def make_answer_too_large_error(megabytes: int) -> ServiceCallError:
    return ServiceCallError(
        "answer_too_large", f"the service's answer is larger than {megabytes} MB", is_splittable=True
    )


def describe_status(status: int) -> str:
    """The status with its standard phrase; the phrase of the server is not trusted."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


class ServiceCallPermit(Protocol):
    """A permit for one request: entering waits for it, leaving releases it.

    An error of a throttled request that leaves the block pauses the limiter until its time to retry.
    """

    async def __aenter__(self) -> Any: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Any: ...


class ServicePermits(Protocol):
    """Permits of named limiters, one for each HTTP request; InvalidInput if there is no such limiter."""

    def permit(self, name: str, key: str, /) -> ServiceCallPermit: ...


class UnlimitedPermits:
    """Permits every request at once. The engine still reacts to throttled outcomes of the kind."""

    def permit(self, _name: str, _key: str, /) -> ServiceCallPermit:
        return nullcontext()


ReconciliationVersion = Literal["0.2", "1.0"]
RECONCILIATION_VERSIONS: tuple[ReconciliationVersion, ...] = ("0.2", "1.0")
SECRET_PLACEHOLDER = "{secret}"  # noqa: S105  likewise
DEFAULT_WEB_PORT_BY_SCHEME = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalService:
    """A declared service. Requests go to ``url`` or to paths below it.

    ``header`` carries the secret in the form of ``value``; the secret itself is only in the environment of workers.
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
    batch: int | None = None  # rows in a request; without it, as many as the service says it takes
    concurrency: int = 4  # requests at a time, of one process
    timeout: float = 30.0  # seconds for one request
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
        return role in self.use or (role is Role.ADMIN and bool(self.use))

    def read_secret(self, environment: Mapping[str, str]) -> str | None:
        """The secret; None if the service needs none, ``""`` if it is missing."""
        return None if self.header is None else environment.get(self.secret_env, "").strip()

    def build_address_policy(self, extra_allowed: Sequence[AllowedHost] = ()) -> "ServiceAddressPolicy":
        tls = self.url.startswith("https:")
        return ServiceAddressPolicy(
            self.host, self.port, allow_private=self.allow_private, extra_allowed=tuple(extra_allowed), tls=tls
        )


@dataclass(frozen=True, slots=True)
class ServiceAddressPolicy:
    """The addresses that calls may connect to, also after redirects: those of the service, and public ones."""

    host: str
    port: int
    allow_private: bool = False
    extra_allowed: tuple[AllowedHost, ...] = ()
    tls: bool = False

    def explain_refusal(self, host: str, addresses: Sequence[IPAddress], port: int) -> str | None:
        """Why calls may not connect there, or None. One refused address is enough: any of them could be used."""
        is_own = (host.lower(), port) == (self.host, self.port)
        if is_own and self.allow_private:
            return None
        if is_own and port not in WEB_PORTS:
            bad = [address for address in addresses if not is_public_address(address)]
            return NOT_PUBLIC_REASON if bad and explain_refused_host(host, bad, port, self.extra_allowed) else None
        return explain_refused_host(host, addresses, port, self.extra_allowed)


def check_service_url(url: str) -> str:
    """An http or https URL without secrets, because it is stored; ValueError says what is wrong."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("Input should be a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError("Input should be an http or https URL with a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("Remove the user and the password; declare a header and the variable of its secret instead")
    if parts.query or parts.fragment or any(ord(mark) <= ord(" ") for mark in url):
        raise ValueError("Remove ?, # and spaces; secrets belong in a header")
    return url


def make_undeclared_service(url: str) -> ExternalService:
    """A service that an administrator names by its URL: on the public web only, and without a secret."""
    return ExternalService(name=(urlsplit(url).hostname or "").lower(), url=url)
