"""Stores workers and the kinds that they register."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb

from tidemill.core.kinds import Handler
from tidemill.core.principal import Role
from tidemill.store.database import Connection
from tidemill.store.job_submission import SyncConnection
from tidemill.store.statements import RowDict, fetch_records, fetch_rows, sql

HEALTH_UNSERVED_KINDS_MAX = 5
WORKER_SILENCE_S = 60.0  # the state of a worker without a heartbeat for this long is outdated


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    id: str
    host: str
    pid: int
    started_at: datetime
    seen_at: datetime
    info: Mapping[str, object]  # as the worker reported it
    silent_s: float
    in_hand: int


async def register_worker(conn: Connection, worker: str, host: str, pid: int, info: Mapping[str, object]) -> None:
    await conn.execute(sql("worker/register"), {"id": worker, "host": host, "pid": pid, "info": Jsonb(info)})


async def remove_worker(conn: Connection, worker: str) -> None:
    await conn.execute(sql("worker/remove"), {"id": worker})


async def forget_silent_workers(conn: Connection) -> None:
    await conn.execute(sql("worker/forget"))


async def list_workers(conn: Connection) -> list[WorkerRecord]:
    async with conn.cursor(row_factory=class_row(WorkerRecord)) as cursor:
        await cursor.execute(sql("worker/list"))
        return await cursor.fetchall()


async def read_adaptive_state(conn: Connection, kind: str, *, ingesting: bool = False) -> list[RowDict]:
    """Return the adaptive state of each child process that runs a kind: claim size, concurrency, pauses and signals.

    With ``ingesting``, also of child processes that may ingest the source.
    """
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            sql("worker/adaptive"), {"kind": kind, "silence": WORKER_SILENCE_S, "ingesting": ingesting}
        )
        rows = await cursor.fetchall()
    return [row | (row.pop("kind") or {}) for row in rows]


@dataclass(frozen=True, slots=True)
class KindOptions:
    """What a submission needs to know about a kind."""

    sparse: bool
    limiter: str | None
    roles: tuple[Role, ...] | None = None  # None: the handler declares none


async def register_kinds(conn: Connection, handlers: list[Handler]) -> None:
    for handler in sorted(handlers, key=lambda handler: handler.kind):
        options: dict[str, object] = {
            "mode": handler.mode,
            "concurrency": handler.concurrency,
            "timeout": handler.timeout,
        }
        options |= {"max_attempts": handler.retry.max_attempts, "limiter": handler.limiter}
        options["max_attempts_not_found"] = handler.retry.max_attempts_not_found
        options["columns"] = list(handler.columns)
        options["roles"] = None if handler.roles is None else list(handler.roles)
        params = {"name": handler.kind, "sparse": handler.sparse, "options": Jsonb(options)}
        await conn.execute(sql("kind/register"), params)


async def read_options_by_kind(conn: Connection) -> dict[str, KindOptions]:
    """Return every registered kind with its options."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("kind/list"))
        return _build_options_by_kind(await cursor.fetchall())


def read_options_by_kind_sync(conn: SyncConnection) -> dict[str, KindOptions]:
    """As ``read_options_by_kind``, on a blocking connection."""
    with conn.cursor(row_factory=dict_row) as cursor:
        return _build_options_by_kind(cursor.execute(sql("kind/list")).fetchall())


def _build_options_by_kind(rows: list[RowDict]) -> dict[str, KindOptions]:
    return {row["name"]: KindOptions(row["sparse"], row["limiter"], _parse_roles(row["roles"])) for row in rows}


def _parse_roles(names: list[str] | None) -> tuple[Role, ...] | None:
    return None if names is None else tuple(Role(name) for name in names)


@dataclass(frozen=True, slots=True)
class WorkSummary:
    """Live workers, open jobs, the age of the oldest due work, and the state of the broker and its outbox."""

    workers: int
    open_jobs: int
    queue_age_s: float
    broker: str | None
    outbox: int
    outbox_age_s: float
    quarantined: int
    disconnected: int  # open batches whose transactions lost their connection
    unserved: dict[str, int] = field(default_factory=dict)  # kinds without a live worker, and their open jobs


async def read_work_summary(conn: Connection, silent_s: float) -> WorkSummary:
    (summary,) = await fetch_records(conn, WorkSummary, sql("worker/at_work"), {"silent": silent_s})
    if not summary.open_jobs:
        return summary
    params = {"live": sorted(await list_live_kinds(conn)), "limit": HEALTH_UNSERVED_KINDS_MAX}
    params |= {"seconds": WORKER_SILENCE_S}
    found = await fetch_rows(conn, sql("worker/unserved_kinds"), params)
    return replace(summary, unserved={row["kind"]: row["jobs"] for row in found})


async def list_live_kinds(conn: Connection) -> set[str]:
    """Return every kind that a live worker runs without a kickoff request."""
    cursor = await conn.execute(sql("worker/live_kinds"), {"seconds": WORKER_SILENCE_S})
    return {kind for kind, on_demand in await cursor.fetchall() if not on_demand}
