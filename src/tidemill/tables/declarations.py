"""A resource as people declare it, before it is merged with the table in the database."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemill.core.principal import Role
from tidemill.tables.resource import ConditionalRequirement, Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredField:
    """A column by the name that files have for it; ``rules`` are by the names of ``resource.Field``."""

    name: str
    column: str
    rules: Mapping[str, Any] = field(default_factory=dict)
    unique: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceDeclaration:
    name: str
    table: str
    fields: tuple[DeclaredField, ...] = ()
    columns: tuple[str, ...] | None = None  # more columns that become fields; None for all columns of the table
    key: tuple[str, ...] | None = None
    unique: tuple[tuple[str, ...], ...] = ()
    references: tuple[Reference, ...] = ()
    conditions: tuple[ConditionalRequirement, ...] = ()
    read: tuple[Role, ...] = (Role.ADMIN,)
    write: tuple[Role, ...] = (Role.ADMIN,)

    @property
    def config_path(self) -> str:
        return f"resources.{self.name}"
