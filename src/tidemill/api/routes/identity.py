"""Signing in and out, users and keys."""

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse

from tidemill.api import guard
from tidemill.api.guard import Guarded, Me, Permission, allow
from tidemill.api.problems import Refusal
from tidemill.api.schemas.identity import (
    KeyIn,
    KeyOut,
    LinkOut,
    MeOut,
    NewKey,
    RoleIn,
    SessionOut,
    SignIn,
    UserIn,
    UserOut,
)
from tidemill.api.state import Db, Service, Serving
from tidemill.domain.errors import InvalidInput
from tidemill.domain.identity import Role
from tidemill.store import sessions, users
from tidemill.store.secret import prefix_of

root = APIRouter(tags=["identity"], route_class=Guarded)
router = APIRouter(tags=["identity"], route_class=Guarded)
LINK_S = 900


@router.post("/session", status_code=201, **allow(Permission.PUBLIC, 401))
async def sign_in(asked: SignIn, request: Request, here: Serving) -> MeOut:
    """Sign a browser in, with an API key or a one-time link: it gets a cookie, and a token for its writes."""
    if (asked.key is None) == (asked.link is None):
        raise InvalidInput("say either a key or a link")
    if asked.link is not None:
        return await _begin(request, here, await _by_link(here, asked.link))
    return await _begin(request, here, await _by_key(here, asked.key or ""), key=prefix_of(asked.key or ""))


@root.get("/sign-in/{link}", status_code=303, response_class=RedirectResponse, **allow(Permission.PUBLIC, 401))
async def follow_link(link: str, request: Request, here: Serving) -> RedirectResponse:
    """Where a one-time link leads: signed in, and on to the first page."""
    guard.limit(request, guard.stranger(request))
    try:
        await _begin(request, here, await _by_link(here, link[:200]))
    except Refusal:
        if "text/html" not in request.headers.get("accept", ""):
            raise
        return RedirectResponse("../sign-in?problem=link", 303)  # somebody looks at it: the page says what to do
    return RedirectResponse("../", 303)  # from where we are: a proxy may show us under a prefix


@router.delete("/session", status_code=204, **allow(Permission.USER))
async def sign_out(request: Request, db: Db) -> None:
    """End this browser's session."""
    token = request.cookies.get(guard.COOKIE)
    if token:
        await db.run(sessions.end, token)
    guard.set_cookie(request, None)


@router.get("/sessions", **allow(Permission.USER))
async def list_sessions(me: Me, request: Request, here: Serving) -> list[SessionOut]:
    """Browsers that you are signed in with, the newest first."""
    token = request.cookies.get(guard.COOKIE)
    found = await here.db.run(sessions.list_sessions, me.user_id, token, here.session_limits)
    return [SessionOut.model_validate(row) for row in found]


@router.delete("/sessions", status_code=204, **allow(Permission.USER))
async def end_other_sessions(me: Me, request: Request, db: Db) -> None:
    """Sign out everywhere else: in every browser but the one that asks."""
    await db.run(sessions.end_others, me.user_id, request.cookies.get(guard.COOKIE))


@router.get("/users", **allow(Permission.ADMIN))
async def list_users(db: Db) -> list[UserOut]:
    """Everybody who may use the service."""
    return [UserOut.model_validate(row) for row in await db.run(users.list_users)]


@router.post("/users", status_code=201, **allow(Permission.ADMIN, 409))
async def add_user(asked: UserIn, db: Db) -> UserOut:
    """Somebody new, still without a key."""
    return _user(await db.run(users.add, asked.name, asked.role))


@router.get("/users/{name}", **allow(Permission.ADMIN, 404))
async def get_user(name: str, db: Db) -> UserOut:
    """A user, by name or id."""
    return _user(await db.run(users.find, name))


@router.patch("/users/{name}", **allow(Permission.ADMIN, 404, 409))
async def change_role(name: str, asked: RoleIn, db: Db) -> UserOut:
    """Another role. Whoever is signed in as this user signs in again."""
    await db.run(users.set_role, await db.run(users.find, name), asked.role)
    return _user(await db.run(users.find, name))


@router.delete("/users/{name}", status_code=204, **allow(Permission.ADMIN, 404, 409))
async def remove_user(name: str, db: Db) -> None:
    """Remove a user with keys and sessions; their jobs stay, for admins."""
    await db.run(users.remove, await db.run(users.find, name))


@router.post("/users/{name}/link", status_code=201, **allow(Permission.ADMIN, 404))
async def make_link(name: str, db: Db) -> LinkOut:
    """A link that signs this user in, once, within a quarter of an hour."""
    user = await db.run(users.find, name)
    return LinkOut(path=f"/sign-in/{await db.run(sessions.make_link, user.id, LINK_S)}", expires_in_s=LINK_S)


@router.get("/keys", **allow(Permission.USER))
async def list_keys(me: Me, db: Db) -> list[KeyOut]:
    """Your keys; an admin sees everybody's. Secrets are never shown again."""
    return [KeyOut.model_validate(row) for row in await db.run(users.list_keys, None if me.is_admin else me.user_id)]


@router.post("/keys", status_code=201, **allow(Permission.USER, 404, 409))
async def add_key(asked: KeyIn, me: Me, db: Db) -> NewKey:
    """A new key, shown this once. Only admins make keys for others. A user has a hundred at most."""
    user_id = me.user_id
    if asked.user is not None and asked.user != me.name:
        if not me.is_admin:
            raise Refusal(403, "only an admin makes keys for others")
        user_id = (await db.run(users.find, asked.user)).id
    text, known = await db.run(users.add_key, user_id, name=asked.name, seconds=asked.expires_in_s)
    return NewKey.model_validate(known | {"key": text, "user_id": user_id})


@router.delete("/keys/{prefix}", status_code=204, **allow(Permission.USER, 404))
async def revoke_key(prefix: str, me: Me, db: Db) -> None:
    """Make a key useless, at once and for ever."""
    await db.run(users.revoke_key, prefix, None if me.is_admin else me.user_id)


def _user(user: users.User) -> UserOut:
    return UserOut(id=user.id, name=user.name, role=Role(user.role), created_at=user.created_at)


async def _by_key(here: Service, key: str) -> int:
    found = await users.by_key(here.db, key)
    if found is None:
        raise Refusal(401, "this key is not good", {"WWW-Authenticate": "Bearer"})
    return found.user_id


async def _by_link(here: Service, link: str) -> int:
    user_id = await here.db.run(sessions.use_link, link)
    if user_id is None:
        raise Refusal(401, "this link was used, or is too old: ask for another", {"WWW-Authenticate": "Bearer"})
    return user_id


async def _begin(request: Request, here: Service, user_id: int, *, key: str | None = None) -> MeOut:
    """The session a browser had before ends: nobody can prepare one for another."""
    token = await here.db.run(sessions.begin, user_id, key=key, instead_of=request.cookies.get(guard.COOKIE))
    opened = await here.db.run(sessions.find, token, here.session_limits)
    if opened is None:
        raise Refusal(401, "this user is no more", {"WWW-Authenticate": "Bearer"})
    guard.set_cookie(request, token)
    me = opened.principal
    return MeOut(user_id=me.user_id, name=me.name, role=me.role, by=me.by, csrf_token=me.csrf)
