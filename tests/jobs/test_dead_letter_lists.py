"""Dead letters across jobs: newest first, of one owner or all owners, and their causes."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from jobs.list_scenes import walk
from store.scenes import fail_some, send_round
from support import FAILED, add_job, rows, settle, take
from tidemill.core.decide import Verdict
from tidemill.core.errors import InvalidInput, UnknownJob
from tidemill.jobs import job_control, queries
from tidemill.store import job_lifecycle
from tidemill.store.database import Database
from tidemill.store.reprocess_items import ReprocessSelection


async def letters(db: Database, limit: int = 4, **asked: Any) -> list[tuple[UUID, int]]:
    found = await walk(lambda after: queries.list_dead_letters(db, limit=limit, after=after, **asked), limit)
    assert len({letter["id"] for letter in found}) == len(found)
    return [(letter["job_id"], letter["seq"]) for letter in found]


async def failing_job(db: Database, codes: Sequence[str], **options: Any) -> UUID:
    """Create a job whose items fail, one with each of these codes."""
    job_id = await add_job(db, len(codes), **options)
    said = [
        Verdict(seq, FAILED, 1, 1, error=b'{"code": "%s", "reason": "r"}' % code.encode(), code=code)
        for seq, code in enumerate(codes)
    ]
    await settle(db, await take(db, job_id), said)
    return job_id


def newest_first(*jobs: tuple[UUID, int]) -> list[tuple[UUID, int]]:
    return [(job_id, seq) for job_id, n in jobs for seq in reversed(range(n))]


async def test_dead_letter_list_is_newest_first_with_job_details(db: Database) -> None:
    old, new = await failing_job(db, ["a"] * 5, owner_id=1, kind="k"), await failing_job(db, ["b"] * 6, owner_id=1)
    assert await letters(db, owner_id=1) == newest_first((new, 6), (old, 5))
    [last] = (await queries.list_dead_letters(db, owner_id=1, kind="k", limit=1)).items
    job = await queries.get_job_by_reference(db, str(old))
    assert (last["job_key"], last["kind"], last["owner_id"], last["error"]["code"]) == (job.key, "k", 1, "a")
    assert (last["id"], last["attempts"], last["input_summary"]) == (f"{old}:4", 1, {"n": "4"})
    assert "input" not in last


async def test_dead_letter_list_shows_only_items_of_owner(db: Database) -> None:
    jobs = {owner: await failing_job(db, ["a"] * 3, owner_id=owner) for owner in (1, 2, 3)}
    for owner, job_id in jobs.items():
        assert await letters(db, owner_id=owner, limit=2) == newest_first((job_id, 3))
    assert await letters(db, owner_id=4) == []
    assert await letters(db, owner_id=None, limit=2) == newest_first(*((jobs[owner], 3) for owner in (3, 2, 1)))


async def test_dead_letter_list_of_foreign_job_raises_unknown_job(db: Database) -> None:
    job_id, nowhere = await failing_job(db, ["a"] * 3, owner_id=1), uuid4()
    for owner, asked in ((2, job_id), (2, nowhere), (None, nowhere)):
        with pytest.raises(UnknownJob, match=f'Unknown job "{asked}"'):
            await letters(db, owner_id=owner, job_id=asked)
    for owner in (1, None):
        assert await letters(db, owner_id=owner, job_id=job_id, limit=2) == newest_first((job_id, 3))


async def test_dead_letter_list_of_all_owners_is_merged_by_time(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.store.dead_letter_lists.PAGE_BATCH_BUDGET", 12)  # two of each owner run concurrently
    jobs = [
        (await failing_job(db, ["a"] * n, owner_id=owner), n) for n, owner in ((7, 5), (1, 9), (9, 2), (3, 5), (2, 7))
    ]
    assert await letters(db, limit=4) == newest_first(*reversed(jobs))
    assert await letters(db, limit=50) == newest_first(*reversed(jobs))


async def test_dead_letter_list_reads_many_owners_in_groups(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.store.dead_letter_lists.DEAD_LETTER_OWNERS_PER_PAGE", 3)
    jobs = [(await failing_job(db, ["a", "b"], owner_id=owner), 2) for owner in range(8)]
    by_turns = [*reversed(jobs[:3]), *reversed(jobs[3:6]), *reversed(jobs[6:])]
    assert await letters(db, limit=5) == newest_first(*by_turns)
    assert await letters(db, limit=5, codes=["b"]) == [(job_id, 1) for job_id, _ in by_turns]


async def test_dead_letter_list_combines_filters(db: Database) -> None:
    first = await failing_job(db, ["a", "b", "a", "c"], owner_id=1, kind="x")
    second = await failing_job(db, ["a", "b"], owner_id=2, kind="y")
    assert await letters(db, codes=["a"]) == [(second, 0), (first, 2), (first, 0)]
    assert await letters(db, codes=["a", "c"], kind="x") == [(first, 3), (first, 2), (first, 0)]
    assert await letters(db, job_id=first, codes=["b"]) == [(first, 1)]
    assert await letters(db, job_id=first, limit=2) == newest_first((first, 4))
    assert await letters(db, owner_id=1, kind="y") == []
    [(at,)] = await rows(db, "SELECT DISTINCT updated_at FROM tidemill.outcome WHERE owner_id = 2")
    assert await letters(db, from_=at) == newest_first((second, 2))
    assert await letters(db, to=at) == newest_first((first, 4))
    assert await letters(db, job_id=second, to=at) == []
    assert await letters(db, from_=at, to=at + timedelta(microseconds=1), limit=1) == newest_first((second, 2))
    for wrong in ({"codes": ["\x00"]}, {"kind": "\ud800"}):
        with pytest.raises(InvalidInput, match="contains a NUL character or an unpaired surrogate"):
            await letters(db, **wrong)


@pytest.mark.parametrize("asked", [{"owner_id": 1}, {"owner_id": None}, {"job": True}])
async def test_dead_letter_list_finds_rare_code_within_page_budget(
    db: Database, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    monkeypatch.setattr("tidemill.store.dead_letter_lists.PAGE_BATCH_BUDGET", 10)
    codes = ["rare" if seq in (3, 30, 31) else "usual" for seq in range(45)]
    job_id = await failing_job(db, codes, owner_id=1)
    asked = {"job_id": job_id} if "job" in asked else asked
    first = await queries.list_dead_letters(db, codes=["rare"], limit=5, **asked)
    assert first.items == []
    assert first.after is not None
    assert await letters(db, codes=["rare"], limit=1, **asked) == [(job_id, 31), (job_id, 30), (job_id, 3)]


async def test_dead_letter_list_excludes_items_of_deleted_job(db: Database) -> None:
    gone, stays = await failing_job(db, ["a"] * 3), await failing_job(db, ["a"])
    await job_control.delete_job(db, gone)
    assert await rows(db, "SELECT count(*) FROM tidemill.outcome") == [(4,)]
    assert await letters(db) == [(stays, 0)]
    assert await letters(db, owner_id=0) == [(stays, 0)]


async def test_dead_letter_list_excludes_requeued_items(db: Database) -> None:
    job_id = await failing_job(db, ["a", "b", "a"])
    await send_round(db, job_id, ReprocessSelection(seqs=[0]))
    assert await letters(db) == [(job_id, 2), (job_id, 1)]
    assert {cause["code"]: cause["count"] for cause in await queries.list_dead_letter_causes(db)} == {"a": 1, "b": 1}


async def test_dead_letter_causes_are_summed_over_folded_and_unfolded_jobs(db: Database) -> None:
    first = await failing_job(db, ["a", "a", "b"], owner_id=1)
    await failing_job(db, ["a", "c"], owner_id=1)
    await failing_job(db, ["a"], owner_id=2)
    for _ in range(2):
        causes = await queries.list_dead_letter_causes(db, 1)
        assert [(cause["code"], cause["count"], cause["jobs"]) for cause in causes] == [
            ("a", 3, 2),
            ("b", 1, 1),
            ("c", 1, 1),
        ]
        await db.run(job_lifecycle.fold_tally, first)
    [(everybody, n)] = [(c["count"], c["jobs"]) for c in await queries.list_dead_letter_causes(db) if c["code"] == "a"]
    assert (everybody, n) == (4, 3)
    [(at,)] = await rows(db, "SELECT max(updated_at) FROM tidemill.job")
    assert all(cause["newest"] <= at + timedelta(minutes=1) for cause in await queries.list_dead_letter_causes(db, 1))
    await rows(db, "UPDATE tidemill.job SET purged_at = tidemill.now()")
    assert await queries.list_dead_letter_causes(db, 1) == []


async def test_dead_letter_cursor_is_rejected_with_other_filters(db: Database) -> None:
    job_id = await failing_job(db, ["a"] * 5, owner_id=1)
    page = await queries.list_dead_letters(db, owner_id=1, limit=2)
    others: list[dict[str, Any]] = [
        {"owner_id": None},
        {"owner_id": 1, "codes": ["a"]},
        {"owner_id": 1, "job_id": job_id},
    ]
    for asked in others:
        with pytest.raises(InvalidInput, match="does not belong to this list"):
            await queries.list_dead_letters(db, limit=2, after=page.after, **asked)


async def test_dead_letter_list_contains_single_failed_item_of_batch(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [4])
    assert await letters(db) == [(job_id, 4)]
