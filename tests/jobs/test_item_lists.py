"""Lists of items: for any filter, the pages contain every matching item once, without complete inputs."""

import itertools
import json
from typing import Any
from uuid import uuid4

import pytest

from jobs.list_scenes import CANCELLED, NOT_FOUND, PENDING, PROCESSING, SKIPPED, truth, varied_job, walk_items
from store.scenes import big_job, fail_some, retry_some
from support import DONE, FAILED, RETRY, add_job, add_rows, assert_sound, rows, settle, shift_clock, take
from tidemill.core.decide import Verdict
from tidemill.core.errors import InvalidInput, UnknownItem, UnknownJob
from tidemill.core.status import ItemStatus
from tidemill.jobs import job_control, queries
from tidemill.store.database import Database

FIELDS = {
    "seq", "id", "status", "attempts", "locked_by", "locked_at", "updated_at", "due_at", "result",
    "result_cut", "error", "duration_ms", "rev", "input_summary",
}  # fmt: skip


@pytest.mark.parametrize("sparse", [False, True])
async def test_item_list_pages_contain_every_matching_item_once(db: Database, sparse: bool) -> None:
    job_id = await varied_job(db, sparse=sparse)
    await assert_sound(db)
    expected = await truth(db, job_id)
    assert set(expected.values()) == set(ItemStatus)
    choices = [set(chosen) for n in (0, 1, 2, 8) for chosen in itertools.combinations(ItemStatus, n)]
    choices += [{PENDING, PROCESSING, RETRY}, {NOT_FOUND, SKIPPED, FAILED}, {NOT_FOUND, SKIPPED, FAILED, CANCELLED}]
    for chosen in choices:
        found = await walk_items(db, job_id, *chosen)
        assert all(item.keys() == FIELDS for item in found)
        assert {item["seq"]: item["status"] for item in found} == {
            seq: status for seq, status in expected.items() if not chosen or status in chosen
        }, chosen
        assert len({item["seq"] for item in found}) == len(found)


@pytest.mark.parametrize("sparse", [False, True])
async def test_item_list_shows_same_item_by_seq_and_by_time(db: Database, sparse: bool) -> None:
    job_id = await varied_job(db, sparse=sparse)
    by_seq = {item["seq"]: item for item in await walk_items(db, job_id)}
    assert list(by_seq) == list(range(120))
    for status in set(ItemStatus) - {DONE}:
        for item in await walk_items(db, job_id, status):
            assert item == by_seq[item["seq"]]


async def test_item_list_shows_same_fields_as_get_item(db: Database) -> None:
    job_id = await varied_job(db)
    for item in await walk_items(db, job_id):
        single = await queries.get_item(db, job_id, item["seq"])
        if item["error"] is not None:
            item["error"] |= {"type": None, "traceback": None}  # only a single item has an exception
        shared = FIELDS & single.keys()
        assert len(shared) == 11
        assert {name: single[name] for name in shared} == {name: item[name] for name in shared}


async def test_open_items_are_listed_by_last_change(db: Database) -> None:
    job_id = await varied_job(db)
    found = await walk_items(db, job_id, PENDING, PROCESSING, RETRY, limit=3)
    assert [item["updated_at"] for item in found] == sorted(item["updated_at"] for item in found)
    assert len({item["status"] for item in found}) == 3


async def test_items_with_exception_statuses_are_merged_by_time(db: Database) -> None:
    job_id = await varied_job(db)
    found = await walk_items(db, job_id, FAILED, NOT_FOUND, SKIPPED, limit=2)
    places = [(item["updated_at"], item["seq"]) for item in found]
    assert places == sorted(places)
    assert len(found) > 10


async def test_item_list_starts_at_given_seq_for_any_status(db: Database) -> None:
    job_id = await varied_job(db)
    expected = await truth(db, job_id)
    for chosen in ((), (DONE,), (FAILED,), (PENDING, PROCESSING), (CANCELLED, SKIPPED)):
        found = await walk_items(db, job_id, *chosen, seq=42)
        assert [item["seq"] for item in found] == [
            seq for seq, status in expected.items() if seq >= 42 and (not chosen or status in chosen)
        ]
    assert (await queries.list_items(db, job_id, limit=5, seq=120)).items == []
    with pytest.raises(InvalidInput, match="Item -1 does not exist"):
        await queries.list_items(db, job_id, limit=5, seq=-1)


async def test_item_list_filters_failed_items_by_error_code(db: Database) -> None:
    job_id = await add_job(db, 40)
    lease = await take(db, job_id)
    said = [failure(seq, "timeout" if seq % 4 == 0 else "poison") for seq in range(40)]
    await settle(db, lease, said)
    found = await walk_items(db, job_id, codes=["timeout", "gone"], limit=3)
    assert [item["seq"] for item in found] == list(range(0, 40, 4))
    assert {item["error"]["code"] for item in found} == {"timeout"}
    assert len(await walk_items(db, job_id, FAILED, codes=["poison", "timeout"])) == 40
    assert await walk_items(db, job_id, FAILED, codes=["gone"]) == []
    for chosen in ([DONE], [FAILED, CANCELLED], [PENDING]):
        with pytest.raises(InvalidInput, match="Error codes can be combined only with status"):
            await queries.list_items(db, job_id, chosen, limit=5, codes=["timeout"])
    with pytest.raises(InvalidInput, match="Error codes cannot be combined with seq"):
        await queries.list_items(db, job_id, limit=5, codes=["timeout"], seq=3)
    with pytest.raises(InvalidInput, match="contains a NUL character or an unpaired surrogate"):
        await queries.list_items(db, job_id, limit=5, codes=["\x00"])


def failure(seq: int, code: str) -> Verdict:
    return Verdict(seq, FAILED, 1, 1, error=b'{"code": "%s"}' % code.encode(), code=code)


async def test_item_list_finds_rare_error_code_within_page_budget(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.store.item_lists.PAGE_BATCH_BUDGET", 10)
    job_id = await add_job(db, 45)
    codes = ["rare" if seq in (9, 10, 37) else "usual" for seq in range(45)]
    await settle(db, await take(db, job_id), [failure(seq, code) for seq, code in enumerate(codes)])
    first = await queries.list_items(db, job_id, limit=2, codes=["rare"])
    assert [item["seq"] for item in first.items] == [9]
    assert first.after is not None
    assert [item["seq"] for item in await walk_items(db, job_id, codes=["rare"], limit=2)] == [9, 10, 37]
    assert await walk_items(db, job_id, codes=["none"], limit=2) == []


async def test_item_list_last_page_has_no_cursor(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=10)
    await fail_some(db, job_id, range(10), wanted=10)
    for statuses in ([PENDING], [FAILED], [FAILED, SKIPPED], []):
        page = await queries.list_items(db, job_id, statuses, limit=20 if not statuses else 10)
        assert page.after is None, statuses
        assert len(page.items) == (20 if not statuses else 10)
    await job_control.cancel_job(db, job_id)
    page = await queries.list_items(db, job_id, [FAILED, CANCELLED], limit=10)
    assert [item["status"] for item in page.items] == ["failed"] * 10
    assert page.after is not None
    rest = await queries.list_items(db, job_id, [FAILED, CANCELLED], limit=10, after=page.after)
    assert [item["status"] for item in rest.items] == ["cancelled"] * 10
    assert rest.after is None


async def test_item_cursor_of_another_list_is_rejected(db: Database) -> None:
    job_id, other = await varied_job(db), await varied_job(db)
    lists: list[list[ItemStatus]] = [[], [DONE], [PROCESSING], [PENDING, PROCESSING], [FAILED], [FAILED, SKIPPED]]
    cursors = [(await queries.list_items(db, job_id, asked, limit=1)).after for asked in lists]
    for asked, cursor in itertools.product(lists, cursors):
        belongs = cursor is cursors[lists.index(asked)]
        if belongs:
            assert (await queries.list_items(db, job_id, asked, limit=1, after=cursor)).items
        else:
            with pytest.raises(InvalidInput, match="does not belong to this list"):
                await queries.list_items(db, job_id, asked, limit=1, after=cursor)
        with pytest.raises(InvalidInput, match="does not belong to this list"):
            await queries.list_items(db, other, asked, limit=1, after=cursor)


@pytest.mark.parametrize("statuses", [[], [PENDING], [FAILED], [CANCELLED], [DONE, FAILED]])
async def test_tampered_item_cursor_is_rejected_or_harmless(db: Database, statuses: list[ItemStatus]) -> None:
    job_id = await add_job(db, 30, batch_size=10)
    await fail_some(db, job_id, range(0, 10, 2), wanted=10)
    if CANCELLED in statuses:
        await job_control.cancel_job(db, job_id)
    page = await queries.list_items(db, job_id, statuses, limit=2)
    assert page.after is not None
    good = json.loads(json.dumps(page.after))
    bad: list[Any] = [None, True, -7, 2**62, 2**63, 1.5, float("nan"), "", "x", "\x00", "\ud800", [], {}, uuid4()]
    bad += ["9999-12-31T23:59:59", "0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00"]
    for place, value in itertools.product(range(len(good)), bad):
        bent = [*good[:place], value, *good[place + 1 :]]
        try:
            await queries.list_items(db, job_id, statuses, limit=2, after=bent)
        except InvalidInput:
            continue


async def test_processing_item_shows_worker_and_lock_time(db: Database) -> None:
    job_id = await add_job(db, 10)
    await take(db, job_id, 4, worker="w9")
    found = await walk_items(db, job_id, PROCESSING)
    assert [(item["seq"], item["locked_by"], item["locked_at"] == item["updated_at"]) for item in found] == [
        (seq, "w9", True) for seq in range(4)
    ]
    assert {item["locked_by"] for item in await walk_items(db, job_id, PENDING)} == {None}


async def test_retry_wait_item_shows_due_time(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, [3, 5], delay=600)
    [(due,)] = await rows(db, "SELECT not_before FROM tidemill.batch WHERE retrying")
    for found in (await walk_items(db, job_id, RETRY), (await walk_items(db, job_id))[3:6:2]):
        assert [(item["seq"], item["due_at"], item["attempts"]) for item in found] == [(3, due, 1), (5, due, 1)]
        assert found[0]["error"]["code"] == "test"
    assert (await queries.get_item(db, job_id, 3))["due_at"] == due
    assert (await queries.get_item(db, job_id, 4))["due_at"] is None


async def test_cancelled_item_shows_cancel_time_as_updated_at(db: Database) -> None:
    job_id = await add_job(db, 3)
    [(before,)] = await rows(db, "SELECT since FROM tidemill.batch")
    await shift_clock(db, "1 hour")
    await job_control.cancel_job(db, job_id)
    for statuses in ([CANCELLED], []):
        assert {(item["updated_at"] - before).seconds // 3600 for item in await walk_items(db, job_id, *statuses)} == {
            1
        }


async def test_item_list_omits_results_over_16_kib(db: Database) -> None:
    job_id = await add_job(db, 4)
    lease = await take(db, job_id)
    texts = [b'"%s"' % (b"x" * n) for n in (16_382, 16_383)]
    incompressible = json.dumps([f"{n * 7919 % 100_003:x}" for n in range(60_000)]).encode()
    results = [*texts, incompressible, b"[" + b",".join([b"1"] * 8_000) + b"]"]
    await settle(db, lease, [Verdict(seq, DONE, 1, 1, result) for seq, result in enumerate(results)])
    shown = [(item["result_cut"], item["result"] is None) for item in await walk_items(db, job_id)]
    assert shown == [(False, False), (True, True), (True, True), (True, True)]
    assert (await queries.get_item(db, job_id, 1))["result"] == "x" * 16_383


async def test_iterate_items_returns_complete_inputs_and_results(db: Database) -> None:
    long = "x" * 20_000
    job_id = await add_rows(db, [b'{"n": 0}', b'"%s"' % long.encode(), b"null"])
    results = [b'{"ok": 1}', b'"short"', b'"%s"' % long.encode()]
    await settle(db, await take(db, job_id), [Verdict(seq, DONE, 1, 1, result) for seq, result in enumerate(results)])
    found = [(item["input"], item["result"]) async for item in queries.iterate_items(db, job_id, None, limit=10)]
    assert found == [({"n": 0}, {"ok": 1}), (long, "short"), (None, long)]


async def test_item_list_of_purged_job_is_empty(db: Database) -> None:
    job_id = await add_job(db, 50)
    await rows(db, "UPDATE tidemill.job SET purged_at = tidemill.now()")
    page = await queries.list_items(db, job_id, limit=10)
    assert (page.items, page.after) == ([], None)


async def test_unknown_job_item_or_page_limit_is_rejected(db: Database) -> None:
    job_id = await add_job(db, 3)
    with pytest.raises(UnknownJob):
        await queries.list_items(db, uuid4(), limit=10)
    for seq in (3, -1, 2**62 + 1, 2**70):
        with pytest.raises(UnknownItem, match=f"has no item {seq}"):
            await queries.get_item(db, job_id, seq)
    with pytest.raises(UnknownItem):
        await queries.get_item(db, uuid4(), 0)
    with pytest.raises(InvalidInput, match="1 to 1000 rows"):
        await queries.list_items(db, job_id, limit=0)


async def test_done_item_list_skips_windows_without_match(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.store.item_lists.PAGE_ITEM_BUDGET", 25)
    job_id = await big_job(db, 3_000, settled=200)
    assert len(await walk_items(db, job_id, DONE, limit=50)) == 180


async def test_input_summary_shows_identifying_fields_of_input(db: Database) -> None:
    inputs: dict[str, Any] = {
        '{"price": 3, "Title": "Lamp", "BRAND": "Lux", "sku": 1}': {"Title": "Lamp", "BRAND": "Lux", "sku": "1"},
        '{"name": "n", "id": "i", "key": true}': {"name": "n", "id": "i", "key": "true"},
        '{"a": 1, "b": {"title": 1}, "c": null, "d": "x", "e": false, "f": 2}': {"a": "1", "d": "x", "e": "false"},
        '{"title": {"en": "Lamp"}, "url": "u"}': {"url": "u"},
        '{"title": "' + "é" * 200 + '"}': {"title": "é" * 80},
        '{"' + "k" * 200 + '": 1}': {"k" * 80: "1"},
        '{"title": 1, "title": 2}': {"title": "2"},
        '{"x": []}': {},
        "{}": {},
        "[1, 2]": "[1, 2]",
        "[" * 500 + "]" * 500: "[" * 80,
        '"plain text"': "plain text",
        "12.50": "12.50",
        "true": "true",
        "null": None,
        '{"title": "\\u0000"}': '{"title": "\\u0000"}',
        '{"\\ud800": 1}': '{"\\ud800": 1}',
        '"\\udfff"': '"\\udfff"',
        '{"title": "a", "text": "' + "".join(f"{n * 7919 % 100_003:x}" for n in range(60_000)) + '"}': None,
    }  # fmt: skip
    job_id = await add_rows(db, [text.encode() for text in inputs])
    found = [item["input_summary"] for item in await walk_items(db, job_id, limit=50)]
    *summaries, huge = zip(inputs, found, strict=True)
    assert dict(summaries) == dict(list(inputs.items())[:-1])
    assert huge[1] == huge[0][:80]
    assert all("input" not in item for item in await walk_items(db, job_id, PENDING, limit=50))
