"""Limiters: one row each, changed by one statement at a time, by the database's clock."""

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

MAX_LIMITER_MEMBERS = 10_000  # of a limiter; those beyond share one
LIMITER_MEMBER_IDLE_S = 600.0  # a member that was not used for so long is forgotten
SHARED_MEMBER_KEY = "*"  # the member that they share


@dataclass(frozen=True, slots=True)
class PermitRequest:
    """One process asks one limiter."""

    name: str
    key: str
    worker: str
    child: int
    wanted: int  # permits
    places: int  # more, of those who may be at it at a time
    held: int  # places it has
    idle: int  # and does not use
    lead: float  # seconds until the answer is heard
    reach: float
    seconds: float  # for which places are good
    member: str = ""  # what the process calls it: for those that share one, the key is not enough


@dataclass(frozen=True, slots=True)
class PermitGrant:
    """``starts`` are by the clock that showed ``clock``; with none, ``wait`` says when to come again.

    ``places`` are those beside what the process has. ``counted`` says whether they are, as the limiter is now.
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
    """When it was asked, by our own clock, and permits, or when to come again.

    None when there is no such limiter, or no such member of it yet.
    """
    params = {name: getattr(request, name) for name in request.__slots__}
    async with conn.cursor(row_factory=class_row(PermitGrant)) as cursor:
        asked = time.monotonic()  # not before: who waits for a connection has not asked yet
        await cursor.execute(sql("limiter/take"), params)
        return asked, await cursor.fetchone()


async def return_permits(conn: Connection, name: str, key: str, starts: Sequence[float], slack: float) -> None:
    await conn.execute(sql("limiter/give_back"), {"name": name, "key": key, "starts": list(starts), "slack": slack})


async def set_held_slots(
    conn: Connection, name: str, key: str, worker: str, child: int, held: int, member: str = ""
) -> None:
    """So many places are left to a process."""
    params = {"name": name, "key": key, "worker": worker, "child": child, "held": held, "member": member}
    await conn.execute(sql("limiter/leave"), params)


async def renew_slots(conn: Connection, worker: str, children: Sequence[int], seconds: float) -> None:
    """The places of a worker's living children stay theirs for so long."""
    params = {"worker": worker, "children": list(children), "seconds": seconds}
    await conn.execute(sql("limiter/renew"), params)


async def release_all_slots(conn: Connection, worker: str, child: int | None = None) -> None:
    """A child is dead, or the whole worker stops: nobody uses its places."""
    await conn.execute(sql("limiter/leave_all"), {"worker": worker, "child": child})


async def forget_idle_members(conn: Connection, seconds: float = LIMITER_MEMBER_IDLE_S) -> int:
    """Members that nobody used for so long, and places of nobody; how many members."""
    await conn.execute(sql("limiter/forget_holds"))
    return (await conn.execute(sql("limiter/forget_members"), {"idle": seconds})).rowcount


async def record_throttle(
    conn: Connection, name: str, key: str, *, after: float, age: float, times: int
) -> ThrottleResult | None:
    """Whoever is called refused a call that began ``age`` seconds ago, for ``after`` seconds."""
    params = {"name": name, "key": key, "after": after, "age": age, "times": times}
    async with conn.cursor(row_factory=class_row(ThrottleResult)) as cursor:
        await cursor.execute(sql("limiter/refuse"), params)
        return await cursor.fetchone()


async def declare_limiters(conn: Connection, declared: Iterable[Limiter]) -> None:
    """They are as they are declared now, and their members too."""
    for limiter in sorted(declared, key=lambda limiter: limiter.name):
        await conn.execute(
            sql("limiter/declare"), _build_limiter_columns(limiter) | {"declared": Jsonb(limiter.declaration)}
        )
        await conn.execute(sql("limiter/follow"), {"name": limiter.name})


async def add_limiter_member(conn: Connection, name: str, key: str) -> bool:
    """Whether it is there now: not if there are too many already."""
    params = {"name": name, "key": key, "rest": SHARED_MEMBER_KEY, "most": MAX_LIMITER_MEMBERS}
    await conn.execute(sql("limiter/add_member"), params)
    cursor = await conn.execute(sql("limiter/has"), {"name": name, "key": key})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def list_limiters(conn: Connection, name: str | None = None) -> list[dict[str, Any]]:
    """Every limiter, or one: what it may and gave, and what it is at."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("limiter/list"), {"name": name})
        return await cursor.fetchall()


async def update_limiter(conn: Connection, name: str, changes: Mapping[str, Any]) -> Limiter | None:
    """It is as it was, but for these; None if there is none."""
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
    """Lift a block; how many rows were blocked."""
    return (await conn.execute(sql("limiter/unblock"), {"name": name, "key": key})).rowcount


def _build_limiter_columns(limiter: Limiter) -> dict[str, Any]:
    names = ("name", "rate", "burst", "concurrency", "adaptive", "lowest")
    derived = {"pace": limiter.permits_per_s, "depth": limiter.bucket_depth, "slack": limiter.slack_s}
    return {name: getattr(limiter, name) for name in names} | derived
