"""Authentication, permissions and limits of requests. Every route declares them once, with ``declare_route``."""

import hmac
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.routing import APIRoute

from tidemill.core.principal import Principal
from tidemill.rest import problems
from tidemill.rest.problems import HttpError
from tidemill.rest.request_body import BodyLimit
from tidemill.rest.runtime import get_runtime
from tidemill.runtime import Runtime
from tidemill.store import sessions, users
from tidemill.store.sessions import SessionLimits

TRACKED_CALLERS_MAX = 10_000
CALLER_IPV6_PREFIX_BITS = 64  # bits of an IPv6 address: whoever has one address has all of its network


def normalize_caller_address(address: str | None) -> str:
    """Where a stranger comes from, as far as strangers cannot choose it."""
    try:
        found = ip_address(address or "")
    except ValueError:
        return "unknown"
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped or IPv6Network((int(found), CALLER_IPV6_PREFIX_BITS), strict=False))


@dataclass(frozen=True, slots=True)
class RequestTokenBucket:
    """Tokens left, and when that was."""

    tokens: float
    at: float

    def take_token(self, now: float, *, rate: float, burst: float) -> tuple["RequestTokenBucket", bool]:
        tokens = min(burst, self.tokens + (now - self.at) * rate)
        return (RequestTokenBucket(tokens - 1, now), True) if tokens >= 1 else (RequestTokenBucket(tokens, now), False)


class RequestRateLimiter:
    """In this process's memory: what it guards is this process. The callers seen longest ago are forgotten."""

    def __init__(self, *, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, RequestTokenBucket] = OrderedDict()

    def count_request(self, caller: str) -> tuple[bool, dict[str, str]]:
        """Whether the caller may go on, and the headers that say how much is left."""
        now = self._clock()
        bucket = self._buckets.pop(caller, RequestTokenBucket(self._burst, now))
        bucket, may = bucket.take_token(now, rate=self._rate, burst=self._burst)
        self._buckets[caller] = bucket
        if len(self._buckets) > TRACKED_CALLERS_MAX:
            self._buckets.popitem(last=False)
        window = max(1, round(self._burst / self._rate))
        wait = max(1, round((1 - bucket.tokens) / self._rate + 0.5))
        headers = {
            "ratelimit-policy": f'"default";q={self._burst:.0f};w={window}',
            "ratelimit": f'"default";r={max(0, int(bucket.tokens))};t={window if may else wait}',
        }
        return may, headers if may else headers | {"retry-after": str(wait)}


def make_rate_limiter(runtime: Runtime) -> RequestRateLimiter:
    settings = runtime.settings
    return RequestRateLimiter(rate=settings.rate_limit_per_s, burst=settings.rate_limit_burst)


SESSION_COOKIE = "tidemill_session"
CSRF_HEADER = "X-CSRF-Token"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
BODY_LIMITS_KEY = "x-body-limits"  # in a route's openapi_extra; the OpenAPI document leaves it out


class Permission(StrEnum):
    PUBLIC = "public"  # without authentication
    USER = "user"  # every user, for their own jobs
    ADMIN = "admin"


class AuthenticatedRoute(APIRoute):
    """Checks authentication, permission and rate limit, and sets the body's limit, before it reads the body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        declared = self.openapi_extra or {}
        permission = declared.get("x-permission")
        body, json_body = declared.get(BODY_LIMITS_KEY, (BodyLimit.SMALL, None))

        async def handle_authenticated(request: Request) -> Response:
            request.state.body.set_limit(get_runtime(request).settings, body, json_body)
            if permission != Permission.PUBLIC:
                request.state.principal = await _authenticate_request(request, permission)
            elif request.method not in SAFE_METHODS:
                enforce_rate_limit(request, identify_anonymous_caller(request))
            return await handle(request)

        return handle_authenticated


async def _authenticate_request(request: Request, permission: str | None) -> Principal:
    """The user, by API key or by session. A browser's write must carry the token of its session."""
    runtime = get_runtime(request)
    keys = request.headers.getlist("authorization")
    found = await _authenticate_api_key(runtime, keys) if keys else await _authenticate_session(runtime, request)
    enforce_rate_limit(request, identify_anonymous_caller(request) if found is None else f"{found.by} {found.user_id}")
    if found is None:
        raise HttpError(401, "say who you are: an API key, or sign in", {"WWW-Authenticate": "Bearer"})
    if found.csrf is not None and request.method not in SAFE_METHODS:
        given = request.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(given.encode(), found.csrf.encode()):
            raise HttpError(403, f"a write from a browser carries its session's token in {CSRF_HEADER}")
    if permission == Permission.ADMIN and not found.is_admin:
        raise HttpError(403, "only an admin may do this")
    return found


def enforce_rate_limit(request: Request, caller: str) -> None:
    """Count a request of this caller; 429 if there are too many."""
    may, headers = get_runtime(request).get(make_rate_limiter).count_request(caller)
    request.state.headers |= headers
    if not may:
        raise HttpError(429, "too many requests; wait a moment")


async def get_principal(request: Request) -> Principal:
    found: Principal = request.state.principal
    return found


CurrentUser = Annotated[Principal, Depends(get_principal)]


async def is_still_authorized(request: Request, me: Principal) -> bool:
    """Whether the key or session that opened a stream is still valid, with the same role."""
    runtime = get_runtime(request)
    keys = request.headers.getlist("authorization")
    if keys:
        found = await _authenticate_api_key(runtime, keys)
    else:  # peek: an open stream keeps no session alive, and cannot send a new cookie
        found = await runtime.db.run(
            sessions.peek_session, request.cookies.get(SESSION_COOKIE, ""), runtime.get(make_session_limits)
        )
    return found is not None and found.user_id == me.user_id and found.role is me.role


def declare_route(
    permission: Permission,
    *statuses: int,
    extra_responses: dict[int | str, dict[str, Any]] | None = None,
    body: BodyLimit = BodyLimit.SMALL,
    json_body: BodyLimit | None = None,
) -> dict[str, Any]:
    """The options of a route: who may call it, its error statuses and other responses, and the limit of its body.

    ``json_body`` is for routes whose body is a file or JSON parameters: the limit of the latter.
    """
    always = (422, 429, 500, 503) if permission is Permission.PUBLIC else (401, 403, 422, 429, 500, 503)
    extra: dict[str, Any] = {"x-permission": permission.value, BODY_LIMITS_KEY: (body, json_body)}
    if permission is Permission.PUBLIC:
        extra["security"] = []
    return {
        "responses": problems.document_problems(*always, *statuses) | (extra_responses or {}),
        "openapi_extra": extra,
    }


def include_declared_router(app: FastAPI, router: APIRouter, prefix: str = "") -> None:
    """Add routes to the service; RuntimeError if one declares no permission."""
    for route in router.routes:
        has_permission = isinstance(route, AuthenticatedRoute) and "x-permission" in (route.openapi_extra or {})
        if not has_permission:
            raise RuntimeError(f"a route without a permission: {prefix}{getattr(route, 'path', route)}")
    app.include_router(router, prefix=prefix)


def set_session_cookie(request: Request, token: str | None) -> None:
    """Set the session cookie of the response, even of an error; None removes it."""
    carrier = Response()
    if token is None:
        carrier.delete_cookie(SESSION_COOKIE, path="/", httponly=True, samesite="strict")
    else:
        is_https = request.url.scheme == "https"
        carrier.set_cookie(SESSION_COOKIE, token, httponly=True, samesite="strict", secure=is_https, path="/")
    request.state.cookie = carrier.headers["set-cookie"]


def identify_anonymous_caller(request: Request) -> str:
    """The name under which requests without authentication are counted."""
    return f"address {normalize_caller_address(get_client_host(request))}"


def get_client_host(request: Request) -> str | None:
    return request.client.host if request.client is not None else None


def get_client_ip(request: Request) -> str | None:
    """The caller's IP address; None for a socket of another kind."""
    try:
        return str(ipaddress.ip_address(get_client_host(request) or ""))
    except ValueError:
        return None


async def _authenticate_api_key(runtime: Runtime, headers: list[str]) -> Principal | None:
    """Two headers count as none, because a proxy may have checked the other one."""
    scheme, _, text = headers[0].partition(" ")
    is_key = len(headers) == 1 and scheme.lower() == "bearer"
    return await users.authenticate_key(runtime.db, text.strip(" ")) if is_key else None


async def _authenticate_session(runtime: Runtime, request: Request) -> Principal | None:
    token = request.cookies.get(SESSION_COOKIE)
    opened = await runtime.db.run(sessions.use_session, token, runtime.get(make_session_limits)) if token else None
    if opened is None:
        return None
    if opened.secret is not None:
        set_session_cookie(request, opened.secret)
    return opened.principal


def make_session_limits(runtime: Runtime) -> SessionLimits:
    return SessionLimits(runtime.settings.session_idle_s, runtime.settings.session_max_s)
