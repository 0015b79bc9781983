"""API keys and tokens: how they are generated, parsed and hashed."""

import hashlib
import hmac
import re
import secrets

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
