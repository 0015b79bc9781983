"""Rows of tables: streamed at once, or as a file that a job makes."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from tidemill.api import cursor
from tidemill.api.export_views import ROUTE, export_now, exports_out
from tidemill.api.guard import Guarded, Me, Permission, allow
from tidemill.api.idempotency import parse_key
from tidemill.api.leaving import while_there
from tidemill.api.lookup import list_own, own_scope, readable
from tidemill.api.routes.exports import FILES
from tidemill.api.routes.submit_import import Key, submission_of
from tidemill.api.schemas.exports import ExportIn, ExportOut, ExportPage, ExportsQuery
from tidemill.api.state import Service, Serving
from tidemill.api.streams import Streamed, begun
from tidemill.domain.errors import InvalidRequest, KeyReused
from tidemill.domain.export import KIND
from tidemill.domain.exporting import ExportPlan, TableExport, from_object, from_query
from tidemill.domain.identity import Principal
from tidemill.operations.exports import plan_export, repeated_export, stream_export, submit_export

router = APIRouter(tags=["exports"], route_class=Guarded)
OF_STREAMS = ("format", "compression", "fields", "order", "spreadsheet_safe")
_FILTER: dict[str, Any] = {
    "name": "filter",
    "in": "query",
    "required": False,
    "style": "deepObject",
    "explode": True,
    "description": "`filter[role][in]=admin,editor`, or `filter[role]=admin`; operators: eq, ne, lt, lte, gt, gte, in, "
    "like, is_null, between",
    "schema": {"type": "object", "additionalProperties": {"type": "string"}},
    "example": {"role": "admin"},
}
_LISTED = "With a resource, its rows, as they come (of format json, a list of objects); without, a page of exports"
_streamed: dict[int | str, dict[str, Any]] = {200: {"description": _LISTED, "content": dict(FILES)}}
_list = allow(Permission.USER, 404, 409, also=_streamed)
_list["openapi_extra"] |= {"parameters": [_FILTER]}
_before: dict[int | str, dict[str, Any]] = {200: {"description": "What this key made before", "model": ExportOut}}


@router.get("/exports", response_model=ExportPage, response_model_exclude_unset=True, **_list)
async def list_exports(
    query: Annotated[ExportsQuery, Query()], me: Me, request: Request, here: Serving
) -> ExportPage | Response:
    """Stream the rows of a resource; without `resource`, your exports, the newest first.

    A stream that ends without its end is not whole: the connection breaks when the source does.
    """
    if query.resource is not None:
        return await _stream(query, me, request, here)
    _refuse(query, [*OF_STREAMS], "without a resource, exports are listed: {} is not for that")
    page = await list_own(here.db, await own_scope(here.db, me, query.user_id), query, KIND)
    return ExportPage(exports=await exports_out(here, page.items), **cursor.next_page(page.after))


@router.post("/exports", status_code=202, **allow(Permission.USER, 400, 404, also=_before))
async def submit_export_job(
    asked: ExportIn, me: Me, request: Request, response: Response, here: Serving, idempotency_key: Key = None
) -> ExportOut:
    """Have a file made of the rows of a resource. It is kept for a while, to be downloaded or imported again."""
    key = parse_key(idempotency_key)
    wanted = _request(asked, json.loads(await request.body(), parse_float=Decimal).get("filters", {}))
    spec = submission_of(request, me, priority=asked.priority, idem_key=None if key is None else f"{ROUTE} {key}")
    try:
        made = await repeated_export(here.db, spec, wanted)
        job_id, is_new = (
            (made, False) if made else await submit_export(here.db, spec, await _plan(here, me, wanted), wanted)
        )
    except KeyReused:
        raise KeyReused("this Idempotency-Key was used for another request") from None
    response.status_code = 202 if is_new else 200
    response.headers["Location"] = f"/v1/exports/{job_id}"
    response.headers["Retry-After"] = "1"
    return await export_now(here, job_id)


async def _stream(query: ExportsQuery, me: Principal, request: Request, here: Service) -> Response:
    listing = set(type(query).model_fields) - {"resource", *OF_STREAMS}
    _refuse(query, sorted(listing), "the rows of a resource are streamed: {} is for the list of exports")
    wanted = TableExport(
        resource=query.resource or "",
        fields=tuple(query.fields),
        filters=tuple(from_query(request.query_params.multi_items())),
        order=tuple(query.order),
        format=query.format,
        compression=query.compression,
        spreadsheet_safe=query.spreadsheet_safe,
    )
    plan = await _plan(here, me, wanted)
    headers = {"Content-Disposition": f'attachment; filename="{plan.file_name()}"'}
    pieces = await while_there(request, begun(_pieces(here, plan)))
    return Streamed(pieces, headers, plan.form.content_type)


async def _pieces(here: Service, plan: ExportPlan) -> AsyncGenerator[bytes]:
    with here.streams.one_more():
        async with aclosing(stream_export(here.db, plan)) as pieces:
            async for piece in pieces:
                yield piece


def _request(asked: ExportIn, filters: dict[str, Any]) -> TableExport:
    """``filters`` as they were written: fractions have all their digits."""
    return TableExport(
        resource=asked.resource,
        fields=tuple(asked.fields),
        filters=tuple(from_object(filters)),
        order=tuple(asked.order),
        format=asked.format,
        compression=asked.compression,
        spreadsheet_safe=asked.spreadsheet_safe,
    )


async def _plan(here: Service, me: Principal, wanted: TableExport) -> ExportPlan:
    return await plan_export(here.db, await readable(here, me, wanted.resource), wanted)


def _refuse(query: ExportsQuery, names: list[str], why: str) -> None:
    """What is there and has no meaning here. Filters belong to streams."""
    others = list(query.model_extra or {})
    filters = [name for name in others if name.startswith("filter[")]
    unknown = [f"there is no parameter {name[:100]!r}" for name in others if name not in filters]
    if "resource" not in query.model_fields_set and filters:
        unknown.append(why.format(filters[0][:100]))
    problems = unknown + [why.format(name) for name in names if name in query.model_fields_set]
    if problems:
        raise InvalidRequest(problems)
