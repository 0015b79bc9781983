"""Rows of one file with the same key: the row number decides which is imported, not batches or workers."""

import errno
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from imports.scenes import Scene, look_at, small_batches, with_fields
from support import rows
from tidemill.engine.ingester import Ingester
from tidemill.imports import key_index
from tidemill.jobs.reprocessing import run_dead_letter_operation
from tidemill.testing import drain


def file_of(count: int, distinct: int) -> tuple[str, dict[int, list[int]]]:
    """Rows whose keys repeat, and the rows of each key."""
    wanted: dict[int, list[int]] = {}
    rng, lines = random.Random(7), []
    for row in range(1, count + 1):
        key = rng.randrange(distinct)
        wanted.setdefault(key, []).append(row)
        lines.append(f"{key},{row}")
    return "k,row\n" + "\n".join(lines) + "\n", wanted


@pytest.mark.parametrize("mode", ["insert", "upsert"])
@pytest.mark.parametrize("duplicates", ["first", "last", "error"])
async def test_duplicate_policy_picks_same_row_across_batches_and_workers(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, mode: str, duplicates: str
) -> None:
    small_batches(monkeypatch, 20)
    monkeypatch.setattr(key_index, "RECENT_KEYS_MAX", 50)
    await scene.table("CREATE TABLE t (k int PRIMARY KEY, row int)")
    text, wanted = file_of(600, 250)
    job = await scene.finish(await scene.submit(text, "t", mode=mode, duplicates=duplicates), drains=2)
    chosen = {key: found[-1] if duplicates == "last" else found[0] for key, found in wanted.items()}
    assert dict(await scene.rows("SELECT k, row FROM t")) == chosen
    losers = sorted(row for key, found in wanted.items() for row in found if row != chosen[key])
    status = "failed" if duplicates == "error" else "skipped"
    assert [(row, said) for row, said, _ in await scene.outcomes(job)] == [(row, status) for row in losers]
    assert job.status == ("completed_with_errors" if duplicates == "error" else "completed")


async def test_key_spellings_of_equal_values_count_as_duplicates(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    small_batches(monkeypatch, 1)
    await scene.table("CREATE TABLE t (id int, at timestamptz, n numeric(6,2), row int, PRIMARY KEY (id, at, n))")
    text = "id,at,n,row\n7,2026-01-01T00:00:00Z,1.5,1\n007,2026-01-01 01:00:00+01:00,1.50,2\n+7,2026-01-01,1.499,3\n"
    job = await scene.run(text, "t", mode="upsert", duplicates="last")
    assert await scene.rows("SELECT row FROM t") == [(3,)]
    assert [(row, status) for row, status, _ in await scene.outcomes(job)] == [(1, "skipped"), (2, "skipped")]


@pytest.mark.parametrize("duplicates", ["first", "error"])
@pytest.mark.parametrize("digits", [29, 38, 6_000])
async def test_numeric_keys_differing_in_last_digit_are_not_duplicates(
    scene: Scene, duplicates: str, digits: int
) -> None:
    await scene.table("CREATE TABLE t (k numeric PRIMARY KEY, f numeric UNIQUE, whole numeric(38, 0) UNIQUE)")
    ones, id_ = "1" * digits, "1" * 37
    text = f"k,f,whole\n{ones}1,0.{ones}1,{id_}1\n{ones}2,0.{ones}2,{id_}2\n-0,0.{ones}20,\n0.0,,\n"
    job = await scene.run(text, "t", duplicates=duplicates)
    assert [row for row, *_ in await scene.outcomes(job)] == [3, 4]
    assert await scene.count("t") == 2


@pytest.mark.parametrize("batch", [1, 100])
@pytest.mark.parametrize(("kind", "number"), [("numeric", "0.12345678901234567890"), ("text", "2.50")])
@pytest.mark.parametrize("duplicates", ["first", "last", "error"])
async def test_json_number_key_keeps_all_digits_when_duplicates_are_detected(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, duplicates: str, kind: str, number: str, batch: int
) -> None:
    small_batches(monkeypatch, batch)
    for mode in ("insert", "upsert"):
        await scene.table("DROP TABLE IF EXISTS t", f"CREATE TABLE t (k {kind} PRIMARY KEY, row int)")
        text = "".join(f'{{"k": {number}, "row": {row}}}\n' for row in (1, 2))
        job = await scene.run(text, "t", name="n.ndjson", mode=mode, duplicates=duplicates)
        winner, loser = (2, 1) if duplicates == "last" else (1, 2)
        assert await scene.rows("SELECT k::text, row FROM t") == [(number, winner)]
        status = "failed" if duplicates == "error" else "skipped"
        assert [(row, said) for row, said, _ in await scene.outcomes(job)] == [(loser, status)]


async def test_timestamp_keys_outside_python_range_are_compared_correctly(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (at timestamptz PRIMARY KEY, row int)")
    moments = ["9999-12-31T23:59:59-12:00", "9999-12-31T23:59:58-12:00", "0001-01-01T00:00:00+14:00", "infinity"]
    moments += ["9999-12-31T23:59:59.999999Z", "-infinity", "0001-01-01T00:00:00Z", "2024-01-01T00:00:00Z"]
    moments += ["2024-01-01T01:00:00+01:00"]
    text = "at,row\n" + "".join(f"{one},{row}\n" for row, one in enumerate(moments, 1))
    job = await scene.run(text, "t", duplicates="first")
    assert [(row, status) for row, status, _ in await scene.outcomes(job)] == [(9, "skipped")]
    assert await scene.count("t") == 8


async def test_timestamp_key_in_other_zone_is_duplicate_in_rounding_column(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch, 1)
    await scene.table("CREATE TABLE t (at timestamptz(3) PRIMARY KEY, row int)")
    text = "at,row\n2024-01-01T00:00:00Z,1\n2024-01-01T01:00:00+01:00,2\n"
    job = await scene.run(text, "t", duplicates="last")
    assert [(row, status) for row, status, _ in await scene.outcomes(job)] == [(1, "skipped")]
    assert await scene.rows("SELECT row FROM t") == [(2,)]


def on_a_full_device(**_: int) -> BinaryIO:
    """Open a device that is always full."""
    return Path("/dev/full").open("r+b", buffering=0)


def nowhere(**_: int) -> BinaryIO:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("make", [on_a_full_device, nowhere])
async def test_key_index_on_full_disk_fails_import_and_redrive_completes_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, make: Callable[..., BinaryIO]
) -> None:
    """The redriven import continues where it stopped."""
    await scene.table("CREATE TABLE t (k int PRIMARY KEY, row int)")
    text, wanted = file_of(400, 100)
    with monkeypatch.context() as patch:
        patch.setattr(key_index, "RECENT_KEYS_MAX", 10)
        patch.setattr("tempfile.TemporaryFile", make)
        job = await scene.run(text, "t", duplicates="last")
    assert job.status == "failed"
    assert job.failure_reason is not None
    assert job.failure_reason.startswith("Cannot write keys to ")
    assert job.failure_reason.endswith("No space left on device")
    await run_dead_letter_operation(scene.db, owner_id=None, filters={"jobs": [str(job.id)]})
    again = await scene.finish(job.id)
    assert (again.status, again.counts.done) == ("completed", len(wanted))
    assert dict(await scene.rows("SELECT k, row FROM t")) == {key: found[-1] for key, found in wanted.items()}


@pytest.mark.parametrize("mode", ["insert", "upsert"])
async def test_missing_key_takes_field_default_when_empty_values_are_kept(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    small_batches(monkeypatch, 1)
    await scene.table("CREATE TABLE t (k text UNIQUE, row int)")
    resource = with_fields(await look_at(scene.db, "t"), k={"default": "x"})
    text = '{"row": 1}\n{"row": 2, "k": "x"}\n{"row": 3, "k": null}\n{"row": 4}\n'
    asked = {"name": "n.ndjson", "key": ("k",), "duplicates": "first", "keep_empty": True, "mode": mode}
    job = await scene.run(text, "t", resource=resource, **asked)
    assert [(row, said) for row, said, _ in await scene.outcomes(job)] == [(2, "skipped"), (4, "skipped")]
    assert await scene.rows("SELECT k, row FROM t ORDER BY row") == [("x", 1), (None, 3)]


async def test_uuid_key_spellings_count_as_duplicates(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    small_batches(monkeypatch, 1)
    await scene.table("CREATE TABLE t (id uuid PRIMARY KEY, row int)")
    plain = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    spelled = [plain, plain.upper(), plain.replace("-", ""), f"{{{plain}}}", "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11"]
    text = "id,row\n" + "".join(f"{one},{row}\n" for row, one in enumerate(spelled, 1))
    job = await scene.run(text, "t")
    assert await scene.errors(job) == [(row, "id.duplicate") for row in range(2, len(spelled) + 1)]


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize("mode", ["insert", "upsert"])
async def test_null_keys_count_as_duplicates_with_nulls_not_distinct(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, mode: str, validate_only: bool
) -> None:
    small_batches(monkeypatch, 2)
    await scene.table(
        "CREATE TABLE t (id int PRIMARY KEY, a text, b text, UNIQUE NULLS NOT DISTINCT (a, b), plain text UNIQUE)",
        "INSERT INTO t VALUES (1, NULL, 'x'), (2, NULL, NULL)",
    )
    text = "id,a,b,plain\n10,,x,\n11,,,\n12,,y,\n13,,y,\n14,q,,\n15,q,,\n16,q,r,\n2,,,\n"
    job = await scene.run(text, "t", mode=mode, validate_only=validate_only)
    there = [(8, "id.exists")] if mode == "insert" else [(8, "a, b.duplicate")]
    found = await scene.errors(job)
    assert found[:4] == [(1, "a, b.exists"), (2, "a, b.exists"), (4, "a, b.duplicate"), (6, "a, b.duplicate")]
    assert [row for row, _ in found[4:]] == [row for row, _ in there]


@pytest.mark.parametrize("mode", ["insert", "upsert"])
async def test_declared_unique_field_is_checked_without_unique_index(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    small_batches(monkeypatch, 2)
    await scene.table("CREATE TABLE t (id int PRIMARY KEY, name text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    found = await look_at(scene.db, "t")
    resource = replace(found, unique=(*found.unique, ("name",)))
    job = await scene.run("id,name\n10,a\n11,c\n12,b\n13,d\n", "t", resource=resource, mode=mode)
    assert await scene.errors(job) == [(1, "name.exists"), (3, "name.exists")]


async def test_requested_key_is_checked_without_unique_index(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (id int PRIMARY KEY, name text)", "INSERT INTO t VALUES (1, 'a')")
    job = await scene.run("id,name\n10,a\n11,c\n", "t", key=("name",))
    assert await scene.errors(job) == [(1, "name.exists")]


async def test_resumed_ingest_detects_duplicates_of_rows_already_stored(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.table("CREATE TABLE t (k int PRIMARY KEY, row int)")
    text, wanted = file_of(400, 100)
    job_id = await scene.submit(text, "t", duplicates="last")
    appended: list[int] = []
    append = Ingester._append_chunk

    async def stumbling(self: Ingester, *args: object) -> bool:
        if len(appended) == 1:
            appended.append(1)
            raise RuntimeError("stumbled")
        appended.append(1)
        return await append(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Ingester, "_append_chunk", stumbling)
    quick = scene.settings.model_copy(update={"ingest_max_rows": 50})
    scene.mill.settings = quick
    with pytest.raises(RuntimeError):
        await drain(scene.mill, db=scene.db)
    stored = (await rows(scene.db, "SELECT count(*) FROM tidemill.item"))[0][0]
    assert 0 < stored < 400
    await scene.finish(job_id)
    assert dict(await scene.rows("SELECT k, row FROM t")) == {key: found[-1] for key, found in wanted.items()}


async def test_duplicate_in_second_unique_column_fails_row_despite_first_policy(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (id int PRIMARY KEY, code text UNIQUE)")
    job = await scene.run("id,code\n1,a\n2,a\n2,b\n3,\n4,\n", "t", duplicates="first")
    assert [(row, status) for row, status, _ in await scene.outcomes(job)] == [(2, "failed"), (3, "skipped")]
    assert await scene.rows("SELECT id, code FROM t ORDER BY 1") == [(1, "a"), (3, None), (4, None)]
