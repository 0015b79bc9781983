"""Secrets that we give out and keep only the hash of. They are random, so a plain SHA-256 is enough."""

import hashlib
import hmac
import re
import secrets

_KEY = re.compile(r"(tm_[0-9a-f]{8})_[0-9a-f]{48}")


def new_key() -> tuple[str, str]:
    """The prefix that names a key, and the key."""
    prefix = f"tm_{secrets.token_hex(4)}"
    return prefix, f"{prefix}_{secrets.token_hex(24)}"


def new_token() -> str:
    return secrets.token_urlsafe(32)


def prefix_of(key: str) -> str | None:
    """None when it does not look like a key at all."""
    found = _KEY.fullmatch(key)
    return found[1] if found else None


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def is_same(kept: bytes, text: str) -> bool:
    """In the same time whatever the difference."""
    return hmac.compare_digest(kept, digest(text))
