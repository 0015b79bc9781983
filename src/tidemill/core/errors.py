"""The exceptions that Tidemill raises.

TidemillError
├── InvalidInput             an input row or a parameter is invalid
│   ├── InvalidColumns       columns of a file do not match the resource; one message per column
│   ├── AmbiguousFormats     values of columns can be read in two ways; one message per column
│   ├── InvalidRequest       a request has several problems; one message per problem
│   └── InvalidRows          rows of a file are invalid; one message per row
├── InvalidSql               a statement of a script failed; the message has its line and column
├── InvalidSettings          Tidemill cannot start because of invalid settings
├── DiskFull                 a local disk is full or rejects writes
├── TooLarge                 the input exceeds a limit; nothing of it is stored
├── StartHookFailed          a start hook of a mill failed; the child process cannot start
├── UnknownKind              no handler is registered for the kind
├── Forbidden                the user lacks the permission
├── UnknownEntity            the object does not exist, or the user has no access to it
│   ├── UnknownJob
│   ├── UnknownItem
│   ├── UnknownFile
│   ├── UnknownResource
│   └── UnknownUser
├── IdempotencyKeyReused     the idempotency key belongs to a different submission
├── Conflict                 the state of the job does not allow the operation
├── QuotaExceeded            the user has reached a quota; it has room again when jobs end
│   ├── InputExceedsQuota    the input alone is larger than the quota
│   └── StorageQuotaExceeded the stored files of the user have reached their quota; delete jobs
├── Busy                     all child processes or threads are busy; retry soon
├── TooManyRequests          the user has too many requests of this type in progress
├── Unavailable              the database is unreachable, or its schema has another version
│   ├── ReaderKilled         the process that reads a file was killed; a retry may succeed
│   ├── StorageUnavailable   the file store does not respond; it may later
│   └── StorageAccessDenied  the file store denies access; check its credentials
├── RemoteUnreachable        a remote server does not respond in time
├── BrokerUnavailable        the broker does not respond correctly
├── Interrupted              the work is no longer wanted; partial results are kept
└── StaleLease               the lease was lost; nothing was written
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

SET_FORMATS_HINT = 'Set the format of these columns with "formats", or set "assume" to use the more likely one'
PROBLEMS_IN_MESSAGE_MAX = 20  # problems listed in one message: a file can have ten thousand invalid columns


def escape_unprintable(text: str) -> str:
    r"""Escape what ``repr`` would escape, such as ``\x1b`` and ``\u202e``, but not tab and newline.

    Messages quote what users send. PostgreSQL cannot store a NUL, JSON in UTF-8 cannot contain an unpaired surrogate, a
    terminal would execute an escape sequence, and a reader would not see a change of direction.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\t\n" else one.encode("unicode_escape").decode() for one in text)


class TidemillError(Exception):
    """The base class of all Tidemill errors. Messages are written for users and contain no control characters."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(escape_unprintable(one) if isinstance(one, str) else one for one in args))


class InvalidInput(TidemillError):
    """An input row or a parameter is invalid."""


class InvalidColumns(InvalidInput):
    """Columns of a file do not match the resource; ``problems`` has one message per column."""

    def __init__(self, problems: Sequence[str]) -> None:
        first, more = problems[:PROBLEMS_IN_MESSAGE_MAX], len(problems) - PROBLEMS_IN_MESSAGE_MAX
        super().__init__("; ".join(first) + (f"; and {more:,} more" if more > 0 else ""))
        self.problems = [escape_unprintable(problem) for problem in problems]


class AmbiguousFormats(InvalidInput):
    """Values of columns can be read in two ways.

    ``problems`` has one message per column, ``paths`` the option to set, and ``choices`` the formats with examples.
    """

    def __init__(
        self,
        problems: Sequence[str],
        paths: Sequence[tuple[str, ...]] = (),
        choices: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        shown, more = problems[:PROBLEMS_IN_MESSAGE_MAX], len(problems) - PROBLEMS_IN_MESSAGE_MAX
        super().__init__("; ".join(shown) + (f"; and {more:,} more" if more > 0 else "") + f". {SET_FORMATS_HINT}")
        self.problems = [escape_unprintable(problem) for problem in problems]
        self.paths = list(paths)
        self.choices = list(choices)


class InvalidRequest(InvalidInput):
    """A request has several problems; ``problems`` has one message for each.

    ``paths`` has the position of each problem in the request, if it is known.
    """

    def __init__(self, problems: Sequence[str], paths: Sequence[tuple[str, ...]] = ()) -> None:
        super().__init__("; ".join(problems))
        self.problems = [escape_unprintable(problem) for problem in problems]
        self.paths = list(paths)


class InvalidRows(InvalidInput):
    """Rows of a file are invalid; ``problems`` describes the first of them, ``count`` is the number of all."""

    def __init__(self, problems: Sequence[str], count: int) -> None:
        super().__init__(f"No rows were changed: {problems[0]}" + (f", and {count - 1} more" if count > 1 else ""))
        self.problems = [escape_unprintable(problem) for problem in problems]
        self.count = count


class InvalidSql(TidemillError):
    """PostgreSQL rejected a statement of a script."""


class InvalidSettings(TidemillError):
    """Tidemill cannot start because of invalid settings. The message lists all of them."""


class DiskFull(TidemillError):
    """A local disk is full or rejects writes; the input is not the cause."""


class TooLarge(TidemillError):
    """The input exceeds a limit; nothing of it is stored."""


class StartHookFailed(TidemillError):
    """A start hook of a mill raised an exception or timed out."""


class UnknownKind(TidemillError):
    """No handler is registered for the kind."""


class Forbidden(TidemillError):
    """The user lacks the permission, but may know that the object exists."""


class UnknownEntity(TidemillError):
    """The object does not exist, or the user may not see it; the error is the same for both."""


class UnknownJob(UnknownEntity):
    """The job does not exist."""


class UnknownItem(UnknownEntity):
    """The job has no such item."""


class UnknownFile(UnknownEntity):
    """No stored file has this name."""


class UnknownResource(UnknownEntity):
    """The resource does not exist, or the role may not use it."""


class UnknownUser(UnknownEntity):
    """The user or the API key does not exist."""


class IdempotencyKeyReused(TidemillError):
    """The idempotency key belongs to a different submission."""


class Conflict(TidemillError):
    """The state of the job does not allow the operation."""


class QuotaExceeded(TidemillError):
    """The user has reached a quota: ``name``, the use that the request would have led to, and the limit."""

    def __init__(self, name: str, used: int, limit: int, remedy: str) -> None:
        super().__init__(f'Quota "{name}" exceeded: {used:,} of {limit:,}. {remedy}')
        self.name = name
        self.used = used
        self.limit = limit


class InputExceedsQuota(QuotaExceeded):
    """The input alone is larger than the quota, so that waiting does not help."""


class StorageQuotaExceeded(QuotaExceeded):
    """The stored files of the user have reached their quota. It has room again when the user deletes jobs."""


class Busy(TidemillError):
    """All child processes or threads are busy; retry soon."""


class TooManyRequests(TidemillError):
    """The user has too many requests of this type in progress; retry when one has ended."""


class Unavailable(TidemillError):
    """The database is unreachable, or its schema has a different version."""


class ReaderKilled(Unavailable):
    """The process that reads a file was killed from outside, or did not respond in time; a retry may succeed."""


class StorageUnavailable(Unavailable):
    """The file store does not respond in time or correctly; a retry may succeed."""


class StorageAccessDenied(Unavailable):
    """The file store denies access: its credentials are wrong or lack the permission."""


class RemoteUnreachable(TidemillError):
    """A remote server does not respond in time."""


class BrokerUnavailable(TidemillError):
    """The broker does not respond correctly. Workers continue without it."""


class Interrupted(TidemillError):
    """The work is no longer wanted, or not now; partial results are kept so that it can resume."""


class StaleLease(TidemillError):
    """The lease was lost; nothing was written."""


COMPARED_MAX_CHARS = 200  # of an unknown word, which a request may make long


def format_suggestion(word: Any, candidates: Iterable[str]) -> str:
    """Return ``; did you mean "…"?`` with the most similar candidate, or an empty string."""
    near = get_close_matches(str(word)[:COMPARED_MAX_CHARS], list(candidates), n=1)
    return f'; did you mean "{near[0]}"?' if near else ""
