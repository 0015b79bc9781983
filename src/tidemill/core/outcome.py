"""The outcomes of an item. A handler returns or raises one of them.

Any other return value becomes the result of ``Done``. Any other exception is a ``Retry`` until no attempts are left.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict


class ErrorDetails(TypedDict, total=False):
    """Why an item did not succeed. A handler may add its own fields with the ``details`` of ``Fail``."""

    code: str
    reason: str
    retryable: bool
    field: str | None
    value: str | None
    line: int
    byte_offset: int
    attempt: int
    throttles: int
    misses: int
    row: int
    errors: list["ErrorDetails"]  # all errors of an imported row, if it has several


@dataclass(frozen=True, slots=True)
class HandlerException:
    """An exception that a handler raised, as it is stored and logged."""

    type: str  # the qualified name of its class
    traceback: str
    location: str  # file and line that raised it


class Outcome(Exception):
    """The base class of all outcomes."""

    exception: HandlerException | None = None  # the unexpected exception that caused it


class Done(Outcome):
    """The item succeeded. The results table and result exports show ``result``."""

    def __init__(self, result: Any = None, *, normalized: Any = None) -> None:
        super().__init__()
        self.result = result
        self.normalized = normalized


class NotFound(Outcome):
    """The lookup found nothing. By default the item is retried once, after ``RetryPolicy.not_found_delay`` seconds.

    The results show ``result``, such as the nearest candidates, although the item was not found. A handler with
    several lookup strategies sets ``again`` to True while it has another strategy to use. ``item.misses`` is the number
    of strategies that the item has used.
    """

    def __init__(
        self, reason: str = "not found", *, result: Any = None, again: bool | None = None, after: float | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.result = result
        self.again = again
        self.after = after


class Skip(Outcome):
    """The item needs no work."""

    def __init__(self, reason: str = "skipped") -> None:
        super().__init__(reason)
        self.reason = reason


class Retry(Outcome):
    """Retry the item after ``after`` seconds. Without ``after``, the delay grows exponentially with each attempt.

    Set ``throttled`` if the called service rejected the request because of a rate limit. The attempt then does not
    count, and the worker temporarily runs fewer items of the kind concurrently.
    """

    throttled: bool = False
    charged: bool = True  # whether it counts as an attempt, unless it is throttled

    def __init__(
        self, reason: str = "retry", *, after: float | None = None, code: str | None = None, throttled: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = after
        self.throttled = throttled
        self.code = code if code is not None else "throttled" if throttled else "error"


class Wait(Retry):
    """Retry later without charging an attempt, because the item depends on others of its job.

    There is no limit: the handler must stop returning it at some point.
    """

    charged = False


class Fail(Outcome):
    """The item failed. ``code`` groups failures. ``retryable`` is True if a manual retry can succeed.

    ``details`` is additional data to store with the error, such as the invalid field and its value.
    """

    def __init__(
        self,
        reason: str = "failed",
        *,
        code: str = "permanent",
        retryable: bool = False,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code
        self.retryable = retryable
        self.details = details or {}


class BatchExceptions(dict[int, Outcome]):
    """The outcomes of a set-based handler, by the index of the item in its batch; all other items are done.

    ``failed`` has further items that failed, each with code, reason and details. It avoids creating a Fail per item,
    which would be most of the work for a file in which every row is invalid.
    """

    def __init__(
        self, outcomes: Mapping[int, Outcome] | None = None, failed: Mapping[int, ErrorDetails] | None = None
    ) -> None:
        super().__init__(outcomes or {})
        self.failed = failed or {}


class AbortJob(Exception):
    """Fail the whole job with this reason. The unsettled items of the batch are released."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
