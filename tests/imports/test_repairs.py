"""Repairs: one rule for all rows of a cause. The rows, their audit, races, and other users."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest

from imports.scenes import Scene
from support import assert_sound, job_of, rows
from support.import_requests import Shop, open_shop
from tidemill import Mill
from tidemill.app.runtime_factory import make_runtime
from tidemill.core.errors import Conflict, InvalidInput
from tidemill.core.job import Job
from tidemill.core.principal import Role
from tidemill.imports import repairs
from tidemill.imports.repair_rules import parse_repair_rule
from tidemill.imports.repairs import RepairRequest, preview_repair, run_repair_step, start_repair
from tidemill.jobs.job_control import cancel_job
from tidemill.jobs.reprocessing import ReprocessSelection, reprocess_items
from tidemill.store import operation_records
from tidemill.store.operation_records import BulkOperation, run_operation_step

TABLE = "CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL CHECK (n > 0), day date, land text, town text)"
STEPS = {"repair": run_repair_step}
KG = {"type": "replace", "find": " kg"}


@pytest.fixture
async def shop(make_api: Callable[..., Any], toy: Mill, tmp_path: Path) -> Shop:
    return await open_shop(make_api, toy, tmp_path)


def request(cause: str, rule: dict[str, Any], column: str | None = None) -> RepairRequest:
    return RepairRequest(cause, parse_repair_rule(rule), column)


async def start(scene: Scene, job: Job, cause: str, rule: dict[str, Any], **options: Any) -> BulkOperation:
    """Start a repair; with ``timeout_s=0``, only store it."""
    column = options.pop("column", None)
    return await start_repair(
        make_runtime(scene.db, scene.settings), job, request(cause, rule, column), by=0, **options
    )


def lines(*values: str, column: str = "n") -> str:
    return f"id,{column}\n" + "".join(f"{n},{value}\n" for n, value in enumerate(values, 1))


async def weighed(scene: Scene, count: int) -> Job:
    """Import rows of which every second has an invalid weight."""
    await scene.table(TABLE)
    return await scene.run(lines(*("7 kg" if n % 2 else "8" for n in range(count))), "t")


async def test_repair_fixes_and_retries_all_rows_of_cause_and_no_others(scene: Scene) -> None:
    await scene.table(TABLE)
    job = await scene.run("id,n,day\n1,5 kg,\n2,6 kg,31.12.2026\n3,7,\n4,x kg,\n5,0,\n", "t", formats={"day": "plain"})
    assert await scene.errors(job) == [(1, "n.type"), (2, "n.type"), (4, "n.type"), (5, "n.too_small")]
    operation = await start(scene, job, "n.type", KG)
    assert (operation.state, operation.items, operation.unchanged) == ("done", 3, 0)
    job = await scene.finish(job.id)
    assert await scene.rows("SELECT id, n FROM t ORDER BY id") == [(1, 5), (3, 7)]
    assert await scene.errors(job) == [(2, "day.type"), (4, "n.type"), (5, "n.too_small")]
    operation = await start(scene, job, "day.type", {"type": "format", "format": "DD.MM.YYYY"})
    assert operation.items == 1
    await scene.finish(job.id)
    assert await scene.rows("SELECT n, day::text FROM t WHERE id = 2") == [(6, "2026-12-31")]


async def test_repair_keeps_original_and_records_user_time_and_rule(shop: Shop) -> None:
    done = await shop.imported(b"email,name,age\nada@x.org,Ada,36\nbob@x.org,Bob,4l\n")
    body = {"cause": "age.type", "rule": {"type": "replace", "find": "l", "replacement": "1"}}
    answer = await shop.ada.post(f"/v1/imports/{done['job_id']}/repairs", json=body)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["verb"], answer.json()["items"]) == ("repair", 1)
    assert (await shop.worked(done["job_id"]))["status"] == "completed"
    item = (await shop.ada.get(f"/v1/jobs/{done['job_id']}/items/1")).json()
    assert (item["original"]["age"], item["input"]["age"]) == ("4l", "41")
    [fix] = item["fixes"]
    assert (fix["by"], fix["operation_id"]) == (shop.api.ids["ada"], answer.json()["id"])
    assert fix["rule"] == {"type": "replace", "find": "l", "replacement": "1", "whole": False}
    [activity] = (await shop.ada.get(f"/v1/jobs/{done['job_id']}/activity")).json()["activity"]
    assert (activity["verb"], activity["details"]["items"]) == ("repair", 1)
    await assert_sound(shop.api.db)


async def test_repair_splits_translates_and_sets_default(scene: Scene) -> None:
    await scene.table(TABLE, "ALTER TABLE t ALTER town SET NOT NULL")
    job = await scene.run(
        'id,n,land,town\n1,1,"DE, Ulm",\n2,?,FR,Brest\n3,none,FR,Lyon\n4,,FR,Paris\n', "t", formats={"n": "plain"}
    )
    assert await scene.errors(job) == [
        (1, "town.required"),
        (2, "n.type"),
        (3, "n.type"),
        (4, "n.required"),
    ]
    into = {"type": "split", "separator": ",", "into": ["land", "town"]}
    assert (await start(scene, job, "town.required", into, column="land")).items == 1
    translated = await start(scene, job, "n.type", {"type": "translate", "values": {"none": "9"}})
    assert (translated.items, translated.unchanged) == (1, 1)
    assert (await start(scene, job, "n.required", {"type": "default", "value": 4})).items == 1
    job = await scene.finish(job.id)
    assert await scene.errors(job) == [(2, "n.type")]
    assert (await start(scene, job, "n.type", {"type": "default", "value": 3})).items == 1
    await scene.finish(job.id)
    assert await scene.rows("SELECT id, n, land, town FROM t ORDER BY id") == [
        (1, 1, "DE", "Ulm"),
        (2, 3, "FR", "Brest"),
        (3, 9, "FR", "Lyon"),
        (4, 4, "FR", "Paris"),
    ]


async def test_repair_finds_rows_whose_second_error_is_the_cause(scene: Scene) -> None:
    await scene.table(TABLE)
    job = await scene.run("id,n,day\n1,x,31.12.2026\n", "t", formats={"day": "plain"})
    assert await scene.errors(job) == [(1, "n.type")]
    assert (await start(scene, job, "day.type", {"type": "format", "format": "DD.MM.YYYY"})).items == 1
    job = await scene.finish(job.id)
    assert await scene.errors(job) == [(1, "n.type")]
    [(first, *_)] = await scene.rows("SELECT error->'errors' FROM tidemill.outcome")
    assert first is None, "the date is valid now"


async def test_repair_keeps_all_digits_and_types_of_other_fields(scene: Scene) -> None:
    await scene.table("CREATE TABLE d (id int PRIMARY KEY, n int, price numeric, about jsonb)")
    about = '{"big": 12345678901234567890.123456789, "on": true}'
    job = await scene.run(
        f'{{"id": 1, "n": "x", "price": 1.2300000000000000001, "about": {about}}}\n', "d", name="d.ndjson"
    )
    await start(scene, job, "n.type", {"type": "default", "value": 5})
    await scene.finish(job.id)
    [(n, price, stored)] = await scene.rows("SELECT n, price::text, about::text FROM d")
    assert (n, price, stored) == (5, "1.2300000000000000001", '{"on": true, "big": 12345678901234567890.123456789}')


async def test_repair_with_drop_dismisses_rows_that_can_be_restored(shop: Shop) -> None:
    done = await shop.imported(b"email,name,age\nada@x.org,Ada,x\nbob@x.org,Bob,y\ncy,Cy,1\n")
    place = f"/v1/imports/{done['job_id']}"
    answer = await shop.ada.post(f"{place}/repairs", json={"cause": "age.type", "rule": {"type": "drop"}})
    assert (answer.json()["state"], answer.json()["items"]) == ("done", 2)
    now = (await shop.ada.get(place)).json()
    assert (now["error_records"], now["dismissed_by_error"]) == (3, {"age.type": 2})
    left = (await shop.ada.get(f"{place}/errors?include_dismissed=false")).json()["rows"]
    assert [row["row"] for row in left] == [3]
    assert len((await shop.ada.get(f"{place}/errors")).json()["rows"]) == 3
    rule = {"type": "default", "value": "1"}
    again = await shop.ada.post(f"{place}/repairs", json={"cause": "age.type", "rule": rule})
    assert (again.status_code, again.json()["detail"]) == (
        409,
        'No failed row has the error "age.type". The errors of this import are: email.pattern.',
    )
    restored = await shop.ada.post("/v1/dead-letters/restore", json={"all_matching": True})
    assert restored.json()["items"] == 2
    assert (await shop.ada.post(f"{place}/repairs", json={"cause": "age.type", "rule": rule})).json()["items"] == 2
    await assert_sound(shop.api.db)


async def test_repair_of_dry_run_is_promoted_with_its_fixes(shop: Shop) -> None:
    trial = await shop.imported(b"email,name,age\nada@x.org,Ada,36 y\n", validate_only=True)
    body = {"cause": "age.type", "rule": {"type": "replace", "find": " y"}}
    made = await shop.ada.post(f"/v1/imports/{trial['job_id']}/repairs", json=body)
    await shop.work()
    promoted = await shop.ada.post(f"/v1/imports/{trial['job_id']}/promote")
    live = await shop.worked(promoted.json()["job_id"])
    assert (live["status"], await shop.people()) == ("completed", [("ada@x.org", "Ada", 36)])
    item = (await shop.ada.get(f"/v1/jobs/{live['job_id']}/items/0")).json()
    assert item["fixes"][0]["operation_id"] == made.json()["id"]


async def test_preview_counts_changed_and_valid_rows_and_changes_nothing(shop: Shop) -> None:
    await shop.imported(b"email,name,age\nada@x.org,Ada,36\n")
    text = b"email,name,age\nada@x.org,Ada,1 y\nbob@x.org,Bob,2 y\ncy@x.org,Cy,old\ndi@x.org,Di,-5 y\n"
    done = await shop.imported(text)
    place = f"/v1/imports/{done['job_id']}/repairs/preview"
    answer = await shop.ada.post(place, json={"cause": "age.type", "rule": {"type": "replace", "find": " y"}})
    assert answer.status_code == 200, answer.text
    seen = answer.json()
    counts = {name: seen[name] for name in ("rows", "column", "checked", "changed", "valid", "too_large")}
    assert counts == {"rows": 4, "column": "age", "checked": 4, "changed": 3, "valid": 1, "too_large": 0}
    assert [(one["row"], one["before"], one["after"]) for one in seen["examples"]] == [
        (1, {"age": "1 y"}, {"age": "1"}),
        (2, {"age": "2 y"}, {"age": "2"}),
        (4, {"age": "-5 y"}, {"age": "-5"}),
    ]
    codes = [[error["code"] for error in one["errors"]] for one in seen["examples"]]
    assert codes == [["email.exists"], [], ["age.too_small"]], "the table is checked, too"
    assert (await shop.ada.get(f"/v1/imports/{done['job_id']}")).json()["error_records"] == 4
    assert await rows(shop.api.db, "SELECT count(*) FROM tidemill.item_fix") == [(0,)]
    assert await rows(shop.api.db, "SELECT count(*) FROM tidemill.operation") == [(0,)]
    drop = await shop.ada.post(place, json={"cause": "age.type", "rule": {"type": "drop"}})
    assert (drop.json()["rows"], drop.json()["examples"]) == (4, [])


async def test_preview_checks_first_rows_and_shows_twenty_examples(scene: Scene) -> None:
    job = await weighed(scene, 2_100)
    preview = await preview_repair(make_runtime(scene.db, scene.settings), job, request("n.type", KG))
    assert (preview.rows, preview.checked, preview.changed, preview.valid) == (1_050, 1_000, 1_000, 1_000)
    assert len(preview.examples) == 20


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"cause": "age.type", "rule": {"type": "replace", "find": ""}}, '"find" must not be empty'),
        ({"cause": "age.type", "rule": KG, "column": "shoe"}, 'Column "shoe" is not a column of the import'),
        (
            {"cause": "age.type", "rule": {"type": "split", "separator": ",", "into": ["age", "shoe"]}},
            'Column "shoe" is not a column of the import',
        ),
        ({"cause": "age.type", "rule": {"type": "split", "separator": ","}}, "into"),
        ({"cause": "age.type", "rule": {"type": "drop", "find": "x"}}, "find"),
        ({"cause": "age.type"}, "rule"),
    ],
)
async def test_repair_with_invalid_request_is_rejected(shop: Shop, body: dict[str, Any], detail: str) -> None:
    done = await shop.imported(b"email,name,age\nada@x.org,Ada,x\n")
    for path in ("repairs", "repairs/preview"):
        answer = await shop.ada.post(f"/v1/imports/{done['job_id']}/{path}", json=body)
        assert answer.status_code == 422, answer.text
        assert detail in answer.text.replace('\\"', '"')
    assert await rows(shop.api.db, "SELECT count(*) FROM tidemill.operation") == [(0,)]


async def test_repair_of_error_without_column_requires_one(shop: Shop) -> None:
    done = await shop.imported(b"email,name,age\nada@x.org,Ada,1,2\nbob@x.org,Bob,1\nbob@x.org,Bo,1\n")
    codes = done["errors"]
    assert codes.pop("email.duplicate") == 1
    [code] = codes
    place = f"/v1/imports/{done['job_id']}/repairs"
    refused = await shop.ada.post(place, json={"cause": code, "rule": KG})
    assert "belongs to no single column. Set the column to repair" in refused.json()["detail"]
    unparsed = (await shop.ada.post(place, json={"cause": code, "rule": KG, "column": "name"})).json()
    assert (unparsed["items"], unparsed["unchanged"]) == (0, 1), "a record that could not be parsed has no columns"


async def test_repair_is_refused_for_other_users_and_without_write_permission(shop: Shop) -> None:
    done = await shop.imported(b"email,name,age\nada@x.org,Ada,x\n")
    bob, root = await shop.api.user("bob"), await shop.api.user("root", Role.ADMIN)
    body = {"cause": "age.type", "rule": {"type": "default", "value": 1}}
    for path in ("repairs", "repairs/preview"):
        assert (await bob.post(f"/v1/imports/{done['job_id']}/{path}", json=body)).status_code == 404
    staff = (await shop.post(b"email,name,age\nada@x.org,Ada,x\n", root, resource="staff")).json()["job_id"]
    await shop.work()
    await rows(shop.api.db, "UPDATE tidemill.job SET owner_id = %s WHERE id = %s", shop.api.ids["ada"], UUID(staff))
    for path in ("repairs", "repairs/preview"):
        assert (await shop.ada.post(f"/v1/imports/{staff}/{path}", json=body)).status_code == 403
    operation = (await shop.ada.post(f"/v1/imports/{done['job_id']}/repairs", json=body)).json()["id"]
    assert (await bob.post(f"/v1/operations/{operation}/cancel")).status_code == 404
    assert (await shop.ada.post(f"/v1/operations/{operation}/cancel")).status_code == 409, "it is done"


async def test_repair_by_format_is_refused_for_column_that_import_reads_in_a_format(scene: Scene) -> None:
    await scene.table("CREATE TABLE f (id int PRIMARY KEY, price numeric)")
    job = await scene.run("id;price\n1;1,5\n2;1.500 kg\n", "f", formats={"price": "decimal-comma"})
    with pytest.raises(InvalidInput, match='The import reads column "price" in the format "decimal-comma"'):
        await start(scene, job, "price.type", {"type": "format", "format": "decimal-point"})
    assert (await start(scene, job, "price.type", KG)).items == 1
    await scene.finish(job.id)
    assert await scene.rows("SELECT price::text FROM f ORDER BY id") == [("1.5",), ("1500",)]


async def test_repair_beyond_quota_is_429_and_changes_nothing(shop: Shop) -> None:
    root = await shop.api.user("root", Role.ADMIN)
    done = await shop.imported(b"email,name,age\nada@x.org,Ada,x\nbob@x.org,Bob,y\n")
    assert (await root.patch("/v1/users/ada/quota", json={"open_rows": 1})).status_code == 200
    body: dict[str, Any] = {"cause": "age.type", "rule": {"type": "default", "value": 1}}
    rejected = await shop.ada.post(f"/v1/imports/{done['job_id']}/repairs", json=body)
    assert (rejected.status_code, rejected.json()["quota"]["name"]) == (429, "open_rows")
    assert await rows(shop.api.db, "SELECT count(*) FROM tidemill.item_fix") == [(0,)]
    dropped = await shop.ada.post(f"/v1/imports/{done['job_id']}/repairs", json=body | {"rule": {"type": "drop"}})
    assert dropped.json()["items"] == 2


async def test_repair_leaves_rows_unchanged_that_would_exceed_size_limit(scene: Scene) -> None:
    await scene.table(TABLE)
    limited = Scene(scene.db, scene.settings.model_copy(update={"max_row_bytes": 300}), scene.mill)
    job = await limited.run(lines("x" * 200, "x"), "t")
    rule = {"type": "replace", "find": "x", "replacement": "y" * 9_000}
    runtime = make_runtime(limited.db, limited.settings)
    preview = await preview_repair(runtime, job, request("n.type", rule))
    assert (preview.too_large, preview.changed, preview.examples) == (2, 0, [])
    operation = await start(limited, job, "n.type", rule)
    assert (operation.items, operation.unchanged) == (0, 2)
    operation = await start(limited, job, "n.type", {"type": "replace", "find": "x", "replacement": "1"})
    assert operation.items == 2
    job = await limited.finish(job.id)
    assert await limited.errors(job) == [(1, "n.type")]


async def step(scene: Scene, operation: BulkOperation) -> BulkOperation:
    await scene.db.run(run_operation_step, operation.id, STEPS)
    return await scene.db.run(operation_records.get_operation, operation.id)


async def test_repair_runs_in_bounded_steps_and_ends_after_cancel(scene: Scene) -> None:
    job = await weighed(scene, 3_000)
    with patch.object(repairs, "REPAIR_STEP_CHUNKS", 1):
        operation = await start(scene, job, "n.type", KG, timeout_s=0)
        operation = await step(scene, operation)
        assert (operation.state, operation.items) == ("running", 1_000)
        assert await scene.db.run(operation_records.cancel_operation, operation.id)
        assert await scene.db.run(run_operation_step, operation.id, STEPS) is None
        assert not await scene.db.run(operation_records.cancel_operation, operation.id)
    job = await scene.finish(job.id)
    assert (job.counts.done, job.counts.failed) == (2_500, 500)
    assert (await start(scene, job, "n.type", KG)).items == 500
    assert (await scene.finish(job.id)).counts.failed == 0
    assert await scene.rows("SELECT count(*), count(DISTINCT seq) FROM tidemill.item_fix") == [(1_500, 1_500)]


async def test_operation_with_unknown_verb_is_left_to_processes_that_know_it(scene: Scene) -> None:
    job = await weighed(scene, 10)
    operation = await start(scene, job, "n.type", KG, timeout_s=0)
    assert await scene.db.run(run_operation_step) is None
    assert (await step(scene, operation)).items == 5


async def test_second_repair_of_running_cause_conflicts_and_other_cause_runs(scene: Scene) -> None:
    await scene.table(TABLE)
    job = await scene.run("id,n,day\n1,5 kg,\n2,6,31.12.2026\n", "t", formats={"day": "plain"})
    operation = await start(scene, job, "n.type", KG, timeout_s=0)
    with pytest.raises(Conflict, match=r'A repair of the rows with the error "n\.type" is already running'):
        await start(scene, job, "n.type", {"type": "drop"}, timeout_s=0)
    assert (await start(scene, job, "day.type", {"type": "format", "format": "DD.MM.YYYY"})).items == 1
    assert (await step(scene, operation)).items == 1
    assert (await scene.finish(job.id)).counts.done == 2


async def test_concurrent_repairs_of_one_cause_fix_each_row_once(scene: Scene) -> None:
    job = await weighed(scene, 200)
    rules: list[dict[str, Any]] = [KG, {"type": "default", "value": 3}]
    results = await asyncio.gather(*(start(scene, job, "n.type", rule) for rule in rules), return_exceptions=True)
    done = [one for one in results if isinstance(one, BulkOperation)]
    assert sum(one.items for one in done) == 100
    refused = [one for one in results if not isinstance(one, BulkOperation)]
    assert all(isinstance(one, Conflict) for one in refused)
    assert (await scene.finish(job.id)).counts.done == 200
    assert await scene.rows("SELECT count(*), count(DISTINCT seq) FROM tidemill.item_fix") == [(100, 100)]
    assert await scene.rows("SELECT count(DISTINCT n) FROM t WHERE n <> 8") == [(1,)], "by one of the rules"


async def test_repair_does_not_change_rows_that_reprocess_holds(scene: Scene) -> None:
    job = await weighed(scene, 20)
    operation = await start(scene, job, "n.type", KG, timeout_s=0)
    held = await reprocess_items(scene.db, job.id, ReprocessSelection(seqs=[1, 3]))
    assert held.items == 2
    assert (await step(scene, operation)).items == 8
    job = await scene.finish(job.id)
    assert await scene.errors(job) == [(2, "n.type"), (4, "n.type")]
    assert await scene.rows("SELECT count(*) FROM tidemill.item_fix WHERE seq IN (1, 3)") == [(0,)]


async def test_repair_while_workers_reprocess_loses_no_row(scene: Scene) -> None:
    job = await weighed(scene, 3_000)
    with patch.object(repairs, "REPAIR_STEP_CHUNKS", 1), patch.object(repairs, "SEQ_LIST_MAX", 50):
        _, operation = await asyncio.gather(
            reprocess_items(scene.db, job.id, ReprocessSelection()), start(scene, job, "n.type", KG)
        )
        await asyncio.gather(scene.finish(job.id, drains=2), _start_if_any(scene, job))
        job = await scene.finish(job.id)
        while job.counts.failed:
            await _start_if_any(scene, job)
            job = await scene.finish(job.id)
    assert operation.state == "done"
    assert job.counts.done == 3_000
    assert await scene.rows("SELECT count(*) FROM t") == [(3_000,)]
    assert await scene.rows("SELECT count(*), count(DISTINCT seq) FROM tidemill.item_fix") == [(1_500, 1_500)]


async def _start_if_any(scene: Scene, job: Job) -> None:
    with suppress(Conflict):  # a worker has all rows
        await start(scene, job, "n.type", KG)


async def test_repair_ends_with_reason_when_job_is_cancelled_meanwhile(scene: Scene) -> None:
    job = await weighed(scene, 2_200)
    with patch.object(repairs, "REPAIR_STEP_CHUNKS", 1):
        operation = await start(scene, job, "n.type", KG, timeout_s=0)
        operation = await step(scene, operation)
        assert operation.items == 1_000
        await cancel_job(scene.db, job.id)
        operation = await step(scene, operation)
    assert operation.state == "failed"
    assert "was cancelled or failed while the operation ran" in str(operation.error)
    job = await scene.finish(job.id)
    assert (job.counts.cancelled, job.counts.failed) == (1_000, 100)


async def test_repair_of_purged_import_is_refused(scene: Scene) -> None:
    job = await weighed(scene, 2)
    await rows(scene.db, "UPDATE tidemill.job SET purged_at = tidemill.now()")
    with pytest.raises(Conflict, match="was purged"):
        await start(scene, await job_of(scene.db, job.id), "n.type", KG)


async def test_mill_repair_and_preview_return_counts(scene: Scene) -> None:
    job = await weighed(scene, 10)
    preview = await scene.mill.preview_repair_async(job.id, "n.type", KG)
    assert (preview.rows, preview.valid, preview.examples[0].after) == (5, 5, {"n": "7"})
    assert await scene.mill.repair_async(job.id, "n.type", KG) == 5
    assert (await scene.finish(job.id)).counts.done == 10
    with pytest.raises(Conflict, match="has no failed rows"):
        await scene.mill.repair_async(job.id, "n.type", KG)


def faulty_csv(count: int, faults: int) -> str:
    """Return rows of which ``faults``, spread evenly, have one of three faults."""
    every = count // faults
    lines = ["id,n,day,land"]
    for row in range(count):
        fault = row // every % 3 if row % every == 0 else None
        lines.append(
            f"{row},{'7 kg' if fault == 0 else 7},{'31.12.2026' if fault == 1 else '2026-12-31'},"
            f"{'Germany' if fault == 2 else 'DE'}"
        )
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("count", "faults"), [(10_000, 400), pytest.param(1_000_000, 40_000, marks=pytest.mark.full)])
async def test_three_rules_repair_all_faults_and_leave_other_rows_untouched(
    scene: Scene, record_property: Callable[[str, object], None], count: int, faults: int
) -> None:
    await scene.table(
        "CREATE TABLE big (id int PRIMARY KEY, n int, day date, land text CHECK (length(land) = 2),"
        " at timestamptz NOT NULL DEFAULT clock_timestamp())"
    )
    job = await scene.run(faulty_csv(count, faults), "big", formats={"day": "plain"})
    assert (job.counts.done, job.counts.failed) == (count - faults, faults)
    await rows(scene.db, "CREATE TABLE before AS SELECT * FROM big")
    started = time.monotonic()
    cause_by_field = {code.partition(".")[0]: code for code in job.codes}
    rules: list[tuple[str, dict[str, Any]]] = [
        ("n", KG),
        ("day", {"type": "format", "format": "DD.MM.YYYY"}),
        ("land", {"type": "translate", "values": {"Germany": "DE"}}),
    ]
    repaired = [(await start(scene, job, cause_by_field[field], rule)).items for field, rule in rules]
    job = await scene.finish(job.id)
    seconds = time.monotonic() - started
    assert sum(repaired) == faults
    assert (job.counts.done, job.counts.failed) == (count, 0)
    assert await scene.rows("SELECT * FROM before EXCEPT SELECT * FROM big") == []
    assert await scene.rows("SELECT count(*), count(DISTINCT (n, day, land)), min(land) FROM big") == [(count, 1, "DE")]
    expected = f"SELECT g, 7, date '2026-12-31', 'DE' FROM generate_series(0, {count} - 1) AS g"
    assert await scene.rows(f"{expected} EXCEPT SELECT id, n, day, land FROM big") == []
    record_property("seconds", seconds)
    assert seconds < 60 or count < 1_000_000  # 29 s on two shared cores
