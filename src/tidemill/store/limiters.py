"""Limiters: one row each, changed by one statement at a time, by the database's clock."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb

from tidemill.domain.limits import Limiter
from tidemill.store.database import Connection, one_statement, relaxed
from tidemill.store.statements import sql

MOST_MEMBERS = 10_000  # of a limiter; those beyond share one
IDLE_S = 600.0  # a member that was not used for so long is forgotten
REST = "*"  # the member that they share


@dataclass(frozen=True, slots=True)
class Asking:
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
class Answer:
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
class Refusal:
    blocked: float
    share: float
    cuts: bool


@one_statement
async def take(conn: Connection, asking: Asking) -> tuple[float, Answer | None]:
    """When it was asked, by our own clock, and permits, or when to come again.

    None when there is no such limiter, or no such member of it yet.
    """
    params = {name: getattr(asking, name) for name in asking.__slots__}
    async with conn.cursor(row_factory=class_row(Answer)) as cursor:
        asked = time.monotonic()  # not before: who waits for a connection has not asked yet
        await cursor.execute(sql("limiter/take"), params)
        return asked, await cursor.fetchone()


async def give_back(conn: Connection, name: str, key: str, starts: Sequence[float], slack: float) -> None:
    await conn.execute(sql("limiter/give_back"), {"name": name, "key": key, "starts": list(starts), "slack": slack})


@relaxed
async def leave(conn: Connection, name: str, key: str, worker: str, child: int, held: int, member: str = "") -> None:
    """So many places are left to a process."""
    params = {"name": name, "key": key, "worker": worker, "child": child, "held": held, "member": member}
    await conn.execute(sql("limiter/leave"), params)


@relaxed
async def renew(conn: Connection, worker: str, children: Sequence[int], seconds: float) -> None:
    """The places of a worker's living children stay theirs for so long."""
    params = {"worker": worker, "children": list(children), "seconds": seconds}
    await conn.execute(sql("limiter/renew"), params)


async def leave_all(conn: Connection, worker: str, child: int | None = None) -> None:
    """A child is dead, or the whole worker stops: nobody uses its places."""
    await conn.execute(sql("limiter/leave_all"), {"worker": worker, "child": child})


async def forget_idle(conn: Connection, seconds: float = IDLE_S) -> int:
    """Members that nobody used for so long, and places of nobody; how many members."""
    await conn.execute(sql("limiter/forget_holds"))
    return (await conn.execute(sql("limiter/forget_members"), {"idle": seconds})).rowcount


async def refuse(conn: Connection, name: str, key: str, *, after: float, age: float, times: int) -> Refusal | None:
    """Whoever is called refused a call that began ``age`` seconds ago, for ``after`` seconds."""
    params = {"name": name, "key": key, "after": after, "age": age, "times": times}
    async with conn.cursor(row_factory=class_row(Refusal)) as cursor:
        await cursor.execute(sql("limiter/refuse"), params)
        return await cursor.fetchone()


async def declare(conn: Connection, declared: Iterable[Limiter]) -> None:
    """They are as they are declared now, and their members too."""
    for limiter in sorted(declared, key=lambda limiter: limiter.name):
        await conn.execute(sql("limiter/declare"), _columns(limiter) | {"declared": Jsonb(limiter.declared)})
        await conn.execute(sql("limiter/follow"), {"name": limiter.name})


async def add_member(conn: Connection, name: str, key: str) -> bool:
    """Whether it is there now: not if there are too many already."""
    params = {"name": name, "key": key, "rest": REST, "most": MOST_MEMBERS}
    await conn.execute(sql("limiter/add_member"), params)
    cursor = await conn.execute(sql("limiter/has"), {"name": name, "key": key})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


@one_statement
async def list_limiters(conn: Connection, name: str | None = None) -> list[dict[str, Any]]:
    """Every limiter, or one: what it may and gave, and what it is at."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("limiter/list"), {"name": name})
        return await cursor.fetchall()


async def change(conn: Connection, name: str, changes: Mapping[str, Any]) -> Limiter | None:
    """It is as it was, but for these; None if there is none."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("limiter/get"), {"name": name})
        row = await cursor.fetchone()
    if row is None:
        return None
    limiter = Limiter(name, **{**row, **changes})
    await conn.execute(sql("limiter/change"), _columns(limiter))
    await conn.execute(sql("limiter/follow"), {"name": name})
    return limiter


async def unblock(conn: Connection, name: str, key: str | None = None) -> int:
    """Lift a block; how many rows were blocked."""
    return (await conn.execute(sql("limiter/unblock"), {"name": name, "key": key})).rowcount


def _columns(limiter: Limiter) -> dict[str, Any]:
    names = ("name", "rate", "burst", "concurrency", "adaptive", "lowest", "pace", "depth")
    return {name: getattr(limiter, name) for name in names} | {"slack": limiter.slack_s}
