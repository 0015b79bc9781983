"""Watches on a local folder: which files are submitted, wait or are skipped, and where they are archived."""

import os
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from support import rows
from tidemill.watches import scanner as listing
from tidemill.watches import watch_records
from tidemill.watches.file_state import FileState, ListedFile
from tidemill.watches.watch_records import WatchScanResult
from watches.scenes import IMPORT, ROWS, TABLE, Scene

SEEN, SUBMITTED, PROCESSED, FAILED = FileState.SEEN, FileState.SUBMITTED, FileState.PROCESSED, FileState.FAILED


async def test_watched_file_becomes_job_and_is_archived_after_ingestion(scene: Scene) -> None:
    scene.declare('pattern = "*.csv"')
    scene.put("people.csv")
    first = await scene.scan()
    assert (first.result.found, first.result.submitted) == (1, 0)
    assert await scene.states() == {"people.csv": SEEN}
    second = await scene.scan()
    assert second.result.submitted == 1
    await scene.scan()
    assert await scene.states() == {"people.csv": SUBMITTED}, "no worker has ingested it yet"
    assert scene.there() == ["people.csv"]
    await scene.work()
    await scene.scan()
    assert await scene.states() == {"people.csv": PROCESSED}
    assert scene.there() == ["processed/people.csv"]
    assert [item["name"] for item in await scene.items()] == ["Ada", "Bob"]
    await scene.scan(times=2)
    assert await scene.jobs() == 1


@pytest.mark.needs_feature("imports")
async def test_watched_file_is_imported_with_options_of_its_watch(scene: Scene) -> None:
    await rows(scene.db, TABLE)
    options = (
        'mode = "upsert", key = ["email"], mapping = { "E-Mail" = "email" }, translations = { name = { A = "Ada" } }'
    )
    scene.declare(f'import = {{ resource = "public.people", {options} }}', 'layout = { delimiter = ";" }')
    scene.put("people.csv", "E-Mail;name\nada@x.org;A\n")
    await scene.whole_way()
    assert await scene.states() == {"people.csv": PROCESSED}
    assert await rows(scene.db, "SELECT * FROM public.people") == [("ada@x.org", "Ada")]


@pytest.mark.needs_feature("imports")
async def test_watched_file_with_ambiguous_values_is_refused_until_format_is_set(scene: Scene) -> None:
    await rows(scene.db, "CREATE TABLE public.people (email text PRIMARY KEY, credit numeric)")
    scene.declare('import = { resource = "public.people" }')
    scene.put("people.csv", "email;credit\nada@x.org;12.000\n")
    await scene.whole_way()
    ((reason,),) = await rows(scene.db, "SELECT note FROM tidemill.watch_file")
    assert '"12.000" is "12000" (decimal-comma) or "12.000" (decimal-point)' in reason
    assert await rows(scene.db, "SELECT count(*) FROM public.people") == [(0,)]
    scene.declare('import = { resource = "public.people", formats = { credit = "decimal-comma" } }')
    scene.put("again.csv", "email;credit\nada@x.org;12.000\n")
    await scene.whole_way()
    assert await rows(scene.db, "SELECT credit::text FROM public.people") == [("12000",)]


@pytest.mark.needs_feature("imports")
async def test_watch_sets_constant_that_its_resource_requires_and_a_file_cannot_set_it(scene: Scene) -> None:
    await rows(scene.db, "CREATE TABLE public.people (tenant_id integer, email text, PRIMARY KEY (tenant_id, email))")
    rules = 'constants = { tenant_id = 7 }, computed = { email = "lower(email)" }, skip = ["email contains \'test\'"]'
    resource = '[resources.people]\ntable = "public.people"\nconstants = { tenant_id = { from = "application" } }'
    scene.declare(f'import = {{ resource = "people", {rules} }}', resource)
    scene.put("people.csv", "email\nADA@x.org\ntest@x.org\n")
    scene.put("foreign.csv", "email,tenant_id\neve@x.org,8\n")
    await scene.whole_way()
    assert await rows(scene.db, "SELECT * FROM public.people") == [(7, "ada@x.org")]
    notes = await rows(scene.db, "SELECT note FROM tidemill.watch_file WHERE path = 'foreign.csv'")
    assert 'Column "tenant_id" cannot be imported' in notes[0][0]


async def test_changing_file_is_submitted_only_when_stable(scene: Scene) -> None:
    scene.declare()
    for size in (1, 2, 3):
        scene.put("growing.csv", ROWS * size, mtime=1_000 + size)
        assert (await scene.scan()).result.submitted == 0
    assert (await scene.scan()).result.submitted == 1
    assert len(await scene.files()) == 1, "versions that were not submitted leave no record"


async def test_file_is_not_submitted_before_stable_for_elapses(scene: Scene) -> None:
    scene.declare('stable_for = "1h"', wait=True)
    scene.put("a.csv")
    assert (await scene.scan(times=3)).result.submitted == 0
    await rows(scene.db, "UPDATE tidemill.watch_file SET seen_at = seen_at - interval '1 hour'")
    assert (await scene.scan()).result.submitted == 1


async def test_empty_file_waits_for_content(scene: Scene) -> None:
    scene.declare()
    scene.put("a.csv", b"")
    assert (await scene.scan(times=3)).result.submitted == 0
    assert (await scene.files())["a.csv"].note == "The file is empty; waiting for content"
    scene.put("a.csv")
    await scene.scan()
    assert (await scene.files())["a.csv"].note == "Waiting until the file stops changing"
    assert (await scene.scan()).result.submitted == 1


async def test_file_of_watch_with_marker_is_submitted_when_marker_exists(scene: Scene) -> None:
    scene.declare('marker = ".done"')
    scene.put("a.csv")
    scene.put("b.csv")
    assert (await scene.scan(times=3)).result.submitted == 0
    scene.put("a.csv.done", b"")
    assert (await scene.scan()).result.submitted == 1
    await scene.work()
    await scene.scan()
    assert scene.there() == ["b.csv", "processed/a.csv", "processed/a.csv.done"]


async def test_hidden_and_temporary_files_are_skipped(scene: Scene) -> None:
    scene.declare()
    for name in (".hidden.csv", "a.csv.part", "b.tmp", "c.csv.filepart", "d.csv~", "below/e.csv"):
        scene.put(name)
    assert (await scene.scan(times=2)).result.found == 0
    assert await scene.files() == {}


async def test_subfolders_are_scanned_when_pattern_is_recursive(scene: Scene) -> None:
    scene.declare('pattern = "**/*.csv"')
    for name in ("a.csv", "x/b.csv", "x/y/c.csv", "x/.git/d.csv", "processed/old.csv", "failed/old.csv"):
        scene.put(name)
    await scene.whole_way()
    assert scene.there() == [
        *("failed/old.csv", "processed/a.csv", "processed/old.csv", "processed/x/b.csv", "processed/x/y/c.csv"),
        "x/.git/d.csv",
    ]


async def test_file_archived_by_nested_watch_is_not_submitted_again(scene: Scene) -> None:
    scene.declare(name="daily", source='"inbox/daily"')
    scene.put("daily/a.csv")
    await scene.scan(times=2, name="daily")
    await scene.work()
    await scene.scan(name="daily")
    scene.drop("daily")
    scene.declare('pattern = "**/*.csv"')
    await scene.whole_way()
    assert (scene.there(), await scene.jobs()) == (["daily/processed/a.csv"], 1)


@pytest.mark.needs_feature("imports")
async def test_rejected_file_moves_to_failed_folder_and_others_continue(scene: Scene) -> None:
    await rows(scene.db, TABLE)
    scene.declare(IMPORT)
    scene.put("bad.csv", "colour\nred\n")
    scene.put("good.csv")
    await scene.whole_way()
    files = await scene.files()
    assert (files["bad.csv"].state, files["good.csv"].state) == (FAILED, PROCESSED)
    assert "colour" in str(files["bad.csv"].note)
    assert scene.there() == ["failed/bad.csv", "processed/good.csv"]


async def test_file_moves_to_failed_folder_when_its_job_cannot_read_it(scene: Scene) -> None:
    scene.declare('layout = { format = "json" }')
    scene.put("broken.json", '[{"a": 1}, {"a": ')
    await scene.whole_way()
    file = (await scene.files())["broken.json"]
    assert file.state is FAILED
    assert "Invalid JSON" in str(file.note)
    assert scene.there() == ["failed/broken.json"]


@pytest.mark.needs_feature("imports")
async def test_failed_file_is_submitted_again_only_when_scan_requests_retry(scene: Scene) -> None:
    await rows(scene.db, TABLE)
    scene.declare(IMPORT)
    path = scene.put("a.csv", "mail,name\nada@x.org,Ada\n")
    await scene.whole_way()
    (scene.inbox / "failed" / "a.csv").rename(path)
    await scene.scan(times=2)
    assert await scene.states() == {"a.csv": FAILED}, "a failed file is not retried automatically"
    scene.declare('import = { resource = "public.people", mapping = { mail = "email" } }')
    assert (await scene.scan(retry_failed=True)).result.submitted == 1
    await scene.work()
    await scene.scan()
    assert await scene.states() == {"a.csv": PROCESSED}
    assert scene.there() == ["processed/a.csv"]


async def test_retry_of_ten_thousand_failed_files_is_not_quadratic(scene: Scene) -> None:
    many = 10_000
    made = "SELECT 'nightly', 'folder:inbox', 'f' || i, 1, i::text, 'failed' FROM generate_series(1, %s) i"
    await rows(scene.db, f"INSERT INTO tidemill.watch_file (watch, source, path, size, version, state) {made}", many)
    await rows(scene.db, "UPDATE tidemill.watch_file SET state = 'seen', version = 'new' WHERE path = 'f1'")
    await rows(
        scene.db, f"INSERT INTO tidemill.watch_file (watch, source, path, size, version, state) {made} LIMIT 1", many
    )
    listed = [ListedFile(f"f{number}", 1, str(number) if number > 2 else "other") for number in range(1, many + 1)]
    listed.append(ListedFile("f1", 1, "1"))
    began = time.monotonic()
    scope = watch_records.WatchScope("nightly", "folder:inbox")
    assert await scene.db.run(watch_records.requeue_failed_files, scope, listed, "Retrying") == many - 2, (
        "one file waits already, one has another version"
    )
    assert time.monotonic() - began < 15, "a pairwise comparison takes 30 s"


async def test_file_with_new_mtime_is_submitted_again(scene: Scene) -> None:
    scene.declare()
    scene.put("a.csv", mtime=1_000)
    await scene.whole_way()
    scene.put("a.csv", mtime=1_000)
    await scene.scan(times=2)
    assert await scene.jobs() == 1, "the same version is not submitted again"
    scene.put("a.csv", mtime=2_000)
    await scene.whole_way()
    assert await scene.jobs() == 2


async def test_archived_file_gets_suffix_when_name_exists(scene: Scene) -> None:
    scene.declare()
    scene.put("processed/a.csv", "older")
    scene.put("a.csv")
    await scene.whole_way()
    one, other = scene.there()
    assert re.fullmatch(r"processed/a\.\d+\.csv", one)
    assert other == "processed/a.csv"
    assert (scene.inbox / other).read_text() == "older"


async def test_replaced_file_is_not_archived_with_old_version(scene: Scene) -> None:
    scene.declare()
    scene.put("a.csv", mtime=1_000)
    await scene.scan(times=2)
    await scene.work()
    scene.put("a.csv", ROWS + "cy@x.org,Cy\n", mtime=2_000)
    await scene.scan()
    assert scene.there() == ["a.csv"]
    await scene.whole_way()
    assert scene.there() == ["processed/a.csv"]
    assert await scene.jobs() == 2


async def test_processed_file_stays_when_moves_is_false(scene: Scene) -> None:
    scene.declare("moves = false")
    scene.put("a.csv")
    await scene.whole_way()
    await scene.scan(times=2)
    assert (await scene.states(), scene.there(), await scene.jobs()) == ({"a.csv": PROCESSED}, ["a.csv"], 1)


async def test_vanished_file_is_marked_gone_and_may_return(scene: Scene) -> None:
    scene.declare()
    path = scene.put("a.csv", mtime=1_000)
    await scene.scan()
    path.unlink()
    await scene.scan()
    assert await scene.states() == {"a.csv": FileState.GONE}
    scene.put("a.csv", mtime=1_000)
    assert (await scene.scan(times=2)).result.submitted == 1


async def test_links_outside_folder_and_special_files_are_refused_with_reason(scene: Scene, tmp_path: Path) -> None:
    scene.declare()
    secret = tmp_path / "secret.csv"
    secret.write_text(ROWS)
    (scene.inbox / "link.csv").symlink_to(secret)
    (scene.inbox / "folder.csv").symlink_to(tmp_path)
    (scene.inbox / "loop.csv").symlink_to(scene.inbox / "loop.csv")
    os.mkfifo(scene.inbox / "pipe.csv")
    scene.put("good.csv")
    (scene.inbox / "inside.csv").symlink_to(scene.inbox / "good.csv")
    scene.put(os.fsdecode(b"caf\xe9.csv"))
    scene.put("two\nlines.csv")
    await scene.whole_way()
    files = await scene.files()
    assert files["good.csv"].state is files["inside.csv"].state is PROCESSED
    assert files.pop("link.csv").note == "The symbolic link points outside the watched folder"
    assert files.pop("pipe.csv").note == "Not a regular file"
    odd = [file for file in files.values() if file.state is FileState.REFUSED]
    assert len(odd) == 2
    assert all("rename the file" in str(file.note) and file.path.isprintable() for file in odd)
    assert secret.read_text() == ROWS
    assert len(await scene.items()) == 4


async def test_oversized_file_moves_to_failed_folder(scene: Scene) -> None:
    scene.declare()
    scene.put("big.csv", ROWS + "x" * (2 << 20))
    scanner = scene.scanner(max_file_size_mb=1)
    for _ in range(3):
        await scanner.scan_watch("nightly")
    file = (await scene.files())["big.csv"]
    assert (file.state, file.note) == (FAILED, "The file is larger than 1 MB")
    assert scene.there() == ["failed/big.csv"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
async def test_file_without_read_permission_does_not_stop_others(scene: Scene) -> None:
    scene.declare()
    scene.put("a.csv").chmod(0)
    scene.put("b.csv")
    result = (await scene.scan(times=2)).result
    assert result.submitted == 1
    assert "a.csv" in str(result.problem)


async def test_file_names_with_special_characters_are_processed(scene: Scene) -> None:
    scene.declare()
    for name in ("a#b.csv", "100%.csv", "it's; DROP.csv", "[x]*.csv"):
        scene.put(name)
    await scene.whole_way()
    assert set((await scene.states()).values()) == {PROCESSED}
    assert len(scene.there()) == 4


async def test_scan_submits_at_most_scan_max_files(scene: Scene) -> None:
    scene.declare("moves = false")
    for number in range(10_000):
        (scene.inbox / f"{number:05}.csv").write_bytes(b"")
    for number in range(30):
        scene.put(f"{number:05}.csv")
    scanner = scene.scanner(scan_max_files=20)
    assert (await scanner.scan_watch("nightly")).result.found == 10_000
    assert [(await scanner.scan_watch("nightly")).result.submitted for _ in range(2)] == [20, 10]


async def test_interrupted_scan_reports_progress_and_next_scan_continues(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.declare()
    for name in "abc":
        scene.put(f"{name}.csv")
    cut = await scene.scan(should_continue=lambda: False)
    assert (cut.result.found, cut.problem) == (0, listing.LISTING_UNFINISHED_MESSAGE)
    await scene.scan()
    submitted: list[object] = []
    monkeypatch.setattr(watch_records, "mark_file_submitted", noted(watch_records.mark_file_submitted, submitted))
    cut = await scene.scan(should_continue=lambda: not submitted)
    assert (cut.result.found, cut.result.submitted) == (3, 1)
    assert cut.problem == "The scan ran out of time before it submitted all files; the next scan continues"
    assert (await rows(scene.db, "SELECT problem FROM tidemill.watch")) == [
        (None,)
    ]  # running out of time is no problem
    complete = await scene.scan()
    assert (complete.result.submitted, complete.problem) == (2, None)


def noted(verb: Callable[..., Awaitable[Any]], calls: list[object]) -> Callable[..., Awaitable[Any]]:
    async def call(*args: Any) -> Any:
        calls.append(args)
        return await verb(*args)

    return call


async def test_folder_above_listing_limit_is_reported_and_processed_in_steps(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.declare()
    monkeypatch.setattr(listing, "LISTED_FILES_MAX", 3)
    for number in range(5):
        scene.put(f"{number}.csv")
    assert "more than 3 files" in str((await scene.scan()).result.problem)
    for _ in range(4):
        await scene.whole_way()
    assert len([name for name in scene.there() if name.startswith("processed/")]) == 5


@pytest.mark.needs_feature("imports")
async def test_misconfigured_watch_reports_problem_and_files_wait(scene: Scene) -> None:
    for wrong, reason in (
        ('job = { kind = "unknown.kind" }', "unknown.kind"),
        ('import = { resource = "public.nothing" }', "public.nothing"),
        ('owner = "zoe"', "zoe"),
    ):
        scene.declare(wrong)
        scene.put("a.csv")
        assert reason in str((await scene.scan(times=2)).result.problem)
        assert await scene.states() == {"a.csv": SEEN}
    scene.declare()
    assert (await scene.scan()).result.problem is None
    assert await scene.states() == {"a.csv": SUBMITTED}


async def test_missing_folder_is_reported_until_it_exists(scene: Scene) -> None:
    scene.declare(source='"inbox/later"')
    assert "does not exist" in str((await scene.scan()).result.problem)
    scene.put("later/a.csv")
    assert (await scene.scan(times=2)).result == WatchScanResult(looked=True, found=1, submitted=1, delay=60.0)
