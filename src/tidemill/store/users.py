"""Users and their keys."""

from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from tidemill.core import credentials
from tidemill.core.errors import Conflict, InvalidInput, UnknownUser
from tidemill.core.principal import LOCAL_USER_ID, Principal, Role
from tidemill.store.database import Connection, Database
from tidemill.store.statements import fetch_records, sql

IDENTITY_NAME_MAX_CHARS = 100
MAX_KEYS_PER_USER = 100  # good ones, of a user
MAX_INACTIVE_KEYS_PER_USER = 100  # revoked or expired, to be looked at
RESERVED_USER_NAMES = ("me", "all")  # where a user's name may stand, these stand for somebody else


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
    """A user, and the number of keys that they can use."""

    id: int
    name: str
    role: Role
    created_at: datetime
    keys: int


@dataclass(frozen=True, slots=True)
class NewKey:
    """What is stored of a key that was just created."""

    prefix: str
    name: str
    created_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class ListedKey:
    """What is stored of a key; its secret is not."""

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
    """A key's hash, its user, whether it is valid, and whether the time of its last use is to be updated."""

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
            f"a user's name has 1 to {IDENTITY_NAME_MAX_CHARS} printable characters, is no number, and not me or all"
        )
    cursor = await conn.execute(sql("user/add"), {"name": name, "role": role})
    if await cursor.fetchone() is None:
        raise Conflict(f"there is a user {name!r} already")
    return await get_user(conn, name)


async def get_user(conn: Connection, name_or_id: str) -> User:
    if not name_or_id.isprintable():  # no name either, and a database may choke on it
        raise UnknownUser(f"there is no user {name_or_id!r}")
    number = int(name_or_id) if name_or_id.isascii() and name_or_id.isdigit() and len(name_or_id) < 19 else None  # noqa: PLR2004
    async with conn.cursor(row_factory=class_row(User)) as cursor:
        await cursor.execute(sql("user/find"), {"name": name_or_id, "id": number})
        user = await cursor.fetchone()
    if user is None:
        raise UnknownUser(f"there is no user {name_or_id!r}")
    return user


async def list_users(conn: Connection) -> list[ListedUser]:
    return await fetch_records(conn, ListedUser, sql("user/list"), {})


async def set_user_role(conn: Connection, user: User, role: Role) -> None:
    """Whoever is signed in as this user has to sign in again."""
    _reject_local_user(user)
    await conn.execute(sql("user/set_role"), {"id": user.id, "role": role})
    await conn.execute(sql("session/end_all"), {"user_id": user.id})


async def remove_user(conn: Connection, user: User) -> None:
    """With keys and sessions. Their jobs stay: only admins see them then."""
    _reject_local_user(user)
    await conn.execute(sql("user/remove"), {"id": user.id})


async def add_key(
    conn: Connection, user_id: int, *, name: str = "", seconds: float | None = None
) -> tuple[str, NewKey]:
    """The text of a new key, which is returned this once, and what is stored of it."""
    if len(name) > IDENTITY_NAME_MAX_CHARS or not (name.isprintable() or not name):
        raise InvalidInput(f"a key's name has at most {IDENTITY_NAME_MAX_CHARS} printable characters")
    await conn.execute(sql("user/lock"), {"id": user_id})
    await conn.execute(sql("key/forget"), {"user_id": user_id, "kept": MAX_INACTIVE_KEYS_PER_USER})
    prefix, text = credentials.generate_api_key()
    params = {
        "prefix": prefix,
        "hash": credentials.hash_secret(text),
        "user_id": user_id,
        "name": name,
        "seconds": seconds,
    }
    added = await fetch_records(conn, NewKey, sql("key/add"), params | {"most": MAX_KEYS_PER_USER})
    if not added:
        raise Conflict(f"a user has at most {MAX_KEYS_PER_USER} keys: revoke one that is not used any more")
    return text, added[0]


async def list_keys(conn: Connection, user_id: int | None) -> list[ListedKey]:
    return await fetch_records(conn, ListedKey, sql("key/list"), {"user_id": user_id})


async def revoke_key(conn: Connection, prefix: str, user_id: int | None) -> None:
    """For ever. With a user, only a key of theirs."""
    params = {"prefix": prefix, "user_id": user_id}
    if not prefix.isprintable() or not (await conn.execute(sql("key/revoke"), params)).rowcount:
        raise UnknownUser(f"there is no key {prefix!r}")


async def authenticate_key(db: Database, text: str) -> Principal | None:
    """Whose key it is, if it is good. Every request asks: it is one trip to the server, nearly always."""
    prefix = credentials.parse_key_prefix(text)
    if prefix is None:
        return None
    key = await db.read(_find_key, prefix)
    if key is None or not credentials.matches_hash(key.hash, text) or not key.good:
        return None
    if key.stale:
        await db.run_async_commit(_touch_key, prefix)
    return Principal(key.id, key.name, Role(key.role), by=f"key {prefix}")


async def _find_key(conn: Connection, prefix: str) -> _KeyLogin | None:
    found = await fetch_records(conn, _KeyLogin, sql("key/find"), {"prefix": prefix})
    return found[0] if found else None


async def _touch_key(conn: Connection, prefix: str) -> None:
    await conn.execute(sql("key/touch"), {"prefix": prefix})


def _reject_local_user(user: User) -> None:
    if user.id == LOCAL_USER_ID:
        raise Conflict(f"{user.name!r} is this machine itself and stays as it is")
