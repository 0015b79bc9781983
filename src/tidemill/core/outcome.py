"""The outcomes of an item. A handler returns or raises one of them.

Any other return value is the result of ``Done``. Any other exception is a ``Retry`` until the attempts are used up.
"""

from collections.abc import Mapping
from typing import Any, TypedDict


class ErrorDetails(TypedDict, total=False):
    """Why an item did not succeed. A handler may add fields of its own, such as the ones that ``Fail`` takes."""

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
    errors: list["ErrorDetails"]  # of an imported row with several errors: all of them


class Outcome(Exception):
    """The root of the five."""


class Done(Outcome):
    """The item is finished; ``result`` is what the grid and the export show."""

    def __init__(self, result: Any = None, *, normalized: Any = None) -> None:
        super().__init__()
        self.result = result
        self.normalized = normalized


class NotFound(Outcome):
    """The outside world has no such thing; tried again once, conservatively.

    ``result`` is what the grid shows of it all the same, such as what came near. A handler that has other ways to look
    says itself whether there is another one (``again``), and ``item.misses`` tells it how many it has tried.
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
    """Try again, after ``after`` seconds if given, else with exponential backoff.

    ``throttled`` says that whoever the handler called is asked too much: no attempt is charged, and fewer items of
    the kind are in hand for a while.
    """

    throttled: bool = False
    charged: bool = True  # whether it uses an attempt up, unless it is throttled

    def __init__(
        self, reason: str = "retry", *, after: float | None = None, code: str | None = None, throttled: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = after
        self.throttled = throttled
        self.code = code if code is not None else "throttled" if throttled else "error"


class Wait(Retry):
    """Not yet: what it needs may come with others of its job. Whoever says so knows when to stop saying it."""

    charged = False


class Fail(Outcome):
    """The item cannot succeed; ``code`` groups failures, ``retryable`` says whether a redrive makes sense.

    ``details`` are kept beside them, such as the field and the value that are wrong.
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
    """What a set-based handler says of some items, by their place among those it was given; all others are done.

    ``failed`` are more of them, which cannot succeed: of each its code, its reason and its details. In a file with
    nothing but bad rows, a Fail for each would be most of the work.
    """

    def __init__(
        self, outcomes: Mapping[int, Outcome] | None = None, failed: Mapping[int, ErrorDetails] | None = None
    ) -> None:
        super().__init__(outcomes or {})
        self.failed = failed or {}


class AbortJob(Exception):
    """Not of an item but of its job: it cannot go on. What is unsettled goes back; the job fails for this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
