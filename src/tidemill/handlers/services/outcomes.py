"""From a call that failed to what becomes of its item. A refusal is understood by the engine itself."""

from tidemill.domain.item import Item
from tidemill.domain.outcome import Fail, Outcome, Retry
from tidemill.domain.retry import RetryPolicy
from tidemill.domain.services import CallFailed

# What somebody can put right, so that sending the item round again makes sense.
MENDABLE = (
    *("service_denied", "service_secret", "service_certificate", "service_redirect", "address_refused"),
    "unknown_limiter",
)


def outcome_of(error: CallFailed, item: Item, retry: RetryPolicy) -> Outcome:
    """The last attempt fails under the name of what was wrong, which says more than that it was the last."""
    if not error.passing:
        return Fail(error.reason, code=error.code, retryable=error.code in MENDABLE)
    if item.attempt - item.misses >= retry.max_attempts:
        return Fail(error.reason, code=error.code, retryable=True)
    return Retry(error.reason, code=error.code)
