"""Lists of jobs: filters combine, pages are complete, and jobs of other users stay hidden."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from jobs.list_scenes import walk
from store.scenes import fail_some
from support import FAILED, RETRY, add_job, close_job_as, closed, job_of, rows, settle, shift_clock, take, verdict
from tidemill.core.errors import InvalidInput, UnknownJob, escape_unprintable
from tidemill.core.status import Intent, JobStatus
from tidemill.jobs import job_control, queries
from tidemill.store import job_lifecycle
from tidemill.store.database import Database
from tidemill.store.reprocess_items import ReprocessSelection, reprocess_items
from tidemill.telemetry.events import subscribe


async def listed(db: Database, limit: int = 3, **asked: Any) -> list[UUID]:
    found = await walk(lambda after: queries.list_jobs(db, limit=limit, after=after, **asked), limit)
    return [job.id for job in found]


async def test_job_list_is_newest_first_over_all_pages(db: Database) -> None:
    jobs = [await add_job(db, 1, owner_id=n % 2) for n in range(9)]
    jobs.sort(reverse=True)  # jobs of the same millisecond have no defined order
    owners = {job_id: (await job_of(db, job_id)).owner_id for job_id in jobs}
    for limit in (1, 2, 3, 4, 9, 10):
        assert await listed(db, limit) == jobs
        assert await listed(db, limit, owner_id=1) == [job_id for job_id in jobs if owners[job_id] == 1]


async def jobs_of_every_status(db: Database) -> dict[JobStatus, UUID]:
    found = {JobStatus.PENDING: await add_job(db, 20, batch_size=10)}
    for status in (JobStatus.RUNNING, JobStatus.PAUSED, JobStatus.CANCELLING, JobStatus.INGESTING):
        found[status] = await add_job(db, 20, batch_size=10)
        await take(db, found[status])
    await job_control.pause_job(db, found[JobStatus.PAUSED])
    await job_control.cancel_job(db, found[JobStatus.CANCELLING])
    await rows(db, "UPDATE tidemill.job SET ingest_done = false WHERE id = %s", found[JobStatus.INGESTING])
    for status in (JobStatus.COMPLETED, JobStatus.COMPLETED_WITH_ERRORS, JobStatus.CANCELLED, JobStatus.FAILED):
        found[status] = await add_job(db, 5)
    await settle(db, await take(db, found[JobStatus.COMPLETED]))
    await fail_some(db, found[JobStatus.COMPLETED_WITH_ERRORS], [2])
    await settle(db, await take(db, found[JobStatus.FAILED]))
    await db.run(job_lifecycle.fail_job, found[JobStatus.FAILED], "its source is gone")
    for status in (JobStatus.COMPLETED, JobStatus.COMPLETED_WITH_ERRORS, JobStatus.FAILED):
        await db.run(close_job_as, found[status])
    await job_control.cancel_job(db, found[JobStatus.CANCELLED])
    return found


async def test_job_list_filters_by_displayed_status(db: Database) -> None:
    jobs = await jobs_of_every_status(db)
    assert jobs.keys() == set(JobStatus)
    for status, job_id in jobs.items():
        assert (await job_of(db, job_id)).status is status
        assert await listed(db, statuses=[status]) == [job_id], status
    some = [JobStatus.PENDING, JobStatus.FAILED, JobStatus.INGESTING]
    assert set(await listed(db, 1, statuses=some)) == {jobs[status] for status in some}
    assert len(await listed(db, statuses=list(JobStatus))) == 9
    assert await listed(db, statuses=[JobStatus.PAUSED], kind="other") == []


async def test_job_list_filters_by_kind_and_creation_time(db: Database) -> None:
    old = await add_job(db, 1, kind="a")
    await shift_clock(db, "40 days")
    await rows(db, "SELECT tidemill.ensure_partition(tidemill.now())")
    new, other = await add_job(db, 1, kind="a"), await add_job(db, 1, kind="b")
    at = (await job_of(db, new)).created_at
    assert at is not None
    assert await listed(db, kind="a") == [new, old]
    assert await listed(db, created_from=at, kind="a") == [new]
    assert await listed(db, created_to=at) == [old]
    assert await listed(db, created_from=at - timedelta(days=50), created_to=at) == [old]
    assert set(await listed(db, created_from=at)) == {new, other}
    assert await listed(db, created_from=at + timedelta(days=1)) == []
    with pytest.raises(InvalidInput, match="The timestamp has no time zone"):
        await listed(db, created_from=at.replace(tzinfo=None))


async def test_job_list_finds_jobs_by_key_or_id_prefix(db: Database) -> None:
    jobs = {job.id: job.key for job in [await job_of(db, await add_job(db, 1)) for _ in range(4)]}
    for job_id, key in jobs.items():
        assert await listed(db, q=key.lower()) == [job_id]
        assert await listed(db, q=str(job_id)) == [job_id]
        assert job_id in await listed(db, q=key[:12])
        assert job_id in await listed(db, q=str(job_id)[:6])
    for nothing in ("J19990101", "K", "%", "", "ffff", "'"):
        assert await listed(db, q=nothing) == []
    with pytest.raises(InvalidInput, match="contains a NUL character or an unpaired surrogate"):
        await listed(db, q="\x00")


async def add_named_job(db: Database, name: str, **options: Any) -> UUID:
    job_id = await add_job(db, 1, **options)
    await rows(db, "UPDATE tidemill.job SET source = jsonb_build_object('name', %s::text) WHERE id = %s", name, job_id)
    return job_id


async def test_job_search_matches_part_of_file_name_key_or_target_in_any_case(db: Database) -> None:
    orders = await add_named_job(db, "Orders-2026.CSV")
    feed = await add_named_job(db, "feed.xlsx", owner_id=1)
    into_shop = await add_job(db, 1, params={"plan": {"resource": {"name": "Shop.Product"}}})
    prices = await add_job(db, 1, params={"dataset": "prices"})
    assert await listed(db, search="orders") == [orders]
    assert await listed(db, search=" 2026.csv ") == [orders]
    assert await listed(db, search="FEED") == [feed]
    assert await listed(db, search="feed", owner_id=1) == [feed]
    assert await listed(db, search="feed", owner_id=2) == []
    assert await listed(db, search="shop.prod") == [into_shop]
    assert await listed(db, search="prices", kind="test") == [prices]
    assert await listed(db, search="prices", kind="other") == []
    key = (await job_of(db, feed)).key
    for text in (key, key.lower(), key[-6:], str(feed), str(feed).upper()):
        assert await listed(db, search=text) == [feed], text
    assert len(await listed(db, search=key[:9])) == 4
    assert await listed(db, search="J19990101") == []


async def test_job_search_takes_wildcards_literally(db: Database) -> None:
    percent, underscore = await add_named_job(db, "100% sure.csv"), await add_named_job(db, "a_b.csv")
    await add_named_job(db, "axb.csv")
    assert await listed(db, search="%") == [percent]
    assert await listed(db, search="0% S") == [percent]
    assert await listed(db, search="a_b") == [underscore]
    assert await listed(db, search="\\") == []
    assert await listed(db, search="'; --") == []


async def test_job_search_among_100000_jobs_reads_bounded_pages(db: Database) -> None:
    oldest = await add_named_job(db, "needle.csv", owner_id=1)
    await rows(
        db,
        "INSERT INTO tidemill.job (owner_id, kind, source, ingest_done, closed_as, closed_at)"
        " SELECT 1, 'test', jsonb_build_object('name', 'file ' || n || '.csv'), true, 'completed', tidemill.now()"
        " FROM generate_series(1, 100000) n",
    )
    pages, after = [], None
    while True:
        page = await queries.list_jobs(db, owner_id=1, search="needle", after=after)
        pages.append([job.id for job in page.items])
        if (after := page.after) is None:
            break
    assert pages == [[], [], [], [], [oldest]]


async def test_job_duration_excludes_time_in_queue_and_time_closed(db: Database) -> None:
    job_id = await add_job(db, 2)
    assert (await job_of(db, job_id)).started_at is None
    await shift_clock(db, "30 minutes")
    lease = await take(db, job_id)
    started = (await job_of(db, job_id)).started_at
    assert started is not None
    await shift_clock(db, "30 minutes 10 seconds")
    await settle(db, lease, [verdict(0), verdict(1, FAILED)])
    await db.run(close_job_as, job_id)
    assert (await job_of(db, job_id)).started_at == started, "folding its batches keeps the start"
    assert (await job_of(db, job_id)).duration_s == pytest.approx(10, abs=5)

    await shift_clock(db, "2 hours")
    await db.run(reprocess_items, job_id, ReprocessSelection())
    assert (await job_of(db, job_id)).duration_s is None
    await settle(db, await take(db, job_id))
    await db.run(close_job_as, job_id)
    job = await job_of(db, job_id)
    assert job.started_at == started
    assert job.idle_s == pytest.approx(5_390, abs=5)
    assert job.duration_s == pytest.approx(10, abs=5)


async def test_job_list_finds_rare_kind_within_page_budget(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.store.job_records.PAGE_BATCH_BUDGET", 4)
    rare = [await add_job(db, 1, kind="rare", owner_id=1) for _ in range(2)]
    for _ in range(10):
        await add_job(db, 1, owner_id=1)
    rare.append(await add_job(db, 1, kind="rare", owner_id=1))
    for owner in (1, None):
        page = await queries.list_jobs(db, kind="rare", owner_id=owner, limit=2)
        assert [job.id for job in page.items] == [rare[2]]
        assert page.after is not None
        assert await listed(db, 2, kind="rare", owner_id=owner) == sorted(rare, reverse=True)
    assert len(await queries.list_newest_jobs(db, 3, statuses=[JobStatus.PENDING])) == 3


async def test_job_cursor_is_rejected_with_other_filters(db: Database) -> None:
    for _ in range(3):
        await add_job(db, 1, owner_id=1)
    page = await queries.list_jobs(db, owner_id=1, limit=1)
    others: list[dict[str, Any]] = [{}, {"owner_id": 2}, {"owner_id": 1, "kind": "x"}, {"owner_id": 1, "q": "0"}]
    for asked in others:
        with pytest.raises(InvalidInput, match="does not belong to this list"):
            await queries.list_jobs(db, limit=1, after=page.after, **asked)


async def test_find_job_reports_foreign_job_like_unknown_job(db: Database) -> None:
    mine, foreign = (
        await job_of(db, await add_job(db, 1, owner_id=1)),
        await job_of(db, await add_job(db, 1, owner_id=2)),
    )
    assert (await queries.get_job_by_reference(db, str(mine.id), 1)).id == mine.id
    assert (await queries.get_job_by_reference(db, mine.key.lower(), 1)).id == mine.id
    assert (
        await queries.get_job_by_reference(db, str(mine.id)[:8], 1)
    ).id == mine.id  # matches two jobs, but one of them is not visible
    for text in (str(foreign.id), foreign.key, str(foreign.id)[:13], str(uuid4()), "J1", "x", "", "\x00", "\ud800"):
        with pytest.raises(UnknownJob) as caught:
            await queries.get_job_by_reference(db, text, 1)
        assert str(caught.value) == f'Unknown job "{escape_unprintable(text)}"'
    with pytest.raises(UnknownJob, match="More than one job ID starts with"):
        await queries.get_job_by_reference(db, str(mine.id)[:6])


async def test_job_shows_request_policy_and_source_metadata(db: Database) -> None:
    job_id = await add_job(
        db,
        10,
        owner_id=3,
        policy={"mode": "fail_fast"},
        request_id="req-1",
        traceparent="00-1-2-01",
        ip_address="192.0.2.7",
    )
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(seq, RETRY, delay=60) for seq in range(4)])
    await rows(
        db,
        """UPDATE tidemill.job SET result_columns = '{price,name}', source = '{"format": "csv", "blob": "secret"}',"""
        " file_id = 'f1', purged_at = closed_at",
    )
    job = await job_of(db, job_id)
    assert (job.policy, job.request_id, job.traceparent) == ({"mode": "fail_fast"}, "req-1", "00-1-2-01")
    assert (job.ip_address, job.file_id, job.source) == ("192.0.2.7", "f1", "csv")
    assert (job.result_columns, job.intent, job.retried, job.purged_at) == (("price", "name"), Intent.RUN, 4, None)
    assert (await queries.list_jobs(db, limit=1)).items == [job]


async def test_job_list_shows_same_counts_and_codes_as_get_job(db: Database) -> None:
    first, second = await add_job(db, 30, batch_size=10), await add_job(db, 30, batch_size=10)
    await fail_some(db, first, [1, 2], wanted=10)
    await settle(db, await take(db, second), [verdict(seq, FAILED) for seq in range(10)])
    await settle(db, await take(db, second))
    found = {job.id: job for job in (await queries.list_jobs(db, limit=5)).items}
    for job_id in (first, second):
        assert found[job_id] == await job_of(db, job_id)
    assert found[second].codes == {"test": 10}
    assert found[second].counts.is_consistent


async def test_page_listed_event_reports_row_count_and_bounds(db: Database) -> None:
    jobs = sorted([await add_job(db, 4) for _ in range(3)], reverse=True)
    heard: list[dict[str, Any]] = []
    stop = subscribe(lambda event: heard.append(dict(event.fields)) if event.name == "page.listed" else None)
    try:
        await queries.list_jobs(db, limit=2)
        page = await queries.list_items(db, jobs[0], limit=3)
        await queries.list_dead_letters(db, limit=3)
    finally:
        stop()
    assert [(said["list"], said["rows"]) for said in heard] == [("jobs", 2), ("items", 3), ("dead_letters", 0)]
    assert (heard[0]["first"], heard[0]["last"]) == (str(jobs[0]), str(jobs[1]))
    assert heard[1]["last"] == f"{page.items[2]['updated_at'].isoformat()}|{jobs[0]}:2"
    assert (heard[2]["first"], heard[2]["last"]) == (None, None)
    assert all(said["ms"] > 0 for said in heard)


async def test_job_list_order_is_unchanged_when_job_closes(db: Database) -> None:
    jobs = [await add_job(db, 1) for _ in range(2)]
    await settle(db, await take(db, jobs[0]))
    await db.run(close_job_as, jobs[0])
    assert (await closed(db, jobs[0])).status is JobStatus.COMPLETED
    assert sorted(await listed(db), reverse=True) == await listed(db)
