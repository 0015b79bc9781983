"""Calls to one service: bounded in time and size, to checked addresses only, over connections that are used again."""

import asyncio
import ssl
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import httpcore2
import httpx2

from tidemill.connectors.remote.answers import REDIRECTS, retry_after
from tidemill.connectors.remote.checked import CONNECT_S, CheckedBackend, Resolve, resolve
from tidemill.domain.services.calls import Answered, CallFailed, Headers, too_large, unusable
from tidemill.domain.services.service import Reach

MAX_REDIRECTS = 3
SEE_OTHER = 303
IDLE_S = 15.0  # a connection that is not used for so long is closed
_ALWAYS = [("Accept", "application/json"), ("Accept-Encoding", "identity"), ("User-Agent", "tidemill")]


@dataclass(frozen=True, slots=True)
class Bounds:
    seconds: float = 30.0
    max_bytes: int = 8 << 20
    connections: int = 4


class Caller:
    """Speaks to a service. ``secret`` is a header that only the service's own machine is told."""

    def __init__(
        self,
        reach: Reach,
        bounds: Bounds,
        *,
        secret: tuple[str, str] | None = None,
        resolve_: Resolve = resolve,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._reach = replace(reach, host=_on_the_wire(reach.host))
        self._bounds = bounds
        self._secret = secret
        self._resolve = resolve_
        self._given_context = ssl_context

    async def call(self, method: str, url: str, headers: Headers | None = None, content: bytes = b"") -> Answered:
        """One request, and those that its redirects lead to. CallFailed when there is no answer."""
        try:
            async with asyncio.timeout(self._bounds.seconds):
                return await self._follow(method, httpx2.URL(url), headers or [], content)
        except (TimeoutError, httpcore2.TimeoutException):
            reason = f"the service did not answer within {self._bounds.seconds:g} s"
            raise CallFailed("service_timeout", reason, passing=True) from None
        except httpx2.InvalidURL:
            raise CallFailed("address_refused", "this is not a URL") from None
        except httpcore2.ConnectError as error:
            raise _no_connection(error) from None
        except (httpcore2.NetworkError, httpcore2.RemoteProtocolError):
            reason = "the connection to the service broke before it had answered"
            raise CallFailed("service_unreachable", reason, passing=True, splits=True) from None
        except httpcore2.LocalProtocolError:
            raise CallFailed("service_refused", "a header has characters that cannot be sent") from None

    async def close(self) -> None:
        if "_pool" in self.__dict__:
            await self._pool.aclose()
            del self.__dict__["_pool"]

    async def _follow(self, method: str, link: httpx2.URL, headers: Headers, content: bytes) -> Answered:
        for _ in range(MAX_REDIRECTS + 1):
            status, answered, body = await self._ask(method, link, headers, content)
            if status not in REDIRECTS:
                return Answered(status, body, retry_after(answered))
            link = _redirected(link, answered.get("location"))
            if status == SEE_OTHER:
                method, content = "GET", b""
        raise CallFailed("service_redirect", f"the service redirects more than {MAX_REDIRECTS} times")

    async def _ask(
        self, method: str, link: httpx2.URL, headers: Headers, content: bytes
    ) -> tuple[int, httpx2.Headers, bytes]:
        port = link.port or {"http": 80, "https": 443}[link.scheme]
        target = httpcore2.URL(scheme=link.raw_scheme, host=link.raw_host, port=port, target=link.raw_path)
        given = {name.lower() for name, _ in headers}
        usual = [one for one in _ALWAYS if one[0].lower() not in given]
        sent = usual + headers + self._secret_for(link, port)
        options: dict[str, Any] = {"headers": sent, "content": content, "extensions": _timeouts(self._bounds.seconds)}
        async with self._pool.stream(method, target, **options) as response:
            head = httpx2.Headers(response.headers)
            if head.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
                raise unusable("it is compressed, which it was not asked to be")
            body = bytearray()
            async for piece in response.aiter_stream():
                body += piece
                if len(body) > self._bounds.max_bytes:
                    raise too_large(self._bounds.max_bytes >> 20)
        return response.status, head, self._without_secret(bytes(body))

    def _secret_for(self, link: httpx2.URL, port: int) -> Headers:
        """Nobody else hears it, wherever a redirect leads."""
        is_own = (link.raw_host.decode("ascii").lower(), port) == (self._reach.host, self._reach.port)
        return [self._secret] if self._secret is not None and is_own else []

    def _without_secret(self, body: bytes) -> bytes:
        """A service may tell what it was told."""
        if self._secret is None:
            return body
        for word in self._secret[1].split():
            if len(word) > len("Bearer"):
                body = body.replace(word.encode(), b"***")
        return body

    def _lazy_context(self) -> ssl.SSLContext | None:
        """Certificates take a while to read: a service without TLS is spared them, unless it redirects to some."""
        return httpx2.create_ssl_context(trust_env=False) if self._reach.tls else None

    @cached_property
    def _pool(self) -> httpcore2.AsyncConnectionPool:
        return httpcore2.AsyncConnectionPool(
            ssl_context=self._given_context or self._lazy_context(),
            max_connections=self._bounds.connections + MAX_REDIRECTS,
            keepalive_expiry=IDLE_S,
            network_backend=CheckedBackend(self._reach, self._resolve),
        )


def _on_the_wire(host: str) -> str:
    """As links have it, and certificates: a name with letters beyond ASCII is another word there."""
    try:
        return httpx2.URL(f"http://[{host}]" if ":" in host else f"http://{host}").raw_host.decode("ascii").lower()
    except httpx2.InvalidURL:  # which every call will say
        return host


def _timeouts(seconds: float) -> dict[str, Any]:
    return {"timeout": {"connect": min(CONNECT_S, seconds), "read": seconds, "write": seconds, "pool": seconds}}


def _redirected(link: httpx2.URL, location: str | None) -> httpx2.URL:
    """Where a redirect leads. Whether that is an address to speak to is seen when it is connected to."""
    try:
        target = link.join(location or "")
        scheme, host, user = target.scheme, target.host, target.userinfo
    except (httpx2.InvalidURL, ValueError):
        raise CallFailed("service_redirect", "the service redirects to what is not a URL") from None
    if not location or scheme not in ("http", "https") or not host or user:
        raise CallFailed("service_redirect", "the service redirects to what cannot be followed")
    if link.scheme == "https" and scheme == "http":
        raise CallFailed("service_redirect", "the service redirects from https to http")
    return target.copy_with(fragment=None)


def _no_connection(error: httpcore2.ConnectError) -> CallFailed:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = f"the certificate of the service is not valid: {cause.verify_message}"
            return CallFailed("service_certificate", reason)
        cause = cause.__cause__ or cause.__context__
    return CallFailed("service_unreachable", "the service cannot be connected to", passing=True)
