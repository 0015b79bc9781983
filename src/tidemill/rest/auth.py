"""Authentication, permissions and limits of requests. Every route declares them once, with ``build_route_options``."""

import hmac
import ipaddress
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.routing import APIRoute

from tidemill.core.principal import Principal
from tidemill.rest import problems
from tidemill.rest.problems import HttpError
from tidemill.rest.rate_limit import make_rate_limiter, normalize_caller_address
from tidemill.rest.request_body import BodyLimit
from tidemill.rest.runtime_dependencies import get_runtime
from tidemill.runtime import Runtime
from tidemill.store import browser_sessions, users
from tidemill.store.browser_sessions import SessionLimits

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
    """The user, by API key or by session. A browser's write must carry the token of its session."""
    runtime = get_runtime(request)
    keys = request.headers.getlist("authorization")
    found = await _authenticate_api_key(runtime, keys) if keys else await _authenticate_session(runtime, request)
    enforce_rate_limit(request, build_anonymous_rate_key(request) if found is None else f"{found.by} {found.user_id}")
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
    may, headers = get_runtime(request).get(make_rate_limiter).admit_request(caller)
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
            browser_sessions.peek_session, request.cookies.get(SESSION_COOKIE, ""), runtime.get(make_session_limits)
        )
    return found is not None and found.user_id == me.user_id and found.role is me.role


def build_route_options(
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
        "responses": problems.build_problem_responses(*always, *statuses) | (extra_responses or {}),
        "openapi_extra": extra,
    }


def include_checked_router(app: FastAPI, router: APIRouter, prefix: str = "") -> None:
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


def build_anonymous_rate_key(request: Request) -> str:
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
    opened = (
        await runtime.db.run(browser_sessions.authenticate_session, token, runtime.get(make_session_limits))
        if token
        else None
    )
    if opened is None:
        return None
    if opened.secret is not None:
        set_session_cookie(request, opened.secret)
    return opened.principal


def make_session_limits(runtime: Runtime) -> SessionLimits:
    return SessionLimits(runtime.settings.session_idle_s, runtime.settings.session_max_s)
