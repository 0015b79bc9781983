"""Authentication, permissions and request limits. Every route declares them with ``build_route_options``."""

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
from tidemill.rest.dependencies import get_runtime
from tidemill.rest.problems import HttpError
from tidemill.rest.request_body import BodyLimit
from tidemill.runtime import Runtime
from tidemill.store import users
from tidemill.store.users import SessionLimits

TRACKED_CALLERS_MAX = 10_000


CALLER_IPV6_PREFIX_BITS = 64  # a client usually controls all addresses of its /64 network


def normalize_caller_address(address: str | None) -> str:
    """Return the part of an address that an unauthenticated client cannot choose."""
    try:
        parsed = ip_address(address or "")
    except ValueError:
        return "unknown"
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or IPv6Network((int(parsed), CALLER_IPV6_PREFIX_BITS), strict=False))


@dataclass(frozen=True, slots=True)
class RequestTokenBucket:
    """The tokens that were left at a time."""

    tokens: float
    at: float

    def take_token(self, now: float, *, rate: float, burst: float) -> tuple["RequestTokenBucket", bool]:
        tokens = min(burst, self.tokens + (now - self.at) * rate)
        return (RequestTokenBucket(tokens - 1, now), True) if tokens >= 1 else (RequestTokenBucket(tokens, now), False)


class RequestRateLimiter:
    """Token buckets in memory, because they protect this process only. The least recently seen callers are evicted."""

    def __init__(self, *, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, RequestTokenBucket] = OrderedDict()

    def admit_request(self, caller: str) -> tuple[bool, dict[str, str]]:
        """Return whether the request is admitted, and the rate-limit headers of the response."""
        now = self._clock()
        bucket = self._buckets.pop(caller, RequestTokenBucket(self._burst, now))
        bucket, is_admitted = bucket.take_token(now, rate=self._rate, burst=self._burst)
        self._buckets[caller] = bucket
        if len(self._buckets) > TRACKED_CALLERS_MAX:
            self._buckets.popitem(last=False)
        window = max(1, round(self._burst / self._rate))
        wait = max(1, round((1 - bucket.tokens) / self._rate + 0.5))
        headers = {
            "ratelimit-policy": f'"default";q={self._burst:.0f};w={window}',
            "ratelimit": f'"default";r={max(0, int(bucket.tokens))};t={window if is_admitted else wait}',
        }
        return is_admitted, headers if is_admitted else headers | {"retry-after": str(wait)}


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
                request.state.principal = await _authenticate_and_authorize(request, permission)
            elif request.method not in SAFE_METHODS:
                enforce_rate_limit(request, build_anonymous_rate_key(request))
            return await handle(request)

        return handle_authenticated


async def _authenticate_and_authorize(request: Request, permission: str | None) -> Principal:
    """Return the user of an API key or session. A write in a session needs its CSRF token.

    Raises:
        HttpError: 401, 403 or 429.
    """
    runtime = get_runtime(request)
    keys = request.headers.getlist("authorization")
    found = await _authenticate_api_key(runtime, keys) if keys else await _authenticate_session(runtime, request)
    enforce_rate_limit(request, build_anonymous_rate_key(request) if found is None else f"{found.by} {found.user_id}")
    if found is None:
        raise HttpError(401, "Authentication required. Send an API key or sign in.", {"WWW-Authenticate": "Bearer"})
    if found.csrf is not None and request.method not in SAFE_METHODS:
        given = request.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(given.encode(), found.csrf.encode()):
            raise HttpError(
                403, f"Invalid or missing CSRF token. Send the session's token in the {CSRF_HEADER} header."
            )
    if permission == Permission.ADMIN and not found.is_admin:
        raise HttpError(403, "This operation requires the admin role")
    return found


def enforce_rate_limit(request: Request, caller: str) -> None:
    """Count a request of this caller; respond 429 if the rate limit is exceeded."""
    is_admitted, headers = get_runtime(request).get(make_rate_limiter).admit_request(caller)
    request.state.headers |= headers
    if not is_admitted:
        raise HttpError(429, "Too many requests. Retry after the time in the Retry-After header.")


async def get_principal(request: Request) -> Principal:
    found: Principal = request.state.principal
    return found


CurrentUser = Annotated[Principal, Depends(get_principal)]


async def is_still_authorized(request: Request, me: Principal) -> bool:
    """Return whether the key or session that opened a stream is still valid and has the same role."""
    runtime = get_runtime(request)
    keys = request.headers.getlist("authorization")
    if keys:
        found = await _authenticate_api_key(runtime, keys)
    else:  # peek: an open stream must not extend the session, and cannot send a new cookie
        found = await runtime.db.run(
            users.peek_session_principal,
            request.cookies.get(SESSION_COOKIE, ""),
            runtime.get(make_session_limits),
        )
    return found is not None and found.user_id == me.user_id and found.role is me.role


def build_route_options(
    permission: Permission,
    *statuses: int,
    extra_responses: dict[int | str, dict[str, Any]] | None = None,
    body: BodyLimit = BodyLimit.SMALL,
    json_body: BodyLimit | None = None,
) -> dict[str, Any]:
    """Return the options of a route: its permission, error statuses, other responses, and body limit.

    ``json_body`` is the limit of JSON parameters, for routes whose body is a file or JSON parameters.
    """
    always = (422, 429, 500, 503) if permission is Permission.PUBLIC else (401, 403, 422, 429, 500, 503)
    extra: dict[str, Any] = {"x-permission": permission.value, BODY_LIMITS_KEY: (body, json_body)}
    if permission is Permission.PUBLIC:
        extra["security"] = []
    return {
        "responses": problems.build_openapi_problem_responses(*always, *statuses) | (extra_responses or {}),
        "openapi_extra": extra,
    }


def include_router_with_permissions(app: FastAPI, router: APIRouter, prefix: str = "") -> None:
    """Add routes to the app; raise RuntimeError if one declares no permission."""
    for route in router.routes:
        has_permission = isinstance(route, AuthenticatedRoute) and "x-permission" in (route.openapi_extra or {})
        if not has_permission:
            raise RuntimeError(f"Route without a permission: {prefix}{getattr(route, 'path', route)}")
    app.include_router(router, prefix=prefix)


def set_session_cookie(request: Request, token: str | None) -> None:
    """Set the session cookie of the response, including error responses; None removes it."""
    carrier = Response()
    if token is None:
        carrier.delete_cookie(SESSION_COOKIE, path="/", httponly=True, samesite="strict")
    else:
        is_https = request.url.scheme == "https"
        carrier.set_cookie(SESSION_COOKIE, token, httponly=True, samesite="strict", secure=is_https, path="/")
    request.state.cookie = carrier.headers["set-cookie"]


def build_anonymous_rate_key(request: Request) -> str:
    """Return the rate-limit key of an unauthenticated request."""
    return f"address {normalize_caller_address(get_client_host(request))}"


def get_client_host(request: Request) -> str | None:
    return request.client.host if request.client is not None else None


def get_client_ip(request: Request) -> str | None:
    """Return the caller's IP address; None if the socket has none."""
    try:
        return str(ipaddress.ip_address(get_client_host(request) or ""))
    except ValueError:
        return None


async def _authenticate_api_key(runtime: Runtime, headers: list[str]) -> Principal | None:
    """Return the user of an API key; None for several headers, because a proxy may have checked another one."""
    scheme, _, text = headers[0].partition(" ")
    is_key = len(headers) == 1 and scheme.lower() == "bearer"
    return await users.authenticate_key(runtime.db, text.strip(" ")) if is_key else None


async def _authenticate_session(runtime: Runtime, request: Request) -> Principal | None:
    token = request.cookies.get(SESSION_COOKIE)
    opened = (
        await runtime.db.run(users.authenticate_session, token, runtime.get(make_session_limits)) if token else None
    )
    if opened is None:
        return None
    if opened.secret is not None:
        set_session_cookie(request, opened.secret)
    return opened.principal


def make_session_limits(runtime: Runtime) -> SessionLimits:
    return SessionLimits(runtime.settings.session_idle_s, runtime.settings.session_max_s)
