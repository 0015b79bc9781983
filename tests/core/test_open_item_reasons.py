"""Tests of the reasons why an item is open."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tidemill.core.status import Intent, ItemStatus, explain_why_item_is_open

AT = datetime(2026, 11, 16, 12, 30, 7, 123, tzinfo=UTC)
PENDING, PROCESSING, WAITING = ItemStatus.PENDING, ItemStatus.PROCESSING, ItemStatus.RETRY_WAIT


@pytest.mark.parametrize(
    ("status", "facts", "said"),
    [
        (PENDING, {}, "Queued"),
        (PENDING, {"intent": Intent.PAUSE}, "Paused"),
        (PENDING, {"intent": Intent.CANCEL}, "Cancelling"),
        (WAITING, {"intent": Intent.FAIL, "due_at": AT, "is_due": False}, "Cancelling"),
        (PENDING, {"has_worker": False}, "No running worker handles this kind"),
        (PENDING, {"has_worker": False, "intent": Intent.PAUSE}, "Paused"),
        (WAITING, {"due_at": AT, "is_due": False}, "Waiting for its retry at 2026-11-16T12:30:07+00:00"),
        (WAITING, {"due_at": AT}, "Queued"),
        (WAITING, {"due_at": AT, "is_due": False, "has_worker": False}, "No running worker handles this kind"),
        (PENDING, {"limiter": "shop"}, 'Waiting for limiter "shop"'),
        (
            PENDING,
            {"limiter": "shop", "blocked_until": AT},
            'Limiter "shop" is blocked until 2026-11-16T12:30:07+00:00',
        ),
        (PENDING, {"limiter": "shop", "blocked_until": AT, "intent": Intent.PAUSE}, "Paused"),
        (PROCESSING, {"worker": "w1"}, "Processing on worker w1"),
        (PROCESSING, {"worker": "w1", "intent": Intent.PAUSE, "has_worker": False}, "Processing on worker w1"),
    ],
)
def test_open_item_reason_is_the_most_specific_cause(status: ItemStatus, facts: dict[str, Any], said: str) -> None:
    usual: dict[str, Any] = {"intent": Intent.RUN, "worker": None, "due_at": None, "is_due": True, "has_worker": True}
    assert explain_why_item_is_open(status, **(usual | facts)) == said
