"""Tests that frequent statements read only the rows they need, however large the tables are."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest

from store.scenes import big_job, plan, prepared_plan, rows_looked_at, whole_scans
from support import rows
from tidemill.store.database import Database
from tidemill.testing.throwaway_postgres import ThrowawayServer
from tidemill_bench import big_job as bench_job

NONE: dict[str, Any] = {}
RUNNABLE: dict[str, Any] = {"kinds": ["test"], "hinted": [uuid4()], "missing": []}
NEVER, ALWAYS = "-infinity", "infinity"
HERE = "SELECT since, id, lo FROM tidemill.batch WHERE job_id = %s AND state = %s ORDER BY since DESC, id DESC LIMIT 1"


@dataclass(frozen=True)
class Big:
    """A half-settled job of 100,000 items, a paused job with 20,000 ready batches, and 5,000 closed jobs."""

    url: str
    job_id: UUID
    paused: UUID


@pytest.fixture(scope="module")
def big(tidemill_server: ThrowawayServer) -> Iterator[Big]:
    url = tidemill_server.create_database()

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
            await rows(
                db,
                "INSERT INTO tidemill.job (kind, ingest_done, closed_as, closed_at, owner_id)"
                " SELECT 'test', true, 'completed', tidemill.now(), 1 + n %% 10 FROM generate_series(1, 5000) n",
            )
            await rows(db, "ANALYZE tidemill.batch, tidemill.job")
            return Big(url, job_id, paused)

    yield asyncio.run(fill())
    tidemill_server.drop_database(url)


@pytest.fixture
async def full(big: Big) -> AsyncIterator[Database]:
    async with Database(big.url) as database:
        yield database


def asked_all_day(job_id: UUID) -> dict[str, dict[str, Any]]:
    """Return frequent statements of the engine with their values."""
    job = {"job_id": job_id}
    part = job | {"lo": 60_000, "hi": 61_000}
    return {
        "batch/peek": job,
        "batch/peek_waiting": job,
        "batch/peek_lists": job | {"batch_id": 1, "retrying": True},
        "batch/by_lease": {"worker": "w1", "lease_id": uuid4()},
        "batch/heartbeat": {"worker": "w1", "lease_ids": [uuid4()], "lease": 30.0},
        "batch/sweep": {"isolate_at": 3, "postpone_max_s": 60},
        "item/read_virgin": part,
        "item/read_unsettled": part,
        "item/read_list": job | {"seqs": list(range(0, 1_000, 10)), "bytes": 8_000_000},
        "job/grid": {"id": job_id, "key": None},
        "item/walk": job | {"lo": 45_000, "hi": 50_000},
        "outcome/walk": job | {"lo": 45_000, "hi": 50_000},
        "batch/live_ranges": job,
        "batch/leased_lists": job,
        "job/learn_columns": job | {"names": ["a"], "most": 256},
        "job/is_drained": job,
        "job/outlook": job,
        "ingest/lease_of_job": job
        | {"kinds": ["test"], "lease_id": uuid4(), "lease": 30.0, "worker": "w1", "missing": []},
        "job/runnable": RUNNABLE,
        **looked_at_all_day(job_id),
    }


def looked_at_all_day(job_id: UUID) -> dict[str, dict[str, Any]]:
    """Return statements of lists with their values."""
    job, page = {"job_id": job_id}, {"limit": 101}
    one_job = {"first_job": job_id, "last_job": job_id}
    batches = {"since": NEVER, "batch": -1, "until": ALWAYS, "limit": 102}
    matching = batches | {"budget": 5_000, "statuses": ["pending"], "kind": None}
    letters = {"at": ALWAYS, "job": UUID(int=0), "seq": -1, "from": NEVER, "kind": None, "codes": None, "each": 101}
    letters |= {"category": None, "group": None, "with_patterns": False}
    ids = {"lo": UUID(int=0), "hi": UUID(int=2**128 - 1), "prefix": "", "search": None, "words": None, "kind": None}
    ids |= {"created_from": None, "created_to": None, "budget": 500}
    by_seq = {"sparse": False, "statuses": ["skipped"], "stored": ["skipped"], "among": None, "codes": None}
    everywhere = {"first": 0, "last": 2**40}
    return {
        "worker/unserved_kinds": {"live": ["other"], "limit": 5, "seconds": 60.0},
        "batch/get": {"batch_id": 30_000},
        "batch/list": job | {"before": 10**9} | page,
        "batch/pick_of_job": job | batches | {"states": ["ready", "leased"], "retryings": [False, False]},
        "batch/pick_of_owner": {"owner_id": 0} | matching,
        "batch/pick_of_all": matching,
        "batch/pick_cancelled": job | {"after_seq": -1} | page,
        "item/list_open": {"batches": [20_030, 20_031], "batch": -1, "seq": -1} | one_job | page,
        "item/list_cancelled": {"batches": [20_030, 20_031], "after_seq": -1} | page,
        "batch/cancelled_ranges": job | everywhere,
        "batch/hold_ready": job | everywhere | {"after": 0, "until": 10**9, "retrying": [False, True], "limit": 200},
        "batch/newest_ready": job,
        "item/count_among": job
        | {"seqs": [7, 41_000], "statuses": ["done"], "codes": None, "again": True}
        | {"retryable_only": False},
        "item/keyed": job | {"lo": 40_000, "hi": 42_000, "key": "AB-1*"},
        "item/list_seq": job | {"lo": 40_000, "hi": 42_000} | by_seq | page,
        "item/get": job | {"seq": 5},
        "item_fix/list": job | {"seq": 5},
        "outcome/lock": job | {"seq": 5},
        "outcome/list_exceptions": job | {"at": NEVER, "seq": -1, "statuses": ["failed", "skipped"]} | page,
        "outcome/list_codes": job | {"at": NEVER, "seq": -1, "codes": ["test"], "budget": 500} | page,
        "outcome/owners_of_dead_letters": {"owner_id": -1} | page,
        "outcome/owners_of_dismissed": {"owner_id": -1} | page,
        "outcome/pick_dead_letters_of_owners": letters | {"owners": [0]} | page,
        "outcome/pick_dismissed_of_owners": letters | {"owners": [0]} | page,
        "outcome/pick_dead_letters_of_jobs": {"job_ids": [job_id], "dismissed": False} | letters | page,
        "outcome/count_dismissed": {"owner_id": None, "kind": None, "job_id": None} | page,
        "outcome/describe_dead_letters": {"owner_id": 0, "job_ids": [job_id] * 3, "seqs": [10, 20, 30]},
        "outcome/list_dead_letters": {"job_ids": [job_id] * 3, "seqs": [10, 20, 30]},
        "job/find": {"text": "J1", "lo": UUID(int=1), "hi": UUID(int=2)},
        "job/find_of_owner": {"text": "J1", "lo": UUID(int=1), "hi": UUID(int=2), "owner_id": 3},
        "job/pick_of_owner": ids | {"owner_id": 2} | page,
        "job/pick_of_all": ids | page,
    }


async def test_frequent_statements_use_no_seq_scan_on_big_tables(full: Database, big: Big) -> None:
    asked = asked_all_day(big.job_id)
    found = {name: await whole_scans(full, await plan(full, name, params)) for name, params in asked.items()}
    assert {name: tables for name, tables in found.items() if tables} == {}


async def test_prepared_frequent_statements_use_no_seq_scan_on_big_tables(full: Database, big: Big) -> None:
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
        ("job/grid", 3),
        ("item/walk", 10_000),
        ("outcome/walk", 5_000),
        ("batch/live_ranges", 50),
        ("batch/leased_lists", 0),
        ("job/learn_columns", 1),
        ("batch/get", 1),
        ("batch/list", 101),
        ("batch/pick_of_job", 110),
        ("batch/pick_of_owner", 102),
        ("batch/pick_of_all", 102),
        ("item/list_open", 400),
        ("item/list_seq", 4_100),
        ("item/keyed", 2_100),
        ("item/count_among", 20),
        ("item/get", 10),
        ("outcome/list_exceptions", 210),
        ("outcome/list_codes", 210),
        ("outcome/owners_of_dead_letters", 2),
        ("outcome/pick_dead_letters_of_owners", 210),
        ("outcome/pick_dead_letters_of_jobs", 210),
        ("outcome/list_dead_letters", 9),
        ("job/find_of_owner", 1),
        ("job/pick_of_owner", 501),
        ("job/pick_of_all", 501),
    ],
)
async def test_frequent_statement_reads_bounded_number_of_rows(
    full: Database, big: Big, statement: str, most: int
) -> None:
    seen = await rows_looked_at(full, statement, asked_all_day(big.job_id)[statement])
    assert seen.total() <= most, seen


async def test_statements_on_unanalyzed_job_fetch_items_by_index(db: Database) -> None:
    await big_job(db, 50_000, settled=40_000)
    job_id = await big_job(db, 20_000, settled=10_000, is_known=False)
    await rows(db, "INSERT INTO tidemill.repeat VALUES (%s, 7, 3, 0)", job_id)
    asked = asked_all_day(job_id)
    statements: dict[str, dict[str, Any]] = {
        "repeat/list": {"job_id": job_id, "lo": 0, "hi": 9_999, "seqs": None},
        "item/read_list": {"job_id": job_id, "seqs": list(range(0, 1_000, 10)), "bytes": 1 << 20},
        "outcome/list_exceptions": asked["outcome/list_exceptions"],
        "outcome/list_codes": asked["outcome/list_codes"],
        "outcome/failure_names": {"job_id": job_id, "most": 5},
    }
    for statement, params in statements.items():
        seen = await rows_looked_at(db, statement, params)
        assert seen["item"] <= (1_000 if statement == "outcome/failure_names" else 110), (statement, seen)


async def test_runnable_and_claim_queries_read_no_batches_of_paused_job(full: Database, big: Big) -> None:
    seen = await rows_looked_at(full, "job/runnable", RUNNABLE)
    assert seen["batch"] <= 20, seen  # the few leased batches, twice
    assert (await rows_looked_at(full, "batch/peek", {"job_id": big.paused}))["batch"] == 0


async def test_runnable_and_policy_queries_skip_closed_jobs(full: Database, big: Big) -> None:
    for statement, params in {"job/runnable": RUNNABLE, "job/to_police": NONE}.items():
        assert (await rows_looked_at(full, statement, params))["job"] <= 5, statement


async def test_deep_page_of_open_items_reads_no_more_rows_than_first(full: Database, big: Big) -> None:
    asked = asked_all_day(big.job_id)
    [(since, batch, lo)] = await rows(full, HERE, big.job_id, "ready")
    place = {"since": since, "batch": batch}
    for statement in ("batch/pick_of_job", "batch/pick_of_owner", "batch/pick_of_all"):
        assert (await rows_looked_at(full, statement, asked[statement] | place)).total() <= 102, statement
    one_job = {"first_job": big.job_id, "last_job": big.job_id}
    opened = {"batches": [batch], "batch": batch, "seq": lo + 500, "limit": 101} | one_job
    assert (await rows_looked_at(full, "item/list_open", opened)).total() <= 400


async def test_deep_page_of_failed_items_reads_no_more_rows_than_first(full: Database, big: Big) -> None:
    asked = asked_all_day(big.job_id)
    [(at,)] = await rows(full, "SELECT updated_at FROM tidemill.outcome WHERE job_id = %s AND seq = 40000", big.job_id)
    for statement in ("outcome/list_exceptions", "outcome/list_codes", "outcome/pick_dead_letters_of_jobs"):
        assert (await rows_looked_at(full, statement, asked[statement] | {"at": at, "seq": 40_000})).total() <= 210
    letters = asked["outcome/pick_dead_letters_of_owners"] | {"at": at, "seq": 40_000, "job": big.job_id}
    assert (await rows_looked_at(full, "outcome/pick_dead_letters_of_owners", letters)).total() <= 210


async def test_batch_query_by_state_reads_no_batches_of_other_states(full: Database, big: Big) -> None:
    asked = asked_all_day(big.job_id)["batch/pick_of_job"] | {"job_id": big.paused, "states": ["leased"]}
    assert (await rows_looked_at(full, "batch/pick_of_job", asked | {"retryings": [False]})).total() == 0


async def test_list_query_by_rare_filter_stops_at_scan_budget(full: Database, big: Big) -> None:
    asked = asked_all_day(big.job_id)
    for statement in ("batch/pick_of_owner", "batch/pick_of_all"):
        seen = await rows_looked_at(full, statement, asked[statement] | {"kind": "none", "budget": 300})
        assert seen["batch"] == 301, statement
    for statement in ("job/pick_of_all", "job/pick_of_owner"):
        seen = await rows_looked_at(full, statement, asked[statement] | {"kind": "none", "budget": 50})
        assert seen["job"] == 51, statement
    letters = asked["outcome/pick_dead_letters_of_owners"] | {"codes": ["none"], "each": 300}
    assert (await rows_looked_at(full, "outcome/pick_dead_letters_of_owners", letters))["outcome"] == 300


async def test_get_item_reads_few_rows_of_big_job(full: Database, big: Big) -> None:
    for seq in (49_999, 50_500, 99_999):
        assert (await rows_looked_at(full, "item/get", {"job_id": big.job_id, "seq": seq})).total() <= 10


async def test_item_page_reads_leased_batches_once_not_per_item(db: Database) -> None:
    job_id = await bench_job.create_big_job(db, 0, "test", 20_000)
    asked = asked_all_day(job_id)["item/list_seq"] | {"lo": 0, "hi": 101, "statuses": None, "stored": None}
    # A planner that expects one item, because of outdated statistics, would use a nested loop.
    seen = await rows_looked_at(db, "item/list_seq", asked, "hashjoin", "mergejoin", "material", "seqscan")
    assert seen["batch"] <= 300, seen  # a nested loop reads 599


async def test_item_window_by_rare_status_uses_primary_key_index(db: Database) -> None:
    """An index on status would scan all matching items of the job instead of the window."""
    job_id = await bench_job.create_big_job(db, 0, "test", 20_000)
    await rows(db, "ANALYZE tidemill.outcome")
    rare = {"lo": 10_000, "hi": 20_000, "statuses": ["skipped"], "stored": ["skipped"]}
    way = await plan(db, "item/list_seq", asked_all_day(job_id)["item/list_seq"] | rare)
    assert "job_id_status" not in way
    assert "pkey" in way


async def test_done_items_of_sparse_job_are_listed_without_scanning_batches(full: Database, big: Big) -> None:
    await rows(full, "UPDATE tidemill.job SET sparse = true WHERE id = %s", big.paused)
    done = "UPDATE tidemill.batch SET state = 'done', done = open, open = 0 WHERE job_id = %s AND lo < 1000"
    await rows(full, done, big.paused)
    done_ones = {"lo": 0, "hi": 1_000, "sparse": True, "statuses": ["done"], "stored": ["done"]}
    asked = asked_all_day(big.paused)["item/list_seq"] | done_ones
    seen = await rows_looked_at(full, "item/list_seq", asked)
    assert seen["batch"] <= 20, seen


async def test_job_list_of_small_jobs_reads_no_batches_of_big_job(full: Database) -> None:
    """Statistics sampled from one job with nearly all batches must not be applied to every job."""
    small = await rows(full, "SELECT id FROM tidemill.job WHERE closed_as IS NOT NULL ORDER BY id DESC LIMIT 20")
    seen = await rows_looked_at(full, "job/get_many", {"ids": [job_id for (job_id,) in small]})
    assert seen["batch"] == 0, seen
