"""What a declaration says, once it is known to make sense by itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemill.domain.identity import Role
from tidemill.domain.resource import Condition, Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredField:
    """A column by the name that files have for it; ``rules`` are by the names of ``resource.Field``."""

    name: str
    column: str
    rules: Mapping[str, Any] = field(default_factory=dict)
    unique: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    name: str
    table: str
    fields: tuple[DeclaredField, ...] = ()
    columns: tuple[str, ...] | None = None  # that are fields beside the declared ones; None for all of the table's
    key: tuple[str, ...] | None = None
    unique: tuple[tuple[str, ...], ...] = ()
    references: tuple[Reference, ...] = ()
    conditions: tuple[Condition, ...] = ()
    read: tuple[Role, ...] = (Role.ADMIN,)
    write: tuple[Role, ...] = (Role.ADMIN,)

    @property
    def path(self) -> str:
        return f"resources.{self.name}"
