"""Who is at work, and what they can do."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb

from tidemill.domain.handler import Handler
from tidemill.store.database import Connection, one_statement
from tidemill.store.statements import sql

SILENCE_S = 60.0  # a worker not heard of for so long adapts to nothing any more


@dataclass(frozen=True, slots=True)
class Worker:
    id: str
    host: str
    pid: int
    started_at: datetime
    seen_at: datetime
    info: dict[str, Any]
    silent_s: float
    in_hand: int


async def register(conn: Connection, worker: str, host: str, pid: int, info: dict[str, Any]) -> None:
    await conn.execute(sql("worker/register"), {"id": worker, "host": host, "pid": pid, "info": Jsonb(info)})


async def remove(conn: Connection, worker: str) -> None:
    await conn.execute(sql("worker/remove"), {"id": worker})


async def forget_silent(conn: Connection) -> None:
    await conn.execute(sql("worker/forget"))


@one_statement
async def list_workers(conn: Connection) -> list[Worker]:
    async with conn.cursor(row_factory=class_row(Worker)) as cursor:
        await cursor.execute(sql("worker/list"))
        return await cursor.fetchall()


@one_statement
async def adaptive_state(conn: Connection, kind: str, *, ingesting: bool = False) -> list[dict[str, Any]]:
    """How each child process that runs a kind adapts: claim size, concurrency, pauses, and what it goes by.

    While a source is read, also those that may do that.
    """
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("worker/adaptive"), {"kind": kind, "silence": SILENCE_S, "ingesting": ingesting})
        found = await cursor.fetchall()
    return [row | (row.pop("kind") or {}) for row in found]


async def register_kinds(conn: Connection, handlers: list[Handler]) -> None:
    for handler in sorted(handlers, key=lambda handler: handler.kind):
        options: dict[str, Any] = {"mode": handler.mode, "concurrency": handler.concurrency, "timeout": handler.timeout}
        options |= {"max_attempts": handler.retry.max_attempts, "limiter": handler.limiter}
        options["max_attempts_not_found"] = handler.retry.max_attempts_not_found
        options["columns"] = list(handler.columns)
        params = {"name": handler.kind, "sparse": handler.sparse, "options": Jsonb(options)}
        await conn.execute(sql("kind/register"), params)


@one_statement
async def kinds(conn: Connection) -> dict[str, dict[str, Any]]:
    """Every kind somebody can run, with its options."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("kind/list"))
        return {row["name"]: row["options"] | {"sparse": row["sparse"]} for row in await cursor.fetchall()}


async def max_attempts(conn: Connection, kind: str) -> int:
    """How often an item of a kind may be tried that fails."""
    cursor = await conn.execute(sql("kind/get"), {"name": kind})
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0]["max_attempts"])


@one_statement
async def at_work(conn: Connection, silent_s: float) -> dict[str, Any]:
    """How many workers were heard of lately, how long the oldest due work has waited, and how many jobs are open."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("worker/at_work"), {"silent": silent_s})
        return await cursor.fetchone() or {}


@one_statement
async def live_kinds(conn: Connection) -> set[str]:
    """Every kind that a worker which was heard of lately runs by itself."""
    cursor = await conn.execute(sql("worker/live_kinds"), {"seconds": SILENCE_S})
    return {kind for kind, on_demand in await cursor.fetchall() if not on_demand}
