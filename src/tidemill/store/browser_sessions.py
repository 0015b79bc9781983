"""Browsers that are signed in."""

from dataclasses import dataclass
from datetime import datetime

from tidemill.core.credentials import generate_token, hash_secret
from tidemill.core.principal import Principal, Role
from tidemill.store.database import Connection
from tidemill.store.statements import fetch_records, sql


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """In seconds: how long a session may idle, how long it may last, and how old its secret may get."""

    idle: float
    longest: float
    rotate: float = 900.0


@dataclass(frozen=True, slots=True)
class AuthenticatedSession:
    """A session that is good; ``secret`` is another one for the browser to take."""

    principal: Principal
    secret: str | None = None


@dataclass(frozen=True, slots=True)
class ListedSession:
    """A browser that a user is signed in with; ``is_this`` if it sent the request."""

    created_at: datetime
    seen_at: datetime
    is_this: bool


@dataclass(frozen=True, slots=True)
class _StoredSession:
    """A valid session, its user, and whether its secret or the time of its last use is to be updated."""

    id: int
    name: str
    role: str
    csrf: str
    is_first: bool
    stale: bool
    due: bool


async def create_sign_in_token(conn: Connection, user_id: int, seconds: float) -> str:
    """What signs a user in once."""
    token = generate_token()
    await conn.execute(sql("link/add"), {"hash": hash_secret(token), "user_id": user_id, "seconds": seconds})
    return token


async def redeem_sign_in_token(conn: Connection, token: str) -> int | None:
    """Whom the link signs in, if it is good; it is not afterwards."""
    cursor = await conn.execute(sql("link/use"), {"hash": hash_secret(token)})
    row = await cursor.fetchone()
    return int(row[0]) if row is not None and row[1] else None


async def create_session_token(
    conn: Connection, user_id: int, *, key: str | None = None, replaced_token: str | None = None
) -> str:
    """A new session and its secret; opened with the key of this prefix, it ends with it.

    The one the browser had before ends: nobody can prepare a session for another.
    """
    if replaced_token is not None:
        await end_session(conn, replaced_token)
    token = generate_token()
    params = {
        "hash": hash_secret(token),
        "user_id": user_id,
        "csrf": generate_token(),
        "key_prefix": key,
    }
    await conn.execute(sql("session/add"), params)
    return token


async def peek_session(conn: Connection, token: str, limits: SessionLimits) -> Principal | None:
    """Whose session it is, if it is good; looking keeps it from nothing that happens to idle ones."""
    session = await _fetch_session(conn, token, limits)
    return None if session is None else _make_principal(session)


async def authenticate_session(conn: Connection, token: str, limits: SessionLimits) -> AuthenticatedSession | None:
    """Whose session it is, if it is good. When its secret is due another one is offered, until one of those is used."""
    session = await _fetch_session(conn, token, limits)
    if session is None:
        return None
    params, principal = {"hash": hash_secret(token)}, _make_principal(session)
    if session.is_first:
        await conn.execute(sql("session/use"), params)
    elif session.due:
        offered = generate_token()
        new = {"offered": hash_secret(offered), "rotate": limits.rotate}
        if (await conn.execute(sql("session/offer"), params | new)).rowcount:
            return AuthenticatedSession(principal, offered)
    if session.stale:
        await conn.execute(sql("session/touch"), params)
    return AuthenticatedSession(principal)


async def end_session(conn: Connection, token: str) -> None:
    await conn.execute(sql("session/end"), {"hash": hash_secret(token)})


async def list_sessions(
    conn: Connection, user_id: int, token: str | None, limits: SessionLimits
) -> list[ListedSession]:
    """Browsers that a user is signed in with."""
    params = {
        "user_id": user_id,
        "hash": hash_secret(token or ""),
        "idle": limits.idle,
        "longest": limits.longest,
    }
    return await fetch_records(conn, ListedSession, sql("session/list"), params)


async def end_other_sessions(conn: Connection, user_id: int, token: str | None) -> None:
    """Sign a user out everywhere but where this secret is."""
    await conn.execute(sql("session/end_others"), {"user_id": user_id, "hash": hash_secret(token or "")})


async def forget_expired_sessions(conn: Connection) -> None:
    """Sessions and links that nobody can use any more, whatever the settings."""
    await conn.execute(sql("session/forget"))


async def _fetch_session(conn: Connection, token: str, limits: SessionLimits) -> _StoredSession | None:
    times = {"idle": limits.idle, "longest": limits.longest, "rotate": limits.rotate}
    params = {"hash": hash_secret(token)} | times
    found = await fetch_records(conn, _StoredSession, sql("session/find"), params)
    return found[0] if found else None


def _make_principal(session: _StoredSession) -> Principal:
    return Principal(session.id, session.name, Role(session.role), by="session", csrf=session.csrf)
