"""HTTP routes of the undo of imports: preview it, run it, and list the rows that it did not reverse."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool
from typing_extensions import TypeAliasType

from tidemill.imports import undo
from tidemill.imports.import_views import RerunnableImport, VisibleImport
from tidemill.jobs import bulk_operation_routes
from tidemill.jobs.bulk_operation_schemas import OperationOut
from tidemill.jobs.job_views import build_operation_out
from tidemill.jobs.schemas import NonNegativeInt
from tidemill.rest import dependencies
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.dependencies import RuntimeDep
from tidemill.rest.schema_types import (
    EXAMPLE_JOB_ID,
    EXAMPLE_NEXT_PAGE,
    EXAMPLE_UPDATED_AT,
    AfterCursor,
    NextPageToken,
    PageSize,
    QueryModel,
    RequestModel,
)

router = APIRouter(tags=["imports"], route_class=AuthenticatedRoute)
UndoRowStatus = TypeAliasType("UndoRowStatus", Literal["kept", "blocked"])
UndoRowCode = TypeAliasType(
    "UndoRowCode", Literal["changed", "deleted", "exists", "referenced", "taken", "refused", "timeout"]
)
_REDO_DESCRIPTION = "Reverse the undos of the import instead, so that the imported rows return"


class UndoIn(RequestModel):
    """Undo an import, or redo it."""

    redo: StrictBool = Field(False, description=_REDO_DESCRIPTION)


class UndoPreviewIn(UndoIn):
    """A preview of an undo or redo."""

    after: str | None = Field(None, max_length=500, description="`next_page` of the previous part")


class UndoPreviewOut(BaseModel):
    """What an undo or redo would do with the checked rows. Add the numbers of all parts."""

    model_config = ConfigDict(from_attributes=True)

    rows: NonNegativeInt = Field(description="Rows of the import that are not undone; with `redo`, rows that are")
    checked: NonNegativeInt = Field(description="Rows that this part has checked")
    reversed: NonNegativeInt = Field(description="Rows that would be reversed")
    kept: NonNegativeInt = Field(description="Rows that would be kept, because they have changed since")
    blocked: NonNegativeInt = Field(description="Rows that cannot be reversed, because other rows refer to them")
    next_page: NextPageToken = None


class UndoStateOut(BaseModel):
    """Whether an import can be undone, and its last undo or redo."""

    undoable: NonNegativeInt = Field(description="Rows that are not undone")
    redoable: NonNegativeInt = Field(description="Rows that a redo can bring back")
    operation: OperationOut | None = Field(None, description="The last undo or redo")
    kept: NonNegativeInt = Field(0, description="Rows that it kept, because they have changed since")
    blocked: NonNegativeInt = Field(0, description="Rows that it could not reverse")


class UndoRowOut(BaseModel):
    """A row that the last undo or redo did not reverse."""

    model_config = ConfigDict(from_attributes=True)

    status: UndoRowStatus
    code: UndoRowCode
    reason: str
    key: list[str] = Field(description="The key of the row, as text")


class UndoRowPage(BaseModel):
    """A page of rows that the last undo or redo did not reverse."""

    rows: list[UndoRowOut]
    next_page: NextPageToken = None


class UndoRowQuery(QueryModel):
    status: UndoRowStatus | None = None
    page_size: PageSize = 100
    after: AfterCursor = None


@router.get("/imports/{import_id}/undo", **build_route_options(Permission.USER, 404))
async def get_import_undo(import_id: VisibleImport, runtime: RuntimeDep) -> UndoStateOut:
    """Return how many rows of an import can be undone and redone, and the progress of its last undo or redo."""
    state = await undo.read_undo_state(runtime, import_id)
    operation = None if state.operation is None else build_operation_out(state.operation)
    return UndoStateOut(
        undoable=state.undoable, redoable=state.redoable, operation=operation, kept=state.kept, blocked=state.blocked
    )


@router.post(
    "/imports/{import_id}/undo",
    **build_route_options(
        Permission.USER, 400, 404, 409, extra_responses=bulk_operation_routes.RUNNING_OPERATION_RESPONSE
    ),
)
async def undo_import(
    import_id: RerunnableImport,
    body: UndoIn,
    me: CurrentUser,
    request: Request,
    response: Response,
    runtime: RuntimeDep,
) -> OperationOut:
    """Undo a closed import: delete the rows that it inserted, and give updated rows their earlier content.

    Rows that have changed since are kept, and rows that other rows refer to are blocked. `redo` reverses an undo. The
    status is 202 if the operation continues in the background.
    """
    operation = await undo.start_undo(
        runtime,
        import_id,
        redo=body.redo,
        by=me.user_id,
        request_id=request.state.request_id,
        timeout_s=bulk_operation_routes.OPERATION_WAIT_S,
    )
    return bulk_operation_routes.set_operation_headers_and_build_out(response, operation)


@router.post(
    "/imports/{import_id}/undo/preview",
    response_model_exclude_unset=True,
    **build_route_options(Permission.USER, 400, 404, 409),
)
async def preview_import_undo(import_id: RerunnableImport, body: UndoPreviewIn, runtime: RuntimeDep) -> UndoPreviewOut:
    """Count the rows that an undo would reverse, keep and not be able to reverse. Nothing is changed.

    A request checks rows for about two seconds. If rows are left, the response has `next_page`.
    """
    position = dependencies.decode_cursor(body.after)
    preview = await undo.preview_undo(runtime, import_id, redo=body.redo, position=position)
    counts = {name: getattr(preview, name) for name in ("rows", "checked", "reversed", "kept", "blocked")}
    return UndoPreviewOut(**counts, **dependencies.build_next_page_dict(preview.position))


@router.get(
    "/imports/{import_id}/undo/rows", response_model_exclude_unset=True, **build_route_options(Permission.USER, 404)
)
async def list_import_undo_rows(
    import_id: VisibleImport, query: Annotated[UndoRowQuery, Query()], runtime: RuntimeDep
) -> UndoRowPage:
    """List the rows that the last undo or redo of an import kept or could not reverse, each with the reason."""
    page = await undo.list_undo_exceptions(
        runtime,
        import_id,
        status=query.status,
        limit=query.page_size,
        after=dependencies.decode_cursor(query.after),
    )
    rows = [UndoRowOut.model_validate(one) for one in page.items]
    return UndoRowPage(rows=rows, **dependencies.build_next_page_dict(page.after))


_OPERATION: dict[str, Any] = {
    "id": "01a1e21e-84e3-7861-89f6-70c53f74d8fb",
    "verb": "undo",
    "state": "done",
    "items": 299450,
    "unchanged": 550,
    "user_id": 1,
    "job_id": EXAMPLE_JOB_ID,
    "predicate": {"rows": 300000},
    "created_at": EXAMPLE_UPDATED_AT,
    "updated_at": EXAMPLE_UPDATED_AT,
}
OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    UndoIn: {"redo": False},
    UndoPreviewIn: {"redo": False},
    UndoPreviewOut: {"rows": 300000, "checked": 300000, "reversed": 299450, "kept": 500, "blocked": 50},
    UndoStateOut: {"undoable": 550, "redoable": 299450, "operation": _OPERATION, "kept": 500, "blocked": 50},
    UndoRowPage: {
        "rows": [
            {"status": "blocked", "code": "referenced", "reason": "a row of public.orders refers to it", "key": ["7"]}
        ],
        "next_page": EXAMPLE_NEXT_PAGE,
    },
}
