"""How much is open, and how much was settled lately, over many jobs."""

from tidemill.store.database import Connection, one_snapshot
from tidemill.store.lists.fetch import Row, rows

STEP_S, POINTS = 30, 30  # a quarter of an hour
MOST_JOBS = 1_000


@one_snapshot
async def look(conn: Connection, owner_id: int | None) -> Row:
    """Open items by status, and what was settled in each half minute of the last quarter of an hour."""
    of = "of_all" if owner_id is None else "of_owner"
    asked = {"owner_id": owner_id, "step": STEP_S, "points": POINTS, "jobs": MOST_JOBS}
    (counts,) = await rows(conn, f"batch/open_{of}", asked)
    return {"open": counts, "step_s": STEP_S, "points": await rows(conn, f"sample/flow_{of}", asked)}
