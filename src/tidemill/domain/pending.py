"""Why an open item is still open, in words for whoever waits for it."""

from datetime import datetime

from tidemill.domain.status import Intent, ItemStatus

LIVE_S = 30.0  # a worker that was not heard of for longer is not counted on; they are heard of every 5 s


def why(
    status: ItemStatus,
    *,
    intent: Intent,
    worker: str | None,
    due_at: datetime | None,
    is_due: bool,
    has_worker: bool,
    has_kickoff: bool = False,
    limiter: str | None = None,
    blocked_until: datetime | None = None,
) -> str:
    """The nearest thing that must change before the item is settled."""
    if status is ItemStatus.PROCESSING:
        return f"in hand of worker {worker}"
    if intent in (Intent.CANCEL, Intent.FAIL):
        return "cancelling"
    if intent is Intent.PAUSE:
        return "paused"
    if not has_worker:
        return "no worker has this kind" + ("; a kickoff runs it" if has_kickoff else "")
    if status is ItemStatus.RETRY_WAIT and due_at is not None and not is_due:
        return f"waits for its retry at {due_at.isoformat(timespec='seconds')}"
    if limiter is not None and blocked_until is not None:
        return f"limiter {limiter} is blocked until {blocked_until.isoformat(timespec='seconds')}"
    return "waits for its turn" if limiter is None else f"waits for its turn at limiter {limiter}"
