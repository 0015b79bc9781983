"""Distributions: a file for each of many inputs."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from tidemill.api import cursor, inline
from tidemill.api.answer import Answer, encode
from tidemill.api.distribution_views import content_out, dataset_out, distribution_out, distributions_out
from tidemill.api.files import send_file
from tidemill.api.guard import Guarded, Me, Permission, allow
from tidemill.api.idempotency import parse_key
from tidemill.api.lookup import DistributionToRun, OwnDistribution, list_own, own_scope
from tidemill.api.routes import operations
from tidemill.api.routes.exports import FILE_ANSWERS
from tidemill.api.routes.items import Seq
from tidemill.api.routes.submit_import import Key, submission_of
from tidemill.api.schemas.distributions import (
    ContentQuery,
    DatasetList,
    DistributionDetail,
    DistributionIn,
    DistributionOut,
    DistributionPage,
)
from tidemill.api.schemas.jobs import ListQuery
from tidemill.api.schemas.operations import OperationOut
from tidemill.api.state import Db, Serving
from tidemill.domain.distribution import KIND
from tidemill.domain.errors import KeyReused, UnknownFile
from tidemill.domain.form import Compression, FileFormat
from tidemill.operations import control
from tidemill.operations.distributions import Wanted, content, file_facts, file_gone
from tidemill.operations.reprocess import redrive
from tidemill.store import jobs

router = APIRouter(tags=["distributions"], route_class=Guarded)
ROUTE = "distributions"
_before: dict[int | str, dict[str, Any]] = {200: {"description": "What this key made before", "model": DistributionOut}}
_options = allow(Permission.USER, 400, 413, 415, also=_before)
_options["openapi_extra"] |= {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/DistributionIn"}}},
    }
}
_going_on: dict[int | str, dict[str, Any]] = {202: {"description": "It goes on without you", "model": OperationOut}}


@router.get("/datasets", **allow(Permission.USER))
async def list_datasets(me: Me, here: Serving) -> DatasetList:
    """What files you may ask for, and with which inputs."""
    return DatasetList(datasets=[dataset_out(one) for one in here.distributions.of(me.role)])


@router.post("/distributions", status_code=202, **_options)
async def submit_distribution(
    request: Request, response: Response, me: Me, here: Serving, idempotency_key: Key = None
) -> DistributionOut:
    """Ask for a file for each input. Inputs that do not fit are refused, all of them, and nothing is made."""
    asked = await inline.read(request, DistributionIn, most=here.settings.max_distribution_inputs)
    key = parse_key(idempotency_key)
    spec = replace(
        submission_of(request, me),
        idem_key=None if key is None else f"{ROUTE} {key}",
        asked=asked.model_dump(exclude={"inputs", "policy", "priority"}),
        policy={} if asked.policy is None else asked.policy.model_dump(exclude_none=True),
        priority=asked.priority,
        batch_size=here.settings.claim_max,
    )
    try:
        job_id, is_new = await here.distributions.submit(here.db, spec, _wanted(asked), me.role)
    except KeyReused:
        raise KeyReused("this Idempotency-Key was used for another request") from None
    response.status_code = 202 if is_new else 200
    response.headers["Location"] = f"/v1/distributions/{job_id}"
    response.headers["Retry-After"] = "1"
    return DistributionOut.model_validate(await distribution_out(here.db, await here.db.run(jobs.get, job_id)))


@router.get("/distributions", response_model=DistributionPage, **allow(Permission.USER, 404))
async def list_distributions(query: Annotated[ListQuery, Query()], me: Me, db: Db) -> Answer:
    """Your distributions, the newest first."""
    page = await list_own(db, await own_scope(db, me, query.user_id), query, KIND)
    told = {"distributions": await distributions_out(db, page.items), **cursor.next_page(page.after)}
    return Answer(encode(told))


@router.get("/distributions/{distribution_id}", response_model=DistributionDetail, **allow(Permission.USER, 404))
async def get_distribution(distribution_id: OwnDistribution, query: Annotated[ContentQuery, Query()], db: Db) -> Answer:
    """How far it is, and where the files of its inputs are: a page of them, in the order they came in."""
    page = await content(db, distribution_id.id, limit=query.page_size, after=cursor.decode(query.after))
    told = {"data_content": [content_out(one) for one in page.items], **cursor.next_page(page.after)}
    return Answer(encode(await distribution_out(db, distribution_id) | told))


@router.get(
    "/distributions/{distribution_id}/files/{seq}",
    response_class=Response,
    **allow(Permission.USER, 404, 409, 416, also=FILE_ANSWERS),
)
async def download_file(distribution_id: OwnDistribution, seq: Seq, request: Request, here: Serving) -> Response:
    """The file of one input, made or used again: all of it, or a range. `seq` is its place among the inputs, from 0."""
    facts = await file_facts(here.db, here.blobs, distribution_id, seq)
    try:
        return await send_file(request, here, facts)
    except UnknownFile:
        raise file_gone(distribution_id, seq) from None


@router.post("/distributions/{distribution_id}/cancel", **allow(Permission.USER, 404, 409))
async def cancel_distribution(distribution_id: OwnDistribution, me: Me, db: Db) -> DistributionOut:
    """What is in hand finishes, and files that are made stay; the rest is cancelled."""
    await control.cancel(db, distribution_id.id, by=me.user_id)
    found = await db.run(jobs.get, distribution_id.id)
    return DistributionOut.model_validate(await distribution_out(db, found))


@router.post("/distributions/{distribution_id}/redrive", **allow(Permission.USER, 404, 409, also=_going_on))
async def redrive_distribution(
    distribution_id: DistributionToRun, me: Me, request: Request, response: Response, db: Db
) -> OperationOut:
    """Send inputs that failed round again, and those that were cancelled because of them; it is open again then."""
    found = await redrive(
        db,
        owner_id=None,
        filters={"jobs": [str(distribution_id.id)]},
        user_id=me.user_id,
        request_id=request.state.request_id,
        within=operations.WITHIN_S,
    )
    return operations.answer(response, found)


def _wanted(asked: DistributionIn) -> Wanted:
    return Wanted(
        asked.dataset,
        asked.inputs,
        None if asked.reuse is None else asked.reuse.enabled,
        None if asked.reuse is None else asked.reuse.days,
        None if asked.format is None else FileFormat(asked.format),
        None if asked.compression is None else Compression(asked.compression),
    )
