"""Users, API keys, browser sessions and sign-in links."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tidemill.core.errors import Forbidden
from tidemill.core.principal import Principal, Role
from tidemill.core.quotas import Quota, QuotaUse
from tidemill.rest.auth import make_session_limits
from tidemill.runtime import Runtime
from tidemill.store import quota_records, users
from tidemill.store.database import Database
from tidemill.store.users import ListedKey, ListedSession, ListedUser, NewKey, User, parse_key_prefix

SIGN_IN_LINK_TTL_S = 900
QuotaChange = int | Literal["unlimited", "default"]


@dataclass(frozen=True, slots=True)
class StartedSession:
    """A new browser session: the secret for its cookie, and its user."""

    token: str
    principal: Principal


async def sign_in_with_key(runtime: Runtime, key: str, replaced_token: str | None) -> StartedSession | None:
    """Start a session for the user of an API key; None if the key is invalid. The session ends with the key.

    The session of ``replaced_token`` ends, which prevents session fixation.
    """
    principal = await users.authenticate_key(runtime.db, key)
    if principal is None:
        return None
    return await _start_session_and_end_replaced(runtime, principal.user_id, parse_key_prefix(key), replaced_token)


async def sign_in_with_link(runtime: Runtime, link: str, replaced_token: str | None) -> StartedSession | None:
    """Start a session for the user of a sign-in link and redeem the link; None if it was used or has expired."""
    user_id = await runtime.db.run(users.redeem_sign_in_token, link)
    return None if user_id is None else await _start_session_and_end_replaced(runtime, user_id, None, replaced_token)


async def _start_session_and_end_replaced(
    runtime: Runtime, user_id: int, key_prefix: str | None, replaced_token: str | None
) -> StartedSession | None:
    token = await runtime.db.run(users.create_session_token, user_id, key=key_prefix, replaced_token=replaced_token)
    opened = await runtime.db.run(users.authenticate_session, token, runtime.get(make_session_limits))
    return None if opened is None else StartedSession(token, opened.principal)


async def sign_out(db: Database, token: str) -> None:
    await db.run(users.end_session, token)


async def list_sessions(runtime: Runtime, user_id: int, token: str | None) -> list[ListedSession]:
    """Return the browser sessions of a user; ``token`` is the secret of the current session."""
    return await runtime.db.run(users.list_sessions, user_id, token, runtime.get(make_session_limits))


async def end_other_sessions(db: Database, user_id: int, token: str | None) -> None:
    """End all browser sessions of a user except the one with this secret."""
    await db.run(users.end_other_sessions, user_id, token)


async def list_users(db: Database) -> list[ListedUser]:
    return await db.run(users.list_users)


async def get_user(db: Database, name_or_id: str) -> User:
    """Return a user; raise UnknownUser if it does not exist."""
    return await db.run(users.get_user, name_or_id)


async def add_user(db: Database, name: str, role: Role) -> User:
    """Add a user without an API key; raise Conflict if the name is taken."""
    return await db.run(users.add_user, name, role)


async def change_role(db: Database, name_or_id: str, role: Role) -> User:
    """Change the role of a user, end the user's browser sessions, and return the user."""
    await db.run(users.set_user_role, await get_user(db, name_or_id), role)
    return await get_user(db, name_or_id)


async def remove_user(db: Database, name_or_id: str) -> None:
    """Remove a user, with the user's API keys and sessions. Admins still see the user's jobs."""
    await db.run(users.remove_user, await get_user(db, name_or_id))


async def load_quota(runtime: Runtime, user_id: int) -> tuple[Quota, QuotaUse]:
    """Return the limits of a user, and how much of them is used."""
    quota = await runtime.db.read(quota_records.read_quota, user_id, runtime.settings.default_quota)
    return quota, await runtime.db.read(quota_records.read_quota_use, user_id)


async def change_quota(runtime: Runtime, name_or_id: str, changes: Mapping[str, QuotaChange]) -> tuple[Quota, QuotaUse]:
    """Change limits of a user and return all limits and their use; ``changes`` has the names of limits.

    "default" restores the default of the settings.
    """
    user = await get_user(runtime.db, name_or_id)
    removed = [name for name, change in changes.items() if change == "default"]
    limits = {name: None if change == "unlimited" else change for name, change in changes.items()}
    kept = {name: limit for name, limit in limits.items() if isinstance(limit, int | None)}
    await runtime.db.run(quota_records.set_quota, user.id, kept, removed)
    return await load_quota(runtime, user.id)


async def create_sign_in_link(db: Database, name_or_id: str) -> str:
    """Return the path of a new sign-in link. It works once and expires after ``SIGN_IN_LINK_TTL_S`` seconds."""
    user = await get_user(db, name_or_id)
    return f"/sign-in/{await db.run(users.create_sign_in_token, user.id, SIGN_IN_LINK_TTL_S)}"


async def list_keys(db: Database, user: str | None) -> list[ListedKey]:
    """Return the API keys of a user, by name or id, or of all users."""
    return await db.run(users.list_keys, None if user is None else (await get_user(db, user)).id)


async def list_visible_keys(db: Database, me: Principal) -> list[ListedKey]:
    """Return the caller's API keys, or all keys for an admin."""
    return await db.run(users.list_keys, None if me.is_admin else me.user_id)


async def add_key(
    db: Database, user: str, *, name: str = "", expires_in_s: float | None = None
) -> tuple[str, NewKey, int]:
    """Create an API key and return its secret, its metadata and the user's id. The secret is not stored."""
    user_id = (await get_user(db, user)).id
    return *await db.run(users.add_key, user_id, name=name, seconds=expires_in_s), user_id


async def authorize_and_add_key(
    db: Database, me: Principal, user: str | None, *, name: str, expires_in_s: float | None
) -> tuple[str, NewKey, int]:
    """Create an API key for the caller or, if the caller is an admin, for another user; see ``add_key``."""
    is_own = user is None or user == me.name
    if not is_own and not me.is_admin:
        raise Forbidden("Only an admin can create API keys for other users")
    return await add_key(db, str(me.user_id) if user is None or is_own else user, name=name, expires_in_s=expires_in_s)


async def revoke_key(db: Database, prefix: str, me: Principal | None = None) -> None:
    """Revoke an API key; raise UnknownUser if it does not exist or ``me`` may not see it."""
    await db.run(users.revoke_key, prefix, None if me is None or me.is_admin else me.user_id)
