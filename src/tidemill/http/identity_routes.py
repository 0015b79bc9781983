"""Users, keys and sessions.

Signing in and out, users and keys.
"""

from dataclasses import asdict
from datetime import datetime

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, Field

from tidemill.core.credentials import parse_key_prefix
from tidemill.core.errors import InvalidInput
from tidemill.core.principal import Role
from tidemill.rest import auth
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, declare_route, make_session_limits
from tidemill.rest.problems import HttpError
from tidemill.rest.runtime import DatabaseDep, RuntimeDep
from tidemill.rest.schema_types import RequestModel
from tidemill.runtime import Runtime
from tidemill.store import sessions, users


class MeOut(BaseModel):
    """Who asks."""

    user_id: int
    name: str
    role: Role
    by: str = Field(description="Which key, or `session`")
    csrf_token: str | None = Field(None, description="What a browser's writes carry in X-CSRF-Token")


class SignIn(RequestModel):
    """An API key, or the token of a one-time link."""

    key: str | None = Field(None, max_length=200)
    link: str | None = Field(None, max_length=200, description="What follows /sign-in/ in a one-time link")


class SessionOut(BaseModel):
    """A browser that is signed in."""

    created_at: datetime
    seen_at: datetime = Field(description="To the minute")
    is_this: bool = Field(description="Whether it is the one that asks")


class LinkOut(BaseModel):
    """A link that signs somebody in, once."""

    path: str = Field(description="Of the link; good once")
    expires_in_s: int


class UserIn(RequestModel):
    """Somebody new."""

    name: str = Field(min_length=1, max_length=100)
    role: Role = Role.USER


class RoleIn(RequestModel):
    """Another role."""

    role: Role


class UserOut(BaseModel):
    """A user."""

    id: int
    name: str
    role: Role
    created_at: datetime
    keys: int = Field(0, description="Keys that are good now")


class KeyIn(RequestModel):
    """A key to be made."""

    name: str = Field("", max_length=100, description="What it is for")
    expires_in_s: int | None = Field(None, gt=0, le=10 * 366 * 86_400, description="Never, without it")
    user: str | None = Field(None, max_length=100, description="For whom; admins only")


class KeyOut(BaseModel):
    """What is known of a key; the key itself is not kept."""

    prefix: str
    name: str
    user_id: int | None = None
    user_name: str | None = None
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = Field(None, description="To the minute")
    revoked_at: datetime | None = None


class NewKeyOut(KeyOut):
    """A key, this once."""

    key: str = Field(description="Shown this once")


root = APIRouter(tags=["identity"], route_class=AuthenticatedRoute)
router = APIRouter(tags=["identity"], route_class=AuthenticatedRoute)
SIGN_IN_LINK_TTL_S = 900


@router.post("/session", status_code=201, **declare_route(Permission.PUBLIC, 401))
async def sign_in(body: SignIn, request: Request, runtime: RuntimeDep) -> MeOut:
    """Sign a browser in, with an API key or a one-time link: it gets a cookie, and a token for its writes."""
    if (body.key is None) == (body.link is None):
        raise InvalidInput("say either a key or a link")
    if body.link is not None:
        return await _start_session(request, runtime, await _redeem_sign_in_link(runtime, body.link))
    return await _start_session(
        request, runtime, await _find_user_by_key(runtime, body.key or ""), key=parse_key_prefix(body.key or "")
    )


@root.get("/sign-in/{link}", status_code=303, response_class=RedirectResponse, **declare_route(Permission.PUBLIC, 401))
async def follow_link(link: str, request: Request, runtime: RuntimeDep) -> RedirectResponse:
    """Where a one-time link leads: signed in, and on to the first page."""
    auth.enforce_rate_limit(request, auth.identify_anonymous_caller(request))
    try:
        await _start_session(request, runtime, await _redeem_sign_in_link(runtime, link[:200]))
    except HttpError:
        if "text/html" not in request.headers.get("accept", ""):
            raise
        return RedirectResponse("../sign-in?problem=link", 303)  # somebody looks at it: the page says what to do
    return RedirectResponse("../", 303)  # from where we are: a proxy may show us under a prefix


@router.delete("/session", status_code=204, **declare_route(Permission.USER))
async def sign_out(request: Request, db: DatabaseDep) -> None:
    """End this browser's session."""
    token = request.cookies.get(auth.SESSION_COOKIE)
    if token:
        await db.run(sessions.end_session, token)
    auth.set_session_cookie(request, None)


@router.get("/sessions", **declare_route(Permission.USER))
async def list_sessions(me: CurrentUser, request: Request, runtime: RuntimeDep) -> list[SessionOut]:
    """Browsers that you are signed in with, the newest first."""
    token = request.cookies.get(auth.SESSION_COOKIE)
    found = await runtime.db.run(sessions.list_sessions, me.user_id, token, runtime.get(make_session_limits))
    return [SessionOut.model_validate(row, from_attributes=True) for row in found]


@router.delete("/sessions", status_code=204, **declare_route(Permission.USER))
async def end_other_sessions(me: CurrentUser, request: Request, db: DatabaseDep) -> None:
    """Sign out everywhere else: in every browser but the one that asks."""
    await db.run(sessions.end_other_sessions, me.user_id, request.cookies.get(auth.SESSION_COOKIE))


@router.get("/users", **declare_route(Permission.ADMIN))
async def list_users(db: DatabaseDep) -> list[UserOut]:
    """Everybody who may use the service."""
    return [UserOut.model_validate(user, from_attributes=True) for user in await db.run(users.list_users)]


@router.post("/users", status_code=201, **declare_route(Permission.ADMIN, 409))
async def add_user(body: UserIn, db: DatabaseDep) -> UserOut:
    """Somebody new, still without a key."""
    return _build_user_out(await db.run(users.add_user, body.name, body.role))


@router.get("/users/{name}", **declare_route(Permission.ADMIN, 404))
async def get_user(name: str, db: DatabaseDep) -> UserOut:
    """A user, by name or id."""
    return _build_user_out(await db.run(users.get_user, name))


@router.patch("/users/{name}", **declare_route(Permission.ADMIN, 404, 409))
async def change_role(name: str, body: RoleIn, db: DatabaseDep) -> UserOut:
    """Another role. Whoever is signed in as this user signs in again."""
    await db.run(users.set_user_role, await db.run(users.get_user, name), body.role)
    return _build_user_out(await db.run(users.get_user, name))


@router.delete("/users/{name}", status_code=204, **declare_route(Permission.ADMIN, 404, 409))
async def remove_user(name: str, db: DatabaseDep) -> None:
    """Remove a user with keys and sessions; their jobs stay, for admins."""
    await db.run(users.remove_user, await db.run(users.get_user, name))


@router.post("/users/{name}/link", status_code=201, **declare_route(Permission.ADMIN, 404))
async def make_link(name: str, db: DatabaseDep) -> LinkOut:
    """A link that signs this user in, once, within a quarter of an hour."""
    user = await db.run(users.get_user, name)
    return LinkOut(
        path=f"/sign-in/{await db.run(sessions.create_sign_in_link, user.id, SIGN_IN_LINK_TTL_S)}",
        expires_in_s=SIGN_IN_LINK_TTL_S,
    )


@router.get("/keys", **declare_route(Permission.USER))
async def list_keys(me: CurrentUser, db: DatabaseDep) -> list[KeyOut]:
    """Your keys; an admin sees everybody's. Secrets are never shown again."""
    found = await db.run(users.list_keys, None if me.is_admin else me.user_id)
    return [KeyOut.model_validate(key, from_attributes=True) for key in found]


@router.post("/keys", status_code=201, **declare_route(Permission.USER, 404, 409))
async def add_key(body: KeyIn, me: CurrentUser, db: DatabaseDep) -> NewKeyOut:
    """A new key, shown this once. Only admins make keys for others. A user has a hundred at most."""
    user_id = me.user_id
    if body.user is not None and body.user != me.name:
        if not me.is_admin:
            raise HttpError(403, "only an admin makes keys for others")
        user_id = (await db.run(users.get_user, body.user)).id
    text, known = await db.run(users.add_key, user_id, name=body.name, seconds=body.expires_in_s)
    return NewKeyOut.model_validate(asdict(known) | {"key": text, "user_id": user_id})


@router.delete("/keys/{prefix}", status_code=204, **declare_route(Permission.USER, 404))
async def revoke_key(prefix: str, me: CurrentUser, db: DatabaseDep) -> None:
    """Make a key useless, at once and for ever."""
    await db.run(users.revoke_key, prefix, None if me.is_admin else me.user_id)


def _build_user_out(user: users.User) -> UserOut:
    return UserOut(id=user.id, name=user.name, role=Role(user.role), created_at=user.created_at)


async def _find_user_by_key(runtime: Runtime, key: str) -> int:
    found = await users.authenticate_key(runtime.db, key)
    if found is None:
        raise HttpError(401, "this key is not good", {"WWW-Authenticate": "Bearer"})
    return found.user_id


async def _redeem_sign_in_link(runtime: Runtime, link: str) -> int:
    user_id = await runtime.db.run(sessions.redeem_sign_in_link, link)
    if user_id is None:
        raise HttpError(401, "this link was used, or is too old: ask for another", {"WWW-Authenticate": "Bearer"})
    return user_id


async def _start_session(request: Request, runtime: Runtime, user_id: int, *, key: str | None = None) -> MeOut:
    """The session a browser had before ends: nobody can prepare one for another."""
    token = await runtime.db.run(
        sessions.begin_session, user_id, key=key, replaced_token=request.cookies.get(auth.SESSION_COOKIE)
    )
    opened = await runtime.db.run(sessions.use_session, token, runtime.get(make_session_limits))
    if opened is None:
        raise HttpError(401, "this user is no more", {"WWW-Authenticate": "Bearer"})
    auth.set_session_cookie(request, token)
    me = opened.principal
    return MeOut(user_id=me.user_id, name=me.name, role=me.role, by=me.by, csrf_token=me.csrf)
