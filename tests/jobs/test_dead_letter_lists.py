"""Dead letters across jobs: newest first, of one owner or all owners, by category and group, and their causes."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from jobs.list_scenes import walk
from store.scenes import fail_some, send_round
from support import FAILED, add_job, assert_sound, rows, settle, take
from tidemill.core.decide import Verdict
from tidemill.core.errors import InvalidInput, UnknownJob
from tidemill.jobs import job_control, queries, reprocessing
from tidemill.store import job_lifecycle, workers
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


IMPORT = "tidemill.import"
DRY_RUN = {"plan": {"validate_only": True}}


async def one_of_each_category(db: Database) -> dict[str, UUID]:
    """Create failures of a handler, of an import (one row is invalid, one write is exhausted) and of a dry run."""
    return {
        "handler": await failing_job(db, ["not_sold"], owner_id=1),
        "import": await failing_job(db, ["email.pattern", "exhausted"], owner_id=1, kind=IMPORT),
        "dry_run": await failing_job(db, ["email.pattern"] * 2, owner_id=1, kind=IMPORT, params=DRY_RUN),
    }


async def test_dead_letter_list_filters_by_category(db: Database) -> None:
    jobs = await one_of_each_category(db)
    await failing_job(db, ["a"], owner_id=2)
    assert await letters(db, owner_id=1, category="handler") == [(jobs["import"], 1), (jobs["handler"], 0)]
    assert await letters(db, owner_id=1, category="invalid_row") == [(jobs["import"], 0)]
    assert await letters(db, owner_id=1, category="dry_run", limit=1) == newest_first((jobs["dry_run"], 2))
    assert await letters(db, owner_id=1, job_id=jobs["import"], category="handler") == [(jobs["import"], 1)]
    assert len(await letters(db, category="handler")) == 3
    assert {one["category"] for one in (await queries.list_dead_letters(db, owner_id=1, limit=9)).items} == {
        "handler",
        "invalid_row",
        "dry_run",
    }


async def test_dead_letter_list_by_category_reads_many_jobs_in_groups(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.store.dead_letter_lists.DEAD_LETTER_JOBS_PER_PAGE", 3)
    jobs = [(await failing_job(db, ["a"] * 3, owner_id=1), 3) for _ in range(7)]
    await failing_job(db, ["email.pattern"] * 9, owner_id=1, kind=IMPORT)
    assert await letters(db, owner_id=1, category="handler", limit=4) == newest_first(*reversed(jobs))
    first = await queries.list_dead_letters(db, owner_id=1, category="handler", limit=4)
    assert len(first.items) == 4, "rows of other categories cost no page"


async def test_dead_letters_are_counted_by_category_without_dismissed_items(db: Database) -> None:
    jobs = await one_of_each_category(db)
    _, counts, _ = await queries.group_dead_letters(db, owner_id=1)
    assert (counts.handler, counts.invalid_row, counts.dry_run, counts.dismissed) == (2, 1, 2, 0)
    await dismiss(db, [(jobs["dry_run"], 0), (jobs["handler"], 0)])
    category, counts, groups = await queries.group_dead_letters(db, owner_id=1)
    assert (category, counts.handler, counts.invalid_row, counts.dry_run, counts.dismissed) == ("handler", 1, 1, 1, 2)
    assert counts.is_exact
    assert [group["count"] for group in groups.groups] == [1]
    _, _, dismissed = await queries.group_dead_letters(db, owner_id=1, dismissed=True)
    assert sorted((group["kind"], group["count"]) for group in dismissed.groups) == [("test", 1), (IMPORT, 1)]


async def test_dead_letter_groups_default_to_first_category_with_items(db: Database) -> None:
    assert (await queries.group_dead_letters(db, owner_id=1))[0] == "handler"
    await failing_job(db, ["email.pattern"], owner_id=1, kind=IMPORT, params=DRY_RUN)
    assert (await queries.group_dead_letters(db, owner_id=1))[0] == "dry_run"
    await failing_job(db, ["email.pattern"], owner_id=1, kind=IMPORT)
    assert (await queries.group_dead_letters(db, owner_id=1))[0] == "invalid_row"
    with pytest.raises(UnknownJob):
        await queries.group_dead_letters(db, owner_id=1, job_id=uuid4())


async def failing_with(db: Database, *errors: dict[str, Any], **options: Any) -> UUID:
    """Create a job whose items fail, one with each of these errors."""
    job_id = await add_job(db, len(errors), **options)
    said = [
        Verdict(seq, FAILED, 1, 1, error=json.dumps(error).encode(), code=error["code"])
        for seq, error in enumerate(errors)
    ]
    await settle(db, await take(db, job_id), said)
    return job_id


async def test_dead_letters_are_grouped_by_type_and_message_without_values(db: Database) -> None:
    messages = [
        'Order 17 of "Ada" isn\'t 0x1F at 12:30:01',
        'Order 4,5 of "Bob" isn\'t 0xab at 1',
        f'Order {uuid4()} of "" isn\'t 0x0 at 2.5',
    ]
    errors = [{"code": "exhausted", "reason": text} for text in messages]
    job_id = await failing_with(db, *errors, {"code": "exhausted", "type": "KeyError", "reason": "'sku'"}, owner_id=1)
    later = await failing_with(db, errors[0], owner_id=1)
    other = await failing_with(db, errors[0], owner_id=1, kind="other")
    _, _, found = await queries.group_dead_letters(db, owner_id=1)
    message = "Order … of … isn't … at …"
    assert [(one["kind"], one["type"], one["message"], one["count"]) for one in found.groups] == [
        ("test", "exhausted", message, 4),
        ("test", "KeyError", "…", 1),
        ("other", "exhausted", message, 1),
    ]
    assert (found.grouped, found.is_complete) == (6, True)
    largest = found.groups[0]
    assert (largest["example"]["job_id"], largest["example"]["error"]["reason"]) == (later, messages[0])
    assert largest["first_at"] < largest["last_at"] == largest["example"]["updated_at"]
    assert await letters(db, owner_id=1, group=largest["id"]) == [(later, 0), (job_id, 2), (job_id, 1), (job_id, 0)]
    assert await letters(db, owner_id=1, group=found.groups[2]["id"], category="handler") == [(other, 0)]


def row_errors(*codes: str) -> dict[str, Any]:
    """Return the stored error of a row of an import that has several errors."""
    errors = [{"code": code, "reason": f'"{n}" breaks {code}'} for n, code in enumerate(codes)]
    return errors[0] | {"errors": errors}


@pytest.mark.parametrize(("category", "params"), [("invalid_row", {}), ("dry_run", DRY_RUN)])
async def test_import_row_with_several_errors_is_in_group_of_each_error(
    db: Database, category: str, params: dict[str, Any]
) -> None:
    errors = [row_errors("email.pattern", "age.minimum", "age.minimum"), row_errors("age.minimum", "role.enum")]
    job_id = await failing_with(db, *errors, row_errors("role.enum"), owner_id=1, kind=IMPORT, params=params)
    await failing_with(db, row_errors("age.minimum", "email.pattern"), owner_id=1)
    _, _, found = await queries.group_dead_letters(db, owner_id=1, category=category)
    groups = {one["type"]: one for one in found.groups}
    assert {name: one["count"] for name, one in groups.items()} == {
        "age.minimum": 2,
        "role.enum": 2,
        "email.pattern": 1,
    }
    assert (found.grouped, groups["age.minimum"]["message"]) == (3, "… breaks age.minimum")
    for name, seqs in {"age.minimum": [1, 0], "role.enum": [2, 1], "email.pattern": [0]}.items():
        rows_of_group = [(job_id, seq) for seq in seqs]
        assert await letters(db, owner_id=1, group=groups[name]["id"]) == rows_of_group
        assert await letters(db, owner_id=1, group=groups[name]["id"], category=category) == rows_of_group
    _, _, found = await queries.group_dead_letters(db, owner_id=1, category="handler")
    assert [one["type"] for one in found.groups] == ["age.minimum"], "a failure of a handler is one error"


async def test_dismiss_restore_and_redrive_by_group_match_any_error_of_import_row(db: Database) -> None:
    errors = [row_errors("email.pattern", "age.minimum"), row_errors("age.minimum", "role.enum")]
    job_id = await failing_with(db, *errors, row_errors("role.enum"), owner_id=1, kind=IMPORT)
    _, _, found = await queries.group_dead_letters(db, owner_id=1)
    groups = {one["type"]: one["id"] for one in found.groups}
    assert await dismiss(db, None, group=groups["role.enum"]) == 2
    assert await letters(db, owner_id=1, dismissed=True, group=groups["age.minimum"]) == [(job_id, 1)]
    restored = await reprocessing.run_dead_letter_operation(
        db, verb="restore", owner_id=1, filters={"group": groups["age.minimum"]}
    )
    assert restored.items == 1
    redriven = await reprocessing.run_dead_letter_operation(db, owner_id=1, filters={"group": groups["age.minimum"]})
    assert redriven.items == 2
    assert await letters(db, owner_id=1, dismissed=True) == [(job_id, 2)]


async def test_dead_letter_groups_read_newest_items_only(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.store.dead_letter_lists.MAX_GROUPED_DEAD_LETTERS", 5)
    monkeypatch.setattr("tidemill.store.dead_letter_lists.GROUPING_PAGE_ROWS", 2)
    await failing_job(db, ["old"] * 4, owner_id=1)
    await failing_job(db, ["new"] * 3, owner_id=1)
    _, counts, found = await queries.group_dead_letters(db, owner_id=1)
    assert [(one["type"], one["count"]) for one in found.groups] == [("new", 3), ("old", 2)]
    assert (found.grouped, found.is_complete, counts.handler) == (5, False, 7)


async def dismiss(db: Database, items: list[tuple[UUID, int]] | None, **filters: Any) -> int:
    operation = await reprocessing.run_dead_letter_operation(
        db, verb="dismiss", owner_id=1, items=items, filters=filters, user_id=7
    )
    return operation.items


async def test_dismissed_dead_letters_leave_list_and_keep_job_and_counts(db: Database) -> None:
    job_id = await failing_job(db, ["a", "b", "a"], owner_id=1)
    before = await rows(db, "SELECT to_jsonb(p) FROM tidemill.job_progress p")
    assert await dismiss(db, [(job_id, 0), (job_id, 1)]) == 2
    assert await dismiss(db, [(job_id, 0)]) == 0, "a second time, nothing is left to do"
    assert await rows(db, "SELECT to_jsonb(p) FROM tidemill.job_progress p") == before
    assert await letters(db, owner_id=1) == await letters(db) == [(job_id, 2)]
    assert await letters(db, job_id=job_id) == await letters(db, category="handler") == [(job_id, 2)]
    for asked in ({"owner_id": 1}, {"owner_id": None}, {"job_id": job_id}, {"category": "handler"}):
        assert await letters(db, dismissed=True, **asked) == [(job_id, 1), (job_id, 0)], asked
    [first, _] = (await queries.list_dead_letters(db, owner_id=1, dismissed=True, limit=5)).items
    assert (first["dismissed_by"], first["dismissed_at"] is not None) == (7, True)
    await assert_sound(db)


async def test_newer_dismissed_items_do_not_hide_older_dead_letters(db: Database) -> None:
    error = {"code": "exhausted", "reason": "no answer"}
    few = await failing_with(db, *[error] * 5, owner_id=1, kind="few")
    many = await failing_with(db, *[error] * 900, owner_id=1, kind="many")
    await dismiss(db, None, kind="many")
    page = await queries.list_dead_letters(db, owner_id=1, category="handler", limit=5)
    assert [row["job_id"] for row in page.items] == [few] * 5
    _, _, found = await queries.group_dead_letters(db, owner_id=1, category="handler")
    assert [(group["kind"], group["count"]) for group in found.groups] == [("few", 5)]
    await dismiss(db, [(few, 0)])
    _, counts, _ = await queries.group_dead_letters(db, owner_id=1, kind="few")
    assert (counts.handler, counts.dismissed, counts.is_exact) == (4, 1, True)
    assert (await queries.list_dead_letters(db, owner_id=1, dismissed=True, limit=1000)).items[0]["job_id"] == many


async def test_dismiss_by_group_and_category_and_restore_change_matching_items_only(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.store.reprocess_items.DISMISS_CHUNK_ITEMS", 2)
    jobs = await one_of_each_category(db)
    many = await failing_job(db, ["not_sold"] * 5, owner_id=1)
    _, _, found = await queries.group_dead_letters(db, owner_id=1)
    assert await dismiss(db, None, group=found.groups[0]["id"]) == 6
    assert await dismiss(db, None, category="dry_run") == 2
    assert await letters(db, owner_id=1) == [(jobs["import"], 1), (jobs["import"], 0)]
    restored = await reprocessing.run_dead_letter_operation(
        db, verb="restore", owner_id=1, filters={"jobs": [str(many)]}
    )
    assert (restored.items, restored.state) == (5, "done")
    assert (await letters(db, owner_id=1))[:5] == newest_first((many, 5))


async def test_redrive_by_filter_skips_dismissed_items_and_named_retry_removes_dismissal(db: Database) -> None:
    job_id = await failing_job(db, ["a"] * 3, owner_id=1)
    await dismiss(db, [(job_id, 0), (job_id, 1)])
    assert (await reprocessing.run_dead_letter_operation(db, owner_id=1)).items == 1
    assert (await reprocessing.run_dead_letter_operation(db, owner_id=1, items=[(job_id, 0)])).items == 1
    await send_round(db, job_id, ReprocessSelection())
    assert await rows(db, "SELECT DISTINCT status, dismissed_at, dismissed_by FROM tidemill.outcome") == [
        ("pending", None, None)
    ]
    await assert_sound(db)


async def test_redrive_by_category_and_group_retries_matching_items_only(db: Database) -> None:
    jobs = await one_of_each_category(db)
    assert (
        await reprocessing.run_dead_letter_operation(db, owner_id=1, filters={"category": "invalid_row"})
    ).items == 1
    _, _, found = await queries.group_dead_letters(db, owner_id=1)
    group = next(one for one in found.groups if one["type"] == "not_sold")
    assert (await reprocessing.run_dead_letter_operation(db, owner_id=1, filters={"group": group["id"]})).items == 1
    assert await letters(db, owner_id=1) == [(jobs["dry_run"], 1), (jobs["dry_run"], 0), (jobs["import"], 1)]


async def test_retry_forecast_counts_each_item_under_first_reason_that_applies(db: Database) -> None:
    jobs = await one_of_each_category(db)
    await failing_with(
        db,
        {"code": "poison", "retryable": True, "reason": "r"},
        {"code": "exhausted", "retryable": True, "reason": "r"},
        owner_id=1,
    )
    await failing_job(db, ["a"], owner_id=1, kind="unserved")
    await failing_job(db, ["a"], owner_id=2)
    await db.run(workers.register_worker, "w", "host", 1, {"kinds": ["test"]})
    found = await queries.forecast_retry(db, owner_id=1, items=None)
    assert asdict(found) == {
        "dry_run": 2,
        "invalid_row": 1,
        "no_worker": 2,  # also the exhausted row of the import
        "poison": 1,
        "not_retryable": 1,
        "retryable": 1,
        "is_complete": True,
    }
    some = [(jobs["handler"], 0), (jobs["dry_run"], 1), (uuid4(), 0)]
    named = await queries.forecast_retry(db, owner_id=1, items=some, excluded_items=some[:1])
    assert (named.dry_run, named.not_retryable) == (1, 0)
    assert (await queries.forecast_retry(db, owner_id=2, items=some)).dry_run == 0, "items of other owners are unknown"
