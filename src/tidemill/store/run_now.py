"""Items that wait for their retry need wait no longer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tidemill.store import activity
from tidemill.store.database import Connection
from tidemill.store.jobs import lock
from tidemill.store.lists.fetch import Row, rows
from tidemill.store.statements import sql


@dataclass(frozen=True, slots=True)
class Hastened:
    """What became of items that somebody wants to run now."""

    due: int = 0  # waited for a retry, and do not any more
    in_hand: int = 0  # a worker has them
    others: int = 0  # wait for their turn already, or are settled

    def __add__(self, other: "Hastened") -> "Hastened":
        return Hastened(self.due + other.due, self.in_hand + other.in_hand, self.others + other.others)


async def run_now(conn: Connection, job_id: UUID, seqs: Sequence[int], *, by: int) -> Hastened:
    """Make those of some items due that wait for a retry. Their neighbours in a list go on waiting."""
    await lock(conn, job_id)
    wanted = sorted(set(seqs))
    asked: dict[str, Any] = {"job_id": job_id, "seqs": wanted, "first": wanted[0], "last": wanted[-1]}
    lists = await rows(conn, "batch/take_waiting", asked)
    whole = [one["id"] for one in lists if len(one["chosen"]) == len(one["seqs"])]
    await conn.execute(sql("batch/make_due"), {"ids": whole})
    for one in lists:
        if one["id"] not in whole:
            await _take_out(conn, job_id, one)
    due = sum(len(one["chosen"]) for one in lists)
    cursor = await conn.execute(sql("batch/count_in_hand"), asked)
    in_hand = int((await cursor.fetchone() or (0,))[0])
    if due:
        await activity.add(conn, job_id, by, "run_now", items=due)
        await conn.execute(sql("outbox/announce"), {"job_id": job_id})
    return Hastened(due, in_hand, len(wanted) - due - in_hand)


async def _take_out(conn: Connection, job_id: UUID, waiting: Row) -> None:
    """A list of its own for those that are chosen."""
    chosen = waiting["chosen"]
    rest = sorted(set(waiting["seqs"]) - set(chosen))
    await conn.execute(sql("batch/keep_rest"), {"batch_id": waiting["id"]} | _span(rest))
    like = {name: waiting[name] for name in ("owner_id", "kind", "isolated", "crashes")}
    await conn.execute(
        sql("batch/add_list_piece"), {"job_id": job_id, "retrying": True, "half": False} | like | _span(chosen)
    )


def _span(seqs: Sequence[int]) -> dict[str, Any]:
    return {"seqs": seqs, "lo": seqs[0], "hi": seqs[-1] + 1, "open": len(seqs)}
