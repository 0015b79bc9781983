"""Stores limiters: one row each, updated by single statements that use the database's clock."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb

from tidemill.limits.limiter import Limiter
from tidemill.store.database import Connection
from tidemill.store.statements import make_sql_loader

sql = make_sql_loader("tidemill.limits")

MAX_LIMITER_MEMBERS = 10_000  # per limiter; further members share one
LIMITER_MEMBER_IDLE_S = 600.0  # a member that was idle for longer is deleted
SHARED_MEMBER_KEY = "*"  # the shared member


@dataclass(frozen=True, slots=True)
class PermitRequest:
    """The request of one process to one limiter."""

    name: str
    key: str
    worker: str
    child: int
    wanted: int  # permits
    places: int  # additional concurrency slots
    held: int  # slots that the process holds
    idle: int  # held slots that it does not use
    lead: float  # expected seconds until the response arrives
    reach: float  # seconds ahead for which permits may be granted
    seconds: float  # the lifetime of slots
    member: str = ""  # the member that the process requested; it differs from the key of a shared member


@dataclass(frozen=True, slots=True)
class PermitGrant:
    """The response of a limiter. ``starts`` are times on the database's clock, which showed ``clock``.

    Without starts, ``wait`` is the number of seconds until the next request. ``places`` are additional slots.
    ``counted`` states whether the limiter currently limits concurrency.
    """

    clock: float
    starts: list[float]
    places: int
    wait: float
    blocked: float
    slack: float
    pace: float | None
    crowded: bool
    counted: bool


@dataclass(frozen=True, slots=True)
class ThrottleResult:
    blocked: float
    share: float
    cuts: bool


async def take_permits(conn: Connection, request: PermitRequest) -> tuple[float, PermitGrant | None]:
    """Request permits and slots; return the local time of the request, and the grant.

    The grant is None if the limiter or its member does not exist yet.
    """
    params = {name: getattr(request, name) for name in request.__slots__}
    async with conn.cursor(row_factory=class_row(PermitGrant)) as cursor:
        sent_at = time.monotonic()  # measured here, so that it does not include the wait for a connection
        await cursor.execute(sql("limiter/take"), params)
        return sent_at, await cursor.fetchone()


async def return_permits(conn: Connection, name: str, key: str, starts: Sequence[float], slack: float) -> None:
    await conn.execute(sql("limiter/give_back"), {"name": name, "key": key, "starts": list(starts), "slack": slack})


async def set_held_slots(
    conn: Connection, name: str, key: str, worker: str, child: int, held: int, member: str = ""
) -> None:
    """Set the number of slots that a process holds."""
    params = {"name": name, "key": key, "worker": worker, "child": child, "held": held, "member": member}
    await conn.execute(sql("limiter/leave"), params)


async def renew_slots(conn: Connection, worker: str, children: Sequence[int], seconds: float) -> None:
    """Extend the slots of a worker's running children by ``seconds``."""
    params = {"worker": worker, "children": list(children), "seconds": seconds}
    await conn.execute(sql("limiter/renew"), params)


async def release_all_slots(conn: Connection, worker: str, child: int | None = None) -> None:
    """Release all slots of a dead child, or of a worker that stops."""
    await conn.execute(sql("limiter/leave_all"), {"worker": worker, "child": child})


async def forget_idle_members(conn: Connection, seconds: float = LIMITER_MEMBER_IDLE_S) -> int:
    """Delete members that were idle for ``seconds``, and expired slots; return the number of members."""
    await conn.execute(sql("limiter/forget_holds"))
    return (await conn.execute(sql("limiter/forget_members"), {"idle": seconds})).rowcount


async def block_throttled_limiter(
    conn: Connection, name: str, key: str, *, after: float, age: float, times: int
) -> ThrottleResult | None:
    """Block a limiter for ``after`` seconds, because a call that started ``age`` seconds ago was throttled."""
    params = {"name": name, "key": key, "after": after, "age": age, "times": times}
    async with conn.cursor(row_factory=class_row(ThrottleResult)) as cursor:
        await cursor.execute(sql("limiter/refuse"), params)
        return await cursor.fetchone()


async def declare_limiters(conn: Connection, declared: Iterable[Limiter]) -> None:
    """Store the declared limiters, and update their members."""
    for limiter in sorted(declared, key=lambda limiter: limiter.name):
        await conn.execute(
            sql("limiter/declare"), _build_limiter_columns(limiter) | {"declared": Jsonb(limiter.stored_declaration)}
        )
        await conn.execute(sql("limiter/follow"), {"name": limiter.name})


async def add_limiter_member(conn: Connection, name: str, key: str) -> bool:
    """Add a member; return False if the limiter has too many members."""
    params = {"name": name, "key": key, "rest": SHARED_MEMBER_KEY, "most": MAX_LIMITER_MEMBERS}
    await conn.execute(sql("limiter/add_member"), params)
    cursor = await conn.execute(sql("limiter/has"), {"name": name, "key": key})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def list_limiters(conn: Connection, name: str | None = None) -> list[dict[str, Any]]:
    """Return all limiters, or one, with their limits, totals and current usage."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("limiter/list"), {"name": name})
        return await cursor.fetchall()


async def update_limiter(conn: Connection, name: str, changes: Mapping[str, Any]) -> Limiter | None:
    """Change some fields of a limiter and return it; None if it does not exist."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("limiter/get"), {"name": name})
        row = await cursor.fetchone()
    if row is None:
        return None
    limiter = Limiter(name, **{**row, **changes})
    await conn.execute(sql("limiter/change"), _build_limiter_columns(limiter))
    await conn.execute(sql("limiter/follow"), {"name": name})
    return limiter


async def unblock_limiter(conn: Connection, name: str, key: str | None = None) -> int:
    """Remove the block of a limiter; return the number of unblocked rows."""
    return (await conn.execute(sql("limiter/unblock"), {"name": name, "key": key})).rowcount


def _build_limiter_columns(limiter: Limiter) -> dict[str, Any]:
    names = ("name", "rate", "burst", "concurrency", "adaptive", "lowest")
    derived = {"pace": limiter.permits_per_s, "depth": limiter.bucket_depth, "slack": limiter.permit_validity_s}
    return {name: getattr(limiter, name) for name in names} | derived
