"""Stores the sessions of signed-in browsers, and sign-in links."""

from dataclasses import dataclass
from datetime import datetime

from tidemill.core.principal import Principal, Role
from tidemill.store.database import Connection
from tidemill.store.statements import fetch_records, sql
from tidemill.store.users import generate_random_token, hash_secret


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of a session in seconds: idle time, lifetime, and the age at which its secret is rotated."""

    idle: float
    longest: float
    rotate: float = 900.0


@dataclass(frozen=True, slots=True)
class AuthenticatedSession:
    """A valid session; ``secret`` is the rotated secret for the browser, if any."""

    principal: Principal
    secret: str | None = None


@dataclass(frozen=True, slots=True)
class ListedSession:
    """A session of a user; ``is_this`` is true for the session that sent the request."""

    created_at: datetime
    seen_at: datetime
    is_this: bool


@dataclass(frozen=True, slots=True)
class _StoredSession:
    """A valid session, its user, and whether its secret or the time of its last use must be updated."""

    id: int
    name: str
    role: str
    csrf: str
    is_first: bool
    stale: bool
    due: bool


async def create_sign_in_token(conn: Connection, user_id: int, seconds: float) -> str:
    """Store a one-time sign-in link and return its token."""
    token = generate_random_token()
    await conn.execute(sql("link/add"), {"hash": hash_secret(token), "user_id": user_id, "seconds": seconds})
    return token


async def redeem_sign_in_token(conn: Connection, token: str) -> int | None:
    """Delete a sign-in link. Return its user's id, or None if the link is unknown or expired."""
    cursor = await conn.execute(sql("link/use"), {"hash": hash_secret(token)})
    row = await cursor.fetchone()
    return int(row[0]) if row is not None and row[1] else None


async def create_session_token(
    conn: Connection, user_id: int, *, key: str | None = None, replaced_token: str | None = None
) -> str:
    """Create a session and return its secret.

    The session ends with the API key of prefix ``key``, if given. The browser's previous session ends, which prevents
    session fixation.
    """
    if replaced_token is not None:
        await end_session(conn, replaced_token)
    token = generate_random_token()
    params = {
        "hash": hash_secret(token),
        "user_id": user_id,
        "csrf": generate_random_token(),
        "key_prefix": key,
    }
    await conn.execute(sql("session/add"), params)
    return token


async def peek_session_principal(conn: Connection, token: str, limits: SessionLimits) -> Principal | None:
    """Return the principal of a session, or None if it is not valid. This does not reset the idle time."""
    session = await _fetch_session(conn, token, limits)
    return None if session is None else _make_principal(session)


async def authenticate_session(conn: Connection, token: str, limits: SessionLimits) -> AuthenticatedSession | None:
    """Return a valid session, or None. If its secret is due for rotation, include a new secret."""
    session = await _fetch_session(conn, token, limits)
    if session is None:
        return None
    params, principal = {"hash": hash_secret(token)}, _make_principal(session)
    if session.is_first:
        await conn.execute(sql("session/use"), params)
    elif session.due:
        offered = generate_random_token()
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
    """Return the valid sessions of a user, newest first."""
    params = {
        "user_id": user_id,
        "hash": hash_secret(token or ""),
        "idle": limits.idle,
        "longest": limits.longest,
    }
    return await fetch_records(conn, ListedSession, sql("session/list"), params)


async def end_other_sessions(conn: Connection, user_id: int, token: str | None) -> None:
    """End all sessions of a user except the one with this secret."""
    await conn.execute(sql("session/end_others"), {"user_id": user_id, "hash": hash_secret(token or "")})


async def forget_expired_sessions(conn: Connection) -> None:
    """Delete sessions and sign-in links that have expired under any settings."""
    await conn.execute(sql("session/forget"))


async def _fetch_session(conn: Connection, token: str, limits: SessionLimits) -> _StoredSession | None:
    times = {"idle": limits.idle, "longest": limits.longest, "rotate": limits.rotate}
    params = {"hash": hash_secret(token)} | times
    sessions = await fetch_records(conn, _StoredSession, sql("session/find"), params)
    return sessions[0] if sessions else None


def _make_principal(session: _StoredSession) -> Principal:
    return Principal(session.id, session.name, Role(session.role), by="session", csrf=session.csrf)
