"""HTTP routes of remembered mappings: list, share and forget them."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from tidemill.core.list_pages import BIGINT_SAFE_MAX
from tidemill.core.principal import Principal
from tidemill.imports import remembered_mappings
from tidemill.rest import dependencies
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.dependencies import DatabaseDep, RuntimeDep
from tidemill.rest.schema_types import (
    EXAMPLE_NEXT_PAGE,
    EXAMPLE_UPDATED_AT,
    AfterCursor,
    NextPageToken,
    PageSize,
    QueryModel,
    RequestModel,
    ShortText,
)
from tidemill.runtime import Runtime
from tidemill.tables.resource import is_granted
from tidemill.tables.resource_registry import make_resource_registry

router = APIRouter(tags=["imports"], route_class=AuthenticatedRoute)
MappingId = Annotated[int, Path(ge=1, le=BIGINT_SAFE_MAX, description="Id of a remembered mapping", examples=[7])]


class MappingOut(BaseModel):
    """How files with these columns were imported."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    owner: str
    resource: str
    columns: list[str] = Field(description="Columns of the file, in its order")
    options: dict[str, Any] = Field(description="The mapping and the other remembered options of the import")
    shared: bool = Field(description="True if all users who may import into the resource can use it")
    uses: int = Field(description="Number of imports with these columns")
    job_key: str = Field(description="The last of these imports")
    used_at: datetime


class MappingPage(BaseModel):
    """A page of remembered mappings, the most recently used first."""

    mappings: list[MappingOut]
    next_page: NextPageToken = None


class MappingQuery(QueryModel):
    resource: Annotated[ShortText | None, Field(description="Only mappings of this resource")] = None
    page_size: PageSize = 100
    after: AfterCursor = None


class MappingChangeIn(RequestModel):
    """The change of a remembered mapping."""

    shared: StrictBool = Field(description="Whether all users who may import into the resource can use it")


@router.get("/import-mappings", response_model_exclude_unset=True, **build_route_options(Permission.USER))
async def list_import_mappings(
    query: Annotated[MappingQuery, Query()], me: CurrentUser, runtime: RuntimeDep
) -> MappingPage:
    """List your remembered mappings and those that are shared with you. Admins get the mappings of all users."""
    page = await remembered_mappings.list_mappings(
        runtime.db,
        me,
        _list_writable_resources(runtime, me),
        resource=query.resource,
        limit=query.page_size,
        after=dependencies.decode_cursor(query.after),
    )
    mappings = [MappingOut.model_validate(one) for one in page.items]
    return MappingPage(mappings=mappings, **dependencies.build_next_page_dict(page.after))


@router.patch("/import-mappings/{mapping_id}", **build_route_options(Permission.USER, 404))
async def change_import_mapping(
    mapping_id: MappingId, body: MappingChangeIn, me: CurrentUser, db: DatabaseDep
) -> MappingOut:
    """Share a mapping with all users who may import into its resource, or stop sharing it.

    Only its owner and admins may change it.
    """
    return MappingOut.model_validate(await remembered_mappings.share_mapping(db, me, mapping_id, shared=body.shared))


@router.delete("/import-mappings/{mapping_id}", status_code=204, **build_route_options(Permission.USER, 404))
async def forget_import_mapping(mapping_id: MappingId, me: CurrentUser, db: DatabaseDep) -> None:
    """Delete a remembered mapping. Previews of files with its columns no longer propose it."""
    await remembered_mappings.forget_mapping(db, me, mapping_id)


def _list_writable_resources(runtime: Runtime, user: Principal) -> list[str]:
    allowed = runtime.get(make_resource_registry).list_allowed(user.role)
    return [one.name for one in allowed if is_granted(user.role, one, "write")]


_MAPPING: dict[str, Any] = {
    "id": 7,
    "owner": "ada",
    "resource": "users",
    "columns": ["E-Mail", "Full name"],
    "options": {"mapping": {"E-Mail": "email", "Full name": "name"}, "translations": {"country": {"Germany": "DE"}}},
    "shared": False,
    "uses": 3,
    "job_key": "J20261115_000778",
    "used_at": EXAMPLE_UPDATED_AT,
}
OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    MappingPage: {"mappings": [_MAPPING], "next_page": EXAMPLE_NEXT_PAGE},
    MappingOut: _MAPPING,
    MappingChangeIn: {"shared": True},
}
