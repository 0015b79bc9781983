"""Who may come in. Every route says so once, with ``allow``; one that does not stops the start."""

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
from tidemill.rest.runtime import get_runtime
from tidemill.runtime import Runtime
from tidemill.store import sessions, users
from tidemill.store.sessions import SessionLimits

SESSION_COOKIE = "tidemill_session"
CSRF_HEADER = "X-CSRF-Token"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class Permission(StrEnum):
    PUBLIC = "public"  # anybody
    USER = "user"  # whoever is signed in; sees what is theirs
    ADMIN = "admin"


class AuthenticatedRoute(APIRoute):
    """A route that knows who asks, and how often, before a byte of a body is read: strangers cost nothing."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        permission = (self.openapi_extra or {}).get("x-permission")

        async def handle_authenticated(request: Request) -> Response:
            if permission != Permission.PUBLIC:
                request.state.principal = await _authenticate_request(request, permission)
            elif request.method not in SAFE_METHODS:
                enforce_rate_limit(request, identify_anonymous_caller(request))
            return await handle(request)

        return handle_authenticated


async def _authenticate_request(request: Request, permission: str | None) -> Principal:
    """Who asks, by key or by session. A browser's write must carry the token of its session."""
    here = get_runtime(request)
    keys = request.headers.getlist("authorization")
    found = await _authenticate_api_key(here, keys) if keys else await _authenticate_session(here, request)
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
    """Count a request of somebody; too many are refused."""
    may, headers = get_runtime(request).get(make_rate_limiter).count_request(caller)
    request.state.headers |= headers
    if not may:
        raise HttpError(429, "too many requests; wait a moment")


async def get_principal(request: Request) -> Principal:
    found: Principal = request.state.principal
    return found


CurrentUser = Annotated[Principal, Depends(get_principal)]


async def is_still_authorized(request: Request, me: Principal) -> bool:
    """Whether who opened a stream would still be let in: keys are revoked, sessions end."""
    here = get_runtime(request)
    keys = request.headers.getlist("authorization")
    if keys:
        found = await _authenticate_api_key(here, keys)
    else:  # only a look: an open stream keeps no session alive, and no new cookie could be sent
        found = await here.db.run(
            sessions.peek_session, request.cookies.get(SESSION_COOKIE, ""), here.get(make_session_limits)
        )
    return found is not None and found.user_id == me.user_id and found.role is me.role


def declare_route(
    permission: Permission, *statuses: int, extra_responses: dict[int | str, dict[str, Any]] | None = None
) -> dict[str, Any]:
    """A route's options: who may call it, and which errors, and which answers besides, it may give."""
    always = (422, 429, 500, 503) if permission is Permission.PUBLIC else (401, 403, 422, 429, 500, 503)
    extra: dict[str, Any] = {"x-permission": permission.value}
    if permission is Permission.PUBLIC:
        extra["security"] = []
    return {
        "responses": problems.document_problems(*always, *statuses) | (extra_responses or {}),
        "openapi_extra": extra,
    }


def include_declared_router(app: FastAPI, router: APIRouter, prefix: str = "") -> None:
    """Add routes to the service: none without a declared permission."""
    for route in router.routes:
        declared = isinstance(route, AuthenticatedRoute) and "x-permission" in (route.openapi_extra or {})
        if not declared:
            raise RuntimeError(f"a route without a permission: {prefix}{getattr(route, 'path', route)}")
    app.include_router(router, prefix=prefix)


def set_session_cookie(request: Request, token: str | None) -> None:
    """What the browser has from now on, None for nothing. It leaves with the answer, whatever that will be."""
    carrier = Response()
    if token is None:
        carrier.delete_cookie(SESSION_COOKIE, path="/", httponly=True, samesite="strict")
    else:
        is_https = request.url.scheme == "https"
        carrier.set_cookie(SESSION_COOKIE, token, httponly=True, samesite="strict", secure=is_https, path="/")
    request.state.cookie = carrier.headers["set-cookie"]


def identify_anonymous_caller(request: Request) -> str:
    """Whom the tries of nobody in particular are counted for."""
    return f"address {normalize_caller_address(get_client_host(request))}"


def get_client_host(request: Request) -> str | None:
    return request.client.host if request.client is not None else None


def get_client_ip(request: Request) -> str | None:
    """The caller's address, if it is one: a socket of another kind has none."""
    try:
        return str(ipaddress.ip_address(get_client_host(request) or ""))
    except ValueError:
        return None


async def _authenticate_api_key(runtime: Runtime, headers: list[str]) -> Principal | None:
    """Of two headers somebody before us may have looked at the other one: neither counts."""
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
