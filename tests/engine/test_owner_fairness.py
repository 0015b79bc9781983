"""Long batches of one owner do not delay the jobs of other owners, although they use all lanes and slots."""

import asyncio
from uuid import UUID, uuid4

import pytest

from support import Workers, add_job, assert_sound, closed, eventually, job_of, rows
from tidemill import Item, Mill
from tidemill.app.runtime_factory import make_engine_context
from tidemill.config import Settings
from tidemill.core.input_source import SourceReference
from tidemill.engine.children.shared_state import SharedState
from tidemill.engine.lane import FairClaimer
from tidemill.files.blobs import open_blob_store
from tidemill.jobs.submission import submit_job
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission

HOSTILE, OTHER = 1, 2
OTHER_WAITS_MAX_S = 20.0  # a batch of the hostile owner takes longer
APP = """
    @mill.handler("slow", concurrency=4)
    async def slow(item):
        await asyncio.sleep(250)

    @mill.handler("steady", concurrency=4)
    async def steady(item):
        await asyncio.sleep(0.05)

    @mill.handler("quick")
    async def quick(item):
        pass
"""


async def is_started(db: Database, batches: int) -> bool:
    [(leased,)] = await rows(db, "SELECT count(*) FROM tidemill.batch WHERE state = 'leased'")
    return bool(leased >= batches)


async def test_owner_with_batches_in_all_lanes_does_not_delay_other_owner(db: Database, workers: Workers) -> None:
    workers.app(APP)
    workers.start(stop_grace_ms=0)
    hostile = [await add_job(db, 8, "slow", owner_id=HOSTILE) for _ in range(4)]
    await eventually(lambda: is_started(db, 2))
    other = [await add_job(db, 20, "quick", owner_id=OTHER) for _ in range(3)]
    for job_id in other:
        assert (await closed(db, job_id, OTHER_WAITS_MAX_S)).status == "completed"
    for job_id in hostile:
        assert not (await job_of(db, job_id)).is_closed
    await assert_sound(db)


async def test_owner_with_items_in_all_slots_of_a_kind_does_not_delay_other_owner(
    db: Database, workers: Workers
) -> None:
    workers.app(APP)
    workers.start(worker_target_slice_ms=120_000)  # the batches of the hostile owner take more than a minute
    hostile = await add_job(db, 10_000, "steady", owner_id=HOSTILE)

    async def has_long_batches() -> bool:
        found = await rows(db, "SELECT open FROM tidemill.batch WHERE state = 'leased'")
        return len(found) >= 2 and min(size for (size,) in found) > 500

    await eventually(has_long_batches)
    other = await add_job(db, 1, "steady", owner_id=OTHER)
    assert (await closed(db, other, OTHER_WAITS_MAX_S)).status == "completed"
    assert not (await job_of(db, hostile)).is_closed


def write_source(settings: Settings, rows_count: int) -> SourceReference:
    lines = (b'{"n": %d}\n' % n for n in range(rows_count))
    blob = open_blob_store(settings.blobs).put(lines)
    return SourceReference(blob=blob.id, format="ndjson")


async def test_long_file_of_one_owner_does_not_delay_file_of_other_owner(
    db: Database, workers: Workers, settings: Settings
) -> None:
    workers.app(APP)
    workers.start(ingest_max_rows=64)  # so that reading the long file takes long
    long_source, short_source = write_source(settings, 500_000), write_source(settings, 10)
    long = await add_source_job(db, long_source, HOSTILE)

    async def is_reading() -> bool:
        return bool((await job_of(db, long)).counts.total)

    await eventually(is_reading)
    short = await add_source_job(db, short_source, OTHER)
    assert (await closed(db, short, OTHER_WAITS_MAX_S)).counts.done == 10
    assert not (await job_of(db, long)).ingest_complete


async def add_source_job(db: Database, source: SourceReference, owner_id: int) -> UUID:
    return (await submit_job(db, Submission("quick", owner_id=owner_id, source=source)))[0]


@pytest.fixture
def claimer(db: Database, mill: Mill, settings: Settings) -> FairClaimer:
    @mill.handler("test")
    async def handle(item: Item) -> None: ...

    book = SharedState.create(1)
    book.close()
    context = make_engine_context(db, settings, mill.registry, worker="w1", shared_state=book)
    return FairClaimer(context, max_lanes_per_owner=2)


async def owner_claimed(claimer: FairClaimer, lane: object) -> int | None:
    lease = await claimer.claim(uuid4(), lane)
    return None if lease is None else lease.owner_id


async def test_last_lane_is_left_to_owner_without_batches_in_the_others(db: Database, claimer: FairClaimer) -> None:
    await add_job(db, 10, batch_size=1, owner_id=HOSTILE)
    assert [await owner_claimed(claimer, lane) for lane in "abc"] == [HOSTILE, HOSTILE, None]
    await add_job(db, 10, batch_size=1, owner_id=OTHER)
    claimer.invalidate_job_cache()
    assert await owner_claimed(claimer, "c") == OTHER
    claimer.invalidate_job_cache()
    assert await owner_claimed(claimer, "a") in (HOSTILE, OTHER), "a lane that has ended its batch takes the next one"


async def test_hint_is_kept_for_lanes_of_its_owner(db: Database, claimer: FairClaimer) -> None:
    job_id: UUID = await add_job(db, 10, batch_size=1, owner_id=HOSTILE)
    claimer.prefer_hinted_job(job_id)
    assert [await owner_claimed(claimer, lane) for lane in "abc"] == [HOSTILE, HOSTILE, None]
    assert job_id in claimer._hinted_batches


async def test_concurrent_claims_of_lanes_do_not_exceed_the_lanes_of_one_owner(
    db: Database, claimer: FairClaimer
) -> None:
    await add_job(db, 10, batch_size=1, owner_id=HOSTILE)
    owners = await asyncio.gather(*(owner_claimed(claimer, lane) for lane in "abc"))
    assert sorted(owners, key=str) == [HOSTILE, HOSTILE, None]
