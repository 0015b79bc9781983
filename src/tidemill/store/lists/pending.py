"""Open items across jobs, each with its job and with why it waits."""

from dataclasses import replace
from uuid import UUID

from tidemill.domain.page import Page
from tidemill.domain.pending import LIVE_S, why
from tidemill.domain.status import Intent, ItemStatus, JobStatus, job_status
from tidemill.store.database import Connection, one_snapshot
from tidemill.store.lists.fetch import Row, rows
from tidemill.store.lists.grid import find_grid
from tidemill.store.lists.open_items import Asked, list_open


@one_snapshot
async def list_pending(conn: Connection, asked: Asked, *, limit: int, after: object = None) -> Page[Row]:
    if asked.job_id is not None:
        grid = await find_grid(conn, asked.job_id, asked.owner_id)
        if asked.kind not in (None, grid.kind):
            return Page([], None)
    page = await list_open(conn, asked, limit=limit, after=after)
    briefs = await _briefs(conn, {item["job_id"] for item in page.items})
    live = {row["kind"]: row["on_demand"] for row in await rows(conn, "worker/live_kinds", {"seconds": LIVE_S})}
    return replace(page, items=[_tell(item, briefs[item["job_id"]], live) for item in page.items])


async def _briefs(conn: Connection, job_ids: set[UUID]) -> dict[UUID, Row]:
    found = await rows(conn, "job/brief", {"ids": sorted(job_ids)}) if job_ids else []
    return {job["id"]: job for job in found}


def _tell(item: Row, job: Row, live: dict[str, bool]) -> Row:
    intent, status = Intent(job["intent"]), ItemStatus(item["status"])
    shown = job_status(
        intent=intent,
        ingest_done=job["ingest_done"],
        closed_as=None if job["closed_as"] is None else JobStatus(job["closed_as"]),
        total=job["total"],
        started=job["pending"] != job["total"],
    )
    reason = why(
        status,
        intent=intent,
        worker=item["locked_by"],
        due_at=item["due_at"],
        is_due=item["is_due"],
        has_worker=not live.get(job["kind"], True),
        has_kickoff=job["kind"] in live,
        limiter=job["limiter"],
        blocked_until=job["blocked_until"],
    )
    told = {"job_key": job["key"], "kind": job["kind"], "owner_id": job["owner_id"], "job_status": shown, "why": reason}
    return {name: value for name, value in item.items() if name not in ("is_due", "batch_id")} | told
