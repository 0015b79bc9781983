"""Resources: what rows can be imported into and exported from."""

from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType

from tidemill.domain.resource import Type

ValueType = TypeAliasType("ValueType", Type)


class FieldOut(BaseModel):
    """A column as files and requests see it."""

    name: str
    type: ValueType
    required: bool = Field(description="A row cannot be imported without it")
    writable: bool = Field(description="An import may fill it; others are only exported")
    readable: bool = Field(description="An export may have it")
    allowed: list[str] = Field([], description="The values it may have, if they are few")


class ResourceOut(BaseModel):
    """A resource, by its name, and what you may do with it."""

    name: str
    key: list[str] = Field(description="Fields that identify a row")
    may_read: bool
    may_write: bool
    fields: list[FieldOut]
    problem: str | None = Field(None, description="Why it cannot be used now: its table is not what was declared")


class ResourceList(BaseModel):
    """In the order of their declarations."""

    resources: list[ResourceOut]
