"""The comparison of the ledgers of one job."""

from collections import Counter
from dataclasses import replace
from uuid import UUID

import pytest

from tidemill.torture.client import ClientJob
from tidemill.torture.ledgers import StoredJob, compare_file, compare_ledgers
from tidemill.torture.plan import IMPORT_INSERT, IMPORT_UPSERT
from tidemill.torture.workload import DENSE_KIND

FATES = ["done", "retry", "fail", "skip"]
JOB = ClientJob(UUID(int=1), DENSE_KIND, 4, "key", FATES)
SOUND = StoredJob(
    total=4,
    statuses=dict(enumerate(["done", "done", "failed", "skipped"])),
    codes={2: "torture"},
    results={0: {"n": 0}, 1: {"n": 1}},
    effects=Counter({0: 1, 1: 1}),
)


def classes(job: ClientJob, stored: StoredJob | None, outside: set[int]) -> list[tuple[str, int | None]]:
    return [(violation.what, violation.seq) for violation in compare_ledgers(job, stored, outside)]


def test_equal_ledgers_have_no_violation() -> None:
    assert classes(JOB, SOUND, {0, 1}) == []


@pytest.mark.parametrize(
    ("stored", "outside", "found"),
    [
        (None, {0, 1}, [("lost", None)]),
        (replace(SOUND, total=3, statuses=dict(enumerate(["done"] * 3))), {0, 1}, [("lost", None)]),
        (replace(SOUND, total=5, statuses=dict(enumerate(["done"] * 5))), {0, 1}, [("doubled", None)]),
        (replace(SOUND, effects=Counter({1: 1})), {0, 1}, [("lost", 0)]),
        (replace(SOUND, effects=Counter({0: 2, 1: 1})), {0, 1}, [("doubled", 0)]),
        (replace(SOUND, effects=Counter({0: 1, 1: 1, 2: 1})), {0, 1}, [("doubled", 2)]),
        (SOUND, {0}, [("lost", 1)]),
        (replace(SOUND, results={0: {"n": 0}, 1: {"n": 0}}), {0, 1}, [("lost", 1)]),
        (replace(SOUND, statuses=SOUND.statuses | {3: None}), {0, 1}, [("lost", 3)]),
        (replace(SOUND, statuses=SOUND.statuses | {3: "cancelled"}), {0, 1}, [("lost", 3)]),
    ],
)
def test_difference_between_ledgers_is_a_violation(
    stored: StoredJob | None, outside: set[int], found: list[tuple[str, int | None]]
) -> None:
    assert classes(JOB, stored, outside) == found


def test_cancelled_items_are_expected_after_a_cancel() -> None:
    job = replace(JOB, may_be_cancelled=True)
    assert classes(job, replace(SOUND, statuses=SOUND.statuses | {3: "cancelled"}), {0, 1}) == []


def test_imported_rows_must_equal_done_items() -> None:
    job = ClientJob(UUID(int=1), IMPORT_INSERT, 3, "key", ["done", "done", "fail"])
    stored = StoredJob(total=3, statuses=dict(enumerate(["done", "done", "failed"])), rows={0, 2}, inserted=2)
    assert classes(job, stored, set()) == [("lost", 1), ("doubled", 2)]


def test_import_that_updates_its_own_rows_is_doubled() -> None:
    job = ClientJob(UUID(int=1), IMPORT_UPSERT, 1, "key", ["done"])
    stored = StoredJob(total=1, statuses={0: "done"}, rows={0}, inserted=1, updated=1)
    assert classes(job, stored, set()) == [("doubled", None)]


def test_missing_and_repeated_lines_of_a_file_are_violations() -> None:
    found = [violation.what for violation in compare_file(JOB, 0, ["n", "1", "1"], ["n", "1", "2"])]
    assert found == ["lost", "doubled"]


def test_rows_that_a_cancelled_job_did_not_read_are_not_lost() -> None:
    stored = StoredJob(total=2, statuses={0: "done", 1: "cancelled"}, effects=Counter({0: 1}), results={0: {"n": 0}})
    assert classes(replace(JOB, may_be_cancelled=True), stored, {0}) == []
    assert classes(JOB, stored, {0}) == [("lost", None)]
