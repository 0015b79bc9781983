"""Tests of job and item statuses, and that SQL uses the same ones."""

import itertools
import re

import pytest

from tidemill.core.status import (
    ITEM_STATUS_TRANSITIONS,
    TERMINAL_ITEM_STATUSES,
    Intent,
    ItemStatus,
    JobStatus,
    derive_closing_status,
    derive_job_status,
    parse_item_status,
)
from tidemill.store.migrate import list_migrations

J, W, S = JobStatus, Intent, ItemStatus
CLOSED = {J.COMPLETED, J.COMPLETED_WITH_ERRORS, J.FAILED, J.CANCELLED}
OPEN_OUTCOMES = {S.PENDING, S.RETRY_WAIT}


@pytest.mark.parametrize(
    ("intent", "ingest_done", "total", "started", "status"),
    [
        (W.RUN, False, 0, False, J.PENDING),
        (W.RUN, False, 5, False, J.INGESTING),
        (W.RUN, False, 5, True, J.INGESTING),
        (W.RUN, True, 0, False, J.PENDING),
        (W.RUN, True, 5, False, J.PENDING),
        (W.RUN, True, 5, True, J.RUNNING),
        (W.PAUSE, False, 0, False, J.PAUSED),
        (W.PAUSE, True, 5, True, J.PAUSED),
        (W.CANCEL, True, 5, True, J.CANCELLING),
        (W.CANCEL, False, 0, False, J.CANCELLING),
        (W.FAIL, True, 5, True, J.CANCELLING),
    ],
)
def test_open_job_status_is_derived_from_intent_and_progress(
    intent: Intent, ingest_done: bool, total: int, started: bool, status: JobStatus
) -> None:
    assert (
        derive_job_status(intent=intent, ingest_done=ingest_done, closed_as=None, total=total, started=started)
        is status
    )


@pytest.mark.parametrize(("intent", "closed_as"), list(itertools.product(Intent, sorted(CLOSED))))
def test_closed_job_status_is_closed_as_regardless_of_intent(intent: Intent, closed_as: JobStatus) -> None:
    for ingest_done, total, started in itertools.product((True, False), (0, 5), (True, False)):
        shown = derive_job_status(
            intent=intent, ingest_done=ingest_done, closed_as=closed_as, total=total, started=started
        )
        assert shown is closed_as


@pytest.mark.parametrize(
    ("intent", "failed", "status"),
    [
        (W.RUN, 0, J.COMPLETED),
        (W.RUN, 1, J.COMPLETED_WITH_ERRORS),
        (W.PAUSE, 0, J.COMPLETED),
        (W.PAUSE, 3, J.COMPLETED_WITH_ERRORS),
        (W.CANCEL, 0, J.CANCELLED),
        (W.CANCEL, 5, J.CANCELLED),
        (W.FAIL, 0, J.FAILED),
        (W.FAIL, 5, J.FAILED),
    ],
)
def test_closing_status_is_derived_from_intent_and_failures(intent: Intent, failed: int, status: JobStatus) -> None:
    assert derive_closing_status(intent=intent, failed=failed) is status


SYNONYMS = {
    S.FAILED: ("error", "ERROR", "dlq", "DLQ", "dead", "dead_letter", "Dead-Letter", "dead letter"),
    S.DONE: ("succeeded", "SUCCEEDED", "success", "completed", "COMPLETED"),
    S.PENDING: ("submitted", "SUBMITTED", "queued"),
    S.PROCESSING: ("running", "RUNNING"),
    S.RETRY_WAIT: ("retrying", "retry-wait", "Retry Wait"),
    S.CANCELLED: ("canceled", "CANCELED"),
    S.NOT_FOUND: ("NOT_FOUND", "not-found", " not found "),
    S.SKIPPED: ("Skipped",),
}


@pytest.mark.parametrize(("word", "status"), [(word, status) for status, words in SYNONYMS.items() for word in words])
def test_item_status_synonyms_are_parsed(word: str, status: ItemStatus) -> None:
    assert parse_item_status(word) is status


@pytest.mark.parametrize("status", ItemStatus)
def test_item_status_is_parsed_case_insensitively(status: ItemStatus) -> None:
    assert parse_item_status(status) is parse_item_status(status.upper()) is status


@pytest.mark.parametrize("word", ["", "  ", "doen", "null", "failed,done"])
def test_unknown_item_status_error_lists_valid_statuses(word: str) -> None:
    with pytest.raises(ValueError, match=r"unknown status .*; must be one of pending, processing, retry_wait, done"):
        parse_item_status(word)


def test_every_item_status_has_transitions() -> None:
    assert set(ITEM_STATUS_TRANSITIONS) == set(ItemStatus)
    assert all(ITEM_STATUS_TRANSITIONS.values()), "every settled item can be reprocessed"


def test_terminal_item_status_can_only_become_pending() -> None:
    assert all(ITEM_STATUS_TRANSITIONS[status] == {S.PENDING} for status in TERMINAL_ITEM_STATUSES)


def test_every_item_status_is_reachable_from_pending() -> None:
    reached, fresh = {S.PENDING}, {S.PENDING}
    while fresh:
        fresh = set().union(*(ITEM_STATUS_TRANSITIONS[status] for status in fresh)) - reached
        reached |= fresh
    assert reached == set(ItemStatus)


def checked_words(column: str) -> list[set[str]]:
    """Return the values of every CHECK (column IN (...)) of the migrations."""
    text = b"\n".join(migration.text for migration in list_migrations()).decode()
    found = re.findall(rf"CHECK \({column} IN\s*\(([^)]*)\)\)", text)
    return [set(re.findall(r"'(\w+)'", words)) for words in found]


def test_database_check_constraints_list_same_statuses() -> None:
    assert checked_words("intent") == [set(Intent)]
    assert checked_words("closed_as") == [CLOSED]
    # `processing` is never stored: it is derived from the lease of the batch.
    undo_row_statuses = {"kept", "blocked"}
    assert checked_words("status") == [TERMINAL_ITEM_STATUSES | OPEN_OUTCOMES, undo_row_statuses]
    assert set(ItemStatus) - TERMINAL_ITEM_STATUSES - OPEN_OUTCOMES == {S.PROCESSING}
