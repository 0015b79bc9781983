"""Why an item waits, decided from facts."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tidemill.core.status import Intent, ItemStatus, explain_open_item

AT = datetime(2026, 11, 16, 12, 30, 7, 123, tzinfo=UTC)
PENDING, PROCESSING, WAITING = ItemStatus.PENDING, ItemStatus.PROCESSING, ItemStatus.RETRY_WAIT


@pytest.mark.parametrize(
    ("status", "facts", "said"),
    [
        (PENDING, {}, "waits for its turn"),
        (PENDING, {"intent": Intent.PAUSE}, "paused"),
        (PENDING, {"intent": Intent.CANCEL}, "cancelling"),
        (WAITING, {"intent": Intent.FAIL, "due_at": AT, "is_due": False}, "cancelling"),
        (PENDING, {"has_worker": False}, "no worker has this kind"),
        (PENDING, {"has_worker": False, "intent": Intent.PAUSE}, "paused"),
        (WAITING, {"due_at": AT, "is_due": False}, "waits for its retry at 2026-11-16T12:30:07+00:00"),
        (WAITING, {"due_at": AT}, "waits for its turn"),
        (WAITING, {"due_at": AT, "is_due": False, "has_worker": False}, "no worker has this kind"),
        (PENDING, {"limiter": "shop"}, "waits for its turn at limiter shop"),
        (
            PENDING,
            {"limiter": "shop", "blocked_until": AT},
            "limiter shop is blocked until 2026-11-16T12:30:07+00:00",
        ),
        (PENDING, {"limiter": "shop", "blocked_until": AT, "intent": Intent.PAUSE}, "paused"),
        (PROCESSING, {"worker": "w1"}, "in hand of worker w1"),
        (PROCESSING, {"worker": "w1", "intent": Intent.PAUSE, "has_worker": False}, "in hand of worker w1"),
    ],
)
def test_open_item_reason_is_the_most_specific_cause(status: ItemStatus, facts: dict[str, Any], said: str) -> None:
    usual: dict[str, Any] = {"intent": Intent.RUN, "worker": None, "due_at": None, "is_due": True, "has_worker": True}
    assert explain_open_item(status, **(usual | facts)) == said
