"""Helpers of tests: jobs, leases, waits, invariants and worker processes."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID, uuid4

import psutil
import pytest
from psycopg import AsyncConnection

from support.forks import FORKER_NAME, MAIN, Forked
from tidemill.config import Settings
from tidemill.core.batch import Lease
from tidemill.core.decide import Verdict
from tidemill.core.job import Job
from tidemill.core.status import ItemStatus, JobStatus
from tidemill.store import batch_leases, job_lifecycle, job_records
from tidemill.store.database import Connection, Database
from tidemill.store.doctor import check_invariants
from tidemill.store.job_submission import Submission, build_submission_steps, run_steps_async
from tidemill.store.outcome_flush import FlushResult, flush_outcomes

T = TypeVar("T")
CONDITION_TIMEOUT_S = 60.0
EXIT_TIMEOUT_S = 30.0  # a killed process on a busy machine
DONE, FAILED, RETRY = ItemStatus.DONE, ItemStatus.FAILED, ItemStatus.RETRY_WAIT


def require(program: str, path: str | None = None) -> str:
    """Return the path of a program. If it is missing, skip the test; fail it under CI, which installs the program."""
    if found := path or shutil.which(program):
        return found
    reason = f"NOT RUN: {program} is missing. Run `make test-services`."
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


async def eventually(look: Callable[[], Awaitable[T]], within: float = CONDITION_TIMEOUT_S) -> T:
    """Call ``look`` every 20 ms until it returns a true value, and return that. Fail the test after ``within`` s."""
    deadline = time.monotonic() + within
    while not (seen := await look()):
        assert time.monotonic() < deadline, f"no result after {within} s"
        await asyncio.sleep(0.02)
    return seen


async def until(event: asyncio.Event, within: float = CONDITION_TIMEOUT_S) -> None:
    """Wait until the event is set. Fail the test after ``within`` s."""
    await asyncio.wait_for(event.wait(), within)


async def close_job_as(conn: Connection, job_id: UUID) -> JobStatus | None:
    """Close a job that has no open work. Return its final status, or None if it stays open."""
    job = await job_lifecycle.close_job_if_drained(conn, job_id)
    return None if job is None else job.status


async def add_job(db: Database, n: int, kind: str = "test", **options: Any) -> UUID:
    """Submit a job with n small inputs, and return its id."""
    return await add_rows(db, (b'{"n": %d}' % i for i in range(n)), kind, **options)


async def add_rows(db: Database, rows: Iterable[bytes], kind: str = "test", **options: Any) -> UUID:
    async with db.transaction(bounded=False) as conn:
        return (await run_steps_async(conn, build_submission_steps(Submission(kind, **options), rows)))[0]


async def take(db: Database, job_id: UUID, wanted: int = 1_000, worker: str = "w1", lease: float = 30.0) -> Lease:
    """Claim a batch. Fail the test if no batch can be claimed."""
    got = await try_take(db, job_id, wanted, worker, lease)
    assert got is not None, "nothing to claim"
    return got


async def try_take(
    db: Database, job_id: UUID, wanted: int = 1_000, worker: str = "w1", lease: float = 30.0
) -> Lease | None:
    return await db.run_async_commit(
        batch_leases.claim_batch,
        batch_leases.BatchClaim(job_id, uuid4(), worker, item_count=wanted, lease_seconds=lease),
    )


def verdict(seq: int, status: ItemStatus = DONE, *, attempts: int = 1, delay: float | None = None) -> Verdict:
    failing = status in (FAILED, RETRY)
    error = b'{"code": "test", "reason": "because", "retryable": true}' if failing else None
    code = "test" if failing else None
    return Verdict(seq, status, attempts, 1, b'{"ok": true}' if status is DONE else None, None, error, code, delay)


async def settle(db: Database, lease: Lease, verdicts: Iterable[Verdict] | None = None) -> FlushResult:
    """Flush the verdicts; by default, every item of the lease is done."""
    if verdicts is None:
        verdicts = [verdict(seq) for seq in lease.seqs or range(lease.lo, lease.hi)]
    return await db.run(flush_outcomes, lease, list(verdicts), lease_s=30.0)


async def reclaim_without_pauses(db: Database) -> list[tuple[int, UUID, int]]:
    """Reclaim expired leases. Isolated items are due at once, without their random pause."""
    reclaimed = await db.run(batch_leases.reclaim_expired_leases)
    await rows(db, "UPDATE tidemill.batch SET not_before = since WHERE state = 'ready' AND expiries > 0")
    return reclaimed


async def job_of(db: Database, job_id: UUID) -> Job:
    return await db.read(job_records.get_job, job_id)


async def closed(db: Database, job_id: UUID, within: float = CONDITION_TIMEOUT_S) -> Job:
    """Wait until the job is closed, and return it."""

    async def look() -> Job | None:
        job = await job_of(db, job_id)
        return job if job.is_closed else None

    found = await eventually(look, within)
    assert found is not None
    return found


async def assert_sound(db: Database, job_id: UUID | None = None) -> None:
    """Assert that all invariants of the engine hold, in all jobs or in one."""
    async with db.transaction() as conn:
        await conn.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", prepare=False)
        broken = [finding for finding in await check_invariants(conn, job_id) if not finding.ok]
    assert not broken, "\n".join(f"{finding.name}: {finding.details}" for finding in broken)


async def fates(db: Database, job_id: UUID) -> dict[tuple[str, str | None, int], int]:
    """Return the number of items by (status, error code, attempts)."""
    query = "SELECT status, error->>'code', attempts, count(*) FROM tidemill.outcome WHERE job_id = %s GROUP BY 1, 2, 3"
    return {(status, code, attempts): n for status, code, attempts, n in await rows(db, query, job_id)}


async def rows(db: Database, query: str, *params: Any) -> list[tuple[Any, ...]]:
    """Run an SQL statement, and return its rows."""
    async with db.connection() as conn:
        cursor = await conn.execute(query.encode(), params, prepare=False)
        return await cursor.fetchall() if cursor.description else []


async def file_of(db: Database, export_id: UUID) -> str:
    """Return the name of an export's file in the blob store."""
    [(name,)] = await rows(db, "SELECT result->>'file_id' FROM tidemill.outcome WHERE job_id = %s", export_id)
    return str(name)


async def shift_clock(db: Database, interval: str) -> None:
    """Shift the database's clock for new connections and for the pool of ``db``.

    The pool sets the new time each time it hands out a connection. Setting it once in all connections would miss one
    that the pool is opening at that moment.
    """
    name = (await rows(db, "SELECT current_database()"))[0][0]
    await rows(db, f"ALTER DATABASE {name} SET tidemill.shift = '{interval}'")

    async def shift(conn: AsyncConnection[Any]) -> None:
        await conn.execute(f"SET tidemill.shift = '{interval}'".encode(), prepare=False)

    db._pool._check = shift


def _said(value: object) -> str:
    """Format the value of a setting for an environment variable."""
    return json.dumps(value, default=str) if isinstance(value, dict | list) else str(value)


class Workers:
    """Worker processes, each in its own process group."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def app(self, source: str, name: str = "app") -> str:
        """Write a module with a mill, and return the reference to it. `mill`, `Item` and the outcomes are available."""
        head = "import asyncio, os, time\nfrom tidemill import *\nmill = Mill()\n"
        (self._folder / f"{name}.py").write_text(head + textwrap.dedent(source))
        return f"{name}:mill"

    def start(
        self, app: str = "app:mill", processes: int = 1, inside: Sequence[str] = (), **settings: object
    ) -> "subprocess.Popen[bytes]":
        """Start a worker. ``inside`` is a command that runs it in another environment, such as a network namespace."""
        argv = [*inside, sys.executable, "-c", MAIN, "worker", app, "--processes", str(processes)]
        process: subprocess.Popen[bytes] = Forked(
            argv, cwd=self._folder, env=self.env(**settings), start_new_session=True
        )
        self._started.append(process)
        return process

    def env(self, **settings: object) -> dict[str, str]:
        ours = self._settings.model_dump(exclude_unset=True) | settings
        env = {f"TIDEMILL_{name.upper()}": _said(value) for name, value in ours.items()}
        return os.environ | env | {"TIDEMILL_LOG_LEVEL": str(settings.get("log_level", "warning"))}

    def children(self, process: "subprocess.Popen[bytes]") -> list[int]:
        """Return the process ids of a worker's children."""
        try:
            return [child.pid for child in psutil.Process(process.pid).children() if child.name() != FORKER_NAME]
        except psutil.NoSuchProcess:
            return []

    def end(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(EXIT_TIMEOUT_S)
