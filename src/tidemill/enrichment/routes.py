"""HTTP routes of external services."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from tidemill.enrichment.use_cases import make_service_use_cases
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.dependencies import RuntimeDep


class ServiceOut(BaseModel):
    """A declared external service, without its secret."""

    name: str
    url: str = Field(description="URL of the service")
    limit: str | None = Field(None, description="Limiter that grants a permit for each request to the service")


class ServiceList(BaseModel):
    """The external services that your jobs may call."""

    services: list[ServiceOut]


router = APIRouter(tags=["services"], route_class=AuthenticatedRoute)


@router.get("/services", **build_route_options(Permission.USER))
async def list_services(me: CurrentUser, runtime: RuntimeDep) -> ServiceList:
    """List the external services that your jobs of the kinds `match` and `http.enrich` may call."""
    services = runtime.get(make_service_use_cases).list_services(me.role)
    return ServiceList(
        services=[ServiceOut(name=service.name, url=service.url, limit=service.limit) for service in services]
    )


OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    ServiceList: {
        "services": [{"name": "wikidata", "url": "https://wikidata.reconci.link/en/api", "limit": "wikidata"}]
    },
}
