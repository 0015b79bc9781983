"""Routes for resources, the declared tables for imports and exports."""

from fastapi import APIRouter
from pydantic import BaseModel, Field

from tidemill.core.errors import InvalidSettings
from tidemill.core.principal import Principal
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.dependencies import RuntimeDep
from tidemill.rest.schema_types import ValueType
from tidemill.runtime import Runtime
from tidemill.tables.resource import Field as ResourceField
from tidemill.tables.resource import ResourceDeclaration, is_granted
from tidemill.tables.resource_registry import make_resource_registry


class FieldOut(BaseModel):
    """A field of a resource."""

    name: str
    type: ValueType
    required: bool = Field(description="True if an imported row must have a value for the field")
    writable: bool = Field(description="True if imports can set the field")
    readable: bool = Field(description="True if exports can include the field")
    allowed: list[str] = Field([], description="Allowed values, if the field is an enumeration")


class ResourceOut(BaseModel):
    """A resource and your permissions."""

    name: str
    key: list[str] = Field(description="Fields that identify a row")
    may_read: bool
    may_write: bool
    fields: list[FieldOut]
    problem: str | None = Field(
        None, description="Why the resource cannot be used: its table does not match the declaration"
    )


class ResourceList(BaseModel):
    """Resources in the order of their declaration."""

    resources: list[ResourceOut]


router = APIRouter(tags=["resources"], route_class=AuthenticatedRoute)


@router.get("/resources", **build_route_options(Permission.USER))
async def list_resources(me: CurrentUser, runtime: RuntimeDep) -> ResourceList:
    """List the resources that you may import into or export from, with their fields."""
    return ResourceList(
        resources=[
            await _read_resource_out(runtime, me, one)
            for one in runtime.get(make_resource_registry).list_allowed(me.role)
        ]
    )


async def _read_resource_out(runtime: Runtime, me: Principal, declared: ResourceDeclaration) -> ResourceOut:
    may_read, may_write = is_granted(me.role, declared, "read"), is_granted(me.role, declared, "write")
    try:
        read = (
            await runtime.get(make_resource_registry).get_resource(runtime.db, declared.name, for_reading=True)
            if may_read
            else None
        )
        written = (
            await runtime.get(make_resource_registry).get_resource(runtime.db, declared.name) if may_write else None
        )
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
