"""Users, API keys and browser sessions."""

from dataclasses import asdict
from datetime import datetime

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, Field

from tidemill.accounts import use_cases as accounts
from tidemill.accounts.use_cases import SIGN_IN_LINK_TTL_S, StartedSession
from tidemill.core.errors import InvalidInput
from tidemill.core.principal import Role
from tidemill.rest import auth
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.problems import HttpError
from tidemill.rest.request_body import BodyLimit
from tidemill.rest.runtime_dependencies import DatabaseDep, RuntimeDep
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


@root.get(
    "/sign-in/{link}", status_code=303, response_class=RedirectResponse, **build_route_options(Permission.PUBLIC, 401)
)
async def follow_link(link: str, request: Request, runtime: RuntimeDep) -> RedirectResponse:
    """Sign in with a sign-in link and redirect to the start page."""
    auth.enforce_rate_limit(request, auth.build_anonymous_rate_key(request))
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
