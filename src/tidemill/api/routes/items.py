"""Items: in pages, and one by one."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from tidemill.api import cursor
from tidemill.api.answer import Answer, encode
from tidemill.api.guard import Guarded, Me, Permission, allow
from tidemill.api.lookup import JobName, JobToRun, OwnJobId, full_name, scope_of
from tidemill.api.schemas.items import Fixed, FixIn, ItemDetail, ItemPage, ItemQuery
from tidemill.api.state import Db, Serving
from tidemill.domain.distribution import KIND as DISTRIBUTE
from tidemill.operations import fix, inspect
from tidemill.store.database import Database

router = APIRouter(tags=["items"], route_class=Guarded)
Seq = Annotated[int, Path(ge=0, le=2**62, description="An item's place in its job, from 0")]


@router.get("/jobs/{job}/items", response_model=ItemPage, **allow(Permission.USER, 404))
async def list_items(job: JobName, query: Annotated[ItemQuery, Query()], me: Me, here: Serving) -> Answer:
    """A page of a job's items. Open ones and failures come oldest change first, others in order of seq.

    A page in order of seq may be short, or even empty, and still have a next one: so much was looked at.
    """
    name, owner = full_name(job), scope_of(me)
    key = ("items", name, owner, query.model_dump_json())
    return Answer(await here.shared.look(key, lambda: _page(here.db, name, owner, query)))


async def _page(db: Database, name: str, owner_id: int | None, query: ItemQuery) -> bytes:
    grid = await inspect.grid(db, name, owner_id)
    page = await inspect.list_items(
        db,
        grid,
        query.statuses,
        limit=query.page_size,
        after=cursor.decode(query.after),
        seq=query.seq,
        codes=query.error_codes,
        key=query.key,
    )
    inputs = await inspect.shown_inputs(db, grid, page.items) if query.inputs else {}
    items = [item | {"input": inputs[item["seq"]]} if item["seq"] in inputs else item for item in page.items]
    return encode(
        {"columns": grid.columns.names, "columns_of": grid.columns.of, "items": items, **cursor.next_page(page.after)}
    )


@router.get("/jobs/{job}/items/{seq}", response_model_exclude_unset=True, **allow(Permission.USER, 404))
async def get_item(job: OwnJobId, seq: Seq, db: Db) -> ItemDetail:
    """An item, whole: its input with corrections, its result, what went wrong."""
    return ItemDetail.model_validate(await inspect.get_item(db, job, seq))


@router.patch("/jobs/{job}/items/{seq}", **allow(Permission.USER, 404, 409, 413))
async def fix_item(job: JobToRun, seq: Seq, asked: FixIn, me: Me, here: Serving) -> Fixed:
    """Correct the input of an item that failed or was not found. It runs with it when it is reprocessed."""
    most, given = here.settings.max_row_bytes, asked.input
    if job.kind == DISTRIBUTE:
        given = await here.distributions.corrected(here.db, job, seq, given)
    return Fixed(rev=await fix.fix_item(here.db, job.id, seq, given, by=me.user_id, max_row_bytes=most))
