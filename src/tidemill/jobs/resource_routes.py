"""Resources: the declared tables that rows can be imported into and exported from."""

from fastapi import APIRouter
from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType

from tidemill.core.errors import InvalidSettings
from tidemill.core.file_format import ColumnType
from tidemill.core.principal import Principal
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.runtime_dependencies import RuntimeDep
from tidemill.runtime import Runtime
from tidemill.tables.resource import Field as ResourceField
from tidemill.tables.resource import ResourceDeclaration, is_granted
from tidemill.tables.resource_registry import make_resource_registry

ValueType = TypeAliasType("ValueType", ColumnType)


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


router = APIRouter(tags=["resources"], route_class=AuthenticatedRoute)


@router.get("/resources", **build_route_options(Permission.USER))
async def list_resources(me: CurrentUser, runtime: RuntimeDep) -> ResourceList:
    """What you may import into or export from, and with which fields."""
    return ResourceList(
        resources=[
            await _load_resource_out(runtime, me, one)
            for one in runtime.get(make_resource_registry).list_allowed(me.role)
        ]
    )


async def _load_resource_out(runtime: Runtime, me: Principal, declared: ResourceDeclaration) -> ResourceOut:
    may_read, may_write = is_granted(me.role, declared, "read"), is_granted(me.role, declared, "write")
    try:
        read = (
            await runtime.get(make_resource_registry).find(runtime.db, declared.name, for_reading=True)
            if may_read
            else None
        )
        written = await runtime.get(make_resource_registry).find(runtime.db, declared.name) if may_write else None
    except InvalidSettings as error:
        return ResourceOut(
            name=declared.name, key=[], may_read=may_read, may_write=may_write, fields=[], problem=str(error)
        )
    found = read or written
    readable = {} if read is None else {one.name: one for one in read.fields}
    writable = {} if written is None else {one.name: one for one in written.fields}
    return ResourceOut(
        name=declared.name,
        key=list(found.key) if found else [],
        may_read=may_read,
        may_write=may_write,
        fields=[_build_field_out(one, readable, writable) for one in (readable | writable).values()],
    )


def _build_field_out(
    one: ResourceField, readable: dict[str, ResourceField], writable: dict[str, ResourceField]
) -> FieldOut:
    return FieldOut(
        name=one.name,
        type=one.type,
        required=one.is_required_for_insert and one.name in writable,
        writable=one.name in writable,
        readable=one.name in readable,
        allowed=list(one.enum),
    )
