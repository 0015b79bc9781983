"""Users, keys and sessions."""

from datetime import datetime

from pydantic import BaseModel, Field

from tidemill.api.schemas.base import Asked
from tidemill.domain.identity import Role


class MeOut(BaseModel):
    """Who asks."""

    user_id: int
    name: str
    role: Role
    by: str = Field(description="Which key, or `session`")
    csrf_token: str | None = Field(None, description="What a browser's writes carry in X-CSRF-Token")


class SignIn(Asked):
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


class UserIn(Asked):
    """Somebody new."""

    name: str = Field(min_length=1, max_length=100)
    role: Role = Role.USER


class RoleIn(Asked):
    """Another role."""

    role: Role


class UserOut(BaseModel):
    """A user."""

    id: int
    name: str
    role: Role
    created_at: datetime
    keys: int = Field(0, description="Keys that are good now")


class KeyIn(Asked):
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


class NewKey(KeyOut):
    """A key, this once."""

    key: str = Field(description="Shown this once")
