"""Stores users and their API keys."""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from tidemill.core.errors import Conflict, InvalidInput, UnknownUser
from tidemill.core.principal import LOCAL_USER_ID, Principal, Role
from tidemill.store.database import Connection, Database
from tidemill.store.statements import fetch_records, sql

_API_KEY_PATTERN = re.compile(r"(tm_[0-9a-f]{8})_[0-9a-f]{48}")


def generate_key_prefix_and_key() -> tuple[str, str]:
    """Return the public prefix of a new key, and the key."""
    prefix = f"tm_{secrets.token_hex(4)}"
    return prefix, f"{prefix}_{secrets.token_hex(24)}"


def generate_random_token() -> str:
    return secrets.token_urlsafe(32)


def parse_key_prefix(key: str) -> str | None:
    """Return the prefix of an API key, or None if the text is not formatted like one."""
    match = _API_KEY_PATTERN.fullmatch(key)
    return match[1] if match else None


def hash_secret(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def matches_hash(kept: bytes, text: str) -> bool:
    """Compare a secret with a stored hash in constant time."""
    return hmac.compare_digest(kept, hash_secret(text))


IDENTITY_NAME_MAX_CHARS = 100
MAX_KEYS_PER_USER = 100  # active keys
MAX_INACTIVE_KEYS_PER_USER = 100  # revoked or expired keys, kept for display
RESERVED_USER_NAMES = ("me", "all")  # have a special meaning where a user name is accepted


@dataclass(frozen=True, slots=True)
class User:
    id: int
    name: str
    role: Role
    created_at: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "role", Role(self.role))


@dataclass(frozen=True, slots=True)
class ListedUser:
    """A user, and the number of their active API keys."""

    id: int
    name: str
    role: Role
    created_at: datetime
    keys: int


@dataclass(frozen=True, slots=True)
class NewKey:
    """The stored part of a new API key."""

    prefix: str
    name: str
    created_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class ListedKey:
    """The stored part of an API key, without its secret."""

    prefix: str
    name: str
    user_id: int
    user_name: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class _KeyLogin:
    """A key's hash, its user, whether it is valid, and whether the time of its last use must be updated."""

    hash: bytes
    id: int
    name: str
    role: str
    good: bool
    stale: bool


async def add_user(conn: Connection, name: str, role: Role) -> User:
    is_name = 0 < len(name) <= IDENTITY_NAME_MAX_CHARS and name.isprintable() and name == name.strip()
    if not is_name or name.isdigit() or name.lower() in RESERVED_USER_NAMES:
        raise InvalidInput(
            f"A user name must have 1 to {IDENTITY_NAME_MAX_CHARS} printable characters without leading or trailing "
            'spaces, and must not be a number, "me" or "all"'
        )
    cursor = await conn.execute(sql("user/add"), {"name": name, "role": role})
    if await cursor.fetchone() is None:
        raise Conflict(f'User "{name}" already exists')
    return await get_user(conn, name)


async def get_user(conn: Connection, name_or_id: str) -> User:
    if not name_or_id.isprintable():  # not a valid name, and PostgreSQL may reject the text
        raise UnknownUser(f'Unknown user "{name_or_id}"')
    number = int(name_or_id) if name_or_id.isascii() and name_or_id.isdigit() and len(name_or_id) < 19 else None  # noqa: PLR2004
    async with conn.cursor(row_factory=class_row(User)) as cursor:
        await cursor.execute(sql("user/find"), {"name": name_or_id, "id": number})
        user = await cursor.fetchone()
    if user is None:
        raise UnknownUser(f'Unknown user "{name_or_id}"')
    return user


async def list_users(conn: Connection) -> list[ListedUser]:
    return await fetch_records(conn, ListedUser, sql("user/list"), {})


async def set_user_role(conn: Connection, user: User, role: Role) -> None:
    """Set the role of a user and end their sessions, so that they must sign in again."""
    _reject_local_user(user)
    await conn.execute(sql("user/set_role"), {"id": user.id, "role": role})
    await conn.execute(sql("session/end_all"), {"user_id": user.id})


async def remove_user(conn: Connection, user: User) -> None:
    """Delete a user with their API keys and sessions. Their jobs stay visible to admins."""
    _reject_local_user(user)
    await conn.execute(sql("user/remove"), {"id": user.id})


async def add_key(
    conn: Connection, user_id: int, *, name: str = "", seconds: float | None = None
) -> tuple[str, NewKey]:
    """Create an API key. Return its text, which is not stored, and its stored part."""
    if len(name) > IDENTITY_NAME_MAX_CHARS or not (name.isprintable() or not name):
        raise InvalidInput(f"An API key name must have at most {IDENTITY_NAME_MAX_CHARS} printable characters")
    await conn.execute(sql("user/lock"), {"id": user_id})
    await conn.execute(sql("key/forget"), {"user_id": user_id, "kept": MAX_INACTIVE_KEYS_PER_USER})
    prefix, text = generate_key_prefix_and_key()
    params = {
        "prefix": prefix,
        "hash": hash_secret(text),
        "user_id": user_id,
        "name": name,
        "seconds": seconds,
    }
    added = await fetch_records(conn, NewKey, sql("key/add"), params | {"most": MAX_KEYS_PER_USER})
    if not added:
        raise Conflict(f"The user already has {MAX_KEYS_PER_USER} API keys. Revoke an unused one first.")
    return text, added[0]


async def list_keys(conn: Connection, user_id: int | None) -> list[ListedKey]:
    return await fetch_records(conn, ListedKey, sql("key/list"), {"user_id": user_id})


async def revoke_key(conn: Connection, prefix: str, user_id: int | None) -> None:
    """Revoke an API key permanently. With ``user_id``, only a key of this user. Raises UnknownUser if not found."""
    params = {"prefix": prefix, "user_id": user_id}
    if not prefix.isprintable() or not (await conn.execute(sql("key/revoke"), params)).rowcount:
        shown = f'"{prefix}"' if prefix.isprintable() else repr(prefix)
        raise UnknownUser(f"Unknown API key {shown}")


async def authenticate_key(db: Database, text: str) -> Principal | None:
    """Return the principal of an API key, or None if it is not valid. Usually takes one round trip to the server."""
    prefix = parse_key_prefix(text)
    if prefix is None:
        return None
    key = await db.read(_find_key, prefix)
    if key is None or not matches_hash(key.hash, text) or not key.good:
        return None
    if key.stale:
        await db.run_async_commit(_record_key_use, prefix)
    return Principal(key.id, key.name, Role(key.role), by=f"key {prefix}")


async def _find_key(conn: Connection, prefix: str) -> _KeyLogin | None:
    keys = await fetch_records(conn, _KeyLogin, sql("key/find"), {"prefix": prefix})
    return keys[0] if keys else None


async def _record_key_use(conn: Connection, prefix: str) -> None:
    await conn.execute(sql("key/touch"), {"prefix": prefix})


def _reject_local_user(user: User) -> None:
    if user.id == LOCAL_USER_ID:
        raise Conflict(f'User "{user.name}" represents the local machine and cannot be changed or removed')


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
