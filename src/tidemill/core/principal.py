"""Who asks."""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_API_KEY_PATTERN = re.compile(r"(tm_[0-9a-f]{8})_[0-9a-f]{48}")


def generate_api_key() -> tuple[str, str]:
    """The prefix that names a key, and the key."""
    prefix = f"tm_{secrets.token_hex(4)}"
    return prefix, f"{prefix}_{secrets.token_hex(24)}"


def generate_token() -> str:
    return secrets.token_urlsafe(32)


def parse_key_prefix(key: str) -> str | None:
    """None when it does not look like a key at all."""
    found = _API_KEY_PATTERN.fullmatch(key)
    return found[1] if found else None


def hash_secret(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def matches_hash(kept: bytes, text: str) -> bool:
    """In the same time whatever the difference."""
    return hmac.compare_digest(kept, hash_secret(text))


class Role(StrEnum):
    USER = "user"
    ADMIN = "admin"


LOCAL_USER_ID: Final = 0  # this machine: whoever has the database's credentials


@dataclass(frozen=True, slots=True)
class Principal:
    """A user and how they proved to be that: ``by`` names their key or session and never holds a secret."""

    user_id: int
    name: str
    role: Role
    by: str
    csrf: str | None = None  # of a browser's session: what its writes must carry

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN

    def may_see(self, owner_id: int) -> bool:
        return self.is_admin or owner_id == self.user_id
