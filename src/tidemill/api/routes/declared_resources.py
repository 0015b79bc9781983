"""Resources: what is declared, for whoever has to choose among them."""

from fastapi import APIRouter

from tidemill.api.guard import Guarded, Me, Permission, allow
from tidemill.api.schemas.resources import FieldOut, ResourceList, ResourceOut
from tidemill.api.state import Service, Serving
from tidemill.domain.declaration import Declaration
from tidemill.domain.errors import InvalidSettings
from tidemill.domain.identity import Principal
from tidemill.domain.resource import Field, may

router = APIRouter(tags=["imports"], route_class=Guarded)


@router.get("/resources", **allow(Permission.USER))
async def list_resources(me: Me, here: Serving) -> ResourceList:
    """What you may import into or export from, and with which fields."""
    return ResourceList(resources=[await _out(here, me, one) for one in here.resources.list(me.role)])


async def _out(here: Service, me: Principal, declared: Declaration) -> ResourceOut:
    may_read, may_write = may(me.role, declared, "read"), may(me.role, declared, "write")
    try:
        read = await here.resources.find(here.db, declared.name, reads=True) if may_read else None
        written = await here.resources.find(here.db, declared.name) if may_write else None
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
        fields=[_field(one, readable, writable) for one in (readable | writable).values()],
    )


def _field(one: Field, readable: dict[str, Field], writable: dict[str, Field]) -> FieldOut:
    return FieldOut(
        name=one.name,
        type=one.type,
        required=one.is_needed and one.name in writable,
        writable=one.name in writable,
        readable=one.name in readable,
        allowed=list(one.enum),
    )
