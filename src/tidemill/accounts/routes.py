"""Users, API keys and browser sessions."""

import base64
import hashlib
import re
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType

from tidemill.accounts import use_cases as accounts
from tidemill.accounts.use_cases import SIGN_IN_LINK_TTL_S, StartedSession
from tidemill.core.errors import InvalidInput
from tidemill.core.principal import Role
from tidemill.core.quotas import QUOTA_LIMIT_MAX, QUOTA_NAMES, Quota, QuotaUse
from tidemill.rest import auth
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.dependencies import DatabaseDep, RuntimeDep
from tidemill.rest.problems import HttpError
from tidemill.rest.request_body import BodyLimit
from tidemill.rest.schema_types import RequestModel


class MeOut(BaseModel):
    """The authenticated user."""

    user_id: int
    name: str
    role: Role
    by: str = Field(description="How the request was authenticated: `session`, or `key` and the prefix of the key")
    csrf_token: str | None = Field(None, description="A browser must send this token in X-CSRF-Token with every write")


class SignIn(RequestModel):
    """An API key, or the token of a sign-in link."""

    key: str | None = Field(None, max_length=200)
    link: str | None = Field(None, max_length=200, description="The part of a sign-in link after /sign-in/")


class SessionOut(BaseModel):
    """A browser session."""

    created_at: datetime
    seen_at: datetime = Field(description="Time of the last use, accurate to the minute")
    is_this: bool = Field(description="True if this request uses the session")


class LinkOut(BaseModel):
    """A sign-in link, valid once."""

    path: str = Field(description="Path of the link")
    expires_in_s: int


class UserIn(RequestModel):
    """A new user."""

    name: str = Field(min_length=1, max_length=100)
    role: Role = Role.USER


class RoleIn(RequestModel):
    """A new role for a user."""

    role: Role


QuotaKeyword = TypeAliasType("QuotaKeyword", Literal["unlimited", "default"])
LimitIn = Annotated[int, Field(gt=0, le=QUOTA_LIMIT_MAX)] | QuotaKeyword


class QuotaIn(RequestModel):
    """New limits of a user. A limit that is omitted does not change; `default` restores the default."""

    open_jobs: LimitIn | None = None
    open_rows: LimitIn | None = None
    stored_bytes: LimitIn | None = None


class QuotaLimitOut(BaseModel):
    """One limit and its use."""

    used: int
    limit: int | None = Field(description="null: no limit")


class QuotaOut(BaseModel):
    """The limits of a user. A request that would exceed one is rejected with 413, 429, or 403 for stored files."""

    open_jobs: QuotaLimitOut = Field(description="Jobs that have not ended")
    open_rows: QuotaLimitOut = Field(description="Rows of all jobs that are not processed yet")
    stored_bytes: QuotaLimitOut = Field(description="Files of all jobs: uploads, downloads from URLs, and exports")


def build_quota_out(quota: Quota, used: QuotaUse) -> QuotaOut:
    limits, uses = asdict(quota), asdict(used)
    return QuotaOut.model_validate({name: {"used": uses[name], "limit": limits[name]} for name in QUOTA_NAMES})


class UserOut(BaseModel):
    """A user."""

    id: int
    name: str
    role: Role
    created_at: datetime
    keys: int = Field(0, description="Number of valid API keys")


class KeyIn(RequestModel):
    """A new API key."""

    name: str = Field("", max_length=100, description="A name for the key")
    expires_in_s: int | None = Field(
        None, gt=0, le=10 * 366 * 86_400, description="Lifetime in seconds; unlimited if omitted"
    )
    user: str | None = Field(
        None, max_length=100, description="Name or id of the key's user; default: you. Only admins can set another user"
    )


class KeyOut(BaseModel):
    """Metadata of an API key. The key itself is not stored."""

    prefix: str
    name: str
    user_id: int | None = None
    user_name: str | None = None
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = Field(None, description="Time of the last use, accurate to the minute")
    revoked_at: datetime | None = None


class NewKeyOut(KeyOut):
    """A new API key with its secret."""

    key: str = Field(description="The secret; returned only once")


root = APIRouter(tags=["identity"], route_class=AuthenticatedRoute)
router = APIRouter(tags=["identity"], route_class=AuthenticatedRoute)
INVALID_LINK = "The sign-in link was already used or has expired. Request a new one."
_SIGN_IN_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:1rem/1.5 system-ui,sans-serif;display:grid;place-content:center;min-height:90vh;text-align:center;"
    "background:light-dark(#f5f7f8,#0f1518);color:light-dark(#182125,#e4ebee)}"
    "main{padding:1.5rem 3rem 2rem;border:1px solid light-dark(#dbe1e4,#2a363c);border-radius:10px;"
    "background:light-dark(#fff,#161e22)}h1{margin:0 0 1rem}"
    "button{font:inherit;font-weight:600;padding:.5rem 1.5rem;border:0;border-radius:6px;cursor:pointer;"
    "background:light-dark(#0a6670,#62cbd5);color:light-dark(#fff,#06272b)}"
)
_SIGN_IN_STYLE_HASH = base64.b64encode(hashlib.sha256(_SIGN_IN_STYLE.encode()).digest()).decode()
SIGN_IN_PAGE_CSP = (
    f"default-src 'none'; style-src 'sha256-{_SIGN_IN_STYLE_HASH}'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
SIGN_IN_PAGE = f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Sign in to Tidemill</title>
<style>{_SIGN_IN_STYLE}</style></head>
<body><main><h1>Tidemill</h1><form method="post"><button>Sign in</button></form></main></body>
</html>
"""  # without an action: the form posts to the address of the page


@router.post("/session", status_code=201, **build_route_options(Permission.PUBLIC, 401, body=BodyLimit.SIGN_IN))
async def sign_in(body: SignIn, request: Request, runtime: RuntimeDep) -> MeOut:
    """Sign in with an API key or a sign-in link. Sets a session cookie and returns a CSRF token."""
    if (body.key is None) == (body.link is None):
        raise InvalidInput('Send either "key" or "link"')
    replaced_token = _get_session_token(request)
    if body.link is not None:
        return _set_cookie_or_reject_sign_in(
            request, await accounts.sign_in_with_link(runtime, body.link, replaced_token), INVALID_LINK
        )
    started = await accounts.sign_in_with_key(runtime, body.key or "", replaced_token)
    return _set_cookie_or_reject_sign_in(request, started, "Invalid API key")


_LINK_REGEX = re.compile(r"[A-Za-z0-9_-]{1,200}")
_PAGE_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "A page with a button that signs in", "content": {"text/html": {"schema": {"type": "string"}}}}
}


@root.get(
    "/sign-in/{link}",
    response_class=HTMLResponse,
    **build_route_options(Permission.PUBLIC, 401, extra_responses=_PAGE_RESPONSE),
)
async def show_sign_in_page(link: str, request: Request) -> HTMLResponse:
    """Show a page with a button that signs in. The link stays valid: mail scanners and previews open links, too."""
    auth.enforce_rate_limit(request, auth.build_anonymous_rate_key(request))
    if not _LINK_REGEX.fullmatch(link):
        raise HttpError(401, INVALID_LINK, {"WWW-Authenticate": "Bearer"})
    return HTMLResponse(SIGN_IN_PAGE, headers={"content-security-policy": SIGN_IN_PAGE_CSP})


@root.post(
    "/sign-in/{link}",
    status_code=303,
    response_class=RedirectResponse,
    **build_route_options(Permission.PUBLIC, 401, body=BodyLimit.SIGN_IN),
)
async def follow_link(link: str, request: Request, runtime: RuntimeDep) -> RedirectResponse:
    """Sign in with a sign-in link and redirect to the start page. A form of another site is rejected with 403."""
    # A browser sends Origin: null, because the page sends no referrer.
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise HttpError(403, "The sign-in form of another site was rejected. Open the sign-in link itself.")
    started = await accounts.sign_in_with_link(runtime, link[:200], _get_session_token(request))
    if started is None and "text/html" in request.headers.get("accept", ""):
        return RedirectResponse("../sign-in?problem=link", 303)  # the page explains the problem
    _set_cookie_or_reject_sign_in(request, started, INVALID_LINK)
    return RedirectResponse("../", 303)  # relative, because a proxy may serve the API under a prefix


@router.delete("/session", status_code=204, **build_route_options(Permission.USER, body=BodyLimit.SIGN_IN))
async def sign_out(request: Request, db: DatabaseDep) -> None:
    """End this browser's session."""
    token = _get_session_token(request)
    if token:
        await accounts.sign_out(db, token)
    auth.set_session_cookie(request, None)


@router.get("/sessions", **build_route_options(Permission.USER))
async def list_sessions(me: CurrentUser, request: Request, runtime: RuntimeDep) -> list[SessionOut]:
    """List your browser sessions, newest first."""
    sessions = await accounts.list_sessions(runtime, me.user_id, _get_session_token(request))
    return [SessionOut.model_validate(session, from_attributes=True) for session in sessions]


@router.delete("/sessions", status_code=204, **build_route_options(Permission.USER))
async def end_other_sessions(me: CurrentUser, request: Request, db: DatabaseDep) -> None:
    """End all your browser sessions except the current one."""
    await accounts.end_other_sessions(db, me.user_id, _get_session_token(request))


@router.get("/users", **build_route_options(Permission.ADMIN))
async def list_users(db: DatabaseDep) -> list[UserOut]:
    """List all users."""
    return [UserOut.model_validate(user, from_attributes=True) for user in await accounts.list_users(db)]


@router.post("/users", status_code=201, **build_route_options(Permission.ADMIN, 409))
async def add_user(body: UserIn, db: DatabaseDep) -> UserOut:
    """Add a user without an API key."""
    return UserOut.model_validate(await accounts.add_user(db, body.name, body.role), from_attributes=True)


@router.get("/users/{name}", **build_route_options(Permission.ADMIN, 404))
async def get_user(name: str, db: DatabaseDep) -> UserOut:
    """Get a user by name or id."""
    return UserOut.model_validate(await accounts.get_user(db, name), from_attributes=True)


@router.patch("/users/{name}", **build_route_options(Permission.ADMIN, 404, 409))
async def change_role(name: str, body: RoleIn, db: DatabaseDep) -> UserOut:
    """Change a user's role. The user's browser sessions end."""
    return UserOut.model_validate(await accounts.change_role(db, name, body.role), from_attributes=True)


@router.delete("/users/{name}", status_code=204, **build_route_options(Permission.ADMIN, 404, 409))
async def remove_user(name: str, db: DatabaseDep) -> None:
    """Remove a user, with the user's API keys and sessions. Admins still see the user's jobs."""
    await accounts.remove_user(db, name)


@router.get("/users/{name}/quota", **build_route_options(Permission.ADMIN, 404))
async def get_quota(name: str, runtime: RuntimeDep) -> QuotaOut:
    """Get the limits of a user, and how much of them is used."""
    user = await accounts.get_user(runtime.db, name)
    return build_quota_out(*await accounts.load_quota(runtime, user.id))


@router.patch("/users/{name}/quota", **build_route_options(Permission.ADMIN, 404))
async def change_quota(name: str, body: QuotaIn, runtime: RuntimeDep) -> QuotaOut:
    """Change the limits of a user. If the user already exceeds a new limit, only new work is rejected."""
    changes = {limit: change for limit, change in body.model_dump().items() if change is not None}
    return build_quota_out(*await accounts.change_quota(runtime, name, changes))


@router.post("/users/{name}/link", status_code=201, **build_route_options(Permission.ADMIN, 404))
async def make_link(name: str, db: DatabaseDep) -> LinkOut:
    """Create a sign-in link for a user. It works once and expires after 15 minutes."""
    return LinkOut(path=await accounts.create_sign_in_link(db, name), expires_in_s=SIGN_IN_LINK_TTL_S)


@router.get("/keys", **build_route_options(Permission.USER))
async def list_keys(me: CurrentUser, db: DatabaseDep) -> list[KeyOut]:
    """List your API keys; an admin gets the keys of all users. The response contains no secrets."""
    return [KeyOut.model_validate(key, from_attributes=True) for key in await accounts.list_visible_keys(db, me)]


@router.post("/keys", status_code=201, **build_route_options(Permission.USER, 404, 409))
async def add_key(body: KeyIn, me: CurrentUser, db: DatabaseDep) -> NewKeyOut:
    """Create an API key. Only this response contains the secret.

    Only admins can create keys for other users. A user can have at most 100 keys.
    """
    text, key, user_id = await accounts.authorize_and_add_key(
        db, me, body.user, name=body.name, expires_in_s=body.expires_in_s
    )
    return NewKeyOut.model_validate(asdict(key) | {"key": text, "user_id": user_id})


@router.delete("/keys/{prefix}", status_code=204, **build_route_options(Permission.USER, 404))
async def revoke_key(prefix: str, me: CurrentUser, db: DatabaseDep) -> None:
    """Revoke an API key immediately and permanently."""
    await accounts.revoke_key(db, prefix, me)


def _get_session_token(request: Request) -> str | None:
    return request.cookies.get(auth.SESSION_COOKIE)


def _set_cookie_or_reject_sign_in(request: Request, started: StartedSession | None, message: str) -> MeOut:
    """Set the cookie of a new session; respond 401 with ``message`` if ``started`` is None."""
    if started is None:
        raise HttpError(401, message, {"WWW-Authenticate": "Bearer"})
    auth.set_session_cookie(request, started.token)
    me = started.principal
    return MeOut(user_id=me.user_id, name=me.name, role=me.role, by=me.by, csrf_token=me.csrf)
