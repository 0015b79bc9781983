"""Services: what the kinds match and http.enrich may call."""

from fastapi import APIRouter

from tidemill.api.guard import Guarded, Me, Permission, allow
from tidemill.api.schemas.services import ServiceList, ServiceOut
from tidemill.api.state import Serving

router = APIRouter(tags=["services"], route_class=Guarded)


@router.get("/services", **allow(Permission.USER))
async def list_services(me: Me, here: Serving) -> ServiceList:
    """Whom your jobs of the kinds `match` and `http.enrich` may call."""
    found = here.services.of(me.role)
    return ServiceList(services=[ServiceOut(name=one.name, url=one.url, limit=one.limit) for one in found])
