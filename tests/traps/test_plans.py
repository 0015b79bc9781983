"""Plans: what is asked all day looks at the rows it needs, however many there are beside them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest

from support import rows
from tidemill.store.database import Database
from tidemill.store.throwaway import ThrowawayServer
from traps.scenes import big_job, plan, prepared_plan, rows_looked_at, whole_scans

NONE: dict[str, Any] = {}


@dataclass(frozen=True)
class Big:
    """A job of 100,000 items, half of them settled; beside it a paused one with 20,000 ready batches."""

    url: str
    job_id: UUID
    paused: UUID


@pytest.fixture(scope="module")
def big(tidemill_server: ThrowawayServer) -> Iterator[Big]:
    url = tidemill_server.create()

    async def fill() -> Big:
        async with Database(url) as db:
            paused = await big_job(db, 20_000, size=1)
            await rows(db, "UPDATE tidemill.job SET intent = 'pause'")
            job_id = await big_job(db, 100_000, settled=50_000)
            lease = (
                "UPDATE tidemill.batch SET state = 'leased', lease_id = gen_random_uuid(), worker = 'w1',"
                " lease_until = tidemill.now() + interval '1 hour', since = tidemill.now()"
                " WHERE id IN (SELECT id FROM tidemill.batch WHERE job_id = %s ORDER BY id LIMIT 10)"
            )
            await rows(db, lease, job_id)
            await rows(db, "ANALYZE tidemill.batch, tidemill.job")
            return Big(url, job_id, paused)

    yield asyncio.run(fill())
    tidemill_server.drop(url)


@pytest.fixture
async def full(big: Big) -> AsyncIterator[Database]:
    async with Database(big.url) as database:
        yield database


def asked_all_day(job_id: UUID) -> dict[str, dict[str, Any]]:
    """Statements and their values, as the engine gives them."""
    job = {"job_id": job_id}
    part = job | {"lo": 60_000, "hi": 61_000}
    cursor = {"after_since": "-infinity", "after_batch": -1, "after_seq": -1, "limit": 100}
    place = {"after_at": "-infinity", "after_seq": -1, "limit": 100}
    return {
        "batch/peek": job,
        "batch/peek_waiting": job,
        "batch/peek_lists": job | {"batch_id": 1, "retrying": True},
        "batch/by_lease": {"worker": "w1", "lease_id": uuid4()},
        "batch/heartbeat": {"worker": "w1", "lease_ids": [uuid4()], "lease": 30.0},
        "batch/sweep": {"isolate_at": 3},
        "item/read_virgin": part,
        "item/read_unsettled": part,
        "item/read_list": job | {"seqs": list(range(0, 1_000, 10)), "bytes": 8_000_000},
        "item/list_open": job | cursor | {"states": ["ready"], "retrying": False},
        "item/list_cancelled": job | {"after_seq": -1, "limit": 100},
        "item/list_seq": job | {"after_seq": 40_000, "window": 2_000, "status": None, "limit": 100},
        "item/get": job | {"seq": 5},
        "item/first_input": job,
        "item/walk": job | {"lo": 45_000, "hi": 50_000},
        "outcome/walk": job | {"lo": 45_000, "hi": 50_000},
        "batch/live_ranges": job,
        "batch/leased_lists": job,
        "job/learn_columns": job | {"names": ["a"], "most": 256},
        "outcome/list": job | place | {"status": "failed"},
        "job/is_drained": job,
        "job/outlook": job,
        "ingest/lease_of_job": job | {"kinds": ["test"], "lease_id": uuid4(), "lease": 30.0, "worker": "w1"},
        "job/runnable": {"kinds": ["test"]},
    }


async def test_no_statement_of_the_engine_reads_a_big_table_whole(full: Database, big: Big) -> None:
    asked = asked_all_day(big.job_id)
    found = {name: await whole_scans(full, await plan(full, name, params)) for name, params in asked.items()}
    assert {name: tables for name, tables in found.items() if tables} == {}


async def test_prepared_statements_do_not_either(full: Database, big: Big) -> None:
    asked = asked_all_day(big.job_id)
    found = {name: await whole_scans(full, await prepared_plan(full, name, params)) for name, params in asked.items()}
    assert {name: tables for name, tables in found.items() if tables} == {}


@pytest.mark.parametrize(
    ("statement", "most"),
    [
        ("batch/peek", 5),
        ("batch/by_lease", 20),
        ("batch/sweep", 20),
        ("job/is_drained", 5),
        ("job/outlook", 5),
        ("item/read_unsettled", 1_000),
        ("item/read_virgin", 1_000),
        ("item/list_open", 500),
        ("outcome/list", 200),
        ("item/list_seq", 3_000),
        ("item/first_input", 1),
        ("item/walk", 10_000),
        ("outcome/walk", 5_000),
        ("batch/live_ranges", 50),
        ("batch/leased_lists", 0),
        ("job/learn_columns", 1),
    ],
)
async def test_a_statement_looks_at_few_rows(full: Database, big: Big, statement: str, most: int) -> None:
    seen = await rows_looked_at(full, statement, asked_all_day(big.job_id)[statement])
    assert seen.total() <= most, seen


async def test_a_paused_job_costs_a_worker_nothing(full: Database, big: Big) -> None:
    seen = await rows_looked_at(full, "job/runnable", {"kinds": ["test"]})
    assert seen["batch"] <= 20, seen  # the few that are leased, twice
    assert (await rows_looked_at(full, "batch/peek", {"job_id": big.paused}))["batch"] == 0


async def test_jobs_that_are_long_closed_cost_a_worker_nothing(full: Database, big: Big) -> None:
    closed = (
        "INSERT INTO tidemill.job (kind, ingest_done, closed_as, closed_at)"
        " SELECT 'test', true, 'completed', tidemill.now() FROM generate_series(1, 5000)"
    )
    await rows(full, closed)
    await rows(full, "ANALYZE tidemill.job")
    for statement, params in {"job/runnable": {"kinds": ["test"]}, "job/to_police": NONE}.items():
        assert (await rows_looked_at(full, statement, params))["job"] <= 5, statement


async def test_a_deep_page_costs_what_the_first_one_does(full: Database, big: Big) -> None:
    deep = "SELECT since, id, lo FROM tidemill.batch WHERE job_id = %s AND state = 'ready' ORDER BY since DESC LIMIT 1"
    [(since, batch, lo)] = await rows(full, deep, big.job_id)
    cursor = {"after_since": since, "after_batch": batch, "after_seq": lo + 500, "limit": 100}
    asked = {"job_id": big.job_id, "states": ["ready"], "retrying": False} | cursor
    assert (await rows_looked_at(full, "item/list_open", asked)).total() <= 500
    [(at,)] = await rows(full, "SELECT updated_at FROM tidemill.outcome WHERE job_id = %s AND seq = 40000", big.job_id)
    last = {"job_id": big.job_id, "status": "failed", "after_at": at, "after_seq": 40_000, "limit": 100}
    assert (await rows_looked_at(full, "outcome/list", last)).total() <= 300


async def test_the_items_of_a_sparse_job_are_listed_without_walking_its_batches(full: Database, big: Big) -> None:
    await rows(full, "UPDATE tidemill.job SET sparse = true WHERE id = %s", big.paused)
    done = "UPDATE tidemill.batch SET state = 'done', done = open, open = 0 WHERE job_id = %s AND lo < 1000"
    await rows(full, done, big.paused)
    asked = {"job_id": big.paused, "after_seq": -1, "window": 1_000, "status": "done", "limit": 100}
    seen = await rows_looked_at(full, "item/list_seq", asked)
    assert seen["batch"] <= 2_000, seen
