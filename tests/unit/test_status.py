"""The words for jobs and items, and that SQL uses the same ones."""

import itertools
import re

import pytest

from tidemill.domain.status import (
    TERMINAL,
    TRANSITIONS,
    Intent,
    ItemStatus,
    JobStatus,
    closing_status,
    job_status,
    parse_item_status,
)
from tidemill.store.migrate import migrations

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
def test_an_open_job_is_shown_as_one_word(
    intent: Intent, ingest_done: bool, total: int, started: bool, status: JobStatus
) -> None:
    assert job_status(intent=intent, ingest_done=ingest_done, closed_as=None, total=total, started=started) is status


@pytest.mark.parametrize(("intent", "closed_as"), list(itertools.product(Intent, sorted(CLOSED))))
def test_a_closed_job_is_what_it_was_closed_as_whatever_else_is_true(intent: Intent, closed_as: JobStatus) -> None:
    for ingest_done, total, started in itertools.product((True, False), (0, 5), (True, False)):
        shown = job_status(intent=intent, ingest_done=ingest_done, closed_as=closed_as, total=total, started=started)
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
def test_a_drained_job_is_closed_as_its_intent_and_its_failures_say(
    intent: Intent, failed: int, status: JobStatus
) -> None:
    assert closing_status(intent=intent, failed=failed) is status


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
def test_other_peoples_words_are_understood(word: str, status: ItemStatus) -> None:
    assert parse_item_status(word) is status


@pytest.mark.parametrize("status", ItemStatus)
def test_our_own_words_are_understood_in_any_case(status: ItemStatus) -> None:
    assert parse_item_status(status) is parse_item_status(status.upper()) is status


@pytest.mark.parametrize("word", ["", "  ", "doen", "null", "failed,done"])
def test_a_word_nobody_knows_is_refused_with_those_that_are_known(word: str) -> None:
    with pytest.raises(ValueError, match=r"unknown status .*; known are pending, processing, retry_wait, done"):
        parse_item_status(word)


def test_every_status_has_its_moves() -> None:
    assert set(TRANSITIONS) == set(ItemStatus)
    assert all(TRANSITIONS.values()), "nothing is a dead end: whatever is settled can be reprocessed"


def test_a_settled_item_only_goes_round_again() -> None:
    assert all(TRANSITIONS[status] == {S.PENDING} for status in TERMINAL)


def test_every_status_can_be_reached_from_pending() -> None:
    reached, fresh = {S.PENDING}, {S.PENDING}
    while fresh:
        fresh = set().union(*(TRANSITIONS[status] for status in fresh)) - reached
        reached |= fresh
    assert reached == set(ItemStatus)


def checked_words(column: str) -> list[set[str]]:
    """The words of every CHECK (column IN (...)) of the migrations."""
    text = b"\n".join(migration.text for migration in migrations()).decode()
    found = re.findall(rf"CHECK \({column} IN\s*\(([^)]*)\)\)", text)
    return [set(re.findall(r"'(\w+)'", words)) for words in found]


def test_the_database_checks_the_same_words() -> None:
    assert checked_words("intent") == [set(Intent)]
    assert checked_words("closed_as") == [CLOSED]
    # `processing` is never stored: it is what a leased batch makes of its items.
    assert checked_words("status") == [TERMINAL | OPEN_OUTCOMES]
    assert set(ItemStatus) - TERMINAL - OPEN_OUTCOMES == {S.PROCESSING}
