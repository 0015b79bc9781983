"""Who asks."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


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
