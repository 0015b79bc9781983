"""A user's module, checked by ``test_user_code.py``. A line that must be an error ends with ``# E:`` and its code."""

import asyncio
import io
from pathlib import Path
from typing import Any, assert_type
from uuid import UUID

import psycopg
from psycopg import AsyncConnection

from tidemill import (
    Done,
    Fail,
    Item,
    ItemRecord,
    ItemStatus,
    Job,
    JobStatus,
    Mill,
    NotFound,
    Outcome,
    Retry,
    Settings,
    Skip,
    TidemillError,
    UnknownKind,
    __version__,
)
from tidemill.testing import drain

assert_type(__version__, str)
mill = Mill(Settings(database_url="postgresql://localhost/shop"))
assert_type(mill.settings, Settings)


@mill.on_start
def connect() -> None: ...


@mill.on_stop
async def disconnect() -> None: ...


@mill.on_start  # E: type-var
def start_with_argument(client: str) -> None: ...


@mill.handler("price", concurrency=5, timeout=None, max_attempts=2, permanent=(KeyError,), columns=["cents"])
async def price(item: Item) -> dict[str, int]:
    assert_type(item.job_id, UUID)
    assert_type(item.attempt, int)
    if item.misses:
        raise NotFound("nothing", again=False)
    return {"cents": 5}


@mill.handler("render", limit="shop", limit_by=lambda item: str(item.input))
def render(item: Item) -> Outcome:
    with mill.limit("shop"):
        return Skip("no") if item.row > 1 else Fail("never", code="mine")


@mill.handler("no.item")  # E: type-var
async def takes_nothing() -> None: ...


@mill.handler("misspelled", concurency=5)  # E: call-arg
async def misspelled(item: Item) -> None: ...


@mill.handler("wrong.type", timeout="5 minutes")  # E: arg-type
async def wrong_type(item: Item) -> None: ...


@mill.batch_handler("stock", sparse=True, limit=None)
async def stock(items: list[Item], conn: AsyncConnection[Any]) -> None:
    await conn.execute("SELECT 1")


@mill.batch_handler("check")
def check(items: list[Item]) -> list[Outcome]:
    return [Done(item.input) for item in items]


@mill.batch_handler("of.one")  # E: type-var
async def takes_one(item: Item) -> None: ...


@mill.batch_handler("sync.transaction")  # E: type-var
def sync_in_transaction(items: list[Item], conn: AsyncConnection[Any]) -> None: ...


@mill.normalizer("digits")
def digits(text: str) -> str:
    return text


mill.limiter("shop", "5/s", burst=10, concurrency=4, lowest="1/s")
mill.limiter("shop", "5/s", burts=10)  # E: call-arg
mill.resource("users", table="public.users", key=["id"], write=["user"], fields={"email": {"required": True}})
mill.resource("users", key=["id"])  # E: call-arg
mill.resource("users", table=["public", "users"])  # E: arg-type


@mill.dataset("prices", fields={"sku": "text"}, columns=("sku", "price"), format="csv")
def prices(input_: dict[str, Any]) -> list[dict[str, Any]]:
    raise Retry("later", after=5)


assert_type(asyncio.run(price(Item(UUID(int=0), 0, None))), dict[str, int])


def submit_all(path: Path, conn: psycopg.Connection[Any]) -> None:
    with mill:
        job_id = mill.submit(
            "price",
            ({"sku": n} for n in range(3)),
            priority=5,
            params={"note": "x"},
            policy={"mode": "tolerate", "max_percent": 5},
            owner_id=1,
            idempotency_key="monday",
            connection=conn,
        )
        assert_type(job_id, UUID)
        assert_type(mill.submit_import(path, "public.users", mode="upsert", key=["email"]), UUID)
        assert_type(mill.submit_import(io.BytesIO(b"a\n1\n"), "users", layout={"format": "csv"}), UUID)
        assert_type(mill.submit_export("users", where=["role=admin"], format="parquet"), UUID)
        assert_type(mill.submit_distribution("prices", [{"sku": "1"}], reuse=False), UUID)
        mill.submit("price", [], priorty=5)  # E: call-arg
        mill.submit("price", [], idem_key="x")  # E: call-arg
        mill.submit("price", [], priority="high")  # E: arg-type
        mill.submit("price", 5)  # E: arg-type
        mill.submit("price", [], policy={"mode": "sometimes"})  # E: arg-type
        mill.submit_import(path, "users", mode="replace")  # E: arg-type
        mill.submit_export("users", format="pdf")  # E: arg-type


def follow(job_id: UUID) -> None:
    job = mill.wait(job_id, timeout=60)
    assert_type(job, Job)
    assert_type(job.status, JobStatus)
    assert_type(job.counts.done, int)
    for item in mill.iter_items(job_id, status="failed"):
        assert_type(item, ItemRecord)
        assert_type(item.status, ItemStatus)
        assert_type(item.row, int)
    for result in mill.iter_results(job_id):
        assert_type(result, Any)
    mill.pause(job_id)
    mill.resume(job_id)
    mill.cancel(job_id)
    assert_type(mill.reprocess(job_id, statuses=["failed"], codes=["timeout"]), int)
    mill.iter_items(job_id, status="broken")  # E: arg-type
    mill.reprocess(job_id, statuses=["pending"])  # E: list-item
    mill.wait("J20261118_000001")  # E: arg-type
    job.status = JobStatus.COMPLETED  # E: misc


async def follow_async(conn: AsyncConnection[Any]) -> None:
    async with mill:
        job_id = await mill.submit_async("price", [1], connection=conn)
        assert_type(await mill.wait_async(job_id, timeout=5), Job)
        async for item in mill.iter_items_async(job_id):
            assert_type(item, ItemRecord)
        async for result in mill.iter_results_async(job_id):
            assert_type(result, Any)
        try:
            assert_type(await mill.reprocess_async(job_id), int)
        except UnknownKind as error:
            raise TidemillError from error
        await drain(mill)
        await mill.submit_async("price", [1], priorty=5)  # E: call-arg
