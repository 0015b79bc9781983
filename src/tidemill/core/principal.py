"""The authenticated user of a request."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    USER = "user"
    ADMIN = "admin"


def has_role(granted: Collection[Role], role: Role) -> bool:
    """Return whether a role has a grant. An admin has every grant that at least one role has."""
    return role in granted or (role is Role.ADMIN and bool(granted))


LOCAL_USER_ID: Final = 0  # the user of local commands, which authenticate with the database's credentials


@dataclass(frozen=True, slots=True)
class Principal:
    """A user and their credential: ``by`` names the API key or session and never contains a secret."""

    user_id: int
    name: str
    role: Role
    by: str
    csrf: str | None = None  # the token that writes from a browser session must send

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN

    def may_see(self, owner_id: int) -> bool:
        return self.is_admin or owner_id == self.user_id
